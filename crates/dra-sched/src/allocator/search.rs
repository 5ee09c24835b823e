//! The walk: claims, requests, alternatives, devices, in upstream's order, every choice undone exactly.

use std::sync::Arc;

use model::collections::{FastMap, FastSet};
use model::{Budget, Id, IdVec, define_id};
use smallvec::SmallVec;

use super::constraints::ConstraintState;
use super::scene::Scene;
use super::symmetry::{ClassIndex, Classes, Place};
use super::{Need, Outcome, counting, result, symmetry};
use crate::attributes::Held;
use crate::capacity::{BadCapacity, Demand};
use crate::claims::{Alternative, ClaimClass, MAX_RESULTS};
use crate::derived::Values;
use crate::inventory::{ClaimClassId, CounterSetIndex, DeviceShape, Inventory};
use crate::ledger::Taken;
use crate::selectors::Judgement;
use crate::verdict::{ClaimFault, Fault, Infeasible, Proof, Refusal};
use crate::view::{PoolPosition, Position, View};
use dra_types::{NodeFacts, compat::Gate};

mod counters;
mod device;
mod touched;

pub(crate) use touched::{Touch, Touched};

use crate::tuning::PROOF_PATIENCE;
use counters::{CountersLeft, GroupState};

define_id! {
    /// A claim of the search.
    pub(crate) struct ClaimPosition;
}
define_id! {
    /// One way to satisfy one request of one claim.
    pub(crate) struct BranchIndex;
}

/// One way to satisfy one request.
#[derive(Debug)]
pub(crate) struct Branch<'a> {
    pub(crate) claim: ClaimPosition,
    pub(crate) request: usize,
    pub(crate) index: usize,
    pub(crate) alternative: &'a Alternative,
    pub(crate) wanted: usize,
    /// The devices of a request for all.
    pub(crate) all: Option<Vec<Position>>,
}

impl Branch<'_> {
    /// The request that it belongs to.
    pub(crate) fn place(&self) -> Place {
        (self.claim, self.request)
    }
}

/// A device given to a request.
#[derive(Debug, Clone)]
pub(crate) struct Pick {
    pub(crate) position: Position,
    pub(crate) branch: BranchIndex,
    /// What a share takes, in the order of the device's capacities; None for a device given whole.
    pub(crate) share: Option<Box<[i128]>>,
    drew: bool,
    groups: Vec<((PoolPosition, CounterSetIndex), Option<GroupState>)>,
}

/// How a walk ended.
#[derive(Debug)]
pub(crate) enum Walk {
    Found,
    /// Nothing below.
    Exhausted,
    /// More devices than a claim's status holds.
    TooMany,
    Fault(Box<Fault>),
    /// Counting shows that there is nothing anywhere.
    Refuted(Proof),
    OutOfBudget,
}

/// A walk in progress.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) facts: &'a NodeFacts,
    pub(crate) view: &'a View,
    ids: &'a [ClaimClassId],
    pub(crate) claims: IdVec<ClaimPosition, &'a ClaimClass>,
    pub(crate) taken: Taken<'a>,
    pub(crate) budget: &'a mut Budget,
    pub(crate) branches: IdVec<BranchIndex, Branch<'a>>,
    /// By claim and request: its branches.
    pub(crate) layout: IdVec<ClaimPosition, Vec<SmallVec<[BranchIndex; 1]>>>,
    pub(crate) picks: IdVec<ClaimPosition, Vec<Pick>>,
    pub(crate) constraints: IdVec<ClaimPosition, Vec<ConstraintState>>,
    pub(crate) touched: Touched,
    pub(crate) lists: bool,
    derived: Values<'a>,
    consumable: bool,
    demands: FastMap<(BranchIndex, DeviceShape), Arc<Result<Demand, BadCapacity>>>,
    /// By pool, as far as asked for.
    counters: FastMap<PoolPosition, CountersLeft>,
    /// The pool whose counters are looked at for each pool asked for: its own, but for a defect of old releases.
    homes: FastMap<PoolPosition, PoolPosition>,
    groups: FastMap<(PoolPosition, CounterSetIndex), GroupState>,
    /// Known once a branch has failed for which a proof is worth its cost.
    pub(crate) classes: Option<Classes>,
    /// Devices looked at so far.
    looked: usize,
    /// What a constraint does not admit may be passed over before anything else is asked of it. Old releases remember
    /// what they asked.
    passes_over: bool,
    failed: FastSet<symmetry::State>,
}

