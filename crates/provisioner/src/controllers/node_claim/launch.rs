//! What the answer of the provider's `create` means for the NodeClaim.
//!
//! The token of a launch is the NodeClaim's uid, so a launch whose answer or whose status write was lost is repeated
//! without a second machine.

use std::collections::BTreeMap;

use api::conditions::node_claim::LAUNCH_FAILED;
use api::labels::ProviderLabels;
use api::{NodeClaim, NodeClaimStatus, events};
use cloudprovider::{Error, Instance};

use crate::runtime::conditions::is_reason;

/// Karpenter 1.15 cuts messages here.
const MESSAGE_BYTES: usize = 1024;

/// What to do after a call of `create`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Launch {
    /// The machine exists: condition Launched is true.
    Launched(Box<Instance>),
    /// There will be no machine: tell, and delete the NodeClaim; its pods are planned again.
    GiveUp {
        /// Reason of the event on the NodeClaim.
        event: &'static str,
        /// Label `reason` of the metric.
        metric: &'static str,
        /// What happened.
        message: String,
    },
    /// Condition Launched stays unknown, and the launch is tried again later.
    Retry {
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
}

/// What to do with that answer.
pub(crate) fn decide(answer: Result<Instance, Error>) -> Launch {
    let error = match answer {
        Ok(instance) => return Launch::Launched(Box::new(instance)),
        Err(error) => error,
    };
    let text = truncate(&error.to_string());
    match error {
        Error::InsufficientCapacity { .. } => Launch::GiveUp {
            event: events::INSUFFICIENT_CAPACITY_ERROR,
            metric: "insufficient_capacity",
            message: text,
        },
        // Differs: `node-class-not-ready`. Karpenter has this event and never publishes it.
        Error::NodeClassNotReady(_) => {
            Launch::GiveUp { event: events::NODE_CLASS_NOT_READY, metric: "nodeclass_not_ready", message: text }
        }
        Error::CreateFailed { reason, message } => Launch::Retry {
            reason: if is_reason(&reason) { reason } else { LAUNCH_FAILED.to_owned() },
            message: truncate(&message),
        },
        Error::NotFound(_)
        | Error::RebootNotImplemented(_)
        | Error::RebootFailed(_)
        | Error::InstanceTypesNotEvaluated(_)
        | Error::Transient(_) => Launch::Retry { reason: LAUNCH_FAILED.to_owned(), message: text },
    }
}

/// Labels and annotations that the NodeClaim gets once it is launched. What it has already stays; then come values for
/// what its own requirements leave to it, then what the provider says.
pub(crate) fn metadata(
    claim: &NodeClaim,
    instance: &Instance,
    rules: &ProviderLabels,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut labels = instance.labels.clone();
    labels.extend(decode::labels_to_give(&claim.spec.requirements, &instance.labels, rules));
    let none = BTreeMap::new();
    let known = claim.metadata.labels.as_ref().unwrap_or(&none);
    labels.retain(|key, _| !known.contains_key(key));
    let known = claim.metadata.annotations.as_ref().unwrap_or(&none);
    let mut annotations = instance.annotations.clone();
    annotations.retain(|key, value| known.get(key) != Some(value));
    (labels, annotations)
}

/// Writes down what the provider said about the machine.
pub(crate) fn record(status: &mut NodeClaimStatus, instance: &Instance) {
    status.provider_id = instance.provider_id.to_string();
    status.image_id = instance.image_id.clone().unwrap_or_default();
    status.capacity = resource_list(&instance.capacity);
    status.allocatable = resource_list(&instance.allocatable);
}

fn resource_list(resources: &cloudprovider::ResourceList) -> api::ResourceList {
    resources.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())).collect()
}

fn truncate(message: &str) -> String {
    const ELLIPSIS: &str = "...";
    if message.len() <= MESSAGE_BYTES {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_BYTES - ELLIPSIS.len()).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{ELLIPSIS}", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(reason: &str, message: &str) -> Launch {
        Launch::Retry { reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn each_kind_of_error_has_its_consequence() {
        let create_failed =
            |reason: &str| Error::CreateFailed { reason: reason.to_owned(), message: "no such subnet".to_owned() };
        let cases = [
            (
                Error::InsufficientCapacity { message: "all out".to_owned(), offerings: Vec::new() },
                Launch::GiveUp {
                    event: "InsufficientCapacityError",
                    metric: "insufficient_capacity",
                    message: "insufficient capacity, all out".to_owned(),
                },
            ),
            (
                Error::NodeClassNotReady("no subnets".to_owned()),
                Launch::GiveUp {
                    event: "NodeClassNotReady",
                    metric: "nodeclass_not_ready",
                    message: "NodeClassRef not ready, no subnets".to_owned(),
                },
            ),
            (create_failed("SubnetNotFound"), retry("SubnetNotFound", "no such subnet")),
            (create_failed("not a reason!"), retry("LaunchFailed", "no such subnet")),
            (create_failed(""), retry("LaunchFailed", "no such subnet")),
            (Error::Transient("timed out".to_owned()), retry("LaunchFailed", "timed out")),
        ];
        for (error, expected) in cases {
            assert_eq!(decide(Err(error.clone())), expected, "{error:?}");
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let Launch::Retry { message, .. } = decide(Err(Error::Transient("ä".repeat(1000)))) else { unreachable!() };
        assert!(message.len() <= MESSAGE_BYTES && message.ends_with("ä..."), "{}", message.len());
    }
}
