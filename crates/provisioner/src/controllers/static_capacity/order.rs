//! Which machines of a static NodePool go first (Karpenter's `static.deprovisioning`).
//!
//! Those that have not been launched; then empty ones; then those whose pods are the cheapest to evict, the cost of all
//! their pods times the part of their lifetime that is left; last those with a pod that must not be disrupted. Equals
//! go by name.
//!
//! Differs: `static-mirror-pods`. To Karpenter a machine with a static pod of its kubelet is never empty.

use std::fmt;

use api::{NillableDuration, NodeClaim};
use model::{Pod, Timestamp};
use scheduling::snapshot::eviction::{DeletionCosts, EvictionCost, is_protected};

use crate::world::claim;

/// A machine, and the pods that are bound to its Node.
#[derive(Debug, Clone)]
pub(crate) struct Machine<'c, 'p> {
    /// Its NodeClaim.
    pub claim: &'c NodeClaim,
    /// Its pods, those that have ended included.
    pub pods: Vec<&'p Pod>,
}

/// What makes a machine go before others; those above go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Because {
    /// It has not been launched.
    NotLaunched,
    /// It has no pods but those of DaemonSets.
    Empty,
    /// Its pods are the cheapest to evict.
    Cheapest,
    /// All that are left have pods that must not be disrupted.
    Protected,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLaunched => "it has not been launched",
            Self::Empty => "it is empty",
            Self::Cheapest => "its pods are the cheapest to evict",
            Self::Protected => "all others have pods that must not be disrupted too",
        })
    }
}

