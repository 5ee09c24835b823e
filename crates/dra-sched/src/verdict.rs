//! The three answers of a search, and what they say.
//!
//! *Allocated*: what upstream would allocate. *Refused*: a proof that nothing fits, or the error that upstream answers
//! with. *Out of budget*: neither. Texts are made only when somebody prints.

mod explain;
mod reason;
mod steps;

use std::fmt;
use std::sync::Arc;

use crate::allocator::Scene;
use crate::capacity::BadCapacity;
use dra_types::{Allocation, DeviceClassName, DeviceId, PoolId, QualifiedName, RequestName, SelectorError};

pub use explain::{Amount, Explanation, FallExplanation, Holder, Met, RequestExplanation, ValueInPlay};
pub use reason::{ConstraintReport, Fall, PoolTrouble, RequestReport, Rule, Shortage};
pub use steps::{RequestStep, Step};

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

/// How far a search came.
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
    /// A claim is allocated where this node is not.
    Elsewhere {
        /// The claim.
        claim: Arc<str>,
    },
    /// A claim hands out the node's own resources (KEP-5517) and another pod uses it, which excludes all others.
    Shared {
        /// The claim.
        claim: Arc<str>,
    },
    /// A claim hands out the node's own resources and no container of the pod uses it.
    NotUsed {
        /// The claim.
        claim: Arc<str>,
    },
    /// Upstream answers with an error.
    Fault(Fault),
}

/// A proof that no assignment exists. What every request found, and the values in play, are found out by
/// [`crate::Inventory::explain`].
#[derive(Debug, Clone, PartialEq)]
pub struct Infeasible {
    /// How it was proved.
    pub proof: Proof,
    /// Pools that are seen but not used.
    pub pools: Vec<(PoolId, PoolTrouble)>,
    /// What was looked at: from it the inventory makes the reports when they are read.
    pub(crate) scene: Scene,
}

/// How infeasibility was proved.
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
    /// Each request has enough devices, but together they want more than there are.
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
    /// Every possibility was tried or shown to be like one that was.
    Exhausted,
}

/// On which nodes an error of upstream's ends the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Other nodes are still tried.
    Node,
    /// The pod is not scheduled at all.
    Pod,
}

/// What upstream answers with an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The claim itself is wrong, or needs a feature that is off.
    #[error("claim {claim}: {error}")]
    Claim {
        /// The claim.
        claim: Arc<str>,
        /// What is wrong.
        error: ClaimFault,
    },
    /// A selector failed while it was evaluated.
    #[error(transparent)]
    Selector(Box<SelectorFault>),
    /// A derived attribute's expression does not compile, or failed while it was evaluated.
    #[error("claim {claim}, request {request}: derived attribute {attribute} on device {device}: {error}")]
    Derived {
        /// The claim.
        claim: Arc<str>,
        /// The request.
        request: RequestName,
        /// The attribute.
        attribute: QualifiedName,
        /// The device.
        device: DeviceId,
        /// What happened.
        error: Arc<str>,
    },
    /// A request for all devices sees a pool that is not usable.
    #[error("claim {claim}, request {request}: asks for all devices, but resource pool {pool} is {trouble}")]
    AllNeedsPool {
        /// The claim.
        claim: Arc<str>,
        /// The request.
        request: RequestName,
        /// The pool.
        pool: PoolId,
        /// What is the matter with it.
        trouble: PoolTrouble,
    },
    /// A constraint excludes a device that a request for all devices must have.
    #[error(
        "claim {claim}, request {request}: cannot add device {device} because a claim constraint would not be satisfied"
    )]
    AllUnderConstraint {
        /// The claim.
        claim: Arc<str>,
        /// The request.
        request: RequestName,
        /// The device.
        device: DeviceId,
    },
    /// No way to stay below the number of devices that a claim's status can hold.
    #[error("claim {claim}: more than {limit} devices", limit = crate::claims::MAX_RESULTS)]
    TooManyDevices {
        /// The claim.
        claim: Arc<str>,
    },
    /// A capacity of a device cannot be computed for the request.
    #[error("claim {claim}, request {request}: capacity of device {device}: {error}")]
    Capacity {
        /// The claim.
        claim: Arc<str>,
        /// The request.
        request: RequestName,
        /// The device.
        device: DeviceId,
        /// What is wrong.
        error: BadCapacity,
    },
    /// A device hands out a resource of the node by an amount that the allocation does not tell.
    #[error(
        "claim {claim}: device {device} hands out {resource} by its capacity {capacity}, of which the allocation takes \
         no amount"
    )]
    NodeResource {
        /// The claim.
        claim: Arc<str>,
        /// The device.
        device: DeviceId,
        /// The node's resource.
        resource: Arc<str>,
        /// The capacity that says how much.
        capacity: QualifiedName,
    },
    /// A slice's node selector is not one.
    #[error("pool {pool}: {error}")]
    NodeSelector {
        /// The pool.
        pool: PoolId,
        /// What is wrong.
        error: SelectorError,
    },
    /// The result would need a node selector with several terms.
    #[error("claim {claim}: the node selector of device {device} has {terms} terms")]
    SelectorTerms {
        /// The claim.
        claim: Arc<str>,
        /// The device.
        device: DeviceId,
        /// How many.
        terms: usize,
    },
    /// Nothing fits, and some pool of this node is invalid.
    #[error("invalid resource pools were encountered: {pool} is {trouble}")]
    InvalidPools {
        /// The first of them.
        pool: PoolId,
        /// What is the matter with it.
        trouble: PoolTrouble,
    },
}

