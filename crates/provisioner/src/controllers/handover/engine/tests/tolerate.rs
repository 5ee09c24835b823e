//! Pods are let in by tolerations.

use super::*;

#[test]
fn pods_may_enter_their_machine_as_soon_as_it_is_usable_and_it_opens_when_they_are_bound() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1", "2"]);
    cluster.machine("b", &["3"]).pods[0].state = PodState::HandsOff;
    cluster.usable_at(1000, "a");
    cluster.usable_at(1500, "b");
    cluster.run(60_000);
    // Seen after 3 ms, bound 20 ms later.
    assert_eq!(
        cluster.lines(),
        ["1000 tolerate 1 on a", "1000 tolerate 2 on a", "1023 open a HandedOver", "1500 open b HandedOver"]
    );
    assert!(!cluster.engine.follows("a"));
}

#[test]
fn a_machine_stays_closed_while_pods_of_another_would_come_in_but_not_for_ever() {
    for (released, opened) in [(Some(30_000), "30000 open a HandedOver"), (None, "60000 open a HeldTooLong")] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1"]).attracts = Attracts::Others;
        cluster.usable_at(0, "a");
        if let Some(released) = released {
            cluster.at(released, Effect::Change(|machine| machine.attracts = Attracts::Nobody, "a".into()));
        }
        cluster.run(120_000);
        assert_eq!(cluster.lines(), ["0 tolerate 1 on a", opened]);
    }
}

#[test]
fn a_machine_is_held_longer_while_planned_pods_keep_coming_but_not_for_ever() {
    for (others, expected) in [
        (0, vec!["12002 nominate 1 to a", "12005 open a HeldTooLong"]),
        (20, vec!["107023 nominate 1 to a", "107026 open a HeldTooLong"]),
        (80, vec!["300000 open a HeldTooLong"]),
    ] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1"]);
        cluster.never_bind.insert("a".into());
        cluster.usable_at(0, "a");
        for index in 0..others {
            let node = format!("b{index:02}");
            cluster.machine(&node, &[&format!("p{index:02}")]).guarded = true;
            let comes = |machine: &mut Machine| (machine.usable, machine.guarded) = (true, false);
            cluster.at(index * 5_000, Effect::Change(comes, node.as_str().into()));
        }
        cluster.run(500_000);
        let of_a = cluster.lines().into_iter().filter(|line| line.contains(" 1 to a") || line.contains("open a"));
        let of_a: Vec<String> = of_a.collect();
        assert_eq!(of_a[..expected.len()], expected, "{others} others");
    }
}

#[test]
fn a_machine_that_pods_move_to_is_closed_until_the_last_has_come_or_no_more_come() {
    for (come, expected) in [
        (0, vec!["12000 open a HeldTooLong"]),
        (1, vec!["5000 tolerate 1 on a", "17023 open a HeldTooLong"]),
        (2, vec!["5000 tolerate 1 on a", "16000 tolerate 2 on a", "16023 open a HandedOver"]),
    ] {
        let mut cluster = Cluster::new(Config::default());
        let machine = cluster.machine("a", &[]);
        (machine.usable, machine.waits_for_successors) = (true, true);
        if come > 0 {
            cluster.at(5_000, Effect::Change(|machine| machine.pods.push(planned("1")), "a".into()));
        }
        if come > 1 {
            let last = |machine: &mut Machine| {
                machine.pods.push(planned("2"));
                machine.waits_for_successors = false;
            };
            cluster.at(16_000, Effect::Change(last, "a".into()));
        }
        cluster.run(120_000);
        assert_eq!(cluster.lines(), expected);
    }
}

#[test]
fn a_machine_that_attracts_pods_whom_some_rule_keeps_from_theirs_opens_before_those() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1"]).attracts = Attracts::LetIn;
    cluster.machine("b", &["2"]);
    cluster.never_bind.insert("b".into());
    cluster.usable_at(0, "a");
    cluster.usable_at(0, "b");
    cluster.run(24_100);
    let lines = cluster.lines();
    assert_eq!(lines[..2], ["0 tolerate 1 on a", "0 tolerate 2 on b"]);
    assert_eq!(lines[2..4], ["12023 nominate 2 to b", "12026 open a HandedOver"]);
    assert_eq!(lines[4..], ["24026 open b HeldTooLong"]);
}

