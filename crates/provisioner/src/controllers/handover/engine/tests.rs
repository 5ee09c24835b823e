//! Simulated time: a cluster whose answers come after a latency, stepped from event to event.

use std::collections::VecDeque;

use super::*;

const START: Timestamp = Timestamp(1_000_000);

/// Without tolerations.
fn nominating() -> Config {
    Config { tolerate: false, ..Config::default() }
}

/// A cluster that carries commands out and binds pods to open, usable machines that they are nominated to.
struct Cluster {
    now: Timestamp,
    view: View,
    engine: Engine,
    pending: VecDeque<(Timestamp, Effect)>,
    log: Vec<(i64, String)>,
    /// When machines were opened, and how long nothing had got on then, in milliseconds.
    openings: Vec<(i64, i64)>,
    latency: DurationMs,
    /// Nominations that are cleared right after they were given: how many of each pod's.
    lose: BTreeMap<Uid, u32>,
    /// Openings that fail, by node: how many.
    fail: BTreeMap<NodeName, u32>,
    patches: BTreeMap<Uid, u32>,
    tries: BTreeMap<Uid, u32>,
    expected_until: Option<Timestamp>,
    /// Whether waiting pods make quiet longer, as they do; off where a test is about other times.
    count_waiting: bool,
    /// Machines whose pods the scheduler does not bind.
    never_bind: BTreeSet<NodeName>,
    /// What comes of the tries to give a pod a toleration, the last first; then they work.
    tolerations: BTreeMap<Uid, Vec<TolerationOutcome>>,
    /// Pods of machines that are open.
    late: Vec<(NodeName, PlannedPod)>,
}

#[derive(Clone)]
enum Effect {
    Event(Event),
    Change(fn(&mut Machine), NodeName),
    Seen(NodeName, Uid, PodState),
    Entitled(NodeName, Uid),
    Opened(NodeName),
}

fn planned(pod: &str) -> PlannedPod {
    PlannedPod {
        uid: pod.into(),
        name: NamespacedName::new("default", pod),
        state: PodState::Waiting,
        may_enter: false,
        after_others: false,
        crowds_out_alike: false,
    }
}

