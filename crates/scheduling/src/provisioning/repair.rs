//! When copies are left over that would fit if others made room: an exact search within a step budget.
//!
//! The greedy order fails only where room is contended: existing nodes that a class needs and another could do without,
//! or limits that a different grouping would keep. For each left-over copy the search looks for *any* arrangement of
//! everything placed so far plus this copy. It goes copy by copy through all targets, with three cuts that lose nothing:
//! copies of one class are interchangeable, so their targets never go back; machines in equal states are tried once; and
//! limits are counted by a bound from below while descending and exactly at a leaf, and so are skews and affinity, which
//! later copies can mend. A finished search without a result
//! is a proof; a budget that runs out is its own verdict. Where counting shows that devices run out, there is no search.
//!
//! Machines that bring devices for others make more room the more of them there are, and then it matters in which order
//! copies are placed. Those that could take such devices come last; other orders are not tried, so that the search is no
//! proof then.
//!
//! Complexity: exponential in the worst case, hence the budget. A step is one attempt to place one copy on one target;
//! a leaf costs what it takes to replay it.

use model::{Budget, OutOfBudget};

use super::{
    classes::ClassId,
    devices::{Pick, Spot, want_too_much},
    exchange,
    fill::place,
    pools::{Alternative, PoolRank},
    problem::Problem,
    reservations::Reserving,
    state::{BinId, Charging, Mark, State},
    topology::{Checking, replay_steps, rules_hold},
};
use crate::{plan::Verdict, snapshot::NodeId};

/// What became of left-over copies.
#[derive(Debug)]
pub(crate) struct Repaired {
    pub(crate) state: State,
    pub(crate) left: u32,
    /// What the refusal of those left means.
    pub(crate) verdict: Verdict,
    /// Counting has proved it, whatever else was left open.
    pub(crate) is_counted: bool,
}

/// Above this number of placed copies the search is not begun: it could not end within any sensible budget, and each
/// copy is a level of recursion.
pub(crate) const MAX_COPIES: u64 = 400;

/// Steps that a place costs for pods whose devices matter to others.
const SHARED_DEVICES: u64 = 100;

/// Steps that the exact check of several limits may take at one leaf.
const LIMIT_STEPS: u64 = 2_000;

/// Tries to place `left` more copies of `class` by rearranging what is placed.
pub(crate) fn place_more(
    problem: &Problem<'_>,
    mut state: State,
    class: ClassId,
    mut left: u32,
    budget: &mut Budget,
) -> Repaired {
    while left > 0 {
        let mut copies = with_one_more(&state, class);
        if want_too_much(problem, &copies) {
            return Repaired { state, left, verdict: Verdict::DoesNotFit, is_counted: true };
        }
        if is_too_large(&copies) {
            left = exchange::make_room(problem, &mut state, class, left, budget);
            return Repaired { state, left, verdict: Verdict::OutOfBudget, is_counted: false };
        }
        // Stable: otherwise the classes stay in their order.
        copies.sort_by_key(|(class, _)| grows(problem, *class));
        let mut search = Search { problem, state: state.emptied(problem), copies: &copies, budget };
        let is_searching = |searching: bool| problem.devices.iter().for_each(|of| of.is_searching.set(searching));
        is_searching(true);
        let found = search.run();
        is_searching(false);
        match found {
            Ok(true) => {
                state = search.state;
                state.recharge(problem, Charging::Least);
                state.checking = Checking::Stepwise;
                left -= 1;
                // The search made room for one; there may be more now.
                left = place(problem, &mut state, class, left);
            }
            Ok(false) => {
                let is_cut_off =
                    |(class, _): &(ClassId, u32)| problem.pools.iter().any(|table| table.cut_off.contains(*class));
                let hangs_on_others = |(class, _): &(ClassId, u32)| may_be_brought(problem, *class);
                let is_proof = !copies.iter().any(is_cut_off) && !copies.iter().any(hangs_on_others);
                let verdict = if is_proof { Verdict::DoesNotFit } else { Verdict::OutOfBudget };
                return Repaired { state, left, verdict, is_counted: false };
            }
            Err(OutOfBudget) => {
                return Repaired { state, left, verdict: Verdict::OutOfBudget, is_counted: false };
            }
        }
    }
    Repaired { state, left, verdict: Verdict::DoesNotFit, is_counted: false }
}

/// Whether there are too many copies to search for another arrangement of them.
pub(crate) fn is_too_large(copies: &[(ClassId, u32)]) -> bool {
    copies.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() > MAX_COPIES
}

fn grows(problem: &Problem<'_>, class: ClassId) -> bool {
    problem.devices.as_ref().is_some_and(|of| of.grows(&problem.classes[class]))
}

/// Whether a copy of the class may have a place that the search knows nothing of: it could take devices that the machine of
/// another pod brings. Alone it has what its own machine brings; none is launched that holds no pod.
pub(crate) fn may_be_brought(problem: &Problem<'_>, class: ClassId) -> bool {
    let pods = problem.classes.iter().filter(|pods| !pods.is_refused()).map(|pods| u64::from(pods.count()));
    grows(problem, class) && pods.sum::<u64>() > 1
}

