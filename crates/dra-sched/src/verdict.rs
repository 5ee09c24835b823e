//! The three answers of a search, as data.
//!
//! *Allocated*: what upstream would allocate. *Refused*: a proof that nothing fits, or the error that upstream answers
//! with. *Out of budget*: neither. A refusal keeps what was looked at; what each request found (`report`) is found out
//! when somebody reads it, by [`crate::explain`].

pub(crate) mod report;
pub(crate) mod scene;

use std::fmt;
use std::sync::Arc;

use crate::faults::{Fault, PoolTrouble, too_many_consumers};
use dra_types::{Allocation, PoolId, RequestName};
use scene::Scene;

pub use report::{ConstraintReport, Fall, RequestReport, Rule, Shortage};

/// The answer for one view and one set of claims.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// One allocation for each claim, in their order, and for each claim which alternative of every firstAvailable
    /// request was taken.
    Allocated {
        /// The allocations.
        allocations: Vec<Allocation>,
        /// Upstream's node score: 8 minus the index of the alternative, summed over all firstAvailable requests.
        score: u32,
    },
    /// Nothing can be allocated.
    Refused(Refusal),
    /// The search was given up.
    OutOfBudget(Progress),
}

/// How much work a search did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Steps taken: tentative choices, counting tests, propagations of a constraint's value.
    pub steps: u64,
}

/// Why nothing can be allocated.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// No assignment of devices satisfies the claims.
    Infeasible(Box<Infeasible>),
    /// A claim is allocated to other nodes.
    Elsewhere {
        /// The claim.
        claim: Arc<str>,
    },
    /// A claim hands out the node's own resources (KEP-5517), and another pod uses it. Such a claim can only have one
    /// user.
    Shared {
        /// The claim.
        claim: Arc<str>,
    },
    /// A claim has as many consumers as it can have, with those that are planned.
    TooManyConsumers {
        /// The claim.
        claim: Arc<str>,
    },
    /// A claim hands out the node's own resources and no container of the pod uses it.
    NotUsed {
        /// The claim.
        claim: Arc<str>,
    },
    /// Devices of extended resources cost something of the node, and the release cannot write that down.
    NotRecorded {
        /// The claim.
        claim: Arc<str>,
    },
    /// Upstream answers with an error.
    Fault(Fault),
}

/// A proof that no assignment exists. [`crate::explain::Explanation::of`] finds out what each request found and which
/// values are in play.
#[derive(Debug, Clone, PartialEq)]
pub struct Infeasible {
    /// How it was proved.
    pub proof: Proof,
    /// Pools that are seen but not used.
    pub pools: Vec<(PoolId, PoolTrouble)>,
    /// What the search looked at, from which reports are made when they are read.
    pub(crate) scene: Scene,
}

/// The proof of infeasibility.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// A request has fewer usable devices than it wants.
    TooFew {
        /// The claim's index.
        claim: usize,
        /// The request.
        request: RequestName,
        /// How many it wants.
        wanted: u64,
        /// How many there are.
        usable: u64,
    },
    /// Each request has enough devices by itself, but all together want more than there are.
    Together {
        /// Devices wanted by the requests that compete.
        wanted: u64,
        /// Devices that any of them could use.
        usable: u64,
    },
    /// No single value of an attribute is shared by enough devices.
    NoCommonValue {
        /// The claim's index.
        claim: usize,
        /// The constraint's index.
        constraint: usize,
    },
    /// There are fewer different values of an attribute than devices wanted.
    TooFewValues {
        /// The claim's index.
        claim: usize,
        /// The constraint's index.
        constraint: usize,
    },
    /// The search tried every possibility, or showed it to be equal to one that it tried. Counting may show the same;
    /// [`crate::explain`] asks for that when the refusal is read.
    Exhausted,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere { claim } => write!(f, "claim {claim} is allocated for other nodes"),
            Self::Shared { claim } => {
                write!(f, "claim {claim} hands out resources of the node and is used by another pod")
            }
            Self::TooManyConsumers { claim } => f.write_str(&too_many_consumers(claim)),
            Self::NotUsed { claim } => {
                write!(f, "claim {claim} hands out resources of the node, but no container of the pod uses it")
            }
            Self::NotRecorded { claim } => write!(
                f,
                "claim {claim}: devices of extended resources cost resources of the node, which this release of Kubernetes \
                 cannot write into the pod's status, so that the pod is never bound"
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Infeasible(infeasible) => infeasible.fmt(f),
        }
    }
}
