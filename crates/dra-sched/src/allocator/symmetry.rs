//! Classes of devices that no part of a search can tell apart, and the keys by which failures are remembered.
//!
//! Two devices are of one class if every branch gets the same answer from selectors, taints and capacity, every
//! constraint the same value, and they draw the same from the same pool. Exchanging two untouched devices of a class in
//! any assignment gives an equally good assignment, so if one device of a class failed in a slot, no other needs to be
//! tried there.
//!
//! Upstream's errors are kept apart: a subtree may be skipped only if it holds neither a solution nor an error.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::collections::{NameMap, NameSet};
use model::{Id, IdVec, define_id};
use smallvec::SmallVec;

use super::search::{Branch, BranchIndex, ClaimPosition, Search};
use crate::capacity::{BadCapacity, Demand};
use crate::compile::attributes::Held;
use crate::compile::device::Draw;
use crate::compile::selectors::Judgement;
use crate::inventory::view::{PoolPosition, Position};
use crate::ledger::Amounts;

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
    /// The branches that could ever pick a device of a class.
    open_to: IdVec<ClassIndex, SmallVec<[BranchIndex; 2]>>,
    /// Requests at which upstream may answer with an error, in the order of the search, and what decides whether it
    /// does. A subtree that never reaches the next of them holds no error.
    errors: BTreeMap<Place, Vec<ErrorSource>>,
    /// The last request for all devices under a constraint. Whether it ends in an error depends on the order in which
    /// its devices are tried, so up to there nothing may be skipped by symmetry.
    exact_until: Option<Place>,
    /// Set if defects of old releases make answers depend on choices that were undone, so that no subtree may be
    /// skipped. It can still be proved that there is no solution at all.
    pub(crate) past_matters: bool,
}

/// A request, in the order of the walk: claim, position in the claim.
pub(crate) type Place = (ClaimPosition, usize);

/// What may make a walk end in an error at a request.
#[derive(Debug)]
pub(crate) enum ErrorSource {
    /// Devices, in order, on which something fails when a branch with a count looks at them. It does not look at
    /// devices that are in use.
    Failing(BranchIndex, Vec<Position>),
    /// A branch for all devices under a constraint. It takes its devices in order, and ends in an error at the first
    /// that the constraint does not admit, if every one up to there can be had.
    AllUnderConstraint(BranchIndex),
}

/// By branch: the devices on which it fails.
type Failing = BTreeMap<BranchIndex, Vec<Position>>;

#[derive(Debug, PartialEq, Eq, Hash, Default)]
struct Fingerprint<'a> {
    branches: SmallVec<[Answer; 2]>,
    held: SmallVec<[Cow<'a, Held>; 1]>,
    draws: Option<(PoolPosition, &'a [Draw])>,
    /// Free capacity depends on shares that are given out.
    shares: Option<Amounts>,
    /// Empty if every request takes such a device whole, whatever its capacity is.
    capacity: SmallVec<[i128; 2]>,
    shareable: bool,
    taken: bool,
    unusable: bool,
}

impl Fingerprint<'_> {
    /// The branches that could pick such a device if nothing else did.
    fn open_to(&self, search: &Search<'_>, branches: &[BranchIndex]) -> SmallVec<[BranchIndex; 2]> {
        if self.unusable {
            return SmallVec::new();
        }
        let open = |(branch, answer): &(&BranchIndex, &Answer)| {
            (!self.taken || search.branches[**branch].alternative.admin_access)
                && matches!(answer, Answer::Whole | Answer::Demand(Some(_)))
        };
        branches.iter().zip(&self.branches).filter(open).map(|(branch, _)| *branch).collect()
    }
}

/// The answer of one branch about a device.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Answer {
    No,
    Error,
    Tainted,
    /// It takes the whole device.
    Whole,
    Demand(Option<Vec<i128>>),
    BadCapacity,
}

