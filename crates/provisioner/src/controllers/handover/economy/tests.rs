//! All orders in which pods can be bound and machines opened, and a table of what has to be patched.

use std::collections::BTreeSet;

use model::ResourceId;
use seeded_random::Random;

use super::*;

fn amounts(cpu: i64, memory: i64) -> ResourceVec {
    [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory)].into_iter().collect()
}

fn class(cpu: i64, memory: i64) -> Class {
    Class { requests: amounts(cpu, memory), priority: 0, is_plain: true, unplanned: 0, has_room_elsewhere: false }
}

fn machine(cpu: i64, planned: &[u32]) -> Machine {
    Machine {
        stage: Stage::Usable,
        free: amounts(cpu, 100),
        reserved: ResourceVec::new(),
        entries: vec![Entry::IfFree; planned.len()],
        planned: planned.to_vec(),
    }
}

/// What kube-scheduler has made of a round so far.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// How many pods of each class wait, with the machine they are planned onto, if any.
    waiting: Vec<Vec<u32>>,
    /// How many pods of each class are bound to each machine.
    bound: Vec<Vec<u32>>,
    /// Which machines let everybody in.
    open: Vec<bool>,
    /// On which machines the DaemonSets' pods are.
    served: Vec<bool>,
}

/// A round that is played out.
struct Play<'a> {
    round: &'a Round,
    /// Which machines open with nobody patched.
    opens: Vec<bool>,
}

impl Play<'_> {
    fn start(&self) -> State {
        let (classes, machines) = (self.round.classes.len(), self.round.machines.len());
        let planned = self.round.machines.iter().map(|machine| machine.planned.clone());
        let unplanned = self.round.classes.iter().map(|class| class.unplanned).collect();
        State {
            waiting: planned.chain([unplanned]).collect(),
            bound: vec![vec![0; classes]; machines],
            open: self.round.machines.iter().map(|machine| machine.stage == Stage::Open).collect(),
            served: vec![false; machines],
        }
    }

    /// What is left on a machine beside the bound pods of at least that priority.
    fn free(&self, state: &State, machine: usize, at_least: i32) -> ResourceVec {
        let mut free = self.round.machines[machine].free.clone();
        for (class, count) in self.round.classes.iter().zip(&state.bound[machine]) {
            if class.priority >= at_least {
                free.checked_add_multiple(&class.requests, -i64::from(*count)).unwrap();
            }
        }
        if state.served[machine] {
            free.checked_sub_assign(&self.round.machines[machine].reserved).unwrap();
        }
        free
    }

    /// Whether a waiting pod is let in: into one that is open, or its own, which is closed to all but it.
    fn is_let_in(&self, state: &State, class: usize, of: usize, machine: usize) -> bool {
        let here = &self.round.machines[machine];
        let own = of == machine && here.stage == Stage::Usable && !self.opens[machine];
        here.entries[class] != Entry::Barred && (state.open[machine] || own)
    }

    fn next(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        for machine in 0..self.round.machines.len() {
            let here = &self.round.machines[machine];
            if self.opens[machine] && !state.open[machine] {
                let mut opened = state.clone();
                opened.open[machine] = true;
                next.push(opened);
            }
            let serves = state.open[machine] && !state.served[machine] && !here.reserved.is_zero();
            if serves && here.reserved.fits_in(&self.free(state, machine, i32::MIN)) {
                let mut served = state.clone();
                served.served[machine] = true;
                next.push(served);
            }
            for of in 0..state.waiting.len() {
                for class in (0..self.round.classes.len()).filter(|class| state.waiting[of][*class] > 0) {
                    if self.is_let_in(state, class, of, machine) {
                        next.extend(self.attempt(state, class, of, machine));
                    }
                }
            }
        }
        next
    }

    /// The pod is bound if it has room; else it preempts those of lower priority that are in its way.
    fn attempt(&self, state: &State, class: usize, of: usize, machine: usize) -> Option<State> {
        let Class { requests, priority, .. } = &self.round.classes[class];
        let mut after = state.clone();
        if requests.fits_in(&self.free(state, machine, i32::MIN)) {
            // Whose place it took gets its own; see `provisioning/bindings.rs`.
            let goes = if after.waiting.get(machine).is_some_and(|here| here[class] > 0) { machine } else { of };
            after.waiting[goes][class] -= 1;
            after.bound[machine][class] += 1;
            return Some(after);
        }
        let lesser =
            |other: &usize| self.round.classes[*other].priority < *priority && state.bound[machine][*other] > 0;
        let victim = (0..self.round.classes.len()).find(lesser)?;
        requests.fits_in(&self.free(state, machine, *priority)).then(|| {
            after.bound[machine][victim] -= 1;
            after.waiting.last_mut().unwrap()[victim] += 1;
            after
        })
    }

    /// What is wrong with a state after which nothing more happens.
    fn fault(&self, end: &State) -> Option<String> {
        let machines = &self.round.machines;
        for (machine, here) in machines.iter().enumerate().filter(|(machine, _)| self.opens[*machine]) {
            let comes_late = |class: usize| {
                let coming = machines.iter().filter(|other| other.stage == Stage::Coming);
                coming.map(|other| other.planned[class]).sum::<u32>()
            };
            for class in here.classes() {
                let left: u32 = end.waiting.iter().map(|waiting| waiting[class]).sum();
                if left > comes_late(class) {
                    return Some(format!("{left} pods of class {class} are left over"));
                }
                let differs = |other: &usize| {
                    machines[*other].stage != Stage::Coming
                        && machines[*other].planned[class] != end.bound[*other][class]
                };
                if let Some(other) = (0..machines.len()).find(differs) {
                    return Some(format!("machine {other} has other pods of class {class} than planned"));
                }
            }
            if !here.reserved.is_zero() && !end.served[machine] {
                return Some(format!("DaemonSets have no room on machine {machine}"));
            }
        }
        None
    }

    /// The first fault that some order leads to.
    fn worst(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        let mut ahead = vec![self.start()];
        while let Some(state) = ahead.pop() {
            let next = self.next(&state);
            if next.is_empty()
                && let Some(fault) = self.fault(&state)
            {
                return Some(format!("{fault} in {state:?}"));
            }
            ahead.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
        }
        None
    }
}

