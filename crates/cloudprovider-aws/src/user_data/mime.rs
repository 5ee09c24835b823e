//! MIME messages of several parts, as cloud-init reads them.

use super::Error;

/// A part: its headers, an empty line, its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part(String);

impl Part {
    /// A part of a type.
    pub(super) fn new(content_type: &str, body: &str) -> Self {
        Self(format!("Content-Type: {content_type}\n\n{}\n", body.trim_end_matches('\n')))
    }

    /// A shell script.
    pub(super) fn script(body: &str) -> Self {
        Self::new("text/x-shellscript; charset=\"us-ascii\"", body)
    }
}

/// The parts of a user's text: those of the message if it is one, else the one that `single` makes of it.
pub(super) fn parts_of(text: &str, single: impl FnOnce(&str) -> Part) -> Result<Vec<Part>, Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let text = text.replace("\r\n", "\n");
    let is_message = text.trim_start().lines().next().is_some_and(|line| {
        header(line).is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("mime-version")
                || (name.eq_ignore_ascii_case("content-type") && value.to_ascii_lowercase().starts_with("multipart/"))
        })
    });
    if is_message { split(text.trim_start()) } else { Ok(vec![single(&text)]) }
}

/// One message of all parts. The line between them occurs in none.
pub(super) fn join(parts: &[Part]) -> String {
    let mut boundary = "//".to_owned();
    while parts.iter().any(|part| part.0.lines().any(|line| line.starts_with(&format!("--{boundary}")))) {
        boundary.push('/');
    }
    let mut message = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for Part(part) in parts {
        message.push_str(&format!("--{boundary}\n{part}"));
        if !part.ends_with('\n') {
            message.push('\n');
        }
    }
    message.push_str(&format!("--{boundary}--\n"));
    message
}

fn header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_name.then(|| (name, value.trim()))
}

fn split(message: &str) -> Result<Vec<Part>, Error> {
    let error = |reason: &str| Error::Mime(reason.to_owned());
    let (head, body) = message.split_once("\n\n").ok_or_else(|| error("no empty line ends its headers"))?;
    // A header goes on in lines that begin with white space.
    let head = head.replace("\n ", " ").replace("\n\t", " ");
    let content_type = head
        .lines()
        .filter_map(header)
        .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map(|(_, value)| value)
        .ok_or_else(|| error("it has no Content-Type"))?;
    let boundary = boundary(content_type).ok_or_else(|| error("its Content-Type names no boundary"))?;
    let (between, end) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<String> = Vec::new();
    let mut is_ended = false;
    for line in body.lines() {
        let trimmed = line.trim_end();
        if trimmed == end {
            is_ended = true;
            break;
        }
        if trimmed == between {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    if parts.is_empty() {
        return Err(error("it has no parts"));
    }
    if !is_ended {
        return Err(error("its last part does not end"));
    }
    Ok(parts.into_iter().map(Part).collect())
}

fn boundary(content_type: &str) -> Option<&str> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let (_, value) = parameters.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    Some(value.trim().trim_matches('"')).filter(|boundary| !boundary.is_empty())
}
