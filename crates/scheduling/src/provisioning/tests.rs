//! Behaviours of the planner, one claim a test; the exhaustive comparison with an oracle is in `oracle`.

mod allocations;
mod bare;
mod binding;
mod bound;
mod budget;
mod buffers;
mod coupled;
mod devices;
mod exchange;
mod explanations;
pub(crate) mod fixture;
mod gangs;
mod group_domains;
mod growth;
mod host_rooms;
mod karpenter;
mod label_sets;
mod near_leaving;
mod oracle;
mod outside;
mod placed;
mod preferences;
mod remedies;
mod requests;
mod reservations;
mod together;
mod unopened;
mod vacate;
mod volumes;

use expect_test::{Expect, expect};

use self::fixture::{Fixture, gib};
use crate::{plan::Verdict, provisioning::plan, snapshot::MinValuesPolicy};

/// Plans the fixture and compares the rendered plan.
fn check(fixture: &Fixture, expected: Expect) {
    let snapshot = fixture.snapshot();
    expected.assert_eq(&fixture::render(&plan(&snapshot), &snapshot));
}

#[test]
fn pods_of_one_class_share_the_cheapest_machine_that_holds_them() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("large", 8, 16).offering("a", "on-demand", 40);
    f.pool("default");
    for i in 0..3 {
        f.pod(&format!("web-{i}")).requests(1000, gib(1));
    }
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small, large] pods [web-0, web-1]
            machine default-1: small/a/on-demand $0.00000001/h types [small, large] pods [web-2]
        "#]],
    );
}

#[test]
fn free_room_on_an_existing_node_is_used_before_a_machine_is_bought() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("old").allocatable(2000, gib(4)).label("zone", "b");
    f.pod("p1").requests(1500, gib(1));
    f.pod("p2").requests(1500, gib(1));
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [p2]
            node old: [p1]
        "#]],
    );
}

#[test]
fn any_term_of_a_required_affinity_will_do() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10).offering("b", "on-demand", 5);
    f.pool("default");
    f.pod("p").requests(100, gib(1)).term(&[("topology.kubernetes.io/zone", "In", &["c"])]).term(&[(
        "topology.kubernetes.io/zone",
        "In",
        &["a"],
    )]);
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [p]
        "#]],
    );
}

