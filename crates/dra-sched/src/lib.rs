//! Dynamic Resource Allocation: upstream's answer, with a reason.
//!
//! A library without I/O. It reads the `resource.k8s.io` objects into types of its own ([`types`]), which keep what
//! they do not understand instead of dropping it, and evaluates device selectors ([`cel`]) as the API server and
//! kube-scheduler of a given Kubernetes release ([`Compat`]) would.
//!
//! An [`Inventory`] is built once from classes, slices, claims and shapes of machines to be; [`Inventory::allocate`]
//! answers for a node, [`Inventory::try_add`] for a packer, against a [`ClusterLedger`] and a [`BinLedger`]. RFC 0003
//! explains the seam, the order and the proofs.
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

mod allocator;
mod attributes;
mod capacity;
pub mod cel;
pub mod claims;
pub mod compat;
mod derived;
pub mod evictions;
#[cfg(test)]
mod fixture;
pub mod inventory;
pub mod ledger;
pub mod machine;
pub mod node;
pub mod packing;
pub mod pods;
mod quirks;
mod selectors;
pub mod support;
pub mod types;
pub mod verdict;
mod view;

pub use claims::MAX_RESULTS;
pub use compat::{Compat, Gate, Gates, KubernetesMinor};
pub use inventory::{ClaimClassId, ClaimId, Inventory, InventoryBuilder, ShapeId};
pub use ledger::{BinLedger, ClusterLedger, Domain};
pub use machine::{LabelKnowledge, MachineShape, MachineTemplate};
pub use node::NodeFacts;
pub use packing::{Alternative, ClaimUse, NodeDemand, Offer};
pub use verdict::{Refusal, Verdict};
