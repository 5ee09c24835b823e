//! Devices that daemons take, and when they take them.

use expect_test::expect;
use serde_json::json;

use super::{GPU, gpus, mixed};
use crate::provisioning::tests::{
    check,
    fixture::{Fixture, exactly, gib},
};

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
            node coming: [small] waits for [gpu.example.com]
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
        refused larger (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 too small (cpu 6001m wanted, the largest has 6 beside daemons); it would fit a new machine with 1m less cpu (nodepool/default)
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
            refused a (DoesNotFit): nodepool/reserved: does not tolerate the taint team=x:NoSchedule; nodepool/default: none of 1 instance types fits: 1 without the devices it claims (claim one, request r: 0 of 1 devices are usable, 1 wanted; 1 is allocated); needs gpu.example.com (claim one, request r); 1 of 1 instance types has a template for it; 1 has too few that are not taken; nearest: on gpu gpu.example.com/d0 is allocated; it would fit a new machine if it tolerated team=x:NoSchedule and with other devices (nodepool/reserved)
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
            node coming: [a-1] waits for [gpu.example.com]
            node n1: [a-0]
            node n2: [whole-node]
        "#]],
    );
}
