//! The search: a walk through claims, requests, alternatives and devices in upstream's order. Every choice is undone
//! exactly.

use std::sync::Arc;

use model::collections::{FastMap, FastSet};
use model::{Budget, Id, IdSet, IdVec, define_id};
use smallvec::SmallVec;

use super::constraints::ConstraintState;
use super::counting::{Current, Rest};
use super::symmetry::{ClassIndex, Classes, Place};
use super::{Need, Outcome, Question, errors, result, symmetry};
use crate::capacity::{BadCapacity, Demand};
use crate::compile::attributes::Held;
use crate::compile::claims::{Alternative, ClaimClass};
use crate::compile::derived::Values;
use crate::compile::ids::{CounterSetIndex, DeviceShape};
use crate::compile::selectors::Judgement;
use crate::faults::Fault;
use crate::inventory::Inventory;
use crate::inventory::view::{PoolPosition, Position, View};
use crate::ledger::Taken;
use crate::tuning::{LOOKS_BEFORE_PROOF, LOOKS_BEFORE_PROOF_PER_DEVICE, SHORT_LOOKS};
use crate::verdict::scene::Scene;
use crate::verdict::{Infeasible, Proof, Refusal};
use counters::{CountersLeft, GroupState};
use dra_types::{Allocation, NodeFacts};

mod counters;
mod device;
mod pick;
mod setup;
mod touched;

pub(crate) use pick::Pick;
pub(crate) use touched::{Touch, Touched};

define_id! {
    /// A claim of the search.
    pub(crate) struct ClaimPosition;
}
define_id! {
    /// One way to satisfy one request of one claim.
    pub(crate) struct BranchIndex;
}

/// A claim of a walk.
#[derive(Debug)]
pub(crate) struct WalkedClaim<'a> {
    pub(crate) class: &'a ClaimClass,
    /// The first of its branches; the others follow.
    first_branch: usize,
    /// Of each of its constraints.
    pub(crate) constraints: Vec<ConstraintState>,
}

/// The branches of one request, in upstream's order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Branches {
    first: usize,
    count: usize,
}

impl Branches {
    pub(crate) fn iter(self) -> impl Iterator<Item = BranchIndex> + Clone {
        (self.first..self.first + self.count).map(BranchIndex::from_index)
    }
}

/// One way to satisfy one request.
#[derive(Debug)]
pub(crate) struct Branch<'a> {
    pub(crate) claim: ClaimPosition,
    pub(crate) request: usize,
    pub(crate) index: usize,
    pub(crate) alternative: &'a Alternative,
    pub(crate) wanted: usize,
    /// The devices of a request for all; `None` for a request with a count.
    pub(crate) all: Option<Vec<Position>>,
    /// Devices whose selectors and capacity were asked for, without an error. Neither changes during a walk.
    harmless: IdSet<Position>,
}

impl Branch<'_> {
    /// The request that it belongs to.
    pub(crate) fn place(&self) -> Place {
        (self.claim, self.request)
    }
}

/// How the search of a subtree ended.
#[derive(Debug)]
pub(crate) enum Walk {
    Found,
    /// The subtree holds no solution.
    Exhausted,
    /// A claim would get more devices than its status can hold.
    TooMany,
    Fault(Box<Fault>),
    /// Counting proves that there is no solution anywhere.
    Refuted(Proof),
    OutOfBudget,
}

/// A walk in progress.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) facts: &'a NodeFacts,
    pub(crate) view: &'a View,
    /// The question, to begin anew.
    question: Question<'a>,
    pub(crate) claims: IdVec<ClaimPosition, WalkedClaim<'a>>,
    pub(crate) taken: Taken<'a>,
    pub(crate) budget: &'a mut Budget,
    pub(crate) branches: IdVec<BranchIndex, Branch<'a>>,
    /// In the order of claims.
    pub(crate) picks: Vec<Pick>,
    pub(crate) touched: Touched,
    pub(crate) lists: bool,
    derived: Values<'a>,
    consumable: bool,
    demands: FastMap<(BranchIndex, DeviceShape), Arc<Result<Demand, BadCapacity>>>,
    /// Counters by pool, as far as they were asked for.
    counters: FastMap<PoolPosition, CountersLeft>,
    /// By pool: the pool whose counters are drawn from. That is the pool itself, except for a defect of old releases.
    homes: FastMap<PoolPosition, PoolPosition>,
    groups: FastMap<(PoolPosition, CounterSetIndex), GroupState>,
    /// Device classes; set once a branch has failed for which a proof is worth its cost.
    pub(crate) classes: Option<Classes>,
    /// Devices looked at so far, in short looks ([`SHORT_LOOKS`]).
    looked: usize,
    /// Whether a device was taken back.
    went_back: bool,
    /// Devices that a constraint does not admit may be skipped before any other rule is checked. Not in old releases,
    /// which remember what they checked.
    passes_over: bool,
    failed: FastSet<symmetry::State>,
}

