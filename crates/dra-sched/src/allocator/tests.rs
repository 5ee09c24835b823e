//! Refusals are proofs and cheap; answers are upstream's first ones. Upstream itself is asked by `test/oracle`.

mod brute_force;
mod derived;
mod errors_apart;
mod errors_bounded;
mod errors_brute_force;
mod explained;
mod generations;

use serde_json::{Value, json};

use crate::allocate;
use crate::explain::Explanation;
use crate::fixture::{ask, builder, claim, devices, exactly, local, names};
use crate::verdict::{Proof, Refusal, Verdict};

/// The proof of a refusal, and that it took few steps.
fn refuted(slices: &[(&str, Value)], claims: &[Value]) -> Proof {
    let drivers: Vec<&str> = slices.iter().map(|(driver, _)| *driver).collect();
    let mut builder = builder(&drivers);
    let mut count = 0;
    for (driver, devices) in slices {
        count += devices.as_array().unwrap().len();
        builder.slice(local(driver, devices));
    }
    let mut requests = 0;
    let mut classes = Vec::new();
    for (index, spec) in claims.iter().enumerate() {
        requests += spec["requests"].as_array().unwrap().len();
        classes.push(claim(&mut builder, &format!("c{index}"), spec));
    }
    let inventory = builder.build();
    let (verdict, steps) = ask(&inventory, &classes);
    let Verdict::Refused(Refusal::Infeasible(infeasible)) = verdict else { panic!("{verdict:?}") };
    assert!(steps <= 10 * (count + requests) as u64, "{steps} steps for {count} devices and {requests} requests");
    infeasible.reasoned(&inventory).proof.clone()
}

fn plain(count: usize) -> Value {
    devices(count, |_| json!({}))
}

#[test]
fn one_device_more_than_there_are_is_refused_by_counting() {
    for n in [1, 4, 8, 16, 31] {
        let proof = refuted(&[("gpu", plain(n))], &[json!({"requests": [exactly("r", "gpu", n + 1)]})]);
        assert!(matches!(proof, Proof::TooFew { wanted, usable, .. } if wanted == usable + 1), "{proof:?}");
    }
}

#[test]
fn claims_that_compete_for_too_few_devices_are_refused_together() {
    let one = json!({"requests": [exactly("r", "gpu", 1)]});
    let proof = refuted(&[("gpu", plain(8))], &vec![one; 9]);
    assert!(matches!(proof, Proof::Together { wanted: 9, .. }), "{proof:?}");
    let halves = json!({"requests": [exactly("a", "gpu", 8), exactly("b", "gpu", 9)]});
    assert!(matches!(refuted(&[("gpu", plain(16))], &[halves]), Proof::Together { wanted: 17, .. }));
}

#[test]
fn a_later_request_that_nothing_meets_costs_no_search() {
    let spec = json!({"requests": [exactly("a", "gpu", 4), exactly("b", "nic", 1)]});
    let proof = refuted(&[("gpu", plain(8)), ("nic", plain(0))], &[spec]);
    assert!(matches!(proof, Proof::TooFew { usable: 0, .. }), "{proof:?}");
}

#[test]
fn matching_is_refused_value_by_value() {
    let rooted = |count: usize, roots: usize| {
        devices(count, |index| json!({"attributes": {"example.com/root": {"int": index % roots}}}))
    };
    let aligned = |gpus, nics| {
        json!({
            "requests": [exactly("gpu", "gpu", gpus), exactly("nic", "nic", nics)],
            "constraints": [{"matchAttribute": "example.com/root"}],
        })
    };
    let slices = [("gpu", rooted(8, 4)), ("nic", rooted(4, 4))];
    let proof = refuted(&slices, &[aligned(2, 2)]);
    assert!(matches!(proof, Proof::NoCommonValue { claim: 0, constraint: 0 }), "{proof:?}");
    let pairs = aligned(1, 1);
    let extra = json!({"requests": [exactly("nic", "nic", 2)]});
    refuted(&slices, &[pairs.clone(), pairs.clone(), pairs, extra]);
}

#[test]
fn an_attribute_that_no_device_has_is_named() {
    let mut builder = builder(&["gpu"]);
    builder.slice(local("gpu", &plain(4)));
    let spec = json!({"requests": [exactly("r", "gpu", 2)], "constraints": [{"matchAttribute": "example.com/numa"}]});
    let class = claim(&mut builder, "c", &spec);
    let inventory = builder.build();
    let (verdict, _) = ask(&inventory, &[class]);
    let Verdict::Refused(refusal) = verdict else { panic!("{verdict:?}") };
    assert_eq!(
        Explanation::of(&inventory, &refusal, &|_| None).message,
        "claim c, request r: 0 of 4 devices are usable, 2 wanted; 4 lack attribute example.com/numa"
    );
}

#[test]
fn distinct_values_are_counted() {
    let slices = [("gpu", devices(6, |index| json!({"attributes": {"example.com/root": {"int": index % 2}}})))];
    let spec =
        json!({"requests": [exactly("r", "gpu", 3)], "constraints": [{"distinctAttribute": "example.com/root"}]});
    assert!(matches!(refuted(&slices, &[spec]), Proof::TooFewValues { .. }));
}

#[test]
fn a_constraint_moves_the_choice_to_the_first_devices_that_agree() {
    let mut builder = builder(&["gpu"]);
    let roots = ["a", "b", "c", "b", "b"];
    let root = |index: usize| json!({"attributes": {"example.com/root": {"string": roots[index]}}});
    builder.slice(local("gpu", &devices(5, root)));
    let spec = json!({"requests": [exactly("r", "gpu", 3)], "constraints": [{"matchAttribute": "example.com/root"}]});
    let class = claim(&mut builder, "c", &spec);
    assert_eq!(names(&ask(&builder.build(), &[class]).0), ["d01", "d03", "d04"]);
}

#[test]
fn a_selector_that_fails_ends_the_pod_only_if_the_walk_gets_there() {
    let mut builder = builder(&["gpu"]);
    let memory = |index: usize| if index == 1 { json!({}) } else { json!({"attributes": {"model": {"string": "x"}}}) };
    builder.slice(local("gpu", &devices(3, memory)));
    let wants = |count| {
        json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count,
            "selectors": [{"cel": {"expression": "device.attributes[\"gpu\"].model == \"x\""}}]}}]})
    };
    let (one, two) = (claim(&mut builder, "one", &wants(1)), claim(&mut builder, "two", &wants(2)));
    let inventory = builder.build();
    assert_eq!(names(&ask(&inventory, &[one]).0), ["d00"]);
    assert!(matches!(ask(&inventory, &[two]).0, Verdict::Refused(Refusal::Fault(_))));
}

#[test]
fn running_out_of_budget_is_neither_yes_nor_no() {
    let mut builder = builder(&["gpu"]);
    builder.slice(local("gpu", &plain(8)));
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "gpu", 8)]}));
    let inventory = builder.build();
    let ledger = crate::ClusterLedger::new(&inventory);
    let verdict = allocate(&inventory, &crate::fixture::n1(), &[class], &ledger, &mut model::Budget::new(3));
    assert!(matches!(verdict, Verdict::OutOfBudget(progress) if progress.steps == 3), "{verdict:?}");
}
