//! Groups of open machines with equal contents: when a place is looked for, one machine stands for its group.

use std::collections::BTreeSet;

use model::collections::FastMap;

use super::state::BinId;

/// Open machines by their contents.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    by_kind: FastMap<u64, BTreeSet<BinId>>,
    /// Of each group with more than one machine the last, in order.
    repeated: Vec<BinId>,
}

impl Alike {
    /// Adds a machine with contents of this number.
    pub(crate) fn insert(&mut self, kind: u64, id: BinId) {
        self.change(kind, |bins| bins.insert(id));
    }

    /// Removes a machine whose contents had this number.
    pub(crate) fn remove(&mut self, kind: u64, id: BinId) {
        self.change(kind, |bins| bins.remove(&id));
        if self.by_kind.get(&kind).is_some_and(BTreeSet::is_empty) {
            self.by_kind.remove(&kind);
        }
    }

    fn change(&mut self, kind: u64, change: impl FnOnce(&mut BTreeSet<BinId>) -> bool) {
        let bins = self.by_kind.entry(kind).or_default();
        let stands_for = |bins: &BTreeSet<BinId>| if bins.len() > 1 { bins.last().copied() } else { None };
        let before = stands_for(bins);
        change(bins);
        let after = stands_for(bins);
        if before != after {
            if let Some(position) = before.and_then(|before| self.repeated.binary_search(&before).ok()) {
                self.repeated.remove(position);
            }
            if let Some((after, position)) = after.and_then(|it| Some((it, self.repeated.binary_search(&it).err()?))) {
                self.repeated.insert(position, after);
            }
        }
    }

    /// One machine of each kind that there are several of, the last `most` of them; the latest first.
    pub(crate) fn repeated(&self, most: usize) -> impl Iterator<Item = BinId> + '_ {
        self.repeated.iter().rev().take(most).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_stands_for_its_kind() {
        let mut alike = Alike::default();
        for (kind, id) in [(7, 0), (8, 1), (7, 2), (7, 3), (9, 4)] {
            alike.insert(kind, BinId(id));
        }
        let shown = |alike: &Alike| alike.repeated(9).map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(shown(&alike), [3]);
        alike.insert(8, BinId(5));
        assert_eq!(shown(&alike), [5, 3]);
        alike.remove(7, BinId(3));
        assert_eq!(shown(&alike), [5, 2]);
        alike.remove(7, BinId(2));
        assert_eq!(shown(&alike), [5], "one alone stands for nobody");
        assert_eq!(alike.repeated(0).count(), 0);
    }
}
