//! Derived attributes (KEP-6080): a table of pairs of a GPU and a NIC whose drivers name topology differently.

use serde_json::{Value, json};

use crate::compile::ids::ClaimClassId;
use crate::faults::{Fault, Scope};
use crate::fixture::{ask, ask_with, builder_for, claim, compat, devices, exactly, local, names};
use crate::inventory::Inventory;
use crate::verdict::{Proof, Refusal, Verdict};
use dra_types::compat::{Compat, Gate, Gates, KubernetesMinor};

const NUMA: &str = "example.com/numa";
/// GPUs say `socket-<n>`, two devices a socket.
const OF_GPU: &str = "int(device.attributes['gpu'].place.split('-')[1])";
/// NICs say the node, two of which make a socket.
const OF_NIC: &str = "device.attributes['nic'].numa / 2";

fn derived(mut request: Value, expression: &str) -> Value {
    request["exactly"]["derivedAttributes"] = json!([{"name": NUMA, "expression": expression}]);
    request
}

fn answer(compat: Compat, constraint: &str, requests: &[Value]) -> Verdict {
    let (inventory, class) = published(compat, constraint, requests);
    ask(&inventory, &[class]).0
}

fn published(compat: Compat, constraint: &str, requests: &[Value]) -> (Inventory, ClaimClassId) {
    let mut builder = builder_for(compat, &["gpu", "nic"]);
    let place = |index: usize| json!({"attributes": {"place": {"string": format!("socket-{}", index / 2)}}});
    builder.slice(local("gpu", &devices(4, place)));
    let numa =
        |index: usize| json!({"attributes": {"numa": {"int": 2 + index}, NUMA: {"int": 7}, "root": {"string": "x"}}});
    builder.slice(local("nic", &devices(2, numa)));
    let class = claim(&mut builder, "c", &json!({"requests": requests, "constraints": [{constraint: NUMA}]}));
    (builder.build(), class)
}

fn pair(gpu: &str, nic: &str) -> [Value; 2] {
    [derived(exactly("gpu", "gpu", 1), gpu), derived(exactly("nic", "nic", 1), nic)]
}

#[test]
fn devices_of_two_drivers_are_aligned_by_what_each_request_computes() {
    // NIC 0 is of NUMA node 2, socket 1, where GPUs d02 and d03 are.
    assert_eq!(names(&answer(compat(), "matchAttribute", &pair(OF_GPU, OF_NIC))), ["d02", "d00"]);
    let constant = pair("1", "1");
    assert_eq!(names(&answer(compat(), "matchAttribute", &constant)), ["d00", "d00"]);
    assert_eq!(names(&answer(compat(), "distinctAttribute", &pair(OF_GPU, OF_NIC))), ["d00", "d00"]);
    let lists = pair("[0, 5]", "[5, 6]");
    assert_eq!(names(&answer(compat(), "matchAttribute", &lists)), ["d00", "d00"]);
}

#[test]
fn a_derived_attribute_shadows_a_published_one_and_equals_published_values() {
    // The NIC publishes 7 under the constraint's name.
    let published = [derived(exactly("gpu", "gpu", 1), "3 + 4"), exactly("nic", "nic", 1)];
    assert_eq!(names(&answer(compat(), "matchAttribute", &published)), ["d00", "d00"]);
    let shadowed = pair("7", "8");
    assert!(names(&answer(compat(), "matchAttribute", &shadowed)).is_empty());
    // Kinds differ: 7 is not "7".
    let text = [derived(exactly("gpu", "gpu", 1), "'7'"), exactly("nic", "nic", 1)];
    assert!(names(&answer(compat(), "matchAttribute", &text)).is_empty());
}

#[test]
fn values_that_never_meet_are_refused_by_counting() {
    let (inventory, class) = published(compat(), "matchAttribute", &pair("'socket'", OF_NIC));
    let (verdict, _) = ask(&inventory, &[class]);
    let Verdict::Refused(Refusal::Infeasible(infeasible)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(infeasible.reasoned(&inventory).proof, Proof::NoCommonValue { claim: 0, constraint: 0 });
}

#[test]
fn an_expression_that_fails_or_does_not_compile_ends_the_pod_where_the_walk_gets_there() {
    for expression in ["device.attributes['gpu'].absent", "device.name", "1.5", "1 / 0"] {
        let verdict = answer(compat(), "matchAttribute", &pair(expression, OF_NIC));
        let Verdict::Refused(Refusal::Fault(fault @ Fault::Derived { .. })) = verdict else { panic!("{verdict:?}") };
        assert_eq!(fault.scope(), Scope::Pod);
        assert!(fault.to_string().starts_with("claim c, request gpu: derived attribute example.com/numa"), "{fault}");
    }
    // Nobody asks what the devices of the other driver would give.
    let mut picky = pair("device.attributes['gpu'].place", "'socket-0'");
    picky[0]["exactly"]["selectors"] = json!([{"cel": {"expression": "device.driver == 'gpu'"}}]);
    assert_eq!(names(&answer(compat(), "matchAttribute", &picky)), ["d00", "d00"]);
}

#[test]
fn an_alternative_computes_its_own_value() {
    let alternative = |name: &str, expression: &str| json!({"name": name, "deviceClassName": "gpu", "derivedAttributes": [{"name": NUMA, "expression": expression}]});
    let either = json!({"name": "gpu", "firstAvailable": [alternative("far", "99"), alternative("near", OF_GPU)]});
    let verdict = answer(compat(), "matchAttribute", &[either, derived(exactly("nic", "nic", 1), OF_NIC)]);
    let Verdict::Allocated { allocations, score } = &verdict else { panic!("{verdict:?}") };
    assert_eq!(&*allocations[0].results[0].request, "gpu/near");
    assert_eq!((names(&verdict), *score), (vec!["d02".to_owned(), "d00".to_owned()], 7));
}

#[test]
fn without_the_gate_1_37_refuses_the_request_and_older_releases_do_not_see_it() {
    let off = Compat::with_gates(
        KubernetesMinor::V1_37,
        Gates::all(KubernetesMinor::V1_37).with(Gate::DerivedAttributes, false),
    );
    let verdict = answer(off, "matchAttribute", &pair("1", "1"));
    let Verdict::Refused(refusal) = verdict else { panic!("{verdict:?}") };
    let expected = "claim c: request gpu: has derived attributes, but the DRADerivedAttributes feature is disabled";
    assert_eq!(refusal.to_string(), expected);
    let old = Compat::with_gates(KubernetesMinor::V1_36, Gates::all(KubernetesMinor::V1_36));
    assert!(names(&answer(old, "matchAttribute", &pair("1", "1"))).is_empty(), "GPUs publish no such attribute");
}

#[test]
fn what_one_search_numbered_does_not_change_another() {
    let mut builder = builder_for(compat(), &["gpu"]);
    builder.slice(local("gpu", &devices(3, |index| json!({"attributes": {"n": {"int": index}}}))));
    let spec = |expression: &str| json!({"requests": [derived(exactly("r", "gpu", 2), expression)], "constraints": [{"matchAttribute": NUMA}]});
    let pairs = claim(&mut builder, "pairs", &spec("device.attributes['gpu'].n > 0"));
    let parity = claim(&mut builder, "parity", &spec("device.attributes['gpu'].n % 2"));
    let inventory = builder.build();
    let ledger = crate::ClusterLedger::new(&inventory);
    for _ in 0..2 {
        assert_eq!(names(&ask_with(&inventory, &[parity], &ledger).0), ["d00", "d02"]);
        assert_eq!(names(&ask_with(&inventory, &[pairs], &ledger).0), ["d01", "d02"]);
    }
}
