//! A machine of a fleet, as Node and NodeClaim.

use cloudprovider::{InstanceType, Offering, ResourceList};
use serde_json::{Map, Value, json};

/// When everything was created.
const BEGUN: &str = "2023-11-14T22:13:20Z";

/// The label by which a Node tells its name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Both objects, as the API has them.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The Node.
    pub node: Value,
    /// The NodeClaim.
    pub node_claim: Value,
}

/// An initialized machine that consolidation may take.
pub fn machine(name: &str, node_pool: &str, of: &InstanceType, offering: &Offering) -> Machine {
    let mut labels = Map::new();
    for (key, values) in &of.requirements {
        if let (Some(value), 1) = (values.first(), values.len()) {
            labels.insert(key.clone(), value.as_str().into());
        }
    }
    labels.extend(offering.all_labels().map(|(key, value)| (key.to_owned(), value.into())));
    for (key, value) in [
        (HOSTNAME, name),
        (api::labels::NODEPOOL, node_pool),
        (api::labels::REGISTERED, "true"),
        (api::labels::INITIALIZED, "true"),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    let metadata = json!({"name": name, "uid": name, "labels": labels, "creationTimestamp": BEGUN});
    let provider_id = format!("bench:///{name}");
    let (capacity, allocatable) = (amounts(&of.capacity), amounts(&of.allocatable()));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata,
        "spec": {"providerID": provider_id},
        "status": {"capacity": capacity, "allocatable": allocatable, "conditions": ready},
    });
    let conditions = ["Launched", "Registered", "Initialized", "Consolidatable"].map(|condition| {
        json!({"type": condition, "status": "True", "reason": condition, "message": "", "lastTransitionTime": BEGUN})
    });
    let node_claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata,
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
        "status": {
            "nodeName": name, "providerID": provider_id, "capacity": capacity, "allocatable": allocatable,
            "conditions": conditions,
        },
    });
    Machine { node, node_claim }
}

fn amounts(list: &ResourceList) -> Value {
    list.iter()
        .map(|(resource, amount)| (resource.clone(), Value::from(amount.to_string())))
        .collect::<Map<_, _>>()
        .into()
}