impl Cluster {
    fn new(config: Config) -> Self {
        Self {
            now: START,
            view: View::new(),
            engine: Engine::new(config, START),
            pending: VecDeque::new(),
            log: Vec::new(),
            openings: Vec::new(),
            latency: DurationMs(2),
            lose: BTreeMap::new(),
            fail: BTreeMap::new(),
            patches: BTreeMap::new(),
            tries: BTreeMap::new(),
            expected_until: None,
            count_waiting: false,
            never_bind: BTreeSet::new(),
            tolerations: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    fn machine(&mut self, node: &str, pods: &[&str]) -> &mut Machine {
        let machine = Machine {
            held: true,
            usable: false,
            needs_entry: false,
            guarded: false,
            tolerable: true,
            nominate: true,
            attracts: Attracts::Nobody,
            needs_no_patches: false,
            waits_for_successors: false,
            onlookers: Vec::new(),
            pods: pods.iter().map(|pod| planned(pod)).collect(),
        };
        self.view.entry(node.into()).or_insert(machine)
    }

    fn surroundings(&self) -> Surroundings {
        let pods = self.view.values().flat_map(|machine| &machine.pods);
        let waiting_pods = if self.count_waiting { pods.filter(|pod| pod.is_waiting()).count() } else { 0 };
        Surroundings { expected_until: self.expected_until, waiting_pods, late: self.late.clone() }
    }

    fn at(&mut self, ms: i64, effect: Effect) {
        self.schedule(START.saturating_add(DurationMs(ms)), effect);
    }

    fn usable_at(&mut self, ms: i64, node: &str) {
        self.at(ms, Effect::Change(|machine| machine.usable = true, node.into()));
        self.at(ms, Effect::Event(Event::TaintChanged));
    }

    fn schedule(&mut self, due: Timestamp, effect: Effect) {
        let place = self.pending.partition_point(|(other, _)| *other <= due);
        self.pending.insert(place, (due, effect));
    }

    fn note(&mut self, text: String) {
        self.log.push((self.now.since(START).0, text));
    }

    /// Runs until nothing is left to wait for, or for that long.
    fn run(&mut self, limit_ms: i64) {
        let end = START.saturating_add(DurationMs(limit_ms));
        let mut events = Vec::new();
        for _ in 0..100_000 {
            for command in self.engine.step(self.now, &self.view, self.surroundings(), &std::mem::take(&mut events)) {
                self.carry_out(command);
            }
            let wakes = self.pending.front().map(|(due, _)| *due).into_iter().chain(self.engine.next_step(self.now));
            let Some(next) = wakes.min().filter(|next| *next <= end) else { return };
            assert!(next >= self.now, "the engine asks for the past");
            self.now = next;
            while let Some((_, effect)) = self.pending.pop_front_if(|(due, _)| *due <= next) {
                match effect {
                    Effect::Event(event) => events.push(event),
                    Effect::Change(change, node) => {
                        if let Some(machine) = self.view.get_mut(&node) {
                            change(machine);
                        }
                    }
                    Effect::Seen(node, pod, state) => {
                        if state == PodState::Waiting {
                            events.push(Event::NominationCleared);
                        }
                        let pods = self.view.get_mut(&node).into_iter().flat_map(|machine| &mut machine.pods);
                        for planned in pods.chain(self.late.iter_mut().map(|(_, pod)| pod)) {
                            if planned.uid == pod {
                                planned.state = state;
                            }
                        }
                    }
                    Effect::Entitled(node, pod) => {
                        let Some(machine) = self.view.get_mut(&node) else { continue };
                        let usable = machine.usable && !self.never_bind.contains(&node);
                        for planned in machine.pods.iter_mut().filter(|planned| planned.uid == pod) {
                            planned.may_enter = true;
                        }
                        if usable {
                            let bound = next.saturating_add(DurationMs(20));
                            self.schedule(bound, Effect::Seen(node, pod, PodState::Settled));
                        }
                    }
                    Effect::Opened(node) => {
                        events.push(Event::TaintChanged);
                        let Some(machine) = self.view.get_mut(&node) else { continue };
                        machine.held = false;
                        if !machine.usable || self.never_bind.contains(&node) {
                            continue;
                        }
                        let bound: Vec<_> = machine.pods.iter().map(|pod| pod.uid.clone()).collect();
                        for pod in bound {
                            self.schedule(
                                next.saturating_add(DurationMs(20)),
                                Effect::Seen(node.clone(), pod, PodState::Settled),
                            );
                        }
                    }
                }
            }
            self.view.retain(|node, machine| machine.held || self.engine.follows(node));
        }
        panic!("the engine never rests");
    }

    fn carry_out(&mut self, command: Command) {
        let answer = self.now.saturating_add(self.latency);
        let seen = answer.saturating_add(DurationMs(1));
        match command {
            Command::Tolerate { uid, pod, node } => {
                self.note(format!("tolerate {} on {node}", pod.name));
                *self.tries.entry(uid.clone()).or_default() += 1;
                let outcome = self.toleration_of(&uid);
                self.schedule(
                    answer,
                    Effect::Event(Event::TolerationEnded { pod: uid.clone(), node: node.clone(), outcome }),
                );
                if outcome == TolerationOutcome::Done {
                    self.schedule(seen, Effect::Entitled(node, uid));
                }
            }
            Command::Nominate { uid, pod, node } => {
                self.note(format!("nominate {} to {node}", pod.name));
                self.assert_not_crowded(&node, &uid);
                *self.patches.entry(uid.clone()).or_default() += 1;
                self.schedule(answer, Effect::Event(Event::NominationEnded { pod: uid.clone(), accepted: true }));
                self.schedule(seen, Effect::Seen(node.clone(), uid.clone(), PodState::Nominated));
                if let Some(times) = self.lose.get_mut(&uid).filter(|times| **times > 0) {
                    *times -= 1;
                    self.schedule(seen.saturating_add(DurationMs(1)), Effect::Seen(node, uid, PodState::Waiting));
                }
            }
            Command::Close { node } => {
                self.note(format!("close {node}"));
                self.schedule(answer, Effect::Event(Event::ClosingEnded));
                self.schedule(seen, Effect::Change(|machine| machine.held = true, node));
            }
            Command::Open { node, opening } => {
                self.note(format!("open {node} {opening:?}"));
                self.openings.push((self.now.since(START).0, self.now.since(self.engine.last_progress).0));
                let fails = self.fail.get_mut(&node).filter(|times| **times > 0).map(|times| *times -= 1).is_some();
                self.schedule(answer, Effect::Event(Event::OpeningEnded { node: node.clone(), opened: !fails }));
                if !fails {
                    self.schedule(answer, Effect::Opened(node));
                }
            }
        }
    }

    /// No other pod is nominated to the machine that would keep this one out for as long.
    fn assert_not_crowded(&self, node: &NodeName, pod: &Uid) {
        let late = self.late.iter().filter(|(of, _)| of == node).map(|(_, pod)| pod);
        let planned = self.view.get(node).into_iter().flat_map(|machine| &machine.pods).chain(late);
        let crowding: Vec<&PlannedPod> = planned.filter(|planned| planned.crowds_out_alike).collect();
        if crowding.iter().any(|planned| planned.uid == *pod) {
            assert!(crowding.iter().all(|other| other.state != PodState::Nominated), "{pod:?} {:?}", self.log);
        }
    }

    fn toleration_of(&mut self, pod: &Uid) -> TolerationOutcome {
        self.tolerations.get_mut(pod).and_then(Vec::pop).unwrap_or(TolerationOutcome::Done)
    }

    fn times(&self, prefix: &str) -> Vec<i64> {
        self.log.iter().filter(|(_, text)| text.starts_with(prefix)).map(|(ms, _)| *ms).collect()
    }

    fn lines(&self) -> Vec<String> {
        self.log.iter().map(|(ms, text)| format!("{ms} {text}")).collect()
    }
}

#[test]
fn a_machine_is_quiet_nominated_seen_settled_and_then_opened() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1", "2"]);
    cluster.usable_at(1000, "a");
    cluster.run(60_000);
    // 60 ms of quiet; the watch shows the nominations 3 ms later; 25 ms to settle.
    assert_eq!(cluster.lines(), ["1060 nominate 1 to a", "1060 nominate 2 to a", "1088 open a HandedOver"]);
    assert!(!cluster.engine.follows("a"));
}

#[test]
fn a_taint_that_changes_anywhere_starts_the_quiet_time_again() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]);
    cluster.usable_at(1000, "a");
    cluster.at(1050, Effect::Event(Event::TaintChanged));
    cluster.at(1100, Effect::Event(Event::NominationCleared));
    cluster.run(60_000);
    assert_eq!(cluster.times("nominate"), [1160]);
}

