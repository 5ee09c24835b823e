//! What a cluster has of what overlays are about.

use anyhow::{Context, bail};
use decode::manifests;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::{Value, json};

use crate::cli::input::Documents;
use provisioner::runtime::client;

/// Objects asked for at a time.
const PAGE: u32 = 500;
const KARPENTER: [(&str, &str, &str); 2] =
    [("karpenter.sh/v1", "nodepools", "NodePool"), ("karpenter.sh/v1alpha1", "nodeoverlays", "NodeOverlay")];

/// A node of a cluster, and all slices.
pub(super) fn node_and_slices(node: &str) -> anyhow::Result<Documents> {
    read(async |client| {
        let request = Request::new("/api/v1/nodes").get(node, &Default::default())?;
        let mut object: Value = client.request(request).await.with_context(|| format!("cannot read node {node}"))?;
        name_kind(&mut object, "v1", "Node");
        let mut items = vec![object];
        items.extend(slices(client).await?);
        Ok(items)
    })
}

/// All nodes, slices, NodePools and NodeOverlays of a cluster.
pub(super) fn all() -> anyhow::Result<Documents> {
    read(async |client| {
        let mut items = list(client, "/api/v1/nodes", "v1", "Node").await?.unwrap_or_default();
        items.extend(slices(client).await?);
        for (api_version, plural, kind) in KARPENTER {
            let found = list(client, &format!("/apis/{api_version}/{plural}"), api_version, kind).await?;
            items.extend(found.with_context(|| format!("the cluster serves no {plural} of {api_version}"))?);
        }
        Ok(items)
    })
}

/// Reads a cluster on a runtime of its own.
fn read(fetch: impl AsyncFnOnce(&kube::Client) -> anyhow::Result<Vec<Value>>) -> anyhow::Result<Documents> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let items = runtime.block_on(async {
        let client = client::unlimited(client::config().await?)?;
        fetch(&client).await
    })?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let parsed = manifests::parse("cluster", &list.to_string());
    Ok(Documents { manifests: parsed.manifests, errors: parsed.errors })
}

async fn slices(client: &kube::Client) -> anyhow::Result<Vec<Value>> {
    for version in ["v1", "v1beta2", "v1beta1"] {
        let api_version = format!("resource.k8s.io/{version}");
        let path = format!("/apis/{api_version}/resourceslices");
        if let Some(slices) = list(client, &path, &api_version, "ResourceSlice").await? {
            return Ok(slices);
        }
    }
    bail!("the cluster serves no ResourceSlices that can be read")
}

/// All objects at a path, `None` if it is not served.
async fn list(client: &kube::Client, path: &str, api_version: &str, kind: &str) -> anyhow::Result<Option<Vec<Value>>> {
    let request = Request::new(path);
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page: Value = match client.request(request.list(&parameters)?).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot list {path}")),
        };
        for object in page.get("items").and_then(Value::as_array).into_iter().flatten() {
            let mut object = object.clone();
            name_kind(&mut object, api_version, kind);
            objects.push(object);
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str).filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token.to_owned()),
            None => return Ok(Some(objects)),
        }
    }
}

/// Items of lists do not say what they are.
fn name_kind(object: &mut Value, api_version: &str, kind: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
    }
}
