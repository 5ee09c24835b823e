//! Steps of walks that could end in an error after requests that can be served, for growing numbers of distinct
//! devices.
//!
//! A walk without proofs tries every way to serve the requests before: *n·(n-1)·…* of them, so that eight devices take
//! more than a thousand steps and sixteen more than a budget. With proofs the steps stay below a square of the devices.

use serde_json::{Value, json};

use crate::ClusterLedger;
use crate::faults::Fault;
use crate::fixture::{ask_with, builder, claim, devices, exactly, local};
use crate::verdict::{Refusal, Verdict};
use dra_types::DeviceId;

const SIZES: [usize; 4] = [4, 8, 16, 32];

const ROOT: &str = "example.com/root";

/// How a question ends.
#[derive(Debug, PartialEq)]
enum End {
    Infeasible,
    FailingSelector,
    Violation,
}

/// Distinct GPUs and some NICs, claims of one GPU each, and one more.
struct Question {
    gpus: Value,
    nics: Value,
    /// Claims of one GPU each before the last claim.
    ones: usize,
    last: Value,
    /// NICs that are taken.
    taken: Vec<usize>,
}

/// GPUs of which no two are alike to a constraint. `gpu-0` lacks the attribute that [`failing`] reads.
fn gpus(count: usize) -> Value {
    devices(count, |index| {
        let mut attributes = json!({ROOT: {"int": index}, "gpu/model": {"string": "old"}});
        if index == 0 {
            attributes = json!({ROOT: {"int": index}});
        }
        json!({"attributes": attributes})
    })
}

/// NICs on the given roots.
fn nics(roots: &[usize]) -> Value {
    devices(roots.len(), |index| json!({"attributes": {ROOT: {"int": roots[index]}}}))
}

/// A request whose selector fails on the first GPU and wants none of the others.
fn failing() -> Value {
    let selectors = json!([{"cel": {"expression": "device.attributes[\"gpu\"].model == \"new\""}}]);
    json!({"requests": [{"name": "f", "exactly": {"deviceClassName": "gpu", "count": 1, "selectors": selectors}}]})
}

/// All devices of a class, on one root.
fn aligned(class: &str) -> Value {
    json!({
        "requests": [{"name": "all", "exactly": {"deviceClassName": class, "allocationMode": "All"}}],
        "constraints": [{"matchAttribute": ROOT}],
    })
}

impl Question {
    fn of(count: usize, ones: usize, last: Value) -> Self {
        Self { gpus: gpus(count), nics: nics(&[]), ones, last, taken: Vec::new() }
    }

    fn ask(&self) -> (End, u64) {
        let mut builder = builder(&["gpu", "nic"]);
        builder.slice(local("gpu", &self.gpus));
        builder.slice(local("nic", &self.nics));
        // The constraint of one device holds always, and tells all GPUs apart.
        let one = json!({"requests": [exactly("r", "gpu", 1)], "constraints": [{"matchAttribute": ROOT}]});
        let ones = (0..self.ones).map(|_| &one).chain([&self.last]);
        let claims: Vec<_> =
            ones.enumerate().map(|(index, spec)| claim(&mut builder, &format!("c{index}"), spec)).collect();
        let inventory = builder.build();
        let mut ledger = ClusterLedger::new(&inventory);
        for nic in &self.taken {
            let device = format!("d{nic:02}").as_str().into();
            ledger.hold_device(&inventory, &DeviceId { driver: "nic".into(), pool: "n1".into(), device });
        }
        let (verdict, steps) = ask_with(&inventory, &claims, &ledger);
        let end = match verdict {
            Verdict::Refused(Refusal::Infeasible(_)) => End::Infeasible,
            Verdict::Refused(Refusal::Fault(Fault::Selector(_))) => End::FailingSelector,
            Verdict::Refused(Refusal::Fault(Fault::AllUnderConstraint { .. })) => End::Violation,
            other => panic!("{other:?}"),
        };
        (end, steps)
    }
}

/// Asks the question of each size: how it ends, and that it takes few steps.
fn is_bounded(end: &End, question: impl Fn(usize) -> Question) {
    for size in SIZES {
        let (found, steps) = question(size).ask();
        assert_eq!(found, *end, "{size} GPUs");
        assert!(steps <= (3 * size * size) as u64, "{steps} steps for {size} GPUs");
    }
}

#[test]
fn a_selector_fails_on_a_device_that_no_assignment_leaves_free() {
    // The first claim is content with the first GPU only, which nobody else can have then.
    is_bounded(&End::Infeasible, |size| {
        let mut question = Question::of(size, size / 2, failing());
        let first = json!([{"cel": {"expression": format!("device.attributes[\"example.com\"].root == 0")}}]);
        let mut picky = exactly("p", "gpu", 1);
        picky["exactly"]["selectors"] = first;
        question.last["requests"].as_array_mut().unwrap().insert(0, picky);
        question
    });
    // As many claims as GPUs.
    is_bounded(&End::Infeasible, |size| Question::of(size, size, failing()));
}

#[test]
fn a_selector_fails_on_a_device_that_the_first_assignments_have_in_use() {
    is_bounded(&End::FailingSelector, |size| Question::of(size, size / 2, failing()));
    is_bounded(&End::FailingSelector, |size| Question::of(size, size - 1, failing()));
}

#[test]
fn all_devices_agree_but_one_of_them_is_taken() {
    is_bounded(&End::Infeasible, |size| Question {
        nics: nics(&[1, 1, 1]),
        taken: vec![2],
        ..Question::of(size, size / 2, aligned("nic"))
    });
}

#[test]
fn all_devices_disagree_behind_one_that_is_taken() {
    is_bounded(&End::Infeasible, |size| Question {
        nics: nics(&[1, 1, 2]),
        taken: vec![1],
        ..Question::of(size, size / 2, aligned("nic"))
    });
}

#[test]
fn all_devices_disagree_and_the_first_assignments_have_some_in_use() {
    let gpus_of = |size: usize, ones: usize| Question::of(size, ones, aligned("gpu"));
    // It takes the first two GPUs to see that they disagree.
    is_bounded(&End::Violation, |size| gpus_of(size, size / 2));
    is_bounded(&End::Violation, |size| gpus_of(size, size - 2));
    is_bounded(&End::Infeasible, |size| gpus_of(size, size - 1));
}

#[test]
fn all_devices_agree_with_what_some_assignments_choose_before_and_one_is_taken() {
    // Of the pairs of GPUs on one root, those on the NICs' root find a NIC taken, and the first on another root
    // disagrees.
    let question = |size: usize, others: usize| {
        let root = move |index: usize| usize::from(index >= size - others);
        let gpus = devices(
            size,
            |index| json!({"attributes": {ROOT: {"int": root(index)}, "example.com/index": {"int": index}}}),
        );
        let last = json!({
            "requests": [
                exactly("gpu", "gpu", 2),
                {"name": "all", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
            ],
            "constraints": [{"matchAttribute": ROOT}, {"distinctAttribute": "example.com/index", "requests": ["gpu"]}],
        });
        Question { gpus, nics: nics(&[0, 0, 0]), taken: vec![2], ..Question::of(size, 0, last) }
    };
    is_bounded(&End::Violation, |size| question(size, 2));
    // One GPU on another root is no pair.
    is_bounded(&End::Infeasible, |size| question(size, 1));
}