#[test]
fn a_cluster_that_is_never_quiet_is_not_waited_for_longer_than_three_seconds() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]);
    cluster.usable_at(1000, "a");
    for ms in (0..20_000).step_by(40) {
        cluster.at(ms, Effect::Event(Event::TaintChanged));
    }
    cluster.run(60_000);
    assert_eq!(cluster.times("nominate"), [4000]);
    assert_eq!(cluster.times("open"), [4028]);
}

#[test]
fn a_lost_nomination_is_given_once_more_and_then_the_machine_opens() {
    for lost in [1, 9] {
        let mut cluster = Cluster::new(nominating());
        cluster.machine("a", &["1", "2"]);
        cluster.lose.insert("1".into(), lost);
        cluster.usable_at(0, "a");
        cluster.run(60_000);
        assert_eq!(cluster.times("nominate 1"), [60, 88], "not before the settling time is over");
        assert_eq!(cluster.times("nominate 2"), [60]);
        assert_eq!(cluster.times("open"), [91]);
    }
}

/// So many machines with so many pods each, all usable at once.
fn fleet(machines: usize, pods_each: usize) -> Cluster {
    let mut cluster = Cluster::new(nominating());
    cluster.count_waiting = true;
    let names: Vec<String> = (0..machines * pods_each).map(|pod| format!("p{pod}")).collect();
    for (index, pods) in names.chunks(pods_each).enumerate() {
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        let node = format!("n{index:02}");
        cluster.machine(&node, &pods);
        cluster.usable_at(0, &node);
    }
    cluster
}

