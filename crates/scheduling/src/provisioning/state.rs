//! What has been placed so far: the free room of existing nodes, the open machines, and what these take of limits and
//! reservations. All changes go through a journal, so that the search can go back to a mark; nothing is undone by hand.
//!
//! Here is what is held and how it is gone back to; `nodes` and `bins` place copies, `trial` asks how many there is room for.

mod bins;
mod nodes;
mod trial;

use std::{cell::Cell, rc::Rc, sync::Arc};

use model::{
    IdSet, IdVec, PriceNanoUsdPerHour, Requirements, ResourceId, ResourceVec, ValueId,
    collections::{FastMap, fast_hash},
};
use smallvec::SmallVec;

use super::{
    alike::Alike,
    attachments::Attached,
    classes::{ClassId, PodClass},
    devices::{BinDevices, DeviceMark, DeviceState, NodeBefore, Spot, Ways},
    growth::Growths,
    host_rooms::HostRooms,
    limits::{self, Amounts},
    pools::{Alternative, PoolRank, PoolTable},
    problem::Problem,
    reservations::Reserving,
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
    /// Whether it has to be there for pods that need a host each.
    pub(crate) is_forced: bool,
    /// Equal for machines of a pool with the same offerings and requests.
    shape: u64,
    /// Of which sets of offerings it is known that it has none, a bit for each of the pool's first 64: it only gets fewer.
    elsewhere: Cell<u64>,
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
            is_forced: false,
            shape: 0,
            elsewhere: Cell::new(0),
        }
    }

    /// Equal for machines that can become larger for the same copies at the same prices; `None` where more than requests matters.
    pub(crate) fn shape(&self) -> Option<(PoolRank, u64)> {
        let is_plain = self.open.is_empty() && self.devices.is_none() && !self.shares_volumes();
        is_plain.then_some((self.pool, self.shape))
    }

    /// Whether it has none of the offerings of an alternative: mostly it is in another zone.
    pub(crate) fn is_elsewhere(&self, table: &PoolTable<'_>, alternative: &Alternative) -> bool {
        let set = table.fits[alternative.fit].set;
        let bit = if set < 64 { 1 << set } else { 0 };
        if self.elsewhere.get() & bit != 0 {
            return true;
        }
        let is_elsewhere = self.offerings.is_disjoint(&alternative.offerings);
        if is_elsewhere {
            self.elsewhere.set(self.elsewhere.get() | bit);
        }
        is_elsewhere
    }

    /// Whether pods on it use volumes that others use too.
    pub(crate) fn shares_volumes(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Leaves the offerings that hold so much more of a resource.
    fn request(&mut self, table: &PoolTable<'_>, resource: ResourceId, more: i64) {
        let total = self.requests.get(resource).saturating_add(more);
        self.requests.set(resource, total);
        match table.at_least(resource, total) {
            Some(at_least) => self.offerings.intersect_with(at_least),
            None => self.offerings.clear(),
        }
    }

    /// Sets price, slack and shape from what is left of the offerings.
    fn measure(&mut self, table: &PoolTable<'_>) {
        self.shape = fast_hash(&(&self.offerings, &self.requests));
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Node(NodeId),
    Bin(BinId),
}

/// Copies of a class at a target, in the order of placing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) class: ClassId,
    pub(crate) target: Target,
    /// The position of the alternative in a machine's pool.
    pub(crate) alternative: usize,
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
    /// Larger sizes of open machines, as far as they were asked for.
    pub(crate) growths: Growths,
    /// What rules over hosts let onto open machines, as far as that was asked.
    pub(crate) host_rooms: HostRooms,
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
    /// What is left of each reservation.
    reservations: Vec<(ValueId, i64)>,
    /// On which of them machines that are opened now may draw.
    pub(crate) reserving: Reserving,
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
    /// An assignment had so many copies more.
    Unassigned(usize, u32),
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
            growths: Growths::default(),
            host_rooms: HostRooms::default(),
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
            reserving: Reserving::All,
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
                Some(Undo::Unassigned(index, copies)) => {
                    if let Some(assignment) = self.assignments.get_mut(index) {
                        assignment.copies += copies;
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

    /// The same by rules over labels alone, so the most for any machine that is there by the alternative.
    pub(crate) fn copies_allowed_by_labels(
        &self,
        problem: &Problem<'_>,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let class = &problem.classes[class];
        if class.involved.is_empty() {
            return wanted;
        }
        let place = |position: usize, _: &Involvement| match alternative.places.get(position) {
            Some(Place::OwnHost) => None,
            Some(place) => Some(*place),
            None => Some(Place::Outside),
        };
        self.room_where_known(problem, class, place, wanted)
    }

    /// The same for an open machine, if rules over labels allow `wanted` there.
    pub(crate) fn copies_allowed_on_host(
        &self,
        problem: &Problem<'_>,
        bin: BinId,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let pods = &problem.classes[class];
        // All terms of an affinity count together.
        if !pods.affinity_sets.is_empty() {
            return self.copies_allowed(problem, Some(bin), class, alternative, wanted);
        }
        let place = |position: usize, mine: &Involvement| match alternative.places.get(position) {
            Some(Place::OwnHost) => Some(Place::Domain(problem.topology.groups[mine.group].host_of(bin))),
            Some(_) | None => None,
        };
        self.room_where_known(problem, pods, place, wanted)
    }

    fn coupled_room(
        &self,
        problem: &Problem<'_>,
        class: &PodClass,
        place: impl Fn(usize, &Involvement) -> Place,
        wanted: u32,
    ) -> u32 {
        self.room_where_known(problem, class, |position, mine| Some(place(position, mine)), wanted)
    }

    fn room_where_known(
        &self,
        problem: &Problem<'_>,
        class: &PodClass,
        place: impl Fn(usize, &Involvement) -> Option<Place>,
        wanted: u32,
    ) -> u32 {
        let is_there = |&(position, domain): &(usize, DomainId)| {
            let mine = class.involved.get(position);
            mine.is_some_and(|mine| place(position, mine).is_none_or(|place| place == Place::Domain(domain)))
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

    /// Where copies of a class are, for one of its involvements.
    pub(crate) fn place_of(&self, problem: &Problem<'_>, of: &Assignment, position: usize) -> Place {
        let Some(mine) = problem.classes[of.class].involved.get(position) else { return Place::Outside };
        match of.target {
            Target::Node(node) => problem.topology.place_of_node(mine.group, node),
            Target::Bin(id) => {
                let pool = self.bins.get(id.0).map(|bin| &problem.pools[bin.pool]);
                let alternative = pool.and_then(|pool| pool.by_class[of.class].get(of.alternative));
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

    fn assign(&mut self, problem: &Problem<'_>, assignment: Assignment) {
        self.near += usize::from(!problem.classes[assignment.class].affinity_sets.is_empty());
        self.assignments.push(assignment);
    }

    /// Takes copies of a class from where they were put by that alternative.
    fn unassign(&mut self, class: ClassId, target: Target, alternative: usize, mut copies: u32) {
        for index in (0..self.assignments.len()).rev() {
            let Some(assignment) = self.assignments.get_mut(index) else { break };
            if (assignment.class, assignment.target, assignment.alternative) != (class, target, alternative) {
                continue;
            }
            let taken = assignment.copies.min(copies);
            assignment.copies -= taken;
            copies -= taken;
            self.record(|| Undo::Unassigned(index, taken));
            if copies == 0 {
                break;
            }
        }
    }

    /// Makes one of assignments that differ in copies only, in the order of the first; while nothing can be undone.
    pub(crate) fn merge_assignments(&mut self, problem: &Problem<'_>) {
        let mut first: FastMap<(ClassId, Target, usize), usize> = FastMap::default();
        let mut merged: Vec<Assignment> = Vec::new();
        for assignment in self.assignments.drain(..) {
            let key = (assignment.class, assignment.target, assignment.alternative);
            let position = *first.entry(key).or_insert(merged.len());
            match merged.get_mut(position) {
                Some(known) => known.copies += assignment.copies,
                None => merged.push(assignment),
            }
        }
        self.near = 0;
        for assignment in merged {
            self.assign(problem, assignment);
        }
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
            Undo::Room(..)
            | Undo::Devices(_)
            | Undo::Attached(..)
            | Undo::Opened
            | Undo::Changed(..)
            | Undo::Unassigned(..) => None,
        })
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
        self.growths.forget(id);
        self.host_rooms.forget(id);
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

    /// What is left of each reservation, in the order of the problem's.
    pub(crate) fn reservations_left(&self) -> &[(ValueId, i64)] {
        &self.reservations
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
