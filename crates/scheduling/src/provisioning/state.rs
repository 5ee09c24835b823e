//! What has been placed so far: the free room of existing nodes, the open machines, and what these take of limits and
//! reservations. All changes go through a journal, so that the search can go back to a mark; nothing is undone by hand.
//!
//! A trial ("how many more copies of this class does that machine hold") changes nothing and allocates nothing unless
//! the class asks for an open label.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use model::{
    IdSet, IdVec, Interner, PriceNanoUsdPerHour, Requirements, ResourceId, ResourceVec, ValueId, collections::fast_hash,
};
use smallvec::SmallVec;

use super::{
    alike::Alike,
    attachments::Attached,
    classes::{ClassId, PodClass},
    devices::{BinDevices, DeviceMark, DeviceState, NodeBefore, Pick, Spot, Ways, narrow, pinned},
    limits::{self, Amounts},
    pools::{Alternative, PoolRank, PoolTable},
    problem::Problem,
    slack::SlackTree,
    topology::{self, AllCounts, Before, Checking, DomainId, GroupId, Involvement, Place},
};
use crate::{catalogue::OfferingId, snapshot::NodeId};

/// Index of an open machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BinId(pub(crate) usize);

/// A machine that the plan would create.
#[derive(Debug, Clone)]
pub(crate) struct Bin {
    pub(crate) pool: PoolRank,
    /// Offerings that hold everything placed so far.
    pub(crate) offerings: IdSet<OfferingId>,
    /// Requests of the pods placed so far; daemons are already subtracted from what offerings hold.
    pub(crate) requests: ResourceVec,
    /// What the placed classes ask of labels that are not determined by the offering.
    pub(crate) open: Requirements,
    /// (class, position of the alternative among the class's in the pool, copies).
    pub(crate) contents: SmallVec<[(ClassId, usize, u32); 4]>,
    /// The lowest price of its offerings.
    pub(crate) price: PriceNanoUsdPerHour,
    /// The most of each resource that is free on an offering of that price.
    pub(crate) slack: ResourceVec,
    /// Devices of the pods placed so far, if they have claims.
    pub(crate) devices: Option<Arc<BinDevices>>,
    /// Volumes of theirs that others use too.
    attached: Attached,
    /// What it takes of the pool's limits at least.
    charge: Amounts,
    /// Equal for machines that hold the same.
    kind: u64,
}

/// What a machine takes of what machines share.
#[derive(Debug)]
struct Footprint {
    pool: PoolRank,
    price: PriceNanoUsdPerHour,
    kind: u64,
    charge: Amounts,
    /// By reservation: whether it may draw on it.
    reservations: SmallVec<[bool; 4]>,
}

impl Bin {
    fn new(pool: PoolRank, offerings: IdSet<OfferingId>, open: Requirements) -> Self {
        Self {
            pool,
            offerings,
            requests: ResourceVec::default(),
            open,
            contents: SmallVec::new(),
            // Any offering costs as much.
            price: PriceNanoUsdPerHour(i64::MIN),
            slack: ResourceVec::default(),
            devices: None,
            attached: Attached::new(),
            charge: Amounts::new(),
            kind: 0,
        }
    }

    /// Sets price and slack from what is left of the offerings.
    fn measure(&mut self, table: &PoolTable<'_>) {
        // What was too small before is so now.
        let open = table.at_least_at_price(self.price).copied();
        let mut open = open.filter(|&offering| self.offerings.contains(offering)).peekable();
        let Some(price) = open.peek().map(|&offering| table.price(offering)) else { return };
        let mut slack = ResourceVec::default();
        for offering in open.take_while(|&offering| table.price(offering) == price) {
            let mut free = table.net(offering).clone();
            free.saturating_sub_assign(&self.requests);
            slack.max_assign(&free);
        }
        (self.price, self.slack) = (price, slack);
    }
}

/// Where copies of a class were put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Node(NodeId),
    Bin(BinId),
}

/// Copies of a class at a target, in the order of placing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) class: ClassId,
    pub(crate) target: Target,
    pub(crate) copies: u32,
}

/// How limits are counted while placing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charging {
    /// Each machine by one offering that takes little of everything.
    Least,
    /// Each limit by itself, so that nothing feasible is cut off; a leaf has to be checked with [`State::limits_hold`].
    Bound,
}

/// The state of one plan in the making.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) room: IdVec<NodeId, ResourceVec>,
    /// The same in the order of trying nodes.
    rooms: SlackTree,
    pub(crate) bins: Vec<Bin>,
    pub(crate) assignments: Vec<Assignment>,
    /// Of all open machines.
    price: i128,
    /// How many of them are of classes with affinity.
    near: usize,
    /// Open machines that hold the same.
    pub(crate) alike: Alike,
    /// Open machines by the room that is paid for.
    pub(crate) slack: SlackTree,
    /// What rules that couple pods count.
    pub(crate) counts: AllCounts,
    /// When skews and affinity are checked.
    pub(crate) checking: Checking,
    /// Domains to which a class is confined for the moment: (position among its involvements, domain).
    pub(crate) confined: SmallVec<[(usize, DomainId); 2]>,
    start_counts: AllCounts,
    /// Volumes on existing nodes that several pods use; empty if there are none.
    attached: IdVec<NodeId, Attached>,
    start_attached: IdVec<NodeId, Attached>,
    /// What is taken of devices; `None` if no pod wants any.
    pub(crate) devices: Option<DeviceState>,
    start_devices: Option<DeviceState>,
    /// Room before any class was placed, but after pods that stay where an earlier plan put them.
    start: IdVec<NodeId, ResourceVec>,
    charging: Charging,
    charges: IdVec<PoolRank, Amounts>,
    reservations: Vec<(ValueId, i64)>,
    journal: Vec<Undo>,
    marks: usize,
    candidates: IdSet<OfferingId>,
    trial: IdSet<OfferingId>,
}

