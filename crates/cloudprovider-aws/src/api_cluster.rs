//! The cluster's objects, by a client of its API server. Calls are bounded in time, and each error names the verb and
//! the object.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{NodeClaim, NodePool};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource as _};
use model::Quantity;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::declaration::DECLARATION;
use crate::names;
use crate::provider::cluster::{Cluster, Document, Expected, Failure, Part};

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// How many objects a list brings at once.
const PAGE: u32 = 500;
/// Label of the ConfigMaps that hold documents.
const LABEL: &str = "dovetail.sh/ec2-document";
/// Their only key.
const KEY: &str = "document";

/// See the [module](self).
#[derive(Clone)]
pub struct ApiCluster {
    namespace: String,
    classes: Api<DynamicObject>,
    pools: Api<DynamicObject>,
    claims: Api<DynamicObject>,
    nodes: Api<DynamicObject>,
    config_maps: Api<ConfigMap>,
}

impl std::fmt::Debug for ApiCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiCluster").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl ApiCluster {
    /// The objects of a client's cluster; documents are kept in that namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        let classes = DECLARATION.node_class_kinds.first().map_or_else(
            || unreachable!("a provider declares a kind of node class"),
            |kind| ApiResource {
                group: kind.group.to_owned(),
                version: kind.version.to_owned(),
                api_version: format!("{}/{}", kind.group, kind.version),
                kind: kind.kind.to_owned(),
                plural: kind.plural.to_owned(),
            },
        );
        Self {
            namespace: namespace.to_owned(),
            classes: Api::all_with(client.clone(), &classes),
            pools: Api::all_with(client.clone(), &ApiResource::erase::<NodePool>(&())),
            claims: Api::all_with(client.clone(), &ApiResource::erase::<NodeClaim>(&())),
            nodes: Api::all_with(client.clone(), &ApiResource::erase::<Node>(&())),
            config_maps: Api::namespaced(client, namespace),
        }
    }

    fn config_map(&self, verb: &str, name: &str) -> String {
        format!("{verb} ConfigMap {}/{name}", self.namespace)
    }
}

/// Why a call failed.
enum Cause {
    NotFound,
    Conflict,
    Other(String),
}

async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Cause> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Err(Cause::NotFound),
        Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => Err(Cause::Conflict),
        Ok(Err(error)) => Err(Cause::Other(error.to_string())),
        Err(_) => Err(Cause::Other(format!("no answer within {} s", CALL_TIMEOUT.as_secs()))),
    }
}

fn failure(what: &str, cause: Cause) -> Failure {
    match cause {
        Cause::NotFound => Failure::Other(format!("{what}: not found")),
        Cause::Conflict => Failure::Conflict(what.to_owned()),
        Cause::Other(reason) => Failure::Other(format!("{what}: {reason}")),
    }
}

/// "Not found" is an answer.
fn found<T>(what: &str, answer: Result<T, Cause>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Cause::NotFound) => Ok(None),
        Err(cause) => Err(failure(what, cause)),
    }
}

async fn pages<K>(what: &str, api: &Api<K>, mut params: ListParams) -> Result<Vec<K>, Failure>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    params.limit = Some(PAGE);
    let mut all = Vec::new();
    loop {
        let page = call(api.list(&params)).await.map_err(|cause| failure(what, cause))?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

fn value(what: &str, object: &DynamicObject) -> Result<Value, Failure> {
    serde_json::to_value(object).map_err(|error| Failure::Other(format!("{what}: {error}")))
}

/// A patch that the server refuses if the object has another version meanwhile.
fn with_version(patch: &Value, object: &Value) -> Value {
    let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let mut patch = patch.clone();
    let metadata = patch.as_object_mut().map(|fields| fields.entry("metadata").or_insert_with(|| json!({})));
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version);
    }
    patch
}

/// A NodeClaim. Of one that another version has written and this one cannot read, what says whose machine is whose.
fn node_claim(object: &Value) -> Option<NodeClaim> {
    serde_json::from_value(object.clone()).ok().or_else(|| {
        let of = |path: &str| object.pointer(path).cloned().unwrap_or_default();
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        serde_json::from_value(json!({
            "apiVersion": text("/apiVersion"), "kind": text("/kind"), "metadata": of("/metadata"),
            "spec": {
                "requirements": [],
                "nodeClassRef": {
                    "group": text("/spec/nodeClassRef/group"),
                    "kind": text("/spec/nodeClassRef/kind"),
                    "name": text("/spec/nodeClassRef/name"),
                },
            },
            "status": {"providerID": text("/status/providerID")},
        }))
        .ok()
    })
}

