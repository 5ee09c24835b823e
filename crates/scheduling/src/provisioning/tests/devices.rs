//! Pods with claims: which machines they get, what they share, and why they get none.

use std::collections::BTreeMap;

use expect_test::expect;
use proptest::prelude::*;
use serde_json::json;

use dra_sched::PoolScope::{Domain, Machine};

use super::{
    check,
    fixture::{Fixture, exactly, gib},
};
use crate::{plan::Verdict, provisioning::plan, reason::Reason};

const GPU: &str = "gpu.example.com";
const NET: &str = "net.example.com";
const ROOT: &str = "resource.kubernetes.io/pcieRoot";
const ZONE: &str = api::labels::ZONE;

/// Machines with no, two and eight GPUs in zone a, pairs of GPUs under one PCIe root.
fn gpus() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None).device_class(NET, None);
    f.instance_type("plain", 16, 64).offering("a", "on-demand", 10);
    f.instance_type("gpu-2", 8, 32).offering("a", "on-demand", 100);
    let pair = json!([{"name": "d0"}, {"name": "d1"}]);
    f.devices(GPU, &pair, &[("d0", ROOT, 0), ("d1", ROOT, 1)]);
    f.instance_type("gpu-8", 64, 256).offering("a", "on-demand", 500);
    let eight: Vec<_> = (0..8).map(|index| json!({"name": format!("d{index}")})).collect();
    let names: Vec<String> = (0..8).map(|index| format!("d{index}")).collect();
    let bound: Vec<(&str, &str, u32)> =
        names.iter().zip(0..).map(|(name, index)| (name.as_str(), ROOT, index / 2)).collect();
    f.devices(GPU, &eight.into(), &bound);
    f.pool("default");
    f
}

#[test]
fn a_pod_with_a_claim_gets_the_cheapest_machine_that_has_the_devices() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("a").requests(1000, gib(1)).claims_from("one");
    f.pod("web").requests(1000, gib(1));
    check(
        &f,
        expect![[r#"
            machine default-0: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a, web]
        "#]],
    );
}

#[test]
fn devices_that_have_to_be_on_one_pcie_root_make_the_machine_larger() {
    let mut f = gpus();
    let together = json!([{"matchAttribute": ROOT}]);
    f.claim_template("pair", &json!({"requests": [exactly("r", GPU, 2)], "constraints": together}));
    f.pod("a").requests(1000, gib(1)).claims_from("pair");
    check(
        &f,
        expect![[r#"
            machine default-0: gpu-8/a/on-demand $0.0000005/h types [gpu-8] devices [2 gpu.example.com] pods [a]
        "#]],
    );
}

#[test]
fn a_class_fills_machines_by_devices_and_not_by_cpu_alone() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    for index in 0..5 {
        f.pod(&format!("a-{index}")).requests(100, gib(1)).claims_from("one");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [2 gpu.example.com] pods [a-0, a-1]
            machine default-1: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [2 gpu.example.com] pods [a-2, a-3]
            machine default-2: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a-4]
        "#]],
    );
}

#[test]
fn what_no_machine_has_is_refused_with_what_each_request_found() {
    let mut f = gpus();
    f.claim_template("nine", &json!({"requests": [exactly("r", GPU, 9)]}));
    f.pod("a").requests(1000, gib(1)).claims_from("nine");
    f.pod("b").requests(1000, gib(1)).claims_from("missing");
    check(
        &f,
        expect![[r#"
            refused a (DoesNotFit): nodepool/default: none of 3 instance types fits: 3 without the devices it claims (claim nine, request r: 8 of 8 devices are usable, 9 wanted; or claim nine, request r: 2 of 2 devices are usable, 9 wanted; or claim nine, request r: 0 of 0 devices are usable, 9 wanted); needs 9 of gpu.example.com (claim nine, request r); 2 of 3 instance types have a template for it; 2 have too few of them
            refused b (DoesNotFit): resource claim template default/missing does not exist
        "#]],
    );
}

#[test]
fn a_device_that_one_zone_has_pins_the_machine_to_it_whatever_the_price() {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 30);
    f.slice_for("net-b", NET, (ZONE, "b"), 1);
    f.pool("default");
    f.claim_template("net", &json!({"requests": [exactly("r", NET, 1)]}));
    f.pod("networked").requests(1000, gib(1)).claims_from("net");
    f.pod("second").requests(1000, gib(1)).claims_from("net");
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.00000003/h types [plain] devices [1 net.example.com] pods [networked]
        refused second (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim net, request r: 0 of 0 devices are usable, 1 wanted; or claim net, request r: 0 of 1 devices are usable, 1 wanted; 1 is allocated)
    "#]],
    );
}

