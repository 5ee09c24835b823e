//! Answers of upstream that vary, because Go goes over its maps in a random order.
//!
//! Ours does not vary. It is right if upstream gives it too, now and then.

use serde_json::Value;

/// Where our answer stands among those that upstream gives to one question.
#[derive(Debug, PartialEq)]
pub enum Among {
    /// Upstream gives ours too.
    Seen,
    /// Upstream gives one answer, and it is another one.
    Other,
    /// Upstream gives several, and ours is none of them.
    Outside(Vec<Value>),
}

/// Asks upstream again until it gives our answer. `first` is what it said before, and not ours.
pub fn among(
    first: &Value,
    times: usize,
    mut ask: impl FnMut() -> Result<Value, String>,
    is_ours: impl Fn(&Value) -> bool,
) -> Result<Among, String> {
    let mut seen = vec![first.clone()];
    for _ in 0..times {
        let answer = ask()?;
        if seen.contains(&answer) {
            continue;
        }
        if is_ours(&answer) {
            return Ok(Among::Seen);
        }
        seen.push(answer);
    }
    Ok(if seen.len() == 1 { Among::Other } else { Among::Outside(seen) })
}