/// Searches; see the module.
pub(super) fn run(question: Question<'_>, need: Need, budget: &mut Budget) -> Outcome {
    let mut search = Search::new(question, budget);
    if let Err(fault) = search.prepare() {
        return Outcome::Refused(Refusal::Fault(fault));
    }
    let proof = match search.request(ClaimPosition::from_index(0), 0) {
        Walk::Found => return result::found(&search, need),
        Walk::OutOfBudget => return Outcome::OutOfBudget,
        Walk::Fault(fault) => return Outcome::Refused(Refusal::Fault(*fault)),
        Walk::TooMany => {
            let claim = search.claims.iter().next().map_or_else(|| "".into(), |claim| Arc::clone(&claim.class.name));
            return Outcome::Refused(Refusal::Fault(Fault::TooManyDevices { claim }));
        }
        Walk::Refuted(proof) => proof,
        // Whether counting would have shown it too is found out when somebody reads it (`Infeasible::reasoned`).
        Walk::Exhausted => Proof::Exhausted,
    };
    let Question { inventory, seen: (facts, view), claims, taken } = question;
    let troubled = view.pools.iter().filter_map(|pool| Some((pool, pool.trouble.clone()?)));
    let pools: Vec<_> = troubled.map(|(pool, trouble)| (pool.id(inventory), trouble)).collect();
    if let Some((pool, trouble)) = pools.iter().find(|(_, trouble)| trouble.is_invalid()) {
        let (pool, trouble) = (pool.clone(), trouble.clone());
        return Outcome::Refused(Refusal::Fault(Fault::InvalidPools { pool, trouble }));
    }
    let scene = Scene::of(inventory, facts, view, claims, taken);
    Outcome::Refused(Refusal::Infeasible(Box::new(Infeasible { proof, pools, scene })))
}

