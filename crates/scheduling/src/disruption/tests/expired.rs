//! Machines that are past their time.

use super::*;
use crate::snapshot::expiration::{ExpirationPolicy, ExpirationRules};
use crate::snapshot::fleet::Reason;

const NOW: i64 = 10_000;

/// Two machines with a pod each, whose time is over so many seconds after now.
fn planned_with(
    rules: ExpirationRules,
    expire: [(&str, i64); 2],
    change: impl FnOnce(&mut Fleet, &Snapshot),
) -> (Snapshot, DisruptionPlan) {
    let mut f = fixture();
    for name in ["a", "b"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 3000);
    }
    let mut snapshot = f.snapshot();
    snapshot.now = Timestamp::from_seconds(NOW);
    snapshot.options.disruption.expiration = rules;
    let mut fleet = fleet(&snapshot);
    // So that nothing is consolidated.
    fleet.pools.values_mut().for_each(|pool| pool.consolidate_after = None);
    for (name, seconds) in expire {
        of(&mut fleet, &snapshot, name).claim.expires_at = Some(Timestamp::from_seconds(NOW + seconds));
    }
    change(&mut fleet, &snapshot);
    snapshot.fleet = Some(Arc::new(fleet));
    let plan = plan_disruption(&snapshot);
    (snapshot, plan)
}

const GRACEFUL: ExpirationRules =
    ExpirationRules { policy: ExpirationPolicy::Graceful, graceful_for: DurationMs::from_seconds(3600) };

#[track_caller]
fn check(plan: &(Snapshot, DisruptionPlan), expected: Expect) {
    expected.assert_eq(&render(&plan.0, &plan.1));
}

#[test]
fn a_machine_past_its_time_is_replaced_and_one_before_it_is_not() {
    check(
        &planned_with(GRACEFUL, [("a", 0), ("b", 1)], |_, _| {}),
        expect![[r#"
            Expired [a] by [p-0 small] moves [pod-a > p-0 small] saves 0 costs 2
            a Goes: is disrupted by command 1
            b ConsolidationOff: is in use, and nodepool p is not consolidated (consolidateAfter: Never)
        "#]],
    );
}

#[test]
fn by_the_forceful_way_and_after_the_deadline_it_is_not_planned_for() {
    let forceful = ExpirationRules { policy: ExpirationPolicy::Forceful, ..GRACEFUL };
    for (rules, seconds) in [(forceful, -1), (GRACEFUL, -3600)] {
        let (_, plan) = planned_with(rules, [("a", seconds), ("b", 1)], |_, _| {});
        assert!(plan.commands.is_empty(), "{rules:?} {seconds}");
    }
    let of_pool = |fleet: &mut Fleet, _: &Snapshot| {
        fleet.pools.values_mut().for_each(|pool| pool.expiration = Some(ExpirationPolicy::Graceful));
    };
    let (_, plan) = planned_with(forceful, [("a", -1), ("b", 1)], of_pool);
    assert_eq!(plan.commands.len(), 1, "its nodepool wants it so");
}

#[test]
fn budgets_for_drift_and_for_all_hold_it_and_those_for_others_do_not() {
    for (reasons, expected) in [
        (None, "Budget"),
        (Some(vec![Reason::Drifted]), "Budget"),
        (Some(vec![Reason::Empty, Reason::Underutilized, Reason::Unhealthy]), "Goes"),
    ] {
        let none = Budget {
            index: 0,
            reasons: reasons.map(|reasons| reasons.into_iter().collect()),
            allowed: 0,
            text: "0".into(),
            until: None,
        };
        let (_, plan) = planned_with(GRACEFUL, [("a", -1), ("b", 1)], |fleet, _| {
            fleet.pools.values_mut().for_each(|pool| pool.budgets = vec![none.clone()]);
        });
        assert_eq!(plan.node_reasons[0].1.code(), expected, "{:?}", none.reasons);
    }
}

#[test]
fn pods_of_one_that_has_drifted_go_to_none_that_is_past_its_time_and_both_go_at_once() {
    check(
        &planned_with(GRACEFUL, [("b", -1), ("a", 1)], |fleet, snapshot| {
            drifted(fleet, snapshot, &["a"]);
            allow(fleet, 2);
        }),
        expect![[r#"
            Drifted [a] by [p-0 small] moves [pod-a > p-0 small] saves 0 costs 2
            Expired [b] by [p-1 small] moves [pod-b > p-1 small] saves 0 costs 2
            a Goes: is disrupted by command 1
            b Goes: is disrupted by command 2
        "#]],
    );
}

#[test]
fn a_pod_that_may_not_be_evicted_holds_it_unless_it_leaves_by_force_in_the_end() {
    for (grace_period, expected) in [(None, "PodDoNotDisrupt"), (Some(60), "Goes")] {
        let (_, plan) = planned_with(GRACEFUL, [("a", -1), ("b", 1)], |fleet, snapshot| {
            let a = of(fleet, snapshot, "a");
            a.pods[0].forbidden = Some(Forbidden::DoNotDisrupt(None));
            a.claim.termination_grace_period = grace_period.map(DurationMs::from_seconds);
        });
        assert_eq!(plan.node_reasons[0].1.code(), expected);
    }
}
