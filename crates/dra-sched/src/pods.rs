//! What a pod wants of devices: the claims behind its entries, one more claim for extended resources that DRA serves,
//! and what its devices cost of the node's own resources.
//!
//! Pure functions on the pod; whoever allocates turns the outcome into [`crate::ClaimUse`]s.

mod claims;
mod extended;
mod resources;

pub use claims::{Claims, PodFault, WantedClaim, claims, is_idle, served_extended_resources};
pub use extended::{ExtendedClaim, ExtendedMapping, ExtendedResources, IN_MEMORY_CLAIM, Served};
pub use resources::{NodeResourceFault, check_node_resources, check_pod_limits, total_demand};

#[cfg(test)]
mod tests;
