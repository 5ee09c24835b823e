//! Finalizers.

/// On every NodeClaim, and on every Node that belongs to one: the object stays until its pods are drained and its
/// machine is gone.
pub const TERMINATION: &str = "karpenter.sh/termination";
