//! How far a proof may look past requests at which upstream may answer with an error.
//!
//! *Problem.* Upstream ends the pod when its walk meets a failing selector on a free device, or a device of a request
//! for all that a constraint does not admit. A subtree may be left out only if the walk would meet no error in it. So a
//! proof covers the requests up to the next one that may still end in an error, and where these can all be served, it
//! proves nothing.
//!
//! *Which requests may.* An error needs devices that are free when the walk gets there: the failing one, or those of a
//! request for all up to the first that is not admitted. So a request cannot end in an error if these devices are in
//! use, or if counting proves that the requests before it cannot be served without them. Then the proof covers this
//! request too, and goes on to the next.
//!
//! *Bound.* Where counting is exact, a child of the walk that is not refuted ends the whole walk: some assignment of
//! the requests before the error leaves its devices free, and then the walk ends in the error or in a solution; or no
//! error is possible any more, and there is a solution. So the walk goes back from refuted children only, and refutes
//! at most *k·n* of them for *k* devices wanted and *n* there. For each it asks at most once for each failing device,
//! or for each value of a constraint, whether that error is possible. With *q* of these, that is *O(k·n·(q + 1))*
//! proofs. Counting is exact where at most one rule couples the requests (see [`counting`]). Where several do, the
//! problem is NP-hard, with errors and without, and only the budget bounds it.

use std::collections::BTreeSet;

use model::{Id, OutOfBudget};

use super::constraints::ConstraintState;
use super::counting::{self, Current, Rest, Scope};
use super::search::{BranchIndex, ClaimPosition, Search};
use super::symmetry::{ClassIndex, Classes, ErrorSource, Place};
use crate::compile::attributes::{Held, ValueId};
use crate::inventory::view::Position;
use crate::verdict::Proof;

/// Whether a search can be refuted before anything is picked, once device classes are known: it has no solution, and
/// the walk would meet no error.
pub(super) fn refute_all(search: &mut Search<'_>) -> Result<Option<Proof>, OutOfBudget> {
    refute(search, Rest { place: (ClaimPosition::from_index(0), 0), current: None })
}

/// Whether the rest of a search is refuted: it has no solution, and the walk would meet no error in it.
pub(super) fn refute(search: &mut Search<'_>, rest: Rest) -> Result<Option<Proof>, OutOfBudget> {
    let Some(classes) = search.classes.take() else { return Ok(None) };
    let mut errors = Errors { search, classes: &classes, rest };
    let proof = errors.next().and_then(|until| {
        let scope = Scope { rest, until, avoided: &[], value: None };
        // Nothing comes before an error at the first request.
        if until == Some(rest.place) { Ok(None) } else { counting::refute(errors.search, &classes, scope) }
    });
    search.classes = Some(classes);
    proof
}

struct Errors<'t, 'a> {
    search: &'t mut Search<'a>,
    classes: &'t Classes,
    rest: Rest,
}

impl Errors<'_, '_> {
    /// The next request that may end in an error; None if none can.
    fn next(&mut self) -> Result<Option<Place>, OutOfBudget> {
        let classes = self.classes;
        for (place, sources) in classes.errors_from(self.rest.place) {
            // What constraints remember of choices that were undone is not known here.
            if classes.past_matters {
                return Ok(Some(place));
            }
            for source in sources {
                let is_possible = match source {
                    ErrorSource::Failing(branch, devices) => self.is_failure_possible(place, *branch, devices)?,
                    ErrorSource::AllUnderConstraint(branch) => self.is_violation_possible(place, *branch)?,
                };
                if is_possible {
                    return Ok(Some(place));
                }
            }
        }
        Ok(None)
    }

    /// What is left of a branch at a place: devices that it has, and where its next one may be; None if the rest of the
    /// search does not try it.
    fn begins(&self, place: Place, branch: BranchIndex) -> Option<(usize, usize)> {
        match self.rest.current {
            Some(current) if place == self.rest.place => {
                (current.branch == branch).then_some((current.done, current.start))
            }
            Some(_) | None => Some((0, 0)),
        }
    }

    /// Whether the requests before a place may be served in a way that leaves devices free, or makes a constraint end
    /// up with a value.
    fn is_reachable(
        &mut self,
        until: Place,
        avoided: &[Position],
        value: Option<(ClaimPosition, usize, ValueId)>,
    ) -> Result<bool, OutOfBudget> {
        if until == self.rest.place {
            return Ok(true);
        }
        let scope = Scope { rest: self.rest, until: Some(until), avoided, value };
        Ok(counting::refute(self.search, self.classes, scope)?.is_none())
    }

