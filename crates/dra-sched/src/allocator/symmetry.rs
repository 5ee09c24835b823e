//! Devices that no part of a search can tell apart, and what a failure is remembered by.
//!
//! Two devices are of one class if every branch gets the same answer from selectors, taints and capacity, every
//! constraint the same value, and they draw the same from the same pool. Exchanging two untouched devices of a class in
//! any assignment gives an assignment that is as good; so a class that failed in a slot need not be tried there again.

use std::sync::Arc;

use model::collections::{NameMap, NameSet};
use model::{Id, IdVec, define_id};

use super::search::{BranchIndex, ClaimPosition, Search};
use crate::attributes::Held;
use crate::capacity::{BadCapacity, Demand};
use crate::compat::Gate;
use crate::inventory::Draw;
use crate::ledger::Amounts;
use crate::selectors::Judgement;
use crate::view::{PoolPosition, Position};

define_id! {
    /// Devices of a view that a search cannot tell apart.
    pub(crate) struct ClassIndex;
}

/// The classes of a view's devices.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) of: IdVec<Position, ClassIndex>,
    /// Devices by class, in order.
    pub(crate) members: IdVec<ClassIndex, Vec<Position>>,
    /// Some device or request could make upstream answer with an error, so that no part of the walk may be left out
    /// but what mirrors another part.
    pub(crate) may_err: bool,
    /// What happens depends on more than what is picked, so that nothing may be left out at all: a request for all
    /// devices under a constraint is an error or not by the order in which its devices are tried, and two defects of old
    /// releases make the walk's past matter.
    pub(crate) exact: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Fingerprint {
    branches: Vec<Answer>,
    held: Vec<Held>,
    draws: Option<(PoolPosition, Vec<Draw>)>,
    /// Free capacity depends on shares that are given out.
    shares: Option<Amounts>,
    capacity: Vec<i128>,
    shareable: bool,
    taken: bool,
    unusable: bool,
}

/// What one branch thinks of a device.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Answer {
    No,
    Error,
    Tainted,
    Demand(Option<Vec<i128>>),
    BadCapacity,
}

pub(super) fn classes(search: &mut Search<'_>) -> Classes {
    let mut ids: NameMap<Fingerprint, ClassIndex> = NameMap::default();
    let mut members: IdVec<ClassIndex, Vec<Position>> = IdVec::new();
    let mut of = IdVec::with_capacity(search.view.devices.len());
    let all_under_constraint = search
        .branches
        .iter()
        .any(|branch| branch.alternative.count.is_none() && !branch.alternative.constraints.is_empty());
    let mut may_err = all_under_constraint;
    let branches: Vec<BranchIndex> = search.branches.ids().collect();
    let any_admin = search.branches.iter().any(|branch| branch.alternative.admin_access);
    for position in search.view.devices.ids() {
        // A device that is out of reach for all needs no verdicts, and is like all others of its kind.
        let taken = search.is_taken(position);
        let fingerprint = if taken && !any_admin {
            Fingerprint {
                branches: Vec::new(),
                held: Vec::new(),
                draws: None,
                shares: None,
                capacity: Vec::new(),
                shareable: false,
                taken,
                unusable: true,
            }
        } else {
            fingerprint(search, &branches, position, taken)
        };
        let errs = |answer: &Answer| match answer {
            Answer::Error => true,
            Answer::BadCapacity => !search.inventory.quirks.bad_capacity_skips_device,
            Answer::No | Answer::Tainted | Answer::Demand(_) => false,
        };
        may_err |= fingerprint.branches.iter().any(errs) || fingerprint.held.contains(&Held::Failed);
        let class = *ids.entry(fingerprint).or_insert_with(|| members.push(Vec::new()));
        members[class].push(position);
        of.push(class);
    }
    let exact = all_under_constraint || past_matters(search);
    Classes { of, members, may_err: may_err || counters_are_mixed_up(search), exact }
}

/// What constraints remember in old releases depends on what was taken back before.
fn past_matters(search: &Search<'_>) -> bool {
    let quirks = &search.inventory.quirks;
    let any_distinct =
        || search.claims.iter().any(|claim| claim.constraints.iter().any(|constraint| constraint.distinct));
    quirks.distinct_forgets_devices_of_its_request && any_distinct() || counters_are_mixed_up(search)
}

