//! How many machines a static NodePool is to get or to lose.

use cluster::static_pools::Count;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Enough,
    /// Create so many NodeClaims.
    Launch(i64),
    /// There are too few, and `limits.nodes` allows no more.
    LimitReached,
    /// Delete so many that are to stay.
    Deprovision(i64),
}

/// Decides, as Karpenter's `static.provisioning` and `static.deprovisioning` do together. `limit` is that of nodes.
///
/// Differs: `static-pending-disruption`. Karpenter launches in place of the NodeClaims that a command owns as well,
/// though the command brings their replacements, and takes the surplus away afterwards.
pub(crate) fn decide(count: Count, replicas: i64, limit: Option<i64>) -> Step {
    let missing = replicas.saturating_sub(count.active + count.pending_disruption);
    if count.active > replicas {
        return Step::Deprovision(count.active - replicas);
    }
    if missing <= 0 {
        return Step::Enough;
    }
    let all = count.active + count.pending_disruption + count.deleting;
    match limit.map_or(missing, |limit| missing.min(limit.saturating_sub(all))) {
        room @ 1.. => Step::Launch(room),
        _ => Step::LimitReached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_launched_up_to_replicas_within_the_limit_and_surplus_goes() {
        let cases = [
            // active, pending disruption, deleting; replicas, limit
            ((0, 0, 0), 0, None, Step::Enough),
            ((0, 0, 0), 3, None, Step::Launch(3)),
            ((2, 0, 0), 3, None, Step::Launch(1)),
            ((3, 0, 0), 3, None, Step::Enough),
            ((5, 0, 0), 3, None, Step::Deprovision(2)),
            ((5, 0, 0), 0, Some(1), Step::Deprovision(5)),
            ((0, 0, 0), 10, Some(4), Step::Launch(4)),
            ((4, 0, 0), 10, Some(4), Step::LimitReached),
            ((0, 0, 0), 1, Some(0), Step::LimitReached),
            ((4, 0, 0), 4, Some(2), Step::Enough),
            // What goes has its machine yet, and takes room under the limit.
            ((2, 0, 2), 3, None, Step::Launch(1)),
            ((2, 0, 2), 4, Some(5), Step::Launch(1)),
            ((2, 0, 2), 4, Some(4), Step::LimitReached),
            // A command replaces what it owns, and its replacement is no surplus.
            ((2, 1, 0), 3, None, Step::Enough),
            ((3, 1, 0), 3, None, Step::Enough),
            ((1, 1, 0), 3, None, Step::Launch(1)),
            ((4, 1, 0), 3, None, Step::Deprovision(1)),
            ((1, 1, 1), 4, Some(4), Step::Launch(1)),
            ((0, 0, 0), i64::MAX, None, Step::Launch(i64::MAX)),
        ];
        for ((active, pending_disruption, deleting), replicas, limit, expected) in cases {
            let count = Count { active, pending_disruption, deleting };
            assert_eq!(decide(count, replicas, limit), expected, "{count:?}, {replicas} replicas, limit {limit:?}");
        }
    }

    #[test]
    fn one_look_after_the_other_ends_with_the_replicas_and_never_beyond_the_limit() {
        for replicas in 0..6 {
            for limit in [None, Some(0), Some(3), Some(9)] {
                for start in 0..6 {
                    let mut count = Count { active: start, ..Count::default() };
                    let most = limit.map_or(i64::MAX, |limit: i64| limit.max(start));
                    for _ in 0..10 {
                        match decide(count, replicas, limit) {
                            Step::Enough | Step::LimitReached => {}
                            Step::Launch(number) => count.active += number,
                            Step::Deprovision(number) => {
                                count.active -= number;
                                count.deleting += number;
                            }
                        }
                        assert!(count.active + count.deleting <= most, "{count:?}, limit {limit:?}");
                        // The machine of one is gone.
                        count.deleting -= 1.min(count.deleting);
                    }
                    let wanted = limit.map_or(replicas, |limit| replicas.min(limit.max(start)));
                    assert_eq!(count.active, wanted, "from {start} to {replicas}, limit {limit:?}");
                }
            }
        }
    }
}
