//! Our answer to a question.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::faults::{Fault, Scope};
use dra_sched::pods::{
    self, Claims, ExtendedMapping, ExtendedResources, IN_MEMORY_CLAIM, NodeResourceFault, Served, WantedClaim,
};
use dra_sched::{Alternative, BinLedger, ClaimUse, ClusterLedger, Copies, InventoryBuilder, NodeDemand, Refusal};
use dra_types::{
    Allocation, Compat, DeviceClass, KubernetesMinor, Node, Pod, RequestKind, ResourceClaim, ResourceClaimSpec,
    ResourceSlice,
};
use model::{Budget, IdSet, NamespacedName};
use serde_json::Value;

use crate::refusal::{Class, Code, Refused};

const STEPS: u64 = 200_000;

/// What a pod gets on a node.
pub(crate) enum Answer {
    Refused { refused: Refused, why: String },
    Given(Given),
}

pub(crate) struct Given {
    /// Of the pod's claims, that for extended resources last.
    pub allocations: Vec<Allocation>,
    pub extended: Option<(Arc<ResourceClaimSpec>, Vec<ExtendedMapping>)>,
    pub demand: NodeDemand,
}

/// The objects of a question.
struct World {
    classes: Vec<Arc<DeviceClass>>,
    slices: Vec<Arc<ResourceSlice>>,
    claims: BTreeMap<NamespacedName, Arc<ResourceClaim>>,
    node: Node,
    pod: Pod,
    running: Vec<Pod>,
    kubernetes: KubernetesMinor,
}

/// Answers a question for its only node, in the order in which the plugins look at things: what the pod refers to, what
/// it asks of the node itself, its devices, what they cost of the node.
///
/// # Errors
/// Why there is no answer: an object cannot be read, or the steps are over.
pub(crate) fn answer(question: &Value, compat: &Compat) -> Result<Answer, String> {
    let world = World::read(question, compat)?;
    let refused = |code, class, why: &dyn std::fmt::Display| Answer::Refused {
        refused: Refused { code, class },
        why: why.to_string(),
    };
    let resources = ExtendedResources::new(world.classes.iter().map(|class| &**class), compat);
    let none = (BTreeMap::new(), BTreeMap::new());
    let objects = Claims { claims: &world.claims, templates: &none.0, groups: &none.1 };
    let wanted = match pods::claims(&world.pod, &objects, compat) {
        Ok(wanted) => wanted,
        Err(fault) => return Ok(refused(Code::Unresolvable, Class::Claims, &fault)),
    };
    let mut builder = InventoryBuilder::new(*compat);
    world.classes.iter().for_each(|class| builder.class(Arc::clone(class)));
    world.slices.iter().for_each(|slice| builder.slice(Arc::clone(slice)));
    let ids: BTreeMap<&NamespacedName, _> =
        world.claims.iter().map(|(name, claim)| (name, builder.claim(Arc::clone(claim)))).collect();
    let mut uses = Vec::new();
    for wanted in &wanted {
        let WantedClaim::Existing { entry, claim, .. } = wanted else {
            return Err("a claim that does not exist yet".to_owned());
        };
        let claim = *ids.get(claim).ok_or_else(|| format!("{claim} is not among the claims"))?;
        let reservation = wanted.reservation(&mut builder);
        uses.push(ClaimUse::Named { claim, containers: world.pod.containers_using(entry), reservation });
    }
    let served = resources.serve(&world.pod, &world.node.allocatable);
    let (mut extended, mut stranded) = (None, None);
    match served {
        Served::Elsewhere | Served::Missing(_) => {}
        // Seen when the pod is to be bound, after all else.
        Served::Stranded(resource) => stranded = Some(resource),
        Served::Claim(claim) => {
            let class = builder.claim_class(IN_MEMORY_CLAIM, &claim.spec, None);
            uses.push(ClaimUse::Extended { class });
            extended = Some(claim);
        }
    }
    let inventory = builder.build();
    let ledger = ClusterLedger::new(&inventory);
    let bin = BinLedger::node(world.node.facts.clone());
    let offer = Copies { claims: &uses, copies: 1 }.try_add(
        &inventory,
        &bin,
        &IdSet::default(),
        &ledger,
        &mut Budget::new(STEPS),
    );
    if !offer.undecided.is_empty() {
        return Err("out of steps".to_owned());
    }
    // The plugin looks for classes before it looks at a node.
    let is_new = |claim: &&ClaimUse| match claim {
        ClaimUse::Named { claim, .. } => inventory.allocation(*claim).is_none(),
        ClaimUse::Fresh { .. } | ClaimUse::Extended { .. } => true,
    };
    let new: Vec<ClaimUse> = uses.iter().filter(is_new).copied().collect();
    let of_new = Copies { claims: &new, copies: 1 }.try_add(
        &inventory,
        &bin,
        &IdSet::default(),
        &ledger,
        &mut Budget::new(STEPS),
    );
    let refusal = of_new.refused.first().map(|refused| &refused.refusal);
    if let Some(Refusal::Fault(fault @ Fault::Claim { .. })) = refusal
        && wanted.iter().any(|wanted| world.lacks_a_class(wanted))
    {
        return Ok(refused(Code::Unresolvable, Class::DeviceClassMissing, fault));
    }
    let short = world.short_of(&NodeDemand::default(), &resources);
    if !short.is_empty() {
        let (code, why) = (world.code_of_shortage(&short), format!("{short:?}"));
        return Ok(refused(code, Class::Node(short.into_keys().collect()), &why));
    }
    let Some(alternative) = offer.alternatives.first() else {
        let first = offer.refused.first().ok_or("neither an offer nor a refusal")?;
        let refusal = &first.refusal;
        let (code, class) = match refusal {
            Refusal::Infeasible(_) => (Code::Unresolvable, Class::Devices),
            Refusal::Elsewhere { .. } => {
                // What the other claims cost of the node comes before it; from 1.37 on that of all.
                let given = of_new.alternatives.first().filter(|_| world.kubernetes < KubernetesMinor::V1_37);
                if let Some((code, class, why)) =
                    given.and_then(|given| world.cannot_pay(given, (&new, &uses), &resources))
                {
                    return Ok(refused(code, class, &why));
                }
                if world.kubernetes >= KubernetesMinor::V1_37 {
                    let here = answer(&allocated_everywhere(question), compat)?;
                    if let Answer::Refused { refused: Refused { class, .. }, .. } = &here
                        && matches!(class, Class::NodeWithDevices(_) | Class::Whole | Class::NotRecorded)
                    {
                        return Ok(here);
                    }
                }
                (Code::Unresolvable, Class::Elsewhere)
            }
            Refusal::Shared { .. } => (Code::Unresolvable, Class::Shared),
            // A question has fewer pods.
            Refusal::TooManyConsumers { .. } => return Err(refusal.to_string()),
            Refusal::NotUsed { .. } => (Code::Unresolvable, Class::NotUsed),
            Refusal::NotRecorded { .. } => (Code::Error, Class::NotRecorded),
            Refusal::Fault(fault) if fault.scope() == Scope::Node => (Code::Unresolvable, Class::Pools),
            Refusal::Fault(_) => (Code::Error, Class::Fault),
        };
        return Ok(refused(code, class, refusal));
    };
    let demand = alternative.demand(None);
    if let Some((code, class, why)) = world.cannot_pay(alternative, (&uses, &uses), &resources) {
        return Ok(refused(code, class, &why));
    }
    if let Some(resource) = stranded {
        return Ok(refused(Code::Error, Class::Stranded, &resource));
    }
    let mut new = alternative.allocations(None, 0).iter();
    let mut allocations = Vec::new();
    for (index, ask) in uses.iter().enumerate() {
        let before = match (ask, wanted.get(index)) {
            (ClaimUse::Named { .. }, Some(WantedClaim::Existing { claim, .. })) => {
                world.claims.get(claim).and_then(|claim| claim.allocation.clone())
            }
            _ => None,
        };
        let allocation = before.or_else(|| new.next().cloned());
        allocations.push(allocation.ok_or_else(|| format!("claim {index} has no allocation"))?);
    }
    Ok(Answer::Given(Given { allocations, extended: extended.map(|claim| (claim.spec, claim.mappings)), demand }))
}

