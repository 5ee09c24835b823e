//! What disruption knows of our machines: NodeClaims and Nodes, their pods with PodDisruptionBudgets, and NodePools,
//! at the snapshot's moment.

mod budgets;
pub(crate) mod pools;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::conditions::node_claim as conditions;
use api::{NodeClaim, NodePool, labels, taints};
use decode::{ObjectError, ObjectRef, Problem, Reason};
use model::pod::DoNotDisrupt;
use model::{IdVec, InstanceTypeName, Interner, NamespacedName, NodeName, NodePoolName, Pod, Timestamp};
use scheduling::catalogue::{Catalogue, OfferingId};
use scheduling::snapshot::eviction::{Budgets, EvictionCost};
use scheduling::snapshot::fleet::{ClaimFacts, Drift, Fleet, FleetNode, FleetPod, Machine, Moves, UnderWay};
use scheduling::snapshot::pending::{is_ignored, is_of_planned_scheduler, will_be_replaced};
use scheduling::snapshot::{Excluded, Node, NodeId, NodeState, PendingPod, PoolId};

use self::pools::Counts;
use super::Cluster;
use crate::node_claim::command::{Note, has_note};
use crate::node_claim::{self, expiration, label, last_pod_event, milliseconds, timestamp, true_condition, true_since};
use crate::node_repair::Repairs;

/// The fleet, all but what its devices are compiled from. A field of a NodeClaim or NodePool that cannot be read is
/// reported and counts as what disrupts less.
pub(super) fn fleet(
    cluster: &Cluster,
    nodes: &IdVec<NodeId, Arc<Node>>,
    names: &Interner,
    errors: &mut Vec<ObjectError>,
) -> Fleet {
    let builder = Builder::new(cluster, names);
    let mut counts: BTreeMap<NodePoolName, Counts> = BTreeMap::new();
    let mut fleet = Fleet::default();
    for (id, node) in nodes.iter_enumerated() {
        let Some(claim) = node.node_claim.as_ref().and_then(|name| builder.claims.get(name.as_str())) else { continue };
        let object = node.name.as_ref().and_then(|name| builder.objects.get(name)).copied();
        let of_fleet = builder.node(id, node, (object, claim), errors);
        if let (Some(pool), Some(object)) = (&node.node_pool, object) {
            let counts = counts.entry(pool.clone()).or_default();
            counts.add(node.state, claim, of_fleet.under_way.as_ref(), object.ready);
        }
        fleet.nodes.push(of_fleet);
    }
    for pool in &cluster.node_pools {
        let name = NodePoolName::from(pool.object.metadata.name.as_deref().unwrap_or_default());
        let counts = counts.remove(&name).unwrap_or_default();
        let mut of_fleet = pools::pool(&pool.object, counts, cluster.now, errors);
        if of_fleet.is_static() {
            let claims = cluster.node_claims.iter().map(AsRef::as_ref);
            let of_pool = claims.filter(|claim| label(claim, labels::NODEPOOL) == name.as_str());
            of_fleet.replicas = pools::replicas(&pool.object, of_pool);
        }
        fleet.pools.insert(name, of_fleet);
    }
    fleet
}

/// What is looked up for each node.
struct Builder<'c> {
    cluster: &'c Cluster,
    names: &'c Interner,
    claims: BTreeMap<&'c str, &'c Arc<NodeClaim>>,
    objects: BTreeMap<&'c NodeName, &'c model::Node>,
    pools: BTreeMap<&'c str, (PoolId, &'c Catalogue)>,
    budgets: Budgets<'c>,
    repairs: Option<Repairs<'c>>,
    /// Pods by node that were given one by one.
    pods: BTreeMap<&'c NodeName, Vec<&'c Arc<Pod>>>,
}

