//! New inputs from old ones. libFuzzer changes bytes by itself; these keep an input's grammar, so that the change
//! arrives behind the parser.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// No input becomes longer.
pub const MAX_BYTES: usize = 64 * 1024;

/// Fragments that mean something to one of the parsers.
const FRAGMENTS: [&str; 52] = [
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
    "---\n",
    "- ",
    "&a ",
    "*a",
    "!!binary ",
    "|\n  ",
    "%YAML 1.1\n",
    "apiVersion: v1\n",
    "kind: List\n",
    "items:\n",
    "<<: *a\n",
    "# ",
];

/// Names of fields whose presence changes how an object is read.
const FIELDS: [&str; 12] = [
    "count",
    "unknown",
    "value",
    "int",
    "exactly",
    "allNodes",
    "operator",
    "values",
    "deletionTimestamp",
    "nodeName",
    "status",
    "spec",
];

/// Bytes removed, doubled, exchanged, and fragments planted.
#[must_use]
pub fn text(random: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=bytes.len());
        let length = random.usize(..8).min(bytes.len() - at);
        match random.u8(..5) {
            0 => drop(bytes.drain(at..at + length)),
            1 => {
                let part = bytes[at..at + length].repeat(random.usize(1..41));
                bytes.splice(at..at, part);
            }
            2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.u8(..);
                }
            }
            3 => {
                let from = random.usize(..=other.len());
                bytes.splice(at..at + length, other[from..].iter().copied());
            }
            _ => {
                let fragment = FRAGMENTS[random.usize(..FRAGMENTS.len())];
                bytes.splice(at..at, fragment.bytes());
            }
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

/// JSON with values exchanged for hostile ones or for others of the two inputs, fields removed, and list entries
/// doubled. What is no JSON is changed as text.
#[must_use]
pub fn json(random: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(input) else { return text(random, input, other) };
    let donor = serde_json::from_slice(other).unwrap_or_else(|_| value.clone());
    change_some(random, &mut value, &donor);
    within_bounds(value.to_string(), input)
}

/// Lines of JSON, each on its own: changed, removed, doubled or taken from the other input.
#[must_use]
pub fn json_lines(random: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let Ok(text_of_input) = std::str::from_utf8(input) else { return text(random, input, other) };
    let mut lines: Vec<String> = text_of_input.lines().map(str::to_owned).collect();
    let other: Vec<&str> = std::str::from_utf8(other).unwrap_or_default().lines().collect();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=lines.len());
        match (random.u8(..8), lines.get_mut(at)) {
            (0, Some(_)) => drop(lines.remove(at)),
            (1, Some(line)) => {
                let copy = line.clone();
                lines.insert(at, copy);
            }
            (2, _) if !other.is_empty() => lines.insert(at, other[random.usize(..other.len())].to_owned()),
            (_, Some(line)) => {
                let Ok(mut value) = serde_json::from_str::<Value>(line) else { continue };
                let donor = value.clone();
                change_some(random, &mut value, &donor);
                *line = value.to_string();
            }
            (_, None) => {}
        }
    }
    within_bounds(lines.join("\n"), input)
}

fn within_bounds(text: String, input: &[u8]) -> Vec<u8> {
    // Cut JSON is no JSON.
    if text.len() <= MAX_BYTES { text.into_bytes() } else { input.to_vec() }
}

fn change_some(random: &mut Rng, value: &mut Value, donor: &Value) {
    for _ in 0..random.usize(1..6) {
        let mut place = random.usize(..count(value));
        change(random, value, donor, &mut place);
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The value that is so many further on.
fn nth(value: &Value, place: usize) -> Option<&Value> {
    fn walk<'a>(value: &'a Value, place: &mut usize) -> Option<&'a Value> {
        if *place == 0 {
            return Some(value);
        }
        *place -= 1;
        match value {
            Value::Array(items) => items.iter().find_map(|item| walk(item, place)),
            Value::Object(fields) => fields.values().find_map(|field| walk(field, place)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    let mut place = place;
    walk(value, &mut place)
}

/// Changes the value that is so many further on.
fn change(random: &mut Rng, value: &mut Value, donor: &Value, place: &mut usize) -> bool {
    if *place == 0 {
        changed(random, value, donor);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change(random, item, donor, place)),
        Value::Object(fields) => fields.values_mut().any(|field| change(random, field, donor, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn changed(random: &mut Rng, value: &mut Value, donor: &Value) {
    match (random.u8(..5), &mut *value) {
        (0, Value::Array(items)) if !items.is_empty() => {
            let item = items[random.usize(..items.len())].clone();
            let copies = [1, 1, 2, 40, 200][random.usize(..5)];
            items.extend(std::iter::repeat_n(item, copies));
        }
        (1, Value::Array(items)) if !items.is_empty() => drop(items.remove(random.usize(..items.len()))),
        (0 | 1, Value::Object(fields)) if !fields.is_empty() => {
            let name = fields.keys().nth(random.usize(..fields.len())).cloned().unwrap_or_default();
            fields.remove(&name);
        }
        (2, Value::Object(fields)) => {
            fields.insert(FIELDS[random.usize(..FIELDS.len())].to_owned(), hostile(random));
        }
        (3, value) => {
            if let Some(graft) = nth(donor, random.usize(..count(donor))) {
                *value = graft.clone();
            }
        }
        (_, Value::Number(number)) if random.bool() => {
            let near = number.as_i64().unwrap_or(0).wrapping_add([-1, 1, 2, 100][random.usize(..4)]);
            *value = json!(near);
        }
        (_, value) => *value = hostile(random),
    }
}

fn hostile(random: &mut Rng) -> Value {
    match random.u8(..24) {
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
        13 => json!([]),
        14 => json!(true),
        15 => json!("All"),
        16 => json!("é\u{202e}\u{0}"),
        17 => json!("100%"),
        18 => json!("+0.5%"),
        19 => json!(["Exists", "In", "NotIn", "Gt", "Lte", "DoesNotExist"][random.usize(..6)]),
        20 => json!("2026-02-30T25:61:61Z"),
        21 => json!("720h30m"),
        22 => json!(0),
        _ => json!("req-0"),
    }
}
