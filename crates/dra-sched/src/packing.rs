//! What a packer asks: how many copies of a pod's claims does that machine hold, and at which price in freedom.
//!
//! *Problem.* A planned machine is one of several shapes, in one of several domains. For each combination that matters
//! find the largest number of copies, allocated one after the other as the scheduler will, and report combinations that
//! agree together.
//!
//! *Cost.* One search for each copy and each distinct view of the shapes asked for. *Bounds.* The budget is divided
//! equally among the views; a machine has at most `MAX_DOMAINS` combinations of domain values.

mod demand;
mod ends;
mod overhead;
mod reach;
mod supply;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Budget, Id, IdSet};

use crate::allocator::{Found, Need, Outcome};
use crate::inventory::{ClaimClassId, ClaimId, DeviceKey, Inventory, PoolIndex, ShapeId};
use crate::ledger::{
    BinId, BinLedger, ClusterLedger, Domain, ExistingNode, Hypothesis, Kind, Place, PlannedClaim, Taken, Usage, settle,
};
use crate::machine::LabelKnowledge;
use crate::tuning::MAX_DOMAINS;
use crate::verdict::{Progress, Refusal};
use crate::view::View;
use dra_types::{Allocation, NodeFacts, NodeScope, NodeSelector};

pub use demand::NodeDemand;
pub use overhead::{MachineOverhead, OverheadVerdict};
pub use reach::Reach;
pub use supply::Wanting;

#[cfg(test)]
mod tests;

/// One claim of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimUse {
    /// Made from a template: a new claim for each copy of the pod.
    Fresh {
        /// Its class.
        class: ClaimClassId,
        /// Containers of the pod, init containers included, that refer to it.
        containers: u32,
    },
    /// A claim that exists, shared by all pods that name it.
    Named {
        /// The claim.
        claim: ClaimId,
        /// Containers of the pod, init containers included, that refer to it.
        containers: u32,
        /// Whether the pod itself is among the claim's consumers already. That its PodGroup is makes it one of several
        /// users.
        reserved: bool,
    },
}

/// What a machine could take, and why not more.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Ways to take copies: most copies first, then by domain.
    pub alternatives: Vec<Alternative>,
    /// What a machine holds in whichever of its domains and shapes it comes up, where what it is given differs by
    /// domain. It pins nothing, and takes what any of them takes.
    pub anywhere: Option<Alternative>,
    /// Shapes that take no (further) copy, with the domain looked at and the reason.
    pub refused: Vec<Refused>,
    /// Shapes whose search was given up: neither yes nor no.
    pub undecided: Vec<Undecided>,
}

/// Shapes that do not take all copies.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The shape; None for a node that exists.
    pub shape: Option<ShapeId>,
    /// The domain.
    pub domain: Domain,
    /// How many copies it takes.
    pub copies: u32,
    /// Why not one more.
    pub refusal: Refusal,
}

/// Shapes whose search was given up.
#[derive(Debug, Clone)]
pub struct Undecided {
    /// The shape; None for a node that exists.
    pub shape: Option<ShapeId>,
    /// The domain.
    pub domain: Domain,
    /// How many copies it takes at least.
    pub copies: u32,
    /// How far the search came.
    pub progress: Progress,
}

/// One way to take copies.
#[derive(Debug, Clone)]
pub struct Alternative {
    /// What it pins of the machine.
    pub domain: Domain,
    /// How many copies.
    pub copies: u32,
    /// The shapes that hold them; empty for a node that exists.
    pub shapes: IdSet<ShapeId>,
    trials: Vec<Arc<Trial>>,
}

impl Alternative {
    /// What one copy costs of the node's own resources, by shape (None for a node that exists): the most that any of
    /// the copies costs.
    pub fn demand(&self, shape: Option<ShapeId>) -> NodeDemand {
        let mut most = NodeDemand::default();
        for trial in self.trials.iter().filter(|trial| trial.shape == shape) {
            for copy in trial.copies.iter().take(self.copies as usize) {
                most.max(&copy.demand);
            }
        }
        most
    }

