//! What was in the way of many candidates, to tell the nearest of it.

use std::sync::Arc;

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
    pub(super) fn add(&mut self, wanted: &Footprint<'_>, there: &ResourceVec) {
        for (resource, wanted, for_devices) in wanted.exceeding(there) {
            let most = there.get(resource).max(0);
            match self.met.iter_mut().find(|(other, _)| other.resource == resource) {
                Some((known, count)) => {
                    // Devices may cost different amounts on different machines.
                    if wanted < known.wanted {
                        (known.wanted, known.for_devices) = (wanted, for_devices);
                    }
                    known.most = known.most.max(most);
                    *count += 1;
                }
                None => self.met.push((Shortage { resource, wanted, for_devices, most }, 1)),
            }
        }
    }

    /// The resource that most candidates lack; the first by name of several.
    pub(super) fn nearest(&self, names: &Interner) -> Option<Shortage> {
        let mut met: Vec<_> = self.met.iter().collect();
        met.sort_by_key(|(shortage, count)| (std::cmp::Reverse(*count), names.resource_name(shortage.resource)));
        met.first().map(|(shortage, _)| *shortage)
    }
}
