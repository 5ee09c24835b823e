//! Our answer to a question.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::pods::{self, Claims, ExtendedMapping, ExtendedResources, IN_MEMORY_CLAIM, Served, WantedClaim};
use dra_sched::types::{
    Allocation, DeviceClass, Node, Pod, RequestKind, ResourceClaim, ResourceClaimSpec, ResourceSlice,
};
use dra_sched::{BinLedger, ClaimUse, ClusterLedger, Compat, InventoryBuilder, NodeDemand, Refusal};
use model::{Budget, IdSet, NamespacedName};
use serde_json::Value;

const STEPS: u64 = 200_000;

/// What a pod gets on a node.
pub enum Answer {
    Refused {
        kind: Refused,
        why: String,
    },
    Given(Given),
    /// Out of steps, or no question.
    None,
}

/// What a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// An extended resource that nobody offers.
    Missing,
    /// An extended resource of a device plugin beside claims.
    Stranded,
    /// No devices.
    Devices,
    /// A claim that another pod has for itself.
    Shared,
    /// Resources of the node.
    Node,
    /// The pod as a whole asks for less than its parts.
    Whole,
}

pub struct Given {
    /// Of the pod's claims, that for extended resources last.
    pub allocations: Vec<Allocation>,
    pub extended: Option<(Arc<ResourceClaimSpec>, Vec<ExtendedMapping>)>,
    pub demand: NodeDemand,
}

/// Answers a question for its only node.
pub fn answer(question: &Value, compat: &Compat) -> Answer {
    read(question, compat).unwrap_or(Answer::None)
}

fn objects<T>(question: &Value, field: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    let kind = match field {
        "classes" => "DeviceClass",
        "slices" => "ResourceSlice",
        _ => "ResourceClaim",
    };
    let complete = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = "resource.k8s.io/v1".into();
        object["kind"] = kind.into();
        read(&object)
    };
    question[field].as_array()?.iter().map(complete).collect()
}

fn read(question: &Value, compat: &Compat) -> Option<Answer> {
    let classes = objects(question, "classes", |object| DeviceClass::from_json(object).ok().map(Arc::new))?;
    let slices = objects(question, "slices", |object| ResourceSlice::from_json(object).ok().map(Arc::new))?;
    let claims = objects(question, "claims", |object| ResourceClaim::from_json(object).ok().map(Arc::new))?;
    let claims: BTreeMap<NamespacedName, Arc<ResourceClaim>> =
        claims.into_iter().map(|claim| (claim.meta.name.clone(), claim)).collect();
    let node = Node::from_json(question["nodes"].get(0)?).ok()?;
    let pod = Pod::from_json(&question["pod"]).ok()?;
    let running: Vec<Pod> =
        question["running"].as_array()?.iter().map(|pod| Pod::from_json(pod).ok()).collect::<Option<_>>()?;

    let mut builder = InventoryBuilder::new(*compat);
    classes.iter().for_each(|class| builder.class(Arc::clone(class)));
    slices.iter().for_each(|slice| builder.slice(Arc::clone(slice)));
    let ids: BTreeMap<NamespacedName, _> =
        claims.iter().map(|(name, claim)| (name.clone(), builder.claim(Arc::clone(claim)))).collect();
    let resources = ExtendedResources::new(classes.iter().map(|class| &**class), compat);
    let extended = match resources.serve(&pod, &node.allocatable) {
        Served::Elsewhere => None,
        Served::Missing(resource) => {
            return Some(Answer::Refused { kind: Refused::Missing, why: resource.to_string() });
        }
        Served::Stranded(resource) => {
            return Some(Answer::Refused { kind: Refused::Stranded, why: resource.to_string() });
        }
        Served::Claim(claim) => Some(claim),
    };
    let none = (BTreeMap::new(), BTreeMap::new());
    let wanted = pods::claims(&pod, &Claims { claims: &claims, templates: &none.0, groups: &none.1 }, compat).ok()?;
    let mut uses = Vec::new();
    for wanted in &wanted {
        let WantedClaim::Existing { entry, claim, reserved } = wanted else { return None };
        let containers = pod.containers_using(entry);
        uses.push(ClaimUse::Named { claim: *ids.get(claim)?, containers, reserved: *reserved });
    }
    if let Some(claim) = &extended {
        let class = builder.claim_class(IN_MEMORY_CLAIM, &claim.spec, None);
        uses.push(ClaimUse::Fresh { class, containers: 0 });
    }
    let inventory = builder.build();
    let ledger = ClusterLedger::new(&inventory);
    let bin = BinLedger::node(node.facts.clone());
    let offer = inventory.try_add(&bin, &uses, 1, &IdSet::default(), &ledger, &mut Budget::new(STEPS));
    let Some(alternative) = offer.alternatives.first() else {
        let refusal = &offer.refused.first()?.refusal;
        let kind = if matches!(refusal, Refusal::Shared { .. }) { Refused::Shared } else { Refused::Devices };
        return Some(Answer::Refused { kind, why: refusal.to_string() });
    };
    let demand = alternative.demand(None);
    if let Err(fault) = pods::check_node_resources(&pod, &demand, &free(&node, &running)) {
        let kind = match &fault {
            pods::NodeResourceFault::Insufficient { .. } => Refused::Node,
            _ => Refused::Whole,
        };
        return Some(Answer::Refused { kind, why: fault.to_string() });
    }
    let mut new = alternative.allocations(None, 0).iter();
    let mut allocations = Vec::new();
    for (index, ask) in uses.iter().enumerate() {
        let before = match ask {
            ClaimUse::Named { .. } => {
                let WantedClaim::Existing { claim, .. } = wanted.get(index)? else { return None };
                claims.get(claim)?.allocation.clone()
            }
            ClaimUse::Fresh { .. } => None,
        };
        allocations.push(match before {
            Some(before) => before,
            None => new.next()?.clone(),
        });
    }
    Some(Answer::Given(Given { allocations, extended: extended.map(|claim| (claim.spec, claim.mappings)), demand }))
}

fn free(node: &Node, running: &[Pod]) -> NodeDemand {
    let mut free = NodeDemand::default();
    for (resource, amount) in &node.allocatable {
        free.0.insert(Arc::clone(resource), amount.to_nano());
    }
    for pod in running {
        for (resource, amount) in pods::total_demand(pod, &NodeDemand(pod.device_costs.clone())).0 {
            *free.0.entry(resource).or_default() -= amount;
        }
    }
    free
}

/// The requests of an in-memory claim, as name, class and count.
pub fn requests(spec: &ResourceClaimSpec) -> Vec<(String, String, u64)> {
    let request = |request: &dra_sched::types::DeviceRequest| match &request.kind {
        RequestKind::Exactly(exact) => {
            let count = match exact.allocation_mode {
                dra_sched::types::AllocationMode::ExactCount(count) => u64::try_from(count).unwrap_or(0),
                _ => 0,
            };
            (request.name.to_string(), exact.device_class_name.to_string(), count)
        }
        _ => (request.name.to_string(), String::new(), 0),
    };
    spec.requests.iter().map(request).collect()
}
