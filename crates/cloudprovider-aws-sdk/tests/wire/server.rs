//! What tests ask the server for beside what the adapter asks.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Set by the stage; `http://127.0.0.1:PORT`.
fn address() -> String {
    let url = std::env::var("AWS_ENDPOINT_URL").expect("`cargo xtask test --stage aws` runs these tests");
    url.strip_prefix("http://").expect("a URL of this computer").to_owned()
}

fn ask(request: &str, headers: &str, body: &str) -> String {
    let address = address();
    let mut stream = TcpStream::connect(&address).unwrap();
    let length = body.len();
    write!(stream, "{request} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.split(' ').nth(1).is_some_and(|status| status.starts_with('2')), "{head}\n{body}");
    body.to_owned()
}

/// Who asks, and of which service; nobody checks the signature.
fn signed(service: &str) -> String {
    format!("Authorization: AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/{service}/aws4_request, Signature=s\r\n")
}

/// What goes wrong from now on, and forgets what was called. Keys are `throttle`, `break` and `refuse`.
pub(crate) fn control(wanted: &str) {
    ask("POST /control", "Content-Type: application/json\r\n", wanted);
}

/// How often a call was made since then.
pub(crate) fn calls(action: &str) -> u32 {
    let calls: BTreeMap<String, u32> = serde_json::from_str(&ask("GET /control", "", "")).unwrap();
    calls.get(action).copied().unwrap_or(0)
}

/// A call that the adapter does not make, of a service that takes forms.
pub(crate) fn form(service: &str, body: &str) -> String {
    let headers = format!("{}Content-Type: application/x-www-form-urlencoded\r\n", signed(service));
    ask("POST /", &headers, body)
}

/// A call of a service that takes JSON, by its target.
pub(crate) fn json(service: &str, target: &str, body: &str) -> String {
    let headers = format!("{}Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: {target}\r\n", signed(service));
    ask("POST /", &headers, body)
}

/// A call of a service that has paths.
pub(crate) fn post(service: &str, path: &str, body: &str) -> String {
    ask(&format!("POST {path}"), &format!("{}Content-Type: application/json\r\n", signed(service)), body)
}
