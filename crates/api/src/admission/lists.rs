//! Lists whose entries must differ: sets, and lists with keys.

use serde_json::{Map, Value};

use super::{
    FieldError, FieldErrorKind,
    node::{List, Node},
};

/// Reports entries that are there twice, unless the old object had some anywhere.
pub(super) fn check(root: &Node, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    walk(root, "", object, &mut found);
    if found.is_empty() {
        return;
    }
    let mut found_before = Vec::new();
    if let Some(old) = old {
        walk(root, "", old, &mut found_before);
    }
    if found_before.is_empty() {
        errors.append(&mut found);
    }
}

fn walk(node: &Node, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    walk(field, &format!("{path}.{name}"), value, errors);
                }
            }
        }
        Value::Array(entries) => {
            match &node.list {
                List::Atomic => {}
                List::Set => report_duplicates(path, entries.clone(), errors),
                List::Map(keys) => report_duplicates(path, entries.iter().map(|e| key_of(e, keys)).collect(), errors),
            }
            if let Some(items) = &node.items {
                for (index, entry) in entries.iter().enumerate() {
                    walk(items, &format!("{path}[{index}]"), entry, errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn key_of(entry: &Value, keys: &[String]) -> Value {
    let fields: Map<String, Value> =
        keys.iter().filter_map(|key| Some((key.clone(), entry.get(key)?.clone()))).collect();
    Value::Object(fields)
}

/// Reports each identity once, at its second appearance.
fn report_duplicates(path: &str, identities: Vec<Value>, errors: &mut Vec<FieldError>) {
    for (index, identity) in identities.iter().enumerate() {
        if identities.iter().take(index).filter(|earlier| *earlier == identity).count() == 1 {
            let message = format!("Duplicate value: {identity}");
            errors.push(FieldError::new(&format!("{path}[{index}]"), FieldErrorKind::Duplicate, message));
        }
    }
}
