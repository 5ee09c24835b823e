//! EC2: what its machines are, what an EC2NodeClass asks of them, and which requests launch them.
//!
//! Everything here is a pure function of values. Answers of AWS come in as types of this crate, and requests to it go
//! out as such, so that planning, tests and offline commands need neither the SDK nor credentials.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
// Two printer columns of one type look like a repeated attribute to this lint.
#![allow(clippy::duplicated_attributes)]

#[cfg(feature = "plugin")]
pub mod api_cluster;
#[cfg(feature = "provider")]
pub mod background;
pub mod catalogue;
#[cfg(feature = "plugin")]
mod cluster_facts;
pub mod declaration;
pub mod devices;
pub mod discovery;
pub mod fleet_answer;
pub mod instance_types;
#[cfg(feature = "provider")]
pub mod interruption;
#[cfg(feature = "provider")]
pub mod kubernetes_version;
pub mod labels;
pub mod launch;
pub mod ledger;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
pub mod names;
pub mod node_class;
pub mod options;
#[cfg(feature = "plugin")]
mod plugin;
pub mod pricing;
#[cfg(feature = "provider")]
pub mod provider;
pub mod provider_id;
#[cfg(feature = "provider")]
pub mod reconcile;
pub mod service;
#[cfg(feature = "provider")]
pub mod telemetry;
mod text_enum;
pub mod user_data;

pub use declaration::DECLARATION;
#[cfg(feature = "plugin")]
pub use plugin::AwsPlugin;
