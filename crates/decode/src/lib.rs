//! From API JSON to values of the core: the only place where that happens, for controller, CLI and tests alike.
//!
//! Each function reads one object and gives the decoded value, or one [`ObjectError`] that names the object, the field
//! and the reason. Strict where a field could change an answer, indifferent where it could not. Nothing here does I/O;
//! text arrives as `&str`, objects as JSON values.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod aliases;
pub mod api_resources;
pub mod capacity_buffer;
mod context;
pub mod devices;
mod error;
mod field;
pub mod limit_range;
pub mod limits;
pub mod manifests;
pub mod metadata;
mod namespace;
pub mod node;
pub mod objects;
pub mod pod;
pub mod pod_selectors;
pub mod priority_class;
pub mod reads;
pub mod requirements;
pub mod resource_list;
mod resource_quota;
pub mod scheduler_config;
mod selector;
pub mod taints;
pub mod volume;
pub mod workload;
pub mod workloads;

pub use context::Context;
pub use error::{ObjectError, ObjectRef, Problem, Reason, unusable};
pub use limit_range::limit_range;
pub use limits::{MAX_DEPTH, MAX_ENTRIES, MAX_OBJECT_BYTES};
pub use namespace::namespace;
pub use node::{csi_node, node};
pub use objects::{capacity_buffer_object, node_claim_object, node_overlay_object, node_pool_object};
pub use pod::pod;
pub use priority_class::priority_class;
pub use requirements::labels_to_give;
pub use resource_quota::resource_quota;
pub use volume::{persistent_volume, persistent_volume_claim, storage_class};
pub use workload::{daemon_set, pod_disruption_budget, pod_group};
