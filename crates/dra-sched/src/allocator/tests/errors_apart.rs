//! Refusals of problems in which upstream could answer with an error too: proved if no error is ever reached, and an
//! error if one is.

use serde_json::{Value, json};

use crate::faults::Fault;
use crate::fixture::{STEPS, ask, builder_for, claim, compat, devices, exactly, local};
use crate::verdict::{Refusal, Verdict};
use crate::{ClaimClassId, Inventory};
use dra_types::{Compat, Gates, KubernetesMinor};

/// Eight GPUs on two roots and four NICs, of which the last lacks what the selector of [`failing`] asks for.
fn node(compat: Compat, claims: &[Value]) -> (Inventory, Vec<ClaimClassId>) {
    let mut builder = builder_for(compat, &["gpu", "nic"]);
    builder.slice(local("gpu", &devices(8, |index| json!({"attributes": {"example.com/root": {"int": index / 4}}}))));
    let nic = |index: usize| {
        let mut attributes = json!({"example.com/root": {"int": index / 2}});
        if index < 3 {
            attributes["nic/model"] = json!({"string": "x"});
        }
        json!({"attributes": attributes})
    };
    builder.slice(local("nic", &devices(4, nic)));
    let classes = claims.iter().enumerate().map(|(index, spec)| claim(&mut builder, &format!("c{index}"), spec));
    let classes = classes.collect();
    (builder.build(), classes)
}

fn verdict(claims: &[Value]) -> (Verdict, u64) {
    let (inventory, classes) = node(compat(), claims);
    ask(&inventory, &classes)
}

/// A request with a selector that fails on the last NIC.
fn failing(name: &str, count: usize) -> Value {
    let mut request = exactly(name, "nic", count);
    request["exactly"]["selectors"] = json!([{"cel": {"expression": "device.attributes[\"nic\"].model == \"x\""}}]);
    request
}

fn all(name: &str, class: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": class, "allocationMode": "All"}})
}

fn is_proof((verdict, steps): (Verdict, u64)) {
    assert!(matches!(verdict, Verdict::Refused(Refusal::Infeasible(_))), "{verdict:?}");
    assert!(steps < 200, "{steps} steps");
}

#[test]
fn a_selector_that_fails_is_no_matter_if_too_little_is_left_before_it_is_asked() {
    let one = json!({"requests": [exactly("r", "gpu", 1)]});
    let mut claims = vec![one; 9];
    claims.push(json!({"requests": [failing("nic", 1)]}));
    is_proof(verdict(&claims));
    is_proof(verdict(&[json!({"requests": [exactly("gpu", "gpu", 9), failing("nic", 1)]})]));
}

#[test]
fn a_selector_that_fails_is_an_error_if_the_walk_gets_there_before_it_knows_that_nothing_fits() {
    let claims = [json!({"requests": [failing("nic", 1), exactly("gpu", "gpu", 9)]})];
    let (verdict, steps) = verdict(&claims);
    assert!(matches!(verdict, Verdict::Refused(Refusal::Fault(Fault::Selector(_)))), "{verdict:?}");
    assert!(steps < 200, "{steps} steps");
}

#[test]
fn after_the_last_request_that_may_fail_all_proofs_are_allowed() {
    let mut claims = vec![json!({"requests": [exactly("first", "nic", 1)]}), json!({"requests": [failing("nic", 3)]})];
    claims.extend(vec![json!({"requests": [exactly("r", "gpu", 1)]}); 9]);
    let (verdict, steps) = verdict(&claims);
    // The first claim has what the second needs; with another choice the walk gets to the NIC without model.
    assert!(matches!(verdict, Verdict::Refused(Refusal::Fault(Fault::Selector(_)))), "{verdict:?}");
    assert!(steps < 500, "{steps} steps");
}

#[test]
fn all_devices_under_a_constraint_are_no_matter_if_too_little_is_left_before_they_are_asked_for() {
    let aligned = json!([{"matchAttribute": "example.com/root"}]);
    let spec = json!({"requests": [exactly("gpu", "gpu", 9), all("nic", "nic")], "constraints": aligned});
    is_proof(verdict(&[spec]));
    let spread = json!({"requests": [exactly("gpu", "gpu", 5), all("nic", "nic")], "constraints": aligned});
    is_proof(verdict(&[spread]));
}

#[test]
fn all_devices_under_a_constraint_that_they_break_are_an_error() {
    let aligned = json!([{"matchAttribute": "example.com/root"}]);
    let spec = json!({"requests": [exactly("gpu", "gpu", 4), all("nic", "nic")], "constraints": aligned});
    let (verdict, steps) = verdict(&[spec]);
    assert!(matches!(verdict, Verdict::Refused(Refusal::Fault(Fault::AllUnderConstraint { .. }))), "{verdict:?}");
    assert!(steps < 200, "{steps} steps");
}

#[test]
fn what_comes_after_all_devices_under_a_constraint_is_counted() {
    let alike = json!([{"matchAttribute": "example.com/root", "requests": ["gpu"]}]);
    let mut claims = vec![json!({"requests": [exactly("two", "gpu", 2), all("gpu", "gpu")], "constraints": alike})];
    claims[0]["requests"][1]["exactly"]["selectors"] =
        json!([{"cel": {"expression": "device.attributes[\"example.com\"].root == 1"}}]);
    claims.extend(vec![json!({"requests": [exactly("r", "nic", 1)]}); 5]);
    let (verdict, steps) = verdict(&claims);
    assert!(matches!(verdict, Verdict::Refused(Refusal::Infeasible(_))), "{verdict:?}");
    assert!(steps < STEPS / 10, "{steps} steps");
}

#[test]
fn distinct_attributes_of_1_36_leave_counting_its_proofs() {
    let compat = Compat::with_gates(KubernetesMinor::V1_36, Gates::all(KubernetesMinor::V1_36));
    let spec = json!({
        "requests": [exactly("nic", "nic", 1), exactly("gpu", "gpu", 9)],
        "constraints": [{"distinctAttribute": "example.com/root", "requests": ["nic"]}],
    });
    let (inventory, classes) = node(compat, &[spec]);
    is_proof(ask(&inventory, &classes));
}