#[test]
fn a_pod_that_comes_after_others_is_let_in_when_these_are_bound_or_time_runs_out() {
    for (released, expected) in [
        (Some(30_000), ["0 tolerate 1 on a", "30000 tolerate 2 on a", "30023 open a HandedOver"]),
        (None, ["0 tolerate 1 on a", "48000 tolerate 2 on a", "48023 open a HandedOver"]),
    ] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1", "2"]).pods[1].after_others = true;
        cluster.usable_at(0, "a");
        if let Some(released) = released {
            cluster.at(released, Effect::Change(|machine| machine.pods[1].after_others = false, "a".into()));
        }
        cluster.run(120_000);
        assert_eq!(cluster.lines(), expected);
    }
}

#[test]
fn a_pod_that_has_not_come_to_an_open_machine_is_nominated_to_it_right_before_others_open() {
    let mut cluster = Cluster::new(Config::default());
    let is_known = PlannedPod { state: PodState::Nominated, ..planned("4") };
    let not_ours = PlannedPod { state: PodState::HandsOff, ..planned("5") };
    cluster.late = [planned("3"), is_known, not_ours].map(|pod| ("open".into(), pod)).into();
    // It is tried before the opening, and fails.
    cluster.lose.insert("3".into(), 1);
    for (ms, node, pod) in [(0, "a", "1"), (20_000, "b", "2")] {
        cluster.machine(node, &[pod]);
        cluster.usable_at(ms, node);
    }
    cluster.run(120_000);
    assert_eq!(
        cluster.lines(),
        [
            "0 tolerate 1 on a",
            "23 nominate 3 to open",
            "26 open a HandedOver",
            "20000 tolerate 2 on b",
            "20023 nominate 3 to open",
            "20026 open b HandedOver"
        ]
    );
}

/// Each would find the others in its spread, and none would lose its nomination.
#[test]
fn of_pods_that_crowd_each_other_out_one_at_a_time_is_nominated_to_a_machine() {
    let crowding = |name: &str| PlannedPod { crowds_out_alike: true, ..planned(name) };
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &[]).pods = vec![crowding("1"), crowding("2"), planned("3")];
    cluster.machine("b", &[]).pods = vec![crowding("4")];
    for node in ["a", "b"] {
        cluster.usable_at(0, node);
    }
    cluster.run(60_000);
    let nominated = ["60 nominate 1 to a", "60 nominate 3 to a", "60 nominate 4 to b"];
    assert_eq!(cluster.lines(), [nominated.as_slice(), &["88 open a HandedOver", "88 open b HandedOver"]].concat());

    for (first, expected) in
        [(PodState::Nominated, vec![]), (PodState::Waiting, vec![23]), (PodState::Settled, vec![23])]
    {
        let mut cluster = Cluster::new(Config::default());
        let first = PlannedPod { state: first, ..crowding("1") };
        cluster.late = [first, crowding("2")].map(|pod| ("open".into(), pod)).into();
        cluster.machine("c", &["3"]);
        cluster.usable_at(0, "c");
        cluster.run(60_000);
        assert_eq!(cluster.times("nominate"), expected, "who comes first waits, is nominated, or bound");
    }
}

#[test]
fn who_cannot_be_nominated_holds_no_machine_up() {
    let mut cluster = Cluster::new(Config::default());
    // The watch does not show it.
    cluster.late = vec![("open".into(), planned("unseen"))];
    cluster.latency = DurationMs(1_000);
    for index in 0..5 {
        let node = format!("n{index}");
        cluster.machine(&node, &[&format!("p{index}")]);
        cluster.usable_at(index * 10_000, &node);
        cluster.lose.insert("unseen".into(), 10);
    }
    cluster.run(120_000);
    let (reminders, openings) = (cluster.times("nominate"), cluster.times("open"));
    assert_eq!(reminders, [1_021, 11_021, 21_021], "no more than patches_per_pod");
    assert_eq!(openings, [1_271, 11_271, 21_271, 31_021, 41_021]);
}

#[test]
fn machines_that_have_their_pods_open_together_in_a_pause_because_each_opening_wakes_all_that_wait() {
    let mut cluster = Cluster::new(Config::default());
    cluster.count_waiting = true;
    for (ms, node, pod) in [(0, "a", "1"), (700, "b", "2"), (1_500, "c", "3")] {
        cluster.machine(node, &[pod]);
        cluster.usable_at(ms, node);
    }
    // Waits for a machine that does not come.
    cluster.machine("d", &["4"]);
    cluster.run(10_000);
    let together = ["2523 open a HandedOver", "2523 open b HandedOver", "2523 open c HandedOver"];
    assert_eq!(
        cluster.lines(),
        [["0 tolerate 1 on a", "700 tolerate 2 on b", "1500 tolerate 3 on c"].as_slice(), &together].concat()
    );
}