    fn is_for_several_domains(&self) -> bool {
        let first = self.trials.first().map(|trial| &trial.domain);
        self.trials.iter().any(|trial| Some(&trial.domain) != first)
    }

    /// Upstream's node score of one copy: 8 minus the index of the alternative, summed over firstAvailable requests.
    pub fn score(&self, shape: Option<ShapeId>, copy: usize) -> u32 {
        let trial = self.trials.iter().find(|trial| trial.shape == shape);
        trial.and_then(|trial| trial.copies.get(copy)).map_or(0, |copy| copy.score)
    }

    /// The allocations of one copy on a machine of a shape, in the order of its claims that had none.
    pub fn allocations(&self, shape: Option<ShapeId>, copy: usize) -> &[Allocation] {
        let trial = self.trials.iter().find(|trial| trial.shape == shape);
        trial.and_then(|trial| trial.copies.get(copy)).map_or(&[], |copy| copy.allocations.as_slice())
    }
}

/// What was found for one shape in one domain.
#[derive(Debug)]
struct Trial {
    /// The planned machine that was asked about.
    bin: Option<BinId>,
    shape: Option<ShapeId>,
    domain: Domain,
    copies: Vec<Copied>,
    end: End,
}

/// One copy.
#[derive(Debug)]
struct Copied {
    usage: Usage,
    demand: NodeDemand,
    allocations: Vec<Allocation>,
    score: u32,
    /// Claims that were allocated with it.
    named: Vec<Named>,
    /// Claims that were allocated before and that nobody else may use from now on.
    exclusive: Vec<ClaimId>,
}

/// A claim that exists by name and was allocated with a copy.
#[derive(Debug)]
struct Named {
    claim: ClaimId,
    /// Whether it can be used on this machine only.
    pinned: bool,
    allocation: Arc<Allocation>,
}

/// Why there are no more copies.
#[derive(Debug, Clone)]
enum End {
    Enough,
    Refused(Refusal),
    OutOfBudget(Progress),
}

/// What a machine is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Copies<'a> {
    /// The claims of one pod.
    pub claims: &'a [ClaimUse],
    /// For how many such pods at most.
    pub copies: u32,
}

impl Inventory {
    /// Whether a device belongs to machines that do not exist.
    pub(crate) fn is_planned(&self, key: DeviceKey) -> bool {
        self.planned_keys.contains(key)
    }

    /// Whether a pool belongs to machines that do not exist.
    pub(crate) fn is_planned_pool(&self, pool: PoolIndex) -> bool {
        self.pools[pool].slices.first().is_some_and(|slice| self.slices[*slice].template)
    }

    /// How many copies of a pod's claims a machine takes, at most as many as asked, on the shapes given; nothing is
    /// taken.
    ///
    /// Copies are allocated one after the other, as kube-scheduler does with as many pods. `shapes` is not looked at
    /// for a node that exists.
    pub fn try_add(
        &self,
        bin: &BinLedger,
        asked: Copies<'_>,
        shapes: &IdSet<ShapeId>,
        cluster: &ClusterLedger,
        budget: &mut Budget,
    ) -> Offer {
        let attempt = Attempt { inventory: self, cluster, claims: asked.claims, wanted: asked.copies };
        let trials = match &bin.kind {
            Kind::Node(node) => vec![Arc::new(attempt.on_node(node, budget))],
            Kind::Machine { id, domain, hypotheses } => {
                let wanted = hypotheses.iter().filter(|hypothesis| shapes.contains(hypothesis.shape));
                attempt.on_machine(*id, domain, wanted, budget)
            }
        };
        offer(trials)
    }

