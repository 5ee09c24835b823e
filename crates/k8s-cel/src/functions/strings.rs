//! Strings. Positions count characters, not bytes.

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

/// The longest string that a replacement or format makes.
///
/// Differs: `cel-sizes`. Upstream builds strings of any length that the cost limit then refuses.
const MAX_LEN: usize = 10 << 20;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::invalid(format_args!("index out of range: {index}"))
}

fn position(index: i64, length: usize) -> Result<usize, EvalError> {
    usize::try_from(index).ok().filter(|at| *at <= length).ok_or_else(|| out_of_range(index))
}

fn count(text: &str) -> usize {
    text.chars().count()
}

fn int(at: Option<usize>) -> Value {
    Value::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

pub(crate) fn contains(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.contains(&**part))),
        _ => no_overload("contains"),
    }
}

pub(crate) fn starts_with(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.starts_with(&**part))),
        _ => no_overload("startsWith"),
    }
}

pub(crate) fn ends_with(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.ends_with(&**part))),
        _ => no_overload("endsWith"),
    }
}

pub(crate) fn char_at(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::String(text), Value::Int(index)] = args else { return no_overload("charAt") };
    let at = position(*index, count(text))?;
    Ok(Value::string(text.chars().nth(at).map(String::from).unwrap_or_default()))
}

fn find(text: &[char], part: &[char], from: usize) -> Option<usize> {
    (from..=text.len().checked_sub(part.len())?).find(|at| text.get(*at..at + part.len()) == Some(part))
}

pub(crate) fn index_of(_: Context<'_>, args: &[Value]) -> Outcome {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return no_overload("indexOf"),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let text: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    Ok(int(if start < text.len() { find(&text, &part, start) } else { None }))
}

pub(crate) fn last_index_of(_: Context<'_>, args: &[Value]) -> Outcome {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] if part.is_empty() => return Ok(int(Some(count(text)))),
        [Value::String(text), Value::String(part)] => {
            if text.len() < part.len() {
                return Ok(Value::Int(-1));
            }
            (text, part, i64::try_from(count(text)).unwrap_or(i64::MAX) - 1)
        }
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return no_overload("lastIndexOf"),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let text: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    if start >= text.len() {
        return Ok(Value::Int(-1));
    }
    let Some(last) = text.len().checked_sub(part.len()) else { return Ok(Value::Int(-1)) };
    Ok(int((0..=start.min(last)).rev().find(|at| text.get(*at..at + part.len()) == Some(part.as_slice()))))
}

pub(crate) fn lower_ascii(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::string(text.to_ascii_lowercase())),
        _ => no_overload("lowerAscii"),
    }
}

pub(crate) fn upper_ascii(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::string(text.to_ascii_uppercase())),
        _ => no_overload("upperAscii"),
    }
}

pub(crate) fn trim(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::string(text.trim())),
        _ => no_overload("trim"),
    }
}

pub(crate) fn substring(_: Context<'_>, args: &[Value]) -> Outcome {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return no_overload("substring"),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(EvalError::invalid(format_args!("invalid substring range. start: {start}, end: {end}")));
    }
    let length = count(text);
    let from = position(start, length)?;
    let to = end.map_or(Ok(length), |end| position(end, length))?;
    Ok(Value::string(text.chars().skip(from).take(to - from).collect::<String>()))
}

pub(crate) fn replace(_: Context<'_>, args: &[Value]) -> Outcome {
    let (text, old, new, limit) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, usize::MAX),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            // A negative limit is none.
            (text, old, new, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return no_overload("replace"),
    };
    if (text.len() + 1).saturating_mul(new.len() + 1) > MAX_LEN {
        return Err(EvalError::CostLimitExceeded);
    }
    Ok(Value::string(text.replacen(&**old, new, limit)))
}

pub(crate) fn split(_: Context<'_>, args: &[Value]) -> Outcome {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, usize::MAX),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => {
            (text, separator, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return no_overload("split"),
    };
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    if !separator.is_empty() {
        return Ok(Value::list(text.splitn(limit, &**separator).map(Value::string).collect()));
    }
    // Character by character; the last takes what is left.
    let mut parts = Vec::new();
    let mut rest = &**text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            break;
        }
        let (head, tail) = rest.split_at(first.len_utf8());
        parts.push(Value::string(head));
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(Value::string(rest));
    }
    Ok(Value::list(parts))
}

