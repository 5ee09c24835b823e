//! What the controllers know, and share: the cluster as watches show it, catalogues, and which pods a machine was
//! launched for.
//!
//! Nothing here acts on the cluster.

pub(crate) mod allocations;
pub(crate) mod assignments;
pub(crate) mod buffers;
pub(crate) mod catalogues;
pub(crate) mod claim;
pub(crate) mod cluster_metrics;
pub(crate) mod context;
pub(crate) mod departures;
pub(crate) mod displacement;
pub(crate) mod disrupted;
pub(crate) mod fleet_looks;
pub(crate) mod health;
pub(crate) mod held_devices;
pub(crate) mod hold;
pub(crate) mod instance;
pub(crate) mod leaving;
pub(crate) mod machine_devices;
pub(crate) mod metered_provider;
pub(crate) mod new_node_claim;
pub(crate) mod node_facts;
pub(crate) mod node_room;
pub(crate) mod overlays;
pub(crate) mod pace;
pub(crate) mod plan_options;
pub(crate) mod planned_node_claim;
pub mod planned_pods;
pub(crate) mod preconditions;
pub(crate) mod registration_health;
pub(crate) mod replacement;
pub(crate) mod snapshot;
pub(crate) mod static_node_claim;
pub(crate) mod status_conditions;
pub mod store;
pub(crate) mod successors;
pub(crate) mod termination;
#[cfg(test)]
pub(crate) mod test_pods;
