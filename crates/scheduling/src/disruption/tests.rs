mod consolidation;
mod deletion_order;
mod expired;
mod static_drift;
mod terminate_first;
mod unhealthy;

use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect};
use model::{DurationMs, NodePoolName, PriceNanoUsdPerHour, Timestamp};

use super::plan::{DisruptionPlan, Place};
use super::plan_disruption;
use crate::provisioning::tests::fixture::{Fixture, gib};
use crate::snapshot::eviction::{EvictionCost, Forbidden};
use crate::snapshot::fleet::{
    Budget, BudgetFault, ClaimFacts, ConsolidationPolicy, Drift, Fleet, FleetNode, FleetPod, FleetPool, Machine, Moves,
    Replicas, UnderWay,
};
use crate::snapshot::pending::will_be_replaced;
use crate::snapshot::{NodeState, PendingPod, Snapshot};

const ZONE: &str = api::labels::ZONE;

/// A pool `p` of one type with 4 CPU for 10, and a dearer one.
fn fixture() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 16).offering("za", "on-demand", 10);
    f.instance_type("large", 16, 64).offering("za", "on-demand", 45);
    f.pool("p");
    f
}

/// A machine of ours that has 4 CPU.
fn node<'f>(f: &'f mut Fixture, name: &str) -> &'f mut Fixture {
    f.node(name).label(ZONE, "za").allocatable(4000, gib(16)).claim(name).of_pool("p")
}

/// A pod with these CPUs on the node added last.
fn runs(f: &mut Fixture, name: &str, milli_cpu: i64) {
    f.pod(name).requests(milli_cpu, gib(1)).runs();
}

/// The machines of a snapshot as a cluster would describe them: quiet, at 10 each, nothing under way, no budget.
fn fleet(snapshot: &Snapshot) -> Fleet {
    let mut fleet = Fleet::default();
    for (id, node) in snapshot.nodes.iter_enumerated().filter(|(_, node)| node.node_claim.is_some()) {
        let pods = node.pods.iter().map(|pod| FleetPod {
            pod: Arc::clone(pod),
            moves: if will_be_replaced(pod) {
                let pod = Arc::clone(pod);
                Moves::As(PendingPod { pod, planned_on: None, devices: None, waits_for: None, stays_within: None })
            } else {
                Moves::No
            },
            cost: EvictionCost::of(pod, snapshot.options.disruption.deletion_costs),
            forbidden: None,
        });
        let pool = snapshot.node_pools.ids().next().unwrap();
        let offering = snapshot.node_pools[pool].catalogue.offerings.iter_enumerated();
        let offering = offering.min_by_key(|(_, offering)| offering.price).unwrap();
        fleet.nodes.push(FleetNode {
            node: id,
            machine: Machine { offering: Some((pool, offering.0, offering.1.price)), ..Machine::default() },
            capacity: node.allocatable.clone(),
            claim: ClaimFacts { consolidatable: Some(Timestamp::default()), ..ClaimFacts::default() },
            unhealthy: None,
            under_way: (node.excluded == Some(crate::snapshot::Excluded::Deleting)).then_some(UnderWay::Deletion),
            is_protected: false,
            pods: pods.collect(),
        });
    }
    let nodes = u32::try_from(fleet.nodes.len()).unwrap();
    for pool in &snapshot.node_pools {
        fleet.pools.insert(pool.name.clone(), FleetPool { nodes, ..no_limits() });
    }
    fleet
}

fn no_limits() -> FleetPool {
    FleetPool {
        policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
        consolidate_after: Some(DurationMs::ZERO),
        expiration: None,
        replicas: None,
        nodes: 0,
        going: 0,
        unready: 0,
        budgets: Vec::new(),
        faults: Vec::new(),
    }
}

/// A machine of a fleet.
fn of<'f>(fleet: &'f mut Fleet, snapshot: &Snapshot, name: &str) -> &'f mut FleetNode {
    fleet.nodes.iter_mut().find(|it| snapshot.nodes[it.node].display_name() == name).unwrap()
}

/// The machines that are named drifted, one second after the other.
fn drifted(fleet: &mut Fleet, snapshot: &Snapshot, names: &[&str]) {
    for (second, name) in (0..).zip(names) {
        let drift = Drift { cause: "NodePoolDrifted".into(), since: Timestamp::from_seconds(second) };
        of(fleet, snapshot, name).claim.drifted = Some(drift);
    }
}

