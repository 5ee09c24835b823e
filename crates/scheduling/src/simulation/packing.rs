//! What has been placed so far, and what that leaves.
//!
//! A [`Packing`] is a problem with the state of one plan in the making. It places copies of classes in existing nodes
//! (`nodes`) and in machines (`bins`), and tells how many more there is room for (`trial`). Pods that run on a node can
//! be taken out (`vacate`). All changes go through a journal, so that the search can go back to a mark; nothing is
//! undone by hand. What is held is in `state`.
//!
//! `binding` finds an order in which what is placed can be bound; `outside` keeps machines for others out of domains
//! that a spread would have to count because of them; `unopened` finds domains in which a finished plan opens no
//! machine.

pub(crate) mod alike;
pub(crate) mod binding;
mod bins;
pub(crate) mod devices;
pub(crate) mod host_rooms;
pub(crate) mod mode;
mod nodes;
pub(crate) mod outside;
pub(crate) mod plan_run;
pub(crate) mod state;
pub(crate) mod trial;
pub(crate) mod unopened;
pub(crate) mod upsizing;
mod vacate;

use std::rc::Rc;

use model::{Answer, IdSet, ResourceVec, ValueId, collections::FastMap};

use self::devices::{Asking, DeviceRequest, DeviceState, Replaying, Ways};
use self::mode::Mode;
use self::plan_run::{Aim, PlanRun};
use self::state::{Assignment, Bin, BinId, Charging, Footprint, Mark, State, Target, Undo};
use crate::catalogue::OfferingId;
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::simulation::compile::limits;
use crate::simulation::compile::pools::Alternative;
use crate::simulation::compile::problem::Problem;
use crate::simulation::topology::{Checking, DomainId, Involvement, Place};

/// A problem with the state of a plan in the making, in one run and for one aim.
#[derive(Debug)]
pub(crate) struct Packing<'p> {
    pub(crate) problem: &'p Problem<'p>,
    pub(crate) run: &'p PlanRun,
    pub(crate) aim: &'p Aim,
    pub(crate) state: State,
    mode: Mode,
}

impl<'p> Packing<'p> {
    pub(crate) fn new(problem: &'p Problem<'p>, run: &'p PlanRun, charging: Charging) -> Self {
        Self { problem, run, aim: Aim::WHOLE, state: State::new(problem, run, charging), mode: Mode::default() }
    }

    /// The packing for a plan with this aim.
    pub(crate) fn with_aim(self, aim: &'p Aim) -> Self {
        Self { aim, ..self }
    }

    /// Continues a packing of the run from `state`, with what the run has found out since.
    pub(crate) fn of(problem: &'p Problem<'p>, run: &'p PlanRun, mut state: State) -> Self {
        state.learn(run);
        Self { problem, run, aim: Aim::WHOLE, state, mode: Mode::default() }
    }

    /// Begins a part that may be undone.
    pub(crate) fn mark(&mut self) -> Mark {
        let devices = self.state.devices.as_mut().map(DeviceState::mark);
        Mark { journal: self.state.journal.mark(), assignments: self.state.assignments.len(), devices }
    }

    /// Whether something was changed since the first mark that is open.
    pub(crate) fn has_undo(&self) -> bool {
        !self.state.journal.is_empty()
    }

    /// Keeps everything since the mark.
    pub(crate) fn commit(&mut self, mark: Mark) {
        if let (Some(devices), Some(mark)) = (&mut self.state.devices, mark.devices) {
            devices.keep(mark);
        }
        self.state.journal.close(mark.journal);
    }