/// Few pods on few machines, planned by filling them one after the other, and some things beside the plan.
fn random_round(random: &mut Random) -> Round {
    let classes = 1 + random.below(2_usize);
    let mut round = Round::default();
    for _ in 0..classes {
        let mut class = class(1 + random.below(3), random.below(3));
        class.priority = i32::from(random.one_in(4));
        class.unplanned = u32::from(random.one_in(10));
        round.classes.push(class);
    }
    for _ in 0..1 + random.below(3) {
        let (cpu, memory) = (1 + random.below(6), 1 + random.below(6));
        let mut machine = Machine { free: amounts(cpu, memory), ..machine(cpu, &vec![0; classes]) };
        machine.stage = *random.pick(&[Stage::Usable, Stage::Usable, Stage::Usable, Stage::Open, Stage::Coming]);
        if random.one_in(4) {
            machine.reserved = amounts(random.below(2), random.below(2));
        }
        for entry in &mut machine.entries {
            if random.one_in(4) {
                *entry = Entry::Barred;
            }
        }
        let mut left = machine.free.clone();
        left.saturating_sub_assign(&machine.reserved);
        for class in 0..classes {
            let requests = &round.classes[class].requests;
            let most = if machine.entries[class] == Entry::Barred { 0 } else { requests.times_in(&left, 3) };
            // Mostly full, as plans are.
            let count = if random.one_in(3) { random.below(most + 1) } else { most };
            left.checked_add_multiple(requests, -i64::from(count)).unwrap();
            machine.planned[class] = count;
        }
        if machine.classes().next().is_some() {
            round.machines.push(machine);
        }
    }
    round
}

#[test]
fn where_no_patches_are_needed_each_machine_gets_what_was_planned_in_every_order_of_binding() {
    let (mut together, mut mixed, mut beside_patched, mut patched_in_vain) = (0, 0, 0, 0);
    for seed in 0..20_000 {
        let round = random_round(&mut Random::new(seed));
        let opens = round.needs_no_patches();
        let all: Vec<bool> = round.machines.iter().map(|machine| machine.stage == Stage::Usable).collect();
        if !opens.contains(&true) {
            let play = Play { round: &round, opens: all };
            patched_in_vain += usize::from(play.opens.contains(&true) && play.worst().is_none());
            continue;
        }
        let play = Play { round: &round, opens };
        if let Some(fault) = play.worst() {
            panic!("seed {seed}: {fault}\n{round:#?}\nopen {:?}", play.opens);
        }
        let mut opened = round.machines.iter().zip(&play.opens).filter(|(_, opens)| **opens);
        together += usize::from(opened.clone().count() > 1);
        beside_patched += usize::from(play.opens != all);
        mixed += usize::from(opened.any(|(machine, _)| machine.classes().count() > 1));
    }
    println!("{together} together, {mixed} mixed, {beside_patched} beside patched ones; {patched_in_vain} in vain");
    assert!(
        together > 500 && mixed > 100 && beside_patched > 200,
        "{together} {mixed} {beside_patched} say too little"
    );
}

/// One change to a round of two machines with two pods each that needs no patches.
fn check(what: &str, change: impl Fn(&mut Round), expected: &[bool]) {
    let mut round =
        Round { classes: vec![class(2, 1), class(1, 1)], machines: vec![machine(4, &[2, 0]), machine(4, &[2, 0])] };
    round.machines.iter_mut().for_each(|machine| machine.entries[1] = Entry::Barred);
    change(&mut round);
    assert_eq!(round.needs_no_patches(), expected, "{what}");
}

