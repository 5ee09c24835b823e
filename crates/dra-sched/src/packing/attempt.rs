//! Allocates copies one after the other, for every shape and domain of a machine that matters.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Budget, Id};

use super::Copies;
use super::demand::{self, Users};
use super::offer::{Copied, End, Named, Trial};
use crate::allocator::{Found, Need, Outcome, Question};
use crate::compile::ids::{ClaimClassId, ClaimId, ShapeId};
use crate::faults::Fault;
use crate::inventory::unit::BinId;
use crate::inventory::view::View;
use crate::inventory::{ClaimUse, Domain, Inventory};
use crate::ledger::{ClusterLedger, ExistingNode, Hypothesis, Joining, Place, Taken, Usage};
use crate::verdict::{Progress, Refusal};
use dra_types::{Allocation, NodeFacts, NodeSelector};

/// The claims of one copy.
#[derive(Debug, Default)]
struct Wanted {
    /// To be allocated: class, the claim if it exists by name, who uses it.
    new: Vec<(ClaimClassId, Option<ClaimId>, Users)>,
    /// Claims that are allocated already.
    allocated: Vec<(ClaimId, Arc<Allocation>, Users)>,
    /// Of those to be allocated, the ones that are allocated for other nodes, for nobody's use.
    given_up: Vec<ClaimId>,
    /// The first claim that is allocated to other nodes.
    elsewhere: Option<Arc<str>>,
}

/// A domain that a machine could land in, and what it would see there.
type Landing = (Domain, NodeFacts, Arc<View>);

/// The planned machine, shape and domain that are assumed; empty for an existing node.
#[derive(Debug, Default)]
struct Hypothetical {
    bin: Option<BinId>,
    shape: Option<ShapeId>,
    domain: Domain,
}

/// One question to one bin.
pub(super) struct Attempt<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) cluster: &'a ClusterLedger,
    pub(super) asked: Copies<'a>,
}

