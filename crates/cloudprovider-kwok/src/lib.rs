//! A cloud that fits on a laptop: machines are ConfigMaps, and kwok plays the kubelet of their Nodes.
//!
//! [`KwokCloudProvider`] is the provider, [`KwokCloudProvider::run`] the loop that turns its records into Nodes, and
//! [`catalogue`] what can be launched. [`faults`] makes it misbehave on demand.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod catalogue;
pub mod choice;
mod cluster;
#[cfg(test)]
mod fake_api;
pub mod faults;
pub mod node;
pub mod provider;
pub mod record;
mod registration;

pub use faults::Faults;
pub use provider::{KwokCloudProvider, Options};
