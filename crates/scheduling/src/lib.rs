//! The simulation: which machines would let kube-scheduler place the pods that wait, and which pods go where.
//!
//! One pure function, [`provisioning::plan`], from an immutable [`Snapshot`] to a [`Plan`]. It does no I/O, reads no
//! clock and holds no lock; equal snapshots give equal plans, byte for byte, whatever order the interner was filled in.
//! Every pod of the snapshot ends in exactly one place of the plan: on an existing node, on a planned machine, or
//! refused with reasons.
//!
//! A second one, [`disruption::plan_disruption`], says which machines go, on the first.
//!
//! RFC 0002 explains the data model (interner, classes, bitsets, journaled state) and what each step costs.
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

mod bound;
pub mod catalogue;
pub mod devices;
pub mod disruption;
mod explain;
pub mod plan;
pub mod provisioning;
mod simulation;
pub mod snapshot;
mod tuning;

pub use catalogue::Catalogue;
pub use devices::Devices;
pub use plan::reason::Reason;
pub use plan::{Plan, placement, reason};
pub use snapshot::Snapshot;
