//! Counters that contradict each other across the generations of a pool: the newest counts, what was given out before
//! still draws, and what comes out below zero gives nothing. Other pools are not concerned.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::fixture::{ask_with, builder, claim, exactly, names, slice};
use crate::ledger::ClusterLedger;
use dra_types::ResourceClaim;

/// The two slices of a generation: halves that draw so much each from what there is of a counter.
fn generation(generation: u64, of_half: i64, total: i64) -> [Value; 2] {
    let pool = json!({"name": "n1", "generation": generation, "resourceSliceCount": 2});
    let half = |name: &str| {
        let draws = json!([{"counterSet": "s", "counters": {"mem": {"value": of_half.to_string()}}}]);
        json!({"name": name, "consumesCounters": draws})
    };
    let devices = json!([half("half-0"), half("half-1"), half("half-2")]);
    let counters = json!([{"name": "s", "counters": {"mem": {"value": total.to_string()}}}]);
    [
        json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "devices": devices}),
        json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "sharedCounters": counters}),
    ]
}

/// What a claim for so many halves gets where `half-0` is given out, with slices of these generations published, and
/// what a claim of another pool's device gets.
fn given(published: &[Value], count: usize) -> (Vec<String>, Vec<String>) {
    let mut builder = builder(&["gpu", "nic"]);
    for (index, spec) in published.iter().enumerate() {
        builder.slice(slice(&format!("s{index}"), spec));
    }
    let other = json!({"name": "nics", "generation": 1, "resourceSliceCount": 1});
    builder.slice(slice(
        "other",
        &json!({"driver": "nic", "nodeName": "n1", "pool": other, "devices": [{"name": "nic-0"}]}),
    ));
    let result = json!({"request": "r", "driver": "gpu", "pool": "n1", "device": "half-0"});
    let held = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "held"},
        "spec": {"devices": {"requests": [exactly("r", "gpu", 1)]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    });
    builder.claim(Arc::new(ResourceClaim::from_json(&held).unwrap()));
    let halves = claim(&mut builder, "halves", &json!({"requests": [exactly("r", "gpu", count)]}));
    let nic = claim(&mut builder, "nic", &json!({"requests": [exactly("r", "nic", 1)]}));
    let inventory = builder.build();
    let ledger = ClusterLedger::new(&inventory);
    let of = |class| names(&ask_with(&inventory, &[class], &ledger).0);
    (of(halves), of(nic))
}

#[test]
fn counters_that_contradict_those_of_another_generation_harm_no_other_pool() {
    let (old, larger, smaller) = (generation(1, 1, 2), generation(2, 1, 3), generation(3, 2, 1));
    let all = |parts: &[&[Value]]| parts.concat();
    for (published, count, expected) in [
        (all(&[&old]), 1, vec!["half-1"]),
        (all(&[&old]), 2, vec![]),
        // A generation counts as a whole, the newest alone, whatever is left of others.
        (all(&[&old, &larger]), 2, vec!["half-1", "half-2"]),
        (all(&[&larger, &old]), 2, vec!["half-1", "half-2"]),
        // What is given out draws more than the newest has: nothing is left, and less than nothing is not more.
        (all(&[&old, &smaller]), 1, vec![]),
        (all(&[&smaller]), 1, vec![]),
        // Counters of one generation are none for devices of another.
        (all(&[&old[..1], &larger[1..]]), 1, vec![]),
        (all(&[&old[1..], &larger[..1]]), 1, vec![]),
        (all(&[&old, &larger[..1]]), 1, vec![]),
    ] {
        let (halves, nic) = given(&published, count);
        assert_eq!(halves, expected, "{count} of {published:?}");
        assert_eq!(nic, ["nic-0"], "{published:?}");
    }
}
