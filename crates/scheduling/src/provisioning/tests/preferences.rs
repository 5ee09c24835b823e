//! Which preferences a plan keeps, and what nodes cost.

use std::sync::Arc;

use model::{
    PriceNanoUsdPerHour, TaintEffect, Timestamp,
    pod::{SpreadSource, WhenUnsatisfiable},
};

use super::fixture::{Fixture, gib, render};
use crate::{
    plan::Plan,
    provisioning::plan,
    snapshot::{NodeState, PreferencePolicy},
};

const ZONE: &str = api::labels::ZONE;
const HOST: &str = api::labels::HOSTNAME;

/// Two zones at these prices for four CPUs.
fn zones(za: i64, zb: i64) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("za", "on-demand", za).offering("zb", "on-demand", zb);
    f.pool("p");
    f
}

fn zone(f: &Fixture, plan: &Plan) -> Vec<String> {
    let names = &f.snapshot().interner;
    plan.machines.iter().map(|machine| names.value_name(machine.launch.zone).to_string()).collect()
}

#[test]
fn a_preference_is_kept_where_it_is_free() {
    let mut f = zones(10, 10);
    f.pod("p").requests(1000, gib(1)).prefer(ZONE, "zb");
    let found = plan(&f.snapshot());
    assert_eq!((zone(&f, &found), found.notes.len()), (vec!["zb".to_owned()], 0));
    f.options().preference_policy = PreferencePolicy::Ignore;
    let ignored = plan(&f.snapshot());
    assert_eq!((zone(&f, &ignored), ignored.notes.len()), (vec!["za".to_owned()], 1));
}

#[test]
fn a_preference_is_kept_for_what_it_is_worth_and_no_more() {
    let mut f = zones(10, 13);
    f.pod("p").requests(1000, gib(1)).prefer(ZONE, "zb");
    f.pod("q").requests(1000, gib(1)).prefer(ZONE, "zb");
    for (price, expected) in [(0, "za"), (1, "za"), (2, "zb")] {
        f.options().preference_price = PriceNanoUsdPerHour(price);
        assert_eq!(zone(&f, &plan(&f.snapshot())), [expected], "two pods, weight 1, {price} for each point");
    }
}

#[test]
fn a_preferred_zone_does_not_end_a_spread_over_zones() {
    let mut f = zones(10, 10);
    for index in 0..4 {
        f.pod(&format!("p{index}"))
            .requests(1000, gib(1))
            .label("app", "web")
            .prefer(ZONE, "zb")
            .spread(ZONE, 1, "web");
    }
    let found = plan(&f.snapshot());
    assert_eq!((zone(&f, &found).len(), found.refusals.len()), (2, 0), "{found:?}");
    assert!(zone(&f, &found).contains(&"za".to_owned()));
}

/// Four pods of one shape that prefer zone zb, where a node has room for so many of them; another has room for all.
fn four_for_a_node(room: i64) -> Fixture {
    let mut f = zones(10, 10);
    f.node("a").allocatable(4000, gib(16)).label(ZONE, "za");
    f.node("b").allocatable(room * 1000, gib(16)).label(ZONE, "zb");
    for index in 0..4 {
        f.pod(&format!("p{index}")).requests(1000, gib(1)).prefer(ZONE, "zb");
    }
    f
}

#[test]
fn a_preference_that_cannot_be_kept_for_all_pods_is_kept_for_the_oldest() {
    for room in 0..=4 {
        let mut snapshot = four_for_a_node(room).snapshot();
        // The last was made first.
        for (age, pending) in snapshot.pods.iter_mut().enumerate() {
            Arc::make_mut(&mut pending.pod).created_at = Timestamp(-i64::try_from(age).unwrap());
        }
        let found = plan(&snapshot);
        assert!(found.machines.is_empty() && found.refusals.is_empty(), "{}", render(&found, &snapshot));
        let mut on_b: Vec<String> = Vec::new();
        for placement in found.existing.iter().filter(|it| snapshot.nodes[it.node].display_name() == "b") {
            on_b.extend(placement.pods.iter().map(|&pod| snapshot.pods[pod].pod.name.name.to_string()));
        }
        let room = usize::try_from(room).unwrap();
        assert_eq!(on_b, ["p0", "p1", "p2", "p3"][4 - room..], "{}", render(&found, &snapshot));
        let notes: Vec<_> = found.notes.iter().map(|note| (&*note.example.name, note.pods)).collect();
        assert_eq!(notes, if room < 4 { vec![("p0", 4 - room)] } else { Vec::new() });
    }
}

