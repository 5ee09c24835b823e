//! Dynamic Resource Allocation: upstream's answer, with a reason.
//!
//! A library without I/O. Objects come as [`dra_types`], which keep what they do not understand instead of dropping it;
//! [`k8s_cel`] evaluates device selectors as the API server and kube-scheduler of a given Kubernetes release
//! ([`dra_types::Compat`]) would.
//!
//! An [`Inventory`] is built once from classes, slices, claims and shapes of machines to be; [`allocate`] answers for a
//! node, [`Copies::try_add`] for a packer, against a [`ClusterLedger`] and a [`BinLedger`]. RFC 0003 explains the seam,
//! the order and the proofs; `--example packing` plays a packer.
//!
//! Rooms, from below; each may use those before it. [`faults`], `capacity`, `flow`, `quirks`, `tuning`: values and
//! rules that know no device. `compile`, [`machine`]: claims, devices and templates by number. [`inventory`]: all of
//! them, and what a node sees. [`ledger`]: what is taken. [`verdict`]: the answers, as data. `allocator`: upstream's
//! search and the proofs. [`packing`]: how many copies a machine takes. [`explain`]: a refusal in full. Beside these:
//! [`pods`], [`evictions`], [`support`].
//!
//! Would kube-scheduler of 1.36 find two GPUs on this node, and if not, why?
//!
//! ```
//! use std::sync::Arc;
//!
//! use dra_types::{DeviceClass, ResourceClaim, ResourceSlice};
//! use dra_sched::{ClusterLedger, InventoryBuilder, Verdict, allocate};
//! use dra_types::{Compat, KubernetesMinor, NodeFacts};
//! use model::Budget;
//! use serde_json::json;
//!
//! // Objects as the API server has them, in any version that it serves.
//! let class = json!({
//!     "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
//!     "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
//! });
//! let slice = json!({
//!     "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n1-gpus"},
//!     "spec": {
//!         "driver": "gpu.example.com", "nodeName": "n1", "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
//!         "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
//!     },
//! });
//! let claim = |name: &str, gpus: u32| {
//!     json!({
//!         "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
//!         "spec": {"devices": {"requests": [
//!             {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": gpus}},
//!         ]}},
//!     })
//! };
//!
//! // What stays the same is compiled once; what is taken is in a ledger.
//! let mut builder = InventoryBuilder::new(Compat::new(KubernetesMinor::V1_36));
//! builder.class(Arc::new(DeviceClass::from_json(&class)?));
//! builder.slice(Arc::new(ResourceSlice::from_json(&slice)?));
//! let two = builder.claim_class("two", &Arc::new(ResourceClaim::from_json(&claim("two", 2))?.spec), None);
//! let three = builder.claim_class("three", &Arc::new(ResourceClaim::from_json(&claim("three", 3))?.spec), None);
//! let inventory = builder.build();
//! let ledger = ClusterLedger::new(&inventory);
//! let node = NodeFacts { name: Some("n1".into()), ..NodeFacts::default() };
//!
//! let Verdict::Allocated { allocations, .. } = allocate(&inventory, &node, &[two], &ledger, &mut Budget::new(10_000))
//! else {
//!     panic!("there are two")
//! };
//! let devices: Vec<&str> = allocations[0].results.iter().map(|result| result.device.device.as_str()).collect();
//! assert_eq!(devices, ["gpu-0", "gpu-1"]);
//!
//! let Verdict::Refused(refusal) = allocate(&inventory, &node, &[three], &ledger, &mut Budget::new(10_000)) else {
//!     panic!("there are only two")
//! };
//! println!("{refusal}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod capacity;
mod compile;
pub mod evictions;
pub mod explain;
pub mod faults;
#[cfg(test)]
mod fixture;
mod flow;
pub mod inventory;
pub mod ledger;
pub mod machine;
pub mod packing;
pub mod pods;
mod quirks;
pub mod support;
mod tuning;
pub mod verdict;

pub use allocator::allocate;
pub use compile::ids::{ClaimClassId, ClaimId, DeviceKey, GroupId, ShapeId};
pub use inventory::unit::BinId;
pub use inventory::{ClaimUse, Domain, Inventory, InventoryBuilder, PoolKinds, PoolOrder, Reservation};
pub use ledger::{BinLedger, ClusterLedger, MachineOverhead};
pub use machine::{
    DomainSelector, LabelKnowledge, MachineShape, MachineTemplate, PoolScope, SharedTemplate, Templates,
};
pub use packing::{
    Alternative, ClaimShare, Copies, CostOfDevices, Daemon, DeviceSets, NodeDemand, Offer, OverheadVerdict, Reach,
    Wanting, told_devices,
};
pub use verdict::{Refusal, Verdict};
