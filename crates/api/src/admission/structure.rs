//! Types, bounds, patterns and required fields.
//!
//! On an update, a part that equals its old self keeps whatever it had wrong.

use serde_json::{Number, Value};

use super::{
    FieldError, FieldErrorKind,
    node::{Bounds, List, Node, Type},
    pattern::is_date_time,
};

/// Checks a whole object.
pub(super) fn check(root: &Node, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    walk(root, "", object, old, errors);
}

/// Checks one field of an object.
pub(super) fn check_field(root: &Node, name: &str, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let (Some(node), Some(value)) = (root.field(name), object.get(name)) {
        walk(node, name, value, old.and_then(|old| old.get(name)), errors);
    }
}

/// Checks the number of replicas that the scale subresource reads at a path such as `.spec.replicas`.
pub(super) fn check_scale_path(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(replicas) = object.pointer(&path.replace('.', "/")) {
        errors.extend(scale_replicas(replicas, path).err());
    }
}

/// Checks a number of replicas.
pub(super) fn scale_replicas(replicas: &Value, path: &str) -> Result<(), FieldError> {
    let refuse = |message: &str| {
        Err(FieldError::new(path, FieldErrorKind::Invalid, format!("Invalid value: {replicas}: {message}")))
    };
    match replicas.as_i64() {
        None => refuse("should be an integer"),
        Some(number) if number < 0 => refuse("should be a non-negative integer"),
        Some(number) if number > i64::from(i32::MAX) => refuse("should be less than or equal to 2147483647"),
        Some(_) => Ok(()),
    }
}

/// The old value that an entry of a list stands for: the one with equal keys, if the list has keys.
pub(super) fn old_entry<'a>(list: &List, entry: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let List::Map(keys) = list else { return None };
    let old = old?.as_array()?;
    old.iter().find(|candidate| keys.iter().all(|key| candidate.get(key) == entry.get(key)))
}

fn walk(node: &Node, path: &str, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    match (node.type_, value) {
        // An oddity of the API server: it lets a list pass for a text that has a format.
        (Type::String, Value::Array(_)) if node.format.is_some() => {}
        (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::String | Type::IntOrString, Value::String(_))
        | (Type::Boolean, Value::Bool(_)) => check_value(node, path, value, old, errors),
        (Type::Integer | Type::IntOrString, Value::Number(number)) if is_integer(number) => {
            check_value(node, path, value, old, errors);
        }
        (expected, value) => errors.push(wrong_type(expected, path, value)),
    }
    if errors.len() > before && old == Some(value) {
        errors.truncate(before);
    }
}

fn check_value(node: &Node, path: &str, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    check_choice(node, path, value, errors);
    match value {
        Value::String(text) => check_text(node, path, text, errors),
        Value::Number(number) => check_number(node, path, number, errors),
        Value::Array(entries) => check_list(node, path, entries, old, errors),
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    walk(field, &format!("{path}.{name}"), value, old.and_then(|old| old.get(name)), errors);
                }
            }
            for name in node.required.iter().filter(|name| !fields.contains_key(*name)) {
                errors.push(FieldError::new(&format!("{path}.{name}"), FieldErrorKind::Required, "Required value"));
            }
            check_count(path, fields.len(), node.properties_bounds, "properties", errors);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn check_choice(node: &Node, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    if !node.one_of.is_empty() && !node.one_of.contains(value) {
        let supported: Vec<String> = node.one_of.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        errors.push(FieldError::new(path, FieldErrorKind::NotSupported, message));
    }
}

fn check_text(node: &Node, path: &str, text: &str, errors: &mut Vec<FieldError>) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = node.length.max.filter(|max| length > *max) {
        let message = format!("Too long: may not be more than {max} bytes");
        errors.push(FieldError::new(path, FieldErrorKind::TooLong, message));
    } else if let Some(min) = node.length.min.filter(|min| length < *min) {
        errors.push(invalid(path, &Value::from(text), &format!("should be at least {min} chars long")));
    } else if let Some(pattern) = node.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
        errors.push(invalid(path, &Value::from(text), &format!("should match '{}'", pattern.text)));
    }
    if node.format.as_deref() == Some("date-time") && !is_date_time(text) {
        let message = format!("Invalid value: {:?}: {} in body must be of type date-time: {text:?}", text, bare(path));
        errors.push(FieldError::new(path, FieldErrorKind::TypeInvalid, message));
    }
}

fn check_number(node: &Node, path: &str, number: &Number, errors: &mut Vec<FieldError>) {
    let fits = match node.format.as_deref() {
        Some("int32") => number.as_f64().is_some_and(|n| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n)),
        _ => number.as_i64().is_some() || number.is_f64(),
    };
    if !fits {
        let format = node.format.as_deref().unwrap_or("int64");
        let message = format!("Invalid value: {number}: Checked value must be of type integer with format {format}");
        errors.push(FieldError::new(path, FieldErrorKind::Invalid, format!("{message} in {}", bare(path))));
    }
    let value = number.as_f64().unwrap_or_default();
    if let Some(min) = node.range.min.filter(|min| value < *min) {
        errors.push(invalid(path, &Value::from(number.clone()), &format!("should be greater than or equal to {min}")));
    }
    if let Some(max) = node.range.max.filter(|max| value > *max) {
        errors.push(invalid(path, &Value::from(number.clone()), &format!("should be less than or equal to {max}")));
    }
}

fn check_list(node: &Node, path: &str, entries: &[Value], old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(items) = &node.items {
        for (index, entry) in entries.iter().enumerate() {
            walk(items, &format!("{path}[{index}]"), entry, old_entry(&node.list, entry, old), errors);
        }
    }
    check_count(path, entries.len(), node.items_bounds, "items", errors);
}

fn check_count(path: &str, count: usize, bounds: Bounds<i64>, of: &str, errors: &mut Vec<FieldError>) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(min) = bounds.min.filter(|min| count < *min) {
        errors.push(invalid(path, &Value::from(count), &format!("should have at least {min} {of}")));
    }
    if let Some(max) = bounds.max.filter(|max| count > *max) {
        let message = format!("Too many: {count}: must have at most {max} item{}", if max == 1 { "" } else { "s" });
        errors.push(FieldError::new(path, FieldErrorKind::TooMany, message));
    }
}

/// Whether the API server takes a number for an integer: one without fraction, not beyond what a float holds exactly.
fn is_integer(number: &Number) -> bool {
    number.as_i64().is_some() || number.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_991.0)
}

fn wrong_type(expected: Type, path: &str, value: &Value) -> FieldError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_i64().is_some() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let message =
        format!("Invalid value: {found:?}: {} in body must be of type {}: {found:?}", bare(path), expected.name());
    FieldError::new(path, FieldErrorKind::TypeInvalid, message)
}

fn invalid(path: &str, value: &Value, rule: &str) -> FieldError {
    let message = format!("Invalid value: {value}: {} in body {rule}", bare(path));
    FieldError::new(path, FieldErrorKind::Invalid, message)
}

fn bare(path: &str) -> &str {
    path.trim_start_matches('.')
}