    /// Takes an alternative that [`Self::try_add`] offered for the same bin and ledger, or for another machine that
    /// holds as little. It may have been narrowed to some of its shapes and to fewer copies.
    pub fn commit(&self, bin: &mut BinLedger, cluster: &mut ClusterLedger, alternative: &Alternative) {
        let place = match &bin.kind {
            Kind::Node(node) => Place::Node(node.facts.name.clone()),
            Kind::Machine { id, .. } => Place::Bin(*id),
        };
        let taken = alternative.copies as usize;
        // A packer may have dropped shapes and lowered the copies.
        let is_meant = |trial: &&Arc<Trial>| trial.shape.is_none_or(|shape| alternative.shapes.contains(shape));
        let meant = alternative.trials.iter().filter(is_meant);
        let copies = meant.flat_map(|trial| trial.copies.iter().take(taken).map(move |copy| (trial, copy)));
        for (trial, copy) in copies {
            for Named { claim, pinned, allocation } in &copy.named {
                let place = if *pinned || alternative.is_for_several_domains() {
                    place.clone()
                } else {
                    Place::Nodes(allocation.node_selector.clone())
                };
                // If shapes disagree the claim stays where it can be used in any case.
                let known =
                    cluster.claim(*claim).is_some_and(|known| matches!(known.place, Place::Bin(_) | Place::Node(_)));
                if !known {
                    let allocation = match (&bin.kind, trial.bin) {
                        (Kind::Machine { id, .. }, Some(asked)) if asked != *id => {
                            Arc::new(moved(allocation, asked, *id))
                        }
                        _ => Arc::clone(allocation),
                    };
                    cluster.set_claim(*claim, PlannedClaim { place, allocation });
                }
            }
            for claim in &copy.exclusive {
                if let Some(allocation) = self.allocation_in(cluster, *claim) {
                    let place = Place::Nodes(allocation.node_selector.clone());
                    cluster.set_claim(*claim, PlannedClaim { place, allocation: Arc::new(allocation.clone()) });
                }
            }
        }
        match &mut bin.kind {
            Kind::Node(_) => {
                for copy in alternative.trials.iter().flat_map(|trial| trial.copies.iter().take(taken)) {
                    let mut usage = copy.usage.clone();
                    // What devices in base draw is counted from the devices.
                    usage.counters.clear();
                    cluster.charge(usage);
                }
            }
            Kind::Machine { id, domain, hypotheses } => {
                domain.0.extend(alternative.domain.0.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
                hypotheses.retain(|hypothesis| alternative.shapes.contains(hypothesis.shape));
                for hypothesis in hypotheses.iter_mut() {
                    // Of several domains that it could land in each takes what it would.
                    let mut most = Usage::default();
                    for trial in alternative.trials.iter().filter(|trial| trial.shape == Some(hypothesis.shape)) {
                        let asked = trial.bin.filter(|asked| asked != id);
                        let mut usage = Usage::default();
                        for copy in trial.copies.iter().take(taken) {
                            match asked {
                                // What that machine would have brought itself this one brings.
                                Some(asked) => usage.add(&copy.usage.moved(asked, *id)),
                                None => usage.add(&copy.usage),
                            }
                        }
                        most.max(&usage);
                    }
                    hypothesis.usage.add(&most);
                }
                settle(self, cluster, *id, domain, hypotheses);
            }
        }
    }
}

/// An allocation on one planned machine as it is on another in its place: pools that the one brings are named after it.
fn moved(allocation: &Allocation, from: BinId, to: BinId) -> Allocation {
    let (from, to) = (shared_pool_name(from), shared_pool_name(to));
    let mut allocation = allocation.clone();
    for result in &mut allocation.results {
        let rest = result.device.pool.as_str().strip_prefix(from.as_str());
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('-')) {
            result.device.pool = format!("{to}{rest}").as_str().into();
        }
    }
    allocation
}

/// What results call the pool that a planned machine brings for its domain.
pub(crate) fn shared_pool_name(bin: BinId) -> String {
    format!("machine-{}", bin.index())
}

