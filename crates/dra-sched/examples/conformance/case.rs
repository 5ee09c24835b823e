//! A recorded case, read into an inventory and a ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::types::{DeviceClass, DeviceId, QualifiedName, ResourceClaim, ResourceSlice};
use dra_sched::{ClaimClassId, ClusterLedger, Compat, Gate, Gates, Inventory, InventoryBuilder, NodeFacts, Verdict};
use model::{Budget, Quantity};
use serde_json::Value;

/// A question.
pub struct Case {
    inventory: Inventory,
    ledger: ClusterLedger,
    node: NodeFacts,
    claims: Vec<ClaimClassId>,
}

/// The gates of a case; absent or null is none.
pub fn gates(record: &Value) -> Result<Gates, String> {
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
    pub fn read(record: &Value, compat: Compat) -> Result<Self, String> {
        let mut builder = InventoryBuilder::new(compat);
        for class in objects(record, "classes") {
            builder.class(Arc::new(DeviceClass::from_json(&class).map_err(|error| error.to_string())?));
        }
        for slice in objects(record, "slices") {
            builder.slice(Arc::new(ResourceSlice::from_json(&slice).map_err(|error| error.to_string())?));
        }
        let mut claims = Vec::new();
        for claim in objects(record, "claims") {
            let claim = ResourceClaim::from_json(&claim).map_err(|error| error.to_string())?;
            let unsupported = claim.unsupported.first().map(|unsupported| Arc::clone(&unsupported.construct));
            let name = claim.meta.name.to_string();
            claims.push(builder.claim_class(&name, &Arc::new(claim.spec), unsupported));
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
        Ok(Self { inventory, ledger, node: node(&record["node"]), claims })
    }

    /// Our answer.
    pub fn ask(&self, steps: u64) -> Verdict {
        self.inventory.allocate(&self.node, &self.claims, &self.ledger, &mut Budget::new(steps))
    }
}

fn list<'r>(record: &'r Value, field: &str) -> impl Iterator<Item = &'r Value> {
    record[field].as_array().into_iter().flatten()
}

/// The objects of a list; upstream's records leave out kind and version.
fn objects(record: &Value, field: &str) -> Vec<Value> {
    let kind = match field {
        "classes" => "DeviceClass",
        "slices" => "ResourceSlice",
        _ => "ResourceClaim",
    };
    let complete = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = "resource.k8s.io/v1".into();
        object["kind"] = kind.into();
        if field == "claims" {
            forget_counts_of_all(&mut object);
        }
        object
    };
    list(record, field).map(complete).collect()
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
