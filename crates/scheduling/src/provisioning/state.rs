//! What has been placed so far: the free room of existing nodes, the open machines, and what these take of limits and
//! reservations. All changes go through a journal, so that the search can go back to a mark; nothing is undone by hand.
//!
//! A trial ("how many more copies of this class does that machine hold") changes nothing and allocates nothing unless
//! the class asks for an open label.

use model::{IdSet, IdVec, Interner, PriceNanoUsdPerHour, Requirements, ResourceVec, ValueId};
use smallvec::SmallVec;

use super::{
    classes::{ClassId, PodClass},
    limits::{self, Amounts},
    pools::{Alternative, PoolRank, PoolTable},
    problem::Problem,
    topology::{self, AllCounts, Before, Checking, DomainId, GroupId, Involvement, Place},
};
use crate::{catalogue::OfferingId, snapshot::NodeId};

/// Index of an open machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// What it takes of the pool's limits at least.
    charge: Amounts,
}

impl Bin {
    /// Sets price and slack from what is left of the offerings.
    fn measure(&mut self, table: &PoolTable<'_>) {
        let mut open = table.by_price.iter().copied().filter(|&offering| self.offerings.contains(offering)).peekable();
        let Some(price) = open.peek().map(|&offering| table.price(offering)) else { return };
        let mut slack = ResourceVec::default();
        for offering in open.take_while(|&offering| table.price(offering) == price) {
            let mut free = table.net[offering].clone();
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
    pub(crate) bins: Vec<Bin>,
    pub(crate) assignments: Vec<Assignment>,
    /// What rules that couple pods count.
    pub(crate) counts: AllCounts,
    /// When skews and affinity are checked.
    pub(crate) checking: Checking,
    /// Domains to which a class is confined for the moment: (position among its involvements, domain).
    pub(crate) confined: SmallVec<[(usize, DomainId); 2]>,
    start_counts: AllCounts,
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
}

impl State {
    pub(crate) fn new(problem: &Problem<'_>, charging: Charging) -> Self {
        Self {
            room: problem.room.clone(),
            bins: Vec::new(),
            assignments: Vec::new(),
            counts: problem.topology.start(),
            checking: Checking::Stepwise,
            confined: SmallVec::new(),
            start_counts: problem.topology.start(),
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
        Mark { journal: self.journal.len(), assignments: self.assignments.len() }
    }

    /// Keeps everything since the mark.
    pub(crate) fn commit(&mut self, _mark: Mark) {
        self.marks -= 1;
        if self.marks == 0 {
            self.journal.clear();
        }
    }

    /// Undoes everything since the mark.
    pub(crate) fn rollback(&mut self, problem: &Problem<'_>, mark: Mark) {
        self.marks -= 1;
        while self.journal.len() > mark.journal {
            match self.journal.pop() {
                Some(Undo::Room(node, room)) => self.room[node] = room,
                Some(Undo::Counted(group, domain, before)) => self.counts[group].set(domain, before),
                Some(Undo::Opened) => {
                    if let Some(bin) = self.bins.pop() {
                        self.account(problem, Some(&bin), None);
                    }
                }
                Some(Undo::Changed(id, before)) => {
                    if let Some(slot) = self.bins.get_mut(id.0) {
                        let after = std::mem::replace(slot, (*before).clone());
                        self.account(problem, Some(&after), Some(&before));
                    }
                }
                None => break,
            }
        }
        self.assignments.truncate(mark.assignments);
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
        let class = &problem.classes[class];
        let copies = class.shape.requests.times_in(&self.room[node], wanted);
        if copies == 0 || class.involved.is_empty() {
            return copies;
        }
        self.coupled_room(problem, class, |_, mine| problem.topology.place_of_node(mine.group, node), copies)
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

    /// Puts copies onto a node; the caller has asked [`Self::copies_on_node`].
    pub(crate) fn place_on_node(&mut self, problem: &Problem<'_>, node: NodeId, class: ClassId, copies: u32) {
        let before = self.room[node].clone();
        let requests = &problem.classes[class].shape.requests;
        for (resource, amount) in requests.iter() {
            let left = self.room[node].get(resource).saturating_sub(amount.saturating_mul(i64::from(copies)));
            self.room[node].set(resource, left);
        }
        self.record(|| Undo::Room(node, before));
        self.count(problem, class, |_, mine| problem.topology.place_of_node(mine.group, node), copies);
        self.assignments.push(Assignment { class, target: Target::Node(node), copies });
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
            state.most(problem, held.pool, Some(held), class, candidates, trial, wanted)
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
            state.most(problem, pool, None, class, candidates, trial, wanted)
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

    /// The largest number of copies, at most `wanted`, that leaves an offering of `candidates`. Fewer copies never fit
    /// worse, so a binary search finds it.
    #[expect(clippy::too_many_arguments, reason = "one trial; the buffers are reused")]
    fn most(
        &self,
        problem: &Problem<'_>,
        pool: PoolRank,
        bin: Option<&Bin>,
        class: ClassId,
        candidates: &IdSet<OfferingId>,
        trial: &mut IdSet<OfferingId>,
        wanted: u32,
    ) -> u32 {
        let mut fits = |copies: u32| self.fits(problem, pool, bin, class, candidates, trial, copies);
        if wanted == 0 || !fits(1) {
            return 0;
        }
        if fits(wanted) {
            return wanted;
        }
        let (mut most, mut too_many) = (1, wanted);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            if fits(middle) { most = middle } else { too_many = middle }
        }
        most
    }

    #[expect(clippy::too_many_arguments, reason = "one trial; the buffers are reused")]
    fn fits(
        &self,
        problem: &Problem<'_>,
        pool: PoolRank,
        bin: Option<&Bin>,
        class: ClassId,
        candidates: &IdSet<OfferingId>,
        trial: &mut IdSet<OfferingId>,
        copies: u32,
    ) -> bool {
        let table = &problem.pools[pool];
        trial.clone_from(candidates);
        for (resource, amount) in problem.classes[class].shape.requests.iter() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let Some(total) = amount.checked_mul(i64::from(copies)).and_then(|more| held.checked_add(more)) else {
                return false;
            };
            let Some(at_least) = table.fit.at_least(resource, total) else { return false };
            trial.intersect_with(at_least);
        }
        !trial.is_empty() && table.has_min_values(trial) && self.within_limits(table, pool, bin, trial)
    }

    fn within_limits(
        &self,
        table: &PoolTable<'_>,
        pool: PoolRank,
        bin: Option<&Bin>,
        open: &IdSet<OfferingId>,
    ) -> bool {
        if table.limits.is_empty() {
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
        let Some(before) = self.bins.get(id.0).cloned() else { return };
        let mut bin = before.clone();
        let table = &problem.pools[bin.pool];
        bin.offerings.intersect_with(&alternative.offerings);
        if !alternative.open.is_empty() {
            bin.open.intersect(&alternative.open, problem.names());
            let open = bin.open.clone();
            table.retain_open(&mut bin.offerings, &open, problem.names());
        }
        self.fill(problem, &mut bin, class, alternative.index, copies);
        self.account(problem, Some(&before), Some(&bin));
        if let Some(slot) = self.bins.get_mut(id.0) {
            *slot = bin;
        }
        self.record(|| Undo::Changed(id, Box::new(before)));
        self.count(problem, class, |position, mine| place_in_bin(problem, id, alternative, position, mine), copies);
        self.assignments.push(Assignment { class, target: Target::Bin(id), copies });
    }

    /// Opens a machine with copies in it; the caller has asked [`Self::copies_in_new_bin`].
    pub(crate) fn open_bin(
        &mut self,
        problem: &Problem<'_>,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
    ) -> BinId {
        let mut offerings = alternative.offerings.clone();
        self.drop_exhausted_reservations(problem, pool, &mut offerings);
        let mut bin = Bin {
            pool,
            offerings,
            requests: ResourceVec::default(),
            open: alternative.open.clone(),
            contents: SmallVec::new(),
            price: PriceNanoUsdPerHour(0),
            slack: ResourceVec::default(),
            charge: Amounts::new(),
        };
        self.fill(problem, &mut bin, class, alternative.index, copies);
        self.account(problem, None, Some(&bin));
        let id = BinId(self.bins.len());
        self.bins.push(bin);
        self.record(|| Undo::Opened);
        self.count(problem, class, |position, mine| place_in_bin(problem, id, alternative, position, mine), copies);
        self.assignments.push(Assignment { class, target: Target::Bin(id), copies });
        id
    }

    fn fill(&self, problem: &Problem<'_>, bin: &mut Bin, class: ClassId, index: usize, copies: u32) {
        let table = &problem.pools[bin.pool];
        for (resource, amount) in problem.classes[class].shape.requests.iter() {
            let total = bin.requests.get(resource).saturating_add(amount.saturating_mul(i64::from(copies)));
            bin.requests.set(resource, total);
            match table.fit.at_least(resource, total) {
                Some(at_least) => bin.offerings.intersect_with(at_least),
                None => bin.offerings.clear(),
            }
        }
        match bin.contents.iter_mut().find(|(held, held_index, _)| (*held, *held_index) == (class, index)) {
            Some((_, _, held)) => *held += copies,
            None => bin.contents.push((class, index, copies)),
        }
        bin.charge = self.charge(table, &bin.offerings);
        bin.measure(table);
    }

    /// Moves what a bin takes of limits and reservations from its old to its new state.
    fn account(&mut self, problem: &Problem<'_>, before: Option<&Bin>, after: Option<&Bin>) {
        for (bin, taken) in [(before, false), (after, true)] {
            let Some(bin) = bin else { continue };
            let charges = &mut self.charges[bin.pool];
            if taken {
                limits::add(charges, &bin.charge)
            } else {
                limits::sub(charges, &bin.charge)
            }
            for (id, left) in &mut self.reservations {
                if problem.reserved(bin.pool, *id).intersects(&bin.offerings) {
                    *left += if taken { -1 } else { 1 };
                }
            }
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
        self.assignments.clear();
    }

    /// A state with nothing placed, for a search over everything that this one has placed.
    pub(crate) fn emptied(&self, problem: &Problem<'_>) -> Self {
        let mut state = Self::new(problem, Charging::Bound);
        state.checking = Checking::AtTheEnd;
        state.room.clone_from(&self.start);
        state.start.clone_from(&self.start);
        state.counts.clone_from(&self.start_counts);
        state.start_counts.clone_from(&self.start_counts);
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