/// Puts trials together that agree.
fn offer(trials: Vec<Arc<Trial>>) -> Offer {
    let mut offer = Offer::default();
    let mut levels: BTreeMap<(std::cmp::Reverse<usize>, Domain), Vec<Arc<Trial>>> = BTreeMap::new();
    let domains: BTreeSet<&Domain> = trials.iter().map(|trial| &trial.domain).collect();
    let least = trials.iter().map(|trial| trial.copies.len()).min().unwrap_or(0);
    if domains.len() > 1 && least > 0 {
        let shapes = trials.iter().filter_map(|trial| trial.shape).collect();
        let copies = u32::try_from(least).unwrap_or(u32::MAX);
        offer.anywhere = Some(Alternative { domain: Domain::default(), copies, shapes, trials: trials.clone() });
    }
    for domain in domains {
        let here = || trials.iter().filter(|trial| trial.domain == *domain);
        let counts: BTreeSet<usize> = here().map(|trial| trial.copies.len()).filter(|copies| *copies > 0).collect();
        for count in counts {
            let holding = here().filter(|trial| trial.copies.len() >= count).cloned().collect();
            levels.insert((std::cmp::Reverse(count), domain.clone()), holding);
        }
    }
    for ((copies, domain), trials) in levels {
        let shapes = trials.iter().filter_map(|trial| trial.shape).collect();
        let copies = u32::try_from(copies.0).unwrap_or(u32::MAX);
        offer.alternatives.push(Alternative { domain, copies, shapes, trials });
    }
    for trial in &trials {
        let copies = u32::try_from(trial.copies.len()).unwrap_or(u32::MAX);
        let (shape, domain) = (trial.shape, trial.domain.clone());
        match &trial.end {
            End::Enough => {}
            End::Refused(refusal) => {
                offer.refused.push(Refused { shape, domain, copies, refusal: refusal.clone() });
            }
            End::OutOfBudget(progress) => {
                offer.undecided.push(Undecided { shape, domain, copies, progress: *progress });
            }
        }
    }
    offer
}

/// The claims of one copy.
#[derive(Debug, Default)]
struct Wanted {
    /// To be allocated: class, the claim if it exists by name, containers that use it.
    new: Vec<(ClaimClassId, Option<ClaimId>, u32)>,
    /// Allocated already.
    allocated: Vec<(ClaimId, Arc<Allocation>, u32)>,
    /// The first that is allocated where this machine is not.
    elsewhere: Option<Arc<str>>,
}

/// A domain that a machine could land in, and what it would see there.
type Landing = (Domain, NodeFacts, Arc<View>);

/// Which machine of a plan is meant, in which of its shapes and domains; nothing of a node that exists.
#[derive(Debug, Default)]
struct Hypothetical {
    bin: Option<BinId>,
    shape: Option<ShapeId>,
    domain: Domain,
}

struct Attempt<'a> {
    inventory: &'a Inventory,
    cluster: &'a ClusterLedger,
    claims: &'a [ClaimUse],
    wanted: u32,
}

