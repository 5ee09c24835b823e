//! Ways to reach into an OpenAPI schema and to say something about a part of it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};

/// The part of a schema at a path such as `spec.requirements[].key`, where `[]` stands for the items of a list and
/// `{}` for the values of a map.
pub fn at<'a>(schema: &'a mut JSONSchemaProps, path: &str) -> &'a mut JSONSchemaProps {
    path.split('.').fold(schema, |schema, step| {
        let name = step.trim_end_matches("[]").trim_end_matches("{}");
        let field = schema
            .properties
            .as_mut()
            .and_then(|fields| fields.get_mut(name))
            .expect("rules name fields that the types have; a test builds every CRD");
        match step.strip_prefix(name) {
            Some("[]") => items(field),
            Some("{}") => values(field),
            _ => field,
        }
    })
}

/// The schema of a list's items.
pub(super) fn items(list: &mut JSONSchemaProps) -> &mut JSONSchemaProps {
    match list.items.as_mut().expect("rules name lists that the types have; a test builds every CRD") {
        JSONSchemaPropsOrArray::Schema(schema) => schema,
        JSONSchemaPropsOrArray::Schemas(_) => unreachable!("a structural schema has one schema for all items"),
    }
}

/// The schema of a map's values.
fn values(map: &mut JSONSchemaProps) -> &mut JSONSchemaProps {
    match map.additional_properties.as_mut().expect("rules name maps that the types have; a test builds every CRD") {
        JSONSchemaPropsOrBool::Schema(schema) => schema,
        JSONSchemaPropsOrBool::Bool(_) => unreachable!("the values of our maps have a schema"),
    }
}

/// What the derive macros write differently from Kubernetes' own generator: optional fields are not nullable (a null
/// is dropped, so that a default takes its place), an integer or string says so twice, descriptions are paragraphs,
/// there are no titles,
/// and whether unknown fields are refused is not the schema's business.
pub(super) fn make_kubernetes_like(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.any_of = Some(["integer", "string"].map(of_type).to_vec());
    }
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        make_kubernetes_like(field);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => make_kubernetes_like(items),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => {}
    }
    match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => make_kubernetes_like(values),
        // Unknown fields are pruned, or refused where the client asks for it.
        Some(JSONSchemaPropsOrBool::Bool(_)) => schema.additional_properties = None,
        None => {}
    }
}

fn of_type(type_: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() }
}

/// Statements about one part of a schema, to be chained.
pub trait Constrain {
    /// What the part is for.
    fn describe(&mut self, text: &str) -> &mut Self;
    /// What an absent part is taken for.
    fn default_value(&mut self, value: serde_json::Value) -> &mut Self;
    /// The regular expression that a string matches.
    fn pattern(&mut self, pattern: &str) -> &mut Self;
    /// How many characters a string has.
    fn length(&mut self, min: Option<i64>, max: Option<i64>) -> &mut Self;
    /// How small and how large a number is.
    fn range(&mut self, min: Option<f64>, max: Option<f64>) -> &mut Self;
    /// How many items a list has.
    fn max_items(&mut self, max: i64) -> &mut Self;
    /// The only values.
    fn one_of(&mut self, values: &[&str]) -> &mut Self;
    /// Sets all the fields that are required.
    fn require(&mut self, fields: &[&str]) -> &mut Self;
    /// Takes fields off those that are required.
    fn optional(&mut self, fields: &[&str]) -> &mut Self;
    /// How lists are merged: `atomic`, `set` or `map`.
    fn list_type(&mut self, list_type: &str) -> &mut Self;
    /// No two items have the same value there.
    fn list_by_key(&mut self, key: &str) -> &mut Self;
    /// How many entries a map, or fields an object, may have.
    fn properties(&mut self, min: Option<i64>, max: i64) -> &mut Self;
    /// How maps are merged: `granular` or `atomic`.
    fn map_type(&mut self, map_type: &str) -> &mut Self;
    /// A CEL rule, and what a refusal says.
    fn rule(&mut self, rule: &str, message: &str) -> &mut Self;
}

impl Constrain for JSONSchemaProps {
    fn describe(&mut self, text: &str) -> &mut Self {
        self.description = Some(text.to_owned());
        self
    }

    fn default_value(&mut self, value: serde_json::Value) -> &mut Self {
        self.default = Some(JSON(value));
        self
    }

    fn pattern(&mut self, pattern: &str) -> &mut Self {
        self.pattern = Some(pattern.to_owned());
        self
    }

    fn length(&mut self, min: Option<i64>, max: Option<i64>) -> &mut Self {
        (self.min_length, self.max_length) = (min, max);
        self
    }

    fn range(&mut self, min: Option<f64>, max: Option<f64>) -> &mut Self {
        (self.minimum, self.maximum) = (min, max);
        self
    }

    fn max_items(&mut self, max: i64) -> &mut Self {
        self.max_items = Some(max);
        self
    }

    fn one_of(&mut self, values: &[&str]) -> &mut Self {
        self.enum_ = Some(values.iter().map(|value| JSON((*value).into())).collect());
        self
    }

    fn require(&mut self, fields: &[&str]) -> &mut Self {
        self.required = Some(fields.iter().map(|field| (*field).to_owned()).collect());
        self
    }

    fn optional(&mut self, fields: &[&str]) -> &mut Self {
        if let Some(required) = &mut self.required {
            required.retain(|field| !fields.contains(&field.as_str()));
        }
        self.required.take_if(|required| required.is_empty());
        self
    }

    fn list_type(&mut self, list_type: &str) -> &mut Self {
        self.x_kubernetes_list_type = Some(list_type.to_owned());
        self
    }

    fn list_by_key(&mut self, key: &str) -> &mut Self {
        self.x_kubernetes_list_map_keys = Some(vec![key.to_owned()]);
        self.list_type("map")
    }

    fn properties(&mut self, min: Option<i64>, max: i64) -> &mut Self {
        (self.min_properties, self.max_properties) = (min, Some(max));
        self
    }

    fn map_type(&mut self, map_type: &str) -> &mut Self {
        self.x_kubernetes_map_type = Some(map_type.to_owned());
        self
    }

    fn rule(&mut self, rule: &str, message: &str) -> &mut Self {
        self.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
            rule: rule.to_owned(),
            message: Some(message.to_owned()),
            ..ValidationRule::default()
        });
        self
    }
}
