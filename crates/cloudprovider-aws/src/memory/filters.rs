//! Which of many things a query finds.

use super::error;
use crate::node_class::spec::Tags;
use crate::service::Error;
use crate::service::ec2::{Filter, Query};

/// Something that queries find.
pub(super) trait Found {
    /// Its id.
    fn id(&self) -> &str;
    /// Its tags.
    fn tags(&self) -> &Tags;
    /// What a filter other than those for tags looks at; none if there is no such filter here.
    fn attribute(&self, name: &str) -> Option<String>;
}

/// What a query finds.
///
/// # Errors
/// For a filter that is not known here.
pub(super) fn found<'a, T: Found + 'a>(
    call: &'static str,
    all: impl IntoIterator<Item = &'a T>,
    query: &Query,
) -> Result<Vec<&'a T>, Error> {
    let mut kept = Vec::new();
    for thing in all {
        let mut fits = query.ids.is_empty() || query.ids.iter().any(|id| id == thing.id());
        for filter in &query.filters {
            fits &= holds(call, thing, filter)?;
        }
        if fits {
            kept.push(thing);
        }
    }
    Ok(kept)
}

fn holds(call: &'static str, thing: &impl Found, filter: &Filter) -> Result<bool, Error> {
    let one_of = |value: &str| filter.values.iter().any(|pattern| matches(pattern, value));
    if let Some(key) = filter.name.strip_prefix("tag:") {
        return Ok(thing.tags().get(key).is_some_and(|value| one_of(value)));
    }
    if filter.name == "tag-key" {
        return Ok(thing.tags().keys().any(|key| one_of(key)));
    }
    let unknown = || error(call, "InvalidParameterValue", format!("The filter '{}' is invalid", filter.name));
    thing.attribute(&filter.name).map(|value| one_of(&value)).ok_or_else(unknown)
}

/// `*` stands for any characters, `?` for one.
fn matches(pattern: &str, text: &str) -> bool {
    // Most are meant as they are, and each machine is asked about.
    if !pattern.contains(['*', '?']) {
        return pattern == text;
    }
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // For each length of the text, whether what was read of the pattern stands for so much of it.
    let mut reached = vec![false; text.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for letter in pattern {
        let before = reached.clone();
        for (length, now) in reached.iter_mut().enumerate() {
            let shorter = length.checked_sub(1);
            let one_more = shorter.and_then(|it| before.get(it)).copied().unwrap_or(false);
            *now = match letter {
                '*' => before.iter().take(length + 1).any(|it| *it),
                '?' => one_more,
                _ => one_more && shorter.and_then(|it| text.get(it)) == Some(&letter),
            };
        }
    }
    reached.last().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_filters() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("eks-*-v1", "eks-1.33-v1", true),
            ("eks-*-v1", "eks-1.33-v2", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("**b", "aab", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
