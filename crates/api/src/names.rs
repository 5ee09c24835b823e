//! What Kubernetes takes for a name, a label key and a label value.

/// Most characters of a DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;
/// Most characters of the name part of a qualified name, and of a label value.
const MAX_NAME: usize = 63;

/// Whether a text is a lower-case DNS subdomain (RFC 1123) of at most 253 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        starts_and_ends_with(label, alphanumeric) && label.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
    };
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(label)
}

/// Why a text is no qualified name (an optional DNS subdomain and `/`, then a name), as Kubernetes words it.
pub fn qualified_name_error(text: &str) -> Option<String> {
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return Some(format!(
                "a qualified name must consist {NAME_PARTS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) if !is_dns_subdomain(prefix) => {
            return Some("prefix part must be a lowercase RFC 1123 subdomain".to_owned());
        }
        Some(_) | None => {}
    }
    if name.is_empty() {
        Some("name part must be non-empty".to_owned())
    } else if name.len() > MAX_NAME {
        Some(format!("name part must be no more than {MAX_NAME} bytes"))
    } else if !is_name(name) {
        Some(format!("name part must consist {NAME_PARTS}"))
    } else {
        None
    }
}

/// Why a text is no label value, as Kubernetes words it.
pub fn label_value_error(text: &str) -> Option<String> {
    if text.len() > MAX_NAME {
        Some(format!("must be no more than {MAX_NAME} bytes"))
    } else if !text.is_empty() && !is_name(text) {
        Some(format!("a valid label must be an empty string or consist {NAME_PARTS}"))
    } else {
        None
    }
}

const NAME_PARTS: &str =
    "of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

fn is_name(text: &str) -> bool {
    starts_and_ends_with(text, |byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn starts_and_ends_with(text: &str, good: impl Fn(u8) -> bool) -> bool {
    matches!((text.bytes().next(), text.bytes().next_back()), (Some(first), Some(last)) if good(first) && good(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_lower_case_and_bounded() {
        for good in ["a", "a-b.c1", "0", &"a".repeat(253)] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", "a.-b", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
    }

    #[test]
    fn qualified_names_have_at_most_one_slash() {
        for good in ["a", "example.com/My_name.1", "A"] {
            assert_eq!(qualified_name_error(good), None, "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Example.com/a", "-a", &"a".repeat(64)] {
            assert!(qualified_name_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn label_values_may_be_empty() {
        for good in ["", "a", "a.b_c-d", &"a".repeat(63)] {
            assert_eq!(label_value_error(good), None, "{good}");
        }
        for bad in ["-", "a b", "a/b", &"a".repeat(64)] {
            assert!(label_value_error(bad).is_some(), "{bad}");
        }
    }
}
