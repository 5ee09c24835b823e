//! Groups of machines that EC2 places by a rule.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    /// How many partitions it has, if that is what it is for.
    pub partitions: Option<i32>,
}

impl PlacementGroup {
    /// The names of its partitions, in byte order, which is Karpenter's; none if it is not for that.
    pub fn partition_names(&self) -> BTreeSet<String> {
        let count = self.partitions.filter(|_| self.strategy == "partition").unwrap_or(0);
        (1..=count).map(|partition| partition.to_string()).collect()
    }
}
