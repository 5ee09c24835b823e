//! A cloud that fits on a laptop: machines are ConfigMaps, and kwok plays the kubelet of their Nodes.
//!
//! `KwokCloudProvider` is the provider, `KwokCloudProvider::run` the loop that turns its records into Nodes
//! and lets their DRA drivers publish, and
//! [`catalogue`] what can be launched. `faults` makes it misbehave on demand. All but the catalogue is behind the feature
//! `provider`, which is on unless switched off.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod catalogue;
#[cfg(feature = "provider")]
pub mod choice;
#[cfg(feature = "provider")]
mod cluster;
#[cfg(feature = "provider")]
mod csi_node;
#[cfg(feature = "provider")]
mod drivers;
#[cfg(all(test, feature = "provider"))]
mod fake_api;
#[cfg(feature = "provider")]
pub mod faults;
#[cfg(feature = "provider")]
pub mod node;
#[cfg(feature = "provider")]
pub mod provider;
#[cfg(feature = "provider")]
pub mod record;
#[cfg(feature = "provider")]
mod registration;

#[cfg(feature = "provider")]
pub use faults::Faults;
#[cfg(feature = "provider")]
pub use provider::{KwokCloudProvider, Options, provider_labels};
