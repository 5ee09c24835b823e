//! When copies are left over that would fit if others made room: an exact search within a step budget.
//!
//! The greedy order fails only where room is contended: existing nodes that a class needs and another could do without,
//! or limits that a different grouping would keep. For each left-over copy the search looks for *any* arrangement of
//! everything placed so far plus this copy. It goes copy by copy through all targets, with three cuts that lose
//! nothing: copies of one class are interchangeable, so their targets never go back; machines in equal states are tried
//! once; and limits are counted by a bound from below while descending and exactly at a leaf, and so are skews and
//! affinity, which later copies can mend. A finished search without a result is a proof; a budget that runs out is its
//! own verdict. Where counting shows that devices or consumers of a claim run out, there is no search.
//!
//! Machines that bring devices for others make more room the more of them there are, and then it matters in which order
//! copies are placed. Those that could take such devices come last; other orders are not tried, so that the search is
//! no proof then.
//!
//! Complexity: exponential in the worst case, hence the budget. A step is one attempt to place one copy on one target;
//! a leaf costs what it takes to replay it.

use model::{Budget, OutOfBudget, SearchEnd};

use super::fill::place;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::binding::{replay_steps, rules_hold};
use crate::simulation::packing::devices::{DeviceRequest, Pick, Spot, want_too_much};
use crate::simulation::packing::mode::{Mode, Reserving};
use crate::simulation::packing::state::{BinId, Charging, Mark};
use crate::simulation::placing::relocation;
use crate::tuning::{LEAF_LIMIT_STEPS, MAX_SEARCHED, SHARED_DEVICE_STEPS};
use crate::{plan::Verdict, snapshot::NodeId};

/// The packing after the search for left-over copies.
#[derive(Debug)]
pub(crate) struct Repaired<'p> {
    pub(crate) packing: Packing<'p>,
    pub(crate) left: u32,
    /// Why the copies in `left` have no place.
    pub(crate) why: NoRoom,
}

/// Why the search has no room for a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Counting proves that there is none, whatever single searches for places found out.
    Counted,
    /// It went through all arrangements of what it knows of.
    Searched,
    /// It did not come to its end, or there is more than it looks at.
    OutOfBudget,
}

impl NoRoom {
    /// The verdict for a refused copy, given how the earlier searches for its place ended.
    pub(crate) fn verdict_after(self, end: SearchEnd) -> Verdict {
        match (self, end) {
            (Self::Counted, _) | (Self::Searched, SearchEnd::Finished) => Verdict::DoesNotFit,
            (Self::Searched, SearchEnd::OutOfBudget) | (Self::OutOfBudget, _) => Verdict::OutOfBudget,
        }
    }
}

/// Tries to place `left` more copies of `class` by rearranging what is placed.
pub(crate) fn place_more<'p>(
    mut packing: Packing<'p>,
    class: ClassId,
    mut left: u32,
    budget: &mut Budget,
) -> Repaired<'p> {
    let problem = packing.problem;
    // How the searches for devices ended, over everything that is tried.
    let mut end = SearchEnd::default();
    while left > 0 {
        let mut copies = with_one_more(&packing, class);
        if want_too_much(&packing, &copies) {
            return Repaired { packing, left, why: NoRoom::Counted };
        }
        if is_too_large(&copies) {
            // Relocation finds some room, and proves nothing.
            left = relocation::make_room(&mut packing, class, left, budget).so_far();
            return Repaired { packing, left, why: NoRoom::OutOfBudget };
        }
        // The sort is stable, so the classes otherwise stay in their order.
        copies.sort_by_key(|(class, _)| grows(problem, *class));
        let mut search = Search { packing: packing.emptied(), copies: &copies, budget, end: SearchEnd::default() };
        let has_room = search.run();
        end.and(search.end);
        match has_room {
            Ok(true) => {
                packing.state = search.packing.state;
                packing.recharge(Charging::Least);
                left -= 1;
                // The search made room for one; there may be more now.
                left = place(&mut packing, class, left).part_of(&mut end);
            }
            Ok(false) => {
                let is_cut_off =
                    |(class, _): &(ClassId, u32)| problem.pools.iter().any(|table| table.cut_off.contains(*class));
                let hangs_on_others = |(class, _): &(ClassId, u32)| may_be_brought(problem, *class);
                let is_proof =
                    !end.is_out_of_budget() && !copies.iter().any(is_cut_off) && !copies.iter().any(hangs_on_others);
                let why = if is_proof { NoRoom::Searched } else { NoRoom::OutOfBudget };
                return Repaired { packing, left, why };
            }
            Err(OutOfBudget) => return Repaired { packing, left, why: NoRoom::OutOfBudget },
        }
    }
    Repaired { packing, left, why: NoRoom::Searched }
}