#[derive(Debug)]
enum Undo {
    Room(NodeId, ResourceVec),
    Devices(NodeBefore),
    Attached(NodeId, Attached),
    Counted(GroupId, DomainId, Before),
    Opened,
    Changed(BinId, Box<Bin>),
}

/// A state to go back to.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct Mark {
    journal: usize,
    assignments: usize,
    devices: Option<DeviceMark>,
}

impl State {
    pub(crate) fn new(problem: &Problem<'_>, charging: Charging) -> Self {
        Self {
            room: problem.room.clone(),
            rooms: problem.rooms.clone(),
            bins: Vec::new(),
            assignments: Vec::new(),
            price: 0,
            near: 0,
            alike: Alike::default(),
            slack: SlackTree::default(),
            counts: problem.topology.start(),
            checking: Checking::Stepwise,
            confined: SmallVec::new(),
            start_counts: problem.topology.start(),
            attached: problem.shared_volumes.on_nodes.clone(),
            start_attached: problem.shared_volumes.on_nodes.clone(),
            devices: DeviceState::new(problem),
            start_devices: None,
            start: problem.room.clone(),
            charging,
            charges: problem.pools.iter().map(|table| table.limits.zero()).collect(),
            reservations: problem.reservations.clone(),
            journal: Vec::new(),
            marks: 0,
            candidates: IdSet::default(),
            trial: IdSet::default(),
        }
    }

    /// Begins a part that may be undone.
    pub(crate) fn mark(&mut self) -> Mark {
        self.marks += 1;
        let devices = self.devices.as_mut().map(DeviceState::mark);
        Mark { journal: self.journal.len(), assignments: self.assignments.len(), devices }
    }

    /// Keeps everything since the mark.
    pub(crate) fn commit(&mut self, mark: Mark) {
        self.marks -= 1;
        if let (Some(devices), Some(mark)) = (&mut self.devices, mark.devices) {
            devices.keep(mark);
        }
        if self.marks == 0 {
            self.journal.clear();
        }
    }

    /// Undoes everything since the mark.
    pub(crate) fn rollback(&mut self, problem: &Problem<'_>, mark: Mark) {
        self.marks -= 1;
        while self.journal.len() > mark.journal {
            match self.journal.pop() {
                Some(Undo::Room(node, room)) => {
                    self.room[node] = room;
                    self.note_room(problem, node);
                }
                Some(Undo::Devices(before)) => {
                    if let Some(devices) = &mut self.devices {
                        devices.restore(before);
                    }
                }
                Some(Undo::Attached(node, before)) => self.attached[node] = before,
                Some(Undo::Counted(group, domain, before)) => self.counts[group].set(domain, before),
                Some(Undo::Opened) => {
                    if let Some(bin) = self.bins.pop() {
                        let taken = self.footprint(problem, &bin);
                        self.account(problem, BinId(self.bins.len()), Some(&taken), None);
                    }
                }
                Some(Undo::Changed(id, before)) => {
                    let after = self.bins.get(id.0).map(|after| self.footprint(problem, after));
                    self.account(problem, id, after.as_ref(), Some(&before));
                    if let Some(slot) = self.bins.get_mut(id.0) {
                        *slot = *before;
                    }
                }
                None => break,
            }
        }
        for undone in self.assignments.drain(mark.assignments.min(self.assignments.len())..) {
            self.near -= usize::from(!problem.classes[undone.class].affinity_sets.is_empty());
        }
        if let (Some(devices), Some(mark)) = (&mut self.devices, mark.devices) {
            devices.rollback(mark);
        }
    }

    fn record(&mut self, undo: impl FnOnce() -> Undo) {
        if self.marks > 0 {
            self.journal.push(undo());
        }
    }

    /// Copies of the class that the node has room for, at most `wanted`.
    pub(crate) fn copies_on_node(&self, problem: &Problem<'_>, node: NodeId, class: ClassId, wanted: u32) -> u32 {
        if !problem.node_accepts(class, node) {
            return 0;
        }
        let pods = &problem.classes[class];
        let variant = if pods.devices.is_some() { problem.variant_on(class, node) } else { 0 };
        if pods.devices.is_some() && !problem.can_be_bound(class, variant) {
            return 0;
        }
        let room = self.room_beside_volumes(problem, node, class);
        let mut copies = times_in(pods.requests(variant), &room, wanted);
        if copies > 0 && !pods.involved.is_empty() {
            let place = |_: usize, mine: &Involvement| problem.topology.place_of_node(mine.group, node);
            copies = self.coupled_room(problem, pods, place, copies);
        }
        if copies == 0 || pods.devices.is_none() {
            return copies;
        }
        let Some(ways) = self.ways(problem, Spot::Node(node), class, variant, copies) else { return copies };
        let copies_by = |way: &super::devices::Way| {
            let mut each = pods.requests(variant).clone();
            each.saturating_add_assign(&way.extra_on_node());
            each.times_in(&room, way.copies.min(copies))
        };
        ways.ways.iter().map(copies_by).max().unwrap_or(0)
    }

