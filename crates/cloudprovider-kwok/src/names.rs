//! Names that only this provider knows: its group, labels and annotations.

/// The group of KWOKNodeClass, and the domain of its labels.
pub const GROUP: &str = "karpenter.kwok.sh";
/// Label of a Node: dollars per hour, where eks-node-viewer looks for it.
pub const NODE_VIEWER_PRICE: &str = "eks-node-viewer/instance-price";

/// Label of a machine: how many CPUs the instance type has, as a quantity.
pub const KWOK_INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
/// Label of a machine: how much memory the instance type has, as a quantity.
pub const KWOK_INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
/// Label of a machine: the family that the instance type's name begins with.
pub const KWOK_INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
/// Label of a machine: the size in the instance type's name, or its CPUs.
pub const KWOK_INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
/// Annotation and label of a Node: kwok plays its kubelet. A label too, so that such Nodes can be selected.
pub const KWOK_NODE: &str = "kwok.x-k8s.io/node";
/// Value of [`KWOK_NODE`].
pub const KWOK_NODE_FAKE: &str = "fake";
/// Label of a Node, for running several kwok controllers: which of them plays the kubelet.
pub const KWOK_PARTITION: &str = "kwok-partition";
/// Value of [`KWOK_PARTITION`].
pub const KWOK_PARTITION_A: &str = "a";
/// What the kubelet of a fake machine declares in `status.declaredFeatures`, sorted as the API server wants it. From
/// Kubernetes 1.37 on devices are given on some conditions only to Nodes whose kubelet knows of them: devices that cost
/// the Node something (KEP-5517), and drivers that need nothing done on the Node (KEP-5945).
pub const DECLARED_FEATURES: [&str; 2] = ["DRANodeAllocatableResources", "DRAOptionalNodeOperations"];
/// Label of a ConfigMap that holds an instance: the UID of the NodeClaim.
pub const KWOK_INSTANCE_TOKEN: &str = "karpenter.kwok.sh/token";
/// Annotation of a Node: namespace and name, with a slash between, of the ConfigMap in which the provider keeps
/// its instance.
pub const KWOK_INSTANCE_RECORD: &str = "karpenter.kwok.sh/instance-record";
