//! Every Kubernetes API type that Dovetail owns, and every name that is part of Karpenter's contract.
//!
//! The types say how the objects look as JSON, and nothing else: turning them into the planner's own model is the job
//! of `decode`. Labels, annotations, taints, condition types and reasons are spelled here and nowhere else.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
// Two printer columns of one type look like a repeated attribute to this lint.
#![allow(clippy::duplicated_attributes)]

pub mod admission;
pub mod annotations;
pub mod capacity_buffer;
pub mod conditions;
pub mod crd;
pub mod disruption;
pub mod duration;
pub mod events;
pub mod finalizers;
pub mod groups;
mod json;
pub mod labels;
pub mod names;
pub mod node_claim;
pub mod node_class_reference;
pub mod node_overlay;
pub mod node_pool;
mod open_enum;
pub mod requirement;
pub mod resource_slice_template;
pub mod resources;
pub mod taints;
pub mod validation;

pub use capacity_buffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
pub use duration::{DurationString, NillableDuration};
pub use node_claim::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
pub use node_class_reference::NodeClassReference;
pub use node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub use node_pool::{NodePool, NodePoolSpec, NodePoolStatus};
pub use requirement::{NodeSelectorRequirement, NodeSelectorRequirementWithMinValues, Operator};
pub use resource_slice_template::{DescribedDriver, DriverDaemonSet, DynamicResources, ResourceSliceTemplate};
pub use resources::{QuantityString, ResourceList};
