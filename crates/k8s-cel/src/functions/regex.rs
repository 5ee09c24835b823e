//! Regular expressions by Go's rules.
//!
//! Go's `regexp` and the `regex` crate both run in linear time and speak nearly the same language. What Go refuses is
//! refused here too: flags other than `imsU`, set operations in classes, Unicode word boundaries, repetition above
//! 1000. `\d`, `\s`, `\w` and `\b` are ASCII, as in Go; a compiled pattern may take a bounded amount of memory.

use ::regex::{Regex, RegexBuilder};

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

/// Bytes that one compiled pattern may take.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// The most repetitions Go allows.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern of Go's syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern).map_err(|reason| format!("error parsing regexp: {reason}: `{pattern}`"))?;
    RegexBuilder::new(&translated)
        .size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|_| format!("error parsing regexp: invalid or too large: `{pattern}`"))
}

/// Go's syntax in the `regex` crate's; refuses what only the crate knows.
fn translate(pattern: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    // In a class: a plain character that may begin a range; whether the next one ends a range.
    let mut low = None;
    let mut ends_range = false;
    while let Some(c) = chars.next() {
        let before = low.take();
        let ended = std::mem::take(&mut ends_range);
        match c {
            '\\' => {
                let escaped = chars.next().ok_or("trailing backslash at end of expression")?;
                match escaped {
                    'd' if in_class => out.push_str("0-9"),
                    'd' => out.push_str("[0-9]"),
                    'D' => out.push_str("[^0-9]"),
                    's' if in_class => out.push_str(r"\t\n\x0C\r\x20"),
                    's' => out.push_str(r"[\t\n\x0C\r\x20]"),
                    'S' => out.push_str(r"[^\t\n\x0C\r\x20]"),
                    'w' if in_class => out.push_str("0-9A-Za-z_"),
                    'w' => out.push_str("[0-9A-Za-z_]"),
                    'W' => out.push_str("[^0-9A-Za-z_]"),
                    'b' if !in_class => out.push_str(r"(?-u:\b)"),
                    'B' if !in_class => out.push_str(r"(?-u:\B)"),
                    'Q' if !in_class => quote(&mut chars, &mut out),
                    'A' | 'z' if !in_class => out.extend(['\\', escaped]),
                    'C' => return Err("\\C is not supported"),
                    'a' => out.push_str(r"\x07"),
                    'f' => out.push_str(r"\x0C"),
                    'v' => out.push_str(r"\x0B"),
                    'n' | 'r' | 't' | 'p' | 'P' | 'x' => out.extend(['\\', escaped]),
                    '0' => octal(&mut chars, &mut out, 0),
                    '1'..='7' if chars.peek().is_some_and(|c| ('0'..='7').contains(c)) => {
                        octal(&mut chars, &mut out, escaped.to_digit(8).unwrap_or_default());
                    }
                    _ if escaped.is_ascii_punctuation() => out.push_str(&::regex::escape(&escaped.to_string())),
                    _ => return Err("invalid escape sequence"),
                }
            }
            '[' if in_class => {
                if chars.peek() == Some(&':') {
                    posix_class(&mut chars, &mut out)?
                } else {
                    out.push_str(r"\[")
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                if chars.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // The crate's class operations, plain characters in Go.
            '&' | '~' if in_class => out.extend(['\\', c]),
            '-' if in_class && chars.peek() == Some(&'-') => match before {
                Some(low) if low > '-' => return Err("invalid character class range"),
                // A range up to `-`.
                Some(_) => {
                    chars.next();
                    out.push_str(r"-\-");
                }
                None => out.push_str(r"\-"),
            },
            '-' if before.is_some() => {
                out.push('-');
                ends_range = true;
            }
            '{' if !in_class => repetition(&mut chars, &mut out)?,
            '(' if !in_class && chars.peek() == Some(&'?') => group(&mut chars, &mut out)?,
            '*' | '+' | '?' if !in_class => {
                out.push(c);
                if chars.next_if_eq(&'?').is_some() {
                    out.push('?');
                }
                if matches!(chars.peek(), Some('*' | '+' | '?')) {
                    return Err("invalid nested repetition operator");
                }
            }
            // `$` is the end of the text only, as in Go without the flag `m`; the crate agrees.
            _ => {
                low = (in_class && !ended).then_some(c);
                out.push(c);
            }
        }
    }
    Ok(out)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn octal(chars: &mut Chars<'_>, out: &mut String, first: u32) {
    let mut value = first;
    for _ in 0..2 {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
        chars.next();
        value = value * 8 + digit;
    }
    out.push_str(&format!("\\x{{{value:X}}}"));
}

/// `\Q…\E`
fn quote(chars: &mut Chars<'_>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return;
        }
        out.push_str(&::regex::escape(&c.to_string()));
    }
}

/// `[:alpha:]` inside of a class.
fn posix_class(chars: &mut Chars<'_>, out: &mut String) -> Result<(), &'static str> {
    let ahead: String = chars.clone().take_while(|c| *c != ']').collect();
    if !ahead.ends_with(':') || ahead.len() < 3 {
        out.push_str(r"\[");
        return Ok(());
    }
    for _ in 0..=ahead.chars().count() {
        chars.next();
    }
    out.push('[');
    out.push_str(&ahead);
    out.push(']');
    Ok(())
}

/// `{n}`, `{n,}` or `{n,m}`; anything else is plain text.
fn repetition(chars: &mut Chars<'_>, out: &mut String) -> Result<(), &'static str> {
    let ahead: String = chars.clone().take_while(|c| *c != '}').collect();
    let closed = chars.clone().nth(ahead.chars().count()).is_some();
    let (min, max) = ahead.split_once(',').map_or((ahead.as_str(), None), |(min, max)| (min, Some(max)));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !closed || !is_number(min) || max.is_some_and(|max| !max.is_empty() && !is_number(max)) {
        out.push_str(r"\{");
        return Ok(());
    }
    let too_many = |text: &str| text.parse::<u32>().map_or(true, |count| count > MAX_REPEAT);
    if too_many(min) || max.is_some_and(|max| !max.is_empty() && too_many(max)) {
        return Err("invalid repeat count");
    }
    for _ in 0..=ahead.chars().count() {
        chars.next();
    }
    out.push('{');
    out.push_str(&ahead);
    out.push('}');
    if chars.next_if_eq(&'?').is_some() {
        out.push('?');
    }
    if matches!(chars.peek(), Some('*' | '+' | '?')) {
        return Err("invalid nested repetition operator");
    }
    Ok(())
}

/// `(?flags)`, `(?flags:…)`, `(?P<name>…)` or `(?<name>…)`.
fn group(chars: &mut Chars<'_>, out: &mut String) -> Result<(), &'static str> {
    out.push('(');
    let ahead: String = chars.clone().skip(1).take_while(|c| *c != ':' && *c != ')').collect();
    if ahead.starts_with("P<") || (ahead.starts_with('<') && !ahead.starts_with("<=") && !ahead.starts_with("<!")) {
        return Ok(());
    }
    let (on, off) = ahead.split_once('-').map_or((ahead.as_str(), None), |(on, off)| (on, Some(off)));
    let are_flags = |text: &str| text.chars().all(|c| "imsU".contains(c));
    if !are_flags(on) || off.is_some_and(|off| off.is_empty() || !are_flags(off)) {
        return Err("invalid or unsupported Perl syntax");
    }
    chars.nth(ahead.chars().count());
    // Go takes flags that are named twice, the last counts, and none at all.
    let off = off.unwrap_or_default();
    let flags = |text: &str, but: &str| -> String {
        ['i', 'm', 's', 'U'].into_iter().filter(|flag| text.contains(*flag) && !but.contains(*flag)).collect()
    };
    let (on, off) = (flags(on, off), flags(off, ""));
    out.push('?');
    out.push_str(&on);
    if !off.is_empty() {
        out.push('-');
        out.push_str(&off);
    } else if on.is_empty() && chars.peek() == Some(&')') {
        // A flag that is on anyway.
        out.push('u');
    }
    Ok(())
}

fn with_pattern(context: Context<'_>, pattern: &str, run: impl FnOnce(&Regex) -> Value) -> Outcome {
    match context.regex {
        Some(regex) => Ok(run(regex)),
        None => compile(pattern).map(|regex| run(&regex)).map_err(EvalError::invalid),
    }
}

pub(crate) fn matches(context: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            with_pattern(context, pattern, |regex| Value::Bool(regex.is_match(text)))
        }
        _ => Err(EvalError::no_overload("matches")),
    }
}

pub(crate) fn find(context: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            with_pattern(context, pattern, |regex| Value::string(regex.find(text).map_or("", |found| found.as_str())))
        }
        _ => Err(EvalError::no_overload("find")),
    }
}

