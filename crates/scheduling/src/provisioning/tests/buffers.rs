//! Room that is kept free for pods to come.

use serde_json::json;

use super::fixture::{Fixture, exactly, gib, render};
use crate::{
    plan::{Machine, Plan, with_virtual_pods},
    provisioning::plan,
    snapshot::Snapshot,
};

fn one_type() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("a", "on-demand", 10);
    f.pool("p");
    f
}

/// Of the only buffer: pods on nodes that exist, on new machines, without room.
fn rooms(plan: &Plan) -> (u32, u32, u32) {
    let [room] = plan.buffers.as_slice() else { panic!("{:?}", plan.buffers) };
    (room.on_existing(), room.on_new(), room.missing)
}

#[test]
fn machines_are_planned_for_room_that_nobody_waits_for() {
    let mut f = one_type();
    f.pod("web").requests(1000, gib(1)).buffered(6);
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!((plan.machines.len(), rooms(&plan)), (2, (0, 6, 0)), "{}", render(&plan, &snapshot));
    assert!(plan.machines.iter().all(|machine| machine.pods.is_empty()), "virtual pods are not pods of the plan");
    let cpu: i64 = plan.machines.iter().map(|machine| machine.requests.get(model::ResourceId::CPU)).sum();
    assert_eq!(cpu, 6000, "the machines are asked for with room for them");
}

#[test]
fn room_that_exists_is_used_first() {
    let mut f = one_type();
    f.node("n").allocatable(3000, gib(8));
    f.pod("busy").requests(1000, gib(1)).runs();
    f.pod("web").requests(1000, gib(1)).buffered(3);
    let plan = plan(&f.snapshot());
    assert_eq!((plan.machines.len(), rooms(&plan), plan.existing.len()), (1, (2, 1, 0), 0));
}

#[test]
fn pods_that_wait_come_first_whatever_their_priority() {
    let mut f = one_type();
    f.node("n").allocatable(2000, gib(8));
    f.pod("big").requests(2000, gib(1)).priority(100).buffered(1);
    f.pod("real").requests(1000, gib(1)).priority(i32::MIN);
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(render(&plan, &snapshot).lines().last(), Some("node n: [real]"));
    assert_eq!((plan.machines.len(), rooms(&plan)), (1, (0, 1, 0)));
}

#[test]
fn room_that_pods_have_taken_is_planned_anew() {
    let mut f = one_type();
    f.node("n").allocatable(4000, gib(16));
    for index in 0..3 {
        f.pod(&format!("web-{index}")).requests(1000, gib(1)).runs();
    }
    f.pod("web").requests(1000, gib(1)).buffered(3);
    assert_eq!(rooms(&plan(&f.snapshot())), (1, 2, 0));
}

#[test]
fn limits_leave_room_out_before_pods() {
    let mut f = one_type();
    f.limit("nodes", 2, 2);
    f.pod("web").requests(4000, gib(1)).buffered(2);
    f.pod("real").requests(4000, gib(1));
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!((plan.machines.len(), plan.refusals.len(), rooms(&plan)), (2, 0, (0, 1, 1)));
    let [room] = plan.buffers.as_slice() else { panic!("one buffer") };
    let why: Vec<String> = room.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
    assert!(why.first().is_some_and(|why| why.contains("limit")), "{why:?}");
}

#[test]
fn rules_between_pods_hold_for_room_too() {
    let mut f = one_type();
    f.node("n").allocatable(4000, gib(16));
    f.pod("other").requests(100, gib(1)).label("app", "db").runs();
    f.pod("db").requests(100, gib(1)).label("app", "db").away_from(api::labels::HOSTNAME, "db").buffered(2);
    let plan = plan(&f.snapshot());
    assert_eq!((plan.machines.len(), rooms(&plan)), (2, (0, 2, 0)));
}

const GPU: &str = "gpu.example.com";

/// A cheap type without devices, and one with two GPUs; a claim template for one GPU.
fn with_gpus() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, Some("example.com/gpu"));
    f.instance_type("plain", 16, 64).offering("a", "on-demand", 10);
    f.instance_type("gpu-2", 8, 32).offering("a", "on-demand", 100);
    f.plain_devices(GPU, 2);
    f.pool("p");
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f
}

