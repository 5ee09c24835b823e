use serde_json::json;

use super::*;

#[test]
fn processes_ask_at_different_times_for_what_is_sold_within_the_last_hour_of_twelve() {
    let hours: Vec<_> = [0, 1_000_000, u64::MAX].map(|seed| fresh(seed).0 as f64 / 3_600_000.0).into();
    assert_eq!(hours.first(), Some(&12.0));
    assert!(hours.iter().all(|hours| *hours > 11.0 && *hours <= 12.0), "{hours:?}");
    assert_ne!(hours.get(1), hours.get(2));
}

fn class(generation: i64, is_going: bool) -> Value {
    let mut object = json!({"metadata": {"name": "c", "generation": generation, "resourceVersion": "7"}});
    if is_going {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    object
}

#[test]
fn a_class_is_looked_at_when_it_is_time_or_something_else_is_asked_for() {
    let mut due = Due::default();
    let asked = Asked::of(&class(1, false));
    assert!(due.is_due("c", &asked, Timestamp(0)), "nobody has looked at it yet");
    due.classes.insert("c".to_owned(), (asked.clone(), Timestamp(100)));
    assert!(!due.is_due("c", &asked, Timestamp(99)));
    assert!(due.is_due("c", &asked, Timestamp(100)));
    assert!(due.is_due("c", &Asked::of(&class(2, false)), Timestamp(0)));
    assert!(due.is_due("c", &Asked::of(&class(1, true)), Timestamp(0)));
    let mut written = class(1, false);
    written["metadata"]["resourceVersion"] = json!("8");
    assert!(!due.is_due("c", &Asked::of(&written), Timestamp(0)), "a status is no reason");
}
