//! The `resource.k8s.io` objects, read from JSON into one set of types for all served versions.
//!
//! * Versions v1, v1beta2 and v1beta1 (v1alpha3 for DeviceTaintRule) are normalised: v1beta1's `basic` device and flat
//!   requests, and both shapes of KEP-5517, become the same thing. Defaults of the API server are filled in.
//! * **Nothing is dropped silently.** The path of every field that is not known is kept: inside of a spec, where it
//!   could change an answer, in `unsupported`, and whoever plans with such an object must refuse it by that name;
//!   elsewhere in `unknown_fields`.
//! * Reading checks the *shape* as the API server's decoder does: a value of the wrong type, a malformed quantity or
//!   timestamp is an error that names the field. Rules about values (names, limits) are in [`validate`], apart, because
//!   the allocator must also answer for objects that a real server would have refused.
//! * Maps are `BTreeMap`s, so every iteration is ordered by name.
//!
//! Not here: ResourcePoolStatusRequest (reporting only), device status of claims (`status.devices`) beyond the
//! conditions that binding waits for.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod claim;
mod class;
pub mod compat;
mod device;
mod json;
mod meta;
mod names;
mod node;
mod node_allocatable;
mod node_facts;
mod node_selector;
mod pod;
mod slice;
mod spelling;
mod taint;
pub mod validate;
mod version;

pub use claim::{
    Allocation, AllocationMode, AllocationResult, ClaimTemplate, ConditionStatus, Config, ConfigSource, Constraint,
    ConstraintKind, Consumer, DerivedAttribute, DeviceRequest, DeviceSelector, DeviceStatus, ExactRequest,
    OpaqueConfig, RequestKind, ResourceClaim, ResourceClaimSpec, ResultConfig,
};
pub use class::DeviceClass;
pub use compat::{Compat, Edition, Gate, Gates, KubernetesMinor};
pub use device::{AttributeValue, CapacityRange, CounterConsumption, Device, DeviceCapacity, RequestPolicy};
pub use json::{ApiVersion, FieldError, Reason};
pub use meta::{ObjectMeta, OwnerReference};
pub use names::{
    CounterName, CounterSetName, DeviceClassName, DeviceId, DeviceName, DriverName, PoolId, PoolName, QualifiedName,
    RequestName,
};
pub use node::Node;
pub use node_allocatable::{
    NodeAllocatable, NodeAllocatableMapping, NodeAllocatableOverhead, NodeAllocatableResources,
};
pub use node_facts::{NodeFacts, SelectorError};
pub use node_selector::{NodeSelector, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};
pub use pod::{
    ClaimSource, Container, Lifetime, Pod, PodClaim, PodGroup, RequestsAndLimits, Resources, is_for_whole_pods,
};
pub use slice::{CounterSet, NodeScope, Pool, ResourceSlice, SkipNodeOperation};
pub use spelling::did_you_mean;
pub use taint::{DeviceTaint, DeviceTaintRule, DeviceTaintSelector, DeviceToleration, TaintEffect, TolerationOperator};
pub use version::{SemanticVersion, VersionError};

#[cfg(test)]
mod tests;
