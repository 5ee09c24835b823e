//! Tags that are ours on everything that is made for a machine.

use api::labels;

use crate::names;

/// The cluster that something belongs to.
pub const CLUSTER_NAME: &str = "eks:eks-cluster-name";
/// With the cluster's name behind a slash and the value [`OWNED`]: the cluster that something goes with.
pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster";
/// Value of the tag below [`CLUSTER_PREFIX`].
pub const OWNED: &str = "owned";
/// The NodeClaim that a machine was launched for.
pub const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// What EC2's console shows.
pub const NAME: &str = "Name";

/// Tags that an EC2NodeClass may not have.
pub(crate) const RESTRICTED: [&str; 4] = [CLUSTER_NAME, labels::NODEPOOL, NODE_CLAIM, names::NODE_CLASS];
/// An EC2NodeClass may have no tag that begins so.
pub(crate) const RESTRICTED_PREFIX: &str = CLUSTER_PREFIX;