#[test]
fn of_zones_that_have_the_device_the_cheaper_one_is_taken() {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16);
    for (zone, price) in [("a", 50), ("b", 40), ("c", 20)] {
        f.offering(zone, "on-demand", price);
    }
    f.slice_for("net-a", NET, (ZONE, "a"), 3).slice_for("net-b", NET, (ZONE, "b"), 3);
    f.pool("default");
    f.claim_template("net", &json!({"requests": [exactly("r", NET, 1)]}));
    f.pod("networked").requests(1000, gib(1)).claims_from("net");
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.00000004/h types [plain] devices [1 net.example.com] pods [networked]
    "#]],
    );
}

#[test]
fn pods_that_share_a_claim_are_planned_onto_one_machine() {
    let mut f = gpus();
    f.resource_claim("shared", &json!({"requests": [exactly("r", GPU, 2)]}), &json!({}));
    for index in 0..3 {
        f.pod(&format!("a-{index}")).requests(1000, gib(1)).claims("shared");
    }
    f.pod("other").requests(2000, gib(1)).claims("shared");
    check(
        &f,
        expect![[r#"
        machine default-0: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [2 gpu.example.com] pods [a-0, a-1, a-2, other]
    "#]],
    );
}

#[test]
fn a_claim_that_is_allocated_ties_its_pods_to_its_nodes() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("n1").allocatable(4000, gib(16));
    f.node("n2").allocatable(4000, gib(16)).label("gpu", "yes");
    f.slice("n2-gpus", GPU, ("nodeName", "n2".into()), 1);
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]});
    let result = json!({"request": "r", "driver": GPU, "pool": "n2-gpus", "device": "d0"});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}});
    f.resource_claim("mine", &json!({"requests": [exactly("r", GPU, 1)]}), &json!({"allocation": allocation}));
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("a").requests(1000, gib(1)).claims("mine");
    f.pod("b").requests(1000, gib(1)).claims_from("one");
    check(
        &f,
        expect![[r#"
        node n2: [a]
        refused b (DoesNotFit): of 2 existing nodes 2 do not have the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted)
    "#]],
    );
}

#[test]
fn devices_of_nodes_and_of_machines_on_their_way_are_used_first() {
    let mut f = gpus();
    f.node("n1").allocatable(4000, gib(16));
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 1);
    f.in_flight("coming", "gpu-2", 8000);
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    for index in 0..4 {
        f.pod(&format!("a-{index}")).requests(100, gib(1)).claims_from("one");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a-3]
        node coming: [a-1, a-2]
        node n1: [a-0]
    "#]],
    );
}

