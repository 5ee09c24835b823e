//! Numbers of what an inventory holds.
//!
//! Ids are positions in input order and decide nothing: pools and slices are ordered by name.

use model::define_id;

define_id! {
    /// A distinct claim spec.
    pub struct ClaimClassId;
}
define_id! {
    /// A ResourceClaim that exists.
    pub struct ClaimId;
}
define_id! {
    /// A PodGroup that shares claims.
    pub struct GroupId;
}
define_id! {
    /// What an instance type's machines publish: templates, bindings, labels. Types with equal shapes share one.
    pub struct ShapeId;
}
define_id! {
    /// A device in a slice.
    pub(crate) struct DeviceIndex;
}
define_id! {
    /// A device by name.
    pub struct DeviceKey;
}
define_id! {
    /// A distinct device content.
    pub(crate) struct DeviceShape;
}
define_id! {
    /// A template of pools that nodes of a domain share.
    pub(crate) struct SharedPoolId;
}
define_id! {
    /// A slice.
    pub(crate) struct SliceIndex;
}
define_id! {
    /// A pool of all generations.
    pub(crate) struct PoolIndex;
}
define_id! {
    /// A counter set name of a pool.
    pub(crate) struct CounterSetIndex;
}
define_id! {
    /// A counter name of a pool.
    pub(crate) struct CounterIndex;
}
define_id! {
    /// A distinct attribute that constraints compare.
    pub(crate) struct AttributeIndex;
}
