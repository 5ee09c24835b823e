//! The snapshot, compiled: classes, pool tables, what each existing node has free and which classes it accepts.

use std::{borrow::Cow, collections::BTreeSet};

use model::{IdSet, IdVec, Interner, KeyId, Labels, ResourceVec, Taint, ValueId, collections::FastMap};

use super::attachments::SharedVolumes;
use super::classes::{ClassId, PodClass};
use super::devices::ProblemDevices;
use super::pools::{PoolRank, PoolTable};
use super::request::Request;
use super::{classes, daemons, pools};
use crate::simulation::compile::residual_capacity::SlackTree;
use crate::simulation::topology::{DomainId, GroupId, Topology};
use crate::snapshot::affinity;
use crate::{
    catalogue::OfferingId,
    snapshot::{NodeId, NodeLabels, NodeState, PodId, Snapshot},
};

/// Everything that stays the same while packing. Nothing of it changes once it is made, so that several runs, each
/// with a `PlanRun` of its own, may share it, in several threads too.
#[derive(Debug)]
pub(crate) struct Problem<'s> {
    pub(crate) request: &'s Request<'s>,
    /// That of the request.
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) classes: IdVec<ClassId, PodClass>,
    /// Usable pools, preferred first.
    pub(crate) pools: IdVec<PoolRank, PoolTable<'s>>,
    /// Rules that couple pods with each other.
    pub(crate) topology: Topology,
    /// What is free on each existing node, daemons to come subtracted.
    pub(crate) room: IdVec<NodeId, ResourceVec>,
    /// Nodes that take pods: those furthest along first, then by name.
    pub(crate) node_order: Vec<NodeId>,
    /// What is free, in that order.
    pub(crate) rooms: SlackTree,
    positions: IdVec<NodeId, Option<usize>>,
    /// (reservation, machines left), by name.
    pub(crate) reservations: Vec<(ValueId, i64)>,
    /// Volumes that several pods use and nodes count once.
    pub(crate) shared_volumes: SharedVolumes,
    /// What claims are asked from; `None` if no pod wants a device.
    pub(crate) devices: Option<ProblemDevices<'s>>,
    /// Domains of groups that plans keep machines for their pods out of. No rule says so, and bounds hold without.
    pub(crate) kept_out: Vec<(GroupId, IdSet<DomainId>)>,
    accepted: IdVec<ClassId, IdSet<NodeId>>,
    reserved: IdVec<PoolRank, FastMap<ValueId, IdSet<OfferingId>>>,
    none: IdSet<OfferingId>,
}

impl<'s> Problem<'s> {
    pub(crate) fn new(request: &'s Request<'s>) -> Self {
        let snapshot = &*request.snapshot;
        let names = &*snapshot.interner;
        let (mut classes, topology) = classes::classes(request, &largest(snapshot));
        let room: IdVec<NodeId, ResourceVec> = snapshot.nodes.ids().map(|node| free(node, snapshot)).collect();
        let mut accepted = accepted(snapshot, &classes);
        end_on_errors(snapshot, &mut classes, &mut accepted, &room);
        stay_with_idle_claims(snapshot, &classes, &mut accepted, &room);
        let pools = pools::tables(snapshot, &classes, &topology);
        let mut node_order: Vec<NodeId> =
            snapshot.nodes.ids().filter(|&id| snapshot.nodes[id].excluded.is_none()).collect();
        node_order.sort_by(|&a, &b| {
            let (a, b) = (&snapshot.nodes[a], &snapshot.nodes[b]);
            (a.state, a.display_name()).cmp(&(b.state, b.display_name()))
        });
        let mut positions = IdVec::filled(None, snapshot.nodes.len());
        for (position, &node) in node_order.iter().enumerate() {
            positions[node] = Some(position);
        }
        let reserved: IdVec<PoolRank, FastMap<ValueId, IdSet<OfferingId>>> = pools.iter().map(reserved).collect();
        let reservations = reservations(&pools, names);
        let none = IdSet::default();
        let devices = ProblemDevices::new(snapshot);
        Self {
            request,
            snapshot,
            shared_volumes: SharedVolumes::new(request, &classes),
            classes,
            pools,
            rooms: in_order(&node_order, &room),
            room,
            node_order,
            positions,
            reservations,
            topology,
            devices,
            kept_out: Vec::new(),
            accepted,
            reserved,
            none,
        }
    }

    /// The problem with these classes kept off nodes that are open already.
    pub(crate) fn off_open_nodes(&self, classes: &BTreeSet<ClassId>) -> Self {
        let mut off = Self::new(self.request);
        off.kept_out.clone_from(&self.kept_out);
        let open: IdSet<NodeId> = self.snapshot.nodes.ids().filter(|&node| self.is_open_node(node)).collect();
        for &class in classes {
            off.accepted[class].difference_with(&open);
        }
        off
    }