#[test]
fn no_machine_is_launched_for_a_preference_and_no_pod_waits_for_one() {
    let mut f = zones(10, 10);
    for index in 0..4 {
        let pod = f.pod(&format!("p{index}")).requests(1000, gib(1)).label("app", "web");
        pod.rather_away_from(HOST, "web").prefer(ZONE, "nowhere").prefer(ZONE, "zb");
    }
    let found = plan(&f.snapshot());
    assert_eq!(zone(&f, &found), ["zb"], "the one that can be kept is\n{}", render(&found, &f.snapshot()));
    assert_eq!(found.refusals.len(), 0);
    assert_eq!(found.notes.len(), 2, "one of two preferences for nodes, and that for other hosts, are not kept");
}

#[test]
fn pods_are_spread_if_that_takes_no_more_machines() {
    let soft = |f: &mut Fixture, pods: usize| {
        for index in 0..pods {
            f.pod(&format!("p{index}"))
                .requests(2000, gib(1))
                .label("app", "web")
                .spread(ZONE, 1, "web")
                .but(|spread, _| spread.when_unsatisfiable = WhenUnsatisfiable::ScheduleAnyway);
        }
    };
    let mut two = zones(10, 10);
    soft(&mut two, 2);
    assert_eq!(zone(&two, &plan(&two.snapshot())), ["za"], "both fit on one machine");
    let mut four = zones(10, 10);
    soft(&mut four, 4);
    let mut spread = zone(&four, &plan(&four.snapshot()));
    spread.sort();
    assert_eq!(spread, ["za", "zb"]);
}

#[test]
fn a_note_on_a_spread_that_is_not_kept_says_whether_it_is_the_clusters_default() {
    let mut f = zones(10, 10);
    for (index, source) in [SpreadSource::Pod, SpreadSource::ClusterDefault].into_iter().enumerate() {
        for copy in 0..2 {
            f.pod(&format!("p{index}-{copy}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web").but(
                |spread, _| {
                    spread.when_unsatisfiable = WhenUnsatisfiable::ScheduleAnyway;
                    spread.source = source;
                },
            );
        }
    }
    let notes: Vec<_> = plan(&f.snapshot()).notes.iter().map(|note| (note.pods, note.kind.construct())).collect();
    assert_eq!(
        notes,
        [
            (2, "topology spread with whenUnsatisfiable ScheduleAnyway"),
            (2, "the cluster's default topology spread with whenUnsatisfiable ScheduleAnyway")
        ]
    );
}

#[test]
fn pods_with_a_machine_already_do_not_move_for_a_preference() {
    let mut f = zones(10, 10);
    f.node("n").allocatable(4000, gib(16)).label(ZONE, "za").claim("claim-1");
    f.node("other").allocatable(4000, gib(16)).label(ZONE, "zb");
    f.pod("p").requests(1000, gib(1)).prefer(ZONE, "zb").planned_on("claim-1");
    let found = plan(&f.snapshot());
    assert_eq!(found.existing.len(), 1);
    assert_eq!(f.snapshot().nodes[found.existing[0].node].display_name(), "n");
}

/// A node with so many CPUs that would rather not have pods, and beside it one that says nothing.
fn unwanted_and_other(unwanted: i64, other: i64) -> Fixture {
    let mut f = zones(10, 10);
    f.node("a-unwanted").allocatable(unwanted * 1000, gib(16)).taint_with(TaintEffect::PreferNoSchedule, "spot", "");
    f.node("b-other").allocatable(other * 1000, gib(16));
    f
}

/// Pods by node, and those of notes.
fn on_nodes(f: &Fixture) -> (Vec<(String, usize)>, Vec<usize>) {
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    assert!(found.refusals.is_empty() && found.machines.is_empty(), "{}", render(&found, &snapshot));
    let by_node = found.existing.iter().map(|it| (snapshot.nodes[it.node].display_name().to_owned(), it.pods.len()));
    (by_node.collect(), found.notes.iter().map(|note| note.pods).collect())
}

#[test]
fn pods_keep_off_prefer_no_schedule_taints_where_there_is_other_room_and_never_wait() {
    for (unwanted, other, expected, noted) in [
        (4, 4, vec![("b-other", 4)], vec![]),
        (4, 2, vec![("a-unwanted", 2), ("b-other", 2)], vec![2]),
        (4, 0, vec![("a-unwanted", 4)], vec![4]),
    ] {
        let mut f = unwanted_and_other(unwanted, other);
        for index in 0..4 {
            f.pod(&format!("p{index}")).requests(1000, gib(1));
        }
        let (nodes, notes) = on_nodes(&f);
        let nodes: Vec<_> = nodes.iter().map(|(name, pods)| (name.as_str(), *pods)).collect();
        assert_eq!((nodes, notes), (expected, noted), "{unwanted} and {other}");
    }
}

#[test]
fn a_tolerated_prefer_no_schedule_taint_is_none() {
    let mut f = unwanted_and_other(4, 4);
    f.pod("p").requests(1000, gib(1)).tolerate("spot", "");
    assert_eq!(on_nodes(&f), (vec![("a-unwanted".to_owned(), 1)], vec![]));
}

#[test]
fn who_makes_room_for_anothers_preference_does_not_go_onto_a_prefer_no_schedule_taint() {
    let mut f = unwanted_and_other(4, 1);
    f.node("c-zb").allocatable(1000, gib(16)).label(ZONE, "zb");
    f.pod("prefers").requests(1000, gib(1)).prefer(ZONE, "zb");
    f.pod("other").requests(1000, gib(1));
    let (nodes, notes) = on_nodes(&f);
    assert_eq!((nodes, notes), (vec![("b-other".to_owned(), 1), ("c-zb".to_owned(), 1)], vec![]));
}

#[test]
fn a_pool_with_a_prefer_no_schedule_taint_is_used_if_it_is_cheaper_by_more_than_the_preference_is_worth() {
    for (preference_price, soft, expected) in [(0, 10, "a"), (0, 9, "soft"), (1, 9, "a")] {
        let mut f = Fixture::new();
        f.instance_type("t", 4, 16).offering("za", "spot", soft).offering("za", "on-demand", 10);
        // Of pools with equal weight the last by name comes first.
        f.pool("soft").require(api::labels::CAPACITY_TYPE, "In", &["spot"]);
        f.taint_with(TaintEffect::PreferNoSchedule, "spot", "");
        f.pool("a").require(api::labels::CAPACITY_TYPE, "In", &["on-demand"]);
        f.options().preference_price = PriceNanoUsdPerHour(preference_price);
        f.pod("p").requests(1000, gib(1));
        let snapshot = f.snapshot();
        let found = plan(&snapshot);
        let pools: Vec<&str> =
            found.machines.iter().map(|machine| &*snapshot.node_pools[machine.node_pool].name).collect();
        let noted = usize::from(expected == "soft");
        assert_eq!((pools, found.notes.len()), (vec![expected], noted), "{}", render(&found, &snapshot));
    }
}

#[test]
fn what_a_node_costs_makes_fewer_and_larger_machines() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 8).offering("za", "on-demand", 10);
    f.instance_type("large", 8, 32).offering("za", "on-demand", 42);
    f.pool("p");
    for index in 0..8 {
        f.pod(&format!("p{index}")).requests(1000, gib(1));
    }
    let without = plan(&f.snapshot());
    assert_eq!((without.machines.len(), without.price.0, without.node_costs.0), (4, 40, 0));
    f.options().node_price = PriceNanoUsdPerHour(1);
    let with = plan(&f.snapshot());
    assert_eq!((with.machines.len(), with.price.0, with.node_costs.0), (1, 42, 1));
    assert!(with.lower_bound.0 <= 43);
}

