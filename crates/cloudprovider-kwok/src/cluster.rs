//! Calls to the API server: bounded in time, and each error names the verb and the object.

use crate::names;
use std::time::Duration;

use api::NodeClaim;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use model::Uid;

use crate::drivers::DOMAIN_LABEL;
use crate::node_class::KWOKNodeClass;
use crate::record::{Record, SELECTOR, config_map_name};

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// How many objects a list brings at once.
const PAGE: u32 = 500;

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There is no such object.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// It has changed since it was read.
    Conflict,
    /// Anything else.
    Other,
}

/// A failed call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {reason}")]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// Verb and object.
    what: String,
    reason: String,
}

impl Failure {
    pub(crate) fn other(what: impl Into<String>, reason: impl ToString) -> Self {
        Self { cause: Cause::Other, what: what.into(), reason: reason.to_string() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

async fn call<T>(what: String, call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => {
            let cause = match () {
                () if status.is_not_found() => Cause::NotFound,
                () if status.is_already_exists() => Cause::AlreadyExists,
                () if status.is_conflict() => Cause::Conflict,
                () => Cause::Other,
            };
            Err(Failure { cause, what, reason: status.message.clone() })
        }
        Ok(Err(error)) => Err(Failure::other(what, error)),
        Err(_) => Err(Failure::other(what, format!("no answer within {} s", CALL_TIMEOUT.as_secs()))),
    }
}

/// "Not found" is an answer.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure { cause: Cause::NotFound, .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The objects that the provider reads and writes.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) namespace: String,
    pub(crate) config_maps: Api<ConfigMap>,
    nodes: Api<Node>,
    node_classes: Api<KWOKNodeClass>,
    node_claims: Api<NodeClaim>,
    slices: Api<DynamicObject>,
    csi_nodes: Api<CSINode>,
}

impl Cluster {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            config_maps: Api::namespaced(client.clone(), namespace),
            nodes: Api::all(client.clone()),
            node_classes: Api::all(client.clone()),
            node_claims: Api::all(client.clone()),
            slices: Api::all_with(client.clone(), &resource_slices()),
            csi_nodes: Api::all(client),
        }
    }

    fn config_map(&self, verb: &str, name: &str) -> String {
        format!("{verb} ConfigMap {}/{name}", self.namespace)
    }

    /// The record of the machine with that Node name.
    pub(crate) async fn record(&self, node_name: &str) -> Result<Option<Record>> {
        let name = config_map_name(node_name);
        let what = self.config_map("get", &name);
        match found(call(what.clone(), self.config_maps.get(&name)).await)? {
            Some(config_map) => {
                Ok(Some(Record::from_config_map(&config_map).map_err(|error| Failure::other(what, error))?))
            }
            None => Ok(None),
        }
    }

    /// The record of the machine that was launched with that token.
    pub(crate) async fn record_of(&self, token: &Uid) -> Result<Option<Record>> {
        let selector = format!("{SELECTOR},{}={token}", names::KWOK_INSTANCE_TOKEN);
        let params = ListParams::default().labels(&selector);
        let what = self.config_map("list", "*");
        let found = call(what.clone(), self.config_maps.list(&params)).await?;
        let record = found.items.first().map(Record::from_config_map).transpose();
        record.map_err(|error| Failure::other(what, error))
    }

    /// All records. One that cannot be read is told in the log and left out.
    pub(crate) async fn records(&self) -> Result<Vec<Record>> {
        let what = self.config_map("list", "*");
        let config_maps = pages(what, ListParams::default().labels(SELECTOR), &self.config_maps).await?;
        Ok(config_maps.iter().filter_map(readable).collect())
    }

    pub(crate) async fn create_record(&self, record: &Record) -> Result<Record> {
        let config_map = record.to_config_map(&self.namespace);
        let what = self.config_map("create", &record.config_map_name());
        let created = call(what.clone(), self.config_maps.create(&PostParams::default(), &config_map)).await?;
        Record::from_config_map(&created).map_err(|error| Failure::other(what, error))
    }

    /// Writes a record over the version that it was read from.
    pub(crate) async fn replace_record(&self, record: &Record) -> Result<()> {
        let name = record.config_map_name();
        let config_map = record.to_config_map(&self.namespace);
        let params = PostParams::default();
        let replace = self.config_maps.replace(&name, &params, &config_map);
        call(self.config_map("replace", &name), replace).await.map(drop)
    }

    /// Whether there was something to delete.
    pub(crate) async fn delete_record(&self, node_name: &str) -> Result<bool> {
        let name = config_map_name(node_name);
        let params = DeleteParams::default();
        let delete = self.config_maps.delete(&name, &params);
        Ok(found(call(self.config_map("delete", &name), delete).await)?.is_some())
    }

    /// The value of a key of a ConfigMap.
    pub(crate) async fn config_map_value(&self, name: &str, key: &str) -> Result<Option<String>> {
        let config_map = found(call(self.config_map("get", name), self.config_maps.get(name)).await)?;
        Ok(config_map.and_then(|config_map| config_map.data?.remove(key)))
    }

    pub(crate) async fn node_class(&self, name: &str) -> Result<Option<KWOKNodeClass>> {
        found(call(format!("get KWOKNodeClass {name}"), self.node_classes.get(name)).await)
    }

    pub(crate) async fn node_claims(&self) -> Result<Vec<NodeClaim>> {
        pages("list NodeClaim".to_owned(), ListParams::default(), &self.node_claims).await
    }

    pub(crate) async fn node(&self, name: &str) -> Result<Option<Node>> {
        found(call(format!("get Node {name}"), self.nodes.get(name)).await)
    }

    pub(crate) async fn nodes(&self, selector: &str) -> Result<Vec<Node>> {
        pages("list Node".to_owned(), ListParams::default().labels(selector), &self.nodes).await
    }

    pub(crate) async fn create_node(&self, node: &Node) -> Result<Node> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        call(format!("create Node {name}"), self.nodes.create(&PostParams::default(), node)).await
    }

    /// Whether there was something to delete. With a UID, only the Node that has it.
    pub(crate) async fn delete_node(&self, name: &str, uid: Option<&str>) -> Result<bool> {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        Ok(found(call(format!("delete Node {name}"), self.nodes.delete(name, &params)).await)?.is_some())
    }

    pub(crate) async fn patch_node(&self, name: &str, patch: &serde_json::Value) -> Result<Option<Node>> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        found(call(format!("patch Node {name}"), self.nodes.patch(name, &params, &patch)).await)
    }

    pub(crate) async fn create_slice(&self, slice: &serde_json::Value) -> Result<()> {
        let name = slice.pointer("/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
        let what = format!("create ResourceSlice {name}");
        let object: DynamicObject =
            serde_json::from_value(slice.clone()).map_err(|error| Failure::other(what.clone(), error))?;
        call(what, self.slices.create(&PostParams::default(), &object)).await.map(drop)
    }

    pub(crate) async fn create_csi_node(&self, csi_node: &CSINode) -> Result<()> {
        let what = format!("create CSINode {}", csi_node.metadata.name.as_deref().unwrap_or_default());
        match call(what, self.csi_nodes.create(&PostParams::default(), csi_node)).await {
            // From before a crash.
            Ok(_) | Err(Failure { cause: Cause::AlreadyExists, .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The names of the slices that belong to domains.
    pub(crate) async fn slices_of_domains(&self) -> Result<Vec<String>> {
        let params = ListParams::default().labels(DOMAIN_LABEL);
        let slices = pages("list ResourceSlice".to_owned(), params, &self.slices).await?;
        Ok(slices.into_iter().filter_map(|slice| slice.metadata.name).collect())
    }

    /// Whether there was something to delete.
    pub(crate) async fn delete_slice(&self, name: &str) -> Result<bool> {
        let params = DeleteParams::default();
        Ok(found(call(format!("delete ResourceSlice {name}"), self.slices.delete(name, &params)).await)?.is_some())
    }

    /// Conditions in the patch are merged by type.
    pub(crate) async fn patch_node_status(&self, name: &str, patch: &serde_json::Value) -> Result<Option<Node>> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        found(call(format!("patch status of Node {name}"), self.nodes.patch_status(name, &params, &patch)).await)
    }
}

fn resource_slices() -> ApiResource {
    ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceSlice".to_owned(),
        plural: "resourceslices".to_owned(),
    }
}

/// The record in a ConfigMap, or a line in the log that says why there is none.
pub(crate) fn readable(config_map: &ConfigMap) -> Option<Record> {
    match Record::from_config_map(config_map) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::error!(%error, "could not read an instance's record, leaving the instance alone");
            None
        }
    }
}

async fn pages<K>(what: String, mut params: ListParams, api: &Api<K>) -> Result<Vec<K>>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    params.limit = Some(PAGE);
    let mut all = Vec::new();
    loop {
        let page: ObjectList<K> = call(what.clone(), api.list(&params)).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests;
