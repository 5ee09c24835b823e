//! Affinity to pods of nodes that are being deleted.

use expect_test::expect;

use super::{
    check,
    fixture::{Fixture, gib},
};

const ZONE: &str = api::labels::ZONE;

/// One size in zone `a`, dearer in `b`; a node in `b` is being deleted.
fn with_a_node_that_goes() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8).offering("a", "on-demand", 10).offering("b", "on-demand", 11);
    f.pool("default");
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "b").deleting();
    f
}

#[test]
fn nobody_is_placed_near_a_pod_that_ends_with_its_node() {
    let mut f = with_a_node_that_goes();
    f.pod("web").label("app", "web").going().runs();
    f.pod("agent").label("app", "web").daemon().runs();
    f.pod("client").requests(1000, gib(1)).near(ZONE, "web");
    check(
        &f,
        expect![[r#"
        refused client (DoesNotFit): none of 1 existing nodes fits: 1 takes no pods (deleting, cordoned or not ready); nodepool/default: machines that would hold it are excluded by required pod affinity over topology.kubernetes.io/zone (pods with app In [web])
    "#]],
    );
}

#[test]
fn a_pod_that_nobody_may_evict_is_there_to_be_near_to() {
    let mut f = with_a_node_that_goes();
    f.pod("web").label("app", "web").runs();
    f.pod("client").requests(1000, gib(1)).near(ZONE, "web");
    check(
        &f,
        expect![[r#"
        machine default-0: small/b/on-demand $0.000000011/h types [small] pods [client]
    "#]],
    );
}

#[test]
fn pods_that_want_to_be_together_follow_those_that_are_leaving_while_these_are_there() {
    let mut f = with_a_node_that_goes();
    f.pod("old-ring").label("app", "ring").going().runs();
    f.pod("ring").requests(1000, gib(1)).label("app", "ring").near(ZONE, "ring");
    check(
        &f,
        expect![[r#"
        machine default-0: small/b/on-demand $0.000000011/h types [small] pods [ring]
    "#]],
    );
}