#[test]
fn a_preferred_neighbour_does_not_keep_others_from_theirs() {
    let mut f = zones(10, 10);
    f.pod("store").requests(1000, gib(1)).label("app", "store").select(ZONE, "zb");
    f.pod("lead").requests(500, gib(1)).label("app", "team").rather_near(ZONE, "store");
    f.pod("crew").requests(1000, gib(1)).label("app", "team").select(ZONE, "za").near(ZONE, "team");
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    assert_eq!(found.refusals.len(), 0, "{}", render(&found, &snapshot));
    // kube-scheduler binds the lead when it comes to it. In zone zb it would be the only one that the crew may be near
    // to.
    let of_crew =
        found.machines.iter().find(|machine| snapshot.interner.value_name(machine.launch.zone) == "za").unwrap();
    assert_eq!(of_crew.pods.len(), 2, "{}", render(&found, &snapshot));
}

#[test]
fn no_preference_keeps_a_pod_from_a_node_that_will_be_open_to_it() {
    for (state, expected) in [(NodeState::Initialized, "old"), (NodeState::Registered, "a new machine")] {
        let mut f = zones(10, 10);
        f.node("old").label(ZONE, "za").allocatable(1000, gib(4));
        for zone in ["za", "zb"] {
            f.pod(&format!("db-{zone}")).requests(3000, gib(4)).label("app", "db").select(ZONE, zone);
        }
        // Waits until a database is in zone za; then kube-scheduler binds it to the node at once.
        f.pod("near").requests(1000, gib(1)).near(ZONE, "db").prefer(ZONE, "zb");
        let mut snapshot = f.snapshot();
        snapshot.nodes.iter_mut().for_each(|node| Arc::make_mut(node).state = state);
        let found = plan(&snapshot);
        assert_eq!((found.machines.len(), found.refusals.len()), (2, 0), "{}", render(&found, &snapshot));
        assert_eq!(if found.existing.is_empty() { "a new machine" } else { "old" }, expected);
    }
}