#[test]
fn each_thing_that_can_divert_a_pod_of_one_class_asks_for_patches() {
    check("nothing", |_| {}, &[true, true]);
    check("a rule of the pods", |it| it.classes[0].is_plain = false, &[false, false]);
    check("a pod without a machine", |it| it.classes[0].unplanned = 1, &[false, false]);
    check("room elsewhere", |it| it.classes[0].has_room_elsewhere = true, &[false, false]);
    check("another class", |it| it.machines[1].entries[1] = Entry::IfFree, &[false, false]);
    check("one that preempts", |it| it.machines[1].entries[1] = Entry::ByPreemption, &[false, false]);
    check("pods that preempt", |it| it.machines[1].entries[0] = Entry::ByPreemption, &[false, false]);
    check("a machine that has another class too", |it| it.machines[1].planned[1] = 1, &[false, false]);
    check("one whose pods do not fit", |it| it.machines[1].planned[0] = 3, &[false, false]);
    check(
        "another's pod that is too large",
        |it| {
            it.machines[0].entries[1] = Entry::IfFree;
            it.classes[1].requests = amounts(5, 1);
        },
        &[true, true],
    );
}

#[test]
fn a_machine_with_room_beyond_the_plan_waits_for_the_others_of_its_class() {
    let spare = |cpu: i64| move |it: &mut Round| it.machines[0].free = amounts(cpu, 100);
    check("too little for one more", spare(5), &[true, true]);
    check("one more", spare(6), &[false, true]);
    check(
        "one more, and no other machine",
        |it| {
            spare(6)(it);
            it.machines.truncate(1);
        },
        &[true],
    );
    check(
        "one more, and the other one is open",
        |it| {
            spare(6)(it);
            it.machines[1].stage = Stage::Open;
        },
        &[false, false],
    );
    check(
        "one more, and it is open",
        |it| {
            spare(6)(it);
            it.machines[0].stage = Stage::Open;
        },
        &[false, false],
    );
    check(
        "DaemonSets want it",
        |it| {
            spare(6)(it);
            it.machines[0].reserved = amounts(1, 0);
        },
        &[false, false],
    );
    check(
        "DaemonSets want more than there is, of what the pods do not take",
        |it| {
            it.classes[0].requests = amounts(2, 0);
            it.machines[0].reserved = amounts(0, 101);
        },
        &[false, false],
    );
    check(
        "DaemonSets want what is too little for a pod",
        |it| {
            spare(5)(it);
            it.machines[0].reserved = amounts(1, 0);
        },
        &[true, true],
    );
}

#[test]
fn a_machine_that_is_not_there_counts_with_its_pods_and_an_open_one_with_its_room() {
    check("one is to come", |it| it.machines[1].stage = Stage::Coming, &[true, false]);
    check(
        "nothing is known of one that is to come",
        |it| {
            it.machines[1].stage = Stage::Coming;
            it.machines[1].free = ResourceVec::new();
        },
        &[true, false],
    );
    check(
        "one is to come, with another class",
        |it| {
            it.machines[1].stage = Stage::Coming;
            it.machines[1].planned[1] = 1;
        },
        &[false, false],
    );
    check("one is open", |it| it.machines[1].stage = Stage::Open, &[true, false]);
    check(
        "an open one of another class has room",
        |it| {
            it.machines.push(Machine { stage: Stage::Open, ..machine(4, &[0, 1]) });
        },
        &[false, false, false],
    );
}

#[test]
fn classes_that_share_one_machine_need_no_patches_if_it_has_room_for_all_and_nobody_else_comes() {
    let shared = |change: fn(&mut Round)| {
        move |it: &mut Round| {
            it.machines.truncate(1);
            it.machines[0] = machine(6, &[2, 2]);
            change(it);
        }
    };
    check("nothing", shared(|_| {}), &[true]);
    check("more room", shared(|it| it.machines[0].free = amounts(60, 100)), &[true]);
    check("too little room", shared(|it| it.machines[0].free = amounts(5, 100)), &[false]);
    check("too little beside DaemonSets", shared(|it| it.machines[0].reserved = amounts(1, 0)), &[false]);
    check("pods that preempt", shared(|it| it.machines[0].entries[1] = Entry::ByPreemption), &[false]);
    check("priorities that differ", shared(|it| it.classes[1].priority = 1), &[false]);
    check("one class has rules", shared(|it| it.classes[1].is_plain = false), &[false]);
    check("one class is planned elsewhere too", shared(|it| it.machines.push(machine(1, &[0, 1]))), &[false, false]);
}