impl Fault {
    /// Which nodes the error concerns.
    pub fn scope(&self) -> Scope {
        match self {
            Self::InvalidPools { .. } => Scope::Node,
            Self::Claim { .. }
            | Self::Selector(_)
            | Self::Derived { .. }
            | Self::AllNeedsPool { .. }
            | Self::AllUnderConstraint { .. }
            | Self::TooManyDevices { .. }
            | Self::Capacity { .. }
            | Self::NodeResource { .. }
            | Self::NodeSelector { .. }
            | Self::SelectorTerms { .. } => Scope::Pod,
        }
    }
}

/// A selector that failed while it was evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("claim {claim}, request {request}: {of_class}selector #{index} on device {device}: {error} (in {text})",
    of_class = class.as_ref().map(|class| format!("class {class}: ")).unwrap_or_default())]
pub struct SelectorFault {
    /// The claim.
    pub claim: Arc<str>,
    /// The request.
    pub request: RequestName,
    /// The class that it is a selector of; None for one of the request itself.
    pub class: Option<DeviceClassName>,
    /// Its position.
    pub index: usize,
    /// The selector.
    pub text: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// What happened.
    pub error: Arc<str>,
}

/// What is wrong with a claim on every node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimFault {
    /// A field that is not understood and could change the answer.
    #[error("{0} is not supported")]
    Unsupported(Arc<str>),
    /// The feature gate is off.
    #[error("request {request}: {what}, but the {gate} feature is disabled")]
    FeatureOff {
        /// The request.
        request: RequestName,
        /// What it uses.
        what: &'static str,
        /// The gate.
        gate: &'static str,
    },
    /// Neither `exactly` nor `firstAvailable`, or no class.
    #[error("request {request}: missing device class name (unsupported request type?)")]
    NoClass {
        /// The request.
        request: RequestName,
    },
    /// The class does not exist.
    #[error("request {request}: device class {class} does not exist")]
    UnknownClass {
        /// The request.
        request: RequestName,
        /// The class.
        class: DeviceClassName,
    },
    /// A selector that is not CEL.
    #[error("request {request}: selector #{index} is of an unsupported kind")]
    UnknownSelector {
        /// The request.
        request: RequestName,
        /// Its position.
        index: usize,
    },
    /// A mode that is not known.
    #[error("request {request}: unsupported count mode {mode}")]
    UnknownMode {
        /// The request.
        request: RequestName,
        /// The mode.
        mode: Arc<str>,
    },
    /// Neither matchAttribute nor distinctAttribute.
    #[error("constraint #{index}: empty constraint (unsupported constraint type?)")]
    UnknownConstraint {
        /// Its position.
        index: usize,
    },
    /// More devices than a status can hold.
    #[error("{devices} devices exceed the limit of {limit}", limit = crate::claims::MAX_RESULTS)]
    TooManyDevices {
        /// The least number that the requests want.
        devices: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere { claim } => write!(f, "claim {claim} is allocated for other nodes"),
            Self::Shared { claim } => {
                write!(f, "claim {claim} hands out resources of the node and is used by another pod")
            }
            Self::NotUsed { claim } => {
                write!(f, "claim {claim} hands out resources of the node, but no container of the pod uses it")
            }
            Self::Fault(fault) => fault.fmt(f),
            Self::Infeasible(infeasible) => infeasible.fmt(f),
        }
    }
}
