//! Machines with very many pods, and prices of nothing.

use std::collections::BTreeSet;

use super::*;
use crate::disruption::plan::Place;
use crate::disruption::tests::drifted;
use crate::snapshot::eviction::{EvictionCost, Forbidden};
use crate::snapshot::fleet::Moves;

const PODS: usize = 500;

/// A machine with 500 small pods, and beside it one with room for so many.
fn crowded(room: i64) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("huge", 64, 256).offering("za", "on-demand", 300 * CENT);
    f.pool("p");
    for (name, milli_cpu, pods) in [("crowded", 100, PODS), ("beside", 1000, 1)] {
        f.node(name).label(labels::ZONE, "za").label(labels::INSTANCE_TYPE, "huge");
        f.label(labels::CAPACITY_TYPE, "on-demand").allocatable(64_000, gib(256)).claim(name).of_pool("p");
        let most = if name == "beside" { room } else { i64::try_from(PODS).unwrap() };
        f.most_pods(most);
        for index in 0..pods {
            f.pod(&format!("{name}-{index}")).requests(milli_cpu, gib(1) / 4).runs();
        }
    }
    f
}

/// How many pods go to a node and how many to new machines, each once.
fn moved(plan: &DisruptionPlan) -> (usize, usize) {
    let moves = || plan.commands.iter().flat_map(|command| &command.moves);
    let pods: BTreeSet<_> = moves().map(|it| it.pod).collect();
    assert_eq!(pods.len(), moves().count(), "a pod moves twice");
    let to_nodes = moves().filter(|it| matches!(it.to, Place::Node(_))).count();
    (to_nodes, moves().count() - to_nodes)
}

#[test]
fn a_node_with_500_pods_goes_with_all_of_them_or_stays_for_a_reason_that_names_one() {
    let has_drifted = |fleet: &mut Fleet, snapshot: &mut Snapshot| drifted(fleet, snapshot, &["crowded"]);
    // All find room beside it.
    let plan = check(&crowded(501), |_, _| (), (&["crowded"], 300), &[]);
    assert_eq!(moved(&plan), (PODS, 0));
    // One pod for the node itself.
    assert_eq!(plan.commands[0].eviction_cost.0, 501 * EvictionCost::ONE.0);
    // One is too many: it would need a machine as dear as this one.
    let plan = check(&crowded(500), |_, _| (), (&[], 0), &[]);
    assert_eq!(moved(&plan), (0, 0));
    // What has drifted goes all the same, onto machines that hold 110 pods each.
    let (_, plan) = planned(&crowded(1), has_drifted);
    assert_eq!((plan.commands.len(), moved(&plan)), (1, (0, PODS)));
    assert_eq!(plan.commands[0].replacements.len(), PODS.div_ceil(110));
    // One that may not leave, and one that somebody else places, hold all.
    let forbidden = |fleet: &mut Fleet, snapshot: &mut Snapshot| {
        of(fleet, snapshot, "crowded").pods[PODS - 1].forbidden = Some(Forbidden::Budget("all".into()));
        drifted(fleet, snapshot, &["crowded"]);
    };
    let left_to_others = |fleet: &mut Fleet, snapshot: &mut Snapshot| {
        of(fleet, snapshot, "crowded").pods[PODS - 1].moves = Moves::LeftToOthers("is placed by theirs".into());
    };
    check(&crowded(501), forbidden, (&[], 0), &[("crowded", "PodDisruptionBudget")]);
    check(&crowded(501), left_to_others, (&[], 0), &[("crowded", "PodLeftToOthers")]);
    // So many evictions cost more than the machine.
    let dear = |_: &mut Fleet, snapshot: &mut Snapshot| {
        snapshot.options.disruption.eviction_price_nano_usd = i64::MAX;
    };
    check(&crowded(501), dear, (&[], 0), &[("crowded", "CannotPay")]);
    let dear = |fleet: &mut Fleet, _: &mut Snapshot| {
        of_all(fleet, |machine| {
            machine.pods.iter_mut().for_each(|pod| pod.cost = EvictionCost(10 * EvictionCost::ONE.0))
        });
    };
    let plan = check(&crowded(501), dear, (&["crowded"], 300), &[]);
    assert_eq!(plan.commands[0].eviction_cost.0, 5_001 * EvictionCost::ONE.0);
}

fn of_all(fleet: &mut Fleet, change: impl FnMut(&mut crate::snapshot::fleet::FleetNode)) {
    fleet.nodes.iter_mut().for_each(change);
}

#[test]
fn machines_that_cost_nothing_stay_unless_they_are_empty_and_take_the_pods_of_those_that_cost() {
    let fleet_of = |small: i64, large: i64| {
        let mut f = Fixture::new();
        for (name, cpu, price) in [("small", 2, small), ("large", 8, large)] {
            f.instance_type(name, cpu, 4 * cpu).offering("za", "on-demand", price * CENT);
        }
        f.pool("p");
        for (name, of_type, pods) in
            [("a", "small", &[300][..]), ("b", "small", &[300]), ("c", "large", &[500]), ("empty", "large", &[])]
        {
            machine(&mut f, name, of_type, pods);
        }
        f
    };
    let policies =
        [ConsolidationPolicy::WhenEmpty, ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced];
    // What the types cost; what then goes to save, and what that saves.
    let cases: [(i64, i64, &[&str], i64); 3] = [(0, 0, &[], 0), (0, 36, &["c"], 36), (10, 0, &["a", "b"], 20)];
    for (small, large, goes, saves) in cases {
        for policy in policies {
            let with = |fleet: &mut Fleet, _: &mut Snapshot| {
                fleet.pools.values_mut().for_each(|pool| pool.policy = policy);
            };
            let expected = if policy == ConsolidationPolicy::WhenEmpty { (&[][..], 0) } else { (goes, saves) };
            let plan = check(&fleet_of(small, large), with, expected, &[("empty", "Goes")]);
            let price = &plan.fleet_price;
            assert_eq!(price.unknown, 0, "nothing is no unknown price");
            assert_eq!(price.before.0, (2 * small + 2 * large) * CENT);
            assert_eq!(price.before.0 - price.after.0, (large + expected.1) * CENT, "{small} {large} {policy:?}");
            if let Some(bound) = plan.fleet_bound {
                assert!((0..=price.after.0).contains(&bound.0), "{bound:?} of {price:?}");
            }
        }
    }
}