    /// Whether a branch with a count may look at a device on which it fails.
    fn is_failure_possible(
        &mut self,
        place: Place,
        branch: BranchIndex,
        devices: &[Position],
    ) -> Result<bool, OutOfBudget> {
        let Some((_, start)) = self.begins(place, branch) else { return Ok(false) };
        // Of equal devices, one is as good as another, but for the request that goes on behind a position.
        let behind = self.rest.current.map_or(0, |current| current.start);
        let mut asked: BTreeSet<(ClassIndex, bool)> = BTreeSet::new();
        for &device in devices.iter().filter(|device| device.index() >= start) {
            if self.is_hidden(branch, device) || !asked.insert((self.classes.of[device], device.index() < behind)) {
                continue;
            }
            let avoided = self.occupiable(branch, &[device]);
            if avoided.is_empty() || self.is_reachable(place, &avoided, None)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a branch does not look at a device because it is in use.
    fn is_hidden(&self, branch: BranchIndex, device: Position) -> bool {
        let of = &self.search.branches[branch];
        if of.alternative.admin_access {
            return !self.search.is_shareable(device) && self.search.is_picked_by(device, of.claim);
        }
        self.search.in_use(device)
    }

    /// Those of some devices that a branch no longer sees once others have them.
    fn occupiable(&self, branch: BranchIndex, devices: &[Position]) -> Vec<Position> {
        // Administrators see what other claims have.
        if self.search.branches[branch].alternative.admin_access {
            return Vec::new();
        }
        devices.iter().copied().filter(|device| !self.search.is_shareable(*device)).collect()
    }

    /// Whether a branch for all devices may come to one that a constraint does not admit.
    fn is_violation_possible(&mut self, place: Place, branch: BranchIndex) -> Result<bool, OutOfBudget> {
        let Some((done, _)) = self.begins(place, branch) else { return Ok(false) };
        let all = self.search.branches[branch].all.as_deref().unwrap_or_default();
        // At the first device that cannot be had it ends without an error.
        let can_be_had = |device: &Position| {
            !(self.is_hidden(branch, *device)
                || self.search.lacks_node_operations(*device)
                || self.search.counters_are_off(*device)
                || self.search.untolerated(branch, *device).is_some())
        };
        let devices: Vec<Position> = all.iter().skip(done).copied().take_while(can_be_had).collect();
        let alternative = self.search.branches[branch].alternative;
        for &constraint in &alternative.constraints {
            for (last, value) in self.violations(place, branch, constraint, &devices) {
                let avoided = self.occupiable(branch, devices.get(..=last).unwrap_or_default());
                let value = value.map(|value| (place.0, constraint, value));
                if self.is_reachable(place, &avoided, value)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The positions among a branch's devices at which a constraint may be violated, whatever other constraints say;
    /// each with a value that all devices before agree on, if it takes that one.
    fn violations(
        &self,
        place: Place,
        branch: BranchIndex,
        constraint: usize,
        devices: &[Position],
    ) -> Vec<(usize, Option<ValueId>)> {
        let claim = self.search.branches[branch].claim;
        let Some(state) = self.search.claims[claim].constraints.get(constraint) else { return Vec::new() };
        let pending = self.pending(place, constraint);
        let first = (!devices.is_empty()).then_some((0, None));
        if pending.is_empty() {
            let last = self.first_violation(branch, constraint, state.clone(), devices);
            return last.map(|last| (last, None)).into_iter().collect();
        }
        let (values, may_be_other) = match state {
            // Nothing is known of the values that will be there.
            ConstraintState::Distinct { .. } => return first.into_iter().collect(),
            ConstraintState::Match { .. } if state.is_begun() => {
                (state.common().into_iter().flatten().copied().collect(), state.common().is_none())
            }
            ConstraintState::Match { .. } => self.values(&pending, constraint),
        };
        // A violation with several values in common is one with each of them, at an earlier device or at the same.
        let with_value = |value: &ValueId| {
            let lacks = |device: &Position| match &*self.search.held(branch, constraint, *device) {
                Held::Values(values) => !values.contains(value),
                Held::Missing | Held::Opaque | Held::Failed => true,
            };
            Some((devices.iter().position(lacks)?, Some(*value)))
        };
        let mut violations: Vec<_> = values.iter().filter_map(with_value).collect();
        if may_be_other {
            violations.extend(first);
        }
        // Alternatives that the constraint does not cover may leave it as it is.
        let covers = |branch: &BranchIndex| self.search.branches[*branch].alternative.constraints.contains(&constraint);
        if pending.iter().any(|branches| !branches.iter().all(covers)) {
            let last = self.first_violation(branch, constraint, state.clone(), devices);
            violations.extend(last.map(|last| (last, None)));
        }
        violations
    }

    /// The first device that a constraint does not admit, if all before are picked.
    fn first_violation(
        &self,
        branch: BranchIndex,
        constraint: usize,
        mut state: ConstraintState,
        devices: &[Position],
    ) -> Option<usize> {
        let request = self.search.branches[branch].request;
        devices.iter().position(|device| {
            let value = self.search.held(branch, constraint, *device);
            if !state.admits(&value, self.search.lists) {
                return true;
            }
            state.add(request, &value);
            false
        })
    }

    /// The branches of each request before a place that still picks devices which a constraint of the place's claim may
    /// cover.
    fn pending(&self, place: Place, constraint: usize) -> Vec<Vec<BranchIndex>> {
        let (claim, until) = place;
        let Rest { place: (rest_claim, rest_request), current } = self.rest;
        let from = if rest_claim == claim { rest_request } else { 0 };
        let of_request = |request: usize| -> Vec<BranchIndex> {
            match current {
                Some(Current { branch, done, .. }) if (claim, request) == self.rest.place => {
                    if self.search.branches[branch].wanted > done { vec![branch] } else { Vec::new() }
                }
                Some(_) | None => self.search.branches_of(claim, request).iter().collect(),
            }
        };
        let covers = |branch: &BranchIndex| self.search.branches[*branch].alternative.constraints.contains(&constraint);
        (from..until).map(of_request).filter(|branches| branches.iter().any(covers)).collect()
    }

    /// The values that pending requests may give a constraint, and whether they may give it one that equals no other.
    fn values(&self, pending: &[Vec<BranchIndex>], constraint: usize) -> (BTreeSet<ValueId>, bool) {
        let mut values = BTreeSet::new();
        let mut may_be_other = false;
        for &branch in pending.iter().flatten() {
            if !self.search.branches[branch].alternative.constraints.contains(&constraint) {
                continue;
            }
            for example in self.classes.open_to(branch) {
                match &*self.search.held(branch, constraint, example) {
                    Held::Values(held) => values.extend(held),
                    Held::Opaque => may_be_other = true,
                    Held::Missing | Held::Failed => {}
                }
            }
        }
        (values, may_be_other)
    }
}
