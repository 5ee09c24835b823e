//! What was in the way of many candidates, to tell the nearest of it.

use std::sync::Arc;

use model::{Interner, ResourceId, ResourceVec};

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
    met: Vec<(ResourceId, i64, i64, usize)>,
}

impl Shortages {
    pub(super) fn add(&mut self, wanted: &ResourceVec, there: &ResourceVec) {
        for resource in wanted.exceeding(there) {
            let (amount, most) = (wanted.get(resource), there.get(resource));
            match self.met.iter_mut().find(|(other, ..)| *other == resource) {
                Some((_, _, best, count)) => {
                    *best = (*best).max(most);
                    *count += 1;
                }
                None => self.met.push((resource, amount, most, 1)),
            }
        }
    }

    /// The resource that most candidates lack; the first by name of several.
    pub(super) fn nearest(&self, names: &Interner) -> Option<Shortage> {
        let mut met: Vec<_> = self.met.iter().collect();
        met.sort_by_key(|(resource, _, _, count)| (std::cmp::Reverse(*count), names.resource_name(*resource)));
        met.first().map(|(resource, wanted, most, _)| Shortage {
            resource: *resource,
            wanted: *wanted,
            most: (*most).max(0),
        })
    }
}