/// Searches; see the module.
pub(super) fn run(
    inventory: &Inventory,
    (facts, view): (&NodeFacts, &Arc<View>),
    claims: &[ClaimClassId],
    taken: Taken<'_>,
    need: Need,
    budget: &mut Budget,
) -> Outcome {
    let mut search = Search::new(inventory, (facts, view), claims, taken, budget);
    if let Err(fault) = search.prepare() {
        return Outcome::Refused(Refusal::Fault(fault));
    }
    let proof = match search.request(ClaimPosition::from_index(0), 0) {
        Walk::Found => return result::found(&search, need),
        Walk::OutOfBudget => return Outcome::OutOfBudget,
        Walk::Fault(fault) => return Outcome::Refused(Refusal::Fault(*fault)),
        Walk::TooMany => {
            let claim = search.claims.iter().next().map_or_else(|| "".into(), |claim| Arc::clone(&claim.name));
            return Outcome::Refused(Refusal::Fault(Fault::TooManyDevices { claim }));
        }
        Walk::Refuted(proof) => proof,
        Walk::Exhausted => search.proof_of_exhaustion(),
    };
    let troubled = view.pools.iter().filter_map(|pool| Some((pool, pool.trouble.clone()?)));
    let pools: Vec<_> = troubled.map(|(pool, trouble)| (pool.id(inventory), trouble)).collect();
    if let Some((pool, trouble)) = pools.iter().find(|(_, trouble)| trouble.is_invalid()) {
        let (pool, trouble) = (pool.clone(), trouble.clone());
        return Outcome::Refused(Refusal::Fault(Fault::InvalidPools { pool, trouble }));
    }
    let scene = Scene::of(inventory, facts, view, claims, taken);
    Outcome::Refused(Refusal::Infeasible(Box::new(Infeasible { proof, pools, scene })))
}

impl<'a> Search<'a> {
    pub(super) fn new(
        inventory: &'a Inventory,
        (facts, view): (&'a NodeFacts, &'a View),
        ids: &'a [ClaimClassId],
        taken: Taken<'a>,
        budget: &'a mut Budget,
    ) -> Self {
        let claims: IdVec<ClaimPosition, &ClaimClass> =
            ids.iter().map(|claim| &inventory.claim_classes[*claim]).collect();
        let mut branches = IdVec::with_capacity(claims.len());
        let mut layout = IdVec::with_capacity(claims.len());
        for (claim, class) in claims.iter_enumerated() {
            let mut requests = Vec::with_capacity(class.requests.len());
            for (request, of) in class.requests.iter().enumerate() {
                let add = |(index, alternative): (usize, &'a Alternative)| {
                    branches.push(Branch {
                        claim,
                        request,
                        index,
                        alternative,
                        wanted: alternative.count.unwrap_or(0),
                        all: None,
                    })
                };
                requests.push(of.alternatives.iter().enumerate().map(add).collect());
            }
            layout.push(requests);
        }
        let quirks = &inventory.quirks;
        let distinct = |claim: &&ClaimClass| claim.constraints.iter().any(|constraint| constraint.distinct);
        let remembers = quirks.distinct_forgets_devices_of_its_request && claims.iter().any(distinct)
            || quirks.counters_are_keyed_by_pool_name && view.pools.iter().any(|pool| !pool.drawing.is_empty());
        let passes_over = !remembers;
        let constraints = claims.map(|class| {
            class.constraints.iter().map(|constraint| ConstraintState::new(*constraint, &inventory.quirks)).collect()
        });
        Self {
            inventory,
            facts,
            view,
            ids,
            picks: claims.map(|_| Vec::new()),
            constraints,
            claims,
            taken,
            budget,
            branches,
            layout,
            touched: Touched::default(),
            lists: inventory.quirks.constraints_see_lists(&inventory.compat),
            derived: Values::new(&inventory.derived, &inventory.values),
            consumable: inventory.compat.is_on(Gate::ConsumableCapacity),
            demands: FastMap::default(),
            counters: FastMap::default(),
            homes: FastMap::default(),
            groups: FastMap::default(),
            classes: None,
            looked: 0,
            passes_over,
            failed: FastSet::default(),
        }
    }

