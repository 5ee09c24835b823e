//! Random questions with the answers of kube-scheduler's plugins, as `cargo xtask oracle` wrote them. So a clone
//! without Go compares with known answers too.

#[path = "../examples/plugin_differential/compare.rs"]
#[allow(dead_code, reason = "names of deliberate differences are for people")]
mod compare;
#[path = "../examples/plugin_differential/ours.rs"]
mod ours;
#[path = "../examples/plugin_differential/refusal.rs"]
mod refusal;

use std::collections::{BTreeMap, BTreeSet};

use compare::Comparison;
use dra_types::KubernetesMinor;
use serde_json::{Value, json};

#[test]
fn random_questions_are_answered_as_kube_scheduler_did_when_they_were_recorded() {
    let recorded = include_str!("plugins/recorded.jsonl");
    let mut kinds: BTreeMap<KubernetesMinor, BTreeSet<&str>> = BTreeMap::new();
    let mut questions: BTreeMap<KubernetesMinor, usize> = BTreeMap::new();
    for line in recorded.lines() {
        let question: Value = serde_json::from_str(line).unwrap();
        let release = oracle_harness::arguments::release(question["kubernetes"].as_str().unwrap()).unwrap();
        *questions.entry(release).or_default() += 1;
        match compare::compare(&question, release, &json!({"nodes": question["answer"]})) {
            Comparison::Same(of) => kinds.entry(release).or_default().extend(of),
            Comparison::Known(_) => {}
            Comparison::Different(difference) => panic!("{}: {difference}", question["name"]),
            Comparison::Unanswered(unanswered) => panic!("{}: {unanswered:?}", question["name"]),
        }
    }
    for release in [KubernetesMinor::V1_36, KubernetesMinor::V1_37] {
        assert!(questions[&release] >= 150, "{questions:?}");
        assert!(kinds[&release].len() >= 10, "{release}: {:?}", kinds[&release]);
    }
}
