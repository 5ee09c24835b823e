//! Pods with claims: which machines they get, what they share, and why they get none.

mod bounds;
mod consumers;
mod daemons;
mod domains;
mod ends;
mod idle;
mod nodes;
mod orders;
mod taken;

use expect_test::expect;
use serde_json::json;

use super::{
    check,
    fixture::{Fixture, exactly, gib},
};
use crate::plan::reason::Reason;
use crate::provisioning::plan;

pub(super) const GPU: &str = "gpu.example.com";
const NET: &str = "net.example.com";
const ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// Machines with no, two and eight GPUs in zone a, pairs of GPUs under one PCIe root.
pub(super) fn gpus() -> Fixture {
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
fn what_devices_cost_is_told_where_no_machine_and_no_node_has_room_for_it() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    let costs = json!({"cpu": {"allocationMultiplier": "8"}});
    let device = |name: &str| json!({"name": name, "nodeAllocatableResourceMappings": costs});
    let devices = json!([device("d0"), device("d1")]);
    f.instance_type("small", 4, 16).offering("a", "on-demand", 10);
    f.instance_type("large", 16, 16).offering("a", "on-demand", 20);
    f.devices(GPU, &devices, &[]);
    f.pool("default");
    f.node("n1").allocatable(15_900, gib(16));
    f.slice("n1", GPU, ("nodeName", "n1".into()), 2);
    f.republish("n1", &devices);
    f.claim_template("two", &json!({"requests": [exactly("r", GPU, 2)]}));
    f.pod("a").requests(1000, gib(1)).claims_from("two");
    check(
        &f,
        expect![[r#"
            refused a (DoesNotFit): none of 1 existing nodes fits: 1 has too little room (cpu 17 wanted = 1 requested + 16 for claim two (2 devices × 8), the most free is 15.9 of 15.9); nodepool/default: none of 2 instance types fits: 1 too small (cpu 17 wanted = 1 requested + 16 for claim two (2 devices × 8), the largest has 16 beside daemons), 1 without the devices it claims (claim two, request r: 0 of 0 devices are usable, 2 wanted); needs 2 of gpu.example.com (claim two, request r); 1 of 2 instance types has a template for it; 1 is too small
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
            refused a (OutOfBudget): the search for its devices ended without an answer, 0 steps after the plan was begun; nodepool/default: none of 3 instance types fits: 3 without the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); needs gpu.example.com (claim one, request r); 2 of 3 instance types have a template for it; 2 have them, but the plan did not choose them
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
        "needs 2 of gpu.example.com (claim pair, request r); 4 of 5 instance types have a template for it; 2 do not \
         match selector {selector} of request r; 1 has too few of them; 1 has no capacity in zone b; nearest: on old \
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

#[test]
fn values_that_may_be_one_are_refused_to_distinct_attribute_by_name() {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("gpu-2", 8, 32).offering("a", "on-demand", 100);
    f.devices_in_groups(GPU, &json!([{"name": "d0"}, {"name": "d1"}]), &[("d0", ROOT, 0), ("d1", ROOT, 1)], false);
    f.pool("default");
    let spread = json!([{"distinctAttribute": ROOT}]);
    f.claim_template("apart", &json!({"requests": [exactly("r", GPU, 2)], "constraints": spread}));
    f.pod("a").requests(1000, gib(1)).claims_from("apart");
    check(
        &f,
        expect![[r#"
        refused a (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim apart, distinctAttribute resource.kubernetes.io/pcieRoot: fewer different values than devices wanted; unknown values differ where their attributeBindings say distinctGroups); needs 2 of gpu.example.com (claim apart, request r); 1 of 1 instance types has a template for it; 1 does not satisfy distinctAttribute resource.kubernetes.io/pcieRoot
    "#]],
    );
}
