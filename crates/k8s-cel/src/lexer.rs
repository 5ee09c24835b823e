//! Text to tokens, by CEL's grammar: the longest match wins, whitespace and `//` comments are skipped.

use std::sync::Arc;

use super::error::{CompileError, ErrorAt};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Ident(Arc<str>),
    /// Digits as written; signs are the parser's.
    Int(Arc<str>),
    Uint(Arc<str>),
    Float(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// A keyword (`in`, `true`, `false`, `null`), operator or bracket.
    Symbol(&'static str),
    End,
}

/// Longest first, so that the first that fits is the longest match.
const SYMBOLS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "=",
];

pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// All tokens with their byte offsets; the last is [`Token::End`].
    pub(crate) fn tokens(mut self) -> Result<Vec<(Token, u32)>, ErrorAt> {
        let mut tokens = Vec::new();
        loop {
            self.skip_space();
            let start = self.position;
            let token = self.next()?;
            let offset = u32::try_from(start).unwrap_or(u32::MAX);
            let end = token == Token::End;
            tokens.push((token, offset));
            if end {
                return Ok(tokens);
            }
        }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches(['\t', ' ', '\r', '\n', '\u{c}']);
            self.position += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.position += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn next(&mut self) -> Result<Token, ErrorAt> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let second_is_digit = rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        if first.is_ascii_digit() || (first == '.' && second_is_digit) {
            return self.number();
        }
        let literal = literal_prefix(rest).and_then(|prefix| Some((delimited(rest, &prefix)?, prefix)));
        if let Some((literal, prefix)) = literal {
            return self.string(&literal, &prefix);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let word = rest.get(..length).unwrap_or_default();
            self.position += length;
            return Ok(match word {
                "in" => Token::Symbol("in"),
                "true" => Token::Symbol("true"),
                "false" => Token::Symbol("false"),
                "null" => Token::Symbol("null"),
                _ => Token::Ident(word.into()),
            });
        }
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            None if first == '"' || first == '\'' => {
                Err(self.error("unterminated string literal or invalid escape sequence".to_owned()))
            }
            Some(symbol) if *symbol != "=" => {
                self.position += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            _ => Err(self.error(format!("token recognition error at: '{first}'"))),
        }
    }

    fn error(&self, reason: String) -> ErrorAt {
        ErrorAt::new(self.position, CompileError::syntax(reason))
    }

    fn number(&mut self) -> Result<Token, ErrorAt> {
        let bytes = self.rest().as_bytes();
        let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
        let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
        if bytes.starts_with(b"0x") {
            let length = bytes.iter().skip(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
            if length > 0 {
                return Ok(self.integer(2 + length, is(2 + length, b"uU")));
            }
        }
        let mut end = digits(0);
        let mut float = false;
        if is(end, b".") && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
            float = true;
        }
        if is(end, b"eE") {
            let sign = usize::from(is(end + 1, b"+-"));
            let exponent = digits(end + 1 + sign);
            if exponent > 0 {
                end += 1 + sign + exponent;
                float = true;
            }
        }
        if !float {
            return Ok(self.integer(end, is(end, b"uU")));
        }
        let text = self.rest().get(..end).unwrap_or_default();
        let value: f64 = text.parse().map_err(|_| self.error("invalid double literal".to_owned()))?;
        if !value.is_finite() {
            return Err(self.error("invalid double literal".to_owned()));
        }
        self.position += end;
        Ok(Token::Float(value))
    }

    fn integer(&mut self, length: usize, unsigned: bool) -> Token {
        let digits: Arc<str> = self.rest().get(..length).unwrap_or_default().into();
        self.position += length + usize::from(unsigned);
        if unsigned { Token::Uint(digits) } else { Token::Int(digits) }
    }

    fn string(&mut self, literal: &Delimited<'_>, prefix: &Prefix) -> Result<Token, ErrorAt> {
        let start = self.position;
        let text = literal.text;
        self.position += literal.length;
        let bad = |reason: &str| ErrorAt::new(start, CompileError::syntax(reason.to_owned()));
        if prefix.bytes {
            let bytes = if prefix.raw { text.as_bytes().to_vec() } else { unescape_bytes(text).map_err(bad)? };
            Ok(Token::Bytes(bytes.into()))
        } else if prefix.raw {
            Ok(Token::String(text.into()))
        } else {
            Ok(Token::String(unescape(text).map_err(bad)?.into()))
        }
    }
}

/// A literal with its prefix and quotes.
struct Delimited<'a> {
    /// What is between the quotes.
    text: &'a str,
    /// Bytes of the whole.
    length: usize,
}