/// Whether there are too many copies to search for another arrangement of them.
pub(crate) fn is_too_large(copies: &[(ClassId, u32)]) -> bool {
    copies.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() > MAX_SEARCHED
}

fn grows(problem: &Problem<'_>, class: ClassId) -> bool {
    problem.devices.as_ref().is_some_and(|of| of.grows(&problem.classes[class]))
}

/// Whether a copy of the class may have a place that the search does not look at: it could take devices that another
/// pod's machine brings. (Its own machine's devices the search does look at; a machine without pods is never launched.)
pub(crate) fn may_be_brought(problem: &Problem<'_>, class: ClassId) -> bool {
    let pods = problem.classes.iter().filter(|pods| !pods.is_refused()).map(|pods| u64::from(pods.count()));
    grows(problem, class) && pods.sum::<u64>() > 1
}

/// All copies that are placed, and one more of a class.
pub(crate) fn with_one_more(packing: &Packing<'_>, class: ClassId) -> Vec<(ClassId, u32)> {
    let mut copies: Vec<(ClassId, u32)> = Vec::new();
    let placed = packing.state.assignments.iter().map(|assignment| (assignment.class, assignment.copies));
    for (class, more) in placed.chain([(class, 1)]) {
        match copies.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += more,
            None => copies.push((class, more)),
        }
    }
    copies.sort_by_key(|(class, _)| *class);
    copies
}

struct Search<'p, 'b> {
    packing: Packing<'p>,
    copies: &'b [(ClassId, u32)],
    budget: &'b mut Budget,
    /// How the searches ended for the devices of all that was tried.
    end: SearchEnd,
}

/// Targets in the order in which copies of one class go through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    Node(usize),
    Bin(usize),
}

impl Search<'_, '_> {
    fn run(&mut self) -> Result<bool, OutOfBudget> {
        self.descend(0, 0, Position::Node(0))
    }