    /// Undoes everything since the mark.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        while let Some(undo) = self.state.journal.pop_since(&mark.journal) {
            self.undo(undo);
        }
        self.state.journal.close(mark.journal);
        for undone in self.state.assignments.drain(mark.assignments.min(self.state.assignments.len())..) {
            self.state.near -= usize::from(!self.problem.classes[undone.class].affinity_sets.is_empty());
        }
        if let (Some(devices), Some(mark)) = (&mut self.state.devices, mark.devices) {
            devices.rollback(mark);
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Room(node, room) => {
                self.state.room[node] = room;
                self.note_room(node);
            }
            Undo::Devices(before) => {
                if let Some(devices) = &mut self.state.devices {
                    devices.restore(before);
                }
            }
            Undo::Attached(node, before) => self.state.attached[node] = before,
            Undo::Counted(group, domain, before) => self.state.counts[group].restore(domain, before),
            Undo::Vacated(before) => self.occupy(*before),
            Undo::Opened => {
                if let Some(bin) = self.state.bins.pop() {
                    let taken = self.footprint(&bin);
                    self.account(BinId(self.state.bins.len()), Some(&taken), None);
                }
            }
            Undo::Changed(id, before) => {
                let after = self.state.bins.get(id.0).map(|after| self.footprint(after));
                self.account(id, after.as_ref(), Some(&before));
                if let Some(slot) = self.state.bins.get_mut(id.0) {
                    *slot = *before;
                }
            }
            Undo::Unassigned(index, copies) => {
                if let Some(assignment) = self.state.assignments.get_mut(index) {
                    assignment.copies += copies;
                }
            }
        }
    }

    /// How copies of a class can have their devices at a place; `None` if it wants none there.
    pub(crate) fn ways(&self, request: DeviceRequest) -> Answer<Option<Rc<Ways>>> {
        let Some(devices) = &self.state.devices else { return Answer::finished(None) };
        let replaying = if self.aim.in_its_own_order { Replaying::Never } else { self.mode.replaying };
        let asking = Asking { problem: self.problem, run: self.run, bins: &self.state.bins, replaying };
        devices.ways(asking, request)
    }

    /// The question about devices as if no machine were open.
    pub(crate) fn asking_alone(&self) -> Asking<'_> {
        Asking { problem: self.problem, run: self.run, bins: &[], replaying: Replaying::Placing }
    }

    /// Copies that the rules coupling the class with other pods allow in an open machine or, without one, in a new one;
    /// at most `wanted`.
    pub(crate) fn copies_allowed(
        &self,
        bin: Option<BinId>,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let problem = self.problem;
        let class = &problem.classes[class];
        if class.involved.is_empty() {
            return wanted;
        }
        let bin = bin.unwrap_or(BinId(self.state.bins.len()));
        let place =
            |position: usize, mine: &Involvement| state::place_in_bin(problem, bin, alternative, position, mine);
        self.coupled_room(class, place, wanted)
    }

    /// How many copies rules over labels alone allow, so the most for any machine that is there by the alternative.
    pub(crate) fn copies_allowed_by_labels(&self, class: ClassId, alternative: &Alternative, wanted: u32) -> u32 {
        let class = &self.problem.classes[class];
        if class.involved.is_empty() {
            return wanted;
        }
        let place = |position: usize, _: &Involvement| match alternative.places.get(position) {
            Some(Place::OwnHost) => None,
            Some(place) => Some(*place),
            None => Some(Place::Outside),
        };
        self.room_where_known(class, place, wanted)
    }

    /// How many copies rules allow on an open machine, if those over labels allow `wanted` there.
    pub(crate) fn copies_allowed_on_host(
        &self,
        bin: BinId,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let problem = self.problem;
        let pods = &problem.classes[class];
        // All terms of an affinity count together.
        if !pods.affinity_sets.is_empty() {
            return self.copies_allowed(Some(bin), class, alternative, wanted);
        }
        let place = |position: usize, mine: &Involvement| match alternative.places.get(position) {
            Some(Place::OwnHost) => Some(Place::Domain(problem.topology.groups[mine.group].host_of(bin.0))),
            Some(_) | None => None,
        };
        self.room_where_known(pods, place, wanted)
    }

    fn coupled_room(&self, class: &PodClass, place: impl Fn(usize, &Involvement) -> Place, wanted: u32) -> u32 {
        self.room_where_known(class, |position, mine| Some(place(position, mine)), wanted)
    }

    fn room_where_known(
        &self,
        class: &PodClass,
        place: impl Fn(usize, &Involvement) -> Option<Place>,
        wanted: u32,
    ) -> u32 {
        let is_there = |&(position, domain): &(usize, DomainId)| {
            let mine = class.involved.get(position);
            mine.is_some_and(|mine| place(position, mine).is_none_or(|place| place == Place::Domain(domain)))
        };
        if !self.mode.confined.iter().all(is_there) {
            return 0;
        }
        self.problem.topology.room(&self.state.counts, self.mode.checking, class, place, wanted)
    }

    /// Counts copies of a class for all rules that it matches or has to keep.
    fn count(&mut self, class: ClassId, place: impl Fn(usize, &Involvement) -> Place, copies: u32) {
        for (position, mine) in self.problem.classes[class].involved.iter().enumerate() {
            if let Place::Domain(domain) = place(position, mine) {
                let matched = if mine.matched { copies } else { 0 };
                let owners = if mine.owner { copies } else { 0 };
                let before = self.state.counts[mine.group].add(domain, matched, owners);
                self.state.journal.push(|| Undo::Counted(mine.group, domain, before));
            }
        }
    }

    fn assign(&mut self, assignment: Assignment) {
        self.state.near += usize::from(!self.problem.classes[assignment.class].affinity_sets.is_empty());
        self.state.assignments.push(assignment);
    }

    /// Takes copies of a class from where they were put by that alternative.
    fn unassign(&mut self, class: ClassId, target: Target, alternative: usize, mut copies: u32) {
        for index in (0..self.state.assignments.len()).rev() {
            let Some(assignment) = self.state.assignments.get_mut(index) else { break };
            if (assignment.class, assignment.target, assignment.alternative) != (class, target, alternative) {
                continue;
            }
            let taken = assignment.copies.min(copies);
            assignment.copies -= taken;
            copies -= taken;
            self.state.journal.push(|| Undo::Unassigned(index, taken));
            if copies == 0 {
                break;
            }
        }
    }

    /// Merges assignments that differ in copies only, in the order of the first of each. Call it only while nothing can
    /// be undone.
    pub(crate) fn merge_assignments(&mut self) {
        let mut first: FastMap<(ClassId, Target, usize), usize> = FastMap::default();
        let mut merged: Vec<Assignment> = Vec::new();
        for assignment in self.state.assignments.drain(..) {
            let key = (assignment.class, assignment.target, assignment.alternative);
            let position = *first.entry(key).or_insert(merged.len());
            match merged.get_mut(position) {
                Some(known) => known.copies += assignment.copies,
                None => merged.push(assignment),
            }
        }
        self.state.near = 0;
        for assignment in merged {
            self.assign(assignment);
        }
    }

    /// What a machine takes of limits and reservations, and the number of its contents.
    fn footprint(&self, bin: &Bin) -> Footprint {
        let draws_on = |(id, _): &(ValueId, i64)| self.problem.reserved(bin.pool, *id).intersects(&bin.offerings);
        Footprint {
            pool: bin.pool,
            price: bin.price,
            kind: bin.kind,
            charge: bin.charge.clone(),
            reservations: self.state.reservations.iter().map(draws_on).collect(),
        }
    }

    /// Updates totals and indexes for a machine that was `before` and is `after`.
    fn account(&mut self, id: BinId, before: Option<&Footprint>, after: Option<&Bin>) {
        if let Some(before) = before {
            self.state.price -= i128::from(before.price.0);
            self.state.alike.remove(before.kind, id);
            limits::sub(&mut self.state.charges[before.pool], &before.charge);
            self.state.draw(before, 1);
        }
        self.state.growths.forget(id);
        self.state.host_rooms.forget(id);
        let nothing = ResourceVec::default();
        self.state.slack.set(id.0, after.map_or(&nothing, |after| &after.slack));
        if let Some(after) = after.map(|after| self.footprint(after)) {
            self.state.price += i128::from(after.price.0);
            self.state.alike.insert(after.kind, id);
            limits::add(&mut self.state.charges[after.pool], &after.charge);
            self.state.draw(&after, -1);
        }
    }

    /// Whether the open machines can all be settled within the limits; exact unless `steps` run out.
    pub(crate) fn limits_hold(&self, steps: u64) -> bool {
        self.problem.pools.iter_enumerated().all(|(rank, table)| {
            if table.limits.is_empty() || !table.min_values.is_empty() {
                return table.limits.exceeded(&self.state.charges[rank]).is_none();
            }
            let machines: Vec<&IdSet<OfferingId>> =
                self.state.bins.iter().filter(|bin| bin.pool == rank).map(|bin| &bin.offerings).collect();
            table.limits.choose(&machines, steps).is_some()
        })
    }

    /// A packing with nothing placed, for a search over everything that this one has placed.
    pub(crate) fn emptied(&self) -> Self {
        let Self { problem, run, aim, state: before, .. } = self;
        let mut state = State::new(problem, run, Charging::Bound);
        state.room.clone_from(&before.start);
        state.rooms = problem.rooms_of(&before.start);
        state.start.clone_from(&before.start);
        state.counts.clone_from(&before.start_counts);
        state.start_counts.clone_from(&before.start_counts);
        state.attached.clone_from(&before.start_attached);
        state.start_attached.clone_from(&before.start_attached);
        state.devices.clone_from(&before.start_devices);
        state.start_devices.clone_from(&before.start_devices);
        let mode = Mode { checking: Checking::AtTheEnd, replaying: Replaying::Searching, ..Mode::default() };
        Self { problem, run, aim, state, mode }
    }

    /// Counts limits in another way, for what is placed already and for what follows.
    pub(crate) fn recharge(&mut self, charging: Charging) {
        let problem = self.problem;
        self.state.charging = charging;
        for (rank, table) in problem.pools.iter_enumerated() {
            self.state.charges[rank] = table.limits.zero();
        }
        let mut bins = std::mem::take(&mut self.state.bins);
        for bin in &mut bins {
            bin.charge = self.charge(&problem.pools[bin.pool], &bin.offerings);
            limits::add(&mut self.state.charges[bin.pool], &bin.charge);
        }
        self.state.bins = bins;
    }
}
