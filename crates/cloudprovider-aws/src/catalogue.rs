//! The instance types of EC2 as they were on the day that the data files name, for planning without a cloud.
//!
//! Types and zones are what EC2 said; `data/README.md` says how they were gathered. What a type's record lacks stays
//! unknown: nothing is guessed.

mod offline;
mod records;
mod zones;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::instance_types::info::InstanceTypeInfo;

pub use offline::{of_input, of_node_class};
pub use records::Error as RecordError;
pub use zones::{regions, zones_of};

/// A type a line.
const TYPES: &str = include_str!("../data/instance-types.txt");

/// All built-in types, by name.
pub fn instance_types() -> &'static BTreeMap<String, InstanceTypeInfo> {
    static RECORDS: LazyLock<BTreeMap<String, InstanceTypeInfo>> =
        LazyLock::new(|| records::parse(TYPES).expect("a test reads the built-in types"));
    &RECORDS
}

/// Fills in what EC2's API does not tell of a type, as far as it is built in. Of a type that is not, the bandwidth is
/// that of its network cards.
///
/// Differs: `ec2-bandwidth-of-new-types`. In Karpenter a type that is newer than its tables has no label for bandwidth.
pub fn supplement(mut info: InstanceTypeInfo) -> InstanceTypeInfo {
    match instance_types().get(&info.instance_type) {
        Some(known) => {
            info.branch_interfaces = known.branch_interfaces;
            info.network_bandwidth_mbps = known.network_bandwidth_mbps;
        }
        None => {
            let bandwidth: u64 = info.network_info.network_cards.iter().map(|card| card.baseline_bandwidth_mbps).sum();
            info.network_bandwidth_mbps = (bandwidth > 0).then_some(bandwidth);
        }
    }
    info
}

#[cfg(test)]
mod tests;
