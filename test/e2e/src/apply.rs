//! Manifests into the cluster, by server-side apply as an administrator would.

use std::path::Path;

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use serde_json::Value;

const FIELD_MANAGER: &str = "e2e";

/// The objects of a YAML or JSON stream, empty documents left out.
///
/// # Errors
/// If it is not YAML.
pub fn parse(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The objects of a file, or of all YAML files of a folder in the order of their names.
///
/// # Errors
/// If one cannot be read or is not YAML.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        return parse(&text).with_context(|| format!("parse {}", path.display()));
    }
    let mut files = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let objects = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    Ok(objects.into_iter().flatten().collect())
}

/// Applies objects one after the other.
///
/// # Errors
/// The first that the server refuses, by kind and name.
pub async fn apply(client: &Client, objects: impl IntoIterator<Item = Value>) -> Result<()> {
    for object in objects {
        apply_one(client, object).await?;
    }
    Ok(())
}

/// Applies one object, and gives it back as the server keeps it.
///
/// # Errors
/// If the server does not know its kind, or refuses it.
pub async fn apply_one(client: &Client, object: Value) -> Result<DynamicObject> {
    let named = describe(&object);
    let (api, name) = api_of(client, &object).await.with_context(|| named.clone())?;
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(object)).await.with_context(|| format!("apply {named}"))
}

/// Deletes an object given by its kind and name, and does not wait until it is gone.
///
/// # Errors
/// If the server does not know its kind, or it is not there.
pub async fn delete(client: &Client, object: &Value) -> Result<()> {
    let named = describe(object);
    let (api, name) = api_of(client, object).await.with_context(|| named.clone())?;
    api.delete(&name, &kube::api::DeleteParams::background()).await.with_context(|| format!("delete {named}"))?;
    Ok(())
}

async fn api_of(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (api_version, kind) = (text("/apiVersion").context("no apiVersion")?, text("/kind").context("no kind")?);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let name = text("/metadata/name").context("no metadata.name")?.to_owned();
    let (resource, namespaced): (ApiResource, bool) = match well_known(&gvk) {
        Some(known) => known,
        None => {
            let (resource, capabilities) = discovery::pinned_kind(client, &gvk).await?;
            (resource, capabilities.scope == Scope::Namespaced)
        }
    };
    let namespace = text("/metadata/namespace").unwrap_or("default");
    let api = if namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    Ok((api, name))
}

/// Kinds used over and over, so that the server is not asked each time.
fn well_known(gvk: &GroupVersionKind) -> Option<(ApiResource, bool)> {
    let namespaced = match gvk.kind.as_str() {
        "Pod" | "Deployment" | "ConfigMap" | "ReplicaSet" | "DaemonSet" | "Role" | "RoleBinding" | "ServiceAccount" => {
            true
        }
        "Namespace"
        | "Node"
        | "NodePool"
        | "NodeClaim"
        | "CustomResourceDefinition"
        | "ClusterRole"
        | "ClusterRoleBinding" => false,
        _ => return None,
    };
    Some((ApiResource::from_gvk(gvk), namespaced))
}

fn describe(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", text("/kind"), text("/metadata/name"))
}