/// In old releases pools of one name share the counters of the one that is asked first.
fn counters_are_mixed_up(search: &Search<'_>) -> bool {
    if !search.inventory.quirks.counters_are_keyed_by_pool_name {
        return false;
    }
    let drawing = search.view.pools.iter().filter(|pool| !pool.drawing.is_empty());
    let mut names = NameSet::default();
    let mut names_of = drawing.map(|pool| search.inventory.pools[pool.pool].id.pool.as_str());
    names_of.any(|name| !names.insert(name))
}

fn fingerprint(search: &mut Search<'_>, branches: &[BranchIndex], position: Position, taken: bool) -> Fingerprint {
    let answers = branches.iter().map(|branch| answer(search, *branch, position)).collect();
    let mut held = Vec::new();
    for &branch in branches {
        // Nobody asks for the values of a device that a request does not want; a derived one might fail there.
        if search.judge(branch, position) != Judgement::Yes {
            continue;
        }
        let covering = &search.branches[branch].alternative.constraints;
        held.extend(covering.iter().map(|constraint| search.held(branch, *constraint, position)));
    }
    let entry = search.entry(position);
    let device = search.device(position);
    let draws = (!entry.draws.is_empty()).then(|| (search.view_device(position).pool, entry.draws.to_vec()));
    Fingerprint {
        branches: answers,
        held,
        draws,
        shares: search.taken.shares(entry.key),
        capacity: device.capacity.values().map(|capacity| capacity.value.to_nano()).collect(),
        shareable: search.inventory.compat.is_on(Gate::ConsumableCapacity) && device.allow_multiple_allocations,
        taken,
        unusable: search.lacks_node_operations(position) || search.counters_are_off(position),
    }
}

fn answer(search: &mut Search<'_>, branch: BranchIndex, position: Position) -> Answer {
    match search.judge(branch, position) {
        Judgement::No => return Answer::No,
        Judgement::Error => return Answer::Error,
        Judgement::Yes => {}
    }
    // A bad capacity is seen before the taints.
    let demand = if search.inventory.compat.is_on(Gate::ConsumableCapacity) {
        Arc::clone(&search.demand(branch, position))
    } else {
        Arc::new(Ok(Demand::Amounts(Box::default())))
    };
    match &*demand {
        Err(BadCapacity::NotRepresentable | BadCapacity::Negative) => Answer::BadCapacity,
        Ok(_) if search.untolerated(branch, position).is_some() => Answer::Tainted,
        Ok(Demand::Amounts(amounts)) => Answer::Demand(Some(amounts.to_vec())),
        Ok(Demand::Unusable) => Answer::Demand(None),
    }
}

/// What the rest of a walk depends on, up to exchanging devices of a class.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    branch: BranchIndex,
    picked: usize,
    touched: Vec<(ClassIndex, Vec<ClaimPosition>, u32, Vec<i128>)>,
    constraints: Vec<Held>,
}

/// The state before the first device of a branch is picked.
pub(super) fn state(search: &Search<'_>, classes: &Classes, branch: BranchIndex) -> State {
    let claim = search.branches[branch].claim;
    let touch = |(position, touch): (&Position, &super::search::Touch)| {
        let mut claims = touch.claims.to_vec();
        claims.sort_unstable();
        (classes.of[*position], claims, touch.shares, touch.taken.to_vec())
    };
    let mut touched: Vec<_> = search.touched.iter().map(touch).collect();
    touched.sort_unstable();
    let mut constraints = Vec::new();
    for (index, state) in search.constraints[claim].iter().enumerate() {
        // Separates one constraint's values from the next one's.
        constraints.push(Held::Missing);
        let _ = index;
        state.fingerprint(&mut constraints);
    }
    State { branch, picked: search.picks[claim].len(), touched, constraints }
}

impl Classes {
    /// Members of a class from a position on that nothing was done to.
    pub(crate) fn untouched(&self, search: &Search<'_>, class: ClassIndex, start: usize) -> usize {
        let members = &self.members[class];
        let from = members.partition_point(|position| position.index() < start);
        let touched =
            search.touched.keys().filter(|position| self.of[**position] == class && position.index() >= start);
        (members.len() - from).saturating_sub(touched.count())
    }
}