impl<'c> Builder<'c> {
    fn new(cluster: &'c Cluster, names: &'c Interner) -> Self {
        let mut pods: BTreeMap<&NodeName, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in &cluster.pods {
            if let Some(node) = pod.node_name.as_ref().or(pod.nominated_node_name.as_ref()) {
                pods.entry(node).or_default().push(pod);
            }
        }
        let claims = cluster.node_claims.iter();
        // A snapshot has one NodePool for each of the cluster's, in their order.
        let pools = cluster.node_pools.iter().enumerate().map(|(index, pool)| {
            let id = <PoolId as model::Id>::from_index(index);
            (pool.object.metadata.name.as_deref().unwrap_or_default(), (id, &*pool.catalogue))
        });
        Self {
            cluster,
            names,
            claims: claims.map(|claim| (claim.metadata.name.as_deref().unwrap_or_default(), claim)).collect(),
            objects: cluster.nodes.iter().map(|node| (&node.name, &**node)).collect(),
            pools: pools.collect(),
            budgets: Budgets::new(cluster.pod_disruption_budgets.iter().map(AsRef::as_ref)),
            repairs: cluster.repair.as_ref().map(|sources| Repairs::new(sources, cluster.now)),
            pods,
        }
    }

    fn node(
        &self,
        id: NodeId,
        node: &Node,
        (object, claim): (Option<&model::Node>, &NodeClaim),
        errors: &mut Vec<ObjectError>,
    ) -> FleetNode {
        let under_way = self.under_way(node, object, claim);
        let is_leaving = matches!(under_way, Some(UnderWay::Command(_)));
        FleetNode {
            node: id,
            machine: object.map(|object| self.machine(node, object)).unwrap_or_default(),
            capacity: object.map(|object| object.capacity.clone()).unwrap_or_default(),
            claim: facts(claim, errors),
            unhealthy: object.zip(self.repairs.as_ref()).and_then(|(it, repairs)| repairs.replaced(&it.name, claim)),
            under_way,
            is_protected: object.is_some_and(|object| object.annotations.do_not_disrupt == DoNotDisrupt::Always),
            pods: node.name.as_ref().map(|name| self.pods_on(name, is_leaving)).unwrap_or_default(),
        }
    }

    fn label(&self, object: &model::Node, key: &str) -> Option<&'c str> {
        let value = object.labels.get(self.names.find_key(key)?)?;
        Some(self.names.value_name(value))
    }

    fn machine(&self, node: &Node, object: &model::Node) -> Machine {
        let [instance_type, zone, capacity_type] =
            [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].map(|key| self.label(object, key));
        let of_pool = node.node_pool.as_ref().and_then(|pool| self.pools.get(pool.as_str()));
        let offering = of_pool.and_then(|(pool, catalogue)| {
            let id = self.offering(catalogue, object, instance_type?)?;
            Some((*pool, id, catalogue.offerings.try_get(id)?.price))
        });
        Machine {
            instance_type: instance_type.map(InstanceTypeName::from),
            zone: zone.map(Arc::from),
            capacity_type: capacity_type.map(Arc::from),
            offering,
        }
    }

    /// The cheapest offering of the type with the node's zone, capacity type and reservation.
    fn offering(&self, catalogue: &Catalogue, object: &model::Node, instance_type: &str) -> Option<OfferingId> {
        let capacity_type = self.label(object, labels::CAPACITY_TYPE)?;
        let zone = object.labels.get(self.names.find_key(labels::ZONE)?)?;
        let mut types = catalogue.types.iter_enumerated();
        let (of_type, _) = types.find(|(_, it)| it.name == *instance_type)?;
        let is_it = |id: &OfferingId| {
            let Some(offering) = catalogue.offerings.try_get(*id) else { return false };
            let has_reservation = offering.reservation.is_none_or(|reservation| {
                reservation.label.is_none_or(|label| object.labels.get(label) == Some(reservation.id))
            });
            offering.zone == zone && offering.capacity_type.as_str() == capacity_type && has_reservation
        };
        let price = |id: &OfferingId| catalogue.offerings.try_get(*id).map(|offering| offering.price);
        catalogue.offerings_of(of_type).filter(is_it).min_by_key(price)
    }

    fn under_way(&self, node: &Node, object: Option<&model::Node>, claim: &NodeClaim) -> Option<UnderWay> {
        let is_disrupted = object.is_some_and(|object| {
            object.taints.iter().any(|taint| self.names.key_name(taint.key) == taints::DISRUPTED)
        });
        under_way(claim, node.excluded == Some(Excluded::Deleting), is_disrupted)
    }

    /// Those that have not ended, by name.
    fn pods_on(&self, node: &NodeName, is_leaving: bool) -> Vec<FleetPod> {
        let given = self.pods.get(node).into_iter().flatten().copied();
        let all = self.cluster.bound.on(node).iter().chain(given);
        let mut pods: Vec<FleetPod> =
            all.filter(|pod| !pod.phase.is_terminal()).map(|pod| self.pod(pod, is_leaving)).collect();
        pods.sort_by(|a, b| a.pod.name.cmp(&b.pod.name));
        pods
    }

    fn pod(&self, pod: &Arc<Pod>, is_leaving: bool) -> FleetPod {
        let Cluster { options, devices, now, planned_on, .. } = self.cluster;
        let moves = if !will_be_replaced(pod) {
            Moves::No
        } else if !is_of_planned_scheduler(pod, options) {
            Moves::LeftToOthers(format!("is placed by {}, whose pods are not planned", pod.scheduler_name).into())
        } else if is_ignored(pod, options) {
            Moves::LeftToOthers("has resource claims, which are left to others".into())
        } else {
            let devices = devices.pods.get(&pod.uid).cloned();
            // Where it runs it was planned once too, which says nothing of where it goes.
            let planned_on = planned_on.get(&pod.uid).filter(|_| is_leaving).cloned();
            Moves::As(PendingPod { pod: Arc::clone(pod), planned_on, devices, waits_for: None, stays_within: None })
        };
        FleetPod {
            pod: Arc::clone(pod),
            moves,
            cost: EvictionCost::of(pod, options.disruption.deletion_costs),
            forbidden: self.budgets.forbid(pod, *now, self.names),
        }
    }
}