#[test]
fn a_machine_that_has_its_pods_does_not_wait_for_others_without_end() {
    let mut cluster = Cluster::new(Config::default());
    cluster.count_waiting = true;
    for index in 0..40 {
        let node = format!("n{index:02}");
        cluster.machine(&node, &[&format!("p{index:02}")]);
        cluster.usable_at(index * 500, &node);
    }
    cluster.run(60_000);
    // The last one is complete when nobody waits any more.
    let mut openings = cluster.times("open");
    openings.dedup();
    assert_eq!(openings, [10_023, 19_523]);
}

#[test]
fn pods_that_may_not_be_changed_are_nominated() {
    use TolerationOutcome::{Failed, Refused};
    for (outcomes, tries) in [(vec![Refused], 1), (vec![Failed, Failed, Failed], 3)] {
        let mut cluster = Cluster::new(Config::default());
        cluster.machine("a", &["1"]);
        cluster.tolerations.insert("1".into(), outcomes);
        cluster.usable_at(0, "a");
        cluster.run(60_000);
        let lines = cluster.lines();
        assert_eq!(cluster.times("tolerate").len(), tries, "{lines:?}");
        assert_eq!((cluster.times("nominate").len(), cluster.times("open").len()), (1, 1), "{lines:?}");
        assert!(lines[tries + 1].ends_with("open a HandedOver"), "{lines:?}");
    }
}

#[test]
fn a_toleration_that_failed_is_tried_again_and_one_that_was_written_is_not() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1", "2"]);
    cluster.tolerations.insert("1".into(), vec![TolerationOutcome::Failed]);
    cluster.usable_at(0, "a");
    cluster.run(60_000);
    assert_eq!(
        cluster.lines(),
        ["0 tolerate 1 on a", "0 tolerate 2 on a", "2 tolerate 1 on a", "25 open a HandedOver"]
    );
}

#[test]
fn pods_that_are_not_bound_although_they_may_enter_are_nominated_right_before_their_machine_opens() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1"]);
    cluster.never_bind.insert("a".into());
    cluster.usable_at(0, "a");
    cluster.run(60_000);
    let lines = cluster.lines();
    assert_eq!(lines[..3], ["0 tolerate 1 on a", "12002 nominate 1 to a", "12005 open a HeldTooLong"]);
    assert!(cluster.times("nominate").len() <= 3, "{lines:?}");
}

#[test]
fn a_taint_without_a_value_of_its_own_cannot_be_tolerated_by_one_pod_only() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1"]).tolerable = false;
    cluster.usable_at(0, "a");
    cluster.run(60_000);
    assert_eq!(cluster.lines(), ["60 nominate 1 to a", "88 open a HandedOver"]);
}

#[test]
fn an_opening_that_fails_is_not_repeated_at_once() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &[]);
    cluster.fail.insert("a".into(), 2);
    cluster.usable_at(0, "a");
    cluster.run(60_000);
    assert_eq!(cluster.times("open a"), [0, 502, 1004]);
}

#[test]
fn an_onlooker_is_let_in_and_one_that_cannot_be_does_not_keep_its_machine_closed() {
    for outcome in [TolerationOutcome::Done, TolerationOutcome::Failed] {
        let mut cluster = Cluster::new(Config::default());
        let machine = cluster.machine("a", &[]);
        (machine.usable, machine.onlookers) = (true, vec![planned("x")]);
        let (mut now, mut tries, mut opened) = (START, 0, false);
        let mut events = Vec::new();
        cluster.machine("a", &[]).attracts = Attracts::Others;
        for round in 0..20 {
            if round == 10 {
                cluster.machine("a", &[]).attracts = Attracts::Nobody;
            }
            let commands = cluster.engine.step(now, &cluster.view, Surroundings::default(), &events);
            events.clear();
            for command in commands {
                match command {
                    Command::Tolerate { uid, node, .. } => {
                        tries += 1;
                        events.push(Event::TolerationEnded { pod: uid, node, outcome });
                    }
                    Command::Open { opening, .. } => opened |= opening == Opening::HandedOver,
                    Command::Nominate { .. } | Command::Close { .. } => panic!("{command:?}"),
                }
            }
            now = now.saturating_add(DurationMs(100));
        }
        let expected = if outcome == TolerationOutcome::Done { 1 } else { Config::default().patches_per_pod };
        assert_eq!((tries, opened), (expected, true), "{outcome:?}");
    }
}
