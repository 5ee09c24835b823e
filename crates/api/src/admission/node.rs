//! A structural schema, compiled: patterns as programs, rules split by the part that they are about.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use super::{pattern::Pattern, rules::NodeRules};

/// One part of a schema.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) type_: Type,
    pub(super) format: Option<String>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) values: Option<Box<Node>>,
    pub(super) items: Option<Box<Node>>,
    /// Whether fields stay that the schema does not name, with all that is in them.
    pub(super) keeps_unknown_fields: bool,
    pub(super) required: Vec<String>,
    pub(super) default: Option<Value>,
    pub(super) one_of: Vec<Value>,
    pub(super) pattern: Option<Pattern>,
    pub(super) length: Bounds<i64>,
    pub(super) range: Bounds<f64>,
    pub(super) items_bounds: Bounds<i64>,
    pub(super) properties_bounds: Bounds<i64>,
    pub(super) list: List,
    pub(super) rules: NodeRules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Boolean,
    IntOrString,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<T> {
    pub(super) min: Option<T>,
    pub(super) max: Option<T>,
}

/// How the entries of a list are told apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum List {
    /// They are not.
    Atomic,
    /// By what they are.
    Set,
    /// By these fields.
    Map(Vec<String>),
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

/// Where in the schema, and what about it cannot be applied.
type Unsupported = (String, String);

impl Node {
    pub(super) fn compile(schema: &JSONSchemaProps, path: &str) -> Result<Self, Unsupported> {
        refuse_unknown_keywords(schema, path)?;
        let properties = schema.properties.iter().flatten();
        let properties = properties
            .map(|(name, field)| Ok((name.clone(), Self::compile(field, &format!("{path}.{name}"))?)))
            .collect::<Result<_, Unsupported>>()?;
        let items = match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => Some(Box::new(Self::compile(items, &format!("{path}[]"))?)),
            Some(JSONSchemaPropsOrArray::Schemas(_)) => return Err(unsupported(path, "items as a list")),
            None => None,
        };
        let values = match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(values)) => {
                Some(Box::new(Self::compile(values, &format!("{path}{{}}"))?))
            }
            Some(JSONSchemaPropsOrBool::Bool(_)) => return Err(unsupported(path, "additionalProperties as a boolean")),
            None => None,
        };
        let pattern = schema.pattern.as_deref().map(Pattern::compile).transpose();
        Ok(Self {
            type_: type_of(schema, path)?,
            format: schema.format.clone(),
            properties,
            values,
            items,
            keeps_unknown_fields: schema.x_kubernetes_preserve_unknown_fields == Some(true),
            required: schema.required.clone().unwrap_or_default(),
            default: schema.default.as_ref().map(|default| default.0.clone()),
            one_of: schema.enum_.iter().flatten().map(|value| value.0.clone()).collect(),
            pattern: pattern.map_err(|error| (path.to_owned(), error))?,
            length: Bounds { min: schema.min_length, max: schema.max_length },
            range: Bounds { min: schema.minimum, max: schema.maximum },
            items_bounds: Bounds { min: schema.min_items, max: schema.max_items },
            properties_bounds: Bounds { min: schema.min_properties, max: schema.max_properties },
            list: list_of(schema),
            rules: NodeRules::compile(schema).map_err(|error| (path.to_owned(), error))?,
        })
    }

    /// The part of the schema that a field has, be it named or one value of a map.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.values.as_deref())
    }
}

fn type_of(schema: &JSONSchemaProps, path: &str) -> Result<Type, Unsupported> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return Ok(Type::IntOrString);
    }
    match schema.type_.as_deref() {
        Some("object") => Ok(Type::Object),
        Some("array") => Ok(Type::Array),
        Some("string") => Ok(Type::String),
        Some("integer") => Ok(Type::Integer),
        Some("boolean") => Ok(Type::Boolean),
        other => Err(unsupported(path, &format!("type {other:?}"))),
    }
}

fn list_of(schema: &JSONSchemaProps) -> List {
    match schema.x_kubernetes_list_type.as_deref() {
        Some("set") => List::Set,
        Some("map") => List::Map(schema.x_kubernetes_list_map_keys.clone().unwrap_or_default()),
        Some(_) | None => List::Atomic,
    }
}

fn refuse_unknown_keywords(schema: &JSONSchemaProps, path: &str) -> Result<(), Unsupported> {
    let int_or_string = schema.x_kubernetes_int_or_string == Some(true);
    let unknown = [
        ("nullable", schema.nullable == Some(true)),
        ("allOf", schema.all_of.is_some()),
        ("anyOf", schema.any_of.is_some() && !int_or_string),
        ("oneOf", schema.one_of.is_some()),
        ("not", schema.not.is_some()),
        ("uniqueItems", schema.unique_items == Some(true)),
        ("multipleOf", schema.multiple_of.is_some()),
        ("exclusiveMinimum", schema.exclusive_minimum == Some(true)),
        ("exclusiveMaximum", schema.exclusive_maximum == Some(true)),
        ("patternProperties", schema.pattern_properties.is_some()),
        ("x-kubernetes-embedded-resource", schema.x_kubernetes_embedded_resource == Some(true)),
        ("format", !matches!(schema.format.as_deref(), None | Some("int32" | "int64" | "date-time"))),
    ];
    match unknown.iter().find(|(_, used)| *used) {
        Some((keyword, _)) => Err(unsupported(path, keyword)),
        None => Ok(()),
    }
}

fn unsupported(path: &str, what: &str) -> Unsupported {
    (path.to_owned(), format!("{what} is not supported"))
}
