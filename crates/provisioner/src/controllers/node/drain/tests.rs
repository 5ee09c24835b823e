use std::sync::Arc;

use model::pod::PodShape;
use model::{NamespacedName, Toleration};

use super::*;
use crate::world::test_pods::pod;

const NOW: Timestamp = Timestamp::from_seconds(10_000);

fn names(pods: &[Pod], deadline: Option<Timestamp>) -> (Vec<String>, usize) {
    let (interner, in_use) = (Interner::new(), DevicesInUse::default());
    let drain = decide(pods, &in_use, deadline, &interner, NOW);
    (drain.next.iter().map(|pod| pod.name.name.to_string()).collect(), drain.remaining)
}

fn after(seconds: i64) -> Timestamp {
    NOW.saturating_add(DurationMs::from_seconds(seconds))
}

#[test]
fn a_drain_takes_as_long_as_the_longest_pods_of_its_tiers_one_after_the_other() {
    let longest = |pods: &[(&str, Option<i64>, i32)]| {
        let pods = pods.iter().map(|&(name, grace, priority)| {
            let mut pod = pod(name);
            (pod.termination_grace_period_s, pod.priority, pod.is_daemon) = (grace, priority, name == "daemon");
            pod
        });
        longest(pods.collect::<Vec<_>>().iter(), &Interner::new(), NOW)
    };
    let seconds = DurationMs::from_seconds;
    assert_eq!(longest(&[]), DurationMs::ZERO);
    assert_eq!(longest(&[("a", Some(5), 0), ("b", None, 0), ("c", Some(7), 0)]), seconds(30));
    assert_eq!(longest(&[("a", Some(5), 0), ("critical", Some(60), 2_000_000_000)]), seconds(65));
    assert_eq!(longest(&[("a", Some(5), 0), ("daemon", Some(600), 0)]), seconds(5), "it ends with the machine");
    assert_eq!(longest(&[("a", Some(i64::MAX), 0), ("critical", None, 2_000_000_000)]), seconds(i64::MAX));
}

#[test]
fn pods_leave_in_four_tiers() {
    let mut pods = vec![pod("ordinary"), pod("daemon"), pod("critical"), pod("critical-daemon")];
    for pod in &mut pods {
        pod.is_daemon = pod.name.name.ends_with("daemon");
        pod.priority = if pod.name.name.starts_with("critical") { 2_000_000_000 } else { 1_000_000_000 };
    }
    for expected in ["ordinary", "daemon", "critical", "critical-daemon"] {
        let (next, remaining) = names(&pods, None);
        assert_eq!((next, remaining), (vec![expected.to_owned()], pods.len()));
        pods.remove(0);
    }
    assert_eq!(names(&pods, None), (Vec::new(), 0));
}

#[test]
fn the_largest_of_a_tier_leaves_first() {
    let sized = |(name, cpu, memory): (&str, i64, i64)| {
        let mut pod = pod(name);
        let shape = Arc::make_mut(&mut pod.shape);
        shape.requests.set(ResourceId::CPU, cpu);
        shape.requests.set(ResourceId::MEMORY, memory);
        pod
    };
    let pods = [("b", 1, 5), ("a", 1, 5), ("wide", 1, 9), ("large", 2, 1), ("none", 0, 0)].map(sized);
    let (interner, in_use) = (Interner::new(), DevicesInUse::default());
    let drain = decide(&pods, &in_use, None, &interner, NOW);
    let order: Vec<&str> = drain.next.iter().map(|pod| &*pod.name.name).collect();
    assert_eq!(order, ["large", "wide", "a", "b", "none"]);
}

#[test]
fn a_pod_that_is_leaving_keeps_its_tier_busy_and_is_not_asked_again() {
    let mut leaving = pod("leaving");
    leaving.deletion_timestamp = Some(after(20));
    let mut daemon = pod("daemon");
    daemon.is_daemon = true;
    assert_eq!(names(&[leaving, daemon], None), (Vec::new(), 2));
}

#[test]
fn pods_that_a_drain_cannot_move_are_left_alone() {
    let mut ended = pod("ended");
    ended.phase = PodPhase::Succeeded;
    let mut mirror = pod("mirror");
    mirror.is_mirror = true;
    let mut stuck = pod("stuck");
    stuck.deletion_timestamp = Some(after(-61));
    let mut tolerant = pod("tolerant");
    tolerant.shape = Arc::new(PodShape { tolerations: vec![Toleration::EVERYTHING], ..(*tolerant.shape).clone() });
    assert_eq!(names(&[ended, mirror, stuck, tolerant], None), (Vec::new(), 0));
}

#[test]
fn a_pod_whose_grace_would_outlast_the_deadline_leaves_at_once_whatever_its_tier() {
    let mut critical = pod("critical");
    critical.priority = i32::MAX;
    critical.termination_grace_period_s = Some(600);
    let mut quick = pod("quick");
    quick.termination_grace_period_s = Some(0);
    let pods = [critical, quick];
    assert_eq!(names(&pods, Some(after(601))).0, ["quick"]);
    assert_eq!(names(&pods, Some(after(599))).0, ["critical", "quick"]);
}

#[test]
fn a_pod_that_leaves_too_late_for_the_deadline_is_hurried() {
    let mut leaving = pod("leaving");
    leaving.deletion_timestamp = Some(after(100));
    assert!(needs_force(&leaving, Some(after(99)), NOW));
    assert!(!needs_force(&leaving, Some(after(100)), NOW));
    assert!(!needs_force(&leaving, None, NOW));
    let mut no_grace = pod("none");
    no_grace.termination_grace_period_s = None;
    assert!(!needs_force(&no_grace, Some(after(-1)), NOW));
    assert_eq!(no_grace.name, NamespacedName::new("default", "none"));
}
