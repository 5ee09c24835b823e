//! The snapshot, compiled: classes, pool tables, what each existing node has free and which classes it accepts.

use std::{borrow::Cow, collections::BTreeSet};

use api::labels;
use model::{IdSet, IdVec, Interner, KeyId, Labels, ResourceVec, Taint, ValueId, collections::FastMap};

use super::{
    affinity,
    attachments::SharedVolumes,
    classes,
    classes::{ClassId, PodClass},
    daemons,
    devices::ProblemDevices,
    pools,
    pools::{Alternative, PoolRank, PoolTable},
    slack::SlackTree,
    topology::{self, Topology},
};
use crate::{
    catalogue::OfferingId,
    snapshot::{NodeId, NodeLabels, NodeState, PoolId, Snapshot},
};

/// Everything that stays the same while packing.
#[derive(Debug)]
pub(crate) struct Problem<'s> {
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
    /// What ends the plan early, if it is only made to be compared.
    pub(crate) limit: Option<LimitByClass>,
    /// Whether machines are kept out of domains that they would add to a spread.
    pub(crate) keeps_outside: bool,
    /// If so: ways to be on a machine of the plan that would add one, of classes that have others.
    avoided: BTreeSet<(PoolId, ClassId, usize)>,
    /// Classes that avoid none, since they would have too few places.
    avoids_none: BTreeSet<ClassId>,
    /// Classes that are not placed on nodes that are open already.
    pub(crate) kept_off_open_nodes: BTreeSet<ClassId>,
    /// Volumes that several pods use and nodes count once.
    pub(crate) shared_volumes: SharedVolumes,
    /// What claims are asked from; `None` if no pod wants a device.
    pub(crate) devices: Option<ProblemDevices<'s>>,
    accepted: IdVec<ClassId, IdSet<NodeId>>,
    reserved: IdVec<PoolRank, FastMap<ValueId, IdSet<OfferingId>>>,
    none: IdSet<OfferingId>,
}

/// What a plan may cost, and how many copies of each class may have no place.
#[derive(Debug, Clone)]
pub(crate) struct LimitByClass {
    pub(crate) cost: i128,
    pub(crate) refused: IdVec<ClassId, u32>,
}

impl<'s> Problem<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let names = &*snapshot.interner;
        let hostname = names.find_key(labels::HOSTNAME);
        let (mut classes, topology) = classes::classes(snapshot, &largest(snapshot));
        let room: IdVec<NodeId, ResourceVec> = snapshot.nodes.ids().map(|node| free(node, snapshot)).collect();
        let mut accepted = accepted(snapshot, &classes);
        end_on_errors(snapshot, &mut classes, &mut accepted, &room);
        let pools = pools::tables(snapshot, &classes, &topology, hostname);
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
        let mut problem = Self {
            snapshot,
            shared_volumes: SharedVolumes::new(snapshot, &classes),
            classes,
            pools,
            topology,
            rooms: in_order(&node_order, &room),
            room,
            node_order,
            positions,
            reservations,
            limit: None,
            keeps_outside: false,
            avoided: BTreeSet::new(),
            avoids_none: BTreeSet::new(),
            kept_off_open_nodes: BTreeSet::new(),
            devices,
            accepted,
            reserved,
            none,
        };
        let reachable = topology::reachable(&problem);
        problem.topology.open(reachable);
        problem
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

    /// Whether machines that cost so much are more than a limit allows.
    pub(crate) fn is_too_dear(&self, price: i128) -> bool {
        self.limit.as_ref().is_some_and(|limit| price > limit.cost)
    }

    /// Whether so many copies without a place are more than a limit allows.
    pub(crate) fn is_too_many(&self, class: ClassId, refused: u32) -> bool {
        self.limit.as_ref().is_some_and(|limit| refused > limit.refused[class])
    }

    /// Whether a plan that is given up half-way leaves nothing behind: none opens a domain, so that it is made once more,
    /// and none asks for devices, which says of all plans whether claims were kept apart.
    pub(crate) fn ends_with_first_round(&self) -> bool {
        self.devices.is_none() && self.topology.is_open(&self.pools, self.names())
    }

    /// Looks again which ways would add a domain, as far as they are to be avoided.
    pub(crate) fn avoid_adding(&mut self) {
        self.avoided.clear();
        if self.keeps_outside {
            self.avoided = topology::adding_ways(self);
            self.avoided.retain(|(_, class, _)| !self.avoids_none.contains(class));
        }
    }

    /// Lets those of the classes that avoid ways have all of them from now on; says whether there are some.
    pub(crate) fn avoid_none(&mut self, classes: impl Iterator<Item = ClassId>) -> bool {
        let avoiding: BTreeSet<ClassId> = self.avoided.iter().map(|(_, class, _)| *class).collect();
        let before = self.avoids_none.len();
        self.avoids_none.extend(classes.filter(|class| avoiding.contains(class)));
        self.avoids_none.len() > before
    }

    /// Whether no machine is to be opened, or narrowed, that way.
    pub(crate) fn is_avoided(&self, pool: &PoolTable<'_>, class: ClassId, way: &Alternative) -> bool {
        !self.avoided.is_empty() && self.avoided.contains(&(pool.id, class, way.index))
    }

    /// Whether the class has to be spread over domains of which machines of a plan have added one.
    pub(crate) fn is_spread_over_added(&self, class: ClassId) -> bool {
        let groups = self.classes[class].involved.iter().filter(|mine| mine.owner);
        groups.map(|mine| &self.topology.groups[mine.group]).any(|group| group.was_added_to)
    }

    /// Whether taints and labels of an existing node let the class in.
    pub(crate) fn node_accepts(&self, class: ClassId, node: NodeId) -> bool {
        let is_kept_off = self.kept_off_open_nodes.contains(&class) && self.is_open_node(node);
        self.accepted[class].contains(node) && !is_kept_off
    }

    /// Whether anybody may come to the node at any time: the hand-over holds only machines that are still coming up.
    pub(crate) fn is_open_node(&self, node: NodeId) -> bool {
        self.snapshot.nodes[node].state == NodeState::Initialized
    }

    /// What a copy takes on a machine of its own.
    pub(crate) fn requests_alone(&self, class: ClassId, variant: usize) -> Cow<'_, ResourceVec> {
        self.shared_volumes.with_extra(self.classes[class].requests(variant), class, &[])
    }

    /// By which of its variants a class is on a node.
    pub(crate) fn variant_on(&self, class: ClassId, node: NodeId) -> usize {
        self.variant_at(class, &self.snapshot.nodes[node].allocatable)
    }

    /// By which of its variants a class is where there is so much to give.
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

/// Refuses the classes of which kube-scheduler would ask a node that answers with an error: no other node is for them then.
/// Asked are nodes whose taints, labels and room let them in; what rules between pods say changes with each that is bound.
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
