//! New inputs from old ones.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// Fragments that mean something to a parser here.
const FRAGMENTS: [&str; 40] = [
    "device",
    ".attributes",
    "[",
    "]",
    "(",
    ")",
    "'",
    "\"",
    "\\",
    "0",
    "-1",
    "9223372036854775807",
    "1e400",
    "1e-400",
    "Ki",
    "Ei",
    "m",
    "n",
    "E",
    ".",
    "..",
    "&&",
    "||",
    "!",
    "?",
    ":",
    " in ",
    "==",
    "{",
    "}",
    "quantity(",
    "semver(",
    ".all(x, ",
    ".map(x, ",
    "cel.bind(x, ",
    "\u{0}",
    "\u{fe0f}",
    "ü",
    "\n",
    "r'",
];

/// Bytes removed, doubled, exchanged, and fragments planted.
pub fn text(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.pick(corpus).clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        let length = random.below(8).min(bytes.len() - at);
        match random.below(5) {
            0 => {
                bytes.drain(at..at + length);
            }
            1 => {
                let part = bytes[at..at + length].repeat(1 + random.below(40));
                bytes.splice(at..at, part);
            }
            2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(random.below(256)).unwrap_or(0);
                }
            }
            3 => {
                let other = random.pick(corpus);
                let from = random.below(other.len() + 1);
                bytes.splice(at..at + length, other[from..].iter().copied());
            }
            _ => {
                let fragment = random.pick(&FRAGMENTS).bytes();
                bytes.splice(at..at, fragment);
            }
        }
    }
    bytes.truncate(64 * 1024);
    bytes
}

/// JSON with values exchanged for hostile ones, fields removed, and list entries doubled.
pub fn json(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(random.pick::<Vec<u8>>(corpus)).expect("the corpus is JSON");
    for _ in 0..1 + random.below(5) {
        let mut place = random.below(count(&value));
        change(random, &mut value, &mut place);
    }
    value.to_string().into_bytes()
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Changes the value that is so many further on.
fn change(random: &mut Random, value: &mut Value, place: &mut usize) -> bool {
    if *place == 0 {
        changed(random, value);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change(random, item, place)),
        Value::Object(fields) => fields.values_mut().any(|field| change(random, field, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn changed(random: &mut Random, value: &mut Value) {
    match (random.below(4), &mut *value) {
        (0, Value::Array(items)) if !items.is_empty() => {
            let item = random.pick(items).clone();
            let copies = *random.pick(&[1, 1, 2, 40, 200]);
            items.extend(std::iter::repeat_n(item, copies));
        }
        (1, Value::Array(items)) if !items.is_empty() => {
            let at = random.below(items.len());
            items.remove(at);
        }
        (0 | 1, Value::Object(fields)) if !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            fields.remove(random.pick(&names));
        }
        (2, Value::Object(fields)) => {
            fields.insert(
                random.pick(&["count", "unknown", "value", "int", "exactly", "allNodes"]).to_string(),
                hostile(random),
            );
        }
        (_, value) => *value = hostile(random),
    }
}

fn hostile(random: &mut Random) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(i64::MAX),
        3 => json!(i64::MIN),
        4 => json!(u64::MAX),
        5 => json!(1.5),
        6 => json!("-9223372036854775808"),
        7 => json!("1e30"),
        8 => json!("999999999999999999999999999999999999999999Ei"),
        9 => json!("0"),
        10 => json!("x".repeat(5000)),
        11 => json!(["a", "a"]),
        12 => json!(Map::new()),
        13 => json!(true),
        14 => json!("All"),
        _ => json!("req-0"),
    }
}
