//! Pods of a gang are placed together or not at all.

use seeded_random::Random;

use super::fixture::{Fixture, gib, render};
use crate::{plan::Verdict, provisioning::plan, snapshot::Snapshot};

/// A pool that may launch so many machines of four CPUs.
fn machines(count: i64) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("a", "on-demand", 10);
    f.pool("p").limit("cpu", 4000 * count, 4000 * count);
    f
}

/// So many pods that take a machine each.
fn members(f: &mut Fixture, group: &str, count: usize) {
    for index in 0..count {
        f.pod(&format!("{group}-{index}")).requests(3000, gib(1)).group(group);
    }
}

/// The names of the pods that have a place.
fn placed(snapshot: &Snapshot) -> Vec<String> {
    let plan = plan(snapshot);
    let on_machines = plan.machines.iter().flat_map(|machine| &machine.pods);
    let on_nodes = plan.existing.iter().flat_map(|placement| &placement.pods);
    let mut names: Vec<String> =
        on_machines.chain(on_nodes).map(|&pod| snapshot.pods[pod].pod.name.name.to_string()).collect();
    names.sort();
    names
}

/// What is said about a pod without place.
fn reasons(snapshot: &Snapshot, pod: &str) -> Vec<String> {
    let plan = plan(snapshot);
    let refusal = plan.refusals.iter().find(|refusal| *snapshot.pods[refusal.pod].pod.name.name == *pod).unwrap();
    refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect()
}

#[test]
fn a_gang_gets_all_its_places_or_none() {
    for (limit, expected) in [(2, 0), (3, 3), (5, 3)] {
        let mut f = machines(limit);
        f.pod_group("g", Some(3));
        members(&mut f, "g", 3);
        assert_eq!(placed(&f.snapshot()).len(), expected, "{limit} machines for 3 pods");
    }
}

#[test]
fn pods_above_the_minimum_may_wait() {
    let mut f = machines(3);
    f.pod_group("g", Some(2));
    members(&mut f, "g", 5);
    assert_eq!(placed(&f.snapshot()).len(), 3);
}

#[test]
fn pods_of_a_group_without_minimum_are_placed_one_by_one() {
    let mut f = machines(2);
    f.pod_group("g", None);
    members(&mut f, "g", 3);
    assert_eq!(placed(&f.snapshot()).len(), 2);
}

#[test]
fn a_gang_without_place_leaves_the_room_to_others() {
    let mut f = machines(3);
    f.pod_group("big", Some(4));
    members(&mut f, "big", 4);
    f.pod_group("small", Some(2));
    members(&mut f, "small", 2);
    f.pod("alone").requests(3000, gib(1));
    assert_eq!(placed(&f.snapshot()), ["alone", "small-0", "small-1"]);
}

#[test]
fn of_two_gangs_that_exclude_each_other_the_one_of_higher_priority_is_placed() {
    for (first, second, expected) in [(0, 0, "a"), (0, 1, "b"), (1, 0, "a")] {
        let mut f = machines(3);
        for (group, priority) in [("a", first), ("b", second)] {
            f.pod_group(group, Some(2));
            for index in 0..2 {
                f.pod(&format!("{group}-{index}")).requests(3000, gib(1)).group(group).priority(priority);
            }
        }
        let found = placed(&f.snapshot());
        assert!(found.len() == 2 && found.iter().all(|name| name.starts_with(expected)), "{found:?}, not {expected}");
    }
}

#[test]
fn members_that_are_bound_count() {
    let mut f = machines(1);
    f.pod_group("g", Some(3));
    members(&mut f, "g", 1);
    f.node("n").allocatable(1000, gib(1));
    f.pod("one").group("g").runs();
    f.pod("two").group("g").runs();
    assert_eq!(placed(&f.snapshot()), ["g-0"]);
}

#[test]
fn the_reason_names_the_gang_and_what_keeps_it() {
    let mut f = machines(2);
    f.pod_group("g", Some(3));
    members(&mut f, "g", 4);
    assert_eq!(
        reasons(&f.snapshot(), "g-0"),
        [
            "needs 3 pods at once, and 2 of the 4 that wait would have a place",
            "a machine for it takes at least 4 of cpu, the limit of 8 has 0 left",
        ]
    );
    let mut f = machines(5);
    f.pod_group("g", Some(3));
    members(&mut f, "g", 2);
    f.pod("lost").requests(1000, gib(1)).group("nowhere");
    assert_eq!(reasons(&f.snapshot(), "g-1"), ["needs 3 pods at once, and there are only 2"]);
    assert_eq!(reasons(&f.snapshot(), "lost"), ["PodGroup default/nowhere does not exist"]);
    let verdicts: Vec<Verdict> = plan(&f.snapshot()).refusals.iter().map(|refusal| refusal.verdict).collect();
    assert_eq!(verdicts, [Verdict::DoesNotFit, Verdict::DoesNotFit, Verdict::Waits]);
}

/// No subset of random gangs that the plan refuses would fit beside what it places, and none is placed in part.
#[test]
fn no_gang_is_placed_in_part_in_random_mixes() {
    let mut random = Random::new(7);
    for round in 0..200 {
        let mut f = machines(1 + random.below(7));
        for group in ["a", "b", "c", "d"].iter().take(1 + random.below(4) as usize) {
            let pods = 1 + random.below(4);
            f.pod_group(group, Some(u32::try_from(1 + random.below(pods + 1)).unwrap()));
            let priority: i32 = random.below(2);
            for index in 0..pods {
                let cpu = 1000 * (1 + random.below(3));
                f.pod(&format!("{group}-{index}")).requests(cpu, gib(1)).group(group).priority(priority);
            }
        }
        let snapshot = f.snapshot();
        let found = placed(&snapshot);
        for (name, group) in &snapshot.pod_groups {
            let count = found.iter().filter(|pod| pod.starts_with(&*name.name)).count();
            let wanted = group.min_count.unwrap() as usize;
            assert!(
                count == 0 || count >= wanted,
                "round {round}: {count} of {wanted}\n{}",
                render(&plan(&snapshot), &snapshot)
            );
        }
    }
}
