//! A cluster as core values: turns the values that `decode` has read into the input of planners, for controller, CLI
//! and tests alike.
//!
//! It resolves NodePools against the catalogue of their provider, finds the pending pods, and builds one
//! [`Snapshot`](scheduling::snapshot::Snapshot). For objects from files it first does what the API server, admission
//! and the workload controllers would have done. Nothing here does I/O.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod buffers;
mod catalogue;
mod cron;
pub mod default_spread;
pub mod device_prices;
pub mod driver_daemons;
pub mod held_slices;
pub mod node_claim;
pub mod node_pool;
pub mod node_pool_hash;
pub mod node_repair;
pub mod offline;
pub mod pool_budget;
pub mod snapshot;
pub mod snapshot_file;
pub mod static_pools;

pub use catalogue::{catalogue, without_reserved};
pub use snapshot::{snapshot, snapshot_with};