/// Which types are launched, in the plan's order.
fn types<'p>(plan: &'p Plan, snapshot: &'p Snapshot) -> Vec<&'p str> {
    let name = |machine: &'p Machine| {
        let catalogue = &snapshot.node_pools[machine.node_pool].catalogue;
        catalogue.types[machine.launch.instance_type].name.as_str()
    };
    plan.machines.iter().map(name).collect()
}

#[test]
fn room_for_pods_with_claims_has_their_devices() {
    let mut f = with_gpus();
    f.pod("train").requests(100, gib(1)).claims_from("one").buffered(3);
    f.pod("web").requests(100, gib(1)).buffered(1);
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(types(&plan, &snapshot), ["gpu-2", "gpu-2"], "{}", render(&plan, &snapshot));
    let rooms: Vec<_> = plan.buffers.iter().map(|room| (room.on_new(), room.missing)).collect();
    assert_eq!(rooms, [(3, 0), (1, 0)]);
    assert!(plan.machines.iter().all(|machine| machine.pods.is_empty()));
}

#[test]
fn room_for_extended_resources_of_devices_is_where_the_devices_are() {
    let mut f = with_gpus();
    f.pod("train").requests(100, gib(1)).extended("example.com/gpu", 2).buffered(2);
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!((types(&plan, &snapshot), rooms(&plan)), (vec!["gpu-2", "gpu-2"], (0, 2, 0)));
}

#[test]
fn devices_of_nodes_go_to_pods_that_wait_and_what_is_left_is_room() {
    let mut f = with_gpus();
    f.node("n").allocatable(8000, gib(32));
    f.slice("n-gpus", GPU, ("nodeName", json!("n")), 2);
    f.pod("train").requests(100, gib(1)).claims_from("one").priority(100).buffered(2);
    f.pod("real").requests(100, gib(1)).claims_from("one");
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(render(&plan, &snapshot).lines().last(), Some("node n: [real]"));
    assert_eq!(rooms(&plan), (1, 1, 0));
}

#[test]
fn room_whose_devices_nobody_has_is_missing_with_the_reason() {
    for (template, expected) in [("nine", "needs 9 of gpu.example.com"), ("lost", "default/lost does not exist")] {
        let mut f = with_gpus();
        f.claim_template("nine", &json!({"requests": [exactly("r", GPU, 9)]}));
        f.pod("train").requests(100, gib(1)).claims_from(template).buffered(2);
        let snapshot = f.snapshot();
        let plan = plan(&snapshot);
        assert_eq!((plan.machines.len(), rooms(&plan)), (0, (0, 0, 2)));
        let why: Vec<String> = plan.buffers[0].reasons.iter().map(|it| it.message(&snapshot.interner)).collect();
        assert!(why.iter().any(|why| why.contains(expected)), "{why:?}");
    }
}

#[test]
fn claims_that_nobody_could_read_get_no_room_rather_than_wrong_room() {
    let mut f = one_type();
    f.pod("gpu").requests(100, gib(1)).unsupported("resource claim gpu (resourceClaims)").buffered(2);
    let plan = plan(&f.snapshot());
    assert_eq!((plan.machines.len(), rooms(&plan)), (0, (0, 0, 2)));
}

#[test]
fn virtual_pods_can_be_put_back_among_the_others() {
    let mut f = one_type();
    f.node("n").allocatable(2000, gib(8));
    f.pod("web").requests(1000, gib(1)).buffered(7);
    f.pod("real").requests(1000, gib(1));
    let snapshot = f.snapshot();
    let (with, whole) = with_virtual_pods(&snapshot, &plan(&snapshot)).unwrap();
    let placed = whole.machines.iter().map(|it| it.pods.len()).chain(whole.existing.iter().map(|it| it.pods.len()));
    assert_eq!((with.pods.len(), placed.sum::<usize>()), (8, 8));
    assert!(with.buffers.is_empty());
    f = one_type();
    f.pod("real").requests(1000, gib(1));
    let snapshot = f.snapshot();
    assert!(with_virtual_pods(&snapshot, &plan(&snapshot)).is_none());
}
