//! What a plan in the making holds: the free room of existing nodes, the open machines, and what these take of limits
//! and reservations. It is changed by [`Packing`](super::Packing) alone.

use std::{cell::Cell, sync::Arc};

use model::{
    IdSet, IdVec, Journal, PriceNanoUsdPerHour, Requirements, ResourceId, ResourceVec, ValueId, collections::fast_hash,
    journal,
};
use smallvec::SmallVec;

use super::alike::Alike;
use super::devices::{BinDevices, DeviceMark, DeviceState, NodeBefore};
use super::host_rooms::HostRooms;
use super::plan_run::PlanRun;
use super::vacate::Vacated;
use crate::simulation::compile::attachments::Attached;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::limits::Amounts;
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::residual_capacity::SlackTree;
use crate::simulation::packing::upsizing::Growths;
use crate::simulation::topology::{AllCounts, AllDomains, Before, DomainId, GroupId, Involvement, Place, set_domains};
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
    pub(super) attached: Attached,
    /// What it takes of the pool's limits at least.
    pub(super) charge: Amounts,
    /// The number of its contents: machines with equal contents have equal numbers.
    pub(super) kind: u64,
    /// Whether a machine has to exist because pods need a host each.
    pub(crate) is_forced: bool,
    /// A number that is equal for machines of a pool with equal offerings and requests.
    shape: u64,
    /// Bit `i` is set if the machine is known to have no offering of the pool's set `i`, of the first 64 sets. This
    /// stays true, because a machine only loses offerings.
    elsewhere: Cell<u64>,
}

/// What a machine takes of limits and reservations.
#[derive(Debug)]
pub(super) struct Footprint {
    pub(super) pool: PoolRank,
    pub(super) price: PriceNanoUsdPerHour,
    pub(super) kind: u64,
    pub(super) charge: Amounts,
    /// By reservation: whether it may draw on it.
    pub(super) reservations: SmallVec<[bool; 4]>,
}

