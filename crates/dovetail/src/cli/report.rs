//! A plan in words and numbers: what the JSON output holds, and what the tables show.
//!
//! The JSON form is an interface: fields are added, never renamed, and `schemaVersion` counts what is not compatible.

use std::collections::BTreeMap;

use cluster::offline::Offline;
use model::{Interner, NamespacedName, PriceNanoUsdPerHour, Requirements, ResourceVec};
use scheduling::catalogue::{Catalogue, InstanceType};
use scheduling::plan::reason::ToldNote;
use scheduling::plan::{ExistingPlacement, Machine, MachineId, Plan};
use scheduling::snapshot::{NodeId, NodePool, PendingPod, PodId, Snapshot};
use serde::Serialize;

use super::input::Input;

const SCHEMA_VERSION: u32 = 1;

/// What `-o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    schema_version: u32,
    /// Machines to launch, by NodePool and index.
    pub(super) node_claims: Vec<NodeClaim>,
    /// Nodes and NodeClaims that get pods, by name.
    pub(super) existing_nodes: Vec<ExistingNode>,
    /// Room that CapacityBuffers keep free, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) capacity_buffers: Vec<CapacityBuffer>,
    /// Pods that have to be bound after all others: those of each stage after the stages before; see [`Plan::later`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) bound_later: Vec<Vec<String>>,
    /// Pods without a place, by name.
    pub(super) unschedulable: Vec<Unschedulable>,
    /// Why pods with a place are where they are, by name; only if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) placements: Vec<Placement>,
    /// Objects of the input that have no part in the plan, by kind.
    pub(super) not_used: BTreeMap<String, usize>,
    pub(super) cost: Cost,
    #[serde(skip)]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeClaim {
    pub(super) name: String,
    pub(super) node_pool: String,
    /// Cheapest first.
    pub(super) instance_types: Vec<String>,
    pub(super) launch: Launch,
    requirements: Vec<Requirement>,
    pub(super) requests: BTreeMap<String, String>,
    pub(super) pods: Vec<String>,
    /// How many devices of which driver the pods get.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) devices: BTreeMap<String, u32>,
    /// What the pods' devices cost of the machine itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) device_costs: Vec<PodDeviceCosts>,
    /// The next best instance type and its price, for people.
    #[serde(skip)]
    pub(super) next_best: Option<(String, PriceNanoUsdPerHour)>,
    /// What pods can use of the machine that is expected.
    #[serde(skip)]
    pub(super) allocatable: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Launch {
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
    pub(super) price_nano_usd_per_hour: PriceNanoUsdPerHour,
}

/// As in a NodeClaim's `spec.requirements`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Requirement {
    key: String,
    operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_values: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExistingNode {
    pub(super) name: String,
    pub(super) pods: Vec<String>,
    /// What the pods' devices cost of the node itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) device_costs: Vec<PodDeviceCosts>,
    /// What its pods take once these are there.
    #[serde(skip)]
    pub(super) requests: BTreeMap<String, String>,
    /// What pods can use of it.
    #[serde(skip)]
    pub(super) allocatable: BTreeMap<String, String>,
}