impl Attempt<'_> {
    fn on_node(&self, node: &ExistingNode, budget: &mut Budget) -> Trial {
        match node.view(self.inventory, self.cluster) {
            Ok(view) => self.copies((&node.facts, &view), Hypothetical::default(), &Usage::default(), budget),
            Err(fault) => Trial {
                bin: None,
                shape: None,
                domain: Domain::default(),
                copies: Vec::new(),
                end: End::Refused(Refusal::Fault(fault)),
            },
        }
    }

    fn on_machine<'h>(
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
                match self.inventory.view_of_machine(&facts, hypothesis.shape, bin, self.cluster) {
                    Ok(view) => views.push((domain, facts, view)),
                    Err(fault) => trials.push(Arc::new(Trial {
                        bin: Some(bin),
                        shape: Some(hypothesis.shape),
                        domain,
                        copies: Vec::new(),
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
                // Never more than there is: the part was taken from it.
                let spent = budget.spend(part - own.remaining());
                debug_assert!(spent.is_ok(), "a part is not larger than the whole");
                trials.push(Arc::new(trial));
            }
        }
        trials
    }

    /// Claims that have a node selector of their own make domains matter.
    fn names_allocated_claims(&self) -> bool {
        self.claims.iter().any(|claim| matches!(claim, ClaimUse::Named { .. }))
    }

    fn copies(&self, seen: (&NodeFacts, &Arc<View>), of: Hypothetical, held: &Usage, budget: &mut Budget) -> Trial {
        let Hypothetical { bin, shape, domain } = of;
        let before = budget.remaining();
        let mut held = held.clone();
        let mut trial = Trial { bin, shape, domain, copies: Vec::new(), end: End::Enough };
        let mut done: BTreeMap<ClaimId, Arc<Allocation>> = BTreeMap::new();
        while trial.copies.len() < self.wanted as usize {
            let wanted = match self.wanted((seen.0, seen.1), bin, &done) {
                Ok(wanted) => wanted,
                Err(refusal) => {
                    trial.end = End::Refused(refusal);
                    break;
                }
            };
            let classes: Vec<ClaimClassId> = wanted.new.iter().map(|(class, ..)| *class).collect();
            // What a copy takes on a node that exists is kept beside the ledger like a hypothesis.
            let own = bin.unwrap_or(BinId::from_index(u32::MAX as usize));
            let taken = Taken { cluster: self.cluster, own: Some((own, &held)) };
            let outcome = if classes.is_empty() {
                Outcome::Found(Found::default())
            } else {
                self.inventory.search(seen, &classes, taken, Need::Usage, budget)
            };
            // Upstream looks at all other claims before it says that one is allocated elsewhere, and an error on the
            // way ends the pod's attempt.
            let elsewhere = wanted.elsewhere.as_ref().map(|claim| Refusal::Elsewhere { claim: Arc::clone(claim) });
            let copy = match (outcome, elsewhere) {
                (Outcome::Found(found), None) => self.copy(seen.1, &wanted, found),
                (Outcome::Found(found), Some(elsewhere)) => {
                    self.copy(seen.1, &wanted, found).and_then(|_| Err(elsewhere))
                }
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
            trial.copies.push(copy);
            if takes_nothing {
                // There is no end to it: all further copies are like this one.
                while trial.copies.len() < self.wanted as usize {
                    let Some(last) = trial.copies.last() else { break };
                    let (demand, named, allocations) = (last.demand.clone(), Vec::new(), Vec::new());
                    let usage = Usage::default();
                    trial.copies.push(Copied { usage, demand, allocations, score: 0, named, exclusive: Vec::new() });
                }
            }
        }
        trial
    }

    /// One copy from what was found for the claims that had to be allocated.
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
        let new = wanted.new.iter().zip(&found.allocations).map(|((class, claim, containers), allocation)| {
            demand::Costs { claim: name(*class, *claim), allocation, containers: *containers }
        });
        let paid = if self.inventory.quirks.allocated_claims_cost_nothing { &[][..] } else { &wanted.allocated };
        let old = paid.iter().map(|(claim, allocation, containers)| demand::Costs {
            claim: name(self.inventory.claims[*claim].class, Some(*claim)),
            allocation,
            containers: *containers,
        });
        let demand = demand::of(self.inventory, view, new.chain(old))?;
        let exclusive = wanted.allocated.iter().filter(|(_, allocation, _)| self.hands_out(view, allocation));
        let exclusive = exclusive.map(|(claim, ..)| *claim).collect();
        Ok(Copied { usage: found.usage, demand, score: found.score, named, exclusive, allocations: found.allocations })
    }

    /// Whether an allocated claim is for one pod alone.
    fn hands_out(&self, view: &View, allocation: &Allocation) -> bool {
        demand::hands_out(self.inventory, view, allocation)
    }

    /// The claims that have to be allocated and those that are, in order; refused if one is another pod's.
    fn wanted(
        &self,
        (facts, view): (&NodeFacts, &View),
        bin: Option<BinId>,
        done: &BTreeMap<ClaimId, Arc<Allocation>>,
    ) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted::default();
        for claim in self.claims {
            let (claim, containers, reserved) = match *claim {
                ClaimUse::Fresh { class, containers } => {
                    wanted.new.push((class, None, containers));
                    continue;
                }
                ClaimUse::Named { claim, containers, reserved } => (claim, containers, reserved),
            };
            let entry = &self.inventory.claims[claim];
            let planned = self.cluster.claim(claim);
            let name = || Arc::from(entry.object.meta.name.to_string());
            let (allocation, reaches, others) =
                match (self.inventory.allocation_in(self.cluster, claim), planned, done.get(&claim)) {
                    (Some(allocation), planned, done) => {
                        let consumers = !entry.object.reserved_for.is_empty() && !reserved;
                        let others = consumers || planned.is_some() || done.is_some();
                        (Arc::new(allocation.clone()), reaches(facts, allocation.node_selector.as_ref()), others)
                    }
                    (None, Some(planned), _) => {
                        let reaches = match &planned.place {
                            Place::Bin(place) => bin == Some(*place),
                            Place::Node(name) => bin.is_none() && facts.name == *name,
                            Place::Nodes(selector) => reaches(facts, selector.as_ref()),
                        };
                        (Arc::clone(&planned.allocation), reaches, true)
                    }
                    (None, None, Some(allocation)) => (Arc::clone(allocation), true, true),
                    (None, None, None) => {
                        wanted.new.push((entry.class, Some(claim), containers));
                        continue;
                    }
                };
            if !reaches {
                wanted.elsewhere = wanted.elsewhere.or_else(|| Some(name()));
                continue;
            }
            if others && self.hands_out(view, &allocation) {
                return Err(Refusal::Shared { claim: name() });
            }
            wanted.allocated.push((claim, allocation, containers));
        }
        Ok(wanted)
    }
}