fn allow(fleet: &mut Fleet, nodes: u32) {
    let budget = Budget { index: 0, reasons: None, allowed: nodes, text: nodes.to_string().into(), until: None };
    fleet.pools.values_mut().for_each(|pool| pool.budgets = vec![budget.clone()]);
}

fn planned(f: &Fixture, change: impl FnOnce(&mut Fleet, &Snapshot)) -> (Snapshot, DisruptionPlan) {
    let mut snapshot = f.snapshot();
    // Machines cost some nano-dollars here, which pays for no eviction otherwise.
    snapshot.options.disruption.eviction_price_nano_usd = 0;
    let mut fleet = fleet(&snapshot);
    change(&mut fleet, &snapshot);
    snapshot.fleet = Some(Arc::new(fleet));
    let plan = plan_disruption(&snapshot);
    (snapshot, plan)
}

/// Commands with where pods go, then why each machine goes or stays.
fn render(snapshot: &Snapshot, plan: &DisruptionPlan) -> String {
    let mut text = String::new();
    let name = |node| snapshot.nodes[node].display_name();
    for command in &plan.commands {
        let nodes: Vec<&str> = command.nodes.iter().map(|node| name(*node)).collect();
        let simulated = plan.simulated.as_deref();
        let machine = |id| {
            let machine = &simulated.unwrap().plan.machines[id];
            let pool = &snapshot.node_pools[machine.node_pool];
            format!(
                "{}-{} {}",
                pool.name, machine.index_in_pool, pool.catalogue.types[machine.launch.instance_type].name
            )
        };
        let machines = command.replacements.iter().map(|id| machine(*id));
        let replacements: Vec<String> =
            machines.chain(command.launches_from().map(|pool| format!("another of {pool}"))).collect();
        let moves = command.moves.iter().map(|it| {
            let pod = &simulated.unwrap().snapshot.pods[it.pod].pod.name.name;
            let to = match it.to {
                Place::Node(node) => name(node).to_owned(),
                Place::Machine(id) => machine(id),
            };
            format!("{pod} > {to}")
        });
        let moves: Vec<String> = moves.collect();
        let _ = writeln!(
            text,
            "{}{} [{}] by [{}] moves [{}] saves {} costs {}",
            command.reason,
            command.terminate_first.map(|why| format!(" first ({})", why.as_str())).unwrap_or_default(),
            nodes.join(", "),
            replacements.join(", "),
            moves.join(", "),
            command.saving.0,
            command.eviction_cost.0 / EvictionCost::ONE.0,
        );
    }
    for (node, reason) in &plan.node_reasons {
        let _ = writeln!(text, "{} {}: {}", name(*node), reason.code(), reason.message(snapshot));
    }
    text
}

#[track_caller]
fn check(f: &Fixture, change: impl FnOnce(&mut Fleet, &Snapshot), expected: Expect) {
    let (snapshot, plan) = planned(f, change);
    expected.assert_eq(&render(&snapshot, &plan));
}

#[test]
fn without_a_fleet_nothing_is_planned() {
    let plan = plan_disruption(&fixture().snapshot());
    assert!(plan.commands.is_empty() && plan.node_reasons.is_empty() && plan.pools.is_empty());
}

