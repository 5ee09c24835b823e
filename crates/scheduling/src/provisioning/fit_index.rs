//! "Which offerings have at least x of resource r", answered by a binary search instead of a walk.
//!
//! Per resource the distinct amounts are sorted, and each has the bitset of the offerings that have at least that much.
//! A trial of any number of pods is then one lookup and one AND per resource, whatever the number of offerings.

use model::{Id, IdSet, IdVec, ResourceId, ResourceVec};

use crate::catalogue::OfferingId;

/// Prefix bitsets over the offerings of one NodePool.
#[derive(Debug, Default)]
pub(crate) struct FitIndex {
    /// By resource id; empty where no offering has any.
    by_resource: Vec<Vec<Step>>,
}

#[derive(Debug)]
struct Step {
    amount: i64,
    at_least: IdSet<OfferingId>,
}

impl FitIndex {
    /// `members` with their allocatable net of daemons. Resources that no offering has are left out.
    pub(crate) fn new(
        members: &IdSet<OfferingId>,
        allocatable: &IdVec<OfferingId, ResourceVec>,
        resources: usize,
    ) -> Self {
        let by_resource = (0..resources)
            .map(|index| {
                let resource = ResourceId::from_index(index);
                let mut amounts: Vec<(i64, OfferingId)> = members
                    .iter()
                    .map(|offering| (allocatable[offering].get(resource), offering))
                    .filter(|(amount, _)| *amount > 0)
                    .collect();
                amounts.sort_unstable_by(|a, b| b.cmp(a));
                let mut steps: Vec<Step> = Vec::new();
                let mut at_least = IdSet::with_len(allocatable.len());
                for (amount, offering) in amounts {
                    at_least.insert(offering);
                    match steps.last_mut() {
                        Some(step) if step.amount == amount => step.at_least.clone_from(&at_least),
                        _ => steps.push(Step { amount, at_least: at_least.clone() }),
                    }
                }
                steps.reverse();
                steps
            })
            .collect();
        Self { by_resource }
    }

    /// The offerings with at least `amount`, which is above zero; `None` when there are none.
    pub(crate) fn at_least(&self, resource: ResourceId, amount: i64) -> Option<&IdSet<OfferingId>> {
        let steps = self.by_resource.get(resource.index())?;
        let first = steps.partition_point(|step| step.amount < amount);
        steps.get(first).map(|step| &step.at_least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_gives_the_offerings_with_that_much_or_more() {
        let mut allocatable = IdVec::default();
        for cpu in [4, 2, 4, 0, 8] {
            let mut amounts = ResourceVec::default();
            amounts.set(ResourceId::CPU, cpu);
            allocatable.push(amounts);
        }
        let index = FitIndex::new(&IdSet::full(5), &allocatable, 4);
        let ids = |amount| -> Vec<usize> {
            index.at_least(ResourceId::CPU, amount).map(|set| set.iter().map(Id::index).collect()).unwrap_or_default()
        };
        assert_eq!(ids(1), [0, 1, 2, 4]);
        assert_eq!(ids(2), [0, 1, 2, 4]);
        assert_eq!(ids(3), [0, 2, 4]);
        assert_eq!(ids(5), [4]);
        assert_eq!(ids(9), Vec::<usize>::new());
        assert!(index.at_least(ResourceId::MEMORY, 1).is_none());
    }
}
