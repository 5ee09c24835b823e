//! Named formats: `format.dns1123Label().validate(text)`.

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

/// A format of names or values.
#[derive(Debug)]
pub(crate) struct NamedFormat {
    /// The name after `format.`
    pub(crate) name: &'static str,
    /// What validation is taken to cost, as the length of a pattern.
    pub(crate) pattern_size: u64,
    check: fn(&str) -> Option<&'static str>,
}

/// The largest pattern of all, for the estimate.
pub(crate) const MAX_PATTERN_SIZE: u64 = 128;

/// All formats.
pub(crate) static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", pattern_size: 30, check: |text| label(text, LABEL) },
    NamedFormat { name: "dns1123Subdomain", pattern_size: 60, check: |text| subdomain(text) },
    NamedFormat { name: "dns1035Label", pattern_size: 30, check: |text| label_1035(text) },
    NamedFormat { name: "qualifiedName", pattern_size: 60, check: qualified_name },
    NamedFormat { name: "dns1123LabelPrefix", pattern_size: 30, check: |text| label(without_dash(text), LABEL) },
    NamedFormat { name: "dns1123SubdomainPrefix", pattern_size: 60, check: |text| subdomain(without_dash(text)) },
    NamedFormat { name: "dns1035LabelPrefix", pattern_size: 30, check: |text| label_1035(without_dash(text)) },
    NamedFormat { name: "labelValue", pattern_size: 40, check: label_value },
    NamedFormat { name: "uri", pattern_size: 1103, check: uri },
    NamedFormat { name: "uuid", pattern_size: 77, check: uuid },
    NamedFormat { name: "byte", pattern_size: 84, check: base64 },
    NamedFormat { name: "date", pattern_size: 79, check: date },
    NamedFormat { name: "datetime", pattern_size: 79, check: datetime },
];

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character";

fn without_dash(text: &str) -> &str {
    text.strip_suffix('-').unwrap_or(text)
}

fn is_lower_label(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn label(text: &str, reason: &'static str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    (!is_lower_label(text)).then_some(reason)
}

fn label_1035(text: &str) -> Option<&'static str> {
    let reason = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                  alphabetic character, and end with an alphanumeric character";
    let starts_with_letter = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    label(text, reason).or_else(|| (!starts_with_letter).then_some(reason))
}

fn subdomain(text: &str) -> Option<&'static str> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    (!text.split('.').all(is_lower_label)).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
         start and end with an alphanumeric character",
    )
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn qualified_name(text: &str) -> Option<&'static str> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if prefix.is_some_and(|prefix| subdomain(prefix).is_some()) {
        return Some("prefix part must be a DNS subdomain");
    }
    (name.len() > 63 || !is_name_part(name)).then_some(
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character",
    )
}

fn label_value(text: &str) -> Option<&'static str> {
    (text.len() > 63 || !(text.is_empty() || is_name_part(text))).then_some(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character",
    )
}

fn uri(text: &str) -> Option<&'static str> {
    let is_url = super::url::is_url(Context { regex: None }, &[Value::string(text)]);
    (!matches!(is_url, Ok(Value::Bool(true)))).then_some("invalid URI")
}

fn uuid(text: &str) -> Option<&'static str> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let shaped = groups == [8, 4, 4, 4, 12] || groups == [32];
    (!shaped || !digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some("does not match the UUID format")
}

fn base64(text: &str) -> Option<&'static str> {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let valid = text.len().is_multiple_of(4) && padding <= 2 && body.bytes().all(plain) && !text.is_empty();
    (!valid).then_some("invalid base64")
}

fn date(text: &str) -> Option<&'static str> {
    super::time::parse_timestamp(&format!("{text}T00:00:00Z")).is_none().then_some("invalid date")
}

fn datetime(text: &str) -> Option<&'static str> {
    super::time::parse_timestamp(text).is_none().then_some("invalid datetime")
}

pub(crate) fn named(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(name)] => {
            let format = FORMATS.iter().find(|format| *format.name == **name);
            Ok(format.map_or(Value::Optional(None), |format| Value::some(Value::Format(format))))
        }
        _ => Err(EvalError::no_overload("format.named")),
    }
}

pub(crate) fn validate(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Format(format), Value::String(text)] => Ok(match (format.check)(text) {
            None => Value::Optional(None),
            Some(reason) => Value::some(Value::list(vec![Value::string(reason)])),
        }),
        _ => Err(EvalError::no_overload("validate")),
    }
}