#[test]
fn extended_resources_come_from_dra_where_no_device_plugin_has_them() {
    let mut f = Fixture::new();
    f.device_class(GPU, Some("example.com/gpu"));
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.instance_type("gpu", 4, 16).offering("a", "on-demand", 100);
    f.plain_devices(GPU, 2);
    f.pool("default");
    f.pod("a").requests(1000, gib(1)).extended("example.com/gpu", 2);
    f.pod("b").requests(1000, gib(1)).extended("example.com/gpu", 3);
    check(
        &f,
        expect![[r#"
            machine default-0: gpu/a/on-demand $0.0000001/h types [gpu] devices [2 gpu.example.com] pods [a]
            refused b (DoesNotFit): nodepool/default: none of 2 instance types fits: 2 without the devices it claims (claim <extended-resources>, request container-0-request-0: 2 of 2 devices are usable, 3 wanted; or claim <extended-resources>, request container-0-request-0: 0 of 0 devices are usable, 3 wanted); needs 3 of gpu.example.com (claim <extended-resources>, request container-0-request-0); 1 of 2 instance types has a template for it; 1 has too few of them
        "#]],
    );
}

#[test]
fn a_later_alternative_is_planned_only_if_no_machine_has_an_earlier_one() {
    let mut f = Fixture::new();
    f.device_class(GPU, None).device_class(NET, None);
    f.instance_type("cheap", 4, 16).offering("a", "on-demand", 10);
    f.plain_devices(NET, 1);
    f.instance_type("dear", 4, 16).offering("a", "on-demand", 100);
    f.plain_devices(GPU, 1);
    f.pool("default");
    let of = |class: &str| json!({"name": class.split('.').next(), "deviceClassName": class});
    f.claim_template("any", &json!({"requests": [{"name": "r", "firstAvailable": [of(GPU), of(NET)]}]}));
    let two = |class: &str| json!({"name": class.split('.').next(), "deviceClassName": class, "count": 2});
    f.claim_template("later", &json!({"requests": [{"name": "r", "firstAvailable": [two(GPU), of(NET)]}]}));
    f.pod("first").requests(1000, gib(1)).claims_from("any");
    f.pod("last").requests(1000, gib(1)).claims_from("later");
    check(
        &f,
        expect![[r#"
        machine default-0: dear/a/on-demand $0.0000001/h types [dear] devices [1 gpu.example.com] pods [first]
        machine default-1: cheap/a/on-demand $0.00000001/h types [cheap] devices [1 net.example.com] pods [last]
    "#]],
    );
}

#[test]
fn by_price_the_cheapest_machine_that_gives_any_alternative_is_planned() {
    let mut f = Fixture::new();
    f.device_class(GPU, None).device_class(NET, None);
    f.instance_type("cheap", 4, 16).offering("a", "on-demand", 10);
    f.plain_devices(NET, 1);
    f.instance_type("dear", 4, 16).offering("a", "on-demand", 100);
    f.plain_devices(GPU, 1);
    f.pool("default");
    let of = |class: &str| json!({"name": class.split('.').next(), "deviceClassName": class});
    f.claim_template("any", &json!({"requests": [{"name": "r", "firstAvailable": [of(GPU), of(NET)]}]}));
    f.pod("first").requests(1000, gib(1)).claims_from("any");
    f.cheapest_alternative();
    check(
        &f,
        expect![[r#"
        machine default-0: cheap/a/on-demand $0.00000001/h types [cheap] devices [1 net.example.com] pods [first]
    "#]],
    );
}

#[test]
fn what_devices_cost_of_the_machine_counts_like_requests() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    for (name, cpu, price) in [("small", 4, 10), ("large", 8, 50)] {
        f.instance_type(name, cpu, 16).offering("a", "on-demand", price);
        let costs = json!({"cpu": {"allocationMultiplier": "3"}});
        f.devices(GPU, &json!([{"name": "d0", "nodeAllocatableResourceMappings": costs}]), &[]);
    }
    f.pool("default");
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("a").requests(2000, gib(1)).claims_from("one");
    check(
        &f,
        expect![[r#"
        machine default-0: large/a/on-demand $0.00000005/h types [large] devices [1 gpu.example.com] pods [a]
    "#]],
    );
}

#[test]
fn a_claim_whose_search_takes_too_long_is_undecided_and_others_are_planned() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("a").requests(1000, gib(1)).claims_from("one");
    f.pod("web").requests(1000, gib(1));
    f.device_steps(0);
    check(
        &f,
        expect![[r#"
            machine default-0: plain/a/on-demand $0.00000001/h types [plain, gpu-2, gpu-8] pods [web]
            refused a (OutOfBudget): the search for its devices ended without an answer, 0 steps after the plan was begun; nodepool/default: none of 3 instance types fits: 3 without the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); needs gpu.example.com (claim one, request r); 2 of 3 instance types have a template for it; 2 have them, and the plan did not settle on that
        "#]],
    );
}

#[test]
fn a_claim_that_the_controller_has_made_plans_like_one_still_to_be_made() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("a").requests(1000, gib(1)).claims_from("one");
    let before = f.snapshot();
    let without = super::fixture::render(&plan(&before), &before);
    f.generated_claim("one", "a", &json!({"requests": [exactly("r", GPU, 1)]}));
    let after = f.snapshot();
    assert_eq!(super::fixture::render(&plan(&after), &after), without);
    assert_eq!(after.devices.map(|devices| devices.objects.claims.len()), Some(1));
}

/// A machine with a large and a small GPU, and claims for any and for a large one.
fn mixed() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("mixed", 8, 32).offering("a", "on-demand", 100);
    let device = |name: &str, size: &str| json!({"name": name, "attributes": {"size": {"string": size}}});
    f.devices(GPU, &json!([device("d0", "large"), device("d1", "small")]), &[]);
    f.pool("default");
    f.claim_template("any", &json!({"requests": [exactly("r", GPU, 1)]}));
    let mut large = exactly("r", GPU, 1);
    let expression = format!("device.attributes[\"{GPU}\"].size == \"large\"");
    large["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    f.claim_template("large", &json!({"requests": [large]}));
    f
}

#[test]
fn claims_that_could_take_each_others_devices_are_kept_apart_and_the_plan_says_what_that_costs() {
    let mut f = mixed();
    f.pod("picky").requests(2000, gib(1)).claims_from("large");
    f.pod("any").requests(1000, gib(1)).claims_from("any");
    check(
        &f,
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed] devices [1 gpu.example.com] pods [picky]
        machine default-1: mixed/a/on-demand $0.0000001/h types [mixed] devices [1 gpu.example.com] pods [any]
    "#]],
    );
    let snapshot = f.snapshot();
    assert_eq!(plan(&snapshot).kept_apart.map(|price| price.0), Some(100));
}

#[test]
fn claims_that_every_order_serves_share_a_machine_and_nothing_is_said() {
    let mut f = mixed();
    f.claim_template("another", &json!({"requests": [exactly("other", GPU, 1)]}));
    f.pod("one").requests(2000, gib(1)).claims_from("any");
    f.pod("other").requests(1000, gib(1)).claims_from("another");
    check(
        &f,
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed] devices [2 gpu.example.com] pods [one, other]
    "#]],
    );
    assert_eq!(plan(&f.snapshot()).kept_apart, None);
}

#[test]
fn on_a_node_too_a_claim_waits_for_another_place_if_it_could_take_anothers_device() {
    let mut f = mixed();
    f.node("n1").allocatable(8000, gib(32));
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 1);
    let device = |name: &str, size: &str| json!({"name": name, "attributes": {"size": {"string": size}}});
    f.republish("n1-gpus", &json!([device("d0", "large"), device("d1", "small")]));
    f.pod("picky").requests(2000, gib(1)).claims_from("large");
    f.pod("any").requests(1000, gib(1)).claims_from("any");
    check(
        &f,
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed] devices [1 gpu.example.com] pods [any]
        node n1: [picky]
    "#]],
    );
}

#[test]
fn a_pod_that_has_to_wait_for_the_sake_of_anothers_claim_is_told_so() {
    let mut f = mixed();
    f.node("n1").allocatable(8000, gib(32)).label("here", "yes");
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 1);
    let device = |name: &str, size: &str| json!({"name": name, "attributes": {"size": {"string": size}}});
    f.republish("n1-gpus", &json!([device("d0", "large"), device("d1", "small")]));
    f.pod("picky").requests(2000, gib(1)).claims_from("large").select("here", "yes");
    f.pod("any").requests(1000, gib(1)).claims_from("any").select("here", "yes");
    check(
        &f,
        expect![[r#"
            node n1: [picky]
            refused any (DoesNotFit): of 1 existing node 1 do not have the devices it claims (the scheduler may come to the claims planned there in an order that leaves one without devices); nodepool/default: wants here In [yes], but its machines will not have that label; add it to the NodePool's labels or requirements; a machine would do if nodepool/default had here In [yes] and with other devices
        "#]],
    );
}

/// A dear type that brings two links for its zone, and a cheap one without; zone b is cheaper.
fn links(scope: dra_sched::PoolScope, count: usize) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 9);
    f.instance_type("router", 4, 16).offering("a", "on-demand", 100).offering("b", "on-demand", 90);
    f.devices_for_nodes(NET, count, scope, &[ZONE]);
    f.claim_template("link", &json!({"requests": [exactly("r", NET, 1)]}));
    f.claim_template("all", &json!({"requests": [exactly("r", NET, count)]}));
    f.pool("default");
    f
}

#[test]
fn a_pool_that_each_machine_brings_for_its_zone_serves_cheaper_machines_there() {
    let mut f = links(Machine, 3);
    for index in 0..4 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a-0]
            machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
            machine default-2: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-2]
            machine default-3: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a-3]
        "#]],
    );
}