/// The longest literal that starts here. What begins with three quotes and does not end with them is an empty literal
/// and something else; a prefix before what is no literal is a name.
fn delimited<'a>(rest: &'a str, prefix: &Prefix) -> Option<Delimited<'a>> {
    let body = rest.get(prefix.length..)?;
    let single = body.get(..1)?;
    let triple = body.get(..3).filter(|quotes| *quotes == single.repeat(3));
    triple.into_iter().chain([single]).find_map(|delimiter| {
        let content = body.get(delimiter.len()..)?;
        let text = content.get(..content_length(content, delimiter, prefix.raw)?)?;
        Some(Delimited { text, length: prefix.length + 2 * delimiter.len() + text.len() })
    })
}

/// Bytes up to the closing delimiter; none without one, and where an escape sequence is none of CEL's.
fn content_length(content: &str, delimiter: &str, raw: bool) -> Option<usize> {
    let is_one_line = delimiter.len() == 1;
    let mut chars = content.chars();
    loop {
        if chars.as_str().starts_with(delimiter) {
            return Some(content.len() - chars.as_str().len());
        }
        match chars.next()? {
            '\n' | '\r' if is_one_line => return None,
            '\\' if !raw && escape(&mut chars).is_err_and(|reason| reason == INVALID_ESCAPE) => return None,
            _ => {}
        }
    }
}

struct Prefix {
    length: usize,
    raw: bool,
    bytes: bool,
}

/// The prefix of a string or bytes literal, if one starts here.
fn literal_prefix(rest: &str) -> Option<Prefix> {
    let lower = |index: usize| rest.as_bytes().get(index).map(u8::to_ascii_lowercase);
    let is_quote = |index: usize| matches!(lower(index), Some(b'"' | b'\''));
    match (lower(0), lower(1)) {
        _ if is_quote(0) => Some(Prefix { length: 0, raw: false, bytes: false }),
        (Some(b'r'), _) if is_quote(1) => Some(Prefix { length: 1, raw: true, bytes: false }),
        (Some(b'b'), _) if is_quote(1) => Some(Prefix { length: 1, raw: false, bytes: true }),
        (Some(b'b'), Some(b'r')) if is_quote(2) => Some(Prefix { length: 2, raw: true, bytes: true }),
        _ => None,
    }
}

const INVALID_ESCAPE: &str = "invalid escape sequence";

enum Escape {
    Char(char),
    Byte(u8),
}

/// Reads what follows a backslash.
fn escape(chars: &mut std::str::Chars<'_>) -> Result<Escape, &'static str> {
    let number = |chars: &mut std::str::Chars<'_>, digits: usize, radix: u32, first: Option<char>| {
        let mut value = match first {
            Some(digit) => digit.to_digit(radix).ok_or(INVALID_ESCAPE)?,
            None => 0,
        };
        for _ in 0..digits {
            value = value * radix + chars.next().and_then(|c| c.to_digit(radix)).ok_or(INVALID_ESCAPE)?;
        }
        Ok::<u32, &'static str>(value)
    };
    let c = chars.next().ok_or(INVALID_ESCAPE)?;
    Ok(match c {
        'a' => Escape::Char('\u{7}'),
        'b' => Escape::Char('\u{8}'),
        'f' => Escape::Char('\u{c}'),
        'n' => Escape::Char('\n'),
        'r' => Escape::Char('\r'),
        't' => Escape::Char('\t'),
        'v' => Escape::Char('\u{b}'),
        '"' | '\'' | '\\' | '?' | '`' => Escape::Char(c),
        'x' | 'X' => Escape::Byte(number(chars, 2, 16, None)?.try_into().map_err(|_| INVALID_ESCAPE)?),
        '0'..='3' => Escape::Byte(number(chars, 2, 8, Some(c))?.try_into().map_err(|_| INVALID_ESCAPE)?),
        'u' | 'U' => {
            let digits = if c == 'u' { 4 } else { 8 };
            Escape::Char(char::from_u32(number(chars, digits, 16, None)?).ok_or("invalid unicode code point")?)
        }
        _ => return Err(INVALID_ESCAPE),
    })
}

/// In a string, `\xFF` and `\377` are code points.
fn unescape(text: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match escape(&mut chars)? {
                Escape::Char(c) => out.push(c),
                Escape::Byte(byte) => out.push(char::from(byte)),
            },
            '\r' => {
                // Line ends are normalised, as Go's unescape does.
                out.push('\n');
                if chars.as_str().starts_with('\n') {
                    chars.next();
                }
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// In bytes, `\xFF` and `\377` are bytes, and `\u` is not allowed.
fn unescape_bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        if chars.as_str().starts_with(['u', 'U']) {
            return Err("unicode escapes are not allowed in bytes");
        }
        match escape(&mut chars)? {
            Escape::Char(c) => out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
            Escape::Byte(byte) => out.push(byte),
        }
    }
    Ok(out)
}
