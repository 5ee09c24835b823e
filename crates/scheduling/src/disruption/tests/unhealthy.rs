//! Machines that are broken and should be replaced.

use super::*;
use crate::snapshot::fleet::{Reason, RepairHold, Unhealthy};

const HOUR: DurationMs = DurationMs::from_seconds(3600);

/// The machines that are named broken, the first with the highest score; their drain may take a minute.
fn broken(fleet: &mut Fleet, snapshot: &Snapshot, names: &[&str]) {
    for (rank, name) in (0..).zip(names) {
        of(fleet, snapshot, name).unhealthy = Some(Unhealthy {
            condition: "Ready=False (Test)".into(),
            since: Timestamp::default(),
            score: DurationMs(HOUR.0 - rank),
            drain_bound: Some(DurationMs::from_seconds(60)),
            hold: None,
        });
    }
}

fn hold(fleet: &mut Fleet, snapshot: &Snapshot, name: &str, hold: RepairHold) {
    of(fleet, snapshot, name).unhealthy.as_mut().unwrap().hold = Some(hold);
}

/// Machines with a pod each that fills them.
fn full(names: &[&str]) -> Fixture {
    let mut f = fixture();
    for name in names {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 3000);
    }
    f
}

#[test]
fn a_broken_machine_is_replaced_first_and_before_those_that_have_drifted() {
    check(
        &full(&["a", "b", "c"]),
        |fleet, snapshot| {
            drifted(fleet, snapshot, &["a", "b"]);
            broken(fleet, snapshot, &["c", "b"]);
            allow(fleet, 2);
        },
        expect![[r#"
            Unhealthy [c] by [p-1 small] moves [pod-c > p-1 small] saves 0 costs 2
            Unhealthy [b] by [p-0 small] moves [pod-b > p-0 small] saves 0 costs 2
            a Budget: has drifted, but nodepool p allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
            b Goes: is disrupted by command 2
            c Goes: is disrupted by command 1
        "#]],
    );
}

#[test]
fn an_empty_one_does_not_wait_until_it_has_been_quiet_and_takes_no_pods() {
    let mut f = full(&["a"]);
    node(&mut f, "empty");
    check(
        &f,
        |fleet, snapshot| {
            drifted(fleet, snapshot, &["a"]);
            broken(fleet, snapshot, &["empty"]);
            of(fleet, snapshot, "empty").claim.consolidatable = None;
        },
        expect![[r#"
            Unhealthy [empty] by [] moves [] saves 10 costs 1
            Drifted [a] by [p-0 small] moves [pod-a > p-0 small] saves 0 costs 2
            a Goes: is disrupted by command 2
            empty Goes: is disrupted by command 1
        "#]],
    );
}

#[test]
fn what_keeps_a_broken_machine_is_told_and_keeps_it_from_nothing_else() {
    let mut f = full(&["annotated", "drifted", "held", "nominated", "others", "too-many"]);
    f.pod("waits").requests(500, gib(1)).select(api::labels::HOSTNAME, "nominated");
    check(
        &f,
        |fleet, snapshot| {
            drifted(fleet, snapshot, &["drifted"]);
            broken(fleet, snapshot, &["annotated", "drifted", "held", "nominated", "others", "too-many"]);
            hold(fleet, snapshot, "annotated", RepairHold::DoNotRepair);
            hold(fleet, snapshot, "drifted", RepairHold::DoNotRepair);
            hold(fleet, snapshot, "too-many", RepairHold::TooMany { unhealthy: 3, nodes: 6 });
            let held = of(fleet, snapshot, "held");
            held.unhealthy.as_mut().unwrap().drain_bound = None;
            held.pods[0].forbidden = Some(Forbidden::DoNotDisrupt(None));
            of(fleet, snapshot, "others").pods[0].moves = Moves::LeftToOthers("is placed by somebody".into());
        },
        expect![[r#"
            Unhealthy [others] by [] moves [] saves 10 costs 2
            Drifted [drifted] by [p-0 small] moves [pod-drifted > p-0 small] saves 0 costs 2
            annotated DoNotRepair: is unhealthy, and has the annotation karpenter.sh/do-not-repair
            drifted Goes: is disrupted by command 2
            held PodDoNotDisrupt: runs pod default/pod-held with annotation karpenter.sh/do-not-disrupt
            nominated Nominated: is nominated for pending pod default/waits
            others Goes: is disrupted by command 1
            too-many TooManyUnhealthy: is unhealthy, and so many nodes of nodepool p are (3 of 6, more than 20%) that the cause is probably elsewhere
        "#]],
    );
}

#[test]
fn neither_do_not_disrupt_nor_pods_that_must_stay_protect_one_if_something_bounds_its_drain() {
    for (of_policies, of_claim) in [(Some(60), None), (None, Some(60)), (Some(60), Some(5))] {
        let seconds = |it: Option<i64>| it.map(DurationMs::from_seconds);
        let (_, plan) = planned(&full(&["a"]), |fleet, snapshot| {
            broken(fleet, snapshot, &["a"]);
            let a = of(fleet, snapshot, "a");
            a.is_protected = true;
            a.pods[0].forbidden = Some(Forbidden::DoNotDisrupt(None));
            a.unhealthy.as_mut().unwrap().drain_bound = seconds(of_policies);
            a.claim.termination_grace_period = seconds(of_claim);
            assert_eq!(a.drain_bound(Reason::Unhealthy), seconds(of_claim).or(seconds(of_policies)));
            assert_eq!(a.drain_bound(Reason::Drifted), seconds(of_claim));
        });
        let told: Vec<_> = plan.commands.iter().map(|it| (it.reason, it.replacements.len())).collect();
        assert_eq!(told, [(Reason::Unhealthy, 1)], "{of_policies:?} {of_claim:?}");
    }
}

#[test]
fn one_that_was_never_initialized_is_replaced_outside_of_budgets() {
    let mut f = full(&["a"]);
    node(&mut f, "new").state(NodeState::Registered);
    runs(&mut f, "on-new", 3000);
    let (snapshot, plan) = planned(&f, |fleet, snapshot| {
        broken(fleet, snapshot, &["a", "new"]);
        allow(fleet, 0);
    });
    let gone: Vec<_> =
        plan.commands.iter().flat_map(|it| &it.nodes).map(|it| snapshot.nodes[*it].display_name()).collect();
    assert_eq!(gone, ["new"]);
    assert_eq!(plan.pools[0].taken, 0);
}

#[test]
fn budgets_for_unhealthy_do_not_count_nodes_that_are_not_ready() {
    for (reasons, goes) in [(Reason::Unhealthy, 1), (Reason::Drifted, 2)] {
        let (_, plan) = planned(&full(&["a", "b"]), |fleet, snapshot| {
            broken(fleet, snapshot, &["a", "b"]);
            let pool = fleet.pools.values_mut().next().unwrap();
            pool.unready = 2;
            let reasons = Some([reasons].into());
            pool.budgets = vec![Budget { index: 0, reasons, allowed: 1, text: "1".into(), until: None }];
        });
        assert_eq!(plan.commands.len(), goes, "{reasons}");
    }
}

#[test]
fn broken_replicas_of_a_static_nodepool_are_replaced_by_their_like_by_score() {
    let kept = Replicas { wanted: 3, active: 3, node_limit: Some(4), ..Replicas::default() };
    check(
        &full(&["a", "b", "c"]),
        |fleet, snapshot| {
            fleet.pools.values_mut().for_each(|pool| pool.replicas = Some(kept));
            drifted(fleet, snapshot, &["a"]);
            broken(fleet, snapshot, &["c", "b"]);
            hold(fleet, snapshot, "b", RepairHold::DoNotRepair);
            of(fleet, snapshot, "c").is_protected = true;
        },
        expect![[r#"
            Unhealthy [c] by [another of p] moves [] saves 0 costs 2
            a NodeLimit: has drifted, but static nodepool p is at its node limit of 4, so no replacement can be launched
            b DoNotRepair: is unhealthy, and has the annotation karpenter.sh/do-not-repair
            c Goes: is disrupted by command 1
        "#]],
    );
}
