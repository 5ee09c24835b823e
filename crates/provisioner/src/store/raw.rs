//! An object as the API server sent it.
//!
//! Watches deliver this instead of typed objects, so that an object that does not have its type's form is one bad object
//! and not a failed list. Nothing but a non-object can fail to be read here.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use model::{NamespacedName, Uid};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::object::Revision;

/// An object of any kind: its JSON without managed fields, and the part of the metadata that watching needs.
#[derive(Debug, Clone)]
pub struct RawObject {
    /// The whole object.
    pub json: Value,
    /// Name, namespace, uid and resource version; nothing else.
    pub metadata: ObjectMeta,
}

impl RawObject {
    /// Names version and kind, which the API server says of a list of built-in kinds and not of each item.
    pub(super) fn of_type(mut self, resource: &ApiResource) -> Self {
        if let Value::Object(fields) = &mut self.json {
            for (field, value) in [("apiVersion", &resource.api_version), ("kind", &resource.kind)] {
                fields.entry(field).or_insert_with(|| value.as_str().into());
            }
        }
        self
    }

    /// Namespace and name.
    pub fn name(&self) -> NamespacedName {
        NamespacedName::new(
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default(),
        )
    }

    /// Which object, and which state of it.
    pub fn revision(&self) -> Revision {
        Revision::of(&self.metadata)
    }

    /// The object's uid.
    pub fn uid(&self) -> Uid {
        self.metadata.uid.as_deref().unwrap_or_default().into()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Part::Object.deserialize(deserializer)?;
        let text = |field: &str| json.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { json, metadata })
    }
}

/// Reads JSON without managed fields. They are up to half of an object, so they are passed over and not taken out later.
#[derive(Debug, Clone, Copy)]
enum Part {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(field) = entries.next_key::<String>()? {
            let value = match (self, field.as_str()) {
                (Self::Metadata, "managedFields") => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Self::Object, "metadata") => entries.next_value_seed(Self::Metadata)?,
                (Self::Object | Self::Metadata, _) => entries.next_value()?,
            };
            fields.insert(field, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Value::Array)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_of_a_list_gets_the_lists_type_and_keeps_one_that_it_has() {
        let of_group = |group| GroupVersionKind::gvk(group, "v1", "DeviceClass");
        let resource = ApiResource::from_gvk_with_plural(&of_group("resource.k8s.io"), "deviceclasses");
        let typed = |json: Value| serde_json::from_value::<RawObject>(json).unwrap().of_type(&resource).json;
        let class = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "a" } });
        assert_eq!(typed(json!({ "metadata": { "name": "a" } })), class);
        let other = json!({ "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceClass", "metadata": {} });
        assert_eq!(typed(other.clone()), other);
    }
    #[test]
    fn everything_but_managed_fields_is_kept() {
        let read = |text: &str| serde_json::from_str::<RawObject>(text).unwrap().json;
        let kept = r#"{"managedFields": [1], "metadata": {"name": "a", "labels": {"managedFields": "b"}, "uid": null}, "spec":
            {"metadata": {"managedFields": {}}, "numbers": [1, -1, 1.5, true]}}"#;
        let with = kept.replacen(r#""name": "a""#, r#""managedFields": [{"f:spec": {"f:a": {}}}], "name": "a""#, 1);
        assert_eq!(read(&with), serde_json::from_str::<Value>(kept).unwrap());
        for odd in ["7", "-7", "1.5", "true", "null", r#""a""#, r#"[{"metadata": {"managedFields": 1}}]"#] {
            assert_eq!(read(odd), serde_json::from_str::<Value>(odd).unwrap());
            let object = format!(r#"{{"metadata": {odd}}}"#);
            assert_eq!(read(&object), serde_json::from_str::<Value>(&object).unwrap());
        }
    }
}
