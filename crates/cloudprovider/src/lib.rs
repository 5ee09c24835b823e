//! The seam between the autoscaler and a cloud: what a provider must do, the machines it offers, and how it fails.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod cache;
pub mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod declaration;
pub mod error;
pub mod events;
#[cfg(any(test, feature = "conformance"))]
pub mod fake;
pub mod instance_type;
pub mod launch;
pub mod offering;
pub mod options;
pub mod provider;
pub mod repair;
pub mod requirements;
pub mod unavailable_offerings;

pub use config::ProviderConfig;
pub use declaration::Declaration;
pub use error::Error;
pub use instance_type::{InstanceType, Overhead, ResourceList};
pub use launch::{MAX_INSTANCE_TYPES, MAX_LAUNCH_INSTANCE_TYPES};
pub use offering::{CapacityType, Offering, OfferingKey, Reservation};
pub use provider::{
    CloudProvider, CreateRequest, DriftReason, Instance, InstanceState, InstanceTypes, NodeClassKind,
    NodeClassReadiness,
};
pub use repair::{ConditionStatus, RepairAction, RepairPolicies, RepairPolicy};
pub use requirements::LabelRequirements;
pub use unavailable_offerings::UnavailableOfferings;