fn reaches(facts: &NodeFacts, selector: Option<&NodeSelector>) -> bool {
    selector.is_none_or(|selector| facts.matches(selector).unwrap_or(false))
}

impl Inventory {
    /// Label keys that node selectors of slices, devices and allocated claims mention.
    pub fn mentioned_keys(&self) -> &BTreeSet<Arc<str>> {
        &self.mentioned_keys
    }

    /// The domains that a machine of a shape could land in, as far as devices can tell and labels are not pinned.
    pub fn domains(&self, shape: ShapeId, pinned: &Domain) -> Vec<Domain> {
        let mut domains = vec![Domain::default()];
        for (key, knowledge) in &self.machines[shape].labels {
            let LabelKnowledge::OneOf(values) = knowledge else { continue };
            if pinned.0.contains_key(key) || !self.mentioned_keys.contains(key) {
                continue;
            }
            let with = |domain: &Domain, value: &Arc<str>| {
                let mut domain = domain.clone();
                domain.0.insert(Arc::clone(key), Arc::clone(value));
                domain
            };
            domains = domains.iter().flat_map(|domain| values.iter().map(|value| with(domain, value))).collect();
            domains.truncate(MAX_DOMAINS);
        }
        domains
    }

    pub(crate) fn facts(&self, shape: ShapeId, pinned: &Domain, domain: &Domain) -> NodeFacts {
        let machine = &self.machines[shape];
        let mut facts =
            NodeFacts { name: None, labels: BTreeMap::new(), declared_features: machine.declared_features.clone() };
        for (key, knowledge) in &machine.labels {
            if let LabelKnowledge::Known(value) = knowledge {
                facts.labels.insert(Arc::clone(key), Arc::clone(value));
            }
        }
        for (key, value) in pinned.0.iter().chain(&domain.0) {
            facts.labels.insert(Arc::clone(key), Arc::clone(value));
        }
        facts
    }
}

/// The label keys that a scope mentions.
pub(crate) fn keys_of(scope: &NodeScope) -> impl Iterator<Item = &Arc<str>> {
    let selector = match scope {
        NodeScope::Selector(selector) => Some(selector),
        NodeScope::Node(_) | NodeScope::AllNodes | NodeScope::PerDevice => None,
    };
    selector.into_iter().flat_map(selector_keys)
}

/// The label keys that a node selector mentions.
pub(crate) fn selector_keys(selector: &NodeSelector) -> impl Iterator<Item = &Arc<str>> {
    selector.terms.iter().flat_map(|term| &term.match_expressions).map(|requirement| &requirement.key)
}
