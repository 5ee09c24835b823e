//! Questions with the answers of upstream's allocator, as `cargo xtask oracle` wrote them: random ones, and those on
//! which we once differed. So a clone without Go compares with known answers too.

#[path = "../examples/conformance.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod conformance;

/// Fails if one of at least so many questions is answered differently.
fn check(recorded: &str, least: usize) {
    let questions = recorded.lines().count();
    let differences: Vec<String> = recorded.lines().filter_map(|line| conformance::check(line).err()).collect();
    assert!(questions >= least, "only {questions} questions were recorded");
    assert!(differences.is_empty(), "{} of {questions}:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn questions_that_were_answered_differently_once_are_answered_as_upstream_does() {
    check(include_str!("allocator/upstream.jsonl"), 7);
}

#[test]
fn random_questions_are_answered_as_upstream_did_when_they_were_recorded() {
    check(include_str!("allocator/recorded.jsonl"), 100);
}
