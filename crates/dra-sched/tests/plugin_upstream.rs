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
use oracle_harness::counts::Unanswered;
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

#[test]
fn a_search_that_the_scheduler_gave_up_for_time_is_no_answer_of_its() {
    let recorded = include_str!("plugins/recorded.jsonl");
    let question: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    let compared = |plugin: &str, reason: &str| {
        let status = json!({"code": "Error", "plugin": plugin, "stage": "Filter", "reasons": [reason]});
        compare::compare(&question, KubernetesMinor::V1_37, &json!({"nodes": [status]}))
    };
    let timed_out = "node node-1: timed out trying to allocate devices";
    let is_unanswered = |compared| matches!(compared, Comparison::Unanswered(Unanswered::Theirs));
    assert!(is_unanswered(compared("DynamicResources", timed_out)));
    assert!(!is_unanswered(compared("DynamicResources", "claim c, request r: CEL runtime error: no such key")));
    assert!(!is_unanswered(compared("NodeResourcesFit", timed_out)));
}