    /// What a node has free once the volumes are attached that the class shares with others; nothing if they cannot be.
    fn room_beside_volumes(&self, problem: &Problem<'_>, node: NodeId, class: ClassId) -> Cow<'_, ResourceVec> {
        let room = Cow::Borrowed(&self.room[node]);
        if problem.shared_volumes.of(class).is_empty() {
            return room;
        }
        let extra = problem.shared_volumes.extra(class, &self.attached[node]);
        if extra.iter().any(|(resource, amount)| room.get(*resource) < *amount) {
            return Cow::Owned(ResourceVec::default());
        }
        let mut room = room.into_owned();
        for (resource, amount) in extra {
            room.set(resource, room.get(resource) - amount);
        }
        Cow::Owned(room)
    }

    /// Requests of a copy on a node, with the volumes that would have to be attached for it.
    pub(crate) fn requests_on<'p>(
        &self,
        problem: &'p Problem<'_>,
        node: NodeId,
        class: ClassId,
    ) -> Cow<'p, ResourceVec> {
        let requests = problem.classes[class].requests(problem.variant_on(class, node));
        let attached = self.attached.try_get(node).map_or(&[][..], |attached| attached);
        problem.shared_volumes.with_extra(requests, class, attached)
    }

    /// How copies of a class can have their devices at a place; `None` if it wants none there.
    pub(crate) fn ways(
        &self,
        problem: &Problem<'_>,
        spot: Spot,
        class: ClassId,
        variant: usize,
        wanted: u32,
    ) -> Option<Rc<Ways>> {
        self.devices.as_ref()?.ways(problem, spot, &self.bins, class, variant, wanted)
    }

    /// Copies that the rules coupling the class with other pods allow in an open machine or, without one, in a new one;
    /// at most `wanted`.
    pub(crate) fn copies_allowed(
        &self,
        problem: &Problem<'_>,
        bin: Option<BinId>,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let class = &problem.classes[class];
        if class.involved.is_empty() {
            return wanted;
        }
        let bin = bin.unwrap_or(BinId(self.bins.len()));
        let place = |position: usize, mine: &Involvement| place_in_bin(problem, bin, alternative, position, mine);
        self.coupled_room(problem, class, place, wanted)
    }

    fn coupled_room(
        &self,
        problem: &Problem<'_>,
        class: &PodClass,
        place: impl Fn(usize, &Involvement) -> Place,
        wanted: u32,
    ) -> u32 {
        let is_there = |&(position, domain): &(usize, DomainId)| {
            class.involved.get(position).is_some_and(|mine| place(position, mine) == Place::Domain(domain))
        };
        if !self.confined.iter().all(is_there) {
            return 0;
        }
        topology::room(&problem.topology, &self.counts, self.checking, class, place, wanted)
    }

    /// What rules counted before any class was placed.
    pub(crate) fn counts_at_start(&self) -> &AllCounts {
        &self.start_counts
    }

    /// Where copies of a class are that were put on a target, for one of its involvements.
    pub(crate) fn place_of(&self, problem: &Problem<'_>, class: ClassId, target: Target, position: usize) -> Place {
        let Some(mine) = problem.classes[class].involved.get(position) else { return Place::Outside };
        match target {
            Target::Node(node) => problem.topology.place_of_node(mine.group, node),
            Target::Bin(id) => {
                let alternative = self.bins.get(id.0).and_then(|bin| {
                    let (_, index, _) = bin.contents.iter().find(|(held, _, _)| *held == class)?;
                    problem.pools[bin.pool].by_class[class].get(*index)
                });
                alternative.map_or(Place::Outside, |found| place_in_bin(problem, id, found, position, mine))
            }
        }
    }

    /// Counts copies of a class for all rules that it matches or has to keep.
    fn count(
        &mut self,
        problem: &Problem<'_>,
        class: ClassId,
        place: impl Fn(usize, &Involvement) -> Place,
        copies: u32,
    ) {
        for (position, mine) in problem.classes[class].involved.iter().enumerate() {
            if let Place::Domain(domain) = place(position, mine) {
                let matched = if mine.matched { copies } else { 0 };
                let owners = if mine.owner { copies } else { 0 };
                let before = self.counts[mine.group].add(domain, matched, owners);
                self.record(|| Undo::Counted(mine.group, domain, before));
            }
        }
    }

    fn note_room(&mut self, problem: &Problem<'_>, node: NodeId) {
        if let Some(position) = problem.position_of(node) {
            self.rooms.set(position, &self.room[node]);
        }
    }

    /// The first node from a position on in the order of trying that has room for a copy, and its position. Where devices
    /// are wanted, what a copy takes depends on the node, and all nodes are looked at.
    pub(crate) fn next_node(&self, problem: &Problem<'_>, from: usize, class: ClassId) -> Option<(usize, NodeId)> {
        let pods = &problem.classes[class];
        let position = if pods.devices.is_some() { from } else { self.rooms.next(from, &pods.shape.requests)? };
        Some((position, *problem.node_order.get(position)?))
    }

    fn assign(&mut self, problem: &Problem<'_>, assignment: Assignment) {
        self.near += usize::from(!problem.classes[assignment.class].affinity_sets.is_empty());
        self.assignments.push(assignment);
    }

    /// What all open machines cost, as nodes too.
    pub(crate) fn price(&self) -> i128 {
        self.price
    }

    /// Whether anything was placed that wants to be near to others.
    pub(crate) fn has_affinity(&self) -> bool {
        self.near > 0
    }

    /// Which domains got pods since the mark.
    pub(crate) fn counted_since(&self, mark: &Mark) -> impl Iterator<Item = (GroupId, DomainId)> + '_ {
        self.journal.iter().skip(mark.journal).filter_map(|undo| match undo {
            Undo::Counted(group, domain, _) => Some((*group, *domain)),
            Undo::Room(..) | Undo::Devices(_) | Undo::Attached(..) | Undo::Opened | Undo::Changed(..) => None,
        })
    }

    /// Puts copies onto a node; the caller has asked [`Self::copies_on_node`].
    pub(crate) fn place_on_node(&mut self, problem: &Problem<'_>, node: NodeId, class: ClassId, copies: u32) {
        let before = self.room[node].clone();
        let variant = if problem.classes[class].devices.is_some() { problem.variant_on(class, node) } else { 0 };
        let requests = problem.classes[class].requests(variant);
        for (resource, amount) in requests.iter() {
            let left = self.room[node].get(resource).saturating_sub(amount.saturating_mul(i64::from(copies)));
            self.room[node].set(resource, left);
        }
        if !problem.shared_volumes.of(class).is_empty() {
            for (resource, amount) in problem.shared_volumes.extra(class, &self.attached[node]) {
                let left = self.room[node].get(resource).saturating_sub(amount);
                self.room[node].set(resource, left);
            }
            let before = self.attached[node].clone();
            problem.shared_volumes.attach(class, &mut self.attached[node]);
            self.record(|| Undo::Attached(node, before));
        }
        if let Some(ways) = self.ways(problem, Spot::Node(node), class, variant, copies)
            && let Some(devices) = &mut self.devices
        {
            let (extra, before) = devices.take_on_node(problem, node, (class, variant), &ways, copies);
            self.room[node].saturating_sub_assign(&extra);
            self.record(|| Undo::Devices(before));
        }
        self.record(|| Undo::Room(node, before));
        self.note_room(problem, node);
        self.count(problem, class, |_, mine| problem.topology.place_of_node(mine.group, node), copies);
        self.assign(problem, Assignment { class, target: Target::Node(node), copies });
    }

    /// Copies of the class that an open machine takes in the given way, at most `wanted`.
    pub(crate) fn copies_in_bin(
        &mut self,
        problem: &Problem<'_>,
        bin: BinId,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let wanted = self.copies_allowed(problem, Some(bin), class, alternative, wanted);
        if wanted == 0 {
            return 0;
        }
        self.with_buffers(|state, candidates, trial| {
            let Some(held) = state.bins.get(bin.0) else { return 0 };
            candidates.clone_from(&held.offerings);
            candidates.intersect_with(&alternative.offerings);
            let table = &problem.pools[held.pool];
            if !state.open_labels_agree(table, held, alternative, candidates, problem.names()) {
                return 0;
            }
            let most = Trial { problem, pool: held.pool, bin: Some((bin, held)), class, alternative, ways: None };
            state.most(most, candidates, trial, wanted)
        })
    }

    /// Copies of the class that a new machine of the pool takes in the given way, at most `wanted`.
    pub(crate) fn copies_in_new_bin(
        &mut self,
        problem: &Problem<'_>,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let wanted = self.copies_allowed(problem, None, class, alternative, wanted);
        if wanted == 0 {
            return 0;
        }
        self.with_buffers(|state, candidates, trial| {
            candidates.clone_from(&alternative.offerings);
            state.drop_exhausted_reservations(problem, pool, candidates);
            let most = Trial { problem, pool, bin: None, class, alternative, ways: None };
            state.most(most, candidates, trial, wanted)
        })
    }

    /// Runs a trial on the two buffers that all trials share.
    fn with_buffers(&mut self, run: impl FnOnce(&Self, &mut IdSet<OfferingId>, &mut IdSet<OfferingId>) -> u32) -> u32 {
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut trial = std::mem::take(&mut self.trial);
        let copies = run(self, &mut candidates, &mut trial);
        (self.candidates, self.trial) = (candidates, trial);
        copies
    }

    /// The largest number of copies, at most `wanted`, that leaves an offering of `candidates`. What devices say is asked
    /// for no more copies than the rest allows.
    fn most(
        &self,
        trial: Trial<'_, '_>,
        candidates: &IdSet<OfferingId>,
        buffer: &mut IdSet<OfferingId>,
        wanted: u32,
    ) -> u32 {
        let most = at_most(wanted, |copies| self.fits(&trial, candidates, buffer, copies));
        if most == 0 || trial.problem.classes[trial.class].devices.is_none() {
            return most;
        }
        let Some(ways) = self.ways(trial.problem, trial.spot(), trial.class, trial.alternative.variant, most) else {
            return most;
        };
        let trial = Trial { ways: Some(&ways), ..trial };
        at_most(most.min(ways.most()), |copies| self.fits(&trial, candidates, buffer, copies))
    }

    fn fits(
        &self,
        trial: &Trial<'_, '_>,
        candidates: &IdSet<OfferingId>,
        buffer: &mut IdSet<OfferingId>,
        copies: u32,
    ) -> bool {
        let (problem, pool) = (trial.problem, trial.pool);
        let table = &problem.pools[pool];
        let bin = trial.bin.map(|(_, bin)| bin);
        buffer.clone_from(candidates);
        for (resource, amount) in trial.requests().iter() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let Some(total) = amount.checked_mul(i64::from(copies)).and_then(|more| held.checked_add(more)) else {
                return false;
            };
            let Some(at_least) = table.at_least(resource, total) else { return false };
            buffer.intersect_with(at_least);
        }
        for (resource, amount) in trial.extra() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let own = trial.requests().get(resource).saturating_mul(i64::from(copies));
            let total = held.saturating_add(own).saturating_add(amount);
            let Some(at_least) = table.at_least(resource, total) else { return false };
            buffer.intersect_with(at_least);
        }
        let holds = |open: &IdSet<OfferingId>| {
            !open.is_empty() && table.has_min_values(open) && self.within_limits(table, pool, bin, open)
        };
        let costs = bin.is_some_and(|bin| bin.devices.is_some());
        if trial.ways.is_none() && !costs {
            return holds(buffer);
        }
        let requests = trial.requests_with(copies);
        let Some(ways) = trial.ways else {
            narrow(buffer, table, &requests, bin, None);
            return holds(buffer);
        };
        let is_new = trial.bin.is_none();
        ways.ways.iter().filter(|way| way.copies >= copies && self.is_allowed(way, is_new)).any(|way| {
            let mut open = buffer.clone();
            narrow(&mut open, table, &requests, bin, Some((way, copies)));
            holds(&open)
        })
    }

    /// Whether a way may be taken: at new machines those of a low score may be left out.
    fn is_allowed(&self, way: &super::devices::Way, is_new: bool) -> bool {
        !is_new || self.devices.as_ref().is_none_or(|devices| way.score >= devices.least_score)
    }

    fn within_limits(
        &self,
        table: &PoolTable<'_>,
        pool: PoolRank,
        bin: Option<&Bin>,
        open: &IdSet<OfferingId>,
    ) -> bool {
        if table.limits.is_empty() || table.limits.have_room_for(1, &self.charges[pool]) {
            return true;
        }
        let mut used = self.charges[pool].clone();
        if let Some(bin) = bin {
            limits::sub(&mut used, &bin.charge);
        }
        limits::add(&mut used, &self.charge(table, open));
        table.limits.exceeded(&used).is_none()
    }

    fn charge(&self, table: &PoolTable<'_>, open: &IdSet<OfferingId>) -> Amounts {
        match self.charging {
            _ if table.limits.is_empty() => Amounts::new(),
            // All types that a minValues needs stay on the claim, so the largest of them counts.
            _ if !table.min_values.is_empty() => {
                table.limits.most(&table.limits.least_until(open, |kept| table.has_min_values(kept)))
            }
            Charging::Least => table.limits.least(open),
            Charging::Bound => table.limits.bound(open),
        }
    }

    /// Narrows `offerings` by what bin and class ask of open labels; false if nothing can satisfy both.
    fn open_labels_agree(
        &self,
        table: &PoolTable<'_>,
        bin: &Bin,
        alternative: &Alternative,
        offerings: &mut IdSet<OfferingId>,
        names: &Interner,
    ) -> bool {
        if alternative.open.is_empty() {
            return true;
        }
        let mut open = bin.open.clone();
        open.intersect(&alternative.open, names);
        if open.first_empty(names).is_some() {
            return false;
        }
        table.retain_open(offerings, &open, names);
        !offerings.is_empty()
    }

    fn drop_exhausted_reservations(&self, problem: &Problem<'_>, pool: PoolRank, offerings: &mut IdSet<OfferingId>) {
        for (id, left) in &self.reservations {
            if *left <= 0 {
                offerings.difference_with(problem.reserved(pool, *id));
            }
        }
    }

    /// Puts copies into an open machine; the caller has asked [`Self::copies_in_bin`].
    pub(crate) fn place_in_bin(
        &mut self,
        problem: &Problem<'_>,
        id: BinId,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
    ) {
        let placed = self.try_place_in_bin(problem, id, class, alternative, copies, Pick::Cheapest);
        debug_assert!(placed, "the caller has asked whether there is room");
    }

    /// Puts copies into an open machine, their devices picked in this way; false if that does not go.
    pub(crate) fn try_place_in_bin(
        &mut self,
        problem: &Problem<'_>,
        id: BinId,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
        pick: Pick,
    ) -> bool {
        let Some(slot) = self.bins.get_mut(id.0) else { return false };
        // It is changed where it is, unless it may be wanted back. Devices read what the machine was before.
        let (mut bin, before) = if self.marks > 0 || self.devices.is_some() {
            (slot.clone(), Some(Box::new(slot.clone())))
        } else {
            let nothing = Bin::new(slot.pool, IdSet::default(), Requirements::default());
            (std::mem::replace(slot, nothing), None)
        };
        let table = &problem.pools[bin.pool];
        let taken = self.footprint(problem, &bin);
        bin.offerings.intersect_with(&alternative.offerings);
        if !alternative.open.is_empty() {
            bin.open.intersect(&alternative.open, problem.names());
            let open = bin.open.clone();
            table.retain_open(&mut bin.offerings, &open, problem.names());
        }
        let is_filled = self.fill(problem, &mut bin, Spot::Bin(id), class, alternative, copies, pick);
        debug_assert!(is_filled || before.is_some(), "only devices can refuse");
        if !is_filled {
            return false;
        }
        self.account(problem, id, Some(&taken), Some(&bin));
        if let Some(slot) = self.bins.get_mut(id.0) {
            *slot = bin;
        }
        if let Some(before) = before {
            self.record(|| Undo::Changed(id, before));
        }
        self.count(problem, class, |position, mine| place_in_bin(problem, id, alternative, position, mine), copies);
        self.assign(problem, Assignment { class, target: Target::Bin(id), copies });
        true
    }

    /// Opens a machine with copies in it; the caller has asked [`Self::copies_in_new_bin`].
    pub(crate) fn open_bin(
        &mut self,
        problem: &Problem<'_>,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
    ) {
        let opened = self.try_open_bin(problem, pool, class, alternative, copies, Pick::Cheapest);
        debug_assert!(opened, "the caller has asked whether there is room");
    }

    /// Opens a machine with copies in it, their devices picked in this way; false if that does not go.
    pub(crate) fn try_open_bin(
        &mut self,
        problem: &Problem<'_>,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
        pick: Pick,
    ) -> bool {
        let mut offerings = alternative.offerings.clone();
        self.drop_exhausted_reservations(problem, pool, &mut offerings);
        let mut bin = Bin::new(pool, offerings, alternative.open.clone());
        if !self.fill(problem, &mut bin, Spot::New(pool), class, alternative, copies, pick) {
            return false;
        }
        let id = BinId(self.bins.len());
        self.account(problem, id, None, Some(&bin));
        self.bins.push(bin);
        self.record(|| Undo::Opened);
        self.count(problem, class, |position, mine| place_in_bin(problem, id, alternative, position, mine), copies);
        self.assign(problem, Assignment { class, target: Target::Bin(id), copies });
        true
    }

    #[expect(clippy::too_many_arguments, reason = "one placement, from the two ways to make it")]
    fn fill(
        &mut self,
        problem: &Problem<'_>,
        bin: &mut Bin,
        spot: Spot,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
        pick: Pick,
    ) -> bool {
        let table = &problem.pools[bin.pool];
        for (resource, amount) in problem.classes[class].requests(alternative.variant).iter() {
            let total = bin.requests.get(resource).saturating_add(amount.saturating_mul(i64::from(copies)));
            bin.requests.set(resource, total);
            match table.at_least(resource, total) {
                Some(at_least) => bin.offerings.intersect_with(at_least),
                None => bin.offerings.clear(),
            }
        }
        if !problem.shared_volumes.of(class).is_empty() {
            for (resource, amount) in problem.shared_volumes.extra(class, &bin.attached) {
                let total = bin.requests.get(resource).saturating_add(amount);
                bin.requests.set(resource, total);
                match table.at_least(resource, total) {
                    Some(at_least) => bin.offerings.intersect_with(at_least),
                    None => bin.offerings.clear(),
                }
            }
            problem.shared_volumes.attach(class, &mut bin.attached);
        }
        if self.devices.is_some() && !self.fill_devices(problem, bin, spot, class, alternative.variant, copies, pick) {
            return false;
        }
        let key = (class, alternative.index);
        match bin.contents.iter_mut().find(|(held, held_index, _)| (*held, *held_index) == key) {
            Some((_, _, held)) => *held += copies,
            None => bin.contents.push((class, alternative.index, copies)),
        }
        bin.kind = fast_hash(&(bin.pool, &bin.contents));
        bin.charge = self.charge(table, &bin.offerings);
        bin.measure(table);
        true
    }

    /// Gives the copies their devices and narrows the machine to where they are; false if there is no way.
    #[expect(clippy::too_many_arguments, reason = "the second half of a placement")]
    fn fill_devices(
        &mut self,
        problem: &Problem<'_>,
        bin: &mut Bin,
        spot: Spot,
        class: ClassId,
        variant: usize,
        copies: u32,
        pick: Pick,
    ) -> bool {
        let table = &problem.pools[bin.pool];
        let ways = self.ways(problem, spot, class, variant, copies);
        let Some(ways) = ways else {
            // Pods without claims on a machine whose devices cost something, or that has fewer shapes left.
            let mut offerings = std::mem::take(&mut bin.offerings);
            narrow(&mut offerings, table, &bin.requests, Some(bin), None);
            bin.offerings = offerings;
            if let Some(devices) = self.devices.as_mut().filter(|_| bin.devices.is_some()) {
                devices.release(problem, bin);
            }
            return true;
        };
        let is_new = matches!(spot, Spot::New(_));
        let mut best: Option<(PriceNanoUsdPerHour, std::cmp::Reverse<usize>, usize)> = None;
        for (index, way) in ways.ways.iter().enumerate() {
            let is_picked = match pick {
                Pick::Cheapest => self.is_allowed(way, is_new),
                Pick::Only(only, _) => index == only,
            };
            if way.copies < copies || !is_picked {
                continue;
            }
            let mut open = bin.offerings.clone();
            narrow(&mut open, table, &bin.requests, Some(bin), Some((way, copies)));
            if let Pick::Only(_, Some(shape)) = pick {
                table.shapes.keep(&mut open, shape);
            }
            let Some(&cheapest) = table.by_price.iter().find(|&&offering| open.contains(offering)) else { continue };
            let before = spot_bin(&self.bins, spot);
            if !table.has_min_values(&open) || !self.within_limits(table, bin.pool, before, &open) {
                continue;
            }
            let this = (table.price(cheapest), std::cmp::Reverse(open.count()), index);
            if best.is_none_or(|best| this < best) {
                best = Some(this);
            }
        }
        let way = best.and_then(|(_, _, index)| ways.ways.get(index));
        let (Some(way), Some(devices)) = (way, &mut self.devices) else { return false };
        let mut offerings = std::mem::take(&mut bin.offerings);
        narrow(&mut offerings, table, &bin.requests, Some(bin), Some((way, copies)));
        bin.offerings = offerings;
        let shape = match pick {
            Pick::Cheapest => None,
            Pick::Only(_, shape) => shape,
        };
        devices.take_in_bin(problem, bin, (class, variant), way, copies, shape);
        devices.release(problem, bin);
        true
    }

    /// Decides labels of an open machine for the sake of what it brings for others; false if it can't have them.
    pub(crate) fn pin_bin(&mut self, problem: &Problem<'_>, id: BinId, pins: &Requirements) -> bool {
        let Some(before) = self.bins.get(id.0).cloned() else { return false };
        let mut bin = before.clone();
        let table = &problem.pools[bin.pool];
        let taken = self.footprint(problem, &before);
        bin.offerings = pinned(problem, &bin, pins);
        let is_possible = !bin.offerings.is_empty() && table.has_min_values(&bin.offerings);
        if !is_possible || !self.within_limits(table, bin.pool, Some(&before), &bin.offerings) {
            return false;
        }
        bin.open.intersect(pins, problem.names());
        if let Some(devices) = &mut self.devices {
            devices.release(problem, &mut bin);
        }
        bin.charge = self.charge(table, &bin.offerings);
        bin.measure(table);
        self.account(problem, id, Some(&taken), Some(&bin));
        if let Some(slot) = self.bins.get_mut(id.0) {
            *slot = bin;
        }
        self.record(|| Undo::Changed(id, Box::new(before)));
        true
    }

    /// What a machine takes of limits and reservations, and whom it is like.
    fn footprint(&self, problem: &Problem<'_>, bin: &Bin) -> Footprint {
        let draws_on = |(id, _): &(ValueId, i64)| problem.reserved(bin.pool, *id).intersects(&bin.offerings);
        Footprint {
            pool: bin.pool,
            price: bin.price,
            kind: bin.kind,
            charge: bin.charge.clone(),
            reservations: self.reservations.iter().map(draws_on).collect(),
        }
    }

    /// Moves what a machine takes from its old to its new state.
    fn account(&mut self, problem: &Problem<'_>, id: BinId, before: Option<&Footprint>, after: Option<&Bin>) {
        if let Some(before) = before {
            self.price -= i128::from(before.price.0);
            self.alike.remove(before.kind, id);
            limits::sub(&mut self.charges[before.pool], &before.charge);
            self.draw(before, 1);
        }
        let nothing = ResourceVec::default();
        self.slack.set(id.0, after.map_or(&nothing, |after| &after.slack));
        if let Some(after) = after.map(|after| self.footprint(problem, after)) {
            self.price += i128::from(after.price.0);
            self.alike.insert(after.kind, id);
            limits::add(&mut self.charges[after.pool], &after.charge);
            self.draw(&after, -1);
        }
    }

    fn draw(&mut self, footprint: &Footprint, each: i64) {
        for ((_, left), draws) in self.reservations.iter_mut().zip(&footprint.reservations) {
            *left += if *draws { each } else { 0 };
        }
    }

    /// Whether the open machines can all be settled within the limits; exact unless `steps` run out.
    pub(crate) fn limits_hold(&self, problem: &Problem<'_>, steps: u64) -> bool {
        problem.pools.iter_enumerated().all(|(rank, table)| {
            if table.limits.is_empty() || !table.min_values.is_empty() {
                return table.limits.exceeded(&self.charges[rank]).is_none();
            }
            let machines: Vec<&IdSet<OfferingId>> =
                self.bins.iter().filter(|bin| bin.pool == rank).map(|bin| &bin.offerings).collect();
            table.limits.choose(&machines, steps).is_some()
        })
    }

    /// What the open machines take of a pool's limits.
    pub(crate) fn charges(&self, pool: PoolRank) -> &Amounts {
        &self.charges[pool]
    }

    /// Makes what is placed now the start of every later search: pods that stay where an earlier plan put them.
    pub(crate) fn settle_start(&mut self) {
        self.start.clone_from(&self.room);
        self.start_counts.clone_from(&self.counts);
        self.start_devices.clone_from(&self.devices);
        self.start_attached.clone_from(&self.attached);
        self.assignments.clear();
        self.near = 0;
    }

    /// A state with nothing placed, for a search over everything that this one has placed.
    pub(crate) fn emptied(&self, problem: &Problem<'_>) -> Self {
        let mut state = Self::new(problem, Charging::Bound);
        state.checking = Checking::AtTheEnd;
        state.room.clone_from(&self.start);
        state.rooms = problem.rooms_of(&self.start);
        state.start.clone_from(&self.start);
        state.counts.clone_from(&self.start_counts);
        state.start_counts.clone_from(&self.start_counts);
        state.attached.clone_from(&self.start_attached);
        state.start_attached.clone_from(&self.start_attached);
        state.devices.clone_from(&self.start_devices);
        state.start_devices.clone_from(&self.start_devices);
        state
    }

    /// Counts what is placed in another way from here on.
    pub(crate) fn recharge(&mut self, problem: &Problem<'_>, charging: Charging) {
        self.charging = charging;
        for (rank, table) in problem.pools.iter_enumerated() {
            self.charges[rank] = table.limits.zero();
        }
        let mut bins = std::mem::take(&mut self.bins);
        for bin in &mut bins {
            bin.charge = self.charge(&problem.pools[bin.pool], &bin.offerings);
            limits::add(&mut self.charges[bin.pool], &bin.charge);
        }
        self.bins = bins;
    }
}

