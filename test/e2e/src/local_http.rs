//! Short questions to a server of ours on this computer, over plain HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// What a server said.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// What came with it.
    pub(crate) body: String,
}

/// Asks for a path, which may end with a query.
///
/// # Errors
/// If no answer comes.
pub(crate) fn get(port: u16, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    // By HTTP/1.0 an answer ends with its connection and does not come in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no HTTP status")?;
    Ok(Answer { status, body: body.to_owned() })
}
