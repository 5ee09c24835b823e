//! Devices that nodes have, or machines on their way.

use expect_test::expect;
use serde_json::json;

use super::{GPU, NET, gpus, mixed};
use crate::provisioning::tests::{
    check,
    fixture::{Fixture, exactly, gib},
};

const ZONE: &str = api::labels::ZONE;

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
            refused b (DoesNotFit): none of 2 existing nodes fits: 2 do not have the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim one, request r: 0 of 0 devices are usable, 1 wanted); needs gpu.example.com (claim one, request r); none of 1 instance types has a template for it; a NodeOverlay can say what its driver will publish
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
            node coming: [a-1, a-2] waits for [gpu.example.com]
            node n1: [a-0]
        "#]],
    );
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

/// Two nodes of a zone whose one device a claim has; `n1` goes with the pods that leave it.
fn leaving(consumers: &[&str]) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10);
    f.pool("default");
    f.node("n2").allocatable(4000, gib(16)).label(ZONE, "b");
    f.node("n1").allocatable(4000, gib(16)).label(ZONE, "a").deleting();
    f.slice_for("net-a", NET, (ZONE, "a"), 1);
    f.slice_for("net-b", NET, (ZONE, "b"), 1);
    let consumers: Vec<_> = consumers.iter().map(|of| json!({"resource": "pods", "name": of, "uid": of})).collect();
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]});
    let result = json!({"request": "r", "driver": NET, "pool": "net-a", "device": "d0"});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}});
    let status = json!({"allocation": allocation, "reservedFor": consumers});
    f.resource_claim("shared", &json!({"requests": [exactly("r", NET, 1)]}), &status);
    f.pod("a").requests(3000, gib(1)).claims("shared").leaves("n1");
    f
}

#[test]
fn a_claim_whose_consumers_all_leave_their_node_is_allocated_anew() {
    check(
        &leaving(&["a"]),
        expect![[r#"
        node n2: [a]
    "#]],
    );
}

#[test]
fn a_pod_that_leaves_its_node_follows_a_claim_that_others_still_use() {
    check(
        &leaving(&["a", "stays"]),
        expect![[r#"
        machine default-0: plain/a/on-demand $0.00000001/h types [plain] pods [a]
    "#]],
    );
}
