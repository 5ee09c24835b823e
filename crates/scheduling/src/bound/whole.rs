//! Machines are bought whole: this raises the bound for pods that need less than a machine.
//!
//! Kinds that no offering takes together, not even by way of others, share no machine: they fall into *parts*, and
//! every plan's price is a sum over the parts. If none of a part's kinds fits on an existing node, somebody buys at
//! least one machine for each of its kinds, so the part costs at least as much as the cheapest machine for its dearest
//! kind. That is more than the relaxation's share where a part needs less than a machine.

use model::{Id, IdSet, IdVec, PriceNanoUsdPerHour};

use super::{Kind, KindId};

/// Which kinds can meet on a machine, and what a machine for each costs at least.
#[derive(Debug, Clone)]
pub(super) struct WholeMachines {
    /// By kind: another of the same part, or itself.
    leader: Vec<usize>,
    cheapest: IdVec<KindId, Option<i64>>,
    /// Kinds that a limited offering takes.
    limited: IdSet<KindId>,
}

impl WholeMachines {
    pub(super) fn new(kinds: usize) -> Self {
        Self { leader: (0..kinds).collect(), cheapest: IdVec::filled(None, kinds), limited: IdSet::with_len(kinds) }
    }

    /// Adds an offering with the kinds that it takes.
    pub(super) fn add(&mut self, takes: &IdSet<KindId>, price: PriceNanoUsdPerHour, is_limited: bool) {
        let mut before: Option<KindId> = None;
        for kind in takes.iter() {
            let least = &mut self.cheapest[kind];
            *least = Some(least.map_or(price.0, |least| least.min(price.0)));
            if is_limited {
                self.limited.insert(kind);
            }
            if let Some(before) = before {
                let (one, other) = (self.leader_of(before.index()), self.leader_of(kind.index()));
                self.set_leader(one.max(other), one.min(other));
            }
            before = Some(kind);
        }
    }

    /// By how much whole machines cost more than the copies are worth. Parts with a kind in `elsewhere` are left out,
    /// because their copies may need no new machine.
    pub(super) fn beyond(&self, kinds: &IdVec<KindId, Kind>, worth: &[i64], elsewhere: &IdSet<KindId>) -> i128 {
        #[derive(Clone, Copy, Default)]
        struct Part {
            worth: i128,
            machine: i64,
            is_open: bool,
        }
        let mut parts = vec![Part::default(); self.leader.len()];
        for ((kind, of_kind), &worth) in kinds.iter_enumerated().zip(worth) {
            if let Some(part) = parts.get_mut(self.leader_of(kind.index())) {
                part.worth += i128::from(worth) * i128::from(of_kind.copies);
                part.machine = part.machine.max(self.cheapest[kind].unwrap_or(0));
                part.is_open |= elsewhere.contains(kind) || self.limited.contains(kind);
            }
        }
        let closed = parts.iter().filter(|part| !part.is_open);
        closed.map(|part| (i128::from(part.machine) - part.worth).max(0)).sum()
    }

    fn leader_of(&self, mut kind: usize) -> usize {
        // A leader's index is never above that of a kind that it leads, so this ends.
        while let Some(&leader) = self.leader.get(kind).filter(|leader| **leader != kind) {
            kind = leader;
        }
        kind
    }

    fn set_leader(&mut self, kind: usize, leader: usize) {
        if let Some(of_kind) = self.leader.get_mut(kind) {
            *of_kind = leader;
        }
    }
}
