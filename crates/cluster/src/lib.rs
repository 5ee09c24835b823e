//! A cluster as core values: what `decode` has read becomes what planners ask, for controller, CLI and tests alike.
//!
//! Here NodePools meet the catalogue of their provider, pods that wait are told from those that don't, and one
//! [`Snapshot`](scheduling::snapshot::Snapshot) is put together; the same from files, where what the API server,
//! admission and the workload controllers would have done is done first. Nothing here does I/O.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod buffers;
mod catalogue;
mod cron;
pub mod default_spread;
pub mod node_claim;
pub mod node_pool;
pub mod node_pool_hash;
pub mod node_repair;
pub mod offline;
pub mod snapshot;
pub mod snapshot_file;
pub mod static_pools;

pub use catalogue::{catalogue, without_reserved};
pub use snapshot::{snapshot, snapshot_with};
