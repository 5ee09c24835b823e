//! What has to be saved so that evictions pay.
//!
//! What is saved within the horizon has to be no less than what the evictions cost: Karpenter's cost of each, 1 for a
//! pod about which nobody says anything, times the price of an eviction. Without a price any saving pays, as in
//! Karpenter.

use crate::snapshot::DisruptionOptions;
use crate::snapshot::eviction::EvictionCost;
use crate::snapshot::fleet::FleetNode;

const MS_PER_HOUR: i128 = 3_600_000;

/// The least saving by which it pays to evict the pods of a machine, in nano-dollars per hour; at least 1.
pub(super) fn wanted(options: &DisruptionOptions, machine: &FleetNode) -> i128 {
    let cost: i128 = machine.movers().map(|pod| i128::from(pod.cost.0.max(0))).sum();
    let evictions = cost.saturating_mul(i128::from(options.eviction_price_nano_usd.max(0)));
    if evictions == 0 {
        return 1;
    }
    let horizon = i128::from(options.consolidation_horizon.0.max(0)) * i128::from(EvictionCost::ONE.0);
    if horizon == 0 {
        // Nothing is ever saved.
        return i128::from(i64::MAX);
    }
    // Rounded up.
    let wanted = (evictions.saturating_mul(MS_PER_HOUR) + horizon - 1) / horizon;
    wanted.clamp(1, i128::from(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::DurationMs;

    use super::*;
    use crate::provisioning::tests::fixture::pod;
    use crate::snapshot::fleet::{FleetPod, Moves};
    use crate::snapshot::{NodeId, PendingPod};

    fn machine(costs: &[i64]) -> FleetNode {
        let of = |cost: &i64| {
            let pod = Arc::new(pod("p"));
            let pending = PendingPod { pod: Arc::clone(&pod), planned_on: None, devices: None, waits_for: None };
            FleetPod { pod, moves: Moves::As(pending), cost: EvictionCost(*cost), forbidden: None }
        };
        FleetNode {
            node: <NodeId as model::Id>::from_index(0),
            machine: Default::default(),
            capacity: Default::default(),
            claim: Default::default(),
            unhealthy: None,
            under_way: None,
            is_protected: false,
            pods: costs.iter().map(of).collect(),
        }
    }

    #[test]
    fn a_saving_pays_once_it_makes_up_for_the_evictions_within_the_horizon() {
        let one = EvictionCost::ONE.0;
        let hour = DurationMs::from_seconds(3600);
        let cases: &[(i64, DurationMs, &[i64], i128, &str)] = &[
            (0, hour, &[one, one], 1, "nothing: any saving pays"),
            (0, DurationMs::ZERO, &[one], 1, "nothing is paid back at once"),
            (500, hour, &[], 1, "nobody is evicted"),
            (500, hour, &[one, one], 1000, "two evictions"),
            (500, DurationMs(hour.0 * 4), &[one, one], 250, "over four hours"),
            (500, DurationMs(hour.0 * 3), &[one], 167, "rounded up"),
            (500, hour, &[one / 2, -one], 250, "less than nothing counts as nothing"),
            (500, DurationMs::ZERO, &[one], i128::from(i64::MAX), "nothing is saved in no time"),
            (i64::MAX, DurationMs(1), &[10 * one; 500], i128::from(i64::MAX), "out of reach"),
        ];
        for (price, horizon, costs, expected, why) in cases {
            let options = DisruptionOptions {
                eviction_price_nano_usd: *price,
                consolidation_horizon: *horizon,
                ..DisruptionOptions::default()
            };
            assert_eq!(wanted(&options, &machine(costs)), *expected, "{why}");
        }
    }
}
