//! The objects of a cluster, in memory, as far as the provider needs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{NodeClaim, NodePool};
use async_trait::async_trait;
use model::Quantity;
use serde_json::Value;

use super::Fuse;
use crate::provider::cluster::{Cluster, Document, Expected, Failure, Part};

/// The objects. Clones are the same cluster.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    state: Arc<Mutex<State>>,
    fuse: Fuse,
}

#[derive(Debug, Default)]
struct State {
    classes: BTreeMap<String, Value>,
    pools: Vec<NodePool>,
    /// By UID.
    claims: BTreeMap<String, NodeClaim>,
    /// As they were when they were deleted, by UID.
    deleted: BTreeMap<String, NodeClaim>,
    documents: BTreeMap<String, Document>,
    /// Memory of Nodes, by the provider ids of their machines.
    memory: BTreeMap<String, Quantity>,
    written: u64,
}

impl Objects {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster as a caller sees it that ends when the fuse blows.
    #[must_use]
    pub fn with_fuse(&self, fuse: Fuse) -> Self {
        Self { state: Arc::clone(&self.state), fuse }
    }

    /// Adds an EC2NodeClass, or replaces it.
    pub fn set_class(&self, object: Value) {
        let (name, mut object) = (name_of(&object), object);
        let state = &mut *self.state();
        state.written += 1;
        set_version(&mut object, state.written);
        state.classes.insert(name, object);
    }

    /// An EC2NodeClass.
    pub fn class(&self, name: &str) -> Option<Value> {
        self.state().classes.get(name).cloned()
    }

    /// Takes an EC2NodeClass away.
    pub fn remove_class(&self, name: &str) {
        self.state().classes.remove(name);
    }

    /// Sets the NodePools that there are.
    pub fn set_pools(&self, pools: Vec<NodePool>) {
        self.state().pools = pools;
    }

    /// Adds a NodeClaim, or replaces it.
    pub fn set_claim(&self, claim: NodeClaim) {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        self.state().claims.insert(uid, claim);
    }

    /// A NodeClaim.
    pub fn claim(&self, uid: &str) -> Option<NodeClaim> {
        self.state().claims.get(uid).cloned()
    }

    /// A NodeClaim as it was when its end was asked for.
    pub fn deleted_claim(&self, uid: &str) -> Option<NodeClaim> {
        self.state().deleted.get(uid).cloned()
    }

    /// Takes a NodeClaim away.
    pub fn remove_claim(&self, uid: &str) {
        self.state().claims.remove(uid);
    }

    /// Sets the memory that a machine's Node tells.
    pub fn set_memory(&self, provider_id: &str, memory: Quantity) {
        self.state().memory.insert(provider_id.to_owned(), memory);
    }

    /// The documents that are there, by name.
    pub fn documents(&self) -> BTreeMap<String, String> {
        self.state().documents.iter().map(|(name, document)| (name.clone(), document.text.clone())).collect()
    }

    async fn call<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        self.fuse.step().await;
        let answer = act(&mut self.state());
        self.fuse.step().await;
        answer
    }
}

const VERSION: &str = "/metadata/resourceVersion";