/// The question, but that allocated claims can be used on all nodes, and by all pods: upstream does not look at who
/// uses a claim that is allocated elsewhere. Of one that is not, it does so before it looks at what claims cost.
fn allocated_everywhere(question: &Value) -> Value {
    let mut question = question.clone();
    for claim in question["claims"].as_array_mut().into_iter().flatten() {
        if let Some(allocation) = claim["status"]["allocation"].as_object_mut() {
            allocation.remove("nodeSelector");
        }
        if let Some(status) = claim["status"].as_object_mut() {
            status.remove("reservedFor");
        }
    }
    question
}

impl World {
    fn read(question: &Value, compat: &Compat) -> Result<Self, String> {
        let claims = objects(question, "claims", "ResourceClaim", ResourceClaim::from_json)?;
        let pods = |field: &str| -> Result<Vec<Pod>, String> {
            let pods = question[field].as_array().into_iter().flatten();
            pods.map(|pod| Pod::from_json(pod).map_err(|error| format!("{field}: {error}"))).collect()
        };
        Ok(Self {
            classes: objects(question, "classes", "DeviceClass", DeviceClass::from_json)?,
            slices: objects(question, "slices", "ResourceSlice", ResourceSlice::from_json)?,
            claims: claims.into_iter().map(|claim| (claim.meta.name.clone(), claim)).collect(),
            node: Node::from_json(&question["nodes"][0]).map_err(|error| format!("node: {error}"))?,
            pod: Pod::from_json(&question["pod"]).map_err(|error| format!("pod: {error}"))?,
            running: pods("running")?,
            kubernetes: compat.kubernetes,
        })
    }

