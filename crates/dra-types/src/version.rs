//! Semantic versions as attributes and CEL compare them.
//!
//! Strict semver.org 2.0.0 text, as `github.com/blang/semver` reads it: three numbers without leading zeros. Precedence
//! ignores build metadata, and so does equality. Numbers beyond 64 bits are refused.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Why a text is no semantic version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a semantic version: {reason}")]
pub struct VersionError {
    text: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(Arc<str>),
}

/// A semantic version.
#[derive(Debug, Clone)]
pub struct SemanticVersion {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    pre_release: Vec<Identifier>,
    text: Arc<str>,
}

impl SemanticVersion {
    /// Reads a strict version.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        let fail = |reason| VersionError { text: text.to_owned(), reason };
        let (rest, build) = match text.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (text, None),
        };
        let (numbers, pre_release) = match rest.split_once('-') {
            Some((numbers, pre_release)) => (numbers, Some(pre_release)),
            None => (rest, None),
        };
        let mut parts = numbers.split('.');
        let mut number = || parts.next().ok_or("must have three numbers").and_then(number).map_err(fail);
        let (major, minor, patch) = (number()?, number()?, number()?);
        if parts.next().is_some() {
            return Err(fail("must have three numbers"));
        }
        let pre_release = pre_release
            .map(|identifiers| identifiers.split('.').map(identifier).collect::<Result<Vec<_>, _>>())
            .transpose()
            .map_err(fail)?
            .unwrap_or_default();
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return Err(fail("build metadata must be identifiers separated by dots"));
        }
        Ok(Self { major, minor, patch, pre_release, text: text.into() })
    }

    /// Reads a version after `v` is stripped, missing numbers are added and leading zeros are dropped, as Kubernetes'
    /// `semver(text, true)` does.
    pub fn parse_normalized(text: &str) -> Result<Self, VersionError> {
        let stripped = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = stripped.splitn(3, '.').map(strip_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err(VersionError {
                    text: text.to_owned(),
                    reason: "a short version cannot have a pre-release or build metadata",
                });
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    /// The text it was read from.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Cuts leading zeros of a number; `0` itself and texts that start otherwise stay.
fn strip_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    if stripped.starts_with(|c: char| c.is_ascii_digit()) { stripped.to_owned() } else { format!("0{stripped}") }
}

fn number(text: &str) -> Result<u64, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("must have three numbers");
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err("numbers must not have leading zeros");
    }
    text.parse().map_err(|_| "a number exceeds 64 bits")
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn identifier(text: &str) -> Result<Identifier, &'static str> {
    if !is_identifier(text) {
        return Err("a pre-release must be identifiers separated by dots");
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Identifier::Text(text.into()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err("numbers of a pre-release must not have leading zeros");
    }
    text.parse().map(Identifier::Number).map_err(|_| "a number exceeds 64 bits")
}

impl Ord for Identifier {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
        }
    }
}

impl PartialOrd for Identifier {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SemanticVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre_release.cmp(&other.pre_release),
            }
        })
    }
}

impl PartialOrd for SemanticVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SemanticVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SemanticVersion {}

impl fmt::Display for SemanticVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> SemanticVersion {
        SemanticVersion::parse(text).unwrap()
    }

    #[test]
    fn precedence_is_that_of_semver_org() {
        let ascending = [
            "0.9.9",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.2.0",
            "10.0.0",
        ];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn build_metadata_makes_no_difference() {
        assert_eq!(version("1.2.3+a"), version("1.2.3+b"));
    }

    #[test]
    fn only_strict_text_is_read() {
        for text in ["", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.-3", "1.2.3 "]
        {
            assert!(SemanticVersion::parse(text).is_err(), "{text}");
        }
        assert!(SemanticVersion::parse("18446744073709551616.0.0").is_err());
    }

    #[test]
    fn normalizing_completes_short_versions() {
        for (text, expected) in
            [("v1", "1.0.0"), ("1.2", "1.2.0"), ("01.02.03", "1.2.3"), ("v550", "550.0.0"), ("0", "0.0.0")]
        {
            assert_eq!(SemanticVersion::parse_normalized(text).unwrap().as_str(), expected);
        }
        assert!(SemanticVersion::parse_normalized("1.2-rc").is_err());
    }
}
