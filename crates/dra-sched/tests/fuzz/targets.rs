//! What is fuzzed, each a function of bytes.

use std::sync::Arc;

use dra_sched::cel::{DeviceView, MAX_COST, Selector, SlotTable};
use dra_sched::types::{Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use dra_sched::{ClusterLedger, Compat, Gates, InventoryBuilder, KubernetesMinor, NodeFacts, Verdict};
use model::{Budget, Quantity};
use serde_json::{Value, json};

const STEPS: u64 = 20_000;

fn compat() -> Compat {
    Compat::with_gates(KubernetesMinor::NEWEST, Gates::all(KubernetesMinor::NEWEST))
}

/// A selector, on a device with an attribute of each type; by both evaluators.
pub fn selector(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let compat = compat();
    let Ok(selector) = Selector::compile(&text, &compat) else { return };
    let device = json!({
        "name": "device", "allowMultipleAllocations": true,
        "attributes": {
            "model": {"string": "a100"}, "index": {"int": 3}, "ready": {"bool": true}, "version": {"version": "1.2.3"},
            "example.com/names": {"strings": ["a", "b"]},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    });
    let driver = "gpu.example.com".into();
    let device = Device::from_json(&device).unwrap();
    let general = selector.evaluate(&DeviceView::new(&driver, &device, &compat));
    // One call may overrun the limit, and nothing comes after it.
    assert!(general.cost <= MAX_COST || general.outcome.is_err(), "{text} cost {}", general.cost);
    let mut table = SlotTable::default();
    if let Some(program) = selector.lower(&mut table) {
        let by_slots = program.evaluate(&table.row(&driver, &device, &compat));
        assert!(by_slots.is_none_or(|by_slots| by_slots == general), "{text}");
    }
}

/// A quantity.
pub fn quantity(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(quantity) = Quantity::parse(&text) {
        let printed = quantity.to_string();
        let again = Quantity::parse(&printed).unwrap_or_else(|error| panic!("{text} prints as {printed}: {error}"));
        assert_eq!(again.to_nano(), quantity.to_nano(), "{text} prints as {printed}");
    }
}

/// A list of objects of any kind: all are put into one inventory, and every claim is allocated on a node.
pub fn objects(bytes: &[u8]) {
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
        let verdict = inventory.allocate(&node, claims, &ledger, &mut budget);
        match &verdict {
            Verdict::Allocated { allocations, .. } => {
                allocations.iter().for_each(|allocation| ledger.hold(&inventory, allocation));
            }
            Verdict::Refused(refusal) => assert!(!refusal.to_string().is_empty()),
            Verdict::OutOfBudget(progress) => assert!(progress.steps <= STEPS),
        }
    }
}
