//! URLs: absolute ones and absolute paths, as Go's `url.ParseRequestURI` takes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Context;
use crate::error::EvalError;
use crate::value::{Map, Value};

type Outcome = Result<Value, EvalError>;

/// A URL, in parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) text: Arc<str>,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

fn has_valid_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    let valid = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || valid(at))
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return None;
        }
        let (scheme, rest) = match text.find([':', '/', '?', '#']) {
            Some(at) if text.as_bytes().get(at) == Some(&b':') => {
                let scheme = text.get(..at)?;
                let mut chars = scheme.chars();
                let valid = chars.next()?.is_ascii_alphabetic()
                    && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
                (valid.then(|| scheme.to_ascii_lowercase())?, text.get(at + 1..)?)
            }
            _ => (String::new(), text),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, query)| (rest, query));
        if !rest.starts_with('/') {
            // An opaque URL (`mailto:x`) needs a scheme.
            return (!scheme.is_empty()).then(|| Self {
                text: text.into(),
                scheme,
                host: String::new(),
                path: String::new(),
                query: query.to_owned(),
            });
        }
        let authority = if scheme.is_empty() && rest.starts_with("///") { None } else { rest.strip_prefix("//") };
        let (host, path) = match authority {
            Some(authority) => {
                let end = authority.find('/').unwrap_or(authority.len());
                let (authority, path) = authority.split_at(end);
                (authority.rsplit('@').next()?.to_owned(), path)
            }
            None => (String::new(), rest),
        };
        let valid = is_valid_host(&host) && has_valid_escapes(path);
        valid.then(|| Self { text: text.into(), scheme, host, path: path.to_owned(), query: query.to_owned() })
    }

    /// The host without brackets, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        if let Some((host, rest)) = self.host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return (host, rest.strip_prefix(':').unwrap_or_default());
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }
}

fn is_valid_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, rest)) => (name, rest),
            None => return false,
        },
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let valid_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    valid_port && !name.contains([' ', '<', '>', '"', '{', '}', '|', '\\', '^', '`']) && has_valid_escapes(name)
}

pub(crate) fn url(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => match Url::parse(text) {
            Some(url) => Ok(Value::Url(Arc::new(url))),
            None => Err(EvalError::invalid(format_args!("URL parse error during conversion from string: {text:?}"))),
        },
        _ => no_overload("url"),
    }
}

pub(crate) fn is_url(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_some())),
        _ => no_overload("isURL"),
    }
}

fn part(args: &[Value], read: impl FnOnce(&Url) -> Value) -> Outcome {
    match args {
        [Value::Url(url)] => Ok(read(url)),
        _ => no_overload("url"),
    }
}

pub(crate) fn scheme(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |url| Value::string(url.scheme.as_str()))
}

pub(crate) fn host(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |url| Value::string(url.host.as_str()))
}

pub(crate) fn hostname(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |url| Value::string(url.host_and_port().0))
}

pub(crate) fn port(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |url| Value::string(url.host_and_port().1))
}

pub(crate) fn escaped_path(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |url| Value::string(url.path.as_str()))
}

pub(crate) fn query(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |url| {
        let mut values: BTreeMap<Arc<str>, Vec<Value>> = BTreeMap::new();
        for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescape(key), unescape(value)) {
                values.entry(key.into()).or_default().push(Value::string(value));
            }
        }
        let entries = values.into_iter().map(|(key, values)| (key, Value::list(values))).collect();
        Value::Map(Arc::new(Map::text(entries)))
    })
}

/// Decodes a part of a query.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(hex, 16).ok()?);
                rest = tail.get(2..)?;
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}
