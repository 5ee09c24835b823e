//! Which errors of one node end a pod's attempt on all.

use std::sync::Arc;

use model::Budget;
use serde_json::{Value, json};

use crate::fixture::{STEPS, builder_for, claim, compat, exactly, local, n1};
use crate::inventory::{ClaimUse, Reservation};
use crate::ledger::{BinLedger, ClusterLedger};
use crate::packing::{ends_on, may_end};
use dra_types::ResourceClaim;

/// Whether a request could meet an error on two devices with these fields, and whether it meets one as things are.
fn ends(fields: &Value, request: &Value) -> (bool, bool) {
    let mut builder = builder_for(compat(), &["gpu"]);
    let mut other = fields.clone();
    other["name"] = "d1".into();
    builder.slice(local("gpu", &json!([{"name": "d0", "attributes": {"size": {"int": 1}}}, other])));
    let class =
        claim(&mut builder, "c", &json!({"requests": [request], "constraints": [{"matchAttribute": "gpu/size"}]}));
    let inventory = builder.build();
    let claims = [ClaimUse::Fresh { class, containers: 1 }];
    let node = BinLedger::node(n1());
    let fault = ends_on(&inventory, &node, &claims, &ClusterLedger::new(&inventory), &mut Budget::new(STEPS));
    (may_end(&inventory, &claims), fault.is_some())
}

#[test]
fn an_error_counts_only_if_the_walk_gets_to_it() {
    let picky = |count: usize| {
        let mut request = exactly("r", "gpu", count);
        let text = "device.attributes['gpu'].size == 1";
        request["exactly"]["selectors"] = json!([{"cel": {"expression": text}}]);
        request
    };
    let all = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}});
    let size = |size: u32| json!({"attributes": {"size": {"int": size}}});
    for (fields, request, expected) in [
        (json!({}), picky(1), (true, false)),
        (json!({}), picky(2), (true, true)),
        (size(1), picky(2), (false, false)),
        (size(2), picky(2), (false, false)),
        (json!({}), exactly("r", "gpu", 2), (false, false)),
        // A member of all that a constraint does not admit is an error, not a refusal.
        (size(2), all.clone(), (true, true)),
        (size(1), all, (true, false)),
        // Told of the claim, not of a node.
        (json!({}), exactly("r", "unknown", 1), (false, true)),
    ] {
        assert_eq!(ends(&fields, &request), expected, "{fields} {request}");
    }
}

/// Upstream notes that a claim is allocated elsewhere, goes on to the claims that are not allocated, and meets the
/// error.
#[test]
fn an_error_ends_the_attempt_although_another_claim_is_allocated_elsewhere() {
    let mut builder = builder_for(compat(), &["gpu"]);
    builder.slice(local("gpu", &json!([{"name": "d0"}, {"name": "d1"}])));
    let elsewhere = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n2"]},
    ]}]});
    let result = json!({"request": "r", "driver": "gpu", "pool": "n2", "device": "d0"});
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "there"},
        "spec": {"devices": {"requests": [exactly("r", "gpu", 1)]}},
        "status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": elsewhere}}});
    let there = builder.claim(Arc::new(ResourceClaim::from_json(&object).unwrap()));
    let there = ClaimUse::Named { claim: there, containers: 1, reservation: Reservation::NewPod };
    let mut request = exactly("r", "gpu", 1);
    request["exactly"]["selectors"] = json!([{"cel": {"expression": "device.attributes['gpu'].size == 1"}}]);
    let fails = claim(&mut builder, "fails", &json!({"requests": [request]}));
    let plain = claim(&mut builder, "plain", &json!({"requests": [exactly("r", "gpu", 1)]}));
    let inventory = builder.build();
    let refusal = |class| {
        let claims = [there, ClaimUse::Fresh { class, containers: 1 }];
        let (node, ledger) = (BinLedger::node(n1()), ClusterLedger::new(&inventory));
        let ends = ends_on(&inventory, &node, &claims, &ledger, &mut Budget::new(STEPS)).is_some();
        let offer = crate::Copies { claims: &claims, copies: 1 }.try_add(
            &inventory,
            &node,
            &model::IdSet::default(),
            &ledger,
            &mut Budget::new(STEPS),
        );
        (ends, offer.refused[0].refusal.to_string())
    };
    let (ends, why) = refusal(fails);
    assert!(ends && why.contains("no such key: size"), "{why}");
    assert_eq!(refusal(plain), (false, "claim there is allocated for other nodes".to_owned()));
}
