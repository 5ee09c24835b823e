//! Whether a NodePool's node class can be launched from: condition `NodeClassReady`.

use api::conditions::node_pool::{NODE_CLASS_NOT_FOUND, NODE_CLASS_READINESS_UNKNOWN, NODE_CLASS_TERMINATING};
use cloudprovider::NodeClassReadiness;

/// Why the condition is false; `None` if it is true.
pub(crate) fn refusal(readiness: NodeClassReadiness) -> Option<(String, String)> {
    let because = |reason: &str, message: &str| Some((reason.to_owned(), message.to_owned()));
    match readiness {
        NodeClassReadiness::Ready => None,
        NodeClassReadiness::NotFound => because(NODE_CLASS_NOT_FOUND, "NodeClass not found on cluster"),
        NodeClassReadiness::Terminating => because(NODE_CLASS_TERMINATING, "NodeClass is Terminating"),
        NodeClassReadiness::NotReady { reason, message } if reason.is_empty() => {
            let message = if message.is_empty() { "Node Class Readiness Unknown".to_owned() } else { message };
            Some((NODE_CLASS_READINESS_UNKNOWN.to_owned(), message))
        }
        NodeClassReadiness::NotReady { reason, message } => Some((reason, message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_is_not_ready_gives_its_own_reason() {
        let not_ready = |reason: &str, message: &str| NodeClassReadiness::NotReady {
            reason: reason.into(),
            message: message.into(),
        };
        let cases = [
            (NodeClassReadiness::Ready, None),
            (NodeClassReadiness::NotFound, Some(("NodeClassNotFound", "NodeClass not found on cluster"))),
            (NodeClassReadiness::Terminating, Some(("NodeClassTerminating", "NodeClass is Terminating"))),
            (not_ready("SubnetsNotFound", "none"), Some(("SubnetsNotFound", "none"))),
            (not_ready("", ""), Some(("NodeClassReadinessUnknown", "Node Class Readiness Unknown"))),
        ];
        for (readiness, expected) in cases {
            let expected = expected.map(|(reason, message)| (reason.to_owned(), message.to_owned()));
            assert_eq!(refusal(readiness), expected);
        }
    }
}
