//! Proofs that nothing fits, by counting.
//!
//! Every test relaxes the problem: requests are demands, classes of equal devices are supplies, and of the rules about
//! combinations (constraints among several requests, counters among several devices) only one is kept at a time. If
//! even the relaxed problem has no solution, there is none. Hall's condition over requests is a maximum flow; a
//! matchAttribute constraint is tested once per value; counters by the least that each request must draw.
//!
//! A proof has a [`Scope`]: it may cover only the requests up to a place (if even these cannot all be served, the
//! search never gets past it), and only assignments that leave some devices free or agree on some value.
//!
//! Cost: demands × classes for one flow, times the values of one attribute.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{Id, OutOfBudget};
use smallvec::SmallVec;

use super::constraints::ConstraintState;
use super::search::{BranchIndex, ClaimPosition, Search};
use super::symmetry::{self, ClassIndex, Classes, Place};
use crate::compile::attributes::{Held, ValueId};
use crate::compile::ids::CounterIndex;
use crate::flow::{self, Wants};
use crate::inventory::view::{PoolPosition, Position};
use crate::verdict::Proof;
use dra_types::RequestName;

/// Devices that a request still needs, and how many it could take of each supply.
struct Demand {
    claim: ClaimPosition,
    name: RequestName,
    wanted: usize,
    /// Constraints that cover it whatever alternative is chosen.
    constraints: Vec<usize>,
    /// The alternatives.
    branches: SmallVec<[BranchIndex; 1]>,
    admin: bool,
    supplies: Vec<Offer>,
}

/// What a supply offers to a demand.
struct Offer {
    supply: usize,
    /// One device of the supply, for questions about all.
    example: Position,
    devices: usize,
}

/// Devices that are equal now.
struct Supply {
    example: Position,
    class: ClassIndex,
    touched: bool,
    /// How many demands it can serve together; None for devices that are shared.
    devices: Option<usize>,
}

/// The rest of a search: a request and all requests after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    pub(super) place: Place,
    /// What is left of the first request, if that is one of its branches only.
    pub(super) current: Option<Current>,
}

/// A branch that is being served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    pub(super) branch: BranchIndex,
    /// Devices that it has.
    pub(super) done: usize,
    /// Where its next device may be at the earliest.
    pub(super) start: usize,
}

/// What a proof looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'s> {
    pub(super) rest: Rest,
    /// Requests from here on are left out; None for none.
    pub(super) until: Option<Place>,
    /// Assignments that give out one of these devices do not count. They are free now, and are not shared.
    pub(super) avoided: &'s [Position],
    /// Assignments in which a matchAttribute constraint, by claim and position, does not end up with this value do not
    /// count.
    pub(super) value: Option<(ClaimPosition, usize, ValueId)>,
}

/// A proof, if there is one, that the requests of a scope cannot all be served.
pub(super) fn refute(
    search: &mut Search<'_>,
    classes: &Classes,
    scope: Scope<'_>,
) -> Result<Option<Proof>, OutOfBudget> {
    search.budget.spend(1)?;
    let without_counters = symmetry::counters_are_mixed_up(search);
    Tests { search, classes, scope, without_counters, contended: false }.run()
}

struct Tests<'t, 'a> {
    search: &'t mut Search<'a>,
    classes: &'t Classes,
    scope: Scope<'t>,
    /// Counters are left out, because the search decides whose counters a device draws from.
    without_counters: bool,
    /// Whether several demands compete for a supply; if not, each has what it is offered.
    contended: bool,
}

impl Tests<'_, '_> {
    fn run(&mut self) -> Result<Option<Proof>, OutOfBudget> {
        let supplies = self.supplies();
        let demands = self.demands(&supplies);
        // The tests come by their cost: counts, one flow, counters, and flows for each value of an attribute.
        if let Some(proof) = demands.iter().find_map(too_few) {
            return Ok(Some(proof));
        }
        // Where no two demands compete for a supply, counting each by itself was the whole flow.
        self.contended = is_contended(&demands, &supplies);
        if let Some(proof) = self.contended.then(|| together(&demands, &supplies, |_, _| true)).flatten() {
            return Ok(Some(proof));
        }
        if let Some(proof) = self.too_little_left(&demands) {
            return Ok(Some(proof));
        }
        for claim in self.search.claims.ids() {
            for constraint in 0..self.search.claims[claim].class.constraints.len() {
                // A constraint that covers none of the requests left cannot refute them.
                let covers = |demand: &Demand| demand.claim == claim && demand.constraints.contains(&constraint);
                if !demands.iter().any(covers) {
                    continue;
                }
                let proof = match self.search.claims[claim].constraints.get(constraint) {
                    Some(ConstraintState::Match { .. }) => {
                        self.no_common_value(&demands, &supplies, claim, constraint)?
                    }
                    Some(ConstraintState::Distinct { forgets, .. }) => {
                        let forgets = *forgets;
                        self.too_few_values(&demands, claim, constraint, forgets)
                    }
                    None => None,
                };
                if proof.is_some() {
                    return Ok(proof);
                }
            }
        }
        Ok(None)
    }

