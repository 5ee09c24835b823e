//! In which order ReplicaSets should delete pods, by their nodes.

use model::pod::Owner;

use super::*;
use crate::disruption::deletion_order::{DeletionRank, deletion_order};
use crate::snapshot::fleet::Reason;

/// Machines with these numbers of pods each.
fn of_pods(counts: &[(&str, usize)]) -> Fixture {
    let mut f = fixture();
    for (name, count) in counts {
        node(&mut f, name);
        for number in 0..*count {
            f.pod(&format!("{name}-{number}")).requests(100, gib(1)).runs();
        }
    }
    f
}

/// Says what controls a pod.
fn control(pod: &mut FleetPod, kind: &str) {
    let owner = Owner {
        api_version: "v1".into(),
        kind: kind.into(),
        name: "owner".into(),
        uid: "owner".into(),
        controller: true,
    };
    Arc::make_mut(&mut pod.pod).owner = Some(owner);
}

/// The names with their costs, in order, where ReplicaSets control the pods of which `change` says nothing.
fn order(f: &Fixture, change: impl FnOnce(&mut Fleet, &Snapshot)) -> Vec<(String, Option<i32>)> {
    let mut snapshot = f.snapshot();
    let mut fleet = fleet(&snapshot);
    fleet.nodes.iter_mut().flat_map(|machine| &mut machine.pods).for_each(|pod| control(pod, "ReplicaSet"));
    change(&mut fleet, &snapshot);
    snapshot.fleet = Some(Arc::new(fleet));
    let order = deletion_order(&snapshot);
    order.into_iter().map(|(node, rank)| (snapshot.nodes[node].display_name().to_owned(), rank.cost())).collect()
}

fn told(expected: &[(&str, Option<i32>)]) -> Vec<(String, Option<i32>)> {
    expected.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect()
}

#[test]
fn what_is_removed_comes_first_then_what_drifted_then_what_saves_most_for_its_evictions() {
    let f = of_pods(&[("a", 3), ("b", 1), ("c", 2), ("drifted", 4), ("removed", 2), ("tainted", 0)]);
    let expected = [
        ("removed", Some(i32::MIN)),
        ("tainted", Some(i32::MIN)),
        ("drifted", Some(-4)),
        ("b", Some(-3)),
        ("c", Some(-2)),
        ("a", Some(-1)),
    ];
    let change = |fleet: &mut Fleet, snapshot: &Snapshot| {
        of(fleet, snapshot, "removed").under_way = Some(UnderWay::Command(Some("Drifted".into())));
        of(fleet, snapshot, "tainted").under_way = Some(UnderWay::Taint);
        drifted(fleet, snapshot, &["drifted"]);
    };
    assert_eq!(order(&f, change), told(&expected));
    let dear = |fleet: &mut Fleet, snapshot: &Snapshot| {
        change(fleet, snapshot);
        of(fleet, snapshot, "a").machine.offering.as_mut().unwrap().2 = PriceNanoUsdPerHour(21);
    };
    // 21 for four is more than 10 for two, and 10 for three is less than either.
    let ranks = order(&f, dear);
    assert_eq!(ranks[3..], told(&[("a", Some(-3)), ("b", Some(-2)), ("c", Some(-1))]));
}

#[test]
fn each_reason_is_ranked_as_far_as_its_budget_lets_nodes_go() {
    let f = of_pods(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let budget = |reason, allowed| Budget {
        index: 0,
        reasons: Some([reason].into()),
        allowed,
        text: allowed.to_string().into(),
        until: None,
    };
    for (of_drift, of_the_rest, expected) in [
        (1, 1, [("a", Some(-2)), ("c", Some(-1)), ("b", None), ("d", None)]),
        (0, 2, [("c", Some(-2)), ("d", Some(-1)), ("a", None), ("b", None)]),
        (2, 0, [("a", Some(-2)), ("b", Some(-1)), ("c", None), ("d", None)]),
    ] {
        let order = order(&f, |fleet, snapshot| {
            drifted(fleet, snapshot, &["a", "b"]);
            let budgets = vec![budget(Reason::Drifted, of_drift), budget(Reason::Underutilized, of_the_rest)];
            fleet.pools.values_mut().for_each(|pool| pool.budgets = budgets.clone());
        });
        assert_eq!(order, told(&expected), "{of_drift} {of_the_rest}");
    }
}

#[test]
fn nodes_that_nobody_would_empty_have_no_rank() {
    let f = of_pods(&[
        ("bare", 1),
        ("blocked", 1),
        ("coming-back", 1),
        ("job", 1),
        ("no-price", 1),
        ("plain", 1),
        ("replacement", 1),
        ("stateful", 1),
    ]);
    let ranked = order(&f, |fleet, snapshot| {
        Arc::make_mut(&mut of(fleet, snapshot, "bare").pods[0].pod).owner = None;
        control(&mut of(fleet, snapshot, "job").pods[0], "Job");
        control(&mut of(fleet, snapshot, "stateful").pods[0], "StatefulSet");
        of(fleet, snapshot, "blocked").pods[0].forbidden = Some(Forbidden::Budget("web".into()));
        of(fleet, snapshot, "coming-back").under_way = Some(UnderWay::Reboot);
        of(fleet, snapshot, "replacement").under_way = Some(UnderWay::Command(None));
        of(fleet, snapshot, "no-price").machine.offering = None;
    });
    let with_rank: Vec<&str> =
        ranked.iter().filter(|(_, cost)| cost.is_some()).map(|(name, _)| name.as_str()).collect();
    assert_eq!(with_rank, ["job", "plain"]);
    let off = order(&f, |fleet, snapshot| {
        fleet.pools.values_mut().for_each(|pool| pool.consolidate_after = None);
        drifted(fleet, snapshot, &["job"]);
    });
    assert_eq!(off[0], ("job".to_owned(), Some(-1)), "what has drifted goes without consolidation");
    assert!(off[1..].iter().all(|(_, cost)| cost.is_none()), "{off:?}");
    assert_eq!(DeletionRank::Unranked.cost(), None);
}
