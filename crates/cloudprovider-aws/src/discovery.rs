//! What is asked of AWS for the selectors of a node class, and what of the answers is kept.
//!
//! Follows `pkg/providers/{subnet,securitygroup,capacityreservation,placementgroup,amifamily}` of
//! karpenter-provider-aws 1.15. Queries are as few as the terms allow: one for all ids, one for each other term.

mod aliases;
pub mod findings;
mod images;
mod queries;

pub use aliases::{AliasParameter, alias_parameters};
pub use images::{FoundImage, ImageOwners, image_queries, select_images};
pub use queries::{capacity_reservations, placement_group, security_groups, subnets};

use crate::node_class::spec::Tags;
use crate::service::ec2::Filter;

/// The value of a tag that stands for any.
const ANY: &str = "*";

/// Filters for tags. A key that must only be there has one of its own, since of the values of one filter any will do.
fn tag_filters(tags: &Tags) -> impl Iterator<Item = Filter> + '_ {
    tags.iter().map(
        |(key, value)| {
            if value == ANY { Filter::new("tag-key", key) } else { Filter::new(format!("tag:{key}"), value) }
        },
    )
}