/// What has been begun with a machine, by its NodeClaim, whether either object is being deleted, and whether the Node
/// has the taint of a disruption.
pub(crate) fn under_way(claim: &NodeClaim, is_deleting: bool, is_disrupted: bool) -> Option<UnderWay> {
    if is_deleting {
        Some(UnderWay::Deletion)
    } else if true_condition(claim, conditions::REBOOTING).is_some() {
        Some(UnderWay::Reboot)
    } else if let Some(condition) = true_condition(claim, conditions::DISRUPTION_REASON) {
        Some(UnderWay::Command(Some(condition.reason.as_str().into())))
    } else if has_note(claim) {
        Some(UnderWay::Command(None))
    } else {
        is_disrupted.then_some(UnderWay::Taint)
    }
}

/// What a NodeClaim says. What of it cannot be read is reported, and counts as not said.
fn facts(claim: &NodeClaim, errors: &mut Vec<ObjectError>) -> ClaimFacts {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let grace_period = claim.spec.termination_grace_period.as_ref().map(|text| text.parse()).transpose();
    let termination_grace_period = node_claim::span("spec.terminationGracePeriod", grace_period);
    let expires_at = expiration::expires_at(claim);
    let problems = [termination_grace_period.as_ref().err(), expires_at.as_ref().err()];
    let of_claim = |problem: &Problem| ObjectError { object: object_ref("NodeClaim", name), problem: problem.clone() };
    errors.extend(problems.into_iter().flatten().map(of_claim));
    ClaimFacts {
        consolidatable: true_since(claim, conditions::CONSOLIDATABLE),
        drifted: true_condition(claim, conditions::DRIFTED).map(|condition| Drift {
            cause: condition.reason.as_str().into(),
            since: timestamp(&condition.last_transition_time),
        }),
        last_pod_event: last_pod_event(claim),
        termination_grace_period: termination_grace_period.ok().flatten(),
        expires_at: expires_at.ok().flatten(),
    }
}

fn error(kind: &str, name: &str, field: &str, why: String) -> ObjectError {
    let problem = Problem { field: field.to_owned(), reason: Reason::Invalid(why) };
    ObjectError { object: object_ref(kind, name), problem }
}

fn object_ref(kind: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: kind.into(), name: NamespacedName::new("", name) }
}
