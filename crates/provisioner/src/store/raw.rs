//! An object as the API server sent it.
//!
//! Watches deliver this instead of typed objects, so that an object that does not have its type's form is one bad object
//! and not a failed list. Nothing but a non-object can fail to be read here.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use model::{NamespacedName, Uid};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

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
        let mut json = Value::deserialize(deserializer)?;
        if let Some(Value::Object(metadata)) = json.get_mut("metadata") {
            metadata.remove("managedFields");
        }
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
}
