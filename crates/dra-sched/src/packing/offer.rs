//! What a machine could take, and why not more: results for shapes and domains, merged where they agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::IdSet;

use super::{ClaimShare, NodeDemand};
use crate::compile::ids::{ClaimId, ShapeId};
use crate::inventory::Domain;
use crate::inventory::unit::BinId;
use crate::ledger::{Joining, Usage};
use crate::verdict::{Progress, Refusal};
use dra_types::Allocation;

/// What a machine could take, and why not more.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Ways to take copies: most copies first, then by domain.
    pub alternatives: Vec<Alternative>,
    /// What a machine takes whichever shape and domain it gets, if what it is given differs by domain. It pins nothing,
    /// and takes all that any of them takes.
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
    /// The labels that it pins.
    pub domain: Domain,
    /// How many copies.
    pub copies: u32,
    /// The shapes that hold them; empty for a node that exists.
    pub shapes: IdSet<ShapeId>,
    pub(super) trials: Vec<Arc<Trial>>,
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

    /// What each claim costs, as [`Self::demand`] is meant, in the order of their places; claims without costs are left
    /// out.
    pub fn shares(&self, shape: Option<ShapeId>) -> Vec<ClaimShare> {
        let mut most: BTreeMap<usize, ClaimShare> = BTreeMap::new();
        for trial in self.trials.iter().filter(|trial| trial.shape == shape) {
            for share in trial.copies.iter().take(self.copies as usize).flat_map(|copy| &copy.shares) {
                let none = ClaimShare { place: share.place, ..ClaimShare::default() };
                most.entry(share.place).or_insert(none).max(share);
            }
        }
        most.into_values().collect()
    }

    /// Whether an allocation of a claim that nobody uses is taken back for it.
    pub fn takes_back(&self, claim: ClaimId) -> bool {
        let copies = self.trials.iter().flat_map(|trial| trial.copies.iter().take(self.copies as usize));
        copies.into_iter().any(|copy| copy.given_up.contains(&claim))
    }

    pub(super) fn is_for_several_domains(&self) -> bool {
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

/// The result for one shape in one domain.
#[derive(Debug)]
pub(super) struct Trial {
    /// The planned machine that was asked about.
    pub(super) bin: Option<BinId>,
    pub(super) shape: Option<ShapeId>,
    pub(super) domain: Domain,
    pub(super) copies: Vec<Copied>,
    /// Claims that get each copy, or the group of all copies, as a consumer.
    pub(super) joining: BTreeSet<Joining>,
    pub(super) end: End,
}

/// One copy of a pod's claims.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) usage: Usage,
    pub(super) demand: NodeDemand,
    /// Of claims that cost something.
    pub(super) shares: Vec<ClaimShare>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) score: u32,
    /// Claims that were allocated with it.
    pub(super) named: Vec<Named>,
    /// Claims that were allocated for other nodes, and that nobody used: they were allocated anew.
    pub(super) given_up: Vec<ClaimId>,
    /// Claims that were allocated before and that only this copy may use from now on.
    pub(super) exclusive: Vec<ClaimId>,
}

/// A claim that exists by name and was allocated with a copy.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) claim: ClaimId,
    /// Whether it can be used on this machine only.
    pub(super) pinned: bool,
    pub(super) allocation: Arc<Allocation>,
}

/// Why there are no more copies.
#[derive(Debug, Clone)]
pub(super) enum End {
    Enough,
    Refused(Refusal),
    OutOfBudget(Progress),
}

/// Merges results that agree.
pub(super) fn of(trials: Vec<Arc<Trial>>) -> Offer {
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
