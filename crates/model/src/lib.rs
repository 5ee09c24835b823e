//! The plain data every other crate speaks: identifiers, interned names, quantities, the requirement algebra,
//! taints, and the parts of a cluster that a planner looks at.
//!
//! Nothing here does I/O, reads a clock or holds a lock. Names of labels, their values and resources are interned
//! once ([`intern::Interner`]); from then on they are small integers. Those integers carry **no order**: whatever
//! reaches a decision or an output is ordered by name or by input index.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod budget;
pub mod collections;
mod decimal;
pub mod id;
pub mod idset;
pub mod intern;
pub mod journal;
pub mod labels;
pub mod names;
pub mod node;
pub mod pod;
pub mod price;
pub mod quantity;
pub mod quota;
pub mod requirement;
pub mod resources;
pub mod selector;
pub mod spelling;
pub mod taint;
pub mod time;
pub mod unsupported;
pub mod volume;
pub mod workload;

pub use budget::{Answer, Budget, OutOfBudget, SearchEnd};
pub use id::{Id, IdVec};
pub use idset::IdSet;
pub use intern::{Interner, KeyId, ResourceId, ValueId};
pub use journal::Journal;
pub use labels::Labels;
pub use names::{
    InstanceTypeName, NamespacedName, NodeClaimName, NodeName, NodeOverlayName, NodePoolName, ProviderId,
    ResourceClaimName, Uid,
};
pub use node::Node;
pub use pod::{Pod, PodShape};
pub use price::PriceNanoUsdPerHour;
pub use quantity::Quantity;
pub use requirement::{Operator, Requirement, Requirements, ValueSet};
pub use resources::ResourceVec;
pub use selector::LabelSelector;
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use time::{DurationMs, Timestamp};
pub use unsupported::Unsupported;