    fn supplies(&self) -> Vec<Supply> {
        let mut supplies = Vec::new();
        let of_use = |(class, _): &(ClassIndex, &Vec<Position>)| self.classes.is_of_use(*class);
        for (class, members) in self.classes.members.iter_enumerated().filter(of_use) {
            let example = members.iter().find(|position| self.search.touched.get(**position).is_none());
            let Some(&example) = example else { continue };
            let devices = self.untouched(class, 0);
            let shared = self.search.is_shareable(example);
            supplies.push(Supply { example, class, touched: false, devices: (!shared).then_some(devices) });
        }
        for example in self.search.touched.positions() {
            supplies.push(Supply { example, class: self.classes.of[example], touched: true, devices: None });
        }
        supplies
    }

    /// How many devices of a class from a position on are untouched and need not be avoided.
    fn untouched(&self, class: ClassIndex, start: usize) -> usize {
        let is_of_class = |position: &&Position| self.classes.of[**position] == class && position.index() >= start;
        let avoided = self.scope.avoided.iter().filter(is_of_class).count();
        self.classes.untouched(self.search, class, start).saturating_sub(avoided)
    }

    fn demands(&mut self, supplies: &[Supply]) -> Vec<Demand> {
        let Scope { rest: Rest { place: (claim, request), current }, until, .. } = self.scope;
        let mut demands = Vec::new();
        if let Some(Current { branch, done, start }) = current {
            let wanted = self.search.branches[branch].wanted.saturating_sub(done);
            demands.push(self.demand(supplies, claim, &[branch], wanted, start));
        }
        for later in self.search.claims.ids().filter(|later| *later >= claim) {
            let first = if later == claim { request + usize::from(current.is_some()) } else { 0 };
            for request in first..self.search.claims[later].class.requests.len() {
                if until.is_some_and(|until| (later, request) >= until) {
                    return demands;
                }
                let branches: SmallVec<[BranchIndex; 1]> = self.search.branches_of(later, request).iter().collect();
                let wanted = branches.iter().map(|branch| self.search.branches[*branch].wanted).min().unwrap_or(0);
                demands.push(self.demand(supplies, later, &branches, wanted, 0));
            }
        }
        demands
    }

    fn demand(
        &mut self,
        supplies: &[Supply],
        claim: ClaimPosition,
        branches: &[BranchIndex],
        wanted: usize,
        start: usize,
    ) -> Demand {
        let covers = |constraint: &usize| {
            branches.iter().all(|branch| self.search.branches[*branch].alternative.constraints.contains(constraint))
        };
        let constraints = (0..self.search.claims[claim].class.constraints.len()).filter(covers).collect();
        let admin = branches.iter().any(|branch| self.search.branches[*branch].alternative.admin_access);
        let name = match branches {
            [branch] => self.search.branches[*branch].alternative.name.clone(),
            _ => branches.first().map_or(RequestName::from(""), |branch| {
                self.search.branches[*branch].alternative.name.split().0.into()
            }),
        };
        let mut offers = Vec::new();
        for (index, supply) in supplies.iter().enumerate() {
            let devices = match (supply.touched, start) {
                (true, _) => usize::from(supply.example.index() >= start),
                (false, 0) => match supply.devices {
                    Some(devices) => devices,
                    None => self.untouched(supply.class, 0),
                },
                (false, start) => self.untouched(supply.class, start),
            };
            let usable = |branch: &BranchIndex| {
                self.classes.is_open_to(supply.class, *branch) && self.usable(*branch, supply.example)
            };
            if devices > 0 && branches.iter().any(usable) {
                offers.push(Offer { supply: index, example: supply.example, devices });
            }
        }
        Demand { claim, name, wanted, constraints, branches: branches.into(), admin, supplies: offers }
    }

