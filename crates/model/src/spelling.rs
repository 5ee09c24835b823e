//! What a word that nobody knows was meant to be.

/// The known word that a person probably meant by another: it differs by case or by few letters. Of several the
/// nearest, then the first by name.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let alike = known.into_iter().filter_map(|known| {
        let distance = edit_distance(&word.to_ascii_lowercase(), &known.to_ascii_lowercase());
        (distance <= (known.len() / 3).max(1) && word.len() > 1).then_some((distance, known))
    });
    alike.min().map(|(_, known)| known)
}

/// Levenshtein distance in bytes; words are short.
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (index, from) in a.bytes().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        let mut next = Vec::with_capacity(row.len());
        next.push(left);
        for (&above, to) in row.iter().skip(1).zip(b.bytes()) {
            let substituted = diagonal + usize::from(from != to);
            left = substituted.min(above + 1).min(left + 1);
            diagonal = above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn the_nearest_known_word_is_what_was_meant() {
        let known = ["perContainer", "perPod", "pool", "driver"];
        for (word, expected) in [
            ("perPodReference", None),
            ("PerPod", Some("perPod")),
            ("pol", Some("pool")),
            ("drivers", Some("driver")),
            ("perpdo", Some("perPod")),
            ("direct", None),
            ("p", None),
        ] {
            assert_eq!(did_you_mean(word, known), expected, "{word}");
        }
    }
}
