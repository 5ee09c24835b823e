//! The simulation of a disruption: the snapshot as if machines were being deleted, planned by the provisioning planner.
//!
//! That will be the cluster's state once their NodeClaims are deleted, so pods that move are placed by every rule and
//! every pass by which pending pods are placed: they are not counted where they run, claims that only they use are
//! allocated anew, and limits do not count the machines. Machines of commands under way are treated as being deleted
//! too.
//!
//! Differs: `drifted-destinations`. Karpenter places pods that move on nodes that have drifted as well, and moves them
//! again when these go. Here no pod is planned onto a drifted node, so that a roll-out evicts each pod once. Nor is any
//! planned onto a node that has expired or is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{NamespacedName, Uid};

use super::candidates::Context;
use super::plan::Simulated;
use crate::catalogue::{Offering, Reservation};
use crate::plan::{ExistingPlacement, Refusal};
use crate::provisioning;
use crate::snapshot::fleet::{FleetNode, UnderWay};
use crate::snapshot::{Excluded, Limit, Node, NodeId, NodeState, PodId, Snapshot};

/// A simulation, and which of its pods move.
pub(super) struct Simulation {
    pub(super) simulated: Simulated,
    /// The pods of the machines that were asked about, and the machine of each.
    pub(super) movers: BTreeMap<PodId, NodeId>,
}

/// Why the pods of a machine cannot all move.
pub(super) enum Stuck {
    /// This one has no place.
    Refused(Refusal),
    /// This one only fits on a machine that is not initialized yet.
    NotReady(PodId, NodeId),
}

/// Machines that are asked about, and nodes that receive no pods meanwhile.
#[derive(Debug, Default)]
pub(super) struct What {
    /// These are removed.
    pub(super) leaving: BTreeSet<NodeId>,
    /// These may be removed: they stay, and their pods are known both as running and as pending.
    pub(super) could_go: BTreeSet<NodeId>,
    /// No pod that moves may go to these.
    pub(super) closed: BTreeSet<NodeId>,
    /// Machines among those that are removed whose places in reservations are free for others.
    pub(super) credited: BTreeSet<NodeId>,
    /// Machines whose pods stay in their [domains](crate::simulation::homes).
    pub(super) in_domains: BTreeSet<NodeId>,
}

/// The snapshot as if machines were being deleted, and the pods of the machines that are asked about, which move.
pub(super) fn as_if(context: &Context<'_>, what: &What) -> (Snapshot, BTreeMap<PodId, NodeId>) {
    let mut snapshot = context.snapshot.clone();
    snapshot.fleet = None;
    // Pending pods keep the room that they find if nothing is disrupted.
    for (pod, claim) in &context.planned_on {
        if let Some(pending) = snapshot.pods.try_get_mut(*pod) {
            pending.planned_on = Some(claim.clone());
        }
    }
    let waiting: BTreeSet<&Uid> = context.snapshot.pods.iter().map(|pending| &pending.pod.uid).collect();
    let mut movers = BTreeMap::new();
    let goes = |machine: &FleetNode| {
        what.leaving.contains(&machine.node) || matches!(machine.under_way, Some(UnderWay::Command(Some(_))))
    };
    let stays = (!what.in_domains.is_empty()).then(|| {
        let free = context.fleet.nodes.iter().filter(|machine| {
            let moves = goes(machine) || what.could_go.contains(&machine.node);
            moves && !what.in_domains.contains(&machine.node)
        });
        let free = free.flat_map(|machine| machine.moving()).map(|pending| &*pending.pod);
        context.homes().stays(free, &snapshot.interner)
    });
    for machine in &context.fleet.nodes {
        let node = machine.node;
        let goes = goes(machine);
        let could_go = what.could_go.contains(&node);
        if goes {
            exclude(&mut snapshot, node, Excluded::Deleting);
        } else if context.is_closed(machine) || what.closed.contains(&node) {
            exclude(&mut snapshot, node, Excluded::Cordoned);
        }
        if !goes && !could_go {
            continue;
        }
        free_limits(&mut snapshot, machine);
        if what.credited.contains(&node) {
            free_reservation(&mut snapshot, machine);
        }
        for pending in machine.moving().filter(|pending| !waiting.contains(&pending.pod.uid)) {
            let mut mover = pending.clone();
            if what.in_domains.contains(&node) {
                mover.stays_within = stays.as_ref().and_then(|stays| stays.of(&pending.pod)).cloned();
            }
            let id = snapshot.pods.push(mover);
            if could_go || what.leaving.contains(&node) {
                movers.insert(id, node);
            }
        }
    }
    if let Some(sources) = &context.fleet.devices {
        snapshot.devices = sources.compile(&snapshot).map(Arc::new);
    }
    (snapshot, movers)
}