    /// Whether a branch could pick the device now, as far as that depends on the device alone.
    fn usable(&mut self, branch: BranchIndex, position: Position) -> bool {
        let search = &mut *self.search;
        let alternative = search.branches[branch].alternative;
        let claim = search.branches[branch].claim;
        let picked = search.touched.get(position).map_or(&[][..], |touch| touch.claims.as_slice());
        if alternative.admin_access && picked.contains(&claim) || !alternative.admin_access && !picked.is_empty() {
            return false;
        }
        if search.has_capacity(branch, position, false) == Ok(false) {
            return false;
        }
        let draws = !self.without_counters && !alternative.admin_access && !search.is_shareable(position);
        if draws && (search.short_counter(position).is_some() || !search.groups_admit(position)) {
            return false;
        }
        alternative.constraints.iter().all(|constraint| {
            let held = search.held(branch, *constraint, position);
            let lists = search.lists;
            search.claims[claim].constraints.get(*constraint).is_some_and(|state| state.admits(&held, lists))
        })
    }

    fn no_common_value(
        &mut self,
        demands: &[Demand],
        supplies: &[Supply],
        claim: ClaimPosition,
        constraint: usize,
    ) -> Result<Option<Proof>, OutOfBudget> {
        let covers = |demand: &Demand| demand.claim == claim && demand.constraints.contains(&constraint);
        let covered = demands.iter().filter(|demand| covers(demand) && demand.wanted > 0);
        let wanted: usize = covered.clone().map(|demand| demand.wanted).sum();
        let Some(first) = covered.clone().next() else { return Ok(None) };
        let mut values: BTreeSet<ValueId> = BTreeSet::new();
        match self.search.claims[claim].constraints.get(constraint).and_then(ConstraintState::common) {
            Some(common) => values.extend(common),
            None => {
                // The first device may have any value. A value of unknown kind matches nothing, but is enough for one
                // device.
                for held in first.supplies.iter().flat_map(|offer| held(self.search, first, constraint, offer)) {
                    match &*held {
                        Held::Values(held) => values.extend(held),
                        Held::Opaque if wanted <= 1 => return Ok(None),
                        Held::Opaque | Held::Missing | Held::Failed => {}
                    }
                }
            }
        }
        if let Some((.., value)) = self.scope.value.filter(|of| (of.0, of.1) == (claim, constraint)) {
            values.retain(|possible| *possible == value);
        }
        for value in values {
            self.search.budget.spend(1)?;
            let search = &*self.search;
            let has = |demand: &Demand, offer: &Offer| {
                let has = |held: Cow<'_, Held>| matches!(&*held, Held::Values(held) if held.contains(&value));
                !covers(demand) || held(search, demand, constraint, offer).any(has)
            };
            let enough = demands.iter().filter(|demand| covers(demand)).all(|demand| {
                let offers = demand.supplies.iter().filter(|offer| has(demand, offer));
                offers.map(|offer| offer.devices).sum::<usize>() >= demand.wanted
            });
            if enough && (!self.contended || together(demands, supplies, has).is_none()) {
                return Ok(None);
            }
        }
        Ok(Some(Proof::NoCommonValue { claim: claim.index(), constraint }))
    }

    /// `forgets`: a device is compared only with the last one of each request.
    fn too_few_values(
        &mut self,
        demands: &[Demand],
        claim: ClaimPosition,
        constraint: usize,
        forgets: bool,
    ) -> Option<Proof> {
        let covers = |demand: &&Demand| demand.claim == claim && demand.constraints.contains(&constraint);
        let wanted: usize = demands.iter().filter(covers).map(|demand| demand.wanted).sum();
        let mut values: BTreeSet<ValueId> = BTreeSet::new();
        let mut unknown = 0;
        for demand in demands.iter().filter(covers) {
            for offer in &demand.supplies {
                for held in held(self.search, demand, constraint, offer) {
                    match &*held {
                        Held::Values(held) => values.extend(held),
                        Held::Opaque => unknown += offer.devices,
                        Held::Missing | Held::Failed => {}
                    }
                }
            }
        }
        // Values that certainly differ from each other: known values, and unknown ones that were declared distinct.
        let differing =
            |one: &&ValueId| values.iter().filter(|other| *other == *one || one.surely_differs(**other)).count();
        let most = values.iter().map(|one| differing(&one)).max().unwrap_or(0);
        let most = most + unknown;
        let are_too_few = if forgets { most < 2 && most < wanted } else { most < wanted };
        are_too_few.then_some(Proof::TooFewValues { claim: claim.index(), constraint })
    }