impl Attempt<'_> {
    pub(super) fn on_node(&self, node: &ExistingNode, budget: &mut Budget) -> Trial {
        match node.view(self.inventory, self.cluster) {
            Ok(view) => self.copies((&node.facts, &view), Hypothetical::default(), &Usage::default(), budget),
            Err(fault) => Trial {
                bin: None,
                shape: None,
                domain: Domain::default(),
                copies: Vec::new(),
                joining: BTreeSet::new(),
                end: End::Refused(Refusal::Fault(fault)),
            },
        }
    }

    pub(super) fn on_machine<'h>(
        &self,
        bin: BinId,
        pinned: &Domain,
        hypotheses: impl Iterator<Item = &'h Hypothesis>,
        budget: &mut Budget,
    ) -> Vec<Arc<Trial>> {
        let mut work: Vec<(&Hypothesis, Vec<Landing>)> = Vec::new();
        let mut trials = Vec::new();
        for hypothesis in hypotheses {
            let mut views: Vec<Landing> = Vec::new();
            for domain in self.inventory.domains(hypothesis.shape, pinned) {
                let facts = self.inventory.facts(hypothesis.shape, pinned, &domain);
                match self.view(&facts, hypothesis.shape, bin) {
                    Ok(view) => views.push((domain, facts, view)),
                    Err(fault) => trials.push(Arc::new(Trial {
                        bin: Some(bin),
                        shape: Some(hypothesis.shape),
                        domain,
                        copies: Vec::new(),
                        joining: BTreeSet::new(),
                        end: End::Refused(Refusal::Fault(fault)),
                    })),
                }
            }
            // Where the domain changes nothing, it is not pinned.
            if let [(_, _, first), rest @ ..] = views.as_slice() {
                let indifferent =
                    rest.iter().all(|(_, _, view)| first.sees_the_same(view)) && !self.names_allocated_claims();
                if indifferent {
                    views.truncate(1);
                    for (domain, ..) in &mut views {
                        *domain = Domain::default();
                    }
                }
            }
            work.push((hypothesis, views));
        }
        let mut left = work.iter().map(|(_, views)| views.len() as u64).sum::<u64>();
        for (hypothesis, views) in work {
            for (domain, facts, view) in views {
                let part = budget.remaining() / left.max(1);
                left = left.saturating_sub(1);
                let mut own = Budget::new(part);
                let shape = Some(hypothesis.shape);
                let trial = {
                    let of = Hypothetical { bin: Some(bin), shape, domain };
                    self.copies((&facts, &view), of, &hypothesis.usage, &mut own)
                };
                // A part never exceeds the budget that it was taken from.
                let spent = budget.spend(part - own.remaining());
                debug_assert!(spent.is_ok(), "a part is not larger than the whole");
                trials.push(Arc::new(trial));
            }
        }
        trials
    }

    /// What a machine would see if it were of a shape and had these labels.
    fn view(&self, facts: &NodeFacts, shape: ShapeId, bin: BinId) -> Result<Arc<View>, Fault> {
        let others = self.cluster.brought_to(self.inventory, facts)?;
        let brought = self.inventory.with_own_pools(others, shape, facts, bin)?;
        View::of_machine(self.inventory, facts, (shape, bin), &brought, self.cluster.pool_order())
    }

    /// Claims that have a node selector of their own make domains matter.
    fn names_allocated_claims(&self) -> bool {
        self.asked.claims.iter().any(|claim| matches!(claim, ClaimUse::Named { .. }))
    }

    fn copies(&self, seen: (&NodeFacts, &Arc<View>), of: Hypothetical, held: &Usage, budget: &mut Budget) -> Trial {
        let Hypothetical { bin, shape, domain } = of;
        let before = budget.remaining();
        let mut held = held.clone();
        let joining = self.cluster.joining(self.inventory, self.asked.claims);
        let (most, end) = self.most(&joining);
        let mut trial = Trial { bin, shape, domain, copies: Vec::new(), joining, end };
        let mut done: BTreeMap<ClaimId, Arc<Allocation>> = BTreeMap::new();
        let mut cluster = Cow::Borrowed(self.cluster);
        while trial.copies.len() < most {
            let wanted = match self.wanted((seen.0, seen.1), bin, &done) {
                Ok(wanted) => wanted,
                Err(refusal) => {
                    trial.end = End::Refused(refusal);
                    break;
                }
            };
            // What is given up is free for the others of the pod's claims too, where they can see it.
            for claim in wanted.given_up.iter().filter(|claim| !self.inventory.holds_only_local_devices(**claim)) {
                cluster.to_mut().release(self.inventory, *claim);
            }
            let classes: Vec<ClaimClassId> = wanted.new.iter().map(|(class, ..)| *class).collect();
            // What a copy takes on a node that exists is kept beside the ledger like a hypothesis.
            let own = bin.unwrap_or(BinId::from_index(u32::MAX as usize));
            let taken = Taken { cluster: &cluster, own: Some((own, &held)) };
            let outcome = if classes.is_empty() {
                Outcome::Found(Found::default())
            } else {
                Question { inventory: self.inventory, seen, claims: &classes, taken }.search(Need::Usage, budget)
            };
            // Upstream looks at all other claims before it reports one that is allocated elsewhere, and an error among
            // them ends the pod's attempt.
            let elsewhere = wanted.elsewhere.as_ref().map(|claim| Refusal::Elsewhere { claim: Arc::clone(claim) });
            let copy = match (outcome, elsewhere) {
                (Outcome::Found(found), None) => self.copy(seen.1, &wanted, found),
                (Outcome::Found(found), Some(elsewhere)) => match self.copy(seen.1, &wanted, found) {
                    // What cannot be written down shows only when the pod is bound.
                    Ok(_) | Err(Refusal::NotRecorded { .. }) => Err(elsewhere),
                    Err(refusal) => Err(refusal),
                },
                (Outcome::Refused(refusal), _) => Err(refusal),
                (Outcome::OutOfBudget, Some(elsewhere)) => Err(elsewhere),
                (Outcome::OutOfBudget, None) => {
                    trial.end = End::OutOfBudget(Progress { steps: before.saturating_sub(budget.remaining()) });
                    break;
                }
            };
            let copy = match copy {
                Ok(copy) => copy,
                Err(refusal) => {
                    trial.end = End::Refused(refusal);
                    break;
                }
            };
            done.extend(copy.named.iter().map(|named| (named.claim, Arc::clone(&named.allocation))));
            for claim in &copy.exclusive {
                done.insert(*claim, Arc::default());
            }
            held.add(&copy.usage);
            let takes_nothing = wanted.new.is_empty() && copy.exclusive.is_empty();
            if trial.copies.is_empty() {
                // Most trials are of one copy, and thousands are kept.
                trial.copies.reserve_exact(1);
            }
            trial.copies.push(copy);
            if takes_nothing {
                // Nothing new is taken: all further copies are like this one.
                while trial.copies.len() < most {
                    let Some(last) = trial.copies.last() else { break };
                    let (demand, shares) = (last.demand.clone(), last.shares.clone());
                    trial.copies.push(Copied { demand, shares, ..Copied::default() });
                }
            }
        }
        trial
    }

    /// How many copies can have the claims that they share, of those that are asked for; and why there are no more.
    fn most(&self, joining: &BTreeSet<Joining>) -> (usize, End) {
        let room = |joining: &Joining| (self.cluster.room_for(self.inventory, *joining), *joining);
        match joining.iter().map(room).min() {
            Some((room, Joining::Pod(claim) | Joining::Group(claim, _))) if room < self.asked.copies => {
                let claim = Arc::from(self.inventory.claims[claim].object.meta.name.to_string());
                (room as usize, End::Refused(Refusal::TooManyConsumers { claim }))
            }
            _ => (self.asked.copies as usize, End::Enough),
        }
    }

    /// One copy, from the result for the claims that had to be allocated.
    fn copy(&self, view: &View, wanted: &Wanted, found: Found) -> Result<Copied, Refusal> {
        let mut named = Vec::new();
        for (index, (_, claim, _)) in wanted.new.iter().enumerate() {
            let (Some(claim), Some(allocation)) = (claim, found.allocations.get(index)) else { continue };
            let pinned = found.pinned.get(index).copied().unwrap_or(true);
            named.push(Named { claim: *claim, pinned, allocation: Arc::new(allocation.clone()) });
        }
        let name = |class: ClaimClassId, claim: Option<ClaimId>| match claim {
            Some(claim) => Arc::from(self.inventory.claims[claim].object.meta.name.to_string()),
            None => Arc::clone(&self.inventory.claim_classes[class].name),
        };
        let new = wanted.new.iter().zip(&found.allocations).map(|((class, claim, users), allocation)| demand::Costs {
            claim: name(*class, *claim),
            allocation,
            users: *users,
        });
        let paid = if self.inventory.quirks.allocated_claims_cost_nothing { &[][..] } else { &wanted.allocated };
        let old = paid.iter().map(|(claim, allocation, users)| demand::Costs {
            claim: name(self.inventory.claims[*claim].class, Some(*claim)),
            allocation,
            users: *users,
        });
        let (demand, shares) = demand::of(self.inventory, view, new.chain(old))?;
        let exclusive = wanted.allocated.iter().filter(|(_, allocation, _)| self.hands_out(view, allocation));
        let exclusive = exclusive.map(|(claim, ..)| *claim).collect();
        Ok(Copied {
            given_up: wanted.given_up.clone(),
            usage: found.usage,
            demand,
            shares,
            score: found.score,
            named,
            exclusive,
            allocations: found.allocations,
        })
    }

    /// Whether only one pod may use an allocated claim.
    fn hands_out(&self, view: &View, allocation: &Allocation) -> bool {
        demand::hands_out(self.inventory, view, allocation)
    }

    /// The claims to allocate and those that are allocated, in order; refused if one belongs to another pod alone.
    fn wanted(
        &self,
        (facts, view): (&NodeFacts, &View),
        bin: Option<BinId>,
        done: &BTreeMap<ClaimId, Arc<Allocation>>,
    ) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted::default();
        for (place, claim) in self.asked.claims.iter().enumerate() {
            let users = |containers: u32| Users { place, containers: Some(containers) };
            let (claim, users, reservation) = match *claim {
                ClaimUse::Fresh { class, containers } => {
                    wanted.new.push((class, None, users(containers)));
                    continue;
                }
                ClaimUse::Extended { class } => {
                    wanted.new.push((class, None, Users { place, containers: None }));
                    continue;
                }
                ClaimUse::Named { claim, containers, reservation } => (claim, users(containers), reservation),
            };
            let entry = &self.inventory.claims[claim];
            let planned = self.cluster.claim(claim);
            let name = || Arc::from(entry.object.meta.name.to_string());
            let in_cluster = self.cluster.allocation(self.inventory, claim);
            let reached = in_cluster.is_none_or(|allocation| reaches(facts, allocation.node_selector.as_deref()));
            let is_given_up = !reached && self.cluster.is_idle(self.inventory, claim);
            if is_given_up && !done.contains_key(&claim) {
                wanted.given_up.push(claim);
            }
            // An allocation comes from the cluster, from this plan, or from an earlier copy of this question, in this
            // order.
            let (allocation, reaches, others) = match (in_cluster.filter(|_| !is_given_up), planned, done.get(&claim)) {
                (Some(allocation), planned, done) => {
                    let is_consumer = reservation.is_consumer(self.inventory.compat().kubernetes);
                    let consumers = !entry.object.reserved_for.is_empty() && !is_consumer;
                    let others = consumers || planned.is_some() || done.is_some();
                    (Arc::new(allocation.clone()), reached, others)
                }
                (None, Some(planned), _) => {
                    let reaches = match &planned.place {
                        Place::Bin(place) => bin == Some(*place),
                        Place::Node(name) => bin.is_none() && facts.name == *name,
                        Place::Nodes(selector) => reaches(facts, selector.as_deref()),
                    };
                    (Arc::clone(&planned.allocation), reaches, true)
                }
                (None, None, Some(allocation)) => (Arc::clone(allocation), true, true),
                (None, None, None) => {
                    wanted.new.push((entry.class, Some(claim), users));
                    continue;
                }
            };
            // Noted and not returned at once: upstream looks at the other claims first, and at what this one's devices
            // cost if the node sees them.
            if !reaches {
                wanted.elsewhere = wanted.elsewhere.or_else(|| Some(name()));
                wanted.allocated.push((claim, allocation, users));
                continue;
            }
            // Resources of the node (KEP-5517) are handed out to one pod, so a second user is refused.
            if others && self.hands_out(view, &allocation) {
                return Err(Refusal::Shared { claim: name() });
            }
            wanted.allocated.push((claim, allocation, users));
        }
        Ok(wanted)
    }
}

fn reaches(facts: &NodeFacts, selector: Option<&NodeSelector>) -> bool {
    selector.is_none_or(|selector| facts.matches(selector).unwrap_or(false))
}
