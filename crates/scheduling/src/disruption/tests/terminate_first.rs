//! Machines that go before what replaces them is launched, because there is no room for both.

use super::*;
use crate::snapshot::fleet::Unhealthy;

/// A NodePool whose machines come from a reservation of two, which is full: of `a` and `b`.
fn reserved() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 16).offering("za", "reserved", 1).of_reservation("r", 0);
    f.pool("p");
    for name in ["a", "b"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 3000);
    }
    f
}

fn broken(fleet: &mut Fleet, snapshot: &Snapshot, name: &str) {
    of(fleet, snapshot, name).unhealthy = Some(Unhealthy {
        condition: "Ready=False (Test)".into(),
        since: Timestamp::default(),
        score: DurationMs::ZERO,
        drain_bound: None,
        hold: None,
    });
}

/// As [`planned`], with both gates.
fn with_gates(f: &mut Fixture, drift: bool, repair: bool) -> &Fixture {
    let options = &mut f.options().disruption;
    (options.terminate_first_drift, options.terminate_first_repair) = (drift, repair);
    f
}

#[test]
fn a_machine_goes_first_if_only_its_own_place_in_a_reservation_would_hold_its_pods() {
    check(
        with_gates(&mut reserved(), true, true),
        |fleet, snapshot| {
            drifted(fleet, snapshot, &["a"]);
            broken(fleet, snapshot, "b");
        },
        expect![[r#"
            Drifted first (no-reserved-capacity) [a] by [] moves [] saves 0 costs 2
            Unhealthy first (no-reserved-capacity) [b] by [] moves [] saves 0 costs 2
            a Goes: is disrupted by command 1
            b Goes: is disrupted by command 2
        "#]],
    );
}

#[test]
fn each_gate_is_for_its_reason() {
    for (drift, repair, going) in [(false, false, 0), (true, false, 1), (false, true, 1), (true, true, 2)] {
        let (_, plan) = planned(with_gates(&mut reserved(), drift, repair), |fleet, snapshot| {
            drifted(fleet, snapshot, &["a"]);
            broken(fleet, snapshot, "b");
        });
        assert_eq!(plan.commands.len(), going, "{drift} {repair}");
        assert!(plan.commands.iter().all(|command| command.only_deletes() && command.moves.is_empty()));
        let stays = plan.node_reasons.iter().filter(|(_, reason)| reason.code() == "NoPlace").count();
        assert_eq!(stays, 2 - going, "{drift} {repair}");
    }
}

#[test]
fn budgets_pace_those_that_go_first_and_pods_that_fit_nowhere_keep_their_machine() {
    let mut f = reserved();
    // What was there before its NodePool became what it is.
    node(&mut f, "large");
    f.pod("pod-large").requests(6000, gib(1)).runs();
    let (snapshot, plan) = planned(with_gates(&mut f, true, true), |fleet, snapshot| {
        drifted(fleet, snapshot, &["a", "b", "large"]);
        allow(fleet, 1);
    });
    let told = plan.node_reasons.iter().map(|(node, why)| (snapshot.nodes[*node].display_name(), why.code()));
    assert_eq!(told.collect::<Vec<_>>(), [("a", "Goes"), ("b", "Budget"), ("large", "NoPlace")]);
    assert_eq!(plan.pools[0].taken, 1);
}

#[test]
fn where_something_else_can_be_launched_the_replacement_comes_first() {
    let mut f = reserved();
    f.instance_type("large", 16, 64).offering("za", "on-demand", 45);
    let (_, plan) = planned(with_gates(&mut f, true, true), |fleet, snapshot| drifted(fleet, snapshot, &["a", "b"]));
    assert!(plan.commands.iter().all(|command| command.terminate_first.is_none() && !command.only_deletes()));
    assert!(!plan.commands.is_empty());
}

const FULL: Replicas = Replicas { wanted: 2, active: 2, pending_disruption: 0, deleting: 0, node_limit: Some(2) };

#[test]
fn replicas_at_the_limit_go_first() {
    let mut f = fixture();
    for name in ["a", "b", "c"] {
        node(&mut f, name);
    }
    let change = |fleet: &mut Fleet, snapshot: &Snapshot| {
        let kept = Replicas { wanted: 3, active: 3, node_limit: Some(4), ..FULL };
        fleet.pools.values_mut().for_each(|pool| pool.replicas = Some(kept));
        drifted(fleet, snapshot, &["a", "b", "c"]);
        allow(fleet, 2);
    };
    check(
        with_gates(&mut f, true, false),
        change,
        expect![[r#"
        Drifted [a] by [another of p] moves [] saves 0 costs 1
        Drifted first (static-at-limit) [b] by [] moves [] saves 0 costs 1
        a Goes: is disrupted by command 1
        b Goes: is disrupted by command 2
        c Budget: has drifted, but nodepool p allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
    "#]],
    );
    check(
        with_gates(&mut f, false, true),
        change,
        expect![[r#"
        Drifted [a] by [another of p] moves [] saves 0 costs 1
        a Goes: is disrupted by command 1
        b NodeLimit: has drifted, but static nodepool p is at its node limit of 4, so no replacement can be launched
        c NodeLimit: has drifted, but static nodepool p is at its node limit of 4, so no replacement can be launched
    "#]],
    );
}

#[test]
fn replicas_from_full_reservations_go_first_if_they_give_a_place_back() {
    let stray = |fleet: &mut Fleet, snapshot: &Snapshot| {
        fleet.pools.values_mut().for_each(|pool| pool.replicas = Some(Replicas { node_limit: None, ..FULL }));
        drifted(fleet, snapshot, &["a", "b"]);
        of(fleet, snapshot, "b").machine.offering = None;
    };
    check(
        with_gates(&mut reserved(), true, true),
        stray,
        expect![[r#"
        Drifted first (no-reserved-capacity) [a] by [] moves [] saves 0 costs 2
        a Goes: is disrupted by command 1
        b ReservationsFull: has drifted, but static nodepool p launches from reservations only, and these are full, so no replacement can be launched
    "#]],
    );
    check(
        with_gates(&mut reserved(), false, true),
        stray,
        expect![[r#"
        a ReservationsFull: has drifted, but static nodepool p launches from reservations only, and these are full, so no replacement can be launched
        b ReservationsFull: has drifted, but static nodepool p launches from reservations only, and these are full, so no replacement can be launched
    "#]],
    );
}
