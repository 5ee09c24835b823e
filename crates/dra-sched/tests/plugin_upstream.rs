//! Random questions with the answers of kube-scheduler's plugins, as `cargo xtask oracle` wrote them. So a clone
//! without Go compares with known answers too.

#[path = "../examples/plugin_differential/compare.rs"]
#[allow(dead_code, reason = "names of deliberate differences are for people")]
mod compare;
#[path = "../examples/plugin_differential/ours.rs"]
mod ours;
#[path = "../examples/plugin_differential/refusal.rs"]
mod refusal;

use std::collections::BTreeSet;

use compare::Comparison;
use dra_types::KubernetesMinor;
use serde_json::{Value, json};

#[test]
fn random_questions_are_answered_as_kube_scheduler_did_when_they_were_recorded() {
    let recorded = include_str!("plugins/recorded.jsonl");
    let mut kinds = BTreeSet::new();
    for line in recorded.lines() {
        let question: Value = serde_json::from_str(line).unwrap();
        assert_eq!(question["kubernetes"], "1.36");
        match compare::compare(&question, KubernetesMinor::V1_36, &json!({"nodes": question["answer"]})) {
            Comparison::Same(of) => kinds.extend(of),
            Comparison::Known(_) => {}
            Comparison::Different(difference) => panic!("{}: {difference}", question["name"]),
            Comparison::Unanswered(unanswered) => panic!("{}: {unanswered:?}", question["name"]),
        }
    }
    assert!(recorded.lines().count() >= 150, "only {} questions were recorded", recorded.lines().count());
    assert!(kinds.len() >= 10, "{kinds:?}");
}