#[test]
fn forty_machines_at_once_are_open_within_twelve_seconds_with_one_patch_per_pod() {
    let mut cluster = fleet(40, 25);
    cluster.run(60_000);
    let opened = cluster.times("open");
    assert_eq!(opened.len(), 40);
    assert!(*opened.last().unwrap() < 12_000, "{opened:?}");
    assert_eq!(cluster.patches.len(), 1000);
    assert!(cluster.patches.values().all(|patches| *patches == 1));
}

#[test]
fn a_slow_scheduler_is_given_more_time() {
    let second_batch = |stuck: bool| {
        let mut cluster = fleet(1, 60);
        let names: Vec<String> = (0..20).map(|pod| format!("late-{pod}")).collect();
        cluster.machine("late", &names.iter().map(String::as_str).collect::<Vec<_>>());
        cluster.usable_at(30_000, "late");
        if stuck {
            cluster.never_bind.insert("n00".into());
        }
        cluster.run(60_000);
        cluster.times("open late")[0]
    };
    assert!(second_batch(true) > second_batch(false) + 20, "{} {}", second_batch(true), second_batch(false));
}

#[test]
fn machines_that_are_usable_together_open_in_the_same_moment() {
    let mut cluster = fleet(8, 5);
    cluster.run(60_000);
    let mut opened = cluster.times("open");
    assert_eq!(opened.len(), 8);
    opened.dedup();
    assert_eq!(opened.len(), 1);
}

#[test]
fn a_machine_waits_for_those_that_come_together_with_it() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]);
    cluster.machine("b", &["2"]);
    cluster.usable_at(0, "a");
    cluster.usable_at(700, "b");
    cluster.run(60_000);
    assert_eq!(cluster.times("open"), [788, 788]);

    // One that takes longer than that, and one that was launched and never comes.
    for held in [true, false] {
        let mut cluster = Cluster::new(nominating());
        cluster.machine("a", &["1"]);
        cluster.usable_at(0, "a");
        if held {
            cluster.machine("slow", &["2"]);
            cluster.usable_at(30_000, "slow");
        } else {
            cluster.expected_until = Some(START.saturating_add(DurationMs(2000)));
        }
        cluster.run(60_000);
        assert_eq!(cluster.times("open a"), [2028]);
    }
}

#[test]
fn the_next_batch_waits_for_the_pods_of_the_one_before_but_not_for_ever() {
    let config = Config { batch_machines: 1, ..nominating() };
    for (stuck, second_opens) in [(false, 178), (true, 618)] {
        let mut cluster = Cluster::new(config);
        cluster.machine("a", &["1"]);
        cluster.machine("b", &["2"]);
        cluster.usable_at(0, "a");
        cluster.usable_at(0, "b");
        if stuck {
            cluster.never_bind.insert("a".into());
        }
        cluster.run(60_000);
        assert_eq!(cluster.times("open a"), [88]);
        assert_eq!(cluster.times("open b"), [second_opens]);
    }
}

#[test]
fn a_pod_that_is_not_ours_to_nominate_is_left_alone() {
    let mut cluster = Cluster::new(nominating());
    let machine = cluster.machine("a", &["gated", "preemptor", "bound", "ours"]);
    machine.pods[0].state = PodState::HandsOff;
    machine.pods[1].state = PodState::HandsOff;
    machine.pods[2].state = PodState::Settled;
    cluster.usable_at(0, "a");
    cluster.run(60_000);
    assert_eq!(cluster.lines(), ["60 nominate ours to a", "88 open a HandedOver"]);
}

