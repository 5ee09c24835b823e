//! Machines of static NodePools that have drifted.

use super::*;
use crate::snapshot::fleet::Reason;

/// A NodePool that keeps three machines, which have drifted one after the other, with a pod on each.
fn of_three() -> Fixture {
    let mut f = fixture();
    for name in ["c", "a", "b"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 1000);
    }
    f
}

fn keeps(fleet: &mut Fleet, replicas: Replicas) {
    fleet.pools.values_mut().for_each(|pool| pool.replicas = Some(replicas));
}

const KEPT: Replicas = Replicas { wanted: 3, active: 3, pending_disruption: 0, deleting: 0, node_limit: None };

#[test]
fn machines_are_replaced_by_their_like_those_that_drifted_first_first() {
    let (snapshot, plan) = planned(&of_three(), |fleet, snapshot| {
        keeps(fleet, KEPT);
        drifted(fleet, snapshot, &["b", "c"]);
        allow(fleet, 2);
    });
    let commands: Vec<_> =
        plan.commands.iter().map(|command| snapshot.nodes[command.nodes[0]].display_name()).collect();
    assert_eq!(commands, ["b", "c"]);
    assert!(plan.commands.iter().all(|command| command.static_pool.as_deref() == Some("p")));
    assert!(plan.commands.iter().all(|command| command.moves.is_empty() && !command.only_deletes()));
    assert_eq!(plan.fleet_price.before, plan.fleet_price.after);
    assert_eq!(plan.pools[0].taken, 2);
}

#[test]
fn as_many_are_replaced_as_budget_and_limit_let_and_none_while_there_are_too_many() {
    let cases = [
        // wanted, active, pending disruption, deleting, limit, budget: how many go, and why the next does not
        ((3, 3, 0, 0, None, None), 3, ""),
        ((3, 3, 0, 0, None, Some(2)), 2, "Budget"),
        ((3, 3, 0, 0, Some(4), Some(2)), 1, "NodeLimit"),
        ((3, 3, 0, 0, Some(3), Some(2)), 0, "NodeLimit"),
        ((3, 2, 1, 0, Some(9), Some(1)), 1, "Budget"),
        ((3, 3, 1, 0, None, Some(2)), 0, "TooManyReplicas"),
        ((3, 3, 0, 1, Some(5), None), 1, "NodeLimit"),
        ((3, 3, 0, 0, None, Some(0)), 0, "Budget"),
    ];
    for ((wanted, active, pending_disruption, deleting, node_limit, budget), expected, code) in cases {
        let (_, plan) = planned(&of_three(), |fleet, snapshot| {
            keeps(fleet, Replicas { wanted, active, pending_disruption, deleting, node_limit });
            drifted(fleet, snapshot, &["a", "b", "c"]);
            budget.into_iter().for_each(|budget| allow(fleet, budget));
        });
        assert_eq!(plan.commands.len(), expected, "{wanted} {active} {node_limit:?} {budget:?}");
        let stays = plan.node_reasons.iter().map(|(_, reason)| reason.code()).filter(|code| *code != "Goes");
        let stays: Vec<&str> = stays.collect();
        assert_eq!(stays, vec![code; 3 - expected]);
    }
}

#[test]
fn what_protects_a_machine_protects_it_here_too_unless_its_pods_leave_by_force_in_the_end() {
    let mut f = of_three();
    node(&mut f, "d");
    check(
        &f,
        |fleet, snapshot| {
            keeps(fleet, Replicas { wanted: 4, active: 4, node_limit: Some(5), ..KEPT });
            drifted(fleet, snapshot, &["a", "b", "c"]);
            of(fleet, snapshot, "a").is_protected = true;
            for name in ["b", "c"] {
                of(fleet, snapshot, name).pods[0].forbidden = Some(Forbidden::DoNotDisrupt(None));
            }
            of(fleet, snapshot, "c").claim.termination_grace_period = Some(DurationMs::from_seconds(60));
        },
        expect![[r#"
            Drifted [c] by [another of p] moves [] saves 0 costs 2
            a DoNotDisrupt: has the annotation karpenter.sh/do-not-disrupt
            b PodDoNotDisrupt: runs pod default/pod-b with annotation karpenter.sh/do-not-disrupt
            c Goes: is disrupted by command 1
            d StaticNodePool: is one of the replicas of static nodepool p
        "#]],
    );
}

#[test]
fn other_nodepools_go_their_way_beside_them() {
    let mut f = of_three();
    f.pool("q");
    f.node("empty").label(ZONE, "za").allocatable(4000, gib(16)).claim("empty").of_pool("q");
    let (_, plan) = planned(&f, |fleet, snapshot| {
        fleet.pools.get_mut("p").unwrap().replicas = Some(KEPT);
        drifted(fleet, snapshot, &["a", "empty"]);
    });
    let told: Vec<_> = plan.commands.iter().map(|command| (command.reason, command.static_pool.is_some())).collect();
    assert_eq!(told, [(Reason::Empty, false), (Reason::Drifted, true)]);
}
