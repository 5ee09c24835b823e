//! A recorded case, read into an inventory and a ledger: one pod on one node, or several pods in a small cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::{ClaimClassId, ClusterLedger, Inventory, InventoryBuilder, Verdict, allocate};
use dra_types::{
    Compat, DeviceClass, DeviceId, DeviceTaintRule, Gate, Gates, NodeFacts, QualifiedName, ResourceClaim, ResourceSlice,
};
use model::{Budget, Quantity};
use serde_json::Value;

/// A question.
pub(super) struct Case {
    inventory: Inventory,
    ledger: ClusterLedger,
    nodes: Vec<NodeFacts>,
    /// The claims of each pod.
    pods: Vec<Vec<ClaimClassId>>,
}

/// What became of one pod on one node, both by their positions.
#[allow(dead_code, reason = "recorded cases are about one pod and one node")]
pub(super) struct Attempt {
    pub pod: usize,
    pub node: usize,
    pub verdict: Verdict,
}

/// The gates of a case; absent or null is none.
pub(super) fn gates(record: &Value) -> Result<Gates, String> {
    let names = record["features"].as_array().map_or(&[][..], Vec::as_slice);
    let mut gates = Gates::NONE;
    for name in names.iter().filter_map(Value::as_str) {
        // One feature of the allocator stands for two gates.
        for name in name.split('+') {
            match name.parse::<Gate>() {
                Ok(gate) => gates = gates.with(gate, true),
                // It does not change what is allocated.
                Err(_) if name == "DRAResourceClaimDeviceStatus" => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(gates)
}

impl Case {
    /// Reads a record.
    pub(super) fn read(record: &Value, compat: Compat) -> Result<Self, String> {
        let mut builder = InventoryBuilder::new(compat);
        for class in objects(record, "classes") {
            builder.class(Arc::new(DeviceClass::from_json(&class).map_err(|error| error.to_string())?));
        }
        for slice in objects(record, "slices") {
            builder.slice(Arc::new(ResourceSlice::from_json(&slice).map_err(|error| error.to_string())?));
        }
        for rule in objects(record, "taintRules") {
            builder.taint_rule(Arc::new(DeviceTaintRule::from_json(&rule).map_err(|error| error.to_string())?));
        }
        let mut pods = Vec::new();
        let of_pods = record["pods"].as_array().map_or_else(|| vec![&record["claims"]], |pods| pods.iter().collect());
        for pod in of_pods {
            let claims = pod.as_array().into_iter().flatten().map(|claim| claim_class(&mut builder, claim));
            pods.push(claims.collect::<Result<_, _>>()?);
        }
        let inventory = builder.build();
        let mut ledger = ClusterLedger::new(&inventory);
        for device in list(record, "allocatedDevices") {
            ledger.hold_device(&inventory, &device_id(device)?);
        }
        for device in list(record, "allocatedSharedDevices") {
            ledger.hold_shares(&inventory, &device_id(device)?, 1, &BTreeMap::new());
        }
        for entry in list(record, "aggregatedCapacity") {
            let mut taken = BTreeMap::new();
            for (name, amount) in entry["consumed"].as_object().into_iter().flatten() {
                let amount = Quantity::parse(amount.as_str().unwrap_or_default()).map_err(|error| error.to_string())?;
                taken.insert(QualifiedName::from(&**name), amount);
            }
            ledger.hold_shares(&inventory, &device_id(&entry["device"])?, 1, &taken);
        }
        let nodes = record["nodes"].as_array().map_or_else(|| vec![&record["node"]], |nodes| nodes.iter().collect());
        Ok(Self { inventory, ledger, nodes: nodes.into_iter().map(node).collect(), pods })
    }

    /// Our answers: each pod is tried on the nodes in order until one has devices for it, which count from then on.
    pub(super) fn attempts(&mut self, steps: u64) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        for (pod, claims) in self.pods.iter().enumerate() {
            for (node, facts) in self.nodes.iter().enumerate() {
                let verdict = allocate(&self.inventory, facts, claims, &self.ledger, &mut Budget::new(steps));
                let placed = match &verdict {
                    Verdict::Allocated { allocations, .. } => {
                        allocations.iter().for_each(|allocation| self.ledger.hold(&self.inventory, allocation));
                        !allocations.is_empty()
                    }
                    Verdict::Refused(_) | Verdict::OutOfBudget(_) => false,
                };
                attempts.push(Attempt { pod, node, verdict });
                if placed {
                    break;
                }
            }
        }
        attempts
    }
}

fn claim_class(builder: &mut InventoryBuilder, claim: &Value) -> Result<ClaimClassId, String> {
    let mut claim = complete(claim, "ResourceClaim");
    forget_counts_of_all(&mut claim);
    let claim = ResourceClaim::from_json(&claim).map_err(|error| error.to_string())?;
    let unsupported = claim.unsupported.first().map(|unsupported| Arc::clone(&unsupported.construct));
    let name = claim.meta.name.to_string();
    Ok(builder.claim_class(&name, &Arc::new(claim.spec), unsupported))
}

fn list<'r>(record: &'r Value, field: &str) -> impl Iterator<Item = &'r Value> {
    record[field].as_array().into_iter().flatten()
}

/// The objects of a list.
fn objects(record: &Value, field: &str) -> Vec<Value> {
    let kind = match field {
        "classes" => "DeviceClass",
        "slices" => "ResourceSlice",
        _ => "DeviceTaintRule",
    };
    list(record, field).map(|object| complete(object, kind)).collect()
}

/// Upstream's records leave out kind and version.
fn complete(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "resource.k8s.io/v1".into();
    object["kind"] = kind.into();
    object
}

/// Upstream's suite calls the allocator with claims that the API server refuses: with a count for all devices.
fn forget_counts_of_all(claim: &mut Value) {
    let requests = claim.pointer_mut("/spec/devices/requests").and_then(Value::as_array_mut).into_iter().flatten();
    for exact in requests.filter_map(|request| request.get_mut("exactly")?.as_object_mut()) {
        if exact.get("allocationMode").is_some_and(|mode| mode == "All") {
            exact.remove("count");
        }
    }
}

fn device_id(device: &Value) -> Result<DeviceId, String> {
    let part = |index: usize| device[index].as_str().ok_or_else(|| format!("{device} is not [driver, pool, device]"));
    Ok(DeviceId { driver: part(0)?.into(), pool: part(1)?.into(), device: part(2)?.into() })
}

fn node(node: &Value) -> NodeFacts {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let text = |value: &Value| Arc::from(value.as_str().unwrap_or_default());
    NodeFacts {
        name: node["metadata"]["name"].as_str().map(Into::into),
        labels: labels.map(|(key, value)| (Arc::from(key.as_str()), text(value))).collect(),
        declared_features: node["status"]["declaredFeatures"].as_array().into_iter().flatten().map(text).collect(),
    }
}