fn name_of(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn set_version(object: &mut Value, version: u64) {
    merge(object, &serde_json::json!({ "metadata": { "resourceVersion": version.to_string() } }));
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let Some(known) = object.as_object_mut() else { return };
    for (key, value) in fields {
        if value.is_null() {
            known.remove(key);
        } else {
            merge(known.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[async_trait]
impl Cluster for Objects {
    async fn node_class(&self, name: &str) -> Result<Option<Value>, Failure> {
        Ok(self.call(|state| state.classes.get(name).cloned()).await)
    }

    async fn node_classes(&self) -> Result<Vec<Value>, Failure> {
        Ok(self.call(|state| state.classes.values().cloned().collect()).await)
    }

    async fn patch_class(&self, object: &Value, patch: &Value, part: Part) -> Result<Value, Failure> {
        let name = name_of(object);
        self.call(|state| {
            let gone = || Failure::Other(format!("patch EC2NodeClass {name}: not found"));
            let known = state.classes.get_mut(&name).ok_or_else(gone)?;
            if known.pointer(VERSION) != object.pointer(VERSION) {
                return Err(Failure::Conflict(format!("EC2NodeClass {name}")));
            }
            let mut patch = patch.clone();
            // As the server does: one part is left alone.
            if let Some(parts) = patch.as_object_mut() {
                parts.retain(|key, _| (key == "status") == (part == Part::Status));
            }
            merge(known, &patch);
            state.written += 1;
            set_version(known, state.written);
            let patched = known.clone();
            let is_going = patched.pointer("/metadata/deletionTimestamp").is_some();
            let is_kept =
                patched.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
            if is_going && !is_kept {
                state.classes.remove(&name);
            }
            Ok(patched)
        })
        .await
    }

    async fn node_claims(&self) -> Result<Vec<NodeClaim>, Failure> {
        Ok(self.call(|state| state.claims.values().cloned().collect()).await)
    }

    async fn node_pools(&self) -> Result<Vec<NodePool>, Failure> {
        Ok(self.call(|state| state.pools.clone()).await)
    }

    async fn node_memory(&self) -> Result<BTreeMap<String, Quantity>, Failure> {
        Ok(self.call(|state| state.memory.clone()).await)
    }

    async fn annotate(&self, claim: &NodeClaim, annotations: &[(&str, String)]) -> Result<(), Failure> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        self.call(|state| {
            if let Some(claim) = state.claims.get_mut(&uid) {
                let all = annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
                claim.metadata.annotations.get_or_insert_default().extend(all);
            }
        })
        .await;
        Ok(())
    }

    /// There are no Nodes here.
    async fn relabel(&self, claim: &NodeClaim, labels: &[(&str, Option<&str>)]) -> Result<(), Failure> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        self.call(|state| {
            let Some(claim) = state.claims.get_mut(&uid) else { return };
            let of_claim = claim.metadata.labels.get_or_insert_default();
            for (key, value) in labels {
                match value {
                    Some(value) => drop(of_claim.insert((*key).to_owned(), (*value).to_owned())),
                    None => drop(of_claim.remove(*key)),
                }
            }
        })
        .await;
        Ok(())
    }

    /// None has a finalizer here.
    async fn delete_claim(&self, claim: &NodeClaim) -> Result<(), Failure> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        self.call(|state| {
            let removed = state.claims.remove(&uid);
            state.deleted.extend(removed.map(|claim| (uid.clone(), claim)));
        })
        .await;
        Ok(())
    }

    async fn read(&self, name: &str) -> Result<Option<Document>, Failure> {
        Ok(self.call(|state| state.documents.get(name).cloned()).await)
    }

    async fn write(&self, name: &str, text: &str, expected: Expected<'_>) -> Result<String, Failure> {
        self.call(|state| {
            let is_expected = match (state.documents.get(name), expected) {
                (None, Expected::Absent) => true,
                (Some(document), Expected::Version(version)) => document.version == version,
                (None, Expected::Version(_)) | (Some(_), Expected::Absent) => false,
            };
            if !is_expected {
                return Err(Failure::Conflict(name.to_owned()));
            }
            state.written += 1;
            let version = state.written.to_string();
            let document = Document { text: text.to_owned(), version: version.clone() };
            state.documents.insert(name.to_owned(), document);
            Ok(version)
        })
        .await
    }

    async fn remove(&self, name: &str) -> Result<(), Failure> {
        self.call(|state| drop(state.documents.remove(name))).await;
        Ok(())
    }

    async fn names(&self) -> Result<Vec<String>, Failure> {
        Ok(self.call(|state| state.documents.keys().cloned().collect()).await)
    }
}
