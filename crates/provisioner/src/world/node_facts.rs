//! What a Node object says, in the terms of the controllers: registered, ready, tainted.

use api::labels;
pub(crate) use cluster::node_repair::is_ready;
use k8s_openapi::api::core::v1::{Node, Taint};

/// Whether the Node was registered before.
pub(crate) fn is_registered(node: &Node) -> bool {
    has_label(node, labels::REGISTERED)
}

/// Whether a label that is a flag is set.
pub(crate) fn has_label(node: &Node, key: &str) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).is_some_and(|value| value == labels::TRUE)
}

/// The Node's taints.
pub(crate) fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether the Node has a taint of that key and effect.
pub(crate) fn has_taint(node: &Node, wanted: &Taint) -> bool {
    taints_of(node).iter().any(|taint| same_taint(taint, wanted))
}

/// Whether two taints have key and effect in common: a Node cannot have both.
pub(crate) fn same_taint(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// What the cloud calls the Node's machine.
pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}
