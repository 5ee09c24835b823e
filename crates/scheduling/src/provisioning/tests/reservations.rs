//! Reserved offerings: who gets the last machine of a reservation.

use expect_test::expect;

use super::{
    check,
    fixture::{Fixture, RESERVATION, gib},
};
use crate::{
    plan::Plan,
    provisioning::plan,
    snapshot::{ReservedCapacityMode, Snapshot},
};

const CAPACITY_TYPE: &str = api::labels::CAPACITY_TYPE;

/// A type on demand and, much cheaper, by a reservation of so many machines.
fn reserved(remaining: u32) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("a", "on-demand", 200).offering("a", "reserved", 1);
    f.of_reservation("r1", remaining);
    f.pool("p");
    f
}

#[test]
fn a_reservation_is_left_to_the_pod_that_cannot_do_without() {
    let mut f = reserved(1);
    f.pod("any").requests(3000, gib(1)).priority(100);
    f.pod("reserved-only").requests(3000, gib(1)).select(CAPACITY_TYPE, "reserved");
    check(
        &f,
        expect![[r#"
            machine p-0: t/a/on-demand $0.0000002/h types [t] pods [any]
            machine p-1: t/a/reserved $0.000000001/h types [t] pods [reserved-only]
        "#]],
    );
}

#[test]
fn a_reservation_is_left_to_who_cannot_do_without_however_many_pods_are_planned() {
    let mut f = reserved(3);
    for index in 0..410 {
        f.pod(&format!("any-{index}")).requests(3000, gib(1)).priority(100);
    }
    for index in 0..2 {
        f.pod(&format!("reserved-only-{index}")).requests(3000, gib(1)).select(CAPACITY_TYPE, "reserved");
    }
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(plan.refusals.len(), 0);
    let is_reserved = |price: i64| plan.machines.iter().filter(|it| it.launch.price.0 == price).count();
    assert_eq!((is_reserved(1), is_reserved(200)), (3, 409));
}

/// A machine that could draw on either of two reservations takes one and leaves the other.
#[test]
fn of_two_reservations_a_machine_leaves_the_one_that_is_needed() {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("a", "reserved", 1).of_reservation("r1", 1);
    f.offering("b", "reserved", 2).of_reservation("r2", 1);
    f.pool("p");
    f.pod("any").requests(3000, gib(1)).priority(100);
    f.pod("in-a").requests(3000, gib(1)).select(api::labels::ZONE, "a");
    check(
        &f,
        expect![[r#"
            machine p-0: t/b/reserved $0.000000002/h types [t] pods [any]
            machine p-1: t/a/reserved $0.000000001/h types [t] pods [in-a]
        "#]],
    );
}

#[test]
fn a_reservation_that_the_plan_uses_up_is_named_and_one_that_was_full_is_not_launchable() {
    let mut f = reserved(1);
    for index in 0..2 {
        f.pod(&format!("pod-{index}")).requests(3000, gib(1)).select(CAPACITY_TYPE, "reserved");
    }
    check(
        &f,
        expect![[r#"
            machine p-0: t/a/reserved $0.000000001/h types [t] pods [pod-0]
            refused pod-1 (DoesNotFit): nodepool/p: none of 1 instance types fits: 1 only by reservation r1, used up by this plan; every machine is excluded by karpenter.sh/capacity-type In [reserved] or what can be launched now; it would fit one if it did not want karpenter.sh/capacity-type In [reserved] (nodepool/p)
        "#]],
    );
    let mut f = reserved(0);
    f.pod("pod").requests(3000, gib(1)).select(CAPACITY_TYPE, "reserved");
    f.pod("any").requests(3000, gib(1));
    check(
        &f,
        expect![[r#"
            machine p-0: t/a/on-demand $0.0000002/h types [t] pods [any]
            refused pod (DoesNotFit): nodepool/p: none of 1 instance types fits: 1 has no launchable offering; every machine is excluded by karpenter.sh/capacity-type In [reserved] or what can be launched now; it would fit one if it did not want karpenter.sh/capacity-type In [reserved] (nodepool/p)
        "#]],
    );
}

/// What each NodeClaim says of a label.
fn said(plan: &Plan, snapshot: &Snapshot, key: &str) -> Vec<String> {
    let key = snapshot.interner.find_key(key).unwrap();
    let of = |machine: &crate::plan::Machine| {
        let requirement = machine.requirements.get(key);
        requirement.map_or_else(|| "-".to_owned(), |it| it.values.display(&snapshot.interner).to_string())
    };
    plan.machines.iter().map(of).collect()
}

/// Else the provider may launch one on demand, and the plan's account of the reservation is wrong; and one that the
/// plan gives to another machine could be taken.
#[test]
fn a_claim_is_for_its_reservations_or_for_none() {
    let mut f = reserved(1);
    for index in 0..2 {
        f.pod(&format!("pod-{index}")).requests(3000, gib(1));
    }
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(said(&plan, &snapshot, CAPACITY_TYPE), ["In [reserved]", "In [on-demand]"]);
    assert_eq!(said(&plan, &snapshot, RESERVATION), ["In [r1]", "-"]);
}

#[test]
fn a_reservation_that_costs_more_than_other_machines_is_left() {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("a", "on-demand", 1).offering("a", "reserved", 200);
    f.of_reservation("r1", 1);
    f.pool("p");
    f.pod("pod").requests(3000, gib(1));
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(said(&plan, &snapshot, CAPACITY_TYPE), ["In [on-demand]"]);
}

#[test]
fn in_the_strict_mode_pods_wait_for_a_reservation_that_others_use_up() {
    let pods = |mode: ReservedCapacityMode, remaining: u32| {
        let mut f = reserved(remaining);
        f.options().reserved_capacity = mode;
        for index in 0..2 {
            f.pod(&format!("pod-{index}")).requests(3000, gib(1));
        }
        f
    };
    check(
        &pods(ReservedCapacityMode::Strict, 1),
        expect![[r#"
            machine p-0: t/a/reserved $0.000000001/h types [t] pods [pod-0]
            refused pod-1 (Waits): reservation r1 is used up by other machines of this plan
        "#]],
    );
    // One that was full before is no reason to wait.
    check(
        &pods(ReservedCapacityMode::Strict, 0),
        expect![[r#"
            machine p-0: t/a/on-demand $0.0000002/h types [t] pods [pod-0]
            machine p-1: t/a/on-demand $0.0000002/h types [t] pods [pod-1]
        "#]],
    );
    check(
        &pods(ReservedCapacityMode::Fallback, 1),
        expect![[r#"
            machine p-0: t/a/reserved $0.000000001/h types [t] pods [pod-0]
            machine p-1: t/a/on-demand $0.0000002/h types [t] pods [pod-1]
        "#]],
    );
}
