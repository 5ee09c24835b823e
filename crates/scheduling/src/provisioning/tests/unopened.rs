//! Spreads over the domains that nodes and the plan's machines have.

use expect_test::expect;

use super::{
    check,
    fixture::{Fixture, gib},
};

const ZONE: &str = api::labels::ZONE;

/// A node in zone a with two pods of the spread and room for eight; machines could be launched in four zones.
fn open_node(pending: usize, min_domains: Option<u32>) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 8);
    for (zone, price) in [("a", 10), ("b", 11), ("c", 12), ("d", 13)] {
        f.offering(zone, "on-demand", price);
    }
    f.pool("default");
    f.node("open").allocatable(10_000, gib(64)).label(ZONE, "a");
    for index in 0..2 {
        f.pod(&format!("old-{index}")).requests(1000, gib(1)).label("app", "web").runs();
    }
    for index in 0..pending {
        let pod = f.pod(&format!("web-{index}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 2, "web");
        pod.but(|spread, _| spread.min_domains = min_domains);
    }
    f
}

/// Zone d gets no machine, so kube-scheduler lets a third pod into zone a as soon as b and c have one each.
#[test]
fn an_open_node_takes_what_kube_scheduler_lets_in_once_the_machines_are_there() {
    check(
        &open_node(4, Some(2)),
        expect![[r#"
            machine default-0: small/b/on-demand $0.000000011/h types [small] pods [web-1, web-2]
            machine default-1: small/c/on-demand $0.000000012/h types [small] pods [web-3]
            node open: [web-0]
        "#]],
    );
}

/// The fourth zone has to be there for the least to be more than 0.
#[test]
fn domains_that_the_spread_asks_for_are_not_left_out() {
    check(
        &open_node(4, Some(4)),
        expect![[r#"
            machine default-0: small/b/on-demand $0.000000011/h types [small] pods [web-0, web-1]
            machine default-1: small/c/on-demand $0.000000012/h types [small] pods [web-2, web-3]
        "#]],
    );
}

/// Another pod's machine makes zone d count.
#[test]
fn a_domain_that_a_machine_for_others_adds_counts() {
    let mut f = open_node(4, Some(2));
    f.pod("other").requests(1500, gib(1)).select(ZONE, "d");
    check(
        &f,
        expect![[r#"
            machine default-0: small/d/on-demand $0.000000013/h types [small] pods [other]
            machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-0, web-1]
            machine default-2: small/c/on-demand $0.000000012/h types [small] pods [web-2, web-3]
        "#]],
    );
}

#[test]
fn nothing_is_left_out_where_a_pod_has_no_place() {
    let mut f = open_node(4, Some(2));
    f.pod("web-huge").requests(20_000, gib(1)).label("app", "web").spread(ZONE, 2, "web").but(|spread, _| {
        spread.min_domains = Some(2);
    });
    check(
        &f,
        expect![[r#"
            machine default-0: small/b/on-demand $0.000000011/h types [small] pods [web-0, web-1]
            machine default-1: small/c/on-demand $0.000000012/h types [small] pods [web-2, web-3]
            refused web-huge (DoesNotFit): none of 1 existing nodes fits: 1 has too little room (cpu 20 wanted, the most free is 8 of 10); nodepool/default: none of 1 instance types fits: 1 too small (cpu 20 wanted, the largest has 2 beside daemons); it would fit a new machine with 18 less cpu (nodepool/default, if rules between pods let it in there)
        "#]],
    );
}

/// Zones c and d have nothing, so the least was that of a and b; a plan for somebody else must not move these pods.
#[test]
fn pods_stay_where_a_plan_over_fewer_domains_put_them() {
    let mut f = open_node(0, None);
    f.in_flight("b", "small", 2000).promised(ZONE, "b");
    for name in ["web-0", "web-1"] {
        f.pod(name).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web").planned_on("b");
    }
    f.pod("other").requests(1500, gib(1)).select(ZONE, "a");
    check(
        &f,
        expect![[r#"
            node b: [web-0, web-1]
            node open: [other]
        "#]],
    );
}
