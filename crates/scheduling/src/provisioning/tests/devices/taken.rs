//! Devices that are taken before anything is planned, though nobody has published them or said whose they are.

use expect_test::expect;
use serde_json::json;

use dra_sched::PoolScope::Domain;

use super::{GPU, NET, gpus};
use crate::provisioning::{
    plan,
    tests::{
        check,
        fixture::{Fixture, exactly, gib},
    },
};

const ZONE: &str = api::labels::ZONE;

/// A node with two GPUs, and pods that want one each; no machine has any.
fn two_gpus(pods: usize) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("n1").allocatable(8000, gib(16));
    f.slice("n1", GPU, ("nodeName", "n1".into()), 2);
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    for index in 0..pods {
        f.pod(&format!("a-{index}")).requests(1000, gib(1)).claims_from("one");
    }
    f
}

#[test]
fn devices_of_a_nominated_pod_are_its_own_before_its_claim_is_allocated() {
    let mut f = two_gpus(2);
    f.pod("soon").requests(1000, gib(1)).claims_from("one").nominated();
    check(
        &f,
        expect![[r#"
            node n1: [a-0]
            refused a-1 (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim one, request r: 0 of 2 devices are usable, 1 wanted; 2 are allocated); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); needs gpu.example.com (claim one, request r); none of 1 instance types has a template for it; a NodeOverlay can say what its driver will publish
        "#]],
    );
}

#[test]
fn what_a_nominated_pods_devices_cost_of_the_node_is_gone() {
    let with_cost = |milli_cpu: i64| {
        let mut f = two_gpus(0);
        let costs = json!({"cpu": {"allocationMultiplier": "5"}});
        let device = |name: &str| json!({"name": name, "nodeAllocatableResourceMappings": costs});
        f.republish("n1", &json!([device("d0"), device("d1")]));
        f.pod("soon").requests(1000, gib(1)).claims_from("one").nominated();
        f.claim_template("none", &json!({"requests": [exactly("r", GPU, 9)]}));
        f.pod("asks").requests(1, gib(1)).claims_from("none");
        f.pod("web").requests(milli_cpu, gib(1)).select("kubernetes.io/hostname", "n1");
        let snapshot = f.snapshot();
        plan(&snapshot).existing.len()
    };
    // Eight, less one that it requests and five that its device costs.
    assert_eq!((with_cost(2000), with_cost(2001)), (1, 0));
}

#[test]
fn a_claim_that_a_nominated_pod_will_have_allocated_is_there_for_those_that_share_it() {
    let mut f = two_gpus(1);
    f.resource_claim("both", &json!({"requests": [exactly("r", GPU, 2)]}), &json!({}));
    f.pod("soon").requests(1000, gib(1)).claims("both").nominated();
    f.pod("shares").requests(1000, gib(1)).claims("both");
    check(
        &f,
        expect![[r#"
            node n1: [shares]
            refused a-0 (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim one, request r: 0 of 2 devices are usable, 1 wanted; 2 are allocated); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); needs gpu.example.com (claim one, request r); none of 1 instance types has a template for it; a NodeOverlay can say what its driver will publish
        "#]],
    );
}

#[test]
fn a_pod_whose_extended_resources_have_their_claim_already_keeps_its_device_until_it_is_bound() {
    let with = |nominated: bool| {
        let mut f = two_gpus(0);
        f.device_class(GPU, Some("example.com/gpu"));
        f.extended_claim("binds", ("n1", GPU), (0, 1));
        let pod = f.pod("binds").requests(1000, gib(1)).extended("example.com/gpu", 1);
        if nominated {
            pod.nominated();
        }
        f.pod("other").requests(1000, gib(1)).extended("example.com/gpu", 1);
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        let placed = made.existing.iter().flat_map(|it| &it.pods);
        let mut placed: Vec<_> = placed.map(|pod| snapshot.pods[*pod].pod.name.name.to_string()).collect();
        placed.sort_unstable();
        (placed, made.refusals.len())
    };
    assert_eq!(with(false), (vec!["binds".to_owned(), "other".to_owned()], 0));
    assert_eq!(with(true), (vec!["other".to_owned()], 0));
}

#[test]
fn a_nominated_pod_takes_a_device_of_a_machine_whose_slices_are_not_there_yet() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.in_flight("coming", "gpu-2", 8000);
    f.pod("soon").requests(100, gib(1)).claims_from("one").nominated();
    for index in 0..2 {
        f.pod(&format!("a-{index}")).requests(100, gib(1)).claims_from("one");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a-1]
            node coming: [a-0] waits for [gpu.example.com]
        "#]],
    );
}