    pub(crate) fn names(&self) -> &'s Interner {
        &self.snapshot.interner
    }

    /// What is free on nodes, in the order of trying them.
    pub(crate) fn rooms_of(&self, room: &IdVec<NodeId, ResourceVec>) -> SlackTree {
        in_order(&self.node_order, room)
    }

    /// Where a node is in that order, if it takes pods.
    pub(crate) fn position_of(&self, node: NodeId) -> Option<usize> {
        self.positions[node]
    }

    /// Whether taints and labels of an existing node let the class in, and it is not kept off it.
    pub(crate) fn node_accepts(&self, class: ClassId, node: NodeId) -> bool {
        self.accepted[class].contains(node)
    }

    /// Whether anybody may come to the node at any time: the hand-over holds only machines that are still coming up.
    pub(crate) fn is_open_node(&self, node: NodeId) -> bool {
        self.snapshot.nodes[node].state == NodeState::Initialized
    }

    /// The class of each pod that is in one.
    pub(crate) fn class_of_pods(&self) -> IdVec<PodId, Option<ClassId>> {
        let mut class_of = IdVec::filled(None, self.snapshot.pods.len());
        for (class, pods) in self.classes.iter_enumerated() {
            for &pod in &pods.members {
                class_of[pod] = Some(class);
            }
        }
        class_of
    }

    /// Whether copies of the class can go wherever there is room: no rule, claim or shared volume concerns it.
    pub(crate) fn is_free(&self, class: ClassId) -> bool {
        let pods = &self.classes[class];
        let is_alone = pods.involved.is_empty() && self.shared_volumes.of(class).is_empty();
        is_alone && pods.devices.is_none() && !pods.is_refused()
    }

    /// What a copy takes on a machine of its own.
    pub(crate) fn requests_alone(&self, class: ClassId, variant: usize) -> Cow<'_, ResourceVec> {
        self.shared_volumes.with_extra(self.classes[class].requests(variant), class, &[])
    }

    /// The variant of a class on a node.
    pub(crate) fn variant_on(&self, class: ClassId, node: NodeId) -> usize {
        self.variant_at(class, &self.snapshot.nodes[node].allocatable)
    }

    /// The variant of a class on a machine with these allocatable resources.
    pub(crate) fn variant_at(&self, class: ClassId, allocatable: &ResourceVec) -> usize {
        let devices = self.classes[class].devices.as_ref();
        let demand = devices.and_then(|devices| self.snapshot.devices.as_ref()?.demands.try_get(devices.demand));
        demand.map_or(0, |demand| demand.variant_for(allocatable))
    }

    /// Whether kube-scheduler would bind pods of the class to a node once it has chosen it.
    pub(crate) fn can_be_bound(&self, class: ClassId, variant: usize) -> bool {
        let devices = self.classes[class].devices.as_ref();
        let demand = devices.and_then(|devices| self.snapshot.devices.as_ref()?.demands.try_get(devices.demand));
        demand.is_none_or(|demand| demand.can_be_bound(variant))
    }

    /// The pool's offerings that draw on a reservation.
    pub(crate) fn reserved(&self, pool: PoolRank, reservation: ValueId) -> &IdSet<OfferingId> {
        self.reserved[pool].get(&reservation).unwrap_or(&self.none)
    }
}

// Runs of a problem may go on in several threads.
const _: () = {
    const fn is_shared<T: Sync + Send>() {}
    is_shared::<Problem<'_>>();
};

fn in_order(node_order: &[NodeId], room: &IdVec<NodeId, ResourceVec>) -> SlackTree {
    SlackTree::new(node_order.iter().map(|&node| &room[node]))
}

/// The most of each resource that any machine or node has.
fn largest(snapshot: &Snapshot) -> ResourceVec {
    let mut largest = ResourceVec::default();
    for pool in &snapshot.node_pools {
        for offering in &pool.catalogue.offerings {
            largest.max_assign(&offering.allocatable);
        }
    }
    for node in &snapshot.nodes {
        largest.max_assign(&node.allocatable);
    }
    largest
}

/// Allocatable minus the pods that are bound, minus the daemons that will come.
fn free(id: NodeId, snapshot: &Snapshot) -> ResourceVec {
    let node = &snapshot.nodes[id];
    let mut free = node.allocatable.clone();
    free.saturating_sub_assign(node.pods.requests());
    if let Some(cost) = snapshot.devices.as_ref().and_then(|devices| devices.nominated_cost(id)) {
        free.saturating_sub_assign(cost);
    }
    free.saturating_sub_assign(&daemons::missing(id, snapshot));
    free
}

