//! Objects for tests, written as JSON and stored as a watch would store them.
//!
//! A test writes what it is about. What every object of the kind has to have beside that is added here: a uid, which
//! is its name, and the fields that cannot be left out. An object without a `resourceVersion` replaces whatever is
//! known of it.

use std::fmt::Debug;

use serde::Deserialize;
use serde_json::{Value, json};

use super::watch::node_record;
use super::{ClusterStore, NodeRecord, RawObject, Stored};

impl ClusterStore {
    /// Stores a pod, in the namespace `default` and with one container unless it says otherwise.
    pub(crate) fn show_pod(&self, pod: Value) {
        let usual = json!({"metadata": {"namespace": "default"}, "spec": {"containers": [{"name": "c"}]}});
        self.show(usual, pod, decode::pod);
    }

    /// Stores a Node.
    pub(crate) fn show_node(&self, node: Value) {
        self.show(json!({}), node, read_node);
    }

    /// Stores a NodeClaim.
    pub(crate) fn show_node_claim(&self, claim: Value) {
        let usual = json!({"spec": class_alone()});
        self.show(usual, claim, |claim, _| decode::node_claim_object(claim));
    }

    /// Stores a NodePool.
    pub(crate) fn show_node_pool(&self, pool: Value) {
        let usual = json!({"spec": {"template": {"spec": class_alone()}}});
        self.show(usual, pool, |pool, _| decode::node_pool_object(pool));
    }

    /// Stores an object of any kind as it is. Says whether it was stored.
    pub(crate) fn apply_json<T: Stored, E: Debug>(
        &self,
        object: Value,
        read: impl FnOnce(&Value, &mut decode::Context<'_>) -> Result<T, E>,
    ) -> bool {
        let raw = RawObject::deserialize(object).unwrap();
        self.apply_with(raw.revision(), |names| read(&raw.json, &mut decode::Context::new(names))).unwrap()
    }

    fn show<T: Stored, E: Debug>(
        &self,
        mut usual: Value,
        object: Value,
        read: impl FnOnce(&Value, &mut decode::Context<'_>) -> Result<T, E>,
    ) {
        usual["metadata"]["uid"] = object["metadata"]["name"].clone();
        merge(&mut usual, object);
        // Else the test would go on without the object that it is about.
        assert!(self.apply_json(usual, read), "a newer state of the object is known");
    }
}

/// Reads a Node as the store keeps it.
pub(super) fn read_node(node: &Value, context: &mut decode::Context<'_>) -> Result<NodeRecord, String> {
    node_record(&RawObject::deserialize(node).unwrap(), context)
}

/// The spec of a NodeClaim or of a NodePool's template that only names a class.
fn class_alone() -> Value {
    json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}})
}

/// The owner references of a pod that this controller has made.
pub(crate) fn controlled_by(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}])
}

/// A condition of a NodeClaim, a NodePool or a Node.
pub(crate) fn condition(kind: &str, status: &str, since: &str) -> Value {
    json!({"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": since})
}

/// Sets the fields that `changes` has, down to those that are no objects.
pub(crate) fn merge(target: &mut Value, changes: Value) {
    match (target, changes) {
        (Value::Object(target), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(target.entry(key).or_insert(Value::Null), change);
            }
        }
        (target, changes) => *target = changes,
    }
}
