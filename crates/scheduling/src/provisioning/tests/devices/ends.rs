//! Errors of one node that keep a pod from all.

use serde_json::json;

use super::GPU;
use crate::provisioning::{
    plan,
    tests::fixture::{Fixture, exactly, gib},
};

/// A pod that wants a GPU of model x, machines that have one, and a node whose GPU has no model; what is said of the
/// pod.
fn told(change: impl FnOnce(&mut Fixture)) -> Option<String> {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("new", 4, 16).offering("a", "on-demand", 10);
    f.devices(GPU, &json!([{"name": "d0", "attributes": {"model": {"string": "x"}}}]), &[]);
    f.pool("default");
    f.node("old").allocatable(4000, gib(16));
    f.slice("old-gpus", GPU, ("nodeName", "old".into()), 1);
    let mut picky = exactly("r", GPU, 1);
    let expression = format!("device.attributes['{GPU}'].model == 'x'");
    picky["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    f.claim_template("picky", &json!({"requests": [picky]}));
    change(&mut f);
    f.pod("a").requests(1000, gib(1)).claims_from("picky");
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let refusal = plan.refusals.iter().find(|refusal| &*snapshot.pods[refusal.pod].pod.name.name == "a")?;
    Some(refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect::<Vec<_>>().join("; "))
}

#[test]
fn a_selector_that_fails_on_a_device_of_one_node_keeps_the_pod_from_every_machine() {
    let expected = format!(
        "node old ends the search on all nodes: claim picky, request r: selector #0 on device {GPU}/old-gpus/d0: CEL runtime \
         error: no such key: model (in device.attributes['{GPU}'].model == 'x')"
    );
    assert_eq!(told(|_| ()), Some(expected));
}

#[test]
fn a_node_that_the_scheduler_does_not_ask_keeps_nobody_from_others() {
    let not_asked: [fn(&mut Fixture); 5] = [
        |f| {
            f.allocatable(900, gib(16));
        },
        |f| {
            f.taint("other", "yes");
        },
        |f| {
            f.deleting();
        },
        // What a claim has is not looked at.
        |f| {
            let result = json!({"request": "r", "driver": GPU, "pool": "old-gpus", "device": "d0"});
            let status = json!({"allocation": {"devices": {"results": [result]}}});
            f.resource_claim("held", &json!({"requests": [exactly("r", GPU, 1)]}), &status);
        },
        |f| f.republish("old-gpus", &json!([{"name": "d0", "attributes": {"model": {"string": "y"}}}])),
    ];
    for (case, change) in not_asked.into_iter().enumerate() {
        assert_eq!(told(change), None, "case {case}");
    }
}

#[test]
fn a_claim_for_all_devices_is_kept_by_a_pool_that_is_not_complete() {
    let all = |f: &mut Fixture| {
        let of = json!({"name": "r", "exactly": {"deviceClassName": GPU, "allocationMode": "All"}});
        f.claim_template("picky", &json!({"requests": [of]}));
    };
    assert_eq!(told(all), None);
    let message = told(|f| {
        all(f);
        f.is_one_of("old-gpus", 2);
    });
    assert!(message.is_some_and(|message| message.contains("asks for all devices, but resource pool")));
}
