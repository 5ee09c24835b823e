//! Plans whose pods hold in some order of binding only: which pods come after others.

use expect_test::expect;
use model::pod::NodeInclusionPolicy;

use super::{
    check,
    fixture::{Fixture, gib, render},
    plan,
};

const ZONE: &str = api::labels::ZONE;
const HOST: &str = api::labels::HOSTNAME;

fn three_zones() -> Fixture {
    let mut f = Fixture::new();
    let small = f.instance_type("small", 4, 8);
    small.offering("a", "on-demand", 10).offering("b", "on-demand", 11).offering("c", "on-demand", 12);
    f.pool("default");
    f
}

/// With fewer zones than `minDomains` a spread lets in as many as its skew, and those that it counts without keeping it
/// may be as many as they like, if they come later: whatever their priority, nothing but the order keeps anybody out.
#[test]
fn pods_that_a_spread_only_counts_come_after_those_that_keep_it_whatever_their_priority() {
    for priority in [-10, 0, 10] {
        let mut f = three_zones();
        for index in 0..2 {
            let pod = f.pod(&format!("spread-{index}")).requests(1500, gib(1)).label("app", "web");
            pod.select(ZONE, "a").spread(ZONE, 2, "web").but(|spread, _| spread.min_domains = Some(4));
        }
        for index in 0..2 {
            let pod = f.pod(&format!("counted-{index}")).requests(3000, gib(1)).label("app", "web").priority(priority);
            pod.select(ZONE, "a").away_from(HOST, "web");
        }
        let snapshot = f.snapshot();
        let plan = render(&plan(&snapshot), &snapshot);
        assert!(plan.ends_with("then [counted-0, counted-1]\n"), "{priority}: {plan}");
    }
}

/// All pods of the first zone are needed there before the spread can go on in the others, and so is one of the
/// second's.
#[test]
fn no_more_pods_come_later_than_a_domain_has_too_many_of() {
    let mut f = three_zones();
    for zone in ["b", "c"] {
        for index in 0..2 {
            let pod = f.pod(&format!("spread-{zone}-{index}")).requests(900, gib(1)).label("app", "web");
            let pod = pod.select(ZONE, zone).spread(ZONE, 1, "web");
            pod.but(|spread, _| spread.node_affinity_policy = NodeInclusionPolicy::Ignore);
        }
    }
    for (zone, pods) in [("a", 4), ("b", 5)] {
        for index in 0..pods {
            f.pod(&format!("{zone}-{index}")).requests(3500, gib(1)).label("app", "web").select(ZONE, zone);
        }
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [a-0]
        machine default-1: small/a/on-demand $0.00000001/h types [small] pods [a-1]
        machine default-2: small/a/on-demand $0.00000001/h types [small] pods [a-2]
        machine default-3: small/a/on-demand $0.00000001/h types [small] pods [a-3]
        machine default-4: small/b/on-demand $0.000000011/h types [small] pods [b-0]
        machine default-5: small/b/on-demand $0.000000011/h types [small] pods [b-1]
        machine default-6: small/b/on-demand $0.000000011/h types [small] pods [b-2]
        machine default-7: small/b/on-demand $0.000000011/h types [small] pods [b-3]
        machine default-8: small/b/on-demand $0.000000011/h types [small] pods [b-4]
        machine default-9: small/c/on-demand $0.000000012/h types [small] pods [spread-c-0, spread-c-1]
        machine default-10: small/b/on-demand $0.000000011/h types [small] pods [spread-b-0, spread-b-1]
        then [b-1, b-2, b-3, b-4]
    "#]],
    );
}

/// Each of two spreads counts the pods of the other and lets one of them in; so the last to come is one that the other
/// no longer has to look at.
#[test]
fn where_spreads_count_the_pods_of_each_other_one_pod_has_no_place_whichever_comes_last() {
    let mut f = three_zones();
    for (app, other) in [("x", "y"), ("y", "x")] {
        for index in 0..2 {
            let pod = f.pod(&format!("{app}-{index}")).requests(1000, gib(1)).label("app", app).select(ZONE, "a");
            pod.spread(ZONE, 1, other).but(|spread, _| spread.min_domains = Some(4));
        }
    }
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [x-0, x-1, y-0]
            then [x-1]
            refused y-1 (DoesNotFit): nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1, minDomains 4)
        "#]],
    );
}

/// The zone of the open node has to get both pods that are spread before the others, which want to be near to them and
/// would come to that node with the first: nobody can keep them out. A new machine is held until it is their turn.
#[test]
fn pods_that_come_after_others_are_not_planned_onto_a_node_that_is_open() {
    let mut f = three_zones();
    f.node("open").allocatable(4000, gib(8)).label(ZONE, "a").label(HOST, "open");
    for index in 0..2 {
        let pod = f.pod(&format!("spread-{index}")).requests(2500, gib(1)).label("app", "web");
        pod.select(ZONE, "a").spread(ZONE, 2, "web").but(|spread, _| spread.min_domains = Some(4));
    }
    for index in 0..3 {
        f.pod(&format!("counted-{index}"))
            .requests(500, gib(1))
            .label("app", "web")
            .select(ZONE, "a")
            .near(ZONE, "web");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [counted-0, counted-1, counted-2, spread-1]
        node open: [spread-0]
        then [counted-0, counted-1, counted-2]
    "#]],
    );
}