#[test]
fn what_blocks_a_machine_is_told_once_and_by_name() {
    let mut f = fixture();
    for name in ["command", "deleting", "reboot", "replacement", "tainted"] {
        node(&mut f, name);
    }
    node(&mut f, "registered").state(NodeState::Registered);
    node(&mut f, "no-pool").of_no_pool();
    node(&mut f, "gone-pool").of_pool("gone");
    node(&mut f, "protected");
    for name in ["quiet", "several", "shut", "until", "others"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 100);
    }
    // Only this one has room for what waits.
    node(&mut f, "promised");
    runs(&mut f, "pod-promised", 100);
    f.node("not-ours").allocatable(100, gib(1));
    f.pod("waits").requests(3500, gib(1)).select(api::labels::HOSTNAME, "promised");
    check(
        &f,
        |fleet, snapshot| {
            let mut under_way = |name: &str, what| of(fleet, snapshot, name).under_way = Some(what);
            under_way("command", UnderWay::Command(Some("Drifted".into())));
            under_way("deleting", UnderWay::Deletion);
            under_way("reboot", UnderWay::Reboot);
            under_way("replacement", UnderWay::Command(None));
            under_way("tainted", UnderWay::Taint);
            of(fleet, snapshot, "protected").is_protected = true;
            let mut forbid = |name: &str, why| of(fleet, snapshot, name).pods[0].forbidden = Some(why);
            forbid("quiet", Forbidden::DoNotDisrupt(None));
            forbid("until", Forbidden::DoNotDisrupt(Some(Timestamp::from_seconds(60))));
            forbid("shut", Forbidden::Budget("web".into()));
            forbid("several", Forbidden::SeveralBudgets(vec!["a".into(), "b".into()]));
            of(fleet, snapshot, "others").pods[0].moves = Moves::LeftToOthers("is placed by theirs".into());
        },
        expect![[r#"
            command CommandUnderWay: is already being disrupted (Drifted)
            deleting Deleting: is being deleted
            gone-pool NodePoolNotFound: belongs to nodepool gone, which was not found
            no-pool NoNodePool: belongs to no nodepool
            others PodLeftToOthers: runs pod default/pod-others, which is placed by theirs
            promised Nominated: is nominated for pending pod default/waits
            protected DoNotDisrupt: has the annotation karpenter.sh/do-not-disrupt
            quiet PodDoNotDisrupt: runs pod default/pod-quiet with annotation karpenter.sh/do-not-disrupt
            reboot Rebooting: is being rebooted
            registered NotInitialized: is not initialized yet
            replacement CommandUnderWay: is part of a disruption command in progress
            several SeveralPodDisruptionBudgets: runs pod default/pod-several, and several PodDisruptionBudgets select it: a, b
            shut PodDisruptionBudget: runs pod default/pod-shut, and PodDisruptionBudget web allows no disruption now
            tainted Tainted: has the taint karpenter.sh/disrupted, which no disruption command explains
            until PodDoNotDisrupt: runs pod default/pod-until with annotation karpenter.sh/do-not-disrupt until 1970-01-01T00:01:00Z
        "#]],
    );
}

#[test]
fn a_static_pool_and_one_of_which_nothing_is_known_keep_their_machines() {
    let mut f = fixture();
    node(&mut f, "a");
    check(
        &f,
        |fleet, _| fleet.pools.values_mut().for_each(|pool| pool.replicas = Some(Replicas::default())),
        expect![[r#"
        a StaticNodePool: is one of the replicas of static nodepool p
    "#]],
    );
    let mut f = Fixture::new();
    f.pool("p");
    f.node("a").allocatable(4000, gib(16)).claim("a").of_pool("p");
    let mut snapshot = f.snapshot();
    let machine = FleetNode {
        node: snapshot.nodes.ids().next().unwrap(),
        machine: Machine::default(),
        capacity: Default::default(),
        claim: ClaimFacts::default(),
        unhealthy: None,
        under_way: None,
        is_protected: false,
        pods: Vec::new(),
    };
    let pools = [(NodePoolName::from("p"), no_limits())].into();
    snapshot.fleet = Some(Arc::new(Fleet { nodes: vec![machine], pools, devices: None }));
    let plan = plan_disruption(&snapshot);
    expect![[r#"
        a NoInstanceTypes: belongs to nodepool p, which has no known instance types
    "#]]
    .assert_eq(&render(&snapshot, &plan));
    assert_eq!((plan.fleet_price.nodes, plan.fleet_price.unknown), (1, 1));
}

#[test]
fn empty_machines_go_one_by_one_once_they_have_been_quiet_and_as_budgets_let() {
    let mut f = fixture();
    for name in ["cheap", "dear", "young", "unsaid", "used"] {
        node(&mut f, name);
    }
    runs(&mut f, "web", 100);
    node(&mut f, "daemon");
    f.pod("agent").requests(100, gib(1)).daemon().runs();
    f.pod("leaving").requests(100, gib(1)).going().runs();
    check(
        &f,
        |fleet, snapshot| {
            allow(fleet, 2);
            let dear = of(fleet, snapshot, "dear").machine.offering.as_mut().unwrap();
            dear.2 = PriceNanoUsdPerHour(45);
            of(fleet, snapshot, "young").claim =
                ClaimFacts { last_pod_event: Some(Timestamp::from_seconds(5)), ..ClaimFacts::default() };
            of(fleet, snapshot, "unsaid").claim = ClaimFacts::default();
            fleet.pools.values_mut().for_each(|pool| pool.consolidate_after = Some(DurationMs::from_seconds(30)));
        },
        expect![[r#"
            Empty [cheap] by [] moves [] saves 10 costs 1
            Empty [dear] by [] moves [] saves 45 costs 1
            cheap Goes: is disrupted by command 1
            daemon Budget: is empty, but nodepool p allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
            dear Goes: is disrupted by command 2
            unsaid NotQuiet: is empty, but not known to have been empty for 30s (consolidateAfter)
            used Budget: could be consolidated, but nodepool p allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
            young NotQuiet: is empty, but the last pod came or left at 1970-01-01T00:00:05Z, and consolidateAfter is 30s
        "#]],
    );
    check(
        &f,
        |fleet, _| fleet.pools.values_mut().for_each(|pool| pool.consolidate_after = None),
        expect![[r#"
        cheap ConsolidationOff: is empty, but nodepool p removes no empty nodes (consolidateAfter: Never)
        daemon ConsolidationOff: is empty, but nodepool p removes no empty nodes (consolidateAfter: Never)
        dear ConsolidationOff: is empty, but nodepool p removes no empty nodes (consolidateAfter: Never)
        unsaid ConsolidationOff: is empty, but nodepool p removes no empty nodes (consolidateAfter: Never)
        used ConsolidationOff: is in use, and nodepool p is not consolidated (consolidateAfter: Never)
        young ConsolidationOff: is empty, but nodepool p removes no empty nodes (consolidateAfter: Never)
    "#]],
    );
}

#[test]
fn room_that_a_buffer_keeps_holds_an_empty_machine() {
    let mut f = fixture();
    node(&mut f, "a");
    node(&mut f, "b");
    f.pod("burst").requests(3000, gib(1)).buffered(1);
    check(
        &f,
        |_, _| (),
        expect![[r#"
        Empty [b] by [] moves [] saves 10 costs 1
        a HoldsBuffer: is empty, but keeps room free for CapacityBuffer default/burst
        b Goes: is disrupted by command 1
    "#]],
    );
}

#[test]
fn a_budget_that_cannot_be_read_lets_none_go() {
    let mut f = fixture();
    node(&mut f, "a");
    node(&mut f, "b");
    runs(&mut f, "web", 100);
    check(
        &f,
        |fleet, snapshot| {
            drifted(fleet, snapshot, &["b"]);
            let fault = BudgetFault { index: 1, problem: "schedule \"x\" has 1 fields, not 5".into() };
            fleet.pools.values_mut().for_each(|pool| pool.faults = vec![fault.clone()]);
        },
        expect![[r#"
            a Budget: is empty, but nodepool p allows no disruptions, since budgets[1] cannot be read: schedule "x" has 1 fields, not 5
            b Budget: has drifted, but nodepool p allows no disruptions, since budgets[1] cannot be read: schedule "x" has 1 fields, not 5
        "#]],
    );
}

#[test]
fn drifted_machines_are_replaced_as_many_at_once_as_budgets_let_those_first_that_drifted_first() {
    let mut f = fixture();
    for name in ["a", "b", "c", "d", "empty"] {
        node(&mut f, name);
        if name != "empty" {
            runs(&mut f, &format!("pod-{name}"), 3000);
        }
    }
    check(
        &f,
        |fleet, snapshot| {
            allow(fleet, 3);
            drifted(fleet, snapshot, &["d", "b", "a", "c", "empty"]);
            of(fleet, snapshot, "empty").claim.consolidatable = None;
        },
        expect![[r#"
            Drifted [empty] by [] moves [] saves 10 costs 1
            Drifted [d] by [p-1 small] moves [pod-d > p-1 small] saves 0 costs 2
            Drifted [b] by [p-0 small] moves [pod-b > p-0 small] saves 0 costs 2
            a Budget: has drifted, but nodepool p allows 3 disruptions at once, and 3 are used (budgets[0]: 3)
            b Goes: is disrupted by command 3
            c Budget: has drifted, but nodepool p allows 3 disruptions at once, and 3 are used (budgets[0]: 3)
            d Goes: is disrupted by command 2
            empty Goes: is disrupted by command 1
        "#]],
    );
}

#[test]
fn machines_whose_pods_share_a_replacement_go_together_and_no_pod_goes_to_one_that_has_drifted() {
    let mut f = fixture();
    for name in ["a", "b", "stays-drifted"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 1000);
    }
    check(
        &f,
        |fleet, snapshot| {
            allow(fleet, 2);
            drifted(fleet, snapshot, &["a", "b", "stays-drifted"]);
        },
        expect![[r#"
            Drifted [a, b] by [p-0 small] moves [pod-a > p-0 small, pod-b > p-0 small] saves 10 costs 3
            a Goes: is disrupted by command 1
            b Goes: is disrupted by command 1
            stays-drifted Budget: has drifted, but nodepool p allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
        "#]],
    );
    node(&mut f, "as-it-should-be");
    runs(&mut f, "there", 100);
    check(
        &f,
        |fleet, snapshot| {
            allow(fleet, 2);
            drifted(fleet, snapshot, &["a", "b", "stays-drifted"]);
        },
        expect![[r#"
            Drifted [a] by [] moves [pod-a > as-it-should-be] saves 10 costs 2
            Drifted [b] by [] moves [pod-b > as-it-should-be] saves 10 costs 2
            a Goes: is disrupted by command 1
            as-it-should-be TakesPods: is in use, and receives pods in this plan
            b Goes: is disrupted by command 2
            stays-drifted Budget: has drifted, but nodepool p allows 2 disruptions at once, and 2 are used (budgets[0]: 2)
        "#]],
    );
}

#[test]
fn a_machine_whose_pod_has_no_place_elsewhere_holds_back_no_other() {
    let mut f = fixture();
    for name in ["a", "b", "c"] {
        node(&mut f, name);
        match name {
            "b" => f.pod("tied").requests(1000, gib(1)).select("disk", "fast").runs(),
            _ => runs(&mut f, &format!("pod-{name}"), 3000),
        }
    }
    check(
        &f,
        |fleet, snapshot| {
            allow(fleet, 2);
            drifted(fleet, snapshot, &["b", "a", "c"]);
        },
        expect![[r#"
            Drifted [a] by [p-0 small] moves [pod-a > p-0 small] saves 0 costs 2
            Drifted [c] by [p-1 small] moves [pod-c > p-1 small] saves 0 costs 2
            a Goes: is disrupted by command 1
            b NoPlace: has drifted, but pod default/tied cannot be scheduled elsewhere: none of 3 existing nodes fits: 3 take no pods (deleting, cordoned or not ready); nodepool/p: wants disk In [fast], but its machines will not have that label; add it to the NodePool's labels or requirements
            c Goes: is disrupted by command 2
        "#]],
    );
}

#[test]
fn limits_count_machines_no_more_that_go() {
    let mut f = fixture();
    f.limit("nodes", 2, 0);
    for name in ["a", "b"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 3000);
    }
    check(
        &f,
        |fleet, snapshot| drifted(fleet, snapshot, &["a", "b"]),
        expect![[r#"
        Drifted [a] by [p-0 small] moves [pod-a > p-0 small] saves 0 costs 2
        Drifted [b] by [p-1 small] moves [pod-b > p-1 small] saves 0 costs 2
        a Goes: is disrupted by command 1
        b Goes: is disrupted by command 2
    "#]],
    );
}

#[test]
fn what_forbids_evictions_holds_a_drifted_machine_unless_its_pods_leave_by_force_in_the_end() {
    let mut f = fixture();
    for name in ["bounded", "unbounded"] {
        node(&mut f, name);
        runs(&mut f, &format!("pod-{name}"), 3000);
    }
    check(
        &f,
        |fleet, snapshot| {
            drifted(fleet, snapshot, &["bounded", "unbounded"]);
            for name in ["bounded", "unbounded"] {
                of(fleet, snapshot, name).pods[0].forbidden = Some(Forbidden::Budget("web".into()));
            }
            of(fleet, snapshot, "bounded").claim.termination_grace_period = Some(DurationMs::from_seconds(60));
        },
        expect![[r#"
            Drifted [bounded] by [p-0 small] moves [pod-bounded > p-0 small] saves 0 costs 2
            bounded Goes: is disrupted by command 1
            unbounded PodDisruptionBudget: runs pod default/pod-unbounded, and PodDisruptionBudget web allows no disruption now
        "#]],
    );
}

#[test]
fn pods_that_move_wait_for_machines_that_are_still_coming_up() {
    let mut f = fixture();
    node(&mut f, "a");
    runs(&mut f, "web", 3000);
    node(&mut f, "coming").state(NodeState::Registered);
    check(
        &f,
        |fleet, snapshot| drifted(fleet, snapshot, &["a"]),
        expect![[r#"
        a PlaceNotReady: has drifted, but pod default/web fits only on coming, which is still starting
        coming NotInitialized: is not initialized yet
    "#]],
    );
}

#[test]
fn machines_of_a_command_under_way_leave_their_room_and_take_other_rooms() {
    let mut f = fixture();
    node(&mut f, "a");
    runs(&mut f, "web", 3000);
    node(&mut f, "going");
    runs(&mut f, "db", 3000);
    node(&mut f, "free");
    runs(&mut f, "small", 100);
    let change = |fleet: &mut Fleet, snapshot: &Snapshot| {
        drifted(fleet, snapshot, &["a"]);
        of(fleet, snapshot, "going").under_way = Some(UnderWay::Command(Some("Drifted".into())));
    };
    check(
        &f,
        change,
        expect![[r#"
        Drifted [a] by [p-0 small] moves [web > p-0 small] saves 0 costs 2
        a Goes: is disrupted by command 1
        free TakesPods: is in use, and receives pods in this plan
        going CommandUnderWay: is already being disrupted (Drifted)
    "#]],
    );
}

#[test]
fn machines_that_pods_of_a_command_under_way_are_to_move_to_stay_until_these_are_there() {
    let mut f = fixture();
    node(&mut f, "going");
    runs(&mut f, "db", 3000);
    node(&mut f, "home");
    runs(&mut f, "web", 100);
    node(&mut f, "other");
    runs(&mut f, "small", 100);
    let change = |fleet: &mut Fleet, snapshot: &Snapshot| {
        drifted(fleet, snapshot, &["home", "other"]);
        let home = snapshot.nodes[of(fleet, snapshot, "home").node].node_claim.clone();
        let going = of(fleet, snapshot, "going");
        going.under_way = Some(UnderWay::Command(Some("Underutilized".into())));
        for pod in &mut going.pods {
            let Moves::As(pending) = &mut pod.moves else { continue };
            pending.planned_on.clone_from(&home);
        }
    };
    check(
        &f,
        change,
        expect![[r#"
        Drifted [other] by [p-0 small] moves [small > p-0 small] saves 0 costs 2
        going CommandUnderWay: is already being disrupted (Underutilized)
        home Nominated: is nominated for pending pod default/db
        other Goes: is disrupted by command 1
    "#]],
    );
}

#[test]
fn pods_that_wait_keep_the_room_that_they_find() {
    let mut f = fixture();
    node(&mut f, "a");
    runs(&mut f, "web", 3000);
    node(&mut f, "free");
    runs(&mut f, "small", 100);
    f.pod("waits").requests(3000, gib(1));
    check(
        &f,
        |fleet, snapshot| drifted(fleet, snapshot, &["a"]),
        expect![[r#"
        Drifted [a] by [p-0 small] moves [web > p-0 small] saves 0 costs 2
        a Goes: is disrupted by command 1
        free Nominated: is nominated for pending pod default/waits
    "#]],
    );
}

#[test]
fn machines_whose_pods_are_of_one_group_go_together() {
    let mut f = fixture();
    f.pod_group("ring", Some(2));
    for name in ["a", "b"] {
        node(&mut f, name);
        f.pod(&format!("ring-{name}")).requests(3000, gib(1)).group("ring").runs();
    }
    check(
        &f,
        |fleet, snapshot| drifted(fleet, snapshot, &["a", "b"]),
        expect![[r#"
        Drifted [a, b] by [p-0 small, p-1 small] moves [ring-a > p-0 small, ring-b > p-1 small] saves 0 costs 3
        a Goes: is disrupted by command 1
        b Goes: is disrupted by command 1
    "#]],
    );
}

#[test]
fn names_that_were_met_in_another_order_change_no_byte() {
    let written = |first: &[&str]| {
        let mut f = Fixture::new();
        first.iter().for_each(|name| f.pre_intern(name));
        f.instance_type("small", 4, 16).offering("za", "on-demand", 10).offering("zb", "on-demand", 10);
        f.instance_type("large", 16, 64).offering("za", "on-demand", 45);
        f.pool("p").pool("q");
        for name in ["a", "b", "c", "d"] {
            node(&mut f, name);
            f.pod(&format!("pod-{name}")).requests(1500, gib(1)).label("app", "web").spread(ZONE, 1, "web").runs();
        }
        node(&mut f, "empty");
        let (snapshot, plan) = planned(&f, |fleet, snapshot| drifted(fleet, snapshot, &["c", "a", "b", "d"]));
        let moved =
            plan.simulated.as_ref().map(|it| crate::provisioning::tests::fixture::render(&it.plan, &it.snapshot));
        (render(&snapshot, &plan), moved)
    };
    let plain = written(&[]);
    assert!(plain.1.is_some());
    assert_eq!(plain, written(&["zb", "za", "small", "web", "q", "p", ZONE]));
    assert_eq!(plain, written(&["large", "d", "c", "app", "p"]));
}