    /// Whether a claim that is still to be allocated names a class that is not there.
    fn lacks_a_class(&self, wanted: &WantedClaim) -> bool {
        let WantedClaim::Existing { claim, .. } = wanted else { return false };
        let Some(claim) = self.claims.get(claim).filter(|claim| claim.allocation.is_none()) else { return false };
        let is_there = |name: &str| self.classes.iter().any(|class| &*class.meta.name.name == name);
        claim.spec.requests.iter().any(|request| match &request.kind {
            RequestKind::Exactly(exact) => !is_there(exact.device_class_name.as_str()),
            _ => false,
        })
    }

    /// What the node has left.
    fn free(&self) -> NodeDemand {
        let mut free = NodeDemand::default();
        for (resource, amount) in &self.node.allocatable {
            free.0.insert(Arc::clone(resource), amount.to_nano());
        }
        for pod in &self.running {
            for (resource, amount) in pods::total_demand(pod, &NodeDemand(pod.device_costs.clone())).0 {
                *free.0.entry(resource).or_default() -= amount;
            }
        }
        free
    }

    /// What of the node itself the pod lacks, with what it takes of it. Extended resources that no device plugin of the
    /// node has are left to classes that serve them.
    fn short_of(&self, devices: &NodeDemand, resources: &ExtendedResources) -> BTreeMap<String, i128> {
        let free = self.free();
        let offers = |name: &str| self.node.allocatable.get(name).is_some_and(|amount| amount.to_nano() > 0);
        pods::total_demand(&self.pod, devices)
            .0
            .into_iter()
            .filter(|(name, _)| offers(name) || resources.class(name).is_none())
            .filter(|(name, needed)| *needed > 0 && *needed > free.0.get(name).copied().unwrap_or(0))
            .map(|(name, needed)| (name.to_string(), needed))
            .collect()
    }

    /// Why the pod cannot have what the devices cost that some of its claims are given. The claims are those that were
    /// asked for, and all of the pod's.
    fn cannot_pay(
        &self,
        given: &Alternative,
        (asked, all): (&[ClaimUse], &[ClaimUse]),
        resources: &ExtendedResources,
    ) -> Option<(Code, Class, String)> {
        let demand = &given.demand(None);
        let entry_of = |claim: &ClaimUse| {
            let place = all.iter().position(|of_pod| of_pod == claim)?;
            self.pod.claims.get(place).map(|entry| Arc::clone(&entry.name))
        };
        let entries: Vec<Arc<str>> = asked.iter().filter_map(entry_of).collect();
        let limits = match self.kubernetes < KubernetesMinor::V1_37 {
            true => Ok(()),
            false => pods::check_pod_limits(&self.pod, demand, &given.shares(None), &entries),
        };
        let fault = limits.and_then(|()| pods::check_node_resources(&self.pod, demand, &self.free())).err()?;
        let (code, class) = match &fault {
            NodeResourceFault::PodRequest { .. } | NodeResourceFault::PodLimit { .. } => {
                (Code::Unresolvable, Class::Whole)
            }
            NodeResourceFault::Insufficient { .. } => {
                let short = self.short_of(demand, resources);
                (self.code_of_shortage(&short), Class::NodeWithDevices(short.into_keys().collect()))
            }
        };
        Some((code, class, fault.to_string()))
    }

    /// Whether it would help that pods leave the node.
    fn code_of_shortage(&self, short: &BTreeMap<String, i128>) -> Code {
        let has = |name: &str| self.node.allocatable.get(name).map_or(0, |amount| amount.to_nano());
        let is_hopeless = short.iter().any(|(name, needed)| *needed > has(name));
        if is_hopeless { Code::Unresolvable } else { Code::Unschedulable }
    }
}

fn objects<T, E: std::fmt::Display>(
    question: &Value,
    field: &str,
    kind: &str,
    read: impl Fn(&Value) -> Result<T, E>,
) -> Result<Vec<Arc<T>>, String> {
    let complete = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = "resource.k8s.io/v1".into();
        object["kind"] = kind.into();
        read(&object).map(Arc::new).map_err(|error| format!("{kind} {}: {error}", object["metadata"]["name"]))
    };
    question[field].as_array().into_iter().flatten().map(complete).collect()
}

/// The requests of an in-memory claim, as name, class and count.
pub(crate) fn requests(spec: &ResourceClaimSpec) -> Vec<(String, String, u64)> {
    let request = |request: &dra_types::DeviceRequest| match &request.kind {
        RequestKind::Exactly(exact) => {
            let count = match exact.allocation_mode {
                dra_types::AllocationMode::ExactCount(count) => u64::try_from(count).unwrap_or(0),
                _ => 0,
            };
            (request.name.to_string(), exact.device_class_name.to_string(), count)
        }
        _ => (request.name.to_string(), String::new(), 0),
    };
    spec.requests.iter().map(request).collect()
}