/// A pod whose devices cost something of its machine.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodDeviceCosts {
    pub(super) pod: String,
    /// What it takes with them, of each resource of which they cost some.
    pub(super) takes: BTreeMap<String, String>,
    pub(super) costs: Vec<DeviceCost>,
    /// In words, by resource.
    #[serde(skip)]
    pub(super) told: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceCost {
    /// The pod's own name for the claim; absent for the claim that serves its extended resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    resource: String,
    devices: usize,
    amount: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Unschedulable {
    pub(super) pod: String,
    pub(super) reasons: Vec<Reason>,
}

impl Unschedulable {
    /// Whether it wants no machine of a NodePool.
    pub(super) fn is_opted_out(&self) -> bool {
        self.reasons.iter().any(|reason| reason.code == scheduling::Reason::OptedOut.code())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Reason {
    pub(super) code: String,
    pub(super) message: String,
    /// `kind/name`; null where it is about the pod itself.
    pub(super) object: Option<String>,
}

/// Where the room of a CapacityBuffer is, in virtual pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CapacityBuffer {
    pub(super) name: String,
    pub(super) replicas: u32,
    /// By node or NodeClaim.
    pub(super) on_existing_nodes: BTreeMap<String, u32>,
    /// By planned machine.
    pub(super) on_node_claims: BTreeMap<String, u32>,
    pub(super) missing: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reasons: Vec<Reason>,
}

/// Why a pod is where it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Placement {
    pub(super) pod: String,
    /// A node, NodeClaim or planned machine.
    pub(super) place: String,
    pub(super) decided_by: DecidedBy,
    /// How the other places fell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) passed_over: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct DecidedBy {
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cost {
    pub(super) price_nano_usd_per_hour: PriceNanoUsdPerHour,
    pub(super) node_costs_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// What it costs that claims are kept apart which the scheduler could serve in an order that leaves one without
    /// devices; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept_apart_nano_usd_per_hour: Option<PriceNanoUsdPerHour>,
    /// No plan for the pods with a place costs less, node costs included.
    pub(super) lower_bound_nano_usd_per_hour: PriceNanoUsdPerHour,
}

impl Report {
    pub(super) fn new(input: &Input, plan: &Plan) -> Self {
        let snapshot = &input.snapshot;
        let existing = plan.existing.iter().filter_map(|placement| existing_node(snapshot, placement));
        Self {
            schema_version: SCHEMA_VERSION,
            node_claims: plan.machines.iter().filter_map(|machine| node_claim(snapshot, machine)).collect(),
            existing_nodes: existing.collect(),
            capacity_buffers: capacity_buffers(snapshot, plan),
            bound_later: plan.later.iter().map(|pods| pod_names(snapshot, pods)).collect(),
            unschedulable: unschedulable(snapshot, plan, &input.offline),
            placements: Vec::new(),
            not_used: input.offline.not_used.clone(),
            cost: Cost {
                price_nano_usd_per_hour: plan.price,
                node_costs_nano_usd_per_hour: plan.node_costs,
                kept_apart_nano_usd_per_hour: plan.kept_apart,
                lower_bound_nano_usd_per_hour: plan.lower_bound,
            },
            notes: ToldNote::of(&plan.notes).iter().map(ToldNote::message).collect(),
        }
    }

    /// Works out why each pod with a place is there. Pods of equal shape and labels in one place share their answer.
    pub(super) fn add_placements(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let on_machines = plan.machines.iter().filter_map(|machine| {
            let pool = snapshot.node_pools.try_get(machine.node_pool)?;
            Some((claim_name(pool, machine), &machine.pods))
        });
        let on_nodes = plan.existing.iter().filter_map(|placement| {
            Some((snapshot.nodes.try_get(placement.node)?.display_name().to_owned(), &placement.pods))
        });
        let mut placements: Vec<(&NamespacedName, Placement)> = Vec::new();
        for (place, pods) in on_machines.chain(on_nodes) {
            let mut known: Vec<(&PendingPod, DecidedBy, Vec<String>)> = Vec::new();
            for (id, pending) in pods.iter().filter_map(|&id| Some((id, snapshot.pods.try_get(id)?))) {
                let is_alike = |(other, ..): &&(&PendingPod, DecidedBy, Vec<String>)| are_alike(other, pending);
                let answer =
                    known.iter().find(is_alike).map(|(_, by, passed)| (by.clone(), passed.clone())).or_else(|| {
                        let why = scheduling::provisioning::why_placed(snapshot, plan, id)?;
                        let mut messages = why.messages(&snapshot.interner).into_iter();
                        let message = messages.next().unwrap_or_default();
                        let by = DecidedBy { code: why.decided_by.code().to_owned(), message };
                        let passed: Vec<String> = messages.collect();
                        known.push((pending, by.clone(), passed.clone()));
                        Some((by, passed))
                    });
                let Some((decided_by, passed_over)) = answer else { continue };
                let pod = pending.pod.name.to_string();
                placements.push((&pending.pod.name, Placement { pod, place: place.clone(), decided_by, passed_over }));
            }
        }
        placements.sort_by_key(|(name, _)| *name);
        self.placements = placements.into_iter().map(|(_, placement)| placement).collect();
    }

    pub(super) fn to_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(super) fn to_yaml(&self) -> anyhow::Result<String> {
        Ok(serde_saphyr::to_string(self)?)
    }

    pub(super) fn has_unschedulable(&self) -> bool {
        !self.unschedulable.is_empty()
    }

    /// What a person should know and what changes nothing.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Whether two pods of one place are there for the same reasons.
fn are_alike(one: &PendingPod, other: &PendingPod) -> bool {
    let of = |pending: &PendingPod| {
        let pod = &pending.pod;
        (pod.name.namespace.clone(), pod.labels.clone(), pod.shape.clone(), pending.planned_on.clone())
    };
    of(one) == of(other)
}

fn pod_names(snapshot: &Snapshot, pods: &[PodId]) -> Vec<String> {
    pods.iter().filter_map(|&pod| snapshot.pods.try_get(pod)).map(|pending| pending.pod.name.to_string()).collect()
}

/// Ids of a plan always lead somewhere; a machine whose ids did not would be left out rather than misnamed.
pub(super) fn node_claim(snapshot: &Snapshot, machine: &Machine) -> Option<NodeClaim> {
    let names = &*snapshot.interner;
    let pool = snapshot.node_pools.try_get(machine.node_pool)?;
    let catalogue = &*pool.catalogue;
    let type_name = |id| catalogue.types.try_get(id).map(|found: &InstanceType| found.name.to_string());
    let launch = &machine.launch;
    let offering = catalogue.offerings.try_get(launch.offering)?;
    Some(NodeClaim {
        name: claim_name(pool, machine),
        node_pool: pool.name.to_string(),
        instance_types: machine.instance_types.iter().filter_map(|&id| type_name(id)).collect(),
        launch: Launch {
            instance_type: type_name(launch.instance_type)?,
            zone: names.value_name(launch.zone).to_owned(),
            capacity_type: launch.capacity_type.to_string(),
            price_nano_usd_per_hour: launch.price,
        },
        requirements: requirements(&machine.requirements, pool, names),
        requests: amounts(&machine.requests, names),
        pods: pod_names(snapshot, &machine.pods),
        devices: machine.devices.iter().map(|(driver, count)| (driver.to_string(), *count)).collect(),
        device_costs: device_costs(snapshot, &machine.device_costs),
        next_best: next_best(machine, catalogue),
        allocatable: amounts(&offering.allocatable, names),
    })
}

fn existing_node(snapshot: &Snapshot, placement: &ExistingPlacement) -> Option<ExistingNode> {
    let names = &*snapshot.interner;
    let node = snapshot.nodes.try_get(placement.node)?;
    let mut requests = node.pods.requests().clone();
    for pending in placement.pods.iter().filter_map(|&pod| snapshot.pods.try_get(pod)) {
        requests.saturating_add_assign(&pending.pod.shape.requests);
    }
    placement.device_costs.iter().for_each(|of| of.add_to(&mut requests));
    Some(ExistingNode {
        name: node.display_name().to_owned(),
        pods: pod_names(snapshot, &placement.pods),
        device_costs: device_costs(snapshot, &placement.device_costs),
        requests: amounts(&requests, names),
        allocatable: amounts(&node.allocatable, names),
    })
}

fn device_costs(snapshot: &Snapshot, costs: &[scheduling::plan::device_cost::PodDeviceCosts]) -> Vec<PodDeviceCosts> {
    let names = &*snapshot.interner;
    let quantity = |resource, amount| {
        let mut amounts = ResourceVec::default();
        amounts.set(resource, amount);
        amounts.quantity(resource).to_string()
    };
    let name = |resource| names.resource_name(resource).to_owned();
    let of_pod = costs.iter().filter_map(|of| {
        let pod = &snapshot.pods.try_get(of.pod)?.pod;
        let wanted = of.wanted(&pod.shape.requests, names);
        Some(PodDeviceCosts {
            pod: pod.name.to_string(),
            takes: wanted.iter().map(|it| (name(it.resource), quantity(it.resource, it.amount))).collect(),
            costs: of
                .costs
                .iter()
                .map(|cost| DeviceCost {
                    claim: cost.claim.as_deref().map(str::to_owned),
                    resource: name(cost.resource),
                    devices: cost.devices,
                    amount: quantity(cost.resource, cost.amount),
                })
                .collect(),
            told: wanted.iter().map(|wanted| wanted.message(names)).collect(),
        })
    });
    of_pod.collect()
}

/// A number of things in words.
pub(super) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `<pool>-<index>`.
pub(super) fn claim_name(pool: &NodePool, machine: &Machine) -> String {
    format!("{}-{}", pool.name, machine.index_in_pool)
}

pub(super) fn next_best(machine: &Machine, catalogue: &Catalogue) -> Option<(String, PriceNanoUsdPerHour)> {
    let (id, price) = machine.choice.next_best?;
    Some((catalogue.types.try_get(id)?.name.to_string(), price))
}

fn requirements(requirements: &Requirements, pool: &NodePool, names: &Interner) -> Vec<Requirement> {
    let mut printed = Vec::new();
    let mut requirements = requirements.clone();
    decode::aliases::normalize(&mut requirements, names);
    for requirement in requirements.iter_by_name(names).filter(|it| !pool.planning_only.contains(&it.key)) {
        for expression in requirement.values.to_expressions() {
            printed.push(Requirement {
                key: names.key_name(requirement.key).to_owned(),
                operator: expression.operator().to_string(),
                values: expression.values(names),
                min_values: requirement.min_values,
            });
        }
    }
    printed
}

fn amounts(amounts: &ResourceVec, names: &Interner) -> BTreeMap<String, String> {
    amounts
        .iter()
        .map(|(resource, _)| (names.resource_name(resource).to_owned(), amounts.quantity(resource).to_string()))
        .collect()
}

fn unschedulable(snapshot: &Snapshot, plan: &Plan, offline: &Offline) -> Vec<Unschedulable> {
    let refused = plan.refusals.iter().filter_map(|refusal| {
        let pod = snapshot.pods.try_get(refusal.pod)?.pod.name.clone();
        Some((pod, refusal.reasons.iter().map(|reason| planned_reason(reason, &snapshot.interner)).collect()))
    });
    let not_planned = offline.not_planned.iter().map(|(pod, why)| {
        let object = match why {
            cluster::offline::NotPlanned::Unreadable(error) => {
                Some(format!("{}/{}", error.object.kind.to_lowercase(), error.object.name.name))
            }
            cluster::offline::NotPlanned::OtherScheduler(_)
            | cluster::offline::NotPlanned::Gated
            | cluster::offline::NotPlanned::ResourceClaimsIgnored => None,
        };
        (pod.clone(), vec![Reason { code: why.code().to_owned(), message: why.to_string(), object }])
    });
    let mut all: Vec<(_, Vec<Reason>)> = refused.chain(not_planned).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.into_iter().map(|(pod, reasons)| Unschedulable { pod: pod.to_string(), reasons }).collect()
}

fn capacity_buffers(snapshot: &Snapshot, plan: &Plan) -> Vec<CapacityBuffer> {
    let machine = |id: MachineId| {
        let machine = plan.machines.try_get(id)?;
        Some(claim_name(snapshot.node_pools.try_get(machine.node_pool)?, machine))
    };
    let node = |id: NodeId| Some(snapshot.nodes.try_get(id)?.display_name().to_owned());
    let rooms = snapshot.buffers.iter().zip(&plan.buffers);
    rooms
        .map(|(buffer, room)| CapacityBuffer {
            name: buffer.name.to_string(),
            replicas: buffer.replicas,
            on_existing_nodes: room.on_nodes.iter().filter_map(|&(id, pods)| Some((node(id)?, pods))).collect(),
            on_node_claims: room.on_machines.iter().filter_map(|&(id, pods)| Some((machine(id)?, pods))).collect(),
            missing: room.missing,
            reasons: room.reasons.iter().map(|reason| planned_reason(reason, &snapshot.interner)).collect(),
        })
        .collect()
}

fn planned_reason(reason: &scheduling::Reason, names: &Interner) -> Reason {
    Reason { code: reason.code().to_owned(), message: reason.message(names), object: reason.object() }
}