/// Which nodes each class may be on. Nodes that look alike to every class are asked once.
fn accepted(snapshot: &Snapshot, classes: &IdVec<ClassId, PodClass>) -> IdVec<ClassId, IdSet<NodeId>> {
    let names = &*snapshot.interner;
    // Labels that no class asks about cannot tell nodes apart. A large cluster then has few groups of nodes.
    let mut mentioned: Vec<KeyId> = classes
        .iter()
        .flat_map(|class| &class.terms)
        .flat_map(|term| term.requirements.iter().map(|requirement| requirement.key))
        .collect();
    mentioned.sort_unstable();
    mentioned.dedup();
    let mut alike: FastMap<(Labels, &[Taint]), Vec<NodeId>> = FastMap::default();
    let mut alone: Vec<Vec<NodeId>> = Vec::new();
    for (id, node) in snapshot.nodes.iter_enumerated().filter(|(_, node)| node.excluded.is_none()) {
        match &node.labels {
            NodeLabels::Known(labels) => {
                let mut seen = Labels::new();
                for &key in &mentioned {
                    if let Some(value) = labels.get(key) {
                        seen.insert(key, value);
                    }
                }
                alike.entry((seen, &node.taints)).or_default().push(id);
            }
            // What a machine that is still starting promises is a requirement and not a value, so it is looked at by
            // itself.
            NodeLabels::Promised(_) => alone.push(vec![id]),
        }
    }
    let groups: Vec<Vec<NodeId>> = alike.into_values().chain(alone).collect();
    let accepts = |class: &PodClass, id: NodeId| {
        let node = &snapshot.nodes[id];
        affinity::keeps_out(&node.taints, &class.shape, names).is_none()
            && class.terms.iter().any(|term| term.accepts(node, names))
    };
    classes
        .iter()
        .map(|class| {
            let mut accepted = IdSet::with_len(snapshot.nodes.len());
            if class.is_refused() {
                return accepted;
            }
            // Names of nodes differ within a group, so a term with a name (`matchFields`) is asked of each node.
            let by_name = class.terms.iter().any(|term| term.node_name.is_some());
            for group in &groups {
                if by_name {
                    accepted.extend(group.iter().copied().filter(|&id| accepts(class, id)));
                } else if group.first().is_some_and(|&id| accepts(class, id)) {
                    accepted.extend(group.iter().copied());
                }
            }
            accepted
        })
        .collect()
}

/// Refuses the classes for which kube-scheduler would look at a node that answers with an error, since that error ends
/// the pod's attempt on all nodes. Only nodes are looked at whose taints, labels and room let the class in; rules
/// between pods change with each pod that is bound.
fn end_on_errors(
    snapshot: &Snapshot,
    classes: &mut IdVec<ClassId, PodClass>,
    accepted: &mut IdVec<ClassId, IdSet<NodeId>>,
    room: &IdVec<NodeId, ResourceVec>,
) {
    let Some(devices) = &snapshot.devices else { return };
    for (class, accepted) in classes.iter_mut().zip(accepted.iter_mut()) {
        let Some(demand) = class.devices.as_ref().map(|devices| devices.demand) else { continue };
        let is_asked = |node: NodeId| {
            let variant = devices.demands[demand].variant_for(&snapshot.nodes[node].allocatable);
            accepted.contains(node) && class.requests(variant).fits_in(&room[node])
        };
        let ends = devices.ends(demand).iter().filter(|(node, _)| is_asked(*node));
        let first = ends.min_by_key(|(node, _)| snapshot.nodes[*node].display_name());
        if let Some((node, error)) = first {
            let node = snapshot.nodes[*node].display_name();
            class.claim_fault = Some(format!("node {node} ends the search on all nodes: {error}").into());
            accepted.clear();
        }
    }
}

/// Keeps classes with claims that are allocated for nobody on the nodes of these while one of them has room.
fn stay_with_idle_claims(
    snapshot: &Snapshot,
    classes: &IdVec<ClassId, PodClass>,
    accepted: &mut IdVec<ClassId, IdSet<NodeId>>,
    room: &IdVec<NodeId, ResourceVec>,
) {
    let Some(devices) = &snapshot.devices else { return };
    for (class, accepted) in classes.iter().zip(accepted.iter_mut()) {
        let Some(demand) = class.devices.as_ref().map(|devices| devices.demand) else { continue };
        devices.stay(demand, accepted, |node| {
            let variant = devices.demands[demand].variant_for(&snapshot.nodes[node].allocatable);
            class.requests(variant).fits_in(&room[node])
        });
    }
}

fn reserved(table: &PoolTable<'_>) -> FastMap<ValueId, IdSet<OfferingId>> {
    let mut reserved: FastMap<ValueId, IdSet<OfferingId>> = FastMap::default();
    for offering in table.members.iter() {
        if let Some(reservation) = table.catalogue.offerings[offering].reservation {
            reserved
                .entry(reservation.id)
                .or_insert_with(|| IdSet::with_len(table.catalogue.offerings.len()))
                .insert(offering);
        }
    }
    reserved
}

/// All reservations with what is left of them; the least where offerings disagree.
fn reservations(pools: &IdVec<PoolRank, PoolTable<'_>>, names: &Interner) -> Vec<(ValueId, i64)> {
    let mut left: FastMap<ValueId, i64> = FastMap::default();
    for table in pools {
        for offering in table.members.iter() {
            if let Some(reservation) = table.catalogue.offerings[offering].reservation {
                let remaining = i64::from(reservation.remaining);
                left.entry(reservation.id).and_modify(|left| *left = (*left).min(remaining)).or_insert(remaining);
            }
        }
    }
    let mut left: Vec<(ValueId, i64)> = left.into_iter().collect();
    left.sort_by_key(|(id, _)| names.value_name(*id));
    left
}
