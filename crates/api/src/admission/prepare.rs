//! What happens to an object between its JSON and the checks.

use serde_json::{Map, Value};

use super::node::Node;

/// Drops nulls that no default replaces, fills in defaults, and drops unknown fields, in this order.
pub(super) fn prepare(root: &Node, object: &mut Value) {
    drop_nulls(root, object);
    fill_in_defaults(root, object);
    let Value::Object(fields) = object else { return };
    // A named field without schema is unknown; apiVersion, kind and metadata need none.
    fields.retain(|name, _| root.field(name).is_some() || matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    for (name, value) in fields {
        if let Some(node) = root.field(name) {
            drop_unknown(node, value);
        }
    }
}

/// Takes the status off an object.
pub(super) fn remove_status(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.remove("status");
    }
}

/// Gives an object the status of another, or none if that has none.
pub(super) fn take_status_from(object: &mut Value, other: &Value) {
    let Value::Object(fields) = object else { return };
    match other.get("status") {
        Some(status) => fields.insert("status".to_owned(), status.clone()),
        None => fields.remove("status"),
    };
}

/// Takes the namespace off an object that belongs to none.
pub(super) fn remove_namespace(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("namespace");
    }
}

/// Sets the field at a path such as `.spec.replicas`, making objects on the way.
pub(super) fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(name).or_insert(Value::Null);
    }
    *place = value;
}

fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields
                .retain(|name, value| !value.is_null() || node.field(name).is_none_or(|field| field.default.is_some()));
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    drop_nulls(field, value);
                }
            }
        }
        Value::Array(entries) => {
            if let Some(items) = &node.items {
                entries.iter_mut().for_each(|entry| drop_nulls(items, entry));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_in_defaults(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in &node.properties {
                if let Some(default) = &field.default
                    && fields.get(name).is_none_or(Value::is_null)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    fill_in_defaults(field, value);
                }
            }
        }
        Value::Array(entries) => {
            if let Some(items) = &node.items {
                for entry in entries {
                    if entry.is_null()
                        && let Some(default) = &items.default
                    {
                        *entry = default.clone();
                    }
                    fill_in_defaults(items, entry);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn drop_unknown(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| node.keeps_unknown_fields || node.field(name).is_some());
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    drop_unknown(field, value);
                }
            }
        }
        Value::Array(entries) => match &node.items {
            Some(items) => entries.iter_mut().for_each(|entry| drop_unknown(items, entry)),
            None => entries.iter_mut().for_each(drop_all_fields),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn drop_all_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.clear(),
        Value::Array(entries) => entries.iter_mut().for_each(drop_all_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
