//! How calls to a provider fail. Callers branch on the variant; the texts, and the prefixes that users know from
//! Karpenter, reach conditions, events and logs.

use model::NodePoolName;
use thiserror::Error as ThisError;

use crate::OfferingKey;

/// A failed call to a provider.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The machine does not exist, or no longer. This completes a deletion.
    #[error("nodeclaim not found, {0}")]
    NotFound(String),
    /// None of the offerings that the NodeClaim allows has a machine. The controller deletes the NodeClaim and plans
    /// its pods again.
    #[error("insufficient capacity, {message}")]
    InsufficientCapacity {
        /// The requested machine and the provider's answer.
        message: String,
        /// The offerings that would fit but have no machines, as this call or one shortly before has found. Empty if no
        /// offering of the catalogue fits.
        offerings: Vec<OfferingKey>,
    },
    /// Machines cannot be launched from the node class yet. The controller deletes the NodeClaim.
    #[error("NodeClassRef not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch was refused; condition `Launched` shows the reason. It is tried again.
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
    /// The instance types of this NodePool are not known yet, so nothing is planned for it. It is tried again.
    #[error("instance types of nodepool {0:?} not evaluated yet")]
    InstanceTypesNotEvaluated(NodePoolName),
    /// A temporary failure: a time-out, a throttled call, an answer that cannot be read. It is tried again with a
    /// growing delay.
    #[error("{0}")]
    Transient(String),
}

impl Error {
    /// Whether the machine is gone or was never there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// Turns "not found" into success, for callers that delete.
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