#[test]
fn a_machine_that_nobody_else_needs_stays_free_to_land_anywhere() {
    let mut f = links(Machine, 3);
    f.pod("a").requests(3000, gib(1)).claims_from("link");
    f.pod("web").requests(3000, gib(1));
    check(
        &f,
        expect![[r#"
        machine default-0: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a]
        machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] pods [web]
    "#]],
    );
}

#[test]
fn where_claims_take_more_of_more_it_is_decided_where_machines_bring_it() {
    // Were the first machine free to land beside the second, its pods could find their links taken by the other's claim.
    for (elastic, decided) in [(false, false), (true, true)] {
        let mut f = links(Machine, 3);
        let count = |name: &str, count: usize| json!({"name": name, "deviceClassName": NET, "count": count});
        let request = match elastic {
            true => json!({"name": "r", "firstAvailable": [count("four", 4), count("two", 2)]}),
            false => exactly("r", NET, 2),
        };
        f.claim_template("some", &json!({"requests": [request]}));
        f.pod("a").requests(3000, gib(1)).claims_from("all");
        f.pod("b").requests(2000, gib(1)).claims_from("some").select(ZONE, "a");
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        assert_eq!((made.machines.len(), made.refusals.len()), (2, 0));
        let zone = snapshot.interner.find_key(ZONE).unwrap();
        let is_decided = |machine: &crate::plan::Machine| {
            machine.requirements.get(zone).is_some_and(|zones| zones.values.single_value().is_some())
        };
        assert_eq!(made.machines.iter().all(is_decided), decided);
        let in_a = |machine: &&crate::plan::Machine| &*snapshot.interner.value_arc(machine.launch.zone) == "a";
        assert_eq!(made.machines.iter().filter(in_a).count(), 1);
    }
}

