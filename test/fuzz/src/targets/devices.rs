//! Objects of `resource.k8s.io` of any kind are put into one inventory, and every claim is allocated on a node, within
//! the budget.

use std::sync::Arc;

use dra_sched::{ClusterLedger, InventoryBuilder, Verdict, allocate};
use dra_types::{
    Compat, DeviceClass, DeviceTaintRule, Gates, KubernetesMinor, NodeFacts, ResourceClaim, ResourceSlice,
};
use model::Budget;
use serde_json::Value;

const STEPS: u64 = 20_000;

/// The newest release with all that can be turned on.
pub(crate) fn compat() -> Compat {
    Compat::with_gates(KubernetesMinor::NEWEST, Gates::all(KubernetesMinor::NEWEST))
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(Value::Array(objects)) = serde_json::from_slice(bytes) else { return };
    let mut builder = InventoryBuilder::new(compat());
    let mut claims = Vec::new();
    for object in &objects {
        if let Ok(class) = DeviceClass::from_json(object) {
            builder.class(Arc::new(class));
        }
        if let Ok(slice) = ResourceSlice::from_json(object) {
            builder.slice(Arc::new(slice));
        }
        if let Ok(rule) = DeviceTaintRule::from_json(object) {
            builder.taint_rule(Arc::new(rule));
        }
        if let Ok(claim) = ResourceClaim::from_json(object) {
            let name = claim.meta.name.to_string();
            claims.push(builder.claim_class(&name, &Arc::new(claim.spec.clone()), None));
            builder.claim(Arc::new(claim));
        }
    }
    let inventory = builder.build();
    let labels = [("zone".into(), "a".into())].into();
    let node = NodeFacts { name: Some("node-1".into()), labels, ..NodeFacts::default() };
    let mut ledger = ClusterLedger::new(&inventory);
    for claims in claims.chunks(2) {
        let mut budget = Budget::new(STEPS);
        let verdict = allocate(&inventory, &node, claims, &ledger, &mut budget);
        match &verdict {
            Verdict::Allocated { allocations, .. } => {
                allocations.iter().for_each(|allocation| ledger.hold(&inventory, allocation));
            }
            Verdict::Refused(refusal) => assert!(!refusal.to_string().is_empty()),
            Verdict::OutOfBudget(progress) => assert!(progress.steps <= STEPS),
        }
    }
}
