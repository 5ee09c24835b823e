//! When a registered machine counts as one that pods can use.

use api::conditions::node_claim::{
    KNOWN_EPHEMERAL_TAINTS_EXIST, NODE_NOT_FOUND, NODE_NOT_READY, RESOURCE_NOT_REGISTERED, STARTUP_TAINTS_EXIST,
};
use api::{NodeClaim, taints};
use k8s_openapi::api::core::v1::{Node, Taint};
use model::Quantity;

use crate::world::node_facts::is_ready;
use crate::world::node_facts::{same_taint, taints_of};

/// Whether a registered machine is initialized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Initialization {
    /// It is: its Node gets the label, and condition Initialized is true.
    Initialized,
    /// It would be, but for our own taint: the machine waits for its pods, and they may wait for its devices.
    Held {
        /// The taint.
        taint: String,
    },
    /// It is not: condition Initialized is unknown, with this reason and message.
    Waiting {
        /// The reason.
        reason: &'static str,
        /// The message.
        message: String,
    },
}

/// Looks at the Node of a registered NodeClaim; `None` if it is gone.
pub(crate) fn decide(claim: &NodeClaim, node: Option<&Node>) -> Initialization {
    let waiting = |reason, message: String| Initialization::Waiting { reason, message };
    let Some(node) = node else {
        return waiting(NODE_NOT_FOUND, "Node not registered with cluster".to_owned());
    };
    if !is_ready(node) {
        return waiting(NODE_NOT_READY, "Node status is NotReady".to_owned());
    }
    let of_node = taints_of(node);
    let startup = |taint: &&Taint| claim.spec.startup_taints.iter().any(|startup| same_taint(startup, taint));
    if let Some(taint) = of_node.iter().find(startup) {
        return waiting(STARTUP_TAINTS_EXIST, format!("StartupTaint {:?} still exists", display(taint)));
    }
    let mut ephemeral = of_node.iter().filter(|taint| taints::is_known_ephemeral(&taint.key, &taint.effect));
    let of_others = ephemeral.clone().find(|taint| taint.key != taints::HELD);
    if let Some(taint) = of_others {
        return still_exists(&display(taint));
    }
    if let Some(resource) = missing_resource(claim, node) {
        return waiting(RESOURCE_NOT_REGISTERED, format!("Resource {resource:?} was requested but not registered"));
    }
    match ephemeral.next() {
        Some(held) => Initialization::Held { taint: display(held) },
        None => Initialization::Initialized,
    }
}

/// What is said of a taint that keeps pods from a new Node.
pub(crate) fn still_exists(taint: &str) -> Initialization {
    let message = format!("KnownEphemeralTaint {taint:?} still exists");
    Initialization::Waiting { reason: KNOWN_EPHEMERAL_TAINTS_EXIST, message }
}

/// The first resource that the NodeClaim asks for and the Node does not have.
fn missing_resource<'a>(claim: &'a NodeClaim, node: &Node) -> Option<&'a str> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = |text: &str| Quantity::parse(text).ok();
    let requests = claim.spec.resources.requests.iter();
    requests.map(|(resource, requested)| (resource.as_str(), requested)).find_map(|(resource, requested)| {
        let wanted = amount(&text_of(requested)).is_some_and(|quantity| !quantity.is_zero());
        let there = allocatable
            .and_then(|resources| resources.get(resource))
            .and_then(|quantity| amount(&quantity.0))
            .is_some_and(|quantity| !quantity.is_zero());
        (wanted && !there).then_some(resource)
    })
}

/// A quantity's text.
fn text_of(quantity: &impl ToString) -> String {
    quantity.to_string()
}

/// `key=value:effect`, as kubectl writes it.
pub(crate) fn display(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        Some(_) | None => format!("{}:{}", taint.key, taint.effect),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim() -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"},
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": [],
                "startupTaints": [{"key": "gpu", "value": "v", "effect": "NoExecute"}],
                "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2", "example.com/none": "0"}},
            },
        }))
        .unwrap()
    }

    fn node(ready: &str, taints: Value, allocatable: Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n"}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable},
        }))
        .unwrap()
    }

    #[test]
    fn each_thing_that_is_missing_is_named_in_karpenters_order() {
        let all = json!({"cpu": "4", "nvidia.com/gpu": "2"});
        let everything = json!([
            {"key": "gpu", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        ]);
        let cases = [
            (None, "NodeNotFound", "Node not registered with cluster"),
            (Some(node("Unknown", everything.clone(), json!({}))), "NodeNotReady", "Node status is NotReady"),
            (
                Some(node("True", everything, json!({}))),
                "StartupTaintsExist",
                "StartupTaint \"gpu:NoExecute\" still exists",
            ),
            (
                Some(node(
                    "True",
                    json!([{"key": "readiness.k8s.io/x", "value": "y", "effect": "NoSchedule"}]),
                    json!({}),
                )),
                "KnownEphemeralTaintsExist",
                "KnownEphemeralTaint \"readiness.k8s.io/x=y:NoSchedule\" still exists",
            ),
            (
                Some(node(
                    "True",
                    json!([{"key": "stays", "effect": "NoSchedule"}]),
                    json!({"cpu": "4", "nvidia.com/gpu": "0"}),
                )),
                "ResourceNotRegistered",
                "Resource \"nvidia.com/gpu\" was requested but not registered",
            ),
        ];
        for (node, reason, message) in cases {
            let expected = Initialization::Waiting { reason, message: message.to_owned() };
            assert_eq!(decide(&claim(), node.as_ref()), expected);
        }
        let held = json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}]);
        let is_held = Initialization::Held { taint: "dovetail.sh/held:NoSchedule".to_owned() };
        assert_eq!(decide(&claim(), Some(&node("True", held, all.clone()))), is_held);
        assert_eq!(decide(&claim(), Some(&node("True", json!([]), all))), Initialization::Initialized);
    }
}