impl Simulation {
    pub(super) fn new(context: &Context<'_>, what: &What) -> Self {
        let (snapshot, movers) = as_if(context, what);
        let plan = provisioning::plan(&snapshot);
        Self { simulated: Simulated { snapshot, plan }, movers }
    }

    /// The machines whose pods cannot all move, each with the first by name that cannot.
    pub(super) fn stuck(&self) -> BTreeMap<NodeId, Stuck> {
        let Simulated { snapshot, plan } = &self.simulated;
        let mut stuck = BTreeMap::new();
        // They are in the order of pods' names.
        for refusal in &plan.refusals {
            if let Some(node) = self.movers.get(&refusal.pod) {
                stuck.entry(*node).or_insert_with(|| Stuck::Refused(refusal.clone()));
            }
        }
        let is_ready =
            |node: NodeId| snapshot.nodes.try_get(node).is_some_and(|node| node.state == NodeState::Initialized);
        for ExistingPlacement { node, pods, .. } in plan.existing.iter().filter(|it| !is_ready(it.node)) {
            for pod in pods {
                if let Some(from) = self.movers.get(pod) {
                    stuck.entry(*from).or_insert(Stuck::NotReady(*pod, *node));
                }
            }
        }
        stuck
    }

    /// Whether some pod of a machine stays in its domain.
    pub(super) fn is_held_in_domains(&self, machine: NodeId) -> bool {
        let of_machine = self.movers.iter().filter(|(_, node)| **node == machine);
        let mut pending = of_machine.filter_map(|(pod, _)| self.simulated.snapshot.pods.try_get(*pod));
        pending.any(|pending| pending.stays_within.is_some())
    }

    pub(super) fn pod_name(&self, pod: PodId) -> Option<&NamespacedName> {
        self.simulated.snapshot.pods.try_get(pod).map(|pending| &pending.pod.name)
    }
}

/// Takes a node out of those that pods are planned onto, unless it is already.
fn exclude(snapshot: &mut Snapshot, node: NodeId, why: Excluded) {
    if let Some(node) = snapshot.nodes.try_get_mut(node)
        && (node.excluded.is_none() || why == Excluded::Deleting)
    {
        *node = Arc::new(Node { excluded: Some(why), ..Node::clone(node) });
    }
}

/// Gives the machine's place in its reservation to whoever is launched next.
fn free_reservation(snapshot: &mut Snapshot, machine: &FleetNode) {
    let Some((_, reservation)) = reserved_offering(snapshot, machine) else { return };
    for pool in snapshot.node_pools.iter_mut() {
        let is_it = |offering: &Offering| offering.reservation.is_some_and(|it| it.id == reservation.id);
        if !pool.catalogue.offerings.iter().any(is_it) {
            continue;
        }
        for offering in Arc::make_mut(&mut pool.catalogue).offerings.iter_mut() {
            if let Some(it) = offering.reservation.as_mut().filter(|it| it.id == reservation.id) {
                it.remaining = it.remaining.saturating_add(1);
            }
        }
    }
}

/// The offering that a machine was launched from, and the reservation in which it holds a place.
pub(super) fn reserved_offering<'s>(
    snapshot: &'s Snapshot,
    machine: &FleetNode,
) -> Option<(&'s Offering, Reservation)> {
    let (pool, id, _) = machine.machine.offering?;
    let offering = snapshot.node_pools.try_get(pool)?.catalogue.offerings.try_get(id)?;
    Some((offering, offering.reservation?))
}

/// Machines that are going do not count against limits.
fn free_limits(snapshot: &mut Snapshot, machine: &FleetNode) {
    let Some(name) = snapshot.nodes.try_get(machine.node).and_then(|node| node.node_pool.clone()) else { return };
    let Some(pool) = snapshot.node_pools.iter_mut().find(|pool| pool.name == name) else { return };
    for limit in &mut pool.remaining {
        let freed = match limit.limit {
            Limit::Nodes => 1,
            Limit::Resource(resource) => machine.capacity.get(resource),
        };
        limit.remaining = limit.remaining.saturating_add(freed);
    }
}