/// A question about one machine: how many copies of a class, in which way.
#[derive(Clone, Copy)]
struct Trial<'a, 's> {
    problem: &'a Problem<'s>,
    pool: PoolRank,
    /// An open machine; `None` for a new one.
    bin: Option<(BinId, &'a Bin)>,
    class: ClassId,
    alternative: &'a Alternative,
    /// How the copies can have their devices, once that is asked.
    ways: Option<&'a Ways>,
}

impl<'a> Trial<'a, '_> {
    fn requests(&self) -> &'a ResourceVec {
        self.problem.classes[self.class].requests(self.alternative.variant)
    }

    /// What the machine's pods request together with more copies.
    fn requests_with(&self, copies: u32) -> ResourceVec {
        let mut total = self.bin.map(|(_, bin)| bin.requests.clone()).unwrap_or_default();
        for (resource, amount) in self.requests().iter() {
            let more = amount.saturating_mul(i64::from(copies));
            total.set(resource, total.get(resource).saturating_add(more));
        }
        for (resource, amount) in self.extra() {
            total.set(resource, total.get(resource).saturating_add(amount));
        }
        total
    }

    /// What volumes take that are shared with others and not attached yet.
    fn extra(&self) -> SmallVec<[(ResourceId, i64); 2]> {
        let attached = self.bin.map_or(&[][..], |(_, bin)| &bin.attached);
        self.problem.shared_volumes.extra(self.class, attached)
    }

    fn spot(&self) -> Spot {
        self.bin.map_or(Spot::New(self.pool), |(id, _)| Spot::Bin(id))
    }
}