/// The provider id of a Node, and its memory.
fn memory(node: &Value) -> Option<(String, Quantity)> {
    let text = |path: &str| node.pointer(path).and_then(Value::as_str);
    let memory = Quantity::parse(text("/status/capacity/memory")?).ok()?;
    Some((text("/spec/providerID")?.to_owned(), memory))
}

#[async_trait]
impl Cluster for ApiCluster {
    async fn node_class(&self, name: &str) -> Result<Option<Value>, Failure> {
        let what = format!("get {} {name}", names::NODE_CLASS_KIND);
        let object = found(&what, call(self.classes.get(name)).await)?;
        object.map(|object| value(&what, &object)).transpose()
    }

    async fn node_classes(&self) -> Result<Vec<Value>, Failure> {
        let what = format!("list {}", names::NODE_CLASS_KIND);
        pages(&what, &self.classes, ListParams::default()).await?.iter().map(|object| value(&what, object)).collect()
    }

    async fn patch_class(&self, object: &Value, patch: &Value, part: Part) -> Result<Value, Failure> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let what = format!("patch {} {name}", names::NODE_CLASS_KIND);
        let patch = with_version(patch, object);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let answer = match part {
            Part::Object => call(self.classes.patch(name, &params, &patch)).await,
            Part::Status => call(self.classes.patch_status(name, &params, &patch)).await,
        };
        value(&what, &answer.map_err(|cause| failure(&what, cause))?)
    }

    async fn node_pools(&self) -> Result<Vec<NodePool>, Failure> {
        let what = format!("list {}", NodePool::kind(&()));
        let objects = pages(&what, &self.pools, ListParams::default()).await?;
        let read = |object: &DynamicObject| value(&what, object).map(|object| serde_json::from_value(object).ok());
        Ok(objects.iter().map(read).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    async fn node_claims(&self) -> Result<Vec<NodeClaim>, Failure> {
        let what = format!("list {}", NodeClaim::kind(&()));
        let objects = pages(&what, &self.claims, ListParams::default()).await?;
        let read = |object: &DynamicObject| value(&what, object).map(|object| node_claim(&object));
        Ok(objects.iter().map(read).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    async fn node_memory(&self) -> Result<BTreeMap<String, Quantity>, Failure> {
        let nodes = pages("list Node", &self.nodes, ListParams::default()).await?;
        Ok(nodes.iter().filter_map(|node| memory(&node.data)).collect())
    }

    async fn annotate(&self, claim: &NodeClaim, annotations: &[(&str, String)]) -> Result<(), Failure> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let what = format!("patch NodeClaim {name}");
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), Value::String(value.clone()))).collect();
        // Another one by that name is not meant.
        let patch = json!({ "metadata": { "uid": claim.metadata.uid, "annotations": annotations } });
        match call(self.claims.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Ok(_) | Err(Cause::NotFound | Cause::Conflict) => Ok(()),
            Err(cause) => Err(failure(&what, cause)),
        }
    }

    /// The Node first: whoever was cut off finds the NodeClaim as it was, and does both again.
    async fn relabel(&self, claim: &NodeClaim, labels: &[(&str, Option<&str>)]) -> Result<(), Failure> {
        let labels: serde_json::Map<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let node = claim.status.as_ref().map_or("", |status| status.node_name.as_str());
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        // Another NodeClaim by that name is not meant.
        let of_claim = json!({ "metadata": { "uid": claim.metadata.uid, "labels": labels } });
        let of_node = json!({ "metadata": { "labels": labels } });
        for (what, api, name, patch) in
            [("Node", &self.nodes, node, of_node), ("NodeClaim", &self.claims, name, of_claim)]
        {
            if name.is_empty() {
                continue;
            }
            match call(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
                Ok(_) | Err(Cause::NotFound | Cause::Conflict) => {}
                Err(cause) => return Err(failure(&format!("patch {what} {name}"), cause)),
            }
        }
        Ok(())
    }

    async fn delete_claim(&self, claim: &NodeClaim) -> Result<(), Failure> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        // Another one by that name is not meant.
        let preconditions = Preconditions { uid: claim.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match call(self.claims.delete(name, &params)).await {
            Ok(_) | Err(Cause::NotFound | Cause::Conflict) => Ok(()),
            Err(cause) => Err(failure(&format!("delete NodeClaim {name}"), cause)),
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Document>, Failure> {
        let config_map = found(&self.config_map("get", name), call(self.config_maps.get(name)).await)?;
        Ok(config_map.map(|config_map| Document {
            text: config_map.data.and_then(|mut data| data.remove(KEY)).unwrap_or_default(),
            version: config_map.metadata.resource_version.unwrap_or_default(),
        }))
    }

    async fn write(&self, name: &str, text: &str, expected: Expected<'_>) -> Result<String, Failure> {
        let mut config_map = ConfigMap::default();
        config_map.metadata.name = Some(name.to_owned());
        config_map.metadata.labels = Some([(LABEL.to_owned(), api::labels::TRUE.to_owned())].into());
        config_map.data = Some([(KEY.to_owned(), text.to_owned())].into());
        let params = PostParams::default();
        let (verb, written) = match expected {
            Expected::Absent => ("create", call(self.config_maps.create(&params, &config_map)).await),
            Expected::Version(version) => {
                config_map.metadata.resource_version = Some(version.to_owned());
                let written = call(self.config_maps.replace(name, &params, &config_map)).await;
                // Somebody has removed it.
                (
                    "replace",
                    written.map_err(|cause| if matches!(cause, Cause::NotFound) { Cause::Conflict } else { cause }),
                )
            }
        };
        let written = written.map_err(|cause| failure(&self.config_map(verb, name), cause))?;
        Ok(written.metadata.resource_version.unwrap_or_default())
    }

    async fn remove(&self, name: &str) -> Result<(), Failure> {
        let removed = call(self.config_maps.delete(name, &DeleteParams::default())).await;
        found(&self.config_map("delete", name), removed).map(drop)
    }

    async fn names(&self) -> Result<Vec<String>, Failure> {
        let params = ListParams::default().labels(LABEL);
        let all = pages(&self.config_map("list", "*"), &self.config_maps, params).await?;
        Ok(all.into_iter().filter_map(|config_map| config_map.metadata.name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_for_the_version_that_was_read() {
        let object = json!({"metadata": {"name": "c", "resourceVersion": "7"}});
        let status = with_version(&json!({"status": {"amis": []}}), &object);
        assert_eq!(status, json!({"status": {"amis": []}, "metadata": {"resourceVersion": "7"}}));
        let metadata = with_version(&json!({"metadata": {"finalizers": []}}), &object);
        assert_eq!(metadata, json!({"metadata": {"finalizers": [], "resourceVersion": "7"}}));
    }

    #[test]
    fn a_node_tells_its_memory_once_it_has_some() {
        let node = |memory: &Value| json!({"spec": {"providerID": "aws:///a/i-1"}, "status": {"capacity": memory}});
        let told = Some(("aws:///a/i-1".to_owned(), Quantity::parse("7900Mi").unwrap()));
        assert_eq!(memory(&node(&json!({"memory": "7900Mi"}))), told);
        assert_eq!((memory(&node(&json!({}))), memory(&node(&json!({"memory": "much"})))), (None, None));
        assert_eq!(memory(&json!({"status": {"capacity": {"memory": "7900Mi"}}})), None, "it is nobody's");
    }

    #[test]
    fn of_a_claim_that_cannot_be_read_its_machine_is_known() {
        let object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c", "uid": "u"},
            "spec": {"requirements": "of tomorrow", "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": "aws:///us-east-1a/i-1", "capacity": "of tomorrow"},
        });
        let claim = node_claim(&object).unwrap();
        assert_eq!(claim.status.unwrap().provider_id, "aws:///us-east-1a/i-1");
        assert_eq!((claim.metadata.uid.as_deref(), &*claim.spec.node_class_ref.name), (Some("u"), "n"));
    }
}
