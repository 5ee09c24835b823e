//! What was in the way of many candidates, to tell the nearest of it.

use std::{cmp::Reverse, sync::Arc};

use model::{Interner, ResourceVec};

use super::costs::Footprint;
use crate::plan::reason::Shortage;
use crate::simulation::packing::devices::Trouble;

/// Troubles with devices met on the way: why, how near, and how many candidates.
#[derive(Default)]
pub(super) struct Troubles(Vec<(Arc<str>, u64, usize)>);

impl Troubles {
    pub(super) fn add(&mut self, trouble: &Trouble, count: usize) {
        match self.0.iter_mut().find(|(known, ..)| *known == trouble.why) {
            Some((.., known)) => *known += count,
            None => self.0.push((Arc::clone(&trouble.why), trouble.usable, count)),
        }
    }

    /// Those with most devices to use first, then those of most candidates, then by text.
    pub(super) fn nearest_first(mut self) -> Vec<(Arc<str>, usize)> {
        self.0.sort_by(|(a, near, many), (b, nearer, more)| (nearer, more, a).cmp(&(near, many, b)));
        self.0.into_iter().map(|(why, _, count)| (why, count)).collect()
    }
}

/// Shortages met on the way, to tell the smallest.
#[derive(Default)]
pub(super) struct Shortages {
    /// With the number of candidates.
    met: Vec<(Shortage, usize)>,
}

impl Shortages {
    /// Counts a candidate that has so much left, of so much in all where it is a node. Devices may cost different
    /// amounts on different machines, and what is wanted of one is not held against what another has.
    pub(super) fn add(&mut self, wanted: &Footprint<'_>, there: &ResourceVec, of: Option<&ResourceVec>) {
        for wanted in wanted.exceeding(there) {
            let most = there.get(wanted.resource).max(0);
            let of = of.map(|of| of.get(wanted.resource));
            match self.met.iter_mut().find(|(other, _)| other.wanted == wanted) {
                Some((known, count)) => {
                    if most > known.most {
                        (known.most, known.of) = (most, of);
                    }
                    *count += 1;
                }
                None => self.met.push((Shortage { wanted, most, of }, 1)),
            }
        }
    }

    /// Of the resource that most candidates lack, the first by name of several, the smallest; one with what devices
    /// cost before one of machines that would not give them.
    pub(super) fn nearest(&self, names: &Interner) -> Option<Shortage> {
        let lacking = |resource| {
            let of_resource = self.met.iter().filter(|(shortage, _)| shortage.wanted.resource == resource);
            of_resource.map(|(_, count)| *count).sum::<usize>()
        };
        let nearest = self.met.iter().min_by_key(|(shortage, _)| {
            let Shortage { wanted, most, .. } = shortage;
            let missing = wanted.amount.saturating_sub(*most);
            let name = names.resource_name(wanted.resource);
            (Reverse(lacking(wanted.resource)), name, wanted.costs.is_none(), missing)
        });
        nearest.map(|(shortage, _)| shortage.clone())
    }
}
