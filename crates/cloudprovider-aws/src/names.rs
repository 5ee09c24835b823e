//! Names that only this provider knows, other than labels: its group and kind, annotations, the finalizer, tags, and
//! the form of provider ids.

/// The group of EC2NodeClass, and the domain of its labels.
pub const GROUP: &str = "karpenter.k8s.aws";
/// The kind of node class.
pub const NODE_CLASS_KIND: &str = "EC2NodeClass";
/// Label of a NodeClaim, and tag of all that is made for one: the EC2NodeClass.
pub const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// Keeps an EC2NodeClass until what was made for it is gone.
pub const FINALIZER: &str = "karpenter.k8s.aws/termination";

/// Annotation of an EC2NodeClass and NodeClaim: the hash by which static drift is told.
pub const NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// Annotation of an EC2NodeClass and NodeClaim: how [`NODE_CLASS_HASH`] was made.
pub const NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// Annotation of a NodeClaim: the instance profile of its machine, which is kept for as long.
pub const INSTANCE_PROFILE: &str = "karpenter.k8s.aws/instance-profile-name";
/// Annotation of a NodeClaim, `"true"`: its machine has the tags that are known only once there is a Node.
pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
/// Annotation of a NodeClaim, `"true"`: its machine has the tag with the cluster's name. Karpenter writes it for
/// machines that were launched before there was such a tag.
pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
/// Tag of a machine, from its launch on: the client token of the request that asked for it.
pub const LAUNCH_TOKEN: &str = "dovetail.sh/ec2-launch-token";
/// Tag of a machine, added after its launch: the UID of its NodeClaim.
pub const NODE_CLAIM_UID: &str = "dovetail.sh/nodeclaim-uid";

/// Annotation of an EC2NodeClass: what NVIDIA's DRA driver lets claims share of a GPU (`unlimited`, `memory` or a
/// number of shares).
pub const NVIDIA_CONSUMABLE_CAPACITY: &str = "karpenter.k8s.aws/nvidia-consumable-capacity";
/// Annotation of an EC2NodeClass: whether NVIDIA's DRA driver cuts GPUs (`dynamic` or `dynamic-on-ampere`).
pub const NVIDIA_MIG: &str = "dovetail.sh/nvidia-mig";
