//! An object as the API server sent it.
//!
//! Watches deliver this instead of typed objects, so that an object that does not have its type's form is one bad
//! object and not a failed list. Nothing but a non-object can fail to be read here.

use std::borrow::Cow;
use std::fmt;

use decode::reads::{Fields, POD_SPEC, POD_STATUS, Reads, is_read_of_annotations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use model::{NamespacedName, Uid};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::object::Revision;

/// An object of any kind: what is read of its JSON, and the part of the metadata that watching needs.
#[derive(Debug, Clone)]
pub struct RawObject {
    /// The object without managed fields, and a pod without what nothing here depends on.
    pub json: Value,
    /// Name, namespace, uid and resource version; nothing else.
    pub metadata: ObjectMeta,
}

impl RawObject {
    /// Reads an item of a list of that kind, which need not say of what kind it is.
    ///
    /// # Errors
    /// If the text is no JSON, or is nested deeper than anything that the API server has.
    pub(super) fn item_of_list(text: &[u8], resource: &ApiResource) -> serde_json::Result<Self> {
        let of = if resource.kind == "Pod" && resource.api_version == "v1" { Kind::Pod } else { Kind::Other };
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let json = Part::Object(of).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(Self::of_json(json))
    }

    fn of_json(json: Value) -> Self {
        let text = |field: &str| json.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Self { json, metadata }
    }

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
        Ok(Self::of_json(Part::Object(Kind::Other).deserialize(deserializer)?))
    }
}

/// Reads JSON without what nobody reads of it. Managed fields are up to half of an object, and most of a pod tells its
/// kubelet what to run; so both are passed over, and no tree is built of them first.
///
/// An object of a watch says first of what kind it is. For an item of a list, which does not, the list does.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A whole object, which is of this kind unless it says otherwise.
    Object(Kind),
    Metadata(Kind),
    /// Of a pod. Others' belong to whoever finds something in them.
    Annotations,
    /// Anything of which nothing is passed over.
    Whole,
    /// Of these fields what is read.
    Fields(&'static Fields),
    /// A list of such items.
    Each(&'static Fields),
}

/// What an object is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Other,
}

/// What becomes of a field.
enum Fate {
    Read(Part),
    /// Only that it is there, and not null, is of interest.
    Noted,
    Passed,
}

impl Part {
    fn fate(self, field: &str, object: &Map<String, Value>) -> Fate {
        match (self, field) {
            (Self::Object(of), "metadata") if is_pod(object, of) => Fate::Read(Self::Metadata(Kind::Pod)),
            (Self::Object(_), "metadata") => Fate::Read(Self::Metadata(Kind::Other)),
            (Self::Object(of), "spec") if is_pod(object, of) => Fate::Read(Self::Fields(&POD_SPEC)),
            (Self::Object(of), "status") if is_pod(object, of) => Fate::Read(Self::Fields(&POD_STATUS)),
            (Self::Metadata(_), "managedFields") => Fate::Passed,
            (Self::Metadata(Kind::Pod), "annotations") => Fate::Read(Self::Annotations),
            (Self::Annotations, key) if !is_read_of_annotations(key) => Fate::Passed,
            (Self::Fields(fields), field) => match fields.of(field) {
                Reads::Nothing => Fate::Passed,
                Reads::Presence => Fate::Noted,
                Reads::Whole => Fate::Read(Self::Whole),
                Reads::Each(fields) => Fate::Read(Self::Each(fields)),
            },
            (Self::Object(_) | Self::Metadata(_) | Self::Annotations | Self::Whole | Self::Each(_), _) => {
                Fate::Read(Self::Whole)
            }
        }
    }
}

/// Whether an object is a pod: what was read of it so far says so, or else where it comes from.
fn is_pod(object: &Map<String, Value>, of: Kind) -> bool {
    let says = |field: &str, value: &str| match object.get(field) {
        Some(said) => said.as_str() == Some(value),
        None => of == Kind::Pod,
    };
    says("kind", "Pod") && says("apiVersion", "v1")
}

