//! Objects for tests, from short JSON.

use std::sync::Arc;

use model::Budget;
use serde_json::{Value, json};

use crate::{ClaimClassId, ClusterLedger, Inventory, InventoryBuilder, Verdict, allocate};
use dra_types::{Compat, DeviceClass, Gates, KubernetesMinor, NodeFacts, ResourceClaim, ResourceSlice};

pub(crate) const STEPS: u64 = 100_000;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Everything on, newest release.
pub(crate) fn compat() -> Compat {
    Compat::with_gates(KubernetesMinor::V1_37, Gates::all(KubernetesMinor::V1_37))
}

pub(crate) fn slice(name: &str, spec: &Value) -> Arc<ResourceSlice> {
    Arc::new(ResourceSlice::from_json(&object("ResourceSlice", name, spec)).unwrap())
}

/// A slice of node `n1` that is a pool by itself.
pub(crate) fn local(driver: &str, devices: &Value) -> Arc<ResourceSlice> {
    let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
    slice(driver, &json!({"driver": driver, "nodeName": "n1", "pool": pool, "devices": devices}))
}

/// `count` equal devices, the further fields given by their number.
pub(crate) fn devices(count: usize, fields: impl Fn(usize) -> Value) -> Value {
    let device = |index: usize| {
        let mut device = fields(index);
        device["name"] = format!("d{index:02}").into();
        device
    };
    (0..count).map(device).collect()
}

/// A builder with a class for every driver, named like it, and `any` for all.
pub(crate) fn builder(drivers: &[&str]) -> InventoryBuilder {
    builder_for(compat(), drivers)
}

/// A builder for a release and its gates.
pub(crate) fn builder_for(compat: Compat, drivers: &[&str]) -> InventoryBuilder {
    let mut builder = InventoryBuilder::new(compat);
    for driver in drivers {
        let spec = json!({"selectors": [{"cel": {"expression": format!("device.driver == \"{driver}\"")}}]});
        builder.class(Arc::new(DeviceClass::from_json(&object("DeviceClass", driver, &spec)).unwrap()));
    }
    builder.class(Arc::new(DeviceClass::from_json(&object("DeviceClass", "any", &json!({}))).unwrap()));
    builder
}

/// A claim class from the `devices` part of a spec.
pub(crate) fn claim(builder: &mut InventoryBuilder, name: &str, devices: &Value) -> ClaimClassId {
    let claim = ResourceClaim::from_json(&object("ResourceClaim", name, &json!({"devices": devices}))).unwrap();
    builder.claim_class(name, &Arc::new(claim.spec), None)
}

/// `{name, exactly: {class, count}}`.
pub(crate) fn exactly(name: &str, class: &str, count: usize) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": class, "count": count}})
}

pub(crate) fn n1() -> NodeFacts {
    NodeFacts { name: Some("n1".into()), ..NodeFacts::default() }
}

/// The verdict on node `n1`, and the steps it took.
pub(crate) fn ask(inventory: &Inventory, claims: &[ClaimClassId]) -> (Verdict, u64) {
    ask_with(inventory, claims, &ClusterLedger::new(inventory))
}

/// Asks where a ledger says what is taken.
pub(crate) fn ask_with(inventory: &Inventory, claims: &[ClaimClassId], ledger: &ClusterLedger) -> (Verdict, u64) {
    let mut budget = Budget::new(STEPS);
    let verdict = allocate(inventory, &n1(), claims, ledger, &mut budget);
    (verdict, STEPS - budget.remaining())
}

/// The names of the devices allocated, in order; empty if none were.
pub(crate) fn names(verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Allocated { allocations, .. } => {
            let results = allocations.iter().flat_map(|allocation| &allocation.results);
            results.map(|result| result.device.device.to_string()).collect()
        }
        Verdict::Refused(_) | Verdict::OutOfBudget(_) => Vec::new(),
    }
}
