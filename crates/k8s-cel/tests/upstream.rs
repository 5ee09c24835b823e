//! Selectors against verdicts that upstream gave, recorded by `test/oracle/cel` on cases of the example `cel_cases`.

#[path = "../examples/cel_conformance.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod conformance;

#[test]
fn recorded_verdicts_errors_places_and_costs_of_upstream_are_ours() {
    let (cases, differences) = conformance::run(include_str!("cel/upstream.jsonl")).unwrap();
    assert!(cases > 500, "only {cases} cases were read");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
