//! matchAttribute and distinctAttribute while devices are picked one after the other.

use smallvec::SmallVec;

use crate::compile::attributes::{Held, ValueId};
use crate::compile::claims::CompiledConstraint;
use crate::quirks::Quirks;

/// The state of a constraint after some picks.
#[derive(Debug, Clone)]
pub(crate) enum ConstraintState {
    /// All picked devices share a value: what they have in common after each pick.
    Match {
        /// One entry a device.
        common: Vec<Held>,
    },
    /// Picked devices have pairwise different values.
    Distinct {
        /// Request and value of each device, in order.
        held: Vec<(usize, Held)>,
        /// Devices picked.
        picked: usize,
        /// Only the last device of each request is remembered.
        forgets: bool,
    },
}

impl ConstraintState {
    pub(crate) fn new(constraint: CompiledConstraint, quirks: &Quirks) -> Self {
        if constraint.distinct {
            let forgets = quirks.distinct_forgets_devices_of_its_request;
            Self::Distinct { held: Vec::new(), picked: 0, forgets }
        } else {
            Self::Match { common: Vec::new() }
        }
    }

    /// Whether a device with this value could be picked now. `lists`: lists are compared.
    pub(crate) fn admits(&self, value: &Held, lists: bool) -> bool {
        match (self, value) {
            (_, Held::Missing | Held::Failed) => false,
            (_, Held::Opaque) if lists => false,
            (Self::Match { common }, value) => match (common.last(), value) {
                (None, _) => true,
                (Some(Held::Values(common)), Held::Values(values)) => intersects(common, values),
                (Some(_), _) => false,
            },
            (Self::Distinct { held, picked, .. }, value) => {
                *picked == 0
                    || held.iter().all(|(_, other)| match (other, value) {
                        (Held::Values(other), Held::Values(values)) => {
                            other.iter().all(|a| values.iter().all(|b| a.surely_differs(*b)))
                        }
                        // An unknown value equals no value of an earlier device.
                        (Held::Opaque | Held::Missing | Held::Failed, Held::Values(_)) => true,
                        (_, Held::Opaque | Held::Missing | Held::Failed) => false,
                    })
            }
        }
    }

    /// Notes a device; the caller has asked [`Self::admits`].
    pub(crate) fn add(&mut self, request: usize, value: &Held) {
        match self {
            Self::Match { common } => {
                let narrowed = match (common.last(), value) {
                    (Some(Held::Values(common)), Held::Values(values)) => {
                        Held::Values(common.iter().copied().filter(|id| values.contains(id)).collect())
                    }
                    (_, value) => value.clone(),
                };
                common.push(narrowed);
            }
            Self::Distinct { held, picked, forgets } => {
                *picked += 1;
                match held.iter_mut().find(|(of, _)| *forgets && *of == request) {
                    Some((_, last)) => *last = value.clone(),
                    None => held.push((request, value.clone())),
                }
            }
        }
    }

    /// Removes the last device, which was picked for `request`.
    pub(crate) fn remove(&mut self, request: usize) {
        match self {
            Self::Match { common } => {
                common.pop();
            }
            Self::Distinct { held, picked, forgets } => {
                *picked = picked.saturating_sub(1);
                if *forgets {
                    held.retain(|(of, _)| *of != request);
                } else {
                    held.pop();
                }
            }
        }
    }

    /// Adds what later picks depend on to a key.
    pub(crate) fn fingerprint(&self, key: &mut Vec<Held>) {
        match self {
            Self::Match { common } => key.extend(common.last().cloned()),
            Self::Distinct { held, .. } => {
                let from = key.len();
                key.extend(held.iter().map(|(_, value)| value.clone()));
                if let Some(added) = key.get_mut(from..) {
                    added.sort_unstable();
                }
            }
        }
    }

    /// Whether a device was picked.
    pub(crate) fn is_begun(&self) -> bool {
        match self {
            Self::Match { common } => !common.is_empty(),
            Self::Distinct { picked, .. } => *picked > 0,
        }
    }

    /// The values that are still possible for the next device; None if any is.
    pub(crate) fn common(&self) -> Option<&SmallVec<[ValueId; 1]>> {
        match self {
            Self::Match { common } => match common.last() {
                Some(Held::Values(values)) => Some(values),
                Some(Held::Opaque | Held::Missing | Held::Failed) | None => None,
            },
            Self::Distinct { .. } => None,
        }
    }
}

/// Whether two sorted sets have an element in common.
fn intersects(a: &[ValueId], b: &[ValueId]) -> bool {
    a.iter().any(|id| b.contains(id))
}