    /// Places copy number `copy` of the class at `index` at `from` or later, and everything after it.
    fn descend(&mut self, index: usize, copy: u32, from: Position) -> Result<bool, OutOfBudget> {
        // A leaf: everything is placed, and what was left open on the way is checked exactly.
        let Some(&(class, count)) = self.copies.get(index) else {
            self.budget.spend(replay_steps(self.packing.problem, &self.packing.state))?;
            return Ok(
                self.packing.limits_hold(LEAF_LIMIT_STEPS) && rules_hold(self.packing.problem, &self.packing.state)
            );
        };
        if copy == count {
            return self.descend(index + 1, 0, Position::Node(0));
        }
        // Copies of a class are interchangeable, so the next one never goes back to an earlier target.
        if let Position::Node(first) = from {
            for position in first..self.packing.problem.node_order.len() {
                let Some(&node) = self.packing.problem.node_order.get(position) else { break };
                if self.try_node(class, node, |search| search.descend(index, copy + 1, Position::Node(position)))? {
                    return Ok(true);
                }
            }
        }
        let first_bin = match from {
            Position::Node(_) => 0,
            Position::Bin(bin) => bin,
        };
        let bins = self.packing.state.bins.len();
        // Machines opened for earlier copies, of which equal ones are tried once.
        for bin in first_bin..bins {
            if !self.looks_new(bin, first_bin) {
                continue;
            }
            let Some(pool) = self.packing.state.bins.get(bin).map(|bin| bin.pool) else { break };
            let problem = self.packing.problem;
            for alternative in &problem.pools[pool].by_class[class] {
                let next = Position::Bin(bin);
                if self.try_bin(class, BinId(bin), alternative, |search| search.descend(index, copy + 1, next))? {
                    return Ok(true);
                }
            }
        }
        let problem = self.packing.problem;
        // New machines come last. Which reservation one draws on, if any, is a choice of its own: it decides what is
        // left for later copies.
        for (pool, table) in problem.pools.iter_enumerated() {
            for alternative in &table.by_class[class] {
                let next = Position::Bin(bins);
                for reserving in self.packing.ways_to_reserve(pool, alternative) {
                    let rest = |search: &mut Self| search.descend(index, copy + 1, next);
                    if self.try_new_bin(class, pool, alternative, reserving, rest)? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Whether no machine from `first` on is in the same state: of equal machines only the first needs trying.
    fn looks_new(&self, bin: usize, first: usize) -> bool {
        let bins = &self.packing.state.bins;
        let Some(this) = bins.get(bin) else { return false };
        !bins.iter().take(bin).skip(first).any(|other| {
            other.pool == this.pool
                && other.requests == this.requests
                && other.offerings == this.offerings
                && other.open == this.open
                && other.contents == this.contents
                && match (&other.devices, &this.devices) {
                    (None, None) => true,
                    (Some(other), Some(this)) => !self.shares_devices() && other.looks_like(this),
                    (Some(_), None) | (None, Some(_)) => false,
                }
        })
    }

    /// Counts a step. Where devices are shared nothing that was found out about them holds for long, so steps cost
    /// more; and without more allocations to replay the search would only find out that it cannot tell.
    fn spend(&mut self, class: ClassId) -> Result<(), OutOfBudget> {
        let wants_devices = self.packing.problem.classes[class].devices.is_some();
        if wants_devices && !self.packing.run.devices().may_search() {
            return Err(OutOfBudget);
        }
        self.budget.spend(if wants_devices && self.shares_devices() { SHARED_DEVICE_STEPS } else { 1 })
    }

    /// Whether what one machine holds of devices can matter to another.
    fn shares_devices(&self) -> bool {
        let is_shared = self.packing.problem.devices.as_ref().is_some_and(|of| of.devices.has_shared_devices());
        let shares_claims = |(class, _): &(ClassId, u32)| {
            self.packing.problem.classes[*class].devices.as_ref().is_some_and(|devices| devices.shares_claims)
        };
        is_shared || self.copies.iter().any(shares_claims)
    }

    /// The ways to give one copy its devices. Where devices are shared, what a machine keeps open is withheld from
    /// others, so then each shape is tried by itself too.
    fn picks(&self, spot: Spot, class: ClassId, alternative: &Alternative) -> Vec<Pick> {
        let request = DeviceRequest { spot, class, variant: alternative.variant, copies: 1 };
        // The caller has asked whether there are some.
        let Some(ways) = self.packing.ways(request).so_far() else {
            return vec![Pick::Cheapest];
        };
        let each_shape = self.shares_devices();
        let mut picks = Vec::new();
        for (index, way) in ways.ways.iter().enumerate() {
            picks.push(Pick::Only(index, None));
            if each_shape {
                picks.extend(way.shapes().map(|shape| Pick::Only(index, Some(shape))));
            }
        }
        picks
    }

    fn try_node(
        &mut self,
        class: ClassId,
        node: NodeId,
        rest: impl FnOnce(&mut Self) -> Result<bool, OutOfBudget>,
    ) -> Result<bool, OutOfBudget> {
        self.spend(class)?;
        if self.packing.copies_on_node(node, class, 1).part_of(&mut self.end) == 0 {
            return Ok(false);
        }
        let mark = self.packing.mark();
        self.packing.place_on_node(node, class, 1);
        self.finish(mark, rest)
    }

    fn try_bin(
        &mut self,
        class: ClassId,
        bin: BinId,
        alternative: &Alternative,
        rest: impl Fn(&mut Self) -> Result<bool, OutOfBudget>,
    ) -> Result<bool, OutOfBudget> {
        self.spend(class)?;
        if self.packing.copies_in_bin(bin, class, alternative, 1).part_of(&mut self.end) == 0 {
            return Ok(false);
        }
        for pick in self.picks(Spot::Bin(bin), class, alternative) {
            let mark = self.packing.mark();
            if !self.packing.try_place_in_bin(bin, class, alternative, 1, pick) {
                self.packing.rollback(mark);
            } else if self.finish(mark, &rest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn try_new_bin(
        &mut self,
        class: ClassId,
        pool: PoolRank,
        alternative: &Alternative,
        reserving: Reserving,
        rest: impl Fn(&mut Self) -> Result<bool, OutOfBudget>,
    ) -> Result<bool, OutOfBudget> {
        self.spend(class)?;
        let mode = Mode { reserving, ..self.packing.mode().clone() };
        let copies = self.packing.with(mode.clone(), |packing| packing.copies_in_new_bin(pool, class, alternative, 1));
        if copies.part_of(&mut self.end) == 0 {
            return Ok(false);
        }
        for pick in self.picks(Spot::New(pool), class, alternative) {
            let mark = self.packing.mark();
            let open = |packing: &mut Packing<'_>| packing.try_open_bin(pool, class, alternative, 1, pick);
            if !self.packing.with(mode.clone(), open) {
                self.packing.rollback(mark);
            } else if self.finish(mark, &rest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn finish(
        &mut self,
        mark: Mark,
        rest: impl FnOnce(&mut Self) -> Result<bool, OutOfBudget>,
    ) -> Result<bool, OutOfBudget> {
        match rest(self) {
            Ok(true) => {
                self.packing.commit(mark);
                Ok(true)
            }
            other => {
                self.packing.rollback(mark);
                other
            }
        }
    }
}
