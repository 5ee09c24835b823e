//! How much of what a machine has its pods can use at most.
//!
//! Where no kind asks for more than 4 GiB per CPU, what a machine has beyond 4 GiB per CPU stays free whichever pods
//! are on it, also in parts. So it is taken away before sites are compared: a machine with more of it is no better. A
//! dimension that is never full before another (mostly the number of pods) is left out of the search for prices; its
//! price is 0.

use model::IdVec;

use super::{Kind, KindId, Site};

/// By two dimensions: the most of the first that a kind asks for along with one of the second; `None` without limit.
pub(super) struct Usable {
    most: Vec<Vec<Option<Ratio>>>,
}

#[derive(Debug, Clone, Copy)]
struct Ratio {
    amount: i64,
    per: i64,
}

impl Ratio {
    const NONE: Self = Self { amount: 0, per: 1 };

    fn is_above(self, other: Self) -> bool {
        i128::from(self.amount) * i128::from(other.per) > i128::from(other.amount) * i128::from(self.per)
    }

    /// So much goes along with so many of the other, rounded up.
    fn of(self, others: i64) -> i128 {
        let (all, per) = (i128::from(others) * i128::from(self.amount), i128::from(self.per));
        (all + per - 1).div_euclid(per)
    }
}

impl Usable {
    pub(super) fn new(kinds: &IdVec<KindId, Kind>, dimensions: usize) -> Self {
        let mut most = vec![vec![Some(Ratio::NONE); dimensions]; dimensions];
        for kind in kinds {
            for (&amount, most) in kind.requests.iter().zip(&mut most).filter(|(amount, _)| **amount > 0) {
                for (&per, most) in kind.requests.iter().zip(most) {
                    *most = most.filter(|_| per > 0).map(|most| {
                        let ratio = Ratio { amount, per };
                        if ratio.is_above(most) { ratio } else { most }
                    });
                }
            }
        }
        Self { most }
    }

    /// The part of what a machine has that pods can use. One step is enough: the most of one dimension per another is
    /// no more than by way of a third.
    pub(super) fn of(&self, holds: &[i64]) -> Vec<i64> {
        let limits = |most: &Vec<Option<Ratio>>| {
            let limits = most.iter().zip(holds).filter_map(|(ratio, &others)| Some(ratio.as_ref()?.of(others)));
            limits.min().unwrap_or(i128::MAX)
        };
        let usable =
            |(&has, most): (&i64, &Vec<Option<Ratio>>)| i64::try_from(limits(most)).map_or(has, |it| it.min(has));
        holds.iter().zip(&self.most).map(usable).collect()
    }

    /// The dimensions that limit some site: without one of these, the site would hold more.
    pub(super) fn binding(&self, sites: &[Site]) -> Vec<usize> {
        let mut binding: Vec<usize> = (0..self.most.len()).collect();
        for dimension in (0..self.most.len()).rev() {
            let is_idle = |site: &Site| {
                binding.iter().any(|&other| other != dimension && self.is_full_first(other, dimension, &site.holds))
            };
            if sites.iter().all(is_idle) {
                binding.retain(|other| *other != dimension);
            }
        }
        binding
    }

    /// Whether nothing is left of the first dimension whenever nothing is left of the second.
    fn is_full_first(&self, first: usize, second: usize, holds: &[i64]) -> bool {
        let ratio = self.most.get(second).and_then(|most| most.get(first).copied().flatten());
        match (ratio, holds.get(first), holds.get(second)) {
            (Some(ratio), Some(&others), Some(&has)) => ratio.of(others) <= i128::from(has),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(requests: &[Vec<i64>]) -> IdVec<KindId, Kind> {
        requests.iter().map(|requests| Kind { requests: requests.clone(), copies: 1 }).collect()
    }

    fn site(holds: Vec<i64>) -> Site {
        Site { price: model::PriceNanoUsdPerHour(1), holds, takes: model::IdSet::new() }
    }

    #[test]
    fn what_stays_free_is_cut() {
        // Millicores, MiB, pods; from 1 to 4 GiB per CPU, and a pod takes half a CPU at least.
        let usable = Usable::new(&kinds(&[vec![1000, 1024, 1], vec![500, 2048, 1]]), 3);
        let cases = [
            ([4000, 8192, 110], [4000, 8192, 8], "pods are not full before CPU or memory"),
            ([4000, 64_000, 110], [4000, 16_384, 8], "4 GiB per CPU at most"),
            ([64_000, 8192, 110], [8000, 8192, 8], "a CPU per GiB at most"),
            ([64_000, 64_000, 5], [5000, 10_240, 5], "five pods"),
        ];
        for (holds, wanted, why) in cases {
            assert_eq!(usable.of(&holds), wanted, "{why}");
        }
        let machines = [site(usable.of(&[4000, 8192, 110])), site(usable.of(&[4000, 64_000, 110]))];
        assert_eq!(usable.binding(&machines), [0, 1]);
        let small = [site(usable.of(&[64_000, 64_000, 5]))];
        assert_eq!(usable.binding(&small), [2], "the number of pods comes first");
    }

    #[test]
    fn what_some_kinds_do_without_does_not_limit_the_others() {
        let usable = Usable::new(&kinds(&[vec![1000, 0], vec![0, 1000]]), 2);
        assert_eq!(usable.of(&[1000, 50_000]), [1000, 50_000]);
        assert_eq!(usable.binding(&[site(vec![1000, 50_000])]), [0, 1]);
    }

    proptest! {
        /// Pods that a machine holds fit what counts of it, and pods that fit what binds fit all of it.
        #[test]
        fn no_mix_of_pods_is_lost_or_gained(
            (requests, holds) in (1..5usize).prop_flat_map(|dimensions| (
                prop::collection::vec(prop::collection::vec(0..6i64, dimensions), 1..5),
                prop::collection::vec(0..60i64, dimensions),
            )),
            copies in prop::collection::vec(0..12i64, 5),
        ) {
            let kinds = kinds(&requests);
            let usable = Usable::new(&kinds, holds.len());
            let cut = site(usable.of(&holds));
            let needs: Vec<i64> = (0..holds.len())
                .map(|dimension| {
                    let of_kind = |(kind, copies): (&Kind, &i64)| kind.requests.get(dimension).copied().unwrap_or(0) * copies;
                    kinds.iter().zip(&copies).map(of_kind).sum()
                })
                .collect();
            let fits = |holds: &[i64]| needs.iter().zip(holds).all(|(need, has)| need <= has);
            prop_assert_eq!(fits(&holds), fits(&cut.holds));
            let binding = usable.binding(std::slice::from_ref(&cut));
            let fits_binding = binding.iter().all(|&dimension| needs.get(dimension) <= cut.holds.get(dimension));
            prop_assert!(!fits_binding || fits(&cut.holds));
        }
    }
}
