//! How calls to a provider fail. Callers branch on the variant; the texts, and the prefixes that users know from
//! Karpenter, reach conditions, events and logs.

use model::NodePoolName;
use thiserror::Error as ThisError;

use crate::OfferingKey;

/// A failed call to a provider.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// There is no such machine, or no longer. The end of a deletion.
    #[error("nodeclaim not found, {0}")]
    NotFound(String),
    /// None of the offerings that the NodeClaim allows has a machine. The NodeClaim is given up and its pods are
    /// planned again.
    #[error("insufficient capacity, {message}")]
    InsufficientCapacity {
        /// What was asked for and what the provider said.
        message: String,
        /// The offerings that would have done but have no machines, found out by this call or shortly before. Empty if
        /// nothing in the catalogue would do.
        offerings: Vec<OfferingKey>,
    },
    /// The node class cannot be launched from yet. The NodeClaim is given up.
    #[error("NodeClassRef not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch was refused for a reason that the `Launched` condition shall show. It is tried again.
    #[error("creating instance, {message}")]
    CreateFailed {
        /// The condition's reason, CamelCase.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// The provider cannot reboot machines, or not this one. Final.
    #[error("node reboot not implemented, {0}")]
    RebootNotImplemented(String),
    /// The provider refused the reboot. Final.
    #[error("node reboot failed, {0}")]
    RebootFailed(String),
    /// Instance types of this NodePool cannot be told yet, so nothing may be planned for it. It is tried again.
    #[error("instance types of nodepool {0:?} not evaluated yet")]
    InstanceTypesNotEvaluated(NodePoolName),
    /// Anything that may go away by itself: a time-out, a throttled call, an answer that cannot be read. It is tried
    /// again, later and later.
    #[error("{0}")]
    Transient(String),
}

impl Error {
    /// Whether the machine is gone or was never there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// Turns "not found" into success, for callers that wanted it gone.
    ///
    /// # Errors
    /// Every other error, unchanged.
    pub fn ignore_not_found<T>(result: Result<T, Self>) -> Result<Option<T>, Self> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Self::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
