//! Errors of upstream's allocator, and what is wrong with pools and claims, as data that every room can name.
//!
//! A fault says what is wrong with which object, in upstream's words where kube-scheduler prints them. Claims that do
//! not fit are a [`crate::Refusal`]; a fault is one kind of refusal.

use std::fmt;
use std::sync::Arc;

use crate::capacity::BadCapacity;
use dra_types::{Allocation, DeviceClassName, DeviceId, PoolId, QualifiedName, RequestName, SelectorError};

/// For which nodes an error of upstream's allocator ends the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Other nodes are still tried.
    Node,
    /// The pod is not scheduled at all.
    Pod,
}

/// An error of upstream's allocator.
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
        /// What is wrong with it.
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
    /// No assignment stays within the number of devices that a claim's status can hold.
    #[error("claim {claim}: more than {limit} devices", limit = Allocation::MAX_RESULTS)]
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
    /// A slice's node selector is not valid.
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
        /// What is wrong with it.
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

/// What is wrong with a claim, for every node.
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
    /// A selector of another kind than CEL.
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
    #[error("{devices} devices exceed the limit of {limit}", limit = Allocation::MAX_RESULTS)]
    TooManyDevices {
        /// The least number that the requests want.
        devices: u64,
    },
}

/// Why a pool that a node sees is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolTrouble {
    /// Slices are missing, or there are too many.
    #[error("incomplete: {found} of {expected} slices of generation {generation}")]
    Incomplete {
        /// Slices of the generation.
        found: u64,
        /// What they say.
        expected: i64,
        /// The generation.
        generation: i64,
    },
    /// Two devices of one name.
    #[error("invalid: duplicate device name {0}")]
    DuplicateDevice(Arc<str>),
    /// Two counter sets of one name.
    #[error("invalid: duplicate counter set name {0}")]
    DuplicateCounterSet(Arc<str>),
    /// A device draws from a set that is not there.
    #[error("invalid: device {device} draws from counter set {set}, which does not exist")]
    UnknownCounterSet {
        /// The device.
        device: Arc<str>,
        /// The set.
        set: Arc<str>,
    },
    /// A device draws from a counter that is not there.
    #[error("invalid: device {device} draws from counter {counter}, which set {set} does not have")]
    UnknownCounter {
        /// The device.
        device: Arc<str>,
        /// The set.
        set: Arc<str>,
        /// The counter.
        counter: Arc<str>,
    },
    /// A slice has a field that is not understood and could change the answer.
    #[error("not understood: slice {slice} has {field}")]
    Unsupported {
        /// The slice.
        slice: Arc<str>,
        /// The field.
        field: Arc<str>,
    },
}

impl PoolTrouble {
    /// Whether upstream calls the pool invalid rather than incomplete.
    pub fn is_invalid(&self) -> bool {
        !matches!(self, Self::Incomplete { .. })
    }
}

/// Most entries of a claim's `status.reservedFor`, in Kubernetes 1.36 and 1.37 (`resource.k8s.io/v1`,
/// `ResourceClaimReservedForMaxSize`).
pub(crate) const MAX_CONSUMERS: u32 = 256;

/// Why one more pod cannot have a claim, and what helps.
pub(crate) fn too_many_consumers(claim: &dyn fmt::Display) -> String {
    format!(
        "claim {claim} has {MAX_CONSUMERS} consumers with the pods planned for it, the most that are allowed: reserve it \
         for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims)"
    )
}