#[test]
fn machines_whose_pods_may_not_be_nominated_open_one_after_the_other() {
    let mut cluster = Cluster::new(nominating());
    for node in ["a", "b", "c"] {
        cluster.machine(node, &[]).nominate = node == "c";
        cluster.usable_at(0, node);
    }
    cluster.run(60_000);
    assert_eq!(cluster.lines(), ["60 open a HandedOver", "122 open b HandedOver", "184 open c HandedOver"]);
}

#[test]
fn a_machine_that_a_pod_must_enter_first_is_opened_at_once_and_its_pods_nominated_later() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]);
    cluster.at(500, Effect::Change(|machine| machine.needs_entry = true, "a".into()));
    cluster.usable_at(3000, "a");
    cluster.at(503, Effect::Change(|machine| machine.needs_entry = false, "a".into()));
    cluster.run(60_000);
    assert_eq!(cluster.lines(), ["500 open a EntryNeeded", "3060 nominate 1 to a"], "it is open already");
}

#[test]
fn a_machine_that_was_opened_for_a_driver_is_closed_once_the_driver_is_there() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1"]).needs_entry = true;
    let entered = |machine: &mut Machine| (machine.needs_entry, machine.guarded) = (false, true);
    cluster.at(500, Effect::Change(entered, "a".into()));
    cluster.at(3000, Effect::Change(|machine| machine.guarded = false, "a".into()));
    cluster.usable_at(3000, "a");
    cluster.run(60_000);
    assert_eq!(
        cluster.lines(),
        ["0 open a EntryNeeded", "500 close a", "3000 tolerate 1 on a", "3023 open a HandedOver"]
    );
}

#[test]
fn a_machine_that_others_keep_pods_away_from_may_be_held_for_long() {
    let mut cluster = Cluster::new(Config::default());
    cluster.machine("a", &["1"]).guarded = true;
    cluster.at(300_000, Effect::Change(|machine| machine.guarded = false, "a".into()));
    cluster.run(600_000);
    assert_eq!(cluster.lines(), ["360000 open a HeldTooLong"]);
}

#[test]
fn what_others_do_to_the_taint_is_not_undone() {
    let mut cluster = Cluster::new(Config::default());
    let machine = cluster.machine("a", &["1"]);
    (machine.held, machine.guarded) = (false, true);
    cluster.run(60_000);
    assert!(cluster.lines().is_empty());
}

#[test]
fn a_machine_that_never_becomes_usable_is_held_no_longer_than_allowed() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]);
    cluster.run(120_000);
    assert_eq!(cluster.lines(), ["60000 open a HeldTooLong"]);
}

#[test]
fn an_opening_that_fails_is_tried_until_it_works() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &[]);
    cluster.machine("b", &[]);
    cluster.fail.insert("a".into(), 5);
    cluster.usable_at(0, "a");
    cluster.usable_at(0, "b");
    cluster.run(60_000);
    assert_eq!(cluster.times("open a").len(), 6);
    assert_eq!(cluster.times("open b").len(), 1);
    assert!(!cluster.engine.follows("a"));
}

#[test]
fn a_call_whose_answer_is_lost_does_not_stop_the_others() {
    let mut cluster = Cluster::new(nominating());
    cluster.machine("a", &["1"]);
    cluster.usable_at(0, "a");
    let start = cluster.engine.step(START, &cluster.view, Surroundings::default(), &[]);
    assert!(start.is_empty());
    cluster.view.get_mut("a").unwrap().usable = true;
    let quiet = START.saturating_add(DurationMs(60));
    assert_eq!(cluster.engine.step(quiet, &cluster.view, Surroundings::default(), &[]).len(), 1);
    // No answer and nothing on the watch.
    let lost = quiet.saturating_add(Config::default().call_timeout);
    assert_eq!(cluster.engine.next_step(quiet), Some(lost));
    cluster.engine.step(lost, &cluster.view, Surroundings::default(), &[]);
    let settled = cluster.engine.next_step(lost).unwrap();
    let again = cluster.engine.step(settled, &cluster.view, Surroundings::default(), &[]);
    assert!(matches!(again[..], [Command::Nominate { .. }]));
}

mod histories;
mod tolerate;
mod unpatched;
