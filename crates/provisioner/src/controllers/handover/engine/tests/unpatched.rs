//! Machines that need no patches.

use super::*;

/// Two machines with two pods each that need no patches.
fn two() -> Cluster {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1", "2"]).needs_no_patches = true;
    cluster.machine("b", &["3", "4"]).needs_no_patches = true;
    cluster
}

fn stop_needing_none(machine: &mut Machine) {
    machine.needs_no_patches = false;
}

#[test]
fn machines_that_need_no_patches_open_together_and_no_pod_is_patched() {
    for (b_usable, expected) in [
        (700, ["700 open a Unpatched", "700 open b Unpatched"]),
        // A second is as long as others are waited for.
        (1_700, ["1500 open a Unpatched", "1700 open b Unpatched"]),
    ] {
        let mut cluster = two();
        cluster.usable_at(500, "a");
        cluster.usable_at(b_usable, "b");
        cluster.run(120_000);
        assert_eq!(cluster.lines(), expected);
        assert_eq!(cluster.engine.followed().count(), 0, "nothing is left to do: {:?}", cluster.view);
    }
}

#[test]
fn machines_that_were_launched_lately_are_waited_for() {
    for (expected_ms, opened) in [(500, 600), (900, 900), (5_000, 1_600)] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1"]).needs_no_patches = true;
        cluster.expected_until = Some(START.saturating_add(DurationMs(expected_ms)));
        cluster.usable_at(600, "a");
        cluster.run(120_000);
        assert_eq!(cluster.lines(), [format!("{opened} open a Unpatched")]);
    }
}

#[test]
fn a_machine_that_comes_to_need_patches_before_it_opens_gets_them() {
    let mut cluster = two();
    cluster.usable_at(500, "a");
    cluster.at(900, Effect::Change(stop_needing_none, "a".into()));
    cluster.usable_at(1_500, "b");
    cluster.run(120_000);
    assert_eq!(
        cluster.lines(),
        ["900 tolerate 1 on a", "900 tolerate 2 on a", "923 open a HandedOver", "1500 open b Unpatched"]
    );
}

#[test]
fn pods_that_have_their_tolerations_stay_the_only_ones_that_may_enter() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1", "2"]);
    cluster.usable_at(500, "a");
    // While the first toleration is under way, and after the watch has shown it.
    cluster.never_bind.insert("a".into());
    for ms in [501, 510] {
        cluster.at(ms, Effect::Change(|machine| machine.needs_no_patches = true, "a".into()));
    }
    cluster.run(5_000);
    assert_eq!(cluster.lines(), ["500 tolerate 1 on a", "500 tolerate 2 on a"]);
}

#[test]
fn pods_that_do_not_come_by_themselves_are_nominated_after_a_while() {
    let mut cluster = two();
    cluster.never_bind.insert("b".into());
    cluster.usable_at(500, "a");
    cluster.usable_at(500, "b");
    cluster.run(120_000);
    let nominated = cluster.times("nominate");
    // The last progress is the first machine's pods being bound, 20 ms after the opening.
    assert_eq!(nominated.len(), 2, "{:?}", cluster.lines());
    assert!(nominated.iter().all(|ms| (12_522..12_600).contains(ms)), "{:?}", cluster.lines());
    assert_eq!(cluster.times("tolerate"), [0; 0]);
}

#[test]
fn an_opening_that_fails_is_tried_again_if_the_machine_still_needs_no_patches() {
    for (changes, expected) in [
        (false, vec!["500 open a Unpatched", "1002 open a Unpatched"]),
        (true, vec!["500 open a Unpatched", "1002 tolerate 1 on a", "1002 tolerate 2 on a", "1025 open a HandedOver"]),
    ] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1", "2"]).needs_no_patches = true;
        cluster.fail.insert("a".into(), 1);
        cluster.usable_at(500, "a");
        if changes {
            cluster.at(700, Effect::Change(stop_needing_none, "a".into()));
        }
        cluster.run(120_000);
        assert_eq!(cluster.lines(), expected);
    }
}

#[test]
fn pods_that_are_about_to_come_by_themselves_are_not_reminded_of_their_machine() {
    for (needs_no_patches, reminded) in [(true, false), (false, true)] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1"]).needs_no_patches = true;
        cluster.never_bind.insert("a".into());
        cluster.usable_at(500, "a");
        cluster.machine("b", &["2"]);
        cluster.usable_at(3_000, "b");
        // Elsewhere, or on the machine that was opened without patches.
        cluster.late = vec![(if needs_no_patches { "a" } else { "elsewhere" }.into(), planned("late"))];
        cluster.run(5_000);
        assert_eq!(!cluster.times("nominate late").is_empty(), reminded, "{:?}", cluster.lines());
        assert!(!cluster.times("open b").is_empty(), "{:?}", cluster.lines());
    }
}

#[test]
fn where_pods_are_nominated_no_machine_opens_without() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]).needs_no_patches = true;
    cluster.usable_at(500, "a");
    cluster.run(120_000);
    assert_eq!(cluster.times("nominate").len(), 1, "{:?}", cluster.lines());
}