pub(super) fn classes(search: &mut Search<'_>) -> Classes {
    let mut ids: NameMap<Fingerprint, ClassIndex> = NameMap::default();
    let mut members: IdVec<ClassIndex, Vec<Position>> = IdVec::new();
    let mut open_to = IdVec::new();
    let mut of = IdVec::with_capacity(search.view.devices.len());
    let is_all_under_constraint =
        |branch: &Branch<'_>| branch.alternative.count.is_none() && !branch.alternative.constraints.is_empty();
    let mut failing = Failing::new();
    let branches: Vec<BranchIndex> = search.branches.ids().collect();
    let any_admin = search.branches.iter().any(|branch| branch.alternative.admin_access);
    for position in search.view.devices.ids() {
        // A device that no branch can reach needs no verdicts, and equals all others like it.
        let taken = search.is_taken(position);
        let fingerprint = if taken && !any_admin {
            Fingerprint { taken, unusable: true, ..Fingerprint::default() }
        } else {
            fingerprint(search, &branches, position, taken, &mut failing)
        };
        let class = *ids.entry(fingerprint).or_insert_with_key(|fingerprint| {
            open_to.push(fingerprint.open_to(search, &branches));
            members.push(Vec::new())
        });
        members[class].push(position);
        of.push(class);
    }
    let mut errors: BTreeMap<Place, Vec<ErrorSource>> = BTreeMap::new();
    let mut exact_until = None;
    for (branch, of_branch) in search.branches.iter_enumerated() {
        // A selector that fails on one of all devices has ended the search before it began.
        let source = if is_all_under_constraint(of_branch) {
            exact_until = exact_until.max(Some(of_branch.place()));
            ErrorSource::AllUnderConstraint(branch)
        } else if let Some(devices) = failing.remove(&branch) {
            ErrorSource::Failing(branch, devices)
        } else {
            continue;
        };
        errors.entry(of_branch.place()).or_default().push(source);
    }
    Classes { of, members, open_to, errors, exact_until, past_matters: past_matters(search) }
}

/// What constraints remember in old releases depends on what was taken back before.
fn past_matters(search: &Search<'_>) -> bool {
    let quirks = &search.inventory.quirks;
    let any_distinct =
        || search.claims.iter().any(|claim| claim.class.constraints.iter().any(|constraint| constraint.distinct));
    quirks.distinct_forgets_devices_of_its_request && any_distinct() || counters_are_mixed_up(search)
}

/// In old releases pools of one name share the counters of the one that is asked first.
pub(super) fn counters_are_mixed_up(search: &Search<'_>) -> bool {
    if !search.inventory.quirks.counters_are_keyed_by_pool_name {
        return false;
    }
    let drawing = search.view.pools.iter().filter(|pool| !pool.drawing.is_empty());
    let mut names = NameSet::default();
    let mut names_of = drawing.map(|pool| (search.inventory.pools[pool.pool].id.pool.as_str(), pool.instance()));
    names_of.any(|name| !names.insert(name))
}