#[test]
fn a_nominated_pod_takes_a_device_of_its_zone() {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("net", 4, 16).offering("a", "on-demand", 10).devices_for_nodes(NET, 1, Domain, &[ZONE]);
    f.pool("default");
    f.node("n1").allocatable(8000, gib(16)).label(ZONE, "a");
    f.slice_for("net-a", NET, (ZONE, "a"), 1);
    f.claim_template("net", &json!({"requests": [exactly("r", NET, 1)]}));
    f.pod("soon").requests(1000, gib(1)).claims_from("net").nominated();
    f.pod("late").requests(1000, gib(1)).claims_from("net");
    check(
        &f,
        expect![[r#"
            refused late (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (claim net, request r: 0 of 1 devices are usable, 1 wanted; 1 is allocated); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim net, request r: 0 of 1 devices are usable, 1 wanted; 1 is allocated); needs net.example.com (claim net, request r); 1 of 1 instance types has a template for it; 1 has too few that are not taken; nearest: on net net.example.com/net-a/d0 is allocated
        "#]],
    );
}

/// Machines that bring their zone a pool of two devices, of which a pod of that zone has one.
fn one_of_two_is_allocated(device: &str) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("net", 4, 16).offering("a", "on-demand", 10).devices_for_nodes(NET, 2, Domain, &[ZONE]);
    f.pool("default");
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]});
    let result = json!({"request": "r", "driver": NET, "pool": "pool-of-a", "device": device});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}});
    let net = json!({"requests": [exactly("r", NET, 1)]});
    f.resource_claim("held", &net, &json!({"allocation": allocation}));
    f.claim_template("net", &net);
    f.pod("a").requests(1000, gib(1)).claims_from("net");
    f.pod("b").requests(1000, gib(1)).claims_from("net");
    f
}

#[test]
fn what_is_allocated_of_a_zones_pool_counts_before_the_pool_is_there() {
    let by_name = one_of_two_is_allocated("d0");
    check(
        &by_name,
        expect![[r#"
        machine default-0: net/a/on-demand $0.00000001/h types [net] devices [1 net.example.com] pods [a]
        refused b (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim net, request r: 0 of 2 devices are usable, 1 wanted; 2 are allocated); needs net.example.com (claim net, request r); 1 of 1 instance types has a template for it; 1 has too few that are not taken; nearest: on net net.example.com/domain-a/d0 is allocated
    "#]],
    );
    let other = one_of_two_is_allocated("of-another-name");
    check(
        &other,
        expect![[r#"
        machine default-0: net/a/on-demand $0.00000001/h types [net] devices [1 net.example.com] pods [a]
        refused b (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim net, request r: 0 of 2 devices are usable, 1 wanted; 2 are allocated); needs net.example.com (claim net, request r); 1 of 1 instance types has a template for it; 1 has too few that are not taken; nearest: on net net.example.com/domain-a/d0 is allocated
    "#]],
    );
}

#[test]
fn what_is_allocated_of_a_zones_pool_counts_while_the_pool_is_published_anew() {
    let mut f = one_of_two_is_allocated("d0");
    f.slice_for("pool-of-a", NET, (ZONE, "a"), 2);
    f.is_one_of("pool-of-a", 2);
    check(
        &f,
        expect![[r#"
            machine default-0: net/a/on-demand $0.00000001/h types [net] devices [1 net.example.com] pods [a]
            refused b (OutOfBudget): machines of other pods may bring devices for it, and not every order of them was tried within 1000 steps; nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim net, request r: 0 of 2 devices are usable, 1 wanted; 2 are allocated); needs net.example.com (claim net, request r); 1 of 1 instance types has a template for it; 1 has too few that are not taken; nearest: on net net.example.com/domain-a/d0 is allocated
        "#]],
    );
}

/// [`two_gpus`], both of them of a claim that these pods use, of which some end soon.
fn both_held(consumers: &[&str], ending: &[&str]) -> Fixture {
    let mut f = two_gpus(0);
    let results: Vec<_> = ["d0", "d1"]
        .iter()
        .map(|device| json!({"request": "r", "driver": GPU, "pool": "n1", "device": device}))
        .collect();
    let consumer = |name: &&str| json!({"resource": "pods", "name": name, "uid": name});
    let consumers_of_claim: Vec<_> = consumers.iter().map(consumer).collect();
    let status = json!({"allocation": {"devices": {"results": results}}, "reservedFor": consumers_of_claim});
    f.resource_claim("held", &json!({"requests": [exactly("r", GPU, 2)]}), &status);
    for name in consumers {
        let pod = f.pod(name).requests(1000, gib(1)).claims("held");
        if ending.contains(name) { pod.ends_soon().runs() } else { pod.runs() }
    }
    f
}

#[test]
fn devices_of_a_claim_are_free_if_all_who_use_it_end_before_a_machine_could_be_there() {
    for (consumers, ending, placed) in [
        (vec!["x"], vec!["x"], true),
        (vec!["x", "y"], vec!["x", "y"], true),
        (vec!["x", "y"], vec!["x"], false),
        (vec!["x"], vec![], false),
        // Allocated, and reserved for nobody: the scheduler takes it back for its own pods alone.
        (vec![], vec!["x"], false),
    ] {
        let mut f = both_held(&consumers, &ending);
        f.pod("waits").requests(1000, gib(1)).claims_from("one");
        let made = plan(&f.snapshot());
        assert_eq!((made.existing.len(), made.refusals.len()), if placed { (1, 0) } else { (0, 1) }, "{consumers:?}");
        assert!(made.machines.is_empty());
    }
}

#[test]
fn a_claim_that_somebody_waits_with_stays_allocated_though_those_who_use_it_end() {
    // The scheduler lets `joins` in beside `x`, and then the claim is never given back.
    let mut f = both_held(&["x"], &["x"]);
    f.pod("joins").requests(1000, gib(1)).claims("held");
    f.pod("waits").requests(1000, gib(1)).claims_from("one");
    let snapshot = f.snapshot();
    let made = plan(&snapshot);
    let refused: Vec<_> = made.refusals.iter().map(|it| &*snapshot.pods[it.pod].pod.name.name).collect();
    assert_eq!(refused, ["waits"]);
    assert_eq!(made.existing.iter().flat_map(|it| &it.pods).count(), 1);
}