pub(crate) fn join(_: Context<'_>, args: &[Value]) -> Outcome {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return no_overload("join"),
    };
    let mut joined = String::new();
    for (index, value) in list.iter().enumerate() {
        let Value::String(text) = value else {
            return Err(EvalError::invalid(format_args!("join: invalid input: {}", value.type_name())));
        };
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
        if joined.len() > MAX_LEN {
            return Err(EvalError::CostLimitExceeded);
        }
    }
    Ok(Value::string(joined))
}

pub(crate) fn quote(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::string(quoted(text))),
        _ => no_overload("strings.quote"),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// `"…%s…".format([…])`. The precision of a verb is bounded.
pub(crate) fn format(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::String(pattern), Value::List(values)] = args else { return no_overload("format") };
    let mut values = values.iter();
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut precision = None;
        if chars.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            let parsed = digits.parse::<usize>().ok().filter(|precision| *precision <= 1000);
            precision = Some(parsed.ok_or_else(|| EvalError::invalid("error while formatting: invalid precision"))?);
        }
        let verb = chars.next().ok_or_else(|| EvalError::invalid("unexpected end of string"))?;
        let value = values.next().ok_or_else(|| EvalError::invalid("not enough arguments for format"))?;
        out.push_str(&formatted(verb, value, precision)?);
        if out.len() > MAX_LEN {
            return Err(EvalError::CostLimitExceeded);
        }
    }
    Ok(Value::string(out))
}

fn formatted(verb: char, value: &Value, precision: Option<usize>) -> Result<String, EvalError> {
    let unfit = || EvalError::invalid(format_args!("%{verb} is not for {}", value.type_name()));
    Ok(match (verb, value) {
        ('s', _) => plain(value)?,
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('f', Value::Double(number)) => grouped(&format!("{number:.*}", precision.unwrap_or(6))),
        // Differs: `cel-format-exponent`. Upstream writes powers of ten in superscript here.
        ('e', Value::Double(number)) => exponent(*number, precision.unwrap_or(6)),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('b', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:b}")),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('x', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:x}")),
        ('X', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:X}")),
        ('x', Value::Uint(number)) => format!("{number:x}"),
        ('X', Value::Uint(number)) => format!("{number:X}"),
        ('x', Value::String(text)) => hex(text.as_bytes()),
        ('X', Value::String(text)) => hex(text.as_bytes()).to_uppercase(),
        ('x', Value::Bytes(bytes)) => hex(bytes),
        ('X', Value::Bytes(bytes)) => hex(bytes).to_uppercase(),
        ('o', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:o}")),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('d' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o', _) => return Err(unfit()),
        _ => return Err(EvalError::invalid(format_args!("unrecognized formatting clause \"{verb}\""))),
    })
}

/// With a comma between groups of three digits, as numbers are written in upstream's locale.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut grouped = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn signed(number: i64, print: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, print(number.unsigned_abs()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// A value inside of a list or map: as one would write it.
fn literal(value: &Value) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => quoted(text),
        Value::Bytes(bytes) => format!("b{}", quoted(&String::from_utf8_lossy(bytes))),
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        Value::Double(number) => quoted(&super::conversions::double_to_string(*number)),
        Value::Duration(_) => format!("duration({})", quoted(&plain(value)?)),
        Value::Timestamp(_) => format!("timestamp({})", quoted(&plain(value)?)),
        other => plain(other)?,
    })
}

/// How `%s` prints a value.
fn plain(value: &Value) -> Result<String, EvalError> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => super::conversions::double_to_string(*number),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::List(list) => format!("[{}]", list.iter().map(literal).collect::<Result<Vec<_>, _>>()?.join(", ")),
        Value::Map(map) => {
            let entry = |(key, value): &(Value, Value)| Ok(format!("{}:{}", literal(key)?, literal(value)?));
            let mut entries = map.pairs().iter().map(entry).collect::<Result<Vec<_>, EvalError>>()?;
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Duration(nanos) => super::time::duration_to_string(*nanos),
        Value::Timestamp(nanos) => super::time::timestamp_to_string(*nanos),
        Value::Type(of) => of.to_string(),
        Value::Optional(_)
        | Value::Quantity(_)
        | Value::Sum(_)
        | Value::Semver(_)
        | Value::Url(_)
        | Value::Format(_)
        | Value::Ip(_)
        | Value::Cidr(_)
        | Value::AfterLaunch => {
            return Err(EvalError::invalid(format_args!("%s is not for {}", value.type_name())));
        }
    })
}
