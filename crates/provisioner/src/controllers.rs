//! The controllers: one folder per concern, named after the kind that it reconciles.

pub(crate) mod disruption;
pub(crate) mod handover;
pub(crate) mod node;
pub(crate) mod node_claim;
pub(crate) mod node_overlay;
pub(crate) mod node_pool;
pub(crate) mod node_repair;
pub mod planner_state;
pub(crate) mod pod_deletion_cost;
pub(crate) mod provisioning;
pub(crate) mod static_capacity;
pub(crate) mod unreadable_pods;
