//! Taints that we set or wait for.

use k8s_openapi::api::core::v1::Taint;

/// Effect of a taint.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Effect of a taint.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Effect of a taint.
pub const NO_EXECUTE: &str = "NoExecute";

/// `NoSchedule`, on a node that is being disrupted or terminated.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// `NoExecute`, on a node from the start of its kubelet until registration.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
/// `NoSchedule`, on a node that waits for a reboot or is in one.
pub const REBOOTING: &str = "karpenter.sh/rebooting";
/// `NoSchedule`, on a registered node until its planned pods are handed over to kube-scheduler. Ours: Karpenter has no
/// such taint.
pub const HELD: &str = "dovetail.sh/held";

/// Set by the node lifecycle controller.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Set by the node lifecycle controller.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Set by a kubelet that starts with an external cloud provider, removed by that provider.
pub const CLOUD_PROVIDER_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Prefix of the keys that the node readiness controller sets and removes.
pub const READINESS_PREFIX: &str = "readiness.k8s.io/";

/// Taints (key, effect) that every new node may carry for a while. They do not keep pods from being planned on a node
/// that is not initialized yet, and initialization waits until they are gone.
pub const KNOWN_EPHEMERAL: [(&str, &str); 6] = [
    (NOT_READY, NO_SCHEDULE),
    (NOT_READY, NO_EXECUTE),
    (UNREACHABLE, NO_SCHEDULE),
    (CLOUD_PROVIDER_UNINITIALIZED, NO_SCHEDULE),
    (UNREGISTERED, NO_EXECUTE),
    (HELD, NO_SCHEDULE),
];

/// Whether a taint is one of [`KNOWN_EPHEMERAL`] or belongs to the node readiness controller.
pub fn is_known_ephemeral(key: &str, effect: &str) -> bool {
    key.starts_with(READINESS_PREFIX) || KNOWN_EPHEMERAL.contains(&(key, effect))
}

/// The taint of a node that is being disrupted or terminated.
pub fn disrupted() -> Taint {
    taint(DISRUPTED, NO_SCHEDULE)
}

/// The taint that a node carries until it is registered.
pub fn unregistered() -> Taint {
    taint(UNREGISTERED, NO_EXECUTE)
}

/// The taint of a node that is not handed over yet. Its value is the uid of the node's NodeClaim, so that a pod can
/// tolerate this node's and no other's.
pub fn held(node_claim_uid: &str) -> Taint {
    Taint { value: Some(node_claim_uid.to_owned()), ..taint(HELD, NO_SCHEDULE) }
}

/// The taint of a node that is being rebooted.
pub fn rebooting() -> Taint {
    taint(REBOOTING, NO_SCHEDULE)
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ephemeral_taints_are_told_by_key_and_effect() {
        assert!(is_known_ephemeral(NOT_READY, NO_EXECUTE));
        assert!(is_known_ephemeral("readiness.k8s.io/network", NO_SCHEDULE));
        assert!(!is_known_ephemeral(UNREACHABLE, NO_EXECUTE));
        assert!(!is_known_ephemeral(DISRUPTED, NO_SCHEDULE));
    }
}
