use serde_json::json;

use super::*;

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
