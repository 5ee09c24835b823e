//! A cloud that fits on a laptop: machines are ConfigMaps, and kwok plays the kubelet of their Nodes.
//!
//! `KwokCloudProvider` is the provider, `KwokCloudProvider::run` the loop that turns its records into Nodes and lets
//! their DRA drivers publish. [`catalogue`] is what can be launched, [`declaration`] what offline commands know of the
//! provider, the CRD of its node class among it. `faults` makes it misbehave on demand. All but the catalogue and the
//! declaration is behind the feature `provider`, which is on unless switched off.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod catalogue;
#[cfg(feature = "provider")]
pub mod choice;
#[cfg(feature = "provider")]
mod cluster;
#[cfg(feature = "provider")]
mod csi_node;
pub mod declaration;
#[cfg(feature = "provider")]
mod drivers;
#[cfg(all(test, feature = "provider"))]
mod fake_api;
#[cfg(feature = "provider")]
pub mod faults;
pub mod names;
#[cfg(feature = "provider")]
pub mod node;
mod node_class;
mod options;
#[cfg(feature = "provider")]
mod plugin;
#[cfg(feature = "provider")]
pub mod provider;
#[cfg(feature = "provider")]
pub mod record;
#[cfg(feature = "provider")]
mod registration;

pub use declaration::{DECLARATION, provider_labels};
#[cfg(feature = "provider")]
pub use faults::Faults;
pub use node_class::{KWOKNodeClass, KWOKNodeClassSpec, KWOKNodeClassStatus};
#[cfg(feature = "provider")]
pub use plugin::KwokPlugin;
#[cfg(feature = "provider")]
pub use provider::{KwokCloudProvider, Options};