impl Bin {
    pub(super) fn new(pool: PoolRank, offerings: IdSet<OfferingId>, open: Requirements) -> Self {
        Self {
            pool,
            offerings,
            requests: ResourceVec::default(),
            open,
            contents: SmallVec::new(),
            // No offering costs less, so `measure` looks at all of them.
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

    /// A number that is equal for machines which can become larger for the same copies at the same prices; `None` where
    /// more than requests matters.
    pub(crate) fn shape(&self) -> Option<(PoolRank, u64)> {
        let is_plain = self.open.is_empty() && self.devices.is_none() && !self.shares_volumes();
        is_plain.then_some((self.pool, self.shape))
    }

    /// Whether it has no offering of an alternative; mostly it is in another zone.
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

    /// Keeps only the offerings with room for this much more of a resource.
    pub(super) fn request(&mut self, table: &PoolTable<'_>, resource: ResourceId, more: i64) {
        let total = self.requests.get(resource).saturating_add(more);
        self.requests.set(resource, total);
        match table.at_least(resource, total) {
            Some(at_least) => self.offerings.intersect_with(at_least),
            None => self.offerings.clear(),
        }
    }

    /// Sets price, residual capacity and shape from the offerings that are left.
    pub(super) fn measure(&mut self, table: &PoolTable<'_>) {
        self.shape = fast_hash(&(&self.offerings, &self.requests));
        // An offering below the price so far was too small before, and is so now.
        let open = table.at_least_at_price(self.price).iter().copied();
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
    /// Each limit by itself, so that nothing feasible is cut off; a leaf has to be checked with
    /// [`Packing::limits_hold`](super::Packing::limits_hold).
    Bound,
}

/// The state of one plan in the making.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) room: IdVec<NodeId, ResourceVec>,
    /// The room of nodes in the order of trying them.
    pub(super) rooms: SlackTree,
    pub(crate) bins: Vec<Bin>,
    pub(crate) assignments: Vec<Assignment>,
    /// Of all open machines.
    pub(super) price: i128,
    /// How many assignments are of classes with affinity.
    pub(super) near: usize,
    /// Open machines that hold the same.
    pub(crate) alike: Alike,
    /// Open machines by residual capacity.
    pub(crate) slack: SlackTree,
    /// Larger sizes of open machines, as far as they were asked for.
    pub(crate) growths: Growths,
    /// What rules over hosts let onto open machines, as far as that was asked.
    pub(crate) host_rooms: HostRooms,
    /// What rules that couple pods count.
    pub(crate) counts: AllCounts,
    pub(super) start_counts: AllCounts,
    /// Volumes on existing nodes that several pods use; empty if there are none.
    pub(super) attached: IdVec<NodeId, Attached>,
    pub(super) start_attached: IdVec<NodeId, Attached>,
    /// What is taken of devices; `None` if no pod wants any.
    pub(crate) devices: Option<DeviceState>,
    pub(super) start_devices: Option<DeviceState>,
    /// Room before any class was placed, but after pods that stay where an earlier plan put them.
    pub(super) start: IdVec<NodeId, ResourceVec>,
    pub(super) charging: Charging,
    pub(super) charges: IdVec<PoolRank, Amounts>,
    /// What is left of each reservation.
    pub(super) reservations: Vec<(ValueId, i64)>,
    pub(super) journal: Journal<Undo>,
    pub(super) candidates: IdSet<OfferingId>,
    pub(super) trial: IdSet<OfferingId>,
}

#[derive(Debug)]
pub(super) enum Undo {
    Room(NodeId, ResourceVec),
    Devices(NodeBefore),
    Attached(NodeId, Attached),
    Counted(GroupId, DomainId, Before),
    Vacated(Box<Vacated>),
    Opened,
    Changed(BinId, Box<Bin>),
    /// An assignment had this many copies more.
    Unassigned(usize, u32),
}

/// A state to go back to.
#[derive(Debug)]
#[must_use]
pub(crate) struct Mark {
    pub(super) journal: journal::Mark,
    pub(super) assignments: usize,
    pub(super) devices: Option<DeviceMark>,
}

impl State {
    pub(super) fn new(problem: &Problem<'_>, run: &PlanRun, charging: Charging) -> Self {
        let counts = problem.topology.start_in(run.domains());
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
            start_counts: counts.clone(),
            counts,
            attached: problem.shared_volumes.on_nodes.clone(),
            start_attached: problem.shared_volumes.on_nodes.clone(),
            devices: DeviceState::new(problem),
            start_devices: None,
            start: problem.room.clone(),
            charging,
            charges: problem.pools.iter().map(|table| table.limits.zero()).collect(),
            reservations: problem.reservations.clone(),
            journal: Journal::default(),
            candidates: IdSet::default(),
            trial: IdSet::default(),
        }
    }

    /// Checks rules with what the run has found out by now.
    pub(crate) fn learn(&mut self, run: &PlanRun) {
        self.count_over(run.domains());
    }

    /// Checks spreads over these domains from now on.
    pub(crate) fn count_over(&mut self, domains: &AllDomains) {
        set_domains(&mut self.counts, domains);
        set_domains(&mut self.start_counts, domains);
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
        self.journal.since(&mark.journal).iter().filter_map(|undo| match undo {
            Undo::Counted(group, domain, _) => Some((*group, *domain)),
            Undo::Room(..)
            | Undo::Devices(_)
            | Undo::Attached(..)
            // Pods that leave break no rule of others.
            | Undo::Vacated(_)
            | Undo::Opened
            | Undo::Changed(..)
            | Undo::Unassigned(..) => None,
        })
    }

    pub(super) fn draw(&mut self, footprint: &Footprint, each: i64) {
        for ((_, left), draws) in self.reservations.iter_mut().zip(&footprint.reservations) {
            *left += if *draws { each } else { 0 };
        }
    }

    /// Everything that a rollback restores: as text, and the devices now and at the start. Buffers are left out, and so
    /// is what is kept to find places faster: trees stay as large as they have become.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> (String, Option<DeviceState>, Option<DeviceState>) {
        let Self { room, bins, assignments, price, near, alike, counts, .. } = self;
        let Self { start_counts, attached, start_attached, devices, start_devices, start, .. } = self;
        let Self { charging, charges, reservations, journal, .. } = self;
        let placed = (room, bins, assignments, price, near, alike, counts, attached);
        let start = (start, start_counts, start_attached);
        let text = format!("{placed:?} {start:?} {:?}", (charging, charges, reservations, journal));
        (text, devices.clone(), start_devices.clone())
    }

    /// What is left of each reservation, in the order of the problem's.
    pub(crate) fn reservations_left(&self) -> &[(ValueId, i64)] {
        &self.reservations
    }

    /// What the open machines take of a pool's limits.
    pub(crate) fn charges(&self, pool: PoolRank) -> &Amounts {
        &self.charges[pool]
    }

    /// Makes what is placed now the start of every later search. Only pods that stay where an earlier plan put them are
    /// placed then.
    pub(crate) fn settle_start(&mut self) {
        self.start.clone_from(&self.room);
        self.start_counts.clone_from(&self.counts);
        self.start_devices.clone_from(&self.devices);
        self.start_attached.clone_from(&self.attached);
        self.assignments.clear();
        self.near = 0;
    }
}

/// Where a machine is for one involvement of a class that is in it by an alternative.
pub(super) fn place_in_bin(
    problem: &Problem<'_>,
    bin: BinId,
    alternative: &Alternative,
    position: usize,
    mine: &Involvement,
) -> Place {
    match alternative.places.get(position).copied().unwrap_or(Place::Outside) {
        Place::OwnHost => Place::Domain(problem.topology.groups[mine.group].host_of(bin.0)),
        place => place,
    }
}