pub(crate) fn find_all(context: Context<'_>, args: &[Value]) -> Outcome {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            // A negative limit is none.
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(EvalError::no_overload("findAll")),
    };
    with_pattern(context, pattern, |regex| {
        Value::list(regex.find_iter(text).take(limit).map(|found| Value::string(found.as_str())).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_refuses_is_refused() {
        for pattern in ["(", "[", "a**", "a{1001}", r"\", "(?=a)", "(?<=a)", "(?x)a", r"\8", "*", "[b-a]", r"\C"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn what_go_takes_is_taken_with_its_meaning() {
        for (pattern, text, matches) in [
            (r"^\d+$", "١٢", false),
            (r"^\w+$", "é", false),
            (r"\bfoo\b", "a foo b", true),
            ("[a&&b]", "&", true),
            ("[[:alpha:]]+", "x", true),
            (r"\Qa.b\E", "axb", false),
            ("a{,2}", "a{,2}", true),
            ("(?i)GPU", "gpu", true),
            ("x{2}", "xx", true),
            ("[]a]", "]", true),
            (r"a\.b", "a.b", true),
            ("(?P<n>a)", "a", true),
            ("a$", "a\n", false),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), matches, "{pattern}");
        }
    }

    #[test]
    fn a_bomb_is_refused_without_taking_memory() {
        assert!(compile("((((a{100}){100}){100}){100})").is_err());
    }
}