/// A field's name, which is not copied before it is known to be kept.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(name.into()))
    }

    fn visit_str<E>(self, name: &str) -> Result<Key<'de>, E> {
        Ok(Key(name.to_owned().into()))
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::Whole => Value::deserialize(deserializer),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(Key(field)) = entries.next_key()? {
            let value = match self.fate(&field, &fields) {
                Fate::Read(part) => entries.next_value_seed(part)?,
                Fate::Noted => entries.next_value::<Option<IgnoredAny>>()?.map_or(Value::Null, |_| Value::Bool(true)),
                Fate::Passed => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            fields.insert(field.into_owned(), value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let part = match self {
            Self::Each(fields) => Self::Fields(fields),
            _ => Self::Whole,
        };
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(part)? {
            list.push(item);
        }
        Ok(Value::Array(list))
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
    use cluster::snapshot_file::{KINDS, prune};
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

    #[test]
    fn of_a_watched_pod_all_is_read_that_a_snapshot_holds_and_what_nothing_depends_on_is_not() {
        let whole = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"d": "e"}, "annotations":
                {"karpenter.sh/f": "g", "kubernetes.io/config.mirror": "h", "example.com/whole-manifest": "{}"}},
            "spec": {
                "containers": [{
                    "name": "h", "image": "i", "env": [{"name": "j"}], "ports": [{"hostPort": 1}],
                    "resources": {"requests": {"cpu": 1}, "claims": [{"name": "k"}]},
                }],
                "initContainers": [{"name": "l", "command": ["m"], "restartPolicy": "Always", "resources": {"limits": {"cpu": 2}}}],
                "volumes": [
                    {"name": "n", "projected": {"sources": [{"secret": {"name": "o"}}]}, "secret": null},
                    {"name": "p", "persistentVolumeClaim": {"claimName": "q"}},
                    {"name": "r", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "s"}}}},
                ],
                "tolerations": [{"key": "t"}], "neverHeardOf": {"u": 1}, "securityContext": {"runAsUser": 7}, "priority": 8,
            },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "allocatedResources": {"cpu": 3},
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "v", "message": "w"}],
                "containerStatuses": [{
                    "name": "h", "image": "i", "state": {"running": {}}, "resources": {"requests": {"cpu": 4}},
                    "allocatedResources": {"cpu": 5},
                }],
                "initContainerStatuses": [{"name": "l", "imageID": "x", "resources": {"requests": {"cpu": 6}}}],
                "nominatedNodeName": "y", "resources": {"requests": {"cpu": 9}}, "podIPs": [{"ip": "10.0.0.1"}],
                "resourceClaimStatuses": [{"name": "z", "resourceClaimName": "z-1"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "z-2", "requestMappings": []},
                "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "z-3", "resources": {"cpu": 1}}],
                "additionalNodeAllocatableResources": [{"resourceClaimName": "z-4", "mapping": [{"name": "cpu", "quantity": 1}]}],
            },
        });
        // In the order of the API server; a tree would sort its fields.
        let text = |first: &str| {
            let part = |field: &str| format!(r#""{field}": {}"#, whole[field]);
            format!("{{{first}{}, {}, {}}}", part("metadata"), part("spec"), part("status"))
        };
        let read = |text: &str| serde_json::from_str::<RawObject>(text).unwrap().json;
        let watched = read(&text(r#""kind": "Pod", "apiVersion": "v1", "#));
        let pods = KINDS.iter().find(|kind| kind.kind == "Pod").unwrap();
        assert_eq!(prune(&watched, pods), prune(&whole, pods));
        assert_eq!(watched["metadata"]["annotations"].as_object().unwrap().len(), 2);
        assert_eq!(watched["spec"]["containers"][0].as_object().unwrap().len(), 3);
        assert_eq!(watched["spec"]["volumes"][0], json!({"name": "n", "projected": true, "secret": null}));
        assert_eq!(watched["spec"].get("securityContext"), None);
        assert_eq!(watched["status"]["conditions"][0].get("message"), None);
        assert_eq!(watched["status"].get("podIPs"), None);
        // What devices cost of the node, in the words of every release.
        for costs in ["nodeAllocatableResourceClaimStatuses", "additionalNodeAllocatableResources"] {
            assert_eq!(watched["status"][costs], whole["status"][costs]);
        }
        assert_eq!(watched["status"]["containerStatuses"][0].as_object().unwrap().len(), 3);
        // Of what is not known to be a pod everything may matter.
        for first in ["", r#""kind": "Pod", "apiVersion": "example.com/v1", "#] {
            assert_eq!(read(&text(first))["spec"], whole["spec"]);
            assert_eq!(read(&text(first))["status"], whole["status"]);
        }
    }
}
