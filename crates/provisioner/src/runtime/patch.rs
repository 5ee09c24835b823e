//! Patches that say only what changes.
//!
//! An object is changed in memory and the difference sent as a JSON merge patch, so that fields which others write, or
//! which we do not know, are not touched. [`Lock::Revision`] makes the API server refuse the patch if the object has
//! changed since it was read: needed where a list is replaced as a whole, as conditions, finalizers and taints are.

use http::HeaderValue;
use http::header::ACCEPT;
use kube::api::{Api, Patch, PatchParams, Request};
use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Debug;

use crate::runtime::failures::is_conflict;

/// Asks for an answer without spec and status.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
/// How often a change is tried while others change the same object.
const ATTEMPTS: u32 = 5;

/// Which object a patch may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// The one that was read, whatever has changed since.
    Uid,
    /// Exactly what was read.
    Revision,
}

/// The merge patch that turns `before` into `after`; `None` if they are equal.
///
/// # Errors
/// If the object cannot be written as JSON.
pub(crate) fn between<T: Resource + Serialize>(before: &T, after: &T, lock: Lock) -> serde_json::Result<Option<Value>> {
    let Some(mut patch) = diff(&serde_json::to_value(before)?, &serde_json::to_value(after)?) else { return Ok(None) };
    if let Some(patch) = patch.as_object_mut()
        && let Value::Object(metadata) = patch.entry("metadata").or_insert_with(|| json!({}))
    {
        metadata.extend(precondition(before, lock));
    }
    Ok(Some(patch))
}

/// The metadata without which a patch must not be carried out.
fn precondition(before: &impl Resource, lock: Lock) -> Map<String, Value> {
    let mut precondition = Map::new();
    if let Some(uid) = before.uid() {
        precondition.insert("uid".to_owned(), uid.into());
    }
    if let (Lock::Revision, Some(revision)) = (lock, before.resource_version()) {
        precondition.insert("resourceVersion".to_owned(), revision.into());
    }
    precondition
}

/// Writes what differs outside the status. Gives back the API server's answer, or `None` if nothing differs.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn object<T>(api: &Api<T>, before: &T, after: &T, lock: Lock) -> anyhow::Result<Option<T>>
where
    T: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let Some(patch) = between(before, after, lock)? else { return Ok(None) };
    Ok(Some(lean(api.patch(&before.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?)))
}

/// Writes what `change` makes of the object that was read, or of a fresh one where somebody else was faster. Gives back
/// the API server's answer, or `None` if there was nothing to change.
///
/// # Errors
/// Those of the API server, the last conflict among them.
pub(crate) async fn retried<T>(api: &Api<T>, read: &T, change: impl Fn(&T) -> T) -> anyhow::Result<Option<T>>
where
    T: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let mut answer = object(api, read, &change(read), Lock::Revision).await;
    for _ in 1..ATTEMPTS {
        match &answer {
            Err(failure) if is_conflict(failure) => {}
            Ok(_) | Err(_) => break,
        }
        let fresh = api.get(&read.name_any()).await?;
        answer = object(api, &fresh, &change(&fresh), Lock::Revision).await;
    }
    answer
}

/// Writes what differs in the status. Gives back the API server's answer, or `None` if nothing differs.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn status<T>(api: &Api<T>, before: &T, after: &T, lock: Lock) -> anyhow::Result<Option<T>>
where
    T: Resource + HasStatus + DeserializeOwned + Clone + Debug,
    T::Status: Serialize,
{
    // The rest may be large, and is not written here.
    let status = |of: &T| serde_json::to_value(of.status());
    let Some(status) = diff(&status(before)?, &status(after)?) else { return Ok(None) };
    let patch = json!({"metadata": precondition(before, lock), "status": status});
    Ok(Some(lean(api.patch_status(&before.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?)))
}

/// Patches an object, or a subresource of it, whose new state the caller does not need: the answer is kept short and
/// not read.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn unread<K>(
    api: &Api<K>,
    name: &str,
    subresource: Option<&str>,
    params: &PatchParams,
    patch: &Patch<impl Serialize>,
) -> kube::Result<()>
where
    K: Resource + Clone,
{
    let request = Request::new(api.resource_url());
    let request = match subresource {
        None => request.patch_metadata(name, params, patch),
        Some(subresource) => request.patch_subresource(subresource, name, params, patch).map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA_ONLY);
            request
        }),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    api.clone().into_client().request_text(request).await.map(drop)
}

/// An answer without who wrote which field: up to half of an object, and not in what watches bring either.
pub(crate) fn lean<T: Resource>(mut answer: T) -> T {
    answer.meta_mut().managed_fields = None;
    answer
}

/// RFC 7386, backwards.
fn diff(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        let change = match before.get(key) {
            Some(known) => diff(known, value)?,
            None => value.clone(),
        };
        Some((key.clone(), change))
    });
    let patch: Map<String, Value> = removed.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_patch_has_what_changed_and_what_it_was_made_from() {
        let before = node(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
            "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}], "providerID": "p"},
        }));
        let mut after = before.clone();
        let labels = after.metadata.labels.get_or_insert_default();
        labels.insert("c".to_owned(), "3".to_owned());
        labels.remove("a");
        after.spec.get_or_insert_default().taints = Some(Vec::new());
        assert_eq!(
            between(&before, &after, Lock::Revision).unwrap(),
            Some(json!({
                "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": null, "c": "3"}},
                "spec": {"taints": []},
            }))
        );
        assert_eq!(between(&before, &after, Lock::Uid).unwrap().unwrap()["metadata"].get("resourceVersion"), None);
    }

    #[test]
    fn equal_objects_need_no_patch() {
        let same = node(json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}}));
        assert_eq!(between(&same, &same.clone(), Lock::Revision).unwrap(), None);
    }
}