/// All copies that are placed, and one more of a class.
pub(crate) fn with_one_more(state: &State, class: ClassId) -> Vec<(ClassId, u32)> {
    let mut copies: Vec<(ClassId, u32)> = Vec::new();
    let placed = state.assignments.iter().map(|assignment| (assignment.class, assignment.copies));
    for (class, more) in placed.chain([(class, 1)]) {
        match copies.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += more,
            None => copies.push((class, more)),
        }
    }
    copies.sort_by_key(|(class, _)| *class);
    copies
}

struct Search<'p, 's, 'b> {
    problem: &'p Problem<'s>,
    state: State,
    copies: &'b [(ClassId, u32)],
    budget: &'b mut Budget,
}

/// Targets in the order in which copies of one class go through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    Node(usize),
    Bin(usize),
}

impl Search<'_, '_, '_> {
    fn run(&mut self) -> Result<bool, OutOfBudget> {
        self.descend(0, 0, Position::Node(0))
    }

    /// Places copy number `copy` of the class at `index` at `from` or later, and everything after it.
    fn descend(&mut self, index: usize, copy: u32, from: Position) -> Result<bool, OutOfBudget> {
        let Some(&(class, count)) = self.copies.get(index) else {
            self.budget.spend(replay_steps(self.problem, &self.state))?;
            return Ok(self.state.limits_hold(self.problem, LIMIT_STEPS) && rules_hold(self.problem, &self.state));
        };
        if copy == count {
            return self.descend(index + 1, 0, Position::Node(0));
        }
        if let Position::Node(first) = from {
            for position in first..self.problem.node_order.len() {
                let Some(&node) = self.problem.node_order.get(position) else { break };
                if self.try_node(class, node, |search| search.descend(index, copy + 1, Position::Node(position)))? {
                    return Ok(true);
                }
            }
        }
        let first_bin = match from {
            Position::Node(_) => 0,
            Position::Bin(bin) => bin,
        };
        let bins = self.state.bins.len();
        for bin in first_bin..bins {
            if !self.looks_new(bin, first_bin) {
                continue;
            }
            let Some(pool) = self.state.bins.get(bin).map(|bin| bin.pool) else { break };
            let problem = self.problem;
            for alternative in &problem.pools[pool].by_class[class] {
                let next = Position::Bin(bin);
                if self.try_bin(class, BinId(bin), alternative, |search| search.descend(index, copy + 1, next))? {
                    return Ok(true);
                }
            }
        }
        let problem = self.problem;
        for (pool, table) in problem.pools.iter_enumerated() {
            for alternative in &table.by_class[class] {
                let next = Position::Bin(bins);
                for reserving in self.state.ways_to_reserve(problem, pool, alternative) {
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
        let bins = &self.state.bins;
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

    /// Counts a step. Where devices are shared nothing that was found out about them holds for long, so steps cost more; and
    /// without more allocations to replay the search would only find out that it cannot tell.
    fn spend(&mut self, class: ClassId) -> Result<(), OutOfBudget> {
        let wants_devices = self.problem.classes[class].devices.is_some();
        if wants_devices && self.problem.devices.as_ref().is_some_and(|of| !of.may_search()) {
            return Err(OutOfBudget);
        }
        self.budget.spend(if wants_devices && self.shares_devices() { SHARED_DEVICES } else { 1 })
    }

    /// Whether what one machine holds of devices can matter to another.
    fn shares_devices(&self) -> bool {
        let is_shared = self.problem.devices.as_ref().is_some_and(|of| of.devices.has_shared_devices());
        let shares_claims = |(class, _): &(ClassId, u32)| {
            self.problem.classes[*class].devices.as_ref().is_some_and(|devices| devices.shares_claims)
        };
        is_shared || self.copies.iter().any(shares_claims)
    }

    /// The ways to give one copy its devices. Where devices are shared, what a machine keeps open is withheld from others,
    /// so then each shape is tried by itself too.
    fn picks(&self, spot: Spot, class: ClassId, alternative: &Alternative) -> Vec<Pick> {
        let Some(ways) = self.state.ways(self.problem, spot, class, alternative.variant, 1) else {
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
        if self.state.copies_on_node(self.problem, node, class, 1) == 0 {
            return Ok(false);
        }
        let mark = self.state.mark();
        self.state.place_on_node(self.problem, node, class, 1);
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
        if self.state.copies_in_bin(self.problem, bin, class, alternative, 1) == 0 {
            return Ok(false);
        }
        for pick in self.picks(Spot::Bin(bin), class, alternative) {
            let mark = self.state.mark();
            if !self.state.try_place_in_bin(self.problem, bin, class, alternative, 1, pick) {
                self.state.rollback(self.problem, mark);
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
        self.state.reserving = reserving;
        let is_held = self.state.copies_in_new_bin(self.problem, pool, class, alternative, 1) == 1;
        self.state.reserving = Reserving::All;
        if !is_held {
            return Ok(false);
        }
        for pick in self.picks(Spot::New(pool), class, alternative) {
            let mark = self.state.mark();
            self.state.reserving = reserving;
            let is_opened = self.state.try_open_bin(self.problem, pool, class, alternative, 1, pick);
            self.state.reserving = Reserving::All;
            if !is_opened {
                self.state.rollback(self.problem, mark);
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
                self.state.commit(mark);
                Ok(true)
            }
            other => {
                self.state.rollback(self.problem, mark);
                other
            }
        }
    }
}