/// The first `count` machines to go, with what makes each go.
pub(crate) fn first_to_go<'c>(
    machines: Vec<Machine<'c, '_>>,
    count: usize,
    expire_after: &NillableDuration,
    (costs, now): (DeletionCosts, Timestamp),
) -> Vec<(&'c NodeClaim, Because)> {
    // What is no duration is refused at admission.
    let lifetime_ms = expire_after.parse().ok().flatten().map(|it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
    let ranked = machines.iter().map(|machine| {
        let because = because(machine, now);
        let cost = match because {
            Because::NotLaunched | Because::Empty => 0,
            Because::Cheapest | Because::Protected => cost(machine, lifetime_ms, (costs, now)),
        };
        ((because, cost, claim::name(machine.claim)), machine.claim)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(count).map(|((because, ..), claim)| (claim, because)).collect()
}

fn because(machine: &Machine<'_, '_>, now: Timestamp) -> Because {
    if claim::provider_id(machine.claim).is_none() {
        return Because::NotLaunched;
    }
    let running = || machine.pods.iter().filter(|pod| !pod.phase.is_terminal());
    if running().any(|pod| is_protected(pod, now)) {
        Because::Protected
    } else if running().all(|pod| pod.is_daemon || pod.is_mirror) {
        Because::Empty
    } else {
        Because::Cheapest
    }
}

/// The cost of all evictions, times the milliseconds of its lifetime that are left, or 1 if it does not expire: all
/// machines of a NodePool have the same lifetime.
fn cost(machine: &Machine<'_, '_>, lifetime_ms: Option<i64>, (costs, now): (DeletionCosts, Timestamp)) -> i128 {
    let running = machine.pods.iter().filter(|pod| !pod.phase.is_terminal());
    let evictions: i128 = running.map(|pod| i128::from(EvictionCost::of(pod, costs).0)).sum();
    let age_ms = now.since(claim::created_at(machine.claim)).0;
    evictions * lifetime_ms.map_or(1, |lifetime| i128::from(lifetime.saturating_sub(age_ms).clamp(0, lifetime)))
}

#[cfg(test)]
mod tests {
    use model::DurationMs;
    use model::pod::{DoNotDisrupt, PodPhase};
    use serde_json::json;

    use super::*;
    use crate::world::test_pods::pod;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    /// A launched machine of that name and age.
    fn aged(name: &str, age_s: i64) -> NodeClaim {
        let created = NOW.saturating_sub(DurationMs::from_seconds(age_s)).to_string();
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
            "status": {"providerID": format!("p://{name}")},
        }))
        .unwrap()
    }

    /// The names in order, with the reason of each.
    fn order(machines: &[(NodeClaim, Vec<Pod>)], count: usize, expire_after: &str) -> Vec<(String, Because)> {
        let machines = machines.iter().map(|(claim, pods)| Machine { claim, pods: pods.iter().collect() }).collect();
        let order =
            first_to_go(machines, count, &NillableDuration(expire_after.to_owned()), (DeletionCosts::OfUsers, NOW));
        order.into_iter().map(|(claim, because)| (claim::name(claim).to_owned(), because)).collect()
    }

    fn names(order: Vec<(String, Because)>) -> Vec<String> {
        order.into_iter().map(|(name, _)| name).collect()
    }

    fn with(change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = pod("a");
        change(&mut pod);
        pod
    }

    #[test]
    fn not_launched_then_empty_then_cheap_then_protected_ones_go() {
        let daemon = || with(|pod| pod.is_daemon = true);
        let protected = |pod: &mut Pod| pod.do_not_disrupt = DoNotDisrupt::Always;
        let mut launching = aged("z-launching", 0);
        launching.status = None;
        let machines = [
            (aged("a-protected", 0), vec![with(protected)]),
            (
                aged("b-protected-daemon", 0),
                vec![with(|pod| (pod.is_daemon, pod.do_not_disrupt) = (true, DoNotDisrupt::Always))],
            ),
            (aged("c-two", 0), vec![pod("x"), pod("y")]),
            (aged("d-one", 0), vec![pod("x"), daemon()]),
            (aged("e-daemons", 0), vec![daemon(), with(|pod| pod.is_mirror = true)]),
            (
                aged("f-ended", 0),
                vec![with(|pod| (pod.phase, pod.do_not_disrupt) = (PodPhase::Failed, DoNotDisrupt::Always))],
            ),
            (aged("g-nothing", 0), vec![]),
            (launching, vec![]),
        ];
        let expected = [
            ("z-launching", Because::NotLaunched),
            ("e-daemons", Because::Empty),
            ("f-ended", Because::Empty),
            ("g-nothing", Because::Empty),
            ("c-two", Because::Cheapest),
            ("d-one", Because::Cheapest),
            ("a-protected", Because::Protected),
            ("b-protected-daemon", Because::Protected),
        ];
        let expected: Vec<_> = expected.map(|(name, because)| (name.to_owned(), because)).into();
        assert_eq!(order(&machines, 9, "Never"), expected, "a daemon's pod costs as much as any");
        assert_eq!(order(&machines, 3, "Never"), expected[..3]);
        assert_eq!(order(&machines, 0, "Never"), []);
    }

    #[test]
    fn evictions_cost_what_their_pods_say_and_less_the_older_the_machine() {
        let of_priority = |priority| with(|pod| pod.priority = priority);
        let of_cost = |cost| with(|pod| pod.deletion_cost = Some(cost));
        let machines = [
            (aged("dear", 0), vec![of_cost(i32::MAX)]),
            (aged("important", 0), vec![of_priority(1 << 25)]),
            (aged("plain", 0), vec![pod("x")]),
            (aged("cheap", 0), vec![of_cost(-(1 << 26))]),
            (aged("less than nothing", 0), vec![of_priority(i32::MIN)]),
        ];
        let expected = ["less than nothing", "cheap", "plain", "important", "dear"];
        assert_eq!(names(order(&machines, 5, "Never")), expected);
        // A tenth of its time is left to the old one, none to the oldest.
        let pods = || vec![pod("x"), pod("y"), pod("z")];
        let machines = [(aged("new", 0), vec![pod("x")]), (aged("old", 90), pods()), (aged("oldest", 999), pods())];
        assert_eq!(names(order(&machines, 3, "100s")), ["oldest", "old", "new"]);
        assert_eq!(names(order(&machines, 3, "Never")), ["new", "old", "oldest"]);
        assert_eq!(names(order(&machines, 3, "ever")), ["new", "old", "oldest"], "admission refuses such a text");
    }
}
