//! "Which offerings have at least x of resource r", answered by a binary search instead of a walk.
//!
//! Per resource the distinct amounts are sorted, and each has the bitset of the offerings that have at least that much.
//! A trial of any number of pods is then one lookup and one AND per resource, whatever the number of offerings.

use model::{Id as _, IdSet, IdVec, PriceNanoUsdPerHour, ResourceId, ResourceVec};

use crate::catalogue::OfferingId;

/// Prefix bitsets over the offerings of one catalogue.
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
    /// From what offerings hold net of daemons. Resources that no offering has are left out.
    pub(crate) fn new(net: &IdVec<OfferingId, ResourceVec>, resources: usize) -> Self {
        let by_resource = (0..resources)
            .map(|index| {
                let resource = ResourceId::from_index(index);
                let mut amounts: Vec<(i64, OfferingId)> = net
                    .iter_enumerated()
                    .map(|(offering, net)| (net.get(resource), offering))
                    .filter(|(amount, _)| *amount > 0)
                    .collect();
                amounts.sort_unstable_by(|a, b| b.cmp(a));
                let mut steps: Vec<Step> = Vec::new();
                let mut at_least = IdSet::with_len(net.len());
                for of_amount in amounts.chunk_by(|(one, _), (other, _)| one == other) {
                    at_least.extend(of_amount.iter().map(|(_, offering)| *offering));
                    let amount = of_amount.first().map_or(0, |(amount, _)| *amount);
                    steps.push(Step { amount, at_least: at_least.clone() });
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
        steps.get(first(steps, amount)).map(|step| &step.at_least)
    }

    /// The most that one of these offerings has of each resource.
    pub(crate) fn most(&self, offerings: &IdSet<OfferingId>) -> ResourceVec {
        let most = |(resource, steps): (usize, &Vec<Step>)| {
            // Those with more are among those with less, and mostly a large one is left.
            let has_one = |step: &Step| step.at_least.intersects(offerings);
            let (others, largest) = steps.split_at(steps.len().saturating_sub(4));
            let of_others = || others.get(others.partition_point(has_one).checked_sub(1)?);
            let step = largest.iter().rev().find(|step| has_one(step)).or_else(of_others)?;
            Some((ResourceId::from_index(resource), step.amount))
        };
        self.by_resource.iter().enumerate().filter_map(most).collect()
    }
}

fn first(steps: &[Step], amount: i64) -> usize {
    steps.partition_point(|step| step.amount < amount)
}

/// The least that a machine of one pool costs with so much of a resource.
#[derive(Debug, Default)]
pub(crate) struct LeastPrices {
    /// By resource, in the order of the steps of the index.
    by_resource: Vec<Vec<PriceNanoUsdPerHour>>,
}

impl LeastPrices {
    /// Of offerings with their prices.
    pub(crate) fn new<'n>(
        index: &FitIndex,
        members: impl Iterator<Item = (&'n ResourceVec, PriceNanoUsdPerHour)> + Clone,
    ) -> Self {
        let of_resource = |(resource, steps): (usize, &Vec<Step>)| {
            let mut least = vec![PriceNanoUsdPerHour(i64::MAX); steps.len()];
            for (net, price) in members.clone() {
                let amount = net.get(ResourceId::from_index(resource));
                // Each amount above zero has a step of its own.
                if let Some(known) = least.get_mut(first(steps, amount)).filter(|_| amount > 0) {
                    *known = price.min(*known);
                }
            }
            let mut cheapest = PriceNanoUsdPerHour(i64::MAX);
            for price in least.iter_mut().rev() {
                cheapest = cheapest.min(*price);
                *price = cheapest;
            }
            least
        };
        Self { by_resource: index.by_resource.iter().enumerate().map(of_resource).collect() }
    }

    /// What a machine with so much costs at least; `None` when there is none.
    pub(crate) fn of(&self, index: &FitIndex, resource: ResourceId, amount: i64) -> Option<PriceNanoUsdPerHour> {
        let step = first(index.by_resource.get(resource.index())?, amount);
        self.by_resource.get(resource.index())?.get(step).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Id;

    #[test]
    fn at_least_gives_the_offerings_with_that_much_or_more() {
        let mut allocatable = IdVec::default();
        for cpu in [4, 2, 4, 0, 8] {
            let mut amounts = ResourceVec::default();
            amounts.set(ResourceId::CPU, cpu);
            allocatable.push(amounts);
        }
        let index = FitIndex::new(&allocatable, 4);
        let ids = |amount| -> Vec<usize> {
            index.at_least(ResourceId::CPU, amount).map(|set| set.iter().map(Id::index).collect()).unwrap_or_default()
        };
        assert_eq!(ids(1), [0, 1, 2, 4]);
        assert_eq!(ids(2), [0, 1, 2, 4]);
        assert_eq!(ids(3), [0, 2, 4]);
        assert_eq!(ids(5), [4]);
        assert_eq!(ids(9), Vec::<usize>::new());
        assert!(index.at_least(ResourceId::MEMORY, 1).is_none());
        let most = |offerings: &[usize]| {
            let offerings = offerings.iter().copied().map(OfferingId::from_index).collect();
            index.most(&offerings).get(ResourceId::CPU)
        };
        assert_eq!([most(&[1, 3]), most(&[0, 1, 2, 3]), most(&[1, 4]), most(&[3])], [2, 4, 8, 0]);
        // The one with 8 CPUs is no member.
        let members = allocatable.iter().take(4).zip([50, 30, 60, 10].map(PriceNanoUsdPerHour));
        let prices = LeastPrices::new(&index, members);
        let least = [1, 2, 3, 9].map(|amount| prices.of(&index, ResourceId::CPU, amount).map(|price| price.0));
        assert_eq!(least, [Some(30), Some(30), Some(50), None]);
        assert_eq!(prices.of(&index, ResourceId::CPU, 5), Some(PriceNanoUsdPerHour(i64::MAX)), "not in this pool");
    }
}
