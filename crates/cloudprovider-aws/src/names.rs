//! Names that only this provider knows: its group, labels and annotations.

/// The group of EC2NodeClass, and the domain of its labels.
pub const GROUP: &str = "karpenter.k8s.aws";