impl Search<'_> {
    /// The branches of a request; none if there is no such request.
    pub(crate) fn branches_of(&self, claim: ClaimPosition, request: usize) -> Branches {
        let of_claim = &self.claims[claim];
        match of_claim.class.requests.get(request) {
            Some(of) => Branches { first: of_claim.first_branch + of.before, count: of.alternatives.len() },
            None => Branches { first: 0, count: 0 },
        }
    }

    /// What was picked for a claim.
    pub(crate) fn picks_of(&self, claim: ClaimPosition) -> &[Pick] {
        let before = |of: ClaimPosition| self.picks.partition_point(|pick| self.branches[pick.branch].claim < of);
        let next = ClaimPosition::from_index(claim.index() + 1);
        self.picks.get(before(claim)..before(next)).unwrap_or_default()
    }

    fn request(&mut self, claim: ClaimPosition, request: usize) -> Walk {
        let Some(of_claim) = self.claims.try_get(claim) else { return Walk::Found };
        let Some(of_request) = of_claim.class.requests.get(request) else {
            let next = ClaimPosition::from_index(claim.index() + 1);
            return match self.request(next, 0) {
                // The claims before may have chosen otherwise, but that would not make this one smaller.
                Walk::TooMany => Walk::Exhausted,
                other => other,
            };
        };
        let branches = self.branches_of(claim, request);
        if !of_request.first_available {
            return branches.iter().next().map_or(Walk::Exhausted, |branch| self.devices(branch, 0, 0));
        }
        let mut all_too_many = true;
        for branch in branches.iter() {
            match self.devices(branch, 0, 0) {
                Walk::TooMany => {}
                Walk::Exhausted => all_too_many = false,
                other => return other,
            }
        }
        if all_too_many { Walk::TooMany } else { Walk::Exhausted }
    }

    /// Picks the devices of a branch from the `done`-th on, the next one at `start` or later.
    fn devices(&mut self, branch: BranchIndex, done: usize, start: usize) -> Walk {
        let Branch { claim, request, wanted, .. } = self.branches[branch];
        let all = self.branches[branch].all.as_ref().map(|all| all.get(done).copied());
        if all.is_some() && wanted == 0 {
            return Walk::Exhausted;
        }
        if done >= wanted {
            return self.request(claim, request + 1);
        }
        let is_too_many = |picked: usize| picked + wanted - done > Allocation::MAX_RESULTS;
        if is_too_many(self.picks.len()) && is_too_many(self.picks_of(claim).len()) {
            return Walk::TooMany;
        }
        let state = match self.known_to_fail(branch, done, start) {
            Ok(state) => state,
            Err(walk) => return walk,
        };
        let walk = match all {
            Some(position) => position.map_or(Walk::Exhausted, |position| self.next_of_all(branch, done, position)),
            None => self.next_of_some(branch, done, start),
        };
        if let (Walk::Exhausted, Some(state)) = (&walk, state) {
            self.failed.insert(state);
        }
        walk
    }

    /// After a failure: whether counting, or an earlier failure, excludes this subtree. If not, the key by which its
    /// failure will be remembered.
    fn known_to_fail(
        &mut self,
        branch: BranchIndex,
        done: usize,
        start: usize,
    ) -> Result<Option<symmetry::State>, Walk> {
        let Some(classes) = &self.classes else { return Ok(None) };
        if classes.past_matters {
            return Ok(None);
        }
        let place = self.branches[branch].place();
        if self.is_last(branch, done) {
            // Looking at each device costs less than a proof.
            return Ok(None);
        }
        let is_new = done == 0 && classes.only_classes_matter(place);
        let state = is_new.then(|| symmetry::state(self, classes, branch));
        if state.as_ref().is_some_and(|state| self.failed.contains(state)) {
            return Err(Walk::Exhausted);
        }
        match errors::refute(self, Rest { place, current: Some(Current { branch, done, start }) }) {
            Ok(None) => Ok(state),
            Ok(Some(_)) => Err(Walk::Exhausted),
            Err(_) => Err(Walk::OutOfBudget),
        }
    }

    /// Whether only one device is left to pick.
    fn is_last(&self, branch: BranchIndex, done: usize) -> bool {
        let Branch { claim, request, wanted, .. } = self.branches[branch];
        done + 1 == wanted
            && claim.index() + 1 == self.claims.len()
            && request + 1 == self.claims[claim].class.requests.len()
    }

    fn next_of_all(&mut self, branch: BranchIndex, done: usize, position: Position) -> Walk {
        match self.pick(branch, position, true) {
            Err(walk) => walk,
            Ok(false) => self.failure(),
            Ok(true) => match self.devices(branch, done + 1, 0) {
                Walk::Found => Walk::Found,
                other => {
                    self.unpick(branch);
                    other
                }
            },
        }
    }

    fn next_of_some(&mut self, branch: BranchIndex, done: usize, start: usize) -> Walk {
        let admin = self.branches[branch].alternative.admin_access;
        let claim = self.branches[branch].claim;
        let passes_over = self.passes_over && !self.branches[branch].alternative.constraints.is_empty();
        let mut failed: SmallVec<[ClassIndex; 4]> = SmallVec::new();
        for index in start..self.view.devices.len() {
            let position = Position::from_index(index);
            // Nothing that comes before the constraints can fail any more, and they are the cheapest to ask.
            let is_harmless = passes_over && self.branches[branch].harmless.contains(position);
            if is_harmless && self.is_unlike(branch, position) {
                self.looked += 1;
                continue;
            }
            self.looked += SHORT_LOOKS;
            // Access as administrator does not count as use, but one claim must not get a device twice.
            let taken = if admin { self.is_picked_by(position, claim) } else { self.in_use(position) };
            if taken {
                continue;
            }
            match self.judge(branch, position) {
                Judgement::No => continue,
                Judgement::Error => return Walk::Fault(Box::new(self.selector_fault(branch, position))),
                Judgement::Yes => {}
            }
            // Capacity is asked before symmetry, since upstream may answer with an error here.
            match self.has_capacity(branch, position, false) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => match self.capacity_fault(branch, position, error) {
                    Some(fault) => return Walk::Fault(Box::new(fault)),
                    None => continue,
                },
            }
            // An equal device failed in this slot, so this one would too.
            if self.class_of(branch, position).is_some_and(|class| failed.contains(&class)) {
                continue;
            }
            // `pick` would refuse what a constraint does not admit, at a higher cost.
            if passes_over && !is_harmless {
                self.branches[branch].harmless.insert(position);
                if self.is_unlike(branch, position) {
                    continue;
                }
            }
            match self.pick(branch, position, false) {
                Err(walk) => return walk,
                Ok(false) => continue,
                Ok(true) => {}
            }
            let walk = self.devices(branch, done + 1, index + 1);
            if matches!(walk, Walk::Found) {
                return walk;
            }
            self.unpick(branch);
            // Errors and exhausted budgets end the whole search, not this branch.
            if !matches!(walk, Walk::Exhausted) {
                return walk;
            }
            failed.extend(self.class_of(branch, position));
        }
        if let Some(proof) = self.too_few(branch, done) {
            return Walk::Refuted(proof);
        }
        // As long as little was looked at, walking on is cheaper than a proof.
        let looks = LOOKS_BEFORE_PROOF + LOOKS_BEFORE_PROOF_PER_DEVICE * self.view.devices.len();
        if self.looked < SHORT_LOOKS * looks {
            return Walk::Exhausted;
        }
        self.failure()
    }

    /// The proof that the search's first request wants more devices than it has, where the walk itself has just shown
    /// that: it has taken every device that the request could use, and that is what counting would find.
    fn too_few(&self, branch: BranchIndex, done: usize) -> Option<Proof> {
        let Branch { claim, request, alternative, wanted, .. } = self.branches[branch];
        // Picks may keep a request from devices by a constraint or by counters.
        let is_kept_from_some = done > 0 && !alternative.constraints.is_empty()
            || self.view.pools.iter().any(|pool| !pool.drawing.is_empty());
        let is_only_way = (claim.index(), request) == (0, 0) && self.branches_of(claim, request).iter().count() == 1;
        (!self.went_back && is_only_way && !is_kept_from_some).then(|| Proof::TooFew {
            claim: 0,
            request: alternative.name.clone(),
            wanted: wanted as u64,
            usable: done as u64,
        })
    }

    /// Whether a constraint does not admit a device, and upstream would find no error before it checks the constraint.
    fn is_unlike(&self, branch: BranchIndex, position: Position) -> bool {
        let Branch { claim, alternative, .. } = self.branches[branch];
        for &constraint in &alternative.constraints {
            let value = self.held(branch, constraint, position);
            let state = self.claims[claim].constraints.get(constraint);
            if *value == Held::Failed {
                return false;
            }
            if !state.is_some_and(|state| state.admits(&value, self.lists)) {
                return true;
            }
        }
        false
    }

    /// The proof for a search that finds nothing, by counting if that shows it.
    pub(super) fn proof_of_exhaustion(&mut self) -> Proof {
        match self.failure() {
            Walk::Refuted(proof) => proof,
            Walk::Found | Walk::Exhausted | Walk::TooMany | Walk::Fault(_) | Walk::OutOfBudget => Proof::Exhausted,
        }
    }

    /// The class of a device, once classes are known; `None` if it is taken already, or where more than its class
    /// matters.
    fn class_of(&self, branch: BranchIndex, position: Position) -> Option<ClassIndex> {
        let place = self.branches[branch].place();
        let classes = self.classes.as_ref().filter(|classes| classes.only_classes_matter(place))?;
        if self.touched.get(position).is_some() { None } else { Some(classes.of[position]) }
    }

    /// Handles a failure. On the first one the whole problem is checked, as it was before anything was picked.
    fn failure(&mut self) -> Walk {
        if self.classes.is_some() {
            return Walk::Exhausted;
        }
        let mut fresh = Search::new(self.question, &mut *self.budget);
        if let Err(fault) = fresh.prepare() {
            return Walk::Fault(Box::new(fault));
        }
        fresh.classes = Some(symmetry::classes(&mut fresh));
        let proof = errors::refute_all(&mut fresh);
        self.classes = fresh.classes.take();
        match proof {
            Ok(None) => Walk::Exhausted,
            Ok(Some(proof)) => Walk::Refuted(proof),
            Err(_) => Walk::OutOfBudget,
        }
    }
}
