//! CEL rules.
//!
//! The rules of each part of a schema are compiled apart from those of the parts below, so that this module decides
//! which value and which old value a rule is about, and not the CEL library.

use std::{borrow::Cow, fmt};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator, compile_schema};
use serde_json::Value;

use super::{
    FieldError, FieldErrorKind,
    node::{Node, Type},
    structure::old_entry,
};

/// The rules of one part of a schema.
#[derive(Debug, Default)]
pub(super) struct NodeRules {
    compiled: Option<CompiledSchema>,
    texts: Vec<ValidationRule>,
}

impl NodeRules {
    pub(super) fn compile(schema: &JSONSchemaProps) -> Result<Self, String> {
        let Some(texts) = schema.x_kubernetes_validations.clone().filter(|rules| !rules.is_empty()) else {
            return Ok(Self::default());
        };
        let mut alone = schema.clone();
        remove_rules_below(&mut alone);
        let json = serde_json::to_value(&alone).map_err(|error| error.to_string())?;
        let compiled = compile_schema(&json);
        match compiled.compilation_errors().first() {
            Some(error) => Err(error.to_string()),
            None => Ok(Self { compiled: Some(compiled), texts }),
        }
    }
}

fn remove_rules_below(schema: &mut JSONSchemaProps) {
    let fields = schema.properties.iter_mut().flat_map(|fields| fields.values_mut());
    let items = schema.items.iter_mut().filter_map(|items| match items {
        JSONSchemaPropsOrArray::Schema(items) => Some(&mut **items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    });
    let values = schema.additional_properties.iter_mut().filter_map(|values| match values {
        JSONSchemaPropsOrBool::Schema(values) => Some(&mut **values),
        JSONSchemaPropsOrBool::Bool(_) => None,
    });
    for part in fields.chain(items).chain(values) {
        part.x_kubernetes_validations = None;
        remove_rules_below(part);
    }
}

/// Runs rules.
pub(super) struct Evaluator(Validator);

impl fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Evaluator")
    }
}

/// A part of an object.
struct Part<'a> {
    path: &'a str,
    value: &'a Value,
    /// What it was before.
    old: Option<&'a Value>,
    /// Whether it, or a part around it, is known to equal its old self.
    unchanged: bool,
}

impl Evaluator {
    pub(super) fn new() -> Self {
        Self(Validator::new())
    }

    /// Runs every rule of the schema on the values that it is about.
    pub(super) fn check(&self, root: &Node, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        self.walk(root, &Part { path: "", value: object, old, unchanged: false }, errors);
    }

    fn walk(&self, node: &Node, part: &Part<'_>, errors: &mut Vec<FieldError>) {
        let &Part { path, value, old, .. } = part;
        let unchanged = part.unchanged || old == Some(value);
        self.check_node(node, &Part { unchanged, ..*part }, errors);
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(field) = node.field(name) {
                        let old = old.and_then(|old| old.get(name));
                        let path = &format!("{path}.{name}");
                        self.walk(field, &Part { path, value, old, unchanged }, errors);
                    }
                }
            }
            Value::Array(entries) => {
                if let Some(items) = &node.items {
                    for (index, entry) in entries.iter().enumerate() {
                        let old = old_entry(&node.list, entry, old);
                        let path = &format!("{path}[{index}]");
                        self.walk(items, &Part { path, value: entry, old, unchanged }, errors);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn check_node(&self, node: &Node, part: &Part<'_>, errors: &mut Vec<FieldError>) {
        let &Part { path, value, old, unchanged } = part;
        let Some(compiled) = &node.rules.compiled else { return };
        let value = with_fractions_unreadable(node, value);
        let Err(failures) = self.0.validate_compiled(compiled, &value, old) else { return };
        for failure in failures {
            // What did not change is not held against the object, unless the rule is about change.
            if !unchanged || failure.rule.contains("oldSelf") {
                let message = format!("Invalid value: {}", explain(&failure, &node.rules.texts));
                errors.push(FieldError::new(path, FieldErrorKind::Invalid, message));
            }
        }
    }
}

/// An integer that is written with a fraction (`2.0`) is admitted, but the API server's rules fail when they read it.
/// A text in its place has the same effect.
fn with_fractions_unreadable<'a>(node: &Node, value: &'a Value) -> Cow<'a, Value> {
    if !has_fraction(node, value) {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    replace_fractions(node, &mut value);
    Cow::Owned(value)
}

fn has_fraction(node: &Node, value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && node.type_ == Type::Integer,
        Value::Array(entries) => {
            node.items.as_ref().is_some_and(|items| entries.iter().any(|entry| has_fraction(items, entry)))
        }
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| node.field(name).is_some_and(|field| has_fraction(field, value)))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn replace_fractions(node: &Node, value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() && node.type_ == Type::Integer => {
            *value = Value::from(format!("{number}, not an integer"));
        }
        Value::Array(entries) => {
            if let Some(items) = &node.items {
                entries.iter_mut().for_each(|entry| replace_fractions(items, entry));
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    replace_fractions(field, value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn explain(failure: &ValidationError, texts: &[ValidationRule]) -> String {
    if failure.kind == ErrorKind::ValidationFailure {
        return failure.message.clone();
    }
    let text = texts.iter().find(|text| text.rule == failure.rule);
    let name = text.map_or(failure.rule.as_str(), |text| text.message.as_deref().unwrap_or(&text.rule));
    let cause = std::error::Error::source(failure).map_or_else(|| failure.message.clone(), ToString::to_string);
    let mut characters = cause.chars();
    let first = characters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    format!("{first}{} evaluating rule: {name}", characters.as_str())
}