#[test]
fn taints_keep_a_pod_from_a_pool_and_from_a_node() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.pool("default").taint("team", "x");
    f.node("old").allocatable(2000, gib(4)).taint("team", "x");
    f.pod("stranger").requests(100, gib(1));
    f.pod("member").requests(100, gib(1)).tolerate("team", "x");
    check(
        &f,
        expect![[r#"
            node old: [member]
            refused stranger (DoesNotFit): none of 1 existing nodes fits: 1 has a taint it does not tolerate; nodepool/default: does not tolerate the taint team=x:NoSchedule
        "#]],
    );
}

#[test]
fn the_pool_of_higher_weight_is_used_first_even_if_dearer() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10).offering("a", "spot", 3);
    f.pool("cheap").require("karpenter.sh/capacity-type", "In", &["spot"]);
    f.pool("steady").weight(10).require("karpenter.sh/capacity-type", "In", &["on-demand"]);
    f.pod("p").requests(100, gib(1));
    check(
        &f,
        expect![[r#"
            machine steady-0: small/a/on-demand $0.00000001/h types [small] pods [p]
        "#]],
    );
}

#[test]
fn a_label_nobody_will_give_is_named_with_what_was_probably_meant() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.pool("default").label("example.com/team", "x");
    f.pod("p").requests(100, gib(1)).select("team", "x");
    check(
        &f,
        expect![[r#"
            refused p (DoesNotFit): nodepool/default: wants team In [x], but its machines will not have that label (did you mean example.com/team?); add it to the NodePool's labels or requirements
        "#]],
    );
}

#[test]
fn custom_labels_that_a_pool_leaves_open_are_settled_by_the_pods_and_never_mixed() {
    let mut f = Fixture::new();
    f.instance_type("large", 8, 16).offering("a", "on-demand", 10);
    f.pool("default").require("team", "Exists", &[]);
    f.pod("p1").requests(100, gib(1)).select("team", "x");
    f.pod("p2").requests(100, gib(1)).select("team", "y");
    f.pod("p3").requests(100, gib(1));
    check(
        &f,
        expect![[r#"
            machine default-0: large/a/on-demand $0.00000001/h types [large] labels [team=x] pods [p1, p3]
            machine default-1: large/a/on-demand $0.00000001/h types [large] labels [team=y] pods [p2]
        "#]],
    );
}

#[test]
fn daemons_take_room_only_where_they_run() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 5).offering("b", "on-demand", 10);
    f.pool("default");
    f.daemon_set("agent", 500, gib(1), &[("topology.kubernetes.io/zone", "a")]);
    f.pod("p").requests(1800, gib(1));
    check(
        &f,
        expect![[r#"
            machine default-0: small/b/on-demand $0.00000001/h types [small] pods [p]
        "#]],
    );
}

#[test]
fn a_limit_is_kept_by_the_largest_machine_that_could_be_launched() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("large", 8, 16).offering("a", "on-demand", 12);
    f.pool("default").limit("cpu", 10_000, 10_000);
    for i in 0..6 {
        f.pod(&format!("p{i}")).requests(2000, gib(3));
    }
    check(
        &f,
        expect![[r#"
            machine default-0: large/a/on-demand $0.000000012/h types [large] pods [p0, p1, p2, p3]
            machine default-1: small/a/on-demand $0.00000001/h types [small] pods [p4]
            refused p5 (DoesNotFit): nodepool/default: a machine for it takes at least 2 of cpu, the limit of 10 has 0 left
        "#]],
    );
}

#[test]
fn a_pod_that_only_fits_an_existing_node_gets_it_even_if_a_larger_pod_was_there_first() {
    let mut f = Fixture::new();
    f.instance_type("large", 8, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("old").allocatable(2000, gib(4)).label("disk", "ssd");
    f.pod("big").requests(2000, gib(1));
    f.pod("fixed").requests(1000, gib(1)).select("disk", "ssd");
    check(
        &f,
        expect![[r#"
            machine default-0: large/a/on-demand $0.00000001/h types [large] pods [big]
            node old: [fixed]
        "#]],
    );
}

#[test]
fn what_is_not_planned_for_is_refused_by_name_and_what_is_preferred_is_noted() {
    let mut f = Fixture::new();
    f.instance_type("large", 8, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.pod("volume").requests(100, gib(1)).claim("data");
    f.pod("prefers").requests(100, gib(1)).prefer("topology.kubernetes.io/zone", "z");
    check(
        &f,
        expect![[r#"
            machine default-0: large/a/on-demand $0.00000001/h types [large] pods [prefers]
            refused volume (Waits): PersistentVolumeClaim default/data does not exist
            note prefers (1): preferred node affinity
        "#]],
    );
}

#[test]
fn the_more_important_pod_gets_contended_room() {
    let mut f = Fixture::new();
    f.node("old").allocatable(2000, gib(4));
    f.pod("big").requests(2000, gib(1));
    f.pod("small").requests(1000, gib(1)).priority(100);
    check(
        &f,
        expect![[r#"
            node old: [small]
            refused big (DoesNotFit): none of 1 existing nodes fits: 1 has too little room (cpu 2 wanted, the most free is 1 of 2); there is no NodePool
        "#]],
    );
}

#[test]
fn an_offering_that_cannot_be_launched_is_not_planned_on_and_is_counted() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10).unavailable();
    f.instance_type("tiny", 1, 1).offering("a", "on-demand", 5);
    f.pool("default");
    f.pod("p").requests(1500, gib(1));
    check(
        &f,
        expect![[r#"
            refused p (DoesNotFit): nodepool/default: none of 2 instance types fits: 1 too small (cpu 1500m wanted, the largest has 1 beside daemons), 1 has no launchable offering; every machine is excluded by cpu 1500m or what can be launched now; it would fit one with 500m less cpu (nodepool/default)
        "#]],
    );
}

#[test]
fn min_values_are_kept_and_their_lack_is_named() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("large", 8, 16).offering("a", "on-demand", 40);
    f.pool("default").min_values("node.kubernetes.io/instance-type", 2);
    f.pod("fits-both").requests(1500, gib(1));
    f.pod("fits-one").requests(5000, gib(1));
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small, large] pods [fits-both]
            refused fits-one (DoesNotFit): nodepool/default: minValues of node.kubernetes.io/instance-type wants 2 values, 1 is left for this pod; every machine is excluded by cpu 5 or minValues; it would fit one with minValues of 1 for node.kubernetes.io/instance-type in nodepool/default, or with 3 less cpu (nodepool/default)
        "#]],
    );
}

/// The API server refuses a claim that names fewer types than its own minValues.
#[test]
fn min_values_that_are_relaxed_are_relaxed_on_the_claim_too() {
    const TYPE: &str = "node.kubernetes.io/instance-type";
    let mut f = Fixture::new();
    f.options().min_values = MinValuesPolicy::BestEffort;
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("large", 8, 16).offering("a", "on-demand", 40);
    let unheard_of = "example.com/unheard-of";
    f.pool("default").min_values(TYPE, 2).min_values("topology.kubernetes.io/zone", 3).min_values(unheard_of, 2);
    f.pod("fits-both").requests(1500, gib(1));
    f.pod("fits-one").requests(7000, gib(1));
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let of = |machine: &crate::plan::Machine, key: &str| {
        let key = snapshot.interner.find_key(key).unwrap();
        machine.requirements.get(key).unwrap().min_values
    };
    let said = |pods: usize| {
        let machine = &plan.machines.iter().find(|machine| machine.instance_types.len() == pods).unwrap();
        let min_values = [TYPE, "topology.kubernetes.io/zone", unheard_of].map(|key| of(machine, key));
        (min_values, machine.min_values_relaxed)
    };
    assert_eq!(said(2), ([Some(2), Some(1), None], true));
    assert_eq!(said(1), ([Some(1), Some(1), None], true));
}

#[test]
fn min_values_and_limits_are_kept_together() {
    let build = |cpu: i64| {
        let mut f = Fixture::new();
        for size in [1, 2, 4, 8] {
            f.instance_type(&format!("type-{size}"), size, size * 2).offering("a", "on-demand", size * 10);
        }
        f.pool("default").min_values("node.kubernetes.io/instance-type", 3).limit("cpu", cpu, cpu);
        f.pod("p").requests(500, gib(1));
        f
    };
    check(
        &build(4000),
        expect![[r#"
            machine default-0: type-1/a/on-demand $0.00000001/h types [type-1, type-2, type-4] pods [p]
        "#]],
    );
    check(
        &build(3000),
        expect![[r#"
            refused p (DoesNotFit): nodepool/default: a machine for it takes at least 4 of cpu, the limit of 3 has 3 left; every machine is excluded by limits or minValues; it would fit one with minValues of 2 for node.kubernetes.io/instance-type in nodepool/default, or with 1 more in limits.cpu of nodepool/default
        "#]],
    );
}

#[test]
fn what_decode_found_unsupported_refuses_the_pod() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.pool("default");
    f.pod("p").requests(1500, gib(1)).unsupported("spec.newField");
    check(
        &f,
        expect![[r#"
            refused p (Unsupported): spec.newField is not planned for yet
        "#]],
    );
}

#[test]
fn pods_stay_where_an_earlier_plan_put_them() {
    let mut f = Fixture::new();
    f.instance_type("large", 8, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("a-first").allocatable(2000, gib(4)).claim("claim-1");
    f.node("b-second").allocatable(2000, gib(4)).claim("claim-2");
    f.pod("p").requests(1000, gib(1)).planned_on("claim-2");
    check(
        &f,
        expect![[r#"
            node b-second: [p]
        "#]],
    );
}

#[test]
fn without_steps_the_verdict_is_out_of_budget_and_never_does_not_fit() {
    let mut f = Fixture::new();
    f.search_steps(0);
    f.node("old").allocatable(2000, gib(4)).label("disk", "ssd");
    f.instance_type("large", 8, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.pod("big").requests(2000, gib(1));
    f.pod("fixed").requests(1000, gib(1)).select("disk", "ssd");
    let plan = plan(&f.snapshot());
    assert_eq!(plan.refusals.iter().map(|refusal| refusal.verdict).collect::<Vec<_>>(), [Verdict::OutOfBudget]);
}

#[test]
fn where_too_many_pods_are_placed_to_move_them_the_reason_does_not_ask_for_more_steps() {
    let mut f = Fixture::new();
    f.instance_type("large", 8, 16).offering("a", "on-demand", 10);
    f.pool("default");
    for pod in 0..400 {
        f.pod(&format!("other-{pod}")).requests(2000, gib(1));
    }
    for pod in 0..3 {
        f.pod(&format!("near-{pod}")).requests(4000, gib(1)).label("app", "x").near(api::labels::HOSTNAME, "x");
    }
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let refusal = plan.refusals.first().unwrap();
    assert_eq!(refusal.verdict, Verdict::OutOfBudget);
    assert_eq!(
        refusal.reasons[0].message(&snapshot.interner),
        "it does not fit as the other pods are placed; with more than 400 pods, not every way to move them is tried"
    );
}

#[test]
fn the_order_in_which_names_were_interned_changes_nothing() {
    let build = |order: &[&str]| {
        let mut f = Fixture::new();
        for name in order {
            f.pre_intern(name);
        }
        f.instance_type("small", 2, 4).offering("a", "on-demand", 10).offering("b", "spot", 10);
        f.instance_type("large", 8, 16).offering("a", "on-demand", 40).offering("b", "spot", 40);
        f.pool("x").require("team", "In", &["p", "q"]).limit("cpu", 64_000, 64_000);
        f.pool("y").label("zone-class", "fast");
        f.node("old").allocatable(2000, gib(4)).label("disk", "ssd");
        for i in 0..7 {
            f.pod(&format!("web-{i}")).requests(700, gib(1)).select("team", if i % 2 == 0 { "p" } else { "q" });
            f.pod(&format!("db-{i}")).requests(900, gib(2)).select("disk", "ssd");
            f.pod(&format!("any-{i}"))
                .requests(300, gib(1))
                .term(&[("topology.kubernetes.io/zone", "In", &["b", "a"]), ("zone-class", "NotIn", &["slow"])]);
            f.pod(&format!("spread-{i}"))
                .requests(600, gib(1))
                .label("app", "spread")
                .spread("topology.kubernetes.io/zone", 1, "spread")
                .spread("team", 2, "spread");
            f.pod(&format!("near-{i}"))
                .requests(200, gib(1))
                .label("app", if i % 3 == 0 { "spread" } else { "near" })
                .near("topology.kubernetes.io/zone", "near")
                .away_from("karpenter.sh/capacity-type", "far");
        }
        let snapshot = f.snapshot();
        fixture::render(&plan(&snapshot), &snapshot)
    };
    let names =
        ["a", "b", "q", "p", "team", "disk", "ssd", "zone-class", "topology.kubernetes.io/zone", "spot", "memory"];
    let forward = build(&names);
    let backward: Vec<&str> = names.iter().rev().copied().collect();
    assert_eq!(forward, build(&backward));
    assert_eq!(forward, build(&[]));
}

#[test]
fn a_type_that_is_over_a_limit_does_not_stand_for_one_that_is_not() {
    let mut f = Fixture::new();
    f.instance_type("fits", 3, 3).offering("a", "on-demand", 1);
    f.instance_type("less-in-sum", 4, 1).offering("a", "on-demand", 1);
    f.pool("p").limit("cpu", 10_000, 3000).limit("memory", gib(10), gib(3));
    f.pod("waits").requests(500, 0);
    let plan = plan(&f.snapshot());
    assert_eq!((plan.machines.len(), plan.refusals.len()), (1, 0));
}