    /// Counters of which requests must draw more than there is, however they choose.
    fn too_little_left(&mut self, demands: &[Demand]) -> Option<Proof> {
        if self.without_counters {
            return None;
        }
        let mut must: BTreeMap<(PoolPosition, CounterIndex), (i128, i128)> = BTreeMap::new();
        for demand in demands.iter().filter(|demand| !demand.admin && demand.wanted > 0) {
            let mut least: Option<BTreeMap<(PoolPosition, CounterIndex), (i128, i128)>> = None;
            for offer in &demand.supplies {
                // A further share of a device draws nothing.
                let draws = if self.search.is_shareable(offer.example) {
                    BTreeMap::new()
                } else {
                    let mut draws: BTreeMap<_, (i128, i128)> = BTreeMap::new();
                    for (counter, amount, left) in self.search.draws_with_left(offer.example) {
                        if amount < 0 {
                            return None;
                        }
                        let (total, _) = draws.entry(counter).or_insert((0, left));
                        *total += amount;
                    }
                    draws
                };
                least = Some(match least {
                    None => draws,
                    Some(least) => least
                        .into_iter()
                        .filter_map(|(counter, (amount, left))| {
                            let (other, _) = draws.get(&counter)?;
                            Some((counter, (amount.min(*other), left)))
                        })
                        .collect(),
                });
            }
            for (counter, (amount, left)) in least.unwrap_or_default() {
                let (total, _) = must.entry(counter).or_insert((0, left));
                *total += amount * demand.wanted as i128;
            }
        }
        let short = must.values().any(|(total, left)| total > left);
        let wanted: usize = demands.iter().map(|demand| demand.wanted).sum();
        short.then_some(Proof::Together { wanted: wanted as u64, usable: 0 })
    }
}

/// What the devices of a supply hold under a constraint: once for each way in which the demand's alternatives look at
/// them.
fn held<'s>(
    search: &'s Search<'_>,
    demand: &'s Demand,
    constraint: usize,
    offer: &'s Offer,
) -> impl Iterator<Item = Cow<'s, Held>> {
    let derived = move |branch: &BranchIndex| search.branches[*branch].alternative.derived_for(constraint);
    let branches = demand.branches.iter().enumerate().filter(move |(index, branch)| {
        let before = demand.branches.iter().take(*index);
        !before.map(derived).any(|known| known == derived(branch))
    });
    branches.map(move |(_, branch)| search.held(*branch, constraint, offer.example))
}

fn too_few(demand: &Demand) -> Option<Proof> {
    let usable: usize = demand.supplies.iter().map(|offer| offer.devices).sum();
    (usable < demand.wanted).then(|| Proof::TooFew {
        claim: demand.claim.index(),
        request: demand.name.clone(),
        wanted: demand.wanted as u64,
        usable: usable as u64,
    })
}

/// Whether several demands compete for a supply that is limited.
fn is_contended(demands: &[Demand], supplies: &[Supply]) -> bool {
    let mut offered = vec![false; supplies.len()];
    let offers = demands.iter().filter(|demand| !demand.admin && demand.wanted > 0).flat_map(|demand| &demand.supplies);
    for offer in offers {
        let limited = supplies.get(offer.supply).is_some_and(|supply| supply.devices.is_some());
        if let Some(slot) = offered.get_mut(offer.supply).filter(|_| limited) {
            if *slot {
                return true;
            }
            *slot = true;
        }
    }
    false
}

/// Hall's condition: a flow from demands through supplies that serves them all. Demands with adminAccess take nothing
/// from others and are left out.
fn together(demands: &[Demand], supplies: &[Supply], allowed: impl Fn(&Demand, &Offer) -> bool) -> Option<Proof> {
    let offers = |demand: &Demand| {
        let allowed = demand.supplies.iter().filter(|offer| allowed(demand, offer));
        allowed.map(|offer| (offer.supply, offer.devices)).collect()
    };
    let competing = demands.iter().filter(|demand| !demand.admin);
    let wants: Vec<Wants> = competing.map(|demand| Wants { wanted: demand.wanted, offers: offers(demand) }).collect();
    let free: Vec<Option<usize>> = supplies.iter().map(|supply| supply.devices).collect();
    (!flow::serves(&wants, &free)).then(|| Proof::Together {
        wanted: wants.iter().map(|demand| demand.wanted as u64).sum(),
        usable: free.iter().flatten().map(|devices| *devices as u64).sum(),
    })
}
