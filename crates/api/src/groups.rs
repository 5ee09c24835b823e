//! API groups and versions.

/// The group of NodePool, NodeClaim and NodeOverlay; also the domain of Karpenter's labels and annotations.
pub const KARPENTER: &str = "karpenter.sh";
/// The group of CapacityBuffer, which Cluster Autoscaler shares.
pub const AUTOSCALING_X_K8S: &str = "autoscaling.x-k8s.io";