fn fingerprint<'a>(
    search: &mut Search<'a>,
    branches: &[BranchIndex],
    position: Position,
    taken: bool,
    failing: &mut Failing,
) -> Fingerprint<'a> {
    let mut answers = SmallVec::with_capacity(branches.len());
    let mut held = SmallVec::new();
    for &branch in branches {
        let answer = answer(search, branch, position);
        let mut fails = match &answer {
            Answer::Error => true,
            Answer::BadCapacity => !search.inventory.quirks.bad_capacity_skips_device,
            Answer::No | Answer::Tainted | Answer::Whole | Answer::Demand(_) => false,
        };
        answers.push(answer);
        // Nobody reads the values of a device that a request does not want; a derived value could fail there.
        if search.judge(branch, position) == Judgement::Yes {
            for &constraint in &search.branches[branch].alternative.constraints {
                let value = search.held(branch, constraint, position);
                fails |= *value == Held::Failed;
                held.push(value);
            }
        }
        if fails {
            failing.entry(branch).or_default().push(position);
        }
    }
    let entry = search.entry(position);
    let device = search.device(position);
    // Devices that draw from counters are only equal within one pool, whose counters they share.
    let draws = (!entry.draws.is_empty()).then(|| (search.view_device(position).pool, &*entry.draws));
    let shares = search.taken.shares(search.unit(position));
    // A device that everybody takes whole is used up by one pick, whatever its capacity, so capacity need not tell it
    // apart.
    let is_whole = |answer: &Answer| match answer {
        Answer::No | Answer::Error | Answer::Tainted | Answer::Whole => true,
        Answer::Demand(_) | Answer::BadCapacity => false,
    };
    let shareable = search.is_shareable(position);
    let whole = !shareable && shares.is_none() && answers.iter().all(is_whole);
    Fingerprint {
        branches: answers,
        held,
        draws,
        shares,
        capacity: if whole {
            SmallVec::new()
        } else {
            device.capacity.values().map(|capacity| capacity.value.to_nano()).collect()
        },
        shareable,
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
    // A bad capacity is found before taints are looked at.
    if search.is_taken_whole(branch, position) {
        return if search.untolerated(branch, position).is_some() { Answer::Tainted } else { Answer::Whole };
    }
    let demand = search.demand(branch, position);
    match &*demand {
        Err(BadCapacity::NotRepresentable | BadCapacity::Negative) => Answer::BadCapacity,
        Ok(_) if search.untolerated(branch, position).is_some() => Answer::Tainted,
        Ok(Demand::Amounts(amounts)) => Answer::Demand(Some(amounts.to_vec())),
        Ok(Demand::Unusable) => Answer::Demand(None),
    }
}

/// What the rest of a search depends on, apart from exchanging devices of a class.
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
    let touch = |(position, touch): &(Position, super::search::Touch)| {
        let mut claims = touch.claims.to_vec();
        claims.sort_unstable();
        (classes.of[*position], claims, touch.shares, touch.taken.to_vec())
    };
    let mut touched: Vec<_> = search.touched.iter().map(touch).collect();
    touched.sort_unstable();
    let mut constraints = Vec::new();
    for (index, state) in search.claims[claim].constraints.iter().enumerate() {
        // Separates one constraint's values from the next one's.
        constraints.push(Held::Missing);
        let _ = index;
        state.fingerprint(&mut constraints);
    }
    State { branch, picked: search.picks_of(claim).len(), touched, constraints }
}

impl Classes {
    /// The requests, from a place on, where an error may be possible, with what decides it.
    pub(crate) fn errors_from(&self, place: Place) -> impl Iterator<Item = (Place, &[ErrorSource])> {
        self.errors.range(place..).map(|(place, sources)| (*place, sources.as_slice()))
    }

    /// Whether only device classes matter from this request on: no earlier choice among equal devices decides its
    /// outcome.
    pub(crate) fn only_classes_matter(&self, place: Place) -> bool {
        !self.past_matters && self.exact_until.is_none_or(|until| place > until)
    }

    /// Whether any branch could ever pick a device of a class.
    pub(crate) fn is_of_use(&self, class: ClassIndex) -> bool {
        !self.open_to[class].is_empty()
    }

    /// Whether a branch could ever pick a device of a class.
    pub(crate) fn is_open_to(&self, class: ClassIndex, branch: BranchIndex) -> bool {
        self.open_to[class].contains(&branch)
    }

    /// One device of each class of which a branch could ever pick a device.
    pub(crate) fn open_to(&self, branch: BranchIndex) -> impl Iterator<Item = Position> {
        let open = move |(class, _): &(ClassIndex, &Vec<Position>)| self.is_open_to(*class, branch);
        self.members.iter_enumerated().filter(open).filter_map(|(_, members)| members.first().copied())
    }

    /// How many devices of a class from a position on are untouched.
    pub(crate) fn untouched(&self, search: &Search<'_>, class: ClassIndex, start: usize) -> usize {
        let members = &self.members[class];
        let from = members.partition_point(|position| position.index() < start);
        let touched =
            search.touched.positions().filter(|position| self.of[*position] == class && position.index() >= start);
        (members.len() - from).saturating_sub(touched.count())
    }
}
