//! Which of two plans for one snapshot is better: the one order by which orders of placing, colocation and group
//! domains choose.
//!
//! First come places: of the most important pods about which the plans differ, fewer are without one. Then comes the
//! cost of machines and nodes. Plans that rank alike are equally good, and the one that was made first is kept.
//! Preferences are no part of it: they hold plans to a limit instead.

use std::collections::BTreeMap;

use super::Plan;
use crate::snapshot::PodId;

/// How good a plan is; the least is the best.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlanRank {
    pub(crate) without_place: WithoutPlace,
    /// Of machines and nodes, in nano-dollars per hour.
    pub(crate) cost: i128,
}

/// How many pods have no place, by how important they are: the most important first, none that all have one. As a list
/// of pairs it is in the right order: where one plan has such pods and the other has none left or only less important
/// ones, it is greater.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WithoutPlace(Vec<(Importance, u64)>);

/// How much it counts that a pod has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Importance {
    /// One of all pods, where their priorities do not matter.
    Any,
    Priority(i32),
    /// It is one of those for which the plan is made.
    AskedAbout,
}

impl PlanRank {
    /// From the pods that the plan refuses and what it costs.
    pub(crate) fn of(plan: &Plan, importance: impl Fn(PodId) -> Importance) -> Self {
        let refused = plan.refusals.iter().map(|refusal| (importance(refusal.pod), 1));
        Self { without_place: WithoutPlace::new(refused), cost: plan.cost() }
    }
}

impl WithoutPlace {
    /// From pods, or groups of them with how many they are.
    pub(crate) fn new(refused: impl IntoIterator<Item = (Importance, u64)>) -> Self {
        let mut counts: BTreeMap<Importance, u64> = BTreeMap::new();
        for (importance, count) in refused.into_iter().filter(|(_, count)| *count > 0) {
            *counts.entry(importance).or_default() += count;
        }
        Self(counts.into_iter().rev().collect())
    }
}

/// Whether no kind of pods has more without a place than in another plan. Then neither takes a place from one kind to
/// give it to another: a rank that is less means that nobody loses.
pub(crate) fn refuses_no_more<K: Ord>(refused: &BTreeMap<K, u64>, than: &BTreeMap<K, u64>) -> bool {
    refused.iter().all(|(kind, count)| *count <= than.get(kind).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(without_place: &[(Importance, u64)], cost: i128) -> PlanRank {
        PlanRank { without_place: WithoutPlace::new(without_place.iter().copied()), cost }
    }

    #[test]
    fn plans_rank_by_places_of_the_most_important_pods_and_then_by_cost() {
        use Importance::{Any, AskedAbout, Priority};
        // Each is better than those after it.
        let ranks = [
            rank(&[], -1),
            rank(&[], 5),
            rank(&[(Priority(3), 0)], 6),
            rank(&[(Any, 1)], 0),
            rank(&[(Any, 2)], 0),
            rank(&[(Priority(-7), 9)], 0),
            rank(&[(Priority(0), 1)], 2),
            rank(&[(Priority(-7), 1), (Priority(0), 1)], 1),
            rank(&[(Priority(-7), 2), (Priority(0), 1)], 0),
            rank(&[(Priority(0), 1), (Priority(0), 1)], 0),
            rank(&[(Priority(0), 3)], 0),
            rank(&[(Priority(3), 1)], 9),
            rank(&[(Priority(3), 1), (Priority(0), 1)], 0),
            rank(&[(AskedAbout, 1), (Any, 1)], 4),
            rank(&[(AskedAbout, 1), (Any, 2)], 3),
            rank(&[(AskedAbout, 2)], 0),
        ];
        for (position, better) in ranks.iter().enumerate() {
            assert_eq!(better.cmp(better), std::cmp::Ordering::Equal);
            for worse in ranks.iter().skip(position + 1) {
                assert!(better < worse, "{better:?} before {worse:?}");
            }
        }
    }

    #[test]
    fn nobody_loses_if_each_kind_keeps_its_places() {
        let refused = |counts: &[(char, u64)]| counts.iter().copied().collect::<BTreeMap<char, u64>>();
        let before = refused(&[('a', 1), ('b', 2)]);
        for (after, expected) in [
            (refused(&[]), true),
            (refused(&[('b', 2)]), true),
            (refused(&[('a', 1), ('b', 2)]), true),
            (refused(&[('a', 2)]), false),
            (refused(&[('c', 1)]), false),
        ] {
            assert_eq!(refuses_no_more(&after, &before), expected, "{after:?}");
        }
    }
}
