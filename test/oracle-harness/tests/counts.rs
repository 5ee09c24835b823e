//! The comparisons with upstream's own code (`cargo xtask oracle`) cannot pass without comparing.

use oracle_harness::counts::{Counts, Floor, Unanswered};
use oracle_harness::varying::Among;
use serde_json::{Value, json};

const FLOOR: Floor = Floor { passed_percent: 95, kinds: &["allocated", "nothing"] };

/// A run of so many equal answers, of each kind in turn.
fn passed(times: usize) -> Counts {
    let mut counts = Counts::default();
    (0..times).for_each(|index| counts.pass(&[FLOOR.kinds[index % 2]]));
    counts
}

fn with(mut counts: Counts, times: usize, unanswered: &Unanswered) -> Counts {
    (0..times).for_each(|_| counts.unanswered(unanswered));
    counts
}

/// The faults of a run, each as far as the first number or colon.
fn faults(counts: &Counts) -> Vec<String> {
    let is_end = |char: char| char.is_ascii_digit() || char == ':' || char == '"';
    let start = |fault: String| fault.split(is_end).next().unwrap_or_default().trim().to_owned();
    counts.faults(FLOOR).into_iter().map(start).collect()
}

fn ours() -> Unanswered {
    Unanswered::Ours("a reason".to_owned())
}

#[test]
fn a_run_in_which_all_answers_are_equal_passes() {
    assert_eq!(faults(&passed(2000)), Vec::<String>::new());
    assert_eq!(passed(2000).asked(), 2000);
}

#[test]
fn a_run_that_compares_nothing_fails() {
    assert_eq!(faults(&Counts::default()), ["nothing was compared"]);
    assert_eq!(faults(&with(Counts::default(), 500, &Unanswered::Theirs)), ["nothing was compared"]);
    assert_eq!(faults(&with(Counts::default(), 500, &Unanswered::Crash)), ["nothing was compared"]);
    let deliberate = Counts { known: [("a difference", 500)].into(), ..Counts::default() };
    assert_eq!(faults(&deliberate), ["nothing was compared"]);
}

#[test]
fn a_run_with_a_difference_fails() {
    let mut counts = passed(2000);
    counts.failed = 1;
    assert_eq!(counts.faults(FLOOR), ["1 answers differ from upstream's"]);
}

#[test]
fn a_run_in_which_we_leave_more_than_one_in_two_hundred_unanswered_fails() {
    assert_eq!(faults(&with(passed(1990), 10, &ours())), Vec::<String>::new());
    assert_eq!(faults(&with(passed(1989), 11, &ours())), ["we did not answer"]);
}

#[test]
fn questions_that_upstream_leaves_unanswered_are_counted_apart_and_only_lower_what_passed() {
    let some = with(with(passed(1900), 60, &Unanswered::Theirs), 40, &Unanswered::Crash);
    assert_eq!((some.theirs, some.crashes, some.ours), (60, 40, 0));
    assert_eq!(faults(&some), Vec::<String>::new());
    let many = with(some, 1, &Unanswered::Crash);
    assert_eq!(many.faults(FLOOR), ["only 1900 of 2001 questions passed, less than 95 %"]);
}

#[test]
fn deliberate_differences_do_not_count_as_passed() {
    let mut counts = passed(1899);
    counts.known.insert("a difference", 101);
    assert_eq!(faults(&counts), ["only"]);
}

#[test]
fn a_long_run_that_never_meets_a_kind_of_answer_fails() {
    let mut counts = Counts::default();
    (0..1000).for_each(|_| counts.pass(&["allocated"]));
    assert_eq!(counts.faults(FLOOR), ["no answer was of the kind \"nothing\""]);
    let mut few = Counts::default();
    (0..100).for_each(|_| few.pass(&["allocated"]));
    assert_eq!(faults(&few), Vec::<String>::new());
}

/// Where `ours` stands among answers that upstream gives in turn.
fn among(answers: &[&str], ours: &str) -> Among {
    let mut turn = answers.iter().cycle();
    let mut ask = || Ok(turn.next().map_or(Value::Null, |answer| json!(answer)));
    let first = ask().unwrap();
    oracle_harness::varying::among(&first, 200, ask, |answer| *answer == ours).unwrap()
}

#[test]
fn an_answer_that_upstream_gives_now_and_then_is_upstreams() {
    let mut rare = vec!["a"; 99];
    rare.push("b");
    assert_eq!(among(&rare, "b"), Among::Seen);
}

#[test]
fn an_answer_outside_the_set_that_upstream_gives_is_a_difference() {
    assert_eq!(among(&["a", "b"], "c"), Among::Outside(vec![json!("a"), json!("b")]));
    assert_eq!(among(&["a"], "c"), Among::Other);
}