#[test]
fn claims_that_take_what_anothers_machine_brings_leave_it_as_much_as_it_has_to_serve() {
    let mut f = Fixture::new();
    f.device_class(NET, None).device_class(GPU, None);
    f.instance_type("both", 4, 16).offering("a", "on-demand", 10);
    f.plain_devices(GPU, 2);
    f.devices_for_nodes(NET, 2, Machine, &[ZONE]);
    f.pool("default");
    let alternatives = [("links", NET, 2), ("gpu", GPU, 1)];
    let alternatives =
        alternatives.map(|(name, class, count)| json!({"name": name, "deviceClassName": class, "count": count}));
    f.claim_template("some", &json!({"requests": [{"name": "r", "firstAvailable": alternatives}]}));
    for index in 0..6 {
        f.pod(&format!("a-{index}")).requests(100, gib(1)).claims_from("some");
    }
    // Three on each of two machines would do if one took the links of each; but two on one could take all.
    check(
        &f,
        expect![[r#"
        machine default-0: both/a/on-demand $0.00000001/h types [both] devices [2 gpu.example.com, 2 net.example.com] pods [a-0, a-1, a-2]
        machine default-1: both/a/on-demand $0.00000001/h types [both] devices [2 net.example.com] pods [a-3]
        machine default-2: both/a/on-demand $0.00000001/h types [both] devices [2 net.example.com] pods [a-4]
        machine default-3: both/a/on-demand $0.00000001/h types [both] devices [2 net.example.com] pods [a-5]
    "#]],
    );
}

/// One GPU to a router, whose one link is for its zone, and one link for all; each large pod wants two links.
fn few_links(large: usize, small: usize) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None).device_class(GPU, None);
    f.instance_type("plain", 2, 16).offering("a", "on-demand", 10);
    f.instance_type("router", 2, 16).offering("a", "on-demand", 30);
    f.plain_devices(GPU, 1).devices_for_nodes(NET, 1, Machine, &[ZONE]);
    f.pool("default");
    f.slice("everywhere", NET, ("allNodes", true.into()), 1);
    f.claim_template("gpu", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.claim_template("links", &json!({"requests": [exactly("r", NET, 2)]}));
    for index in 0..large {
        f.pod(&format!("large-{index}")).requests(1700, gib(1)).claims_from("links");
    }
    for index in 0..small {
        f.pod(&format!("small-{index}")).requests(900, gib(1)).claims_from("gpu");
    }
    f
}

#[test]
fn room_is_searched_with_the_links_that_machines_of_later_pods_bring() {
    // Five routers and the link for all are six links: no large pod can do with a machine that brings none.
    check(
        &few_links(3, 2),
        expect![[r#"
        machine default-0: router/a/on-demand $0.00000003/h types [router] devices [1 gpu.example.com] pods [small-0]
        machine default-1: router/a/on-demand $0.00000003/h types [router] devices [1 gpu.example.com] pods [small-1]
        machine default-2: router/a/on-demand $0.00000003/h types [router] devices [2 net.example.com] pods [large-0]
        machine default-3: router/a/on-demand $0.00000003/h types [router] devices [2 net.example.com] pods [large-1]
        machine default-4: router/a/on-demand $0.00000003/h types [router] devices [2 net.example.com] pods [large-2]
    "#]],
    );
}

#[test]
fn where_machines_of_others_may_bring_devices_only_counting_proves_that_there_are_none() {
    for (large, small, expected) in [(1, 0, vec![]), (3, 1, vec![Verdict::OutOfBudget])] {
        let made = plan(&few_links(large, small).snapshot());
        assert_eq!(made.refusals.iter().map(|refusal| refusal.verdict).collect::<Vec<_>>(), expected);
    }
    // One pod has nobody beside it, and what does not fit for another reason is told so.
    let mut alone = few_links(0, 0);
    alone.claim_template("more", &json!({"requests": [exactly("r", NET, 3)]}));
    alone.pod("a").requests(1000, gib(1)).claims_from("more");
    let mut too_large = few_links(1, 1);
    too_large.pod("b").requests(5000, gib(1)).claims_from("links");
    for f in [alone, too_large] {
        let made = plan(&f.snapshot());
        assert_eq!(made.refusals.iter().map(|refusal| refusal.verdict).collect::<Vec<_>>(), [Verdict::DoesNotFit]);
    }
}

#[test]
fn a_zone_has_one_pool_of_its_own_however_many_machines_bring_it() {
    let mut f = links(Domain, 2);
    for index in 0..4 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    f.pod("b").requests(3000, gib(1)).claims_from("all").select(ZONE, "b");
    check(
        &f,
        expect![[r#"
            machine default-0: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a-0]
            machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
            machine default-2: router/a/on-demand $0.0000001/h types [router] devices [1 net.example.com] pods [a-2]
            machine default-3: plain/a/on-demand $0.00000001/h types [plain, router] devices [1 net.example.com] pods [a-3]
            refused b (DoesNotFit): nodepool/default: none of 2 instance types fits: 2 without the devices it claims (claim all, request r: 0 of 2 devices are usable, 2 wanted; 2 are allocated); needs 2 of net.example.com (claim all, request r); 2 of 2 instance types have a template for it; 2 have too few that are not taken; nearest: on plain net.example.com/domain-a/d0 is allocated
        "#]],
    );
}

#[test]
fn the_zone_that_a_pool_is_planned_for_is_the_cheapest_that_the_pods_allow() {
    for zone in ["a", "b"] {
        let mut f = links(Domain, 2);
        f.pod("link").requests(1000, gib(1)).claims_from("link");
        f.pod("zonal").requests(2000, gib(1)).claims_from("link").select(ZONE, zone);
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        let zones: Vec<_> = made.machines.iter().map(|of| snapshot.interner.value_arc(of.launch.zone)).collect();
        assert_eq!(zones, [zone.into()]);
    }
}

#[test]
fn a_pool_that_is_published_for_a_zone_is_used_and_not_planned_again() {
    let mut f = links(Domain, 2);
    f.slice_for("published", NET, (ZONE, "b"), 2);
    for index in 0..3 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-0]
        machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
        machine default-2: router/a/on-demand $0.0000001/h types [router] devices [1 net.example.com] pods [a-2]
    "#]],
    );
}

#[test]
fn a_machine_on_its_way_brings_its_pool_until_it_is_published() {
    let mut f = links(Machine, 2);
    f.in_flight("coming", "router", 0).promised(ZONE, "b");
    for index in 0..2 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-0]
        machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
    "#]],
    );
}

