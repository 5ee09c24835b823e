//! Claims that are allocated and that nobody uses.

use serde_json::{Value, json};

use super::GPU;
use crate::provisioning::{
    plan,
    tests::fixture::{Fixture, exactly, gib},
};

/// A node with so many CPUs and a GPU that a claim has, which these pods use; machines with a GPU each.
fn held(cpus: i64, consumers: &[&str]) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("gpu-1", 8, 32).offering("a", "on-demand", 100);
    f.devices(GPU, &json!([{"name": "d0"}]), &[]);
    f.pool("default");
    f.node("n1").allocatable(cpus * 1000, gib(16));
    f.slice("n1", GPU, ("nodeName", "n1".into()), 1);
    let result = json!({"request": "r", "driver": GPU, "pool": "n1", "device": "d0"});
    let here = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]);
    let consumers: Vec<Value> =
        consumers.iter().map(|name| json!({"resource": "pods", "name": name, "uid": name})).collect();
    let status = json!({"reservedFor": consumers, "allocation": {
        "devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": here}}});
    let one = json!({"requests": [exactly("r", GPU, 1)]});
    f.resource_claim("held", &one, &status);
    f.claim_template("one", &one);
    f
}

/// How many pods get a place on the node and on machines to be, and how many get none.
fn places(f: &Fixture) -> [usize; 3] {
    let made = plan(&f.snapshot());
    let on_node = made.existing.iter().map(|placed| placed.pods.len()).sum();
    let on_machines = made.machines.iter().map(|machine| machine.pods.len()).sum();
    [on_node, on_machines, made.refusals.len()]
}

#[test]
fn a_pod_whose_claim_is_allocated_where_it_has_no_room_gets_a_machine_if_nobody_else_uses_the_claim() {
    for (cpus, consumers, expected) in [
        (1, vec![], [0, 1, 0]),
        (1, vec!["waits"], [0, 1, 0]),
        (1, vec!["other"], [0, 0, 1]),
        (1, vec!["waits", "other"], [0, 0, 1]),
        // As long as it has room there, the scheduler takes nothing back.
        (4, vec![], [1, 0, 0]),
        (4, vec!["waits"], [1, 0, 0]),
    ] {
        let mut f = held(cpus, &consumers);
        f.pod("waits").requests(2000, gib(1)).claims("held");
        assert_eq!(places(&f), expected, "{cpus} CPUs, {consumers:?}");
    }
}

#[test]
fn pods_that_share_such_a_claim_go_to_one_machine() {
    let mut f = held(1, &[]);
    f.pod("a").requests(2000, gib(1)).claims("held");
    f.pod("b").requests(3000, gib(1)).claims("held");
    let made = plan(&f.snapshot());
    let pods: Vec<usize> = made.machines.iter().map(|machine| machine.pods.len()).collect();
    assert_eq!((pods, made.refusals.len()), (vec![2], 0));
}

#[test]
fn what_such_a_claim_held_is_free_for_others_once_its_pod_has_a_place_elsewhere() {
    for (cpus_of_pod, expected) in [(2, [1, 1, 0]), (100, [0, 0, 2])] {
        let mut f = held(1, &[]);
        f.pod("waits").requests(cpus_of_pod * 1000, gib(1)).claims("held");
        f.pod("pinned").requests(500, gib(1)).claims_from("one").select("kubernetes.io/hostname", "n1");
        assert_eq!(places(&f), expected, "{cpus_of_pod} CPUs");
    }
}

#[test]
fn a_machine_on_its_way_for_such_a_pod_is_not_launched_twice() {
    let mut f = held(1, &[]);
    f.in_flight("coming", "gpu-1", 8000);
    f.pod("waits").requests(2000, gib(1)).claims("held").planned_on("coming");
    assert_eq!(places(&f), [1, 0, 0]);
}
