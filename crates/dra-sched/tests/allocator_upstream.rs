//! Questions on which we once differed from upstream's allocator, with its answers, as `cargo xtask oracle` wrote them.

#[path = "../examples/conformance.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod conformance;

#[test]
fn questions_that_were_answered_differently_once_are_answered_as_upstream_does() {
    let recorded = include_str!("allocator/upstream.jsonl");
    let differences: Vec<String> = recorded.lines().filter_map(|line| conformance::check(line).err()).collect();
    assert!(recorded.lines().count() >= 3, "only {} questions were recorded", recorded.lines().count());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