#[test]
fn where_shared_devices_run_out_the_search_for_room_ends_soon() {
    let mut f = links(Domain, 2);
    f.device_class(GPU, None);
    for zone in ["c", "d"] {
        f.offering(zone, "on-demand", 120);
    }
    f.resource_claim("first", &json!({"requests": [exactly("one", NET, 1)]}), &json!({}));
    f.resource_claim("second", &json!({"requests": [exactly("other", NET, 1)]}), &json!({}));
    f.pod("a").requests(1500, gib(1)).claims("first");
    for index in 0..2 {
        f.pod(&format!("b-{index}")).requests(900, gib(1)).claims("second");
    }
    for index in 0..3 {
        f.pod(&format!("c-{index}")).requests(400, gib(1)).claims_from("link").select(ZONE, "b");
    }
    let made = plan(&f.snapshot());
    let refusals: Vec<_> = made.refusals.iter().map(|refusal| refusal.verdict).collect();
    assert_eq!(refusals, [Verdict::DoesNotFit], "two links of zone b for three pods that want one");
}

/// Whether links, so many to a zone, serve pods that each may be in the zones given.
fn are_served(links: usize, pods: &[Vec<usize>], taken: [usize; 2]) -> bool {
    let Some((zones, rest)) = pods.split_first() else { return true };
    zones.iter().any(|&zone| {
        let mut taken = taken;
        taken[zone] += 1;
        taken[zone] <= links && are_served(links, rest, taken)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn pods_without_links_are_refused_by_a_proof_and_only_if_there_are_none_for_them(
        links_of_zone in 1..3_usize,
        classes in prop::collection::vec((1..3_usize, prop::option::of(0..2_usize)), 1..4),
    ) {
        let mut f = links(Domain, links_of_zone);
        let mut zones_of = BTreeMap::new();
        for (class, (copies, zone)) in classes.iter().enumerate() {
            for copy in 0..*copies {
                let name = format!("class-{class}-{copy}");
                let pod = f.pod(&name).requests(1000 + 100 * class as i64, gib(1)).claims_from("link");
                if let Some(zone) = zone {
                    pod.select(ZONE, ["a", "b"][*zone]);
                }
                zones_of.insert(name, zone.map_or_else(|| vec![0, 1], |zone| vec![zone]));
            }
        }
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        let refused: Vec<(&str, Verdict)> = made
            .refusals
            .iter()
            .map(|refusal| (&*snapshot.pods[refusal.pod].pod.name.name, refusal.verdict))
            .collect();
        let placed: Vec<Vec<usize>> = zones_of
            .iter()
            .filter(|(name, _)| refused.iter().all(|(pod, _)| pod != &name.as_str()))
            .map(|(_, zones)| zones.clone())
            .collect();
        prop_assert!(are_served(links_of_zone, &placed, [0, 0]));
        for (pod, verdict) in refused {
            prop_assert_eq!(verdict, Verdict::DoesNotFit);
            let with_it: Vec<Vec<usize>> = placed.iter().chain([&zones_of[pod]]).cloned().collect();
            prop_assert!(!are_served(links_of_zone, &with_it, [0, 0]), "{pod}");
        }
    }
}

#[test]
fn daemons_take_their_devices_before_other_pods_do_where_the_machine_has_them() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.daemon_set("monitor", 100, 0, &[]);
    f.daemon_devices(&["one"], None);
    for index in 0..2 {
        f.pod(&format!("a-{index}")).requests(1000, gib(1)).claims_from("one");
    }
    // A machine without GPUs has room for what the daemon would have asked for.
    f.pod("web").requests(16000, gib(1));
    check(
        &f,
        expect![[r#"
        machine default-0: plain/a/on-demand $0.00000001/h types [plain, gpu-8] pods [web]
        machine default-1: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a-0]
        machine default-2: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a-1]
    "#]],
    );
}

/// A machine with a large GPU between two small ones, a daemon that wants a small one, and pods that want any and a
/// small one.
fn beside_a_daemon() -> Fixture {
    let mut f = mixed();
    f.instance_type("three", 8, 32).offering("a", "on-demand", 100);
    f.devices(GPU, &sizes(), &[]);
    let mut small = exactly("r", GPU, 1);
    let expression = format!("device.attributes[\"{GPU}\"].size == \"small\"");
    small["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    f.claim_template("small", &json!({"requests": [small]}));
    f.daemon_set("monitor", 100, 0, &[]);
    f.daemon_devices(&["small"], None);
    f.pod("any").requests(2000, gib(1)).claims_from("any");
    f.pod("small").requests(1000, gib(1)).claims_from("small");
    f
}

fn sizes() -> serde_json::Value {
    let device =
        |(index, size): (usize, &str)| json!({"name": format!("d{index}"), "attributes": {"size": {"string": size}}});
    ["small", "large", "small"].into_iter().enumerate().map(device).collect()
}

#[test]
fn claims_share_a_machine_only_if_they_get_their_devices_also_where_a_daemon_comes_between_them() {
    // With the daemon first all is well; if it comes second, both small ones are gone when the third comes.
    check(
        &beside_a_daemon(),
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed, three] devices [1 gpu.example.com] pods [any]
        machine default-1: three/a/on-demand $0.0000001/h types [three] devices [1 gpu.example.com] pods [small]
    "#]],
    );
}

#[test]
fn on_nodes_too_daemons_that_are_still_to_come_may_come_late() {
    let mut f = beside_a_daemon();
    f.node("n1").allocatable(8000, gib(32));
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 1);
    f.republish("n1-gpus", &sizes());
    f.in_flight("coming", "three", 8000);
    check(
        &f,
        expect![[r#"
        node coming: [small]
        node n1: [any]
    "#]],
    );
}

#[test]
fn a_daemon_that_comes_too_late_for_its_devices_keeps_no_pod_from_its_machine() {
    let mut f = mixed();
    f.daemon_set("monitor", 100, 0, &[]);
    f.daemon_devices(&["large"], None);
    f.pod("any").requests(2000, gib(1)).claims_from("any");
    check(
        &f,
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed] devices [1 gpu.example.com] pods [any]
    "#]],
    );
}

#[test]
fn a_daemon_that_gets_no_devices_takes_nothing_and_keeps_no_type_from_being_launched() {
    let mut f = Fixture::new();
    f.device_class(GPU, Some("example.com/gpu"));
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.instance_type("gpu", 4, 16).offering("a", "on-demand", 100);
    f.plain_devices(GPU, 2);
    f.pool("default");
    f.daemon_set("agent", 1000, 0, &[]);
    f.daemon_devices(&[], Some(("example.com/gpu", 1)));
    f.daemon_set("broken", 2000, 0, &[]);
    f.daemon_devices(&["missing"], None);
    f.pod("large").requests(4000, gib(1));
    f.pod("one").requests(1000, gib(1)).extended("example.com/gpu", 1);
    f.pod("two").requests(1000, gib(1)).extended("example.com/gpu", 2);
    check(
        &f,
        expect![[r#"
            machine default-0: plain/a/on-demand $0.00000001/h types [plain] pods [large]
            machine default-1: gpu/a/on-demand $0.0000001/h types [gpu] devices [1 gpu.example.com] pods [one]
            refused two (DoesNotFit): nodepool/default: none of 2 instance types fits: 2 without the devices it claims (claim <extended-resources>, request container-0-request-0: 1 of 2 devices are usable, 2 wanted; 1 is allocated; or claim <extended-resources>, request container-0-request-0: 0 of 0 devices are usable, 2 wanted); needs 2 of gpu.example.com (claim <extended-resources>, request container-0-request-0); 1 of 2 instance types has a template for it; 1 has too few that are not taken; nearest: on gpu gpu.example.com/d0 is allocated
        "#]],
    );
}

#[test]
fn daemons_take_devices_in_turn_until_there_are_none_left() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("gpu", 8, 16).offering("a", "on-demand", 100);
    f.plain_devices(GPU, 2);
    f.pool("default");
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    for name in ["a", "b", "c"] {
        f.daemon_set(name, 1000, 0, &[]);
        f.daemon_devices(&["one"], None);
    }
    f.pod("web").requests(6000, gib(1));
    f.pod("larger").requests(6001, gib(1));
    check(
        &f,
        expect![[r#"
        machine default-0: gpu/a/on-demand $0.0000001/h types [gpu] pods [web]
        refused larger (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 too small (cpu 6001m wanted with daemons, the largest has 6); a machine would do with 1m less cpu (nodepool/default)
    "#]],
    );
}

#[test]
fn daemons_run_with_their_devices_only_where_labels_and_taints_let_them() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("gpu", 4, 16).offering("a", "on-demand", 100).offering("b", "on-demand", 110);
    f.plain_devices(GPU, 1);
    f.pool("default");
    f.pool("reserved").taint("team", "x");
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.daemon_set("monitor", 100, 0, &[]);
    f.daemon_devices(&["one"], None);
    f.pod("a").requests(1000, gib(1)).claims_from("one");
    f.pod("b").requests(1000, gib(1)).claims_from("one").tolerate("team", "x");
    check(
        &f,
        expect![[r#"
            machine reserved-0: gpu/a/on-demand $0.0000001/h types [gpu] devices [1 gpu.example.com] pods [b]
            refused a (DoesNotFit): nodepool/reserved: does not tolerate the taint team=x:NoSchedule; nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim one, request r: 0 of 1 devices are usable, 1 wanted; 1 is allocated); needs gpu.example.com (claim one, request r); 1 of 1 instance types has a template for it; 1 has too few that are not taken; nearest: on gpu gpu.example.com/d0 is allocated; a machine would do if it tolerated team=x:NoSchedule and with other devices (nodepool/reserved)
        "#]],
    );
}

#[test]
fn daemons_that_nodes_have_still_to_get_keep_their_devices_there() {
    let mut f = gpus();
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.daemon_set("monitor", 100, 0, &[]);
    f.daemon_devices(&["one"], None);
    f.node("n1").allocatable(4000, gib(16));
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 2);
    // All that it has is taken; its daemon stays pending and takes no room.
    f.node("n2").allocatable(4000, gib(16));
    f.in_flight("coming", "gpu-2", 8000);
    for index in 0..3 {
        f.pod(&format!("a-{index}")).requests(100, gib(1)).claims_from("one");
    }
    f.pod("whole-node").requests(4000, gib(1));
    check(
        &f,
        expect![[r#"
        machine default-0: gpu-2/a/on-demand $0.0000001/h types [gpu-2, gpu-8] devices [1 gpu.example.com] pods [a-2]
        node coming: [a-1]
        node n1: [a-0]
        node n2: [whole-node]
    "#]],
    );
}

/// What is said of the only pod's claims.
fn told_of_claims(f: &Fixture) -> String {
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let is_meant = |reason: &&Reason| matches!(reason, Reason::Devices(_));
    let reasons = &plan.refusals.first().unwrap().reasons;
    reasons.iter().find(is_meant).map(|reason| reason.message(&snapshot.interner)).unwrap_or_default()
}

#[test]
fn a_refusal_counts_types_by_template_and_by_the_step_where_they_end_and_names_the_nearest_miss() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    let model = |names: &[&str], model: &str| -> serde_json::Value {
        names.iter().map(|name| json!({"name": name, "attributes": {"model": {"string": model}}})).collect()
    };
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.instance_type("old", 4, 16).offering("a", "on-demand", 100);
    f.devices(GPU, &model(&["d0", "d1"], "x1"), &[]);
    f.instance_type("older", 4, 16).offering("a", "on-demand", 90);
    f.devices(GPU, &model(&["d0", "d1", "d2"], "x1"), &[]);
    f.instance_type("small", 4, 16).offering("a", "on-demand", 100);
    f.devices(GPU, &model(&["d0"], "x2"), &[]);
    f.instance_type("far", 4, 16).offering("b", "on-demand", 100).unavailable();
    f.devices(GPU, &model(&["d0", "d1"], "x2"), &[]);
    f.pool("default");
    let selector = "device.attributes['gpu.example.com'].model == 'x2'";
    let mut request = exactly("r", GPU, 2);
    request["exactly"]["selectors"] = json!([{"cel": {"expression": selector}}]);
    f.claim_template("pair", &json!({"requests": [request]}));
    f.pod("a").requests(1000, gib(1)).claims_from("pair");
    let expected = format!(
        "needs 2 of gpu.example.com (claim pair, request r); 4 of 5 instance types have a template for it; 2 fall at \
         selector {selector} of request r; 1 has too few of them; 1 has no capacity in zone b; nearest: on old \
         gpu.example.com/d0 does not match selector #0: {selector}"
    );
    assert_eq!(told_of_claims(&f), expected);
}

#[test]
fn requests_that_have_enough_each_by_itself_end_at_their_combination() {
    let mut f = gpus();
    let spread = json!([{"distinctAttribute": ROOT}]);
    f.claim_template("apart", &json!({"requests": [exactly("r", GPU, 5)], "constraints": spread}));
    f.pod("a").requests(1000, gib(1)).claims_from("apart");
    assert_eq!(
        told_of_claims(&f),
        "needs 5 of gpu.example.com (claim apart, request r); 2 of 3 instance types have a template for it; 1 has too few of \
         them; 1 has no combination that satisfies all requests"
    );
}
