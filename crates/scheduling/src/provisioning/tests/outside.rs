//! Machines for others stay out of domains that they would add to a spread.

use std::sync::Arc;

use expect_test::expect;
use model::{Operator, Requirement, Requirements, pod::NodeInclusionPolicy};

use super::{
    check,
    fixture::{Fixture, gib},
};

const ZONE: &str = api::labels::ZONE;

/// Three pods, each with a claim that keeps it in one of two zones, spread over the zones of nodes of type `arm`.
fn spread_in_two_zones(f: &mut Fixture) {
    for index in 0..3 {
        let claim = format!("data-{index}");
        f.waiting_claim(&claim, "disk.example.com");
        let pod = f.pod(&format!("web-{index}")).requests(3000, gib(1)).label("app", "web").claim(&claim);
        pod.select(api::labels::INSTANCE_TYPE, "arm").spread(ZONE, 1, "web");
    }
    let (names, volumes) = f.volumes();
    let allowed = Requirement::parse(ZONE, Operator::In, ["a", "b"], names).unwrap();
    for class in volumes.classes.values_mut() {
        Arc::make_mut(class).allowed_topologies = vec![Requirements::from_requirements([allowed.clone()], names)];
    }
}

fn two_types(intel_price: i64) -> Fixture {
    let mut f = Fixture::new();
    for (name, price) in [("arm", 10), ("intel", intel_price)] {
        f.instance_type(name, 4, 8);
        for zone in ["a", "b", "c"] {
            f.offering(zone, "on-demand", price);
        }
    }
    f.pool("default");
    f
}

/// In zone c, a machine of type `arm` would be a third domain, and the third pod would have no place.
#[test]
fn a_machine_for_others_is_of_a_type_that_does_not_count_where_pods_would_be_left_over() {
    let mut f = two_types(10);
    spread_in_two_zones(&mut f);
    f.pod("other").requests(3000, gib(1)).select(ZONE, "c");
    check(
        &f,
        expect![[r#"
        machine default-0: intel/c/on-demand $0.00000001/h types [intel] pods [other]
        machine default-1: arm/a/on-demand $0.00000001/h types [arm] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm] pods [web-1]
        machine default-3: arm/a/on-demand $0.00000001/h types [arm] pods [web-2]
    "#]],
    );
}

#[test]
fn that_may_cost_more_since_a_place_for_each_pod_comes_first() {
    let mut f = two_types(11);
    spread_in_two_zones(&mut f);
    f.pod("other").requests(3000, gib(1)).select(ZONE, "c");
    check(
        &f,
        expect![[r#"
        machine default-0: intel/c/on-demand $0.000000011/h types [intel] pods [other]
        machine default-1: arm/a/on-demand $0.00000001/h types [arm] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm] pods [web-1]
        machine default-3: arm/a/on-demand $0.00000001/h types [arm] pods [web-2]
    "#]],
    );
}

#[test]
fn nothing_is_decided_where_all_pods_have_places_anyway() {
    let mut f = two_types(10);
    spread_in_two_zones(&mut f);
    f.pod("other").requests(3000, gib(1)).select(ZONE, "c");
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "c").label(api::labels::INSTANCE_TYPE, "arm");
    f.pod("web-3").requests(3000, gib(1)).label("app", "web").runs();
    check(
        &f,
        expect![[r#"
        machine default-0: arm/c/on-demand $0.00000001/h types [arm, intel] pods [other]
        machine default-1: arm/a/on-demand $0.00000001/h types [arm] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm] pods [web-1]
        machine default-3: arm/a/on-demand $0.00000001/h types [arm] pods [web-2]
    "#]],
    );
}

/// Zones where the spread pods cannot go count too if their node affinity is ignored.
#[test]
fn a_machine_for_others_is_in_a_zone_that_counts_anyway_where_pods_would_be_left_over() {
    let mut f = two_types(10);
    for index in 0..3 {
        let pod = f.pod(&format!("web-{index}")).requests(3000, gib(1)).label("app", "web");
        let pod = pod.term(&[(ZONE, "In", &["b", "c"])]).spread(ZONE, 1, "web");
        pod.but(|spread, _| spread.node_affinity_policy = NodeInclusionPolicy::Ignore);
    }
    f.pod("other").requests(3000, gib(1));
    check(
        &f,
        expect![[r#"
        machine default-0: arm/b/on-demand $0.00000001/h types [arm, intel] pods [other]
        machine default-1: arm/b/on-demand $0.00000001/h types [arm, intel] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm, intel] pods [web-1]
        machine default-3: arm/c/on-demand $0.00000001/h types [arm, intel] pods [web-2]
    "#]],
    );
}

/// A pod with a spread of its own has its zone decided when its machine is opened, so it is opened where it does no
/// harm.
#[test]
fn a_machine_of_a_pod_that_is_spread_itself_is_in_a_zone_that_counts_anyway() {
    let mut f = two_types(10);
    for index in 0..3 {
        let pod = f.pod(&format!("web-{index}")).requests(3000, gib(1)).label("app", "web");
        let pod = pod.term(&[(ZONE, "In", &["b", "c"])]).spread(ZONE, 1, "web");
        pod.but(|spread, _| spread.node_affinity_policy = NodeInclusionPolicy::Ignore);
    }
    f.pod("other").requests(3000, gib(1)).label("app", "other").spread(ZONE, 1, "other");
    check(
        &f,
        expect![[r#"
        machine default-0: arm/b/on-demand $0.00000001/h types [arm, intel] pods [other]
        machine default-1: arm/b/on-demand $0.00000001/h types [arm, intel] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm, intel] pods [web-1]
        machine default-3: arm/c/on-demand $0.00000001/h types [arm, intel] pods [web-2]
    "#]],
    );
}

/// Here it shares the machine of pods that may be anywhere.
#[test]
fn a_pod_that_is_spread_itself_does_not_take_the_machine_of_others_to_a_zone_that_would_count() {
    let mut f = two_types(10);
    for index in 0..3 {
        let pod = f.pod(&format!("web-{index}")).requests(3000, gib(1)).label("app", "web");
        let pod = pod.term(&[(ZONE, "In", &["b", "c"])]).spread(ZONE, 1, "web");
        pod.but(|spread, _| spread.node_affinity_policy = NodeInclusionPolicy::Ignore);
    }
    f.pod("anywhere").requests(3500, gib(1));
    f.pod("other").requests(200, gib(1)).label("app", "other").spread(ZONE, 1, "other");
    check(
        &f,
        expect![[r#"
        machine default-0: arm/b/on-demand $0.00000001/h types [arm, intel] pods [anywhere, other]
        machine default-1: arm/b/on-demand $0.00000001/h types [arm, intel] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm, intel] pods [web-1]
        machine default-3: arm/c/on-demand $0.00000001/h types [arm, intel] pods [web-2]
    "#]],
    );
}

/// Nor can a machine stay outside that has to be in the third zone whatever it is.
#[test]
fn a_machine_that_counts_whatever_it_is_stays_as_it_is() {
    let mut f = two_types(10);
    spread_in_two_zones(&mut f);
    f.pod("other").requests(3000, gib(1)).select(ZONE, "c").select(api::labels::INSTANCE_TYPE, "arm");
    check(
        &f,
        expect![[r#"
        machine default-0: arm/c/on-demand $0.00000001/h types [arm] pods [other]
        machine default-1: arm/a/on-demand $0.00000001/h types [arm] pods [web-0]
        machine default-2: arm/b/on-demand $0.00000001/h types [arm] pods [web-1]
        refused web-2 (DoesNotFit): nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1)
    "#]],
    );
}