fn spot_bin(bins: &[Bin], spot: Spot) -> Option<&Bin> {
    match spot {
        Spot::Bin(id) => bins.get(id.0),
        Spot::Node(_) | Spot::New(_) => None,
    }
}

/// How often `requests` fits, at most `wanted`; most of the time not at all.
fn times_in(requests: &ResourceVec, room: &ResourceVec, wanted: u32) -> u32 {
    match wanted {
        _ if !requests.fits_in(room) => 0,
        0 | 1 => wanted,
        _ => requests.times_in(room, wanted),
    }
}

/// The largest number up to `wanted` for which something holds that holds for all smaller ones.
fn at_most(wanted: u32, mut holds: impl FnMut(u32) -> bool) -> u32 {
    if wanted == 0 || !holds(1) {
        return 0;
    }
    if holds(wanted) {
        return wanted;
    }
    let (mut most, mut too_many) = (1, wanted);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if holds(middle) { most = middle } else { too_many = middle }
    }
    most
}

/// Where a machine is for one involvement of a class that is in it by an alternative.
fn place_in_bin(
    problem: &Problem<'_>,
    bin: BinId,
    alternative: &Alternative,
    position: usize,
    mine: &Involvement,
) -> Place {
    match alternative.places.get(position).copied().unwrap_or(Place::Outside) {
        Place::OwnHost => Place::Domain(problem.topology.groups[mine.group].host_of(bin)),
        place => place,
    }
}
