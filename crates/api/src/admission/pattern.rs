//! Patterns of a schema, with the meaning that Go gives them.

use regex::Regex;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    program: Regex,
}

impl Pattern {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let program = Regex::new(&as_go_means(text)).map_err(|error| format!("pattern {text:?}: {error}"))?;
        Ok(Self { text: text.to_owned(), program })
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        self.program.is_match(value)
    }
}

/// Go's `\d`, `\w` and `\s` know ASCII only, and its `\s` has no vertical tab; all else reads the same.
fn as_go_means(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        translated.push(character);
        if character != '\\' {
            continue;
        }
        let Some(escaped) = characters.next() else { break };
        let class = match escaped {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            's' => r"[\t\n\x0C\r ]",
            'S' => r"[^\t\n\x0C\r ]",
            _ => {
                translated.push(escaped);
                continue;
            }
        };
        translated.pop();
        translated.push_str(class);
    }
    translated
}

/// Whether a text has the format `date-time`, as the API server checks it: a date, `T`, a time and an offset.
pub(super) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let (year, month, day) = (digits(parts.next(), 4), digits(parts.next(), 2), digits(parts.next(), 2));
    let (Some(year), Some(month), Some(day), None) = (year, month, day, parts.next()) else { return false };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=last).contains(&day)
}

/// `15:04:05`, perhaps a fraction after any one character, then `z` or an offset whose size nobody checks.
fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let mut parts = clock.split(':');
    let (hour, minute, second) = (digits(parts.next(), 2), digits(parts.next(), 2), digits(parts.next(), 2));
    let (Some(hour), Some(minute), Some(second), None) = (hour, minute, second, parts.next()) else { return false };
    hour <= 23 && minute <= 59 && second <= 59 && (is_offset(rest) || is_offset(without_fraction(rest)))
}

fn without_fraction(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    let after = characters.as_str();
    let rest = after.trim_start_matches(|character: char| character.is_ascii_digit());
    if rest.len() == after.len() { text } else { rest }
}

fn is_offset(text: &str) -> bool {
    let Some(offset) = text.strip_prefix(['+', '-']) else { return text == "z" };
    let mut parts = offset.split(':');
    digits(parts.next(), 2).is_some() && digits(parts.next(), 2).is_some() && parts.next().is_none()
}

fn digits(text: Option<&str>, length: usize) -> Option<u32> {
    text.filter(|text| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ascii_as_in_go() {
        let digits = Pattern::compile(r"^\d+(\.\d+)?$").unwrap();
        assert!(digits.matches("1.5"));
        assert!(!digits.matches("\u{0661}"));
        let spaces = Pattern::compile(r"^a\sb$").unwrap();
        assert!(spaces.matches("a b"));
        assert!(!spaces.matches("a\u{a0}b"));
        assert!(!spaces.matches("a\u{b}b"));
        assert!(Pattern::compile(r"^[\d]+\\d$").unwrap().matches(r"12\d"));
    }

    #[test]
    fn date_times_are_those_that_the_api_server_takes() {
        let good = [
            "2026-01-02T03:04:05Z",
            "2026-01-02t03:04:05z",
            "2026-01-02T03:04:05.123456Z",
            "2026-01-02T03:04:05+02:00",
            "2024-02-29T23:59:59-99:99",
        ];
        let bad = [
            "",
            "2026-01-02",
            "2026-01-02 03:04:05",
            "2026-01-02T03:04:05",
            "2026-13-02T03:04:05Z",
            "2026-02-29T03:04:05Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:04:60Z",
            "2026-01-02T03:04:05.Z",
            "26-01-02T03:04:05Z",
        ];
        for text in good {
            assert!(is_date_time(text), "{text}");
        }
        for text in bad {
            assert!(!is_date_time(text), "{text}");
        }
    }
}
