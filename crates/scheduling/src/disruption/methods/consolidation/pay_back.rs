//! What has to be saved so that evictions pay.
//!
//! What is saved within the horizon has to be no less than what the evictions cost: Karpenter's cost of each, 1 for a
//! pod about which nobody says anything, times the price of an eviction. Devices stand idle while a pod that had them
//! starts anew, so a machine with such pods costs its price for that time besides. Without a price of evictions any
//! saving pays, as in Karpenter.
//!
//! Part of what a plan would save is lost where pods do not come to their places, and machines are launched for them.
//! Twice what that was of late, for each pod that was moved, has to be saved in any case.
//!
//! Differs: `displacement-price`. Karpenter counts on what it has planned.

use crate::snapshot::DisruptionOptions;
use crate::snapshot::eviction::EvictionCost;
use crate::snapshot::fleet::FleetNode;
use crate::tuning::DISPLACEMENT_MARGIN;

const MS_PER_HOUR: i128 = 3_600_000;

/// The least saving by which it pays to evict the pods of a machine, in nano-dollars per hour; at least 1.
pub(super) fn wanted(options: &DisruptionOptions, machine: &FleetNode) -> i128 {
    let movers = i128::try_from(machine.movers().count()).unwrap_or(i128::MAX);
    let lost = movers.saturating_mul(i128::from(options.displacement_price.0.max(0)));
    let lost = lost.saturating_mul(DISPLACEMENT_MARGIN);
    lost.saturating_add(of_evictions(options, machine)).clamp(1, i128::from(i64::MAX))
}

fn of_evictions(options: &DisruptionOptions, machine: &FleetNode) -> i128 {
    let cost: i128 = machine.movers().map(|pod| i128::from(pod.cost.0.max(0))).sum();
    let evictions = cost.saturating_mul(i128::from(options.eviction_price_nano_usd.max(0)));
    if evictions == 0 {
        return 0;
    }
    let horizon = i128::from(options.consolidation_horizon.0.max(0)) * i128::from(EvictionCost::ONE.0);
    if horizon == 0 {
        // Nothing is ever saved.
        return i128::from(i64::MAX);
    }
    let costs = evictions.saturating_mul(MS_PER_HOUR).saturating_add(idle_devices(options, machine));
    // Rounded up.
    costs.saturating_add(horizon - 1) / horizon
}

/// What the machine costs while pods with devices start anew elsewhere, in units of [`EvictionCost::ONE`] of a
/// nano-dollar per hour, times milliseconds.
fn idle_devices(options: &DisruptionOptions, machine: &FleetNode) -> i128 {
    if !machine.moving().any(|pending| pending.devices.is_some()) {
        return 0;
    }
    let price = machine.machine.price().map_or(0, |price| i128::from(price.0.max(0)));
    let restart = i128::from(options.device_restart.0.max(0));
    price.saturating_mul(restart).saturating_mul(i128::from(EvictionCost::ONE.0))
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
            let pending = PendingPod {
                pod: Arc::clone(&pod),
                planned_on: None,
                devices: None,
                waits_for: None,
                stays_within: None,
            };
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

    #[test]
    fn what_moved_pods_have_cost_of_late_is_to_be_saved_besides() {
        let of = |price: i64, lost: i64, costs: &[i64]| {
            let displacement_price = model::PriceNanoUsdPerHour(lost);
            let options = DisruptionOptions {
                eviction_price_nano_usd: price,
                displacement_price,
                ..DisruptionOptions::default()
            };
            wanted(&options, &machine(costs))
        };
        let one = EvictionCost::ONE.0;
        assert_eq!(of(0, 70, &[one, one]), 2 * 140);
        assert_eq!(of(0, 70, &[]), 1);
        assert_eq!(of(0, -70, &[one]), 1);
        // Whoever is cheap to evict is displaced as others are.
        assert_eq!(of(500, 70, &[one, one / 2]), 750 + 2 * 140);
        assert_eq!(of(i64::MAX, i64::MAX, &[10 * one; 500]), i128::from(i64::MAX));
    }

    /// A machine that costs so much, with two pods, of which the first may have devices.
    fn dear(price: i64, has_devices: bool) -> FleetNode {
        let mut machine = machine(&[EvictionCost::ONE.0; 2]);
        let (pool, offering) = (model::Id::from_index(0), model::Id::from_index(0));
        machine.machine.offering = Some((pool, offering, model::PriceNanoUsdPerHour(price)));
        if let Some(first) = machine.moving_mut().next().filter(|_| has_devices) {
            first.devices = Some(Arc::new(dra_types::Pod::from_json(&serde_json::json!({})).unwrap()));
        }
        machine
    }

    #[test]
    fn a_machine_whose_pods_have_devices_costs_its_price_while_they_start_anew() {
        let minutes = |minutes: i64| DurationMs::from_seconds(60 * minutes);
        let cases = [
            (500, 60, 5, dear(12_000, false), 1_000, "no devices"),
            (500, 60, 5, dear(12_000, true), 2_000, "a twelfth of the price besides"),
            (500, 60, 0, dear(12_000, true), 1_000, "they start in no time"),
            (500, 120, 5, dear(12_000, true), 1_000, "over two hours half of it"),
            (500, 60, 5, dear(12_001, true), 2_001, "rounded up"),
            (0, 60, 5, dear(12_000, true), 1, "Karpenter's rule"),
            (500, 60, 5, dear(-1, true), 1_000, "a price below nothing is none"),
            (1, 60, i64::MAX / 60_000, dear(i64::MAX, true), i128::from(i64::MAX), "out of reach"),
        ];
        for (price, horizon, restart, machine, expected, why) in cases {
            let options = DisruptionOptions {
                eviction_price_nano_usd: price,
                consolidation_horizon: minutes(horizon),
                device_restart: minutes(restart),
                ..DisruptionOptions::default()
            };
            assert_eq!(wanted(&options, &machine), expected, "{why}");
        }
    }
}
