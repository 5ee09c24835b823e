//! What was asked for before goes as long as it holds, and nothing else is looked for.

use super::*;
use crate::disruption::{Memory, plan_disruption_after};

/// Three machines, of which any pods fit on any two.
fn three() -> Fixture {
    let mut f = fixture();
    for name in ["a", "b", "c"] {
        machine(&mut f, name, "medium", &[1000]);
    }
    f
}

/// What goes if those were asked for, and whether that is all that was looked at.
fn going_after(f: &Fixture, asked_for: &[&[&str]], change: impl FnOnce(&mut Fleet)) -> (Vec<String>, bool) {
    let mut snapshot = f.snapshot();
    snapshot.options.disruption.eviction_price_nano_usd = 0;
    let mut fleet = priced(&snapshot);
    change(&mut fleet);
    snapshot.fleet = Some(Arc::new(fleet));
    let asked_for: Vec<Vec<_>> = asked_for.iter().map(|set| set.iter().map(|name| (*name).into()).collect()).collect();
    let plan = plan_disruption_after(&snapshot, &asked_for, &mut Memory::default());
    assert_eq!(plan.fleet_bound.is_none(), plan.is_asked_for);
    (going(&snapshot, &plan).0, plan.is_asked_for)
}

#[test]
fn what_was_asked_for_goes_though_a_search_finds_more_or_others() {
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let f = three();
    assert_eq!(going_after(&f, &[], |_| ()), (names(&["a", "c"]), false));
    assert_eq!(going_after(&f, &[&["c"]], |_| ()), (names(&["c"]), true));
    assert_eq!(going_after(&f, &[&["b"], &["c"]], |_| ()), (names(&["b", "c"]), true));
    // Without all three one of their kind would be launched: the last gives way.
    assert_eq!(going_after(&f, &[&["a"], &["b"], &["c"]], |_| ()), (names(&["a", "b"]), true));
    assert_eq!(going_after(&f, &[&["gone"], &["c"]], |_| ()), (names(&["c"]), true));
    assert_eq!(going_after(&f, &[&["c", "gone"]], |_| ()), (names(&["a", "c"]), false));
    assert_eq!(going_after(&f, &[&["b"], &["c"]], |fleet| allow(fleet, 1)), (names(&["b"]), true));
    assert_eq!(going_after(&f, &[&["b", "c"]], |fleet| allow(fleet, 1)), (names(&["a"]), false));
    // Pods have come since, and all are full: one can't go any more, two can.
    let mut full = fixture();
    for name in ["a", "b", "c"] {
        machine(&mut full, name, "medium", &[1000, 3000]);
    }
    assert_eq!(going_after(&full, &[&["c"]], |_| ()), (names(&["a", "b"]), false));
}