    /// Finds the devices of requests for all, and claims that want too many whatever is chosen.
    pub(super) fn prepare(&mut self) -> Result<(), Fault> {
        for branch in self.branches.ids() {
            if self.branches[branch].alternative.count.is_none() {
                let all = self.all_devices(branch)?;
                self.branches[branch].wanted = all.len();
                self.branches[branch].all = Some(all);
            }
        }
        for (claim, requests) in self.layout.iter_enumerated() {
            let least = |branches: &SmallVec<[BranchIndex; 1]>| {
                branches.iter().map(|branch| self.branches[*branch].wanted).min().unwrap_or(0)
            };
            let devices = requests.iter().map(least).fold(0usize, usize::saturating_add);
            if devices > MAX_RESULTS {
                let error = ClaimFault::TooManyDevices { devices: devices as u64 };
                return Err(Fault::Claim { claim: Arc::clone(&self.claims[claim].name), error });
            }
        }
        Ok(())
    }

    fn all_devices(&mut self, branch: BranchIndex) -> Result<Vec<Position>, Fault> {
        for pool in &self.view.pools {
            if let Some(trouble) = &pool.trouble {
                return Err(Fault::AllNeedsPool {
                    claim: self.claim_name(branch),
                    request: self.branches[branch].alternative.name.clone(),
                    pool: pool.id(self.inventory),
                    trouble: trouble.clone(),
                });
            }
        }
        let mut all = Vec::new();
        for position in self.view.devices.ids() {
            match self.judge(branch, position) {
                Judgement::No => continue,
                Judgement::Error => return Err(self.selector_fault(branch, position)),
                Judgement::Yes => {}
            }
            let statically = !self.inventory.quirks.all_leaves_out_full_devices;
            match self.has_capacity(branch, position, statically) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => match self.capacity_fault(branch, position, error) {
                    Some(fault) => return Err(fault),
                    None => continue,
                },
            }
            all.push(position);
        }
        Ok(all)
    }

    // ---- The walk.

    fn request(&mut self, claim: ClaimPosition, request: usize) -> Walk {
        let Some(requests) = self.layout.try_get(claim) else { return Walk::Found };
        let Some(branches) = requests.get(request) else {
            let next = ClaimPosition::from_index(claim.index() + 1);
            return match self.request(next, 0) {
                // An earlier claim that chose otherwise would not make this one smaller.
                Walk::TooMany => Walk::Exhausted,
                other => other,
            };
        };
        let branches = branches.clone();
        if !self.claims[claim].requests.get(request).is_some_and(|request| request.first_available) {
            return branches.first().map_or(Walk::Exhausted, |branch| self.devices(*branch, 0, 0));
        }
        let mut all_too_many = true;
        for branch in branches {
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
        if wanted - done > MAX_RESULTS - self.picks[claim].len().min(MAX_RESULTS) {
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

    /// Once something has failed: whether counting or an earlier failure excludes this part of the tree; if not, what
    /// it will be remembered by.
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
            // A look at each device costs less than a proof.
            return Ok(None);
        }
        let is_new = done == 0 && classes.only_classes_matter(place);
        let state = is_new.then(|| symmetry::state(self, classes, branch));
        if state.as_ref().is_some_and(|state| self.failed.contains(state)) {
            return Err(Walk::Exhausted);
        }
        match counting::refute(self, place, Some((branch, done, start))) {
            Ok(None) => Ok(state),
            Ok(Some(_)) => Err(Walk::Exhausted),
            Err(_) => Err(Walk::OutOfBudget),
        }
    }

    /// Whether only one device is left to pick.
    fn is_last(&self, branch: BranchIndex, done: usize) -> bool {
        let Branch { claim, request, wanted, .. } = self.branches[branch];
        done + 1 == wanted && claim.index() + 1 == self.claims.len() && request + 1 == self.layout[claim].len()
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
        let mut failed: SmallVec<[ClassIndex; 4]> = SmallVec::new();
        let mut passed_over = false;
        for index in start..self.view.devices.len() {
            let position = Position::from_index(index);
            self.looked += 1;
            let taken = if admin { self.is_picked_by(position, claim) } else { self.in_use(position) };
            if taken {
                continue;
            }
            match self.judge(branch, position) {
                Judgement::No => continue,
                Judgement::Error => return Walk::Fault(Box::new(self.selector_fault(branch, position))),
                Judgement::Yes => {}
            }
            match self.has_capacity(branch, position, false) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => match self.capacity_fault(branch, position, error) {
                    Some(fault) => return Walk::Fault(Box::new(fault)),
                    None => continue,
                },
            }
            if self.class_of(branch, position).is_some_and(|class| failed.contains(&class)) {
                continue;
            }
            if self.passes_over && self.is_unlike(branch, position) {
                passed_over = true;
                continue;
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
            if !matches!(walk, Walk::Exhausted) {
                return walk;
            }
            failed.extend(self.class_of(branch, position));
        }
        if passed_over && self.looked < PROOF_PATIENCE * self.view.devices.len() {
            return Walk::Exhausted;
        }
        self.failure()
    }

    /// Whether a constraint does not admit a device, and upstream would have no error before it says so.
    fn is_unlike(&self, branch: BranchIndex, position: Position) -> bool {
        let Branch { claim, alternative, .. } = self.branches[branch];
        for &constraint in &alternative.constraints {
            let value = self.held(branch, constraint, position);
            let state = self.constraints[claim].get(constraint);
            if value == Held::Failed {
                return false;
            }
            if !state.is_some_and(|state| state.admits(&value, self.lists)) {
                return true;
            }
        }
        false
    }

    /// Why a walk found nothing, if it ended before it tried to prove that.
    fn proof_of_exhaustion(&mut self) -> Proof {
        match self.failure() {
            Walk::Refuted(proof) => proof,
            Walk::Found | Walk::Exhausted | Walk::TooMany | Walk::Fault(_) | Walk::OutOfBudget => Proof::Exhausted,
        }
    }

    /// The class of a device that nothing was done to yet, once classes are known and where no more than classes
    /// matter.
    fn class_of(&self, branch: BranchIndex, position: Position) -> Option<ClassIndex> {
        let place = self.branches[branch].place();
        let classes = self.classes.as_ref().filter(|classes| classes.only_classes_matter(place))?;
        if self.touched.get(position).is_some() { None } else { Some(classes.of[position]) }
    }

    /// Something failed. The first time the whole problem is looked at, as it was before anything was picked.
    fn failure(&mut self) -> Walk {
        if self.classes.is_some() {
            return Walk::Exhausted;
        }
        let seen = (self.facts, self.view);
        let mut fresh = Search::new(self.inventory, seen, self.ids, self.taken, &mut *self.budget);
        if let Err(fault) = fresh.prepare() {
            return Walk::Fault(Box::new(fault));
        }
        fresh.classes = Some(symmetry::classes(&mut fresh));
        let proof = counting::refute_all(&mut fresh);
        self.classes = fresh.classes.take();
        match proof {
            Ok(None) => Walk::Exhausted,
            Ok(Some(proof)) => Walk::Refuted(proof),
            Err(_) => Walk::OutOfBudget,
        }
    }

    /// Takes a device tentatively. False if it cannot be had; an error only where upstream has one.
    fn pick(&mut self, branch: BranchIndex, position: Position, must: bool) -> Result<bool, Walk> {
        self.budget.spend(1).map_err(|_| Walk::OutOfBudget)?;
        let Branch { claim, request, alternative, .. } = self.branches[branch];
        let admin = alternative.admin_access;
        let shareable = self.is_shareable(position);
        if admin && !shareable && self.is_picked_by(position, claim) || !admin && self.in_use(position) {
            return Ok(false);
        }
        if self.lacks_node_operations(position) || self.counters_are_off(position) {
            return Ok(false);
        }
        let draws = !self.entry(position).draws.is_empty()
            && self.inventory.compat.is_on(Gate::PartitionableDevices)
            && !(shareable && self.has_shares(position))
            && (!admin || self.inventory.quirks.admin_access_draws_counters);
        let mut pick = Pick { position, branch, share: None, drew: false, groups: Vec::new() };
        if draws {
            if !self.join_groups(&mut pick) || !self.draw(position) {
                self.leave_groups(&mut pick);
                return Ok(false);
            }
            pick.drew = true;
        }
        if self.untolerated(branch, position).is_some() {
            self.put_back(&mut pick);
            return Ok(false);
        }
        let mut added: SmallVec<[usize; 4]> = SmallVec::new();
        for &constraint in &alternative.constraints {
            self.budget.spend(1).map_err(|_| Walk::OutOfBudget)?;
            let value = self.held(branch, constraint, position);
            if value == Held::Failed {
                return Err(Walk::Fault(Box::new(self.derived_fault(branch, constraint, position))));
            }
            let lists = self.lists;
            let state = self.constraints[claim].get_mut(constraint);
            if let Some(state) = state.filter(|state| state.admits(&value, lists)) {
                state.add(request, value);
                added.push(constraint);
                continue;
            }
            self.remove_from(claim, request, &added);
            self.put_back(&mut pick);
            return if must { Err(Walk::Fault(Box::new(self.all_fault(branch, position)))) } else { Ok(false) };
        }
        let fits = match self.has_capacity(branch, position, false) {
            Ok(fits) => fits,
            Err(error) => match self.capacity_fault(branch, position, error) {
                Some(fault) => return Err(Walk::Fault(Box::new(fault))),
                None => false,
            },
        };
        if !fits {
            self.remove_from(claim, request, &added);
            self.put_back(&mut pick);
            return Ok(false);
        }
        if shareable {
            let demand = self.demand(branch, position);
            let amounts: Box<[i128]> = match &*demand {
                Ok(Demand::Amounts(amounts)) => amounts.clone(),
                Ok(Demand::Unusable) | Err(_) => Box::default(),
            };
            let touch = self.touched.of(position);
            touch.shares += 1;
            touch.taken.resize(amounts.len(), 0);
            for (taken, amount) in touch.taken.iter_mut().zip(&amounts) {
                *taken += amount;
            }
            pick.share = Some(amounts);
        } else {
            self.touched.of(position).claims.push(claim);
        }
        self.picks[claim].push(pick);
        Ok(true)
    }

    fn all_fault(&self, branch: BranchIndex, position: Position) -> Fault {
        Fault::AllUnderConstraint {
            claim: self.claim_name(branch),
            request: self.branches[branch].alternative.name.clone(),
            device: self.device_id(position),
        }
    }

    /// Takes back the last device of a branch's claim.
    fn unpick(&mut self, branch: BranchIndex) {
        let Branch { claim, request, alternative, .. } = self.branches[branch];
        let Some(mut pick) = self.picks[claim].pop() else { return };
        let touch = self.touched.of(pick.position);
        match &pick.share {
            Some(amounts) => {
                touch.shares -= 1;
                for (taken, amount) in touch.taken.iter_mut().zip(amounts) {
                    *taken -= amount;
                }
            }
            None => {
                touch.claims.pop();
            }
        }
        self.touched.forget_if_free(pick.position);
        self.remove_from(claim, request, &alternative.constraints);
        self.put_back(&mut pick);
    }

    fn remove_from(&mut self, claim: ClaimPosition, request: usize, constraints: &[usize]) {
        for &constraint in constraints.iter().rev() {
            if let Some(state) = self.constraints[claim].get_mut(constraint) {
                state.remove(request);
            }
        }
    }

    fn put_back(&mut self, pick: &mut Pick) {
        if pick.drew {
            self.change_counters(pick.position, 1);
        }
        self.leave_groups(pick);
    }
}
