//! Which errors of one node end a pod's attempt on all.

use model::Budget;
use serde_json::{Value, json};

use crate::fixture::{STEPS, builder_for, claim, compat, exactly, local, n1};
use crate::ledger::{BinLedger, ClusterLedger};
use crate::packing::ClaimUse;

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
    let fault = inventory.ends_on(&node, &claims, &ClusterLedger::new(&inventory), &mut Budget::new(STEPS));
    (inventory.may_end(&claims), fault.is_some())
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
