//! `karpenter_nodepools_usage`, `karpenter_nodepools_limit` and `karpenter_nodepools_cost_total`: what NodePools have,
//! may have and cost.
//!
//! A series lives as long as what it speaks of: it goes with the NodePool, the limit, or the last machine that had the
//! resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::ResourceList;
use model::{NodePoolName, PriceNanoUsdPerHour, Quantity};
use parking_lot::Mutex;

use crate::runtime::metrics::{ByNodePool, ByResource, Metrics};

/// The series that are shown.
#[derive(Debug)]
pub(crate) struct Gauges {
    metrics: Arc<Metrics>,
    shown: Mutex<BTreeMap<NodePoolName, Shown>>,
}

/// Resources of one NodePool that have a series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shown {
    usage: BTreeSet<String>,
    limit: BTreeSet<String>,
}

impl Gauges {
    /// None yet.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, shown: Mutex::default() }
    }

    /// Shows what a NodePool has and may have, and nothing else of it.
    pub(crate) fn show(&self, node_pool: &NodePoolName, usage: &ResourceList, limits: Option<&ResourceList>) {
        let now = Shown {
            usage: usage.keys().cloned().collect(),
            limit: limits.into_iter().flat_map(|limits| limits.keys().cloned()).collect(),
        };
        let mut shown = self.shown.lock();
        let before = shown.insert(node_pool.clone(), now.clone()).unwrap_or_default();
        self.remove(node_pool, before.usage.difference(&now.usage), before.limit.difference(&now.limit));
        for (resource, amount) in usage {
            self.metrics.nodepools_usage.get_or_create(&labels(node_pool, resource)).set(number(&amount.0));
        }
        for (resource, limit) in limits.into_iter().flatten() {
            self.metrics.nodepools_limit.get_or_create(&labels(node_pool, resource)).set(number(&limit.0));
        }
    }

    /// Shows what a NodePool's machines cost.
    pub(crate) fn show_cost(&self, node_pool: &NodePoolName, price: PriceNanoUsdPerHour) {
        self.metrics.nodepools_cost.get_or_create(&by_pool(node_pool)).set(price.dollars());
    }

    /// Counts machines whose price is not known.
    pub(crate) fn cost_unknown(&self, node_pool: &NodePoolName, machines: u64) {
        self.metrics.nodepools_cost_tracker_errors.get_or_create(&by_pool(node_pool)).inc_by(machines);
    }

    /// Takes away what was shown of a NodePool that is gone.
    pub(crate) fn forget(&self, node_pool: &NodePoolName) {
        self.metrics.nodepools_cost.remove(&by_pool(node_pool));
        self.metrics.nodepools_cost_tracker_errors.remove(&by_pool(node_pool));
        if let Some(before) = self.shown.lock().remove(node_pool) {
            self.remove(node_pool, before.usage.iter(), before.limit.iter());
        }
    }

    fn remove<'a>(
        &self,
        node_pool: &NodePoolName,
        usage: impl Iterator<Item = &'a String>,
        limit: impl Iterator<Item = &'a String>,
    ) {
        for resource in usage {
            self.metrics.nodepools_usage.remove(&labels(node_pool, resource));
        }
        for resource in limit {
            self.metrics.nodepools_limit.remove(&labels(node_pool, resource));
        }
    }
}

fn by_pool(node_pool: &NodePoolName) -> ByNodePool {
    ByNodePool { nodepool: node_pool.to_string() }
}

fn labels(node_pool: &NodePoolName, resource: &str) -> ByResource {
    ByResource { nodepool: node_pool.to_string(), resource_type: resource.to_owned() }
}

fn number(text: &str) -> f64 {
    Quantity::parse(text).map_or(0.0, |quantity| quantity.to_nano() as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(amounts: &[(&str, &str)]) -> ResourceList {
        amounts.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).into())).collect()
    }

    /// The series, as `/metrics` shows them.
    fn series(gauges: &Gauges) -> Vec<String> {
        let text = gauges.metrics.render().unwrap();
        let of_pools = text.lines().filter_map(|line| line.strip_prefix("karpenter_nodepools_"));
        let mut series: Vec<String> = of_pools.map(str::to_owned).collect();
        series.sort();
        series
    }

    #[test]
    fn series_go_with_their_node_pool_their_limit_and_their_resource() {
        let gauges = Gauges::new(Arc::new(Metrics::new()));
        let (a, b) = (NodePoolName::from("a"), NodePoolName::from("b"));
        gauges.show(&a, &list(&[("cpu", "1500m"), ("nvidia.com/gpu", "2")]), Some(&list(&[("cpu", "10")])));
        gauges.show(&b, &list(&[("cpu", "4")]), None);
        assert_eq!(
            series(&gauges),
            [
                r#"limit{nodepool="a",resource_type="cpu"} 10.0"#,
                r#"usage{nodepool="a",resource_type="cpu"} 1.5"#,
                r#"usage{nodepool="a",resource_type="nvidia.com/gpu"} 2.0"#,
                r#"usage{nodepool="b",resource_type="cpu"} 4.0"#,
            ]
        );
        gauges.show(&a, &list(&[("cpu", "2")]), None);
        assert_eq!(
            series(&gauges),
            [r#"usage{nodepool="a",resource_type="cpu"} 2.0"#, r#"usage{nodepool="b",resource_type="cpu"} 4.0"#]
        );
        gauges.forget(&a);
        assert_eq!(series(&gauges), [r#"usage{nodepool="b",resource_type="cpu"} 4.0"#]);
    }
}
