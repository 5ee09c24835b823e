//! Plans that know what earlier plans have left, on fleets that change in between.

use std::collections::BTreeSet;

use super::exact::{Held, Random, after, random_fleet, written};
use super::{CENT, TYPES, planned};
use crate::disruption::{Memory, plan_disruption_with};
use crate::tuning::KEPT_RELAXATIONS;

/// A pod goes, comes back or is new, or a machine comes.
fn change(machines: &mut Vec<Held>, gone: &mut Vec<(usize, i64)>, random: &mut Random) {
    let mut below = |end: usize| usize::try_from(random.below(u64::try_from(end).unwrap())).unwrap();
    let at = below(machines.len());
    match below(5) {
        0 | 1 if !machines[at].pods.is_empty() => {
            let pods = machines[at].pods.len();
            gone.push((at, machines[at].pods.remove(below(pods))));
        }
        2 | 3 if !gone.is_empty() => {
            let (on, pod) = gone.swap_remove(below(gone.len()));
            if let Some(machine) = machines.get_mut(on).filter(|machine| machine.free() >= pod) {
                machine.pods.push(pod);
            }
        }
        4 => {
            let of_type = below(TYPES.len());
            machines.push(Held { of_type, pods: vec![100 * i64::try_from(1 + below(9)).unwrap()] });
        }
        _ if machines[at].free() >= 400 => machines[at].pods.push(400),
        _ => {}
    }
}

#[test]
fn a_plan_that_knows_what_earlier_plans_have_left_is_byte_for_byte_the_plan_without() {
    let (mut commands, mut at_rest, mut different) = (0, 0, BTreeSet::new());
    // One memory for all fleets: what one leaves says nothing about another.
    let mut memory = Memory::default();
    for seed in 0..6 {
        let mut machines: Vec<Held> = (0..3).flat_map(|part| random_fleet(100 + 3 * seed + part)).collect();
        let (mut gone, mut random) = (Vec::new(), Random(seed));
        for step in 0..14 {
            let eviction_price = [0, CENT, 4 * CENT][usize::try_from(seed % 3).unwrap()];
            let (snapshot, without) = planned(&written(&machines), |_, snapshot| {
                snapshot.options.disruption.eviction_price_nano_usd = eviction_price;
            });
            let with = plan_disruption_with(&snapshot, &mut memory);
            let (with, text) = (format!("{with:?}"), format!("{without:?}"));
            assert!(with == text, "seed {seed}, step {step}: {machines:?}\n{with}\n{text}");
            different.insert(text);
            commands += without.commands.len();
            at_rest += usize::from(without.commands.is_empty());
            if step % 2 == 0 {
                machines = after(&machines, &snapshot, &without);
                gone.clear();
            }
            change(&mut machines, &mut gone, &mut random);
        }
    }
    assert!(commands > 20 && at_rest > 5 && different.len() > 40, "{commands}, {at_rest}, {}", different.len());
}

/// Machines that are full, and one with so many small pods.
fn with_small_pods(of_type: usize, small: usize) -> Vec<Held> {
    let full = (0..4).map(|_| Held { of_type: 2, pods: vec![3_000, 4_000] });
    full.chain([Held { of_type, pods: vec![100; small] }]).collect()
}

#[test]
fn what_is_kept_is_used_again_and_no_more_is_kept_than_so_many() {
    let mut memory = Memory::default();
    let mut plan = |small: usize| {
        let (snapshot, _) = planned(&written(&with_small_pods(0, small)), |_, _| ());
        drop(plan_disruption_with(&snapshot, &mut memory));
        (memory.solved.kept(), memory.solved.solved_anew())
    };
    assert_eq!(plan(1), (1, 1));
    assert_eq!(plan(1), (1, 1), "it is solved once");
    assert_eq!(plan(2), (2, 2));
    assert_eq!(plan(1), (2, 2), "both are kept");
    for small in 3..=KEPT_RELAXATIONS + 3 {
        plan(small);
        // Used in between, it is never the one that was not used for longest.
        let (kept, solved) = plan(1);
        assert_eq!((kept, solved), (small.min(KEPT_RELAXATIONS), small));
    }
}

#[test]
fn where_one_pod_of_many_comes_or_goes_nothing_is_solved_anew() {
    let mut memory = Memory::default();
    let mut solved_with = |small: usize| {
        let (snapshot, without) = planned(&written(&with_small_pods(2, small)), |_, _| ());
        assert_eq!(plan_disruption_with(&snapshot, &mut memory).fleet_bound, without.fleet_bound);
        memory.solved.solved_anew()
    };
    assert_eq!([65, 66, 67, 68].map(&mut solved_with), [1; 4]);
    assert_eq!([69, 68, 70].map(&mut solved_with), [2; 3]);
}
