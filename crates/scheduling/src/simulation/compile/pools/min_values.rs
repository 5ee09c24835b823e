//! `minValues`: how many different values of a label a NodeClaim has to leave open.

use std::{borrow::Cow, sync::Arc};

use model::{IdSet, Interner, KeyId, ValueId, ValueSet, collections::FastMap};
use smallvec::SmallVec;

use crate::catalogue::OfferingId;
use crate::tuning::FEW_VALUES;

/// A `minValues` of the pool.
#[derive(Debug, Clone)]
pub(crate) struct MinValues {
    pub(crate) key: KeyId,
    pub(crate) wanted: usize,
    /// The members with each value, by value name.
    pub(crate) by_value: Arc<[(ValueId, IdSet<OfferingId>)]>,
    /// The value of each member; `None` where one has several.
    only_value: Option<Arc<FastMap<OfferingId, ValueId>>>,
}

impl MinValues {
    /// From what the pool and its members say of the key; `None` where neither says anything.
    pub(super) fn new<'v>(
        key: KeyId,
        wanted: usize,
        members: impl Iterator<Item = (OfferingId, Option<Cow<'v, ValueSet>>)>,
        names: &Interner,
    ) -> Self {
        let mut by_value: FastMap<ValueId, IdSet<OfferingId>> = FastMap::default();
        let mut only_value: FastMap<OfferingId, ValueId> = FastMap::default();
        let mut is_only = true;
        for (offering, values) in members {
            for &value in values.iter().flat_map(|values| values.finite_values().unwrap_or_default()) {
                by_value.entry(value).or_default().insert(offering);
                is_only &= only_value.insert(offering, value).is_none();
            }
        }
        let mut by_value: Vec<(ValueId, IdSet<OfferingId>)> = by_value.into_iter().collect();
        by_value.sort_by_key(|(value, _)| names.value_name(*value));
        let only_value = is_only.then(|| Arc::new(only_value));
        Self { key, wanted, by_value: by_value.into(), only_value }
    }

    /// The values that a member has.
    pub(crate) fn values_of(&self, offering: OfferingId) -> SmallVec<[ValueId; 2]> {
        match &self.only_value {
            Some(only_value) => only_value.get(&offering).copied().into_iter().collect(),
            None => {
                let has = self.by_value.iter().filter(|(_, offerings)| offerings.contains(offering));
                has.map(|(value, _)| *value).collect()
            }
        }
    }

    /// Whether `open` still has as many values as are wanted.
    pub(crate) fn is_kept(&self, open: &IdSet<OfferingId>) -> bool {
        let Some(only_value) = self.only_value.as_ref().filter(|_| self.wanted <= FEW_VALUES) else {
            return self.left(open) >= self.wanted;
        };
        let mut seen: SmallVec<[ValueId; FEW_VALUES]> = SmallVec::new();
        let mut values = open.iter().filter_map(|offering| only_value.get(&offering));
        while seen.len() < self.wanted {
            match values.find(|value| !seen.contains(value)) {
                Some(&value) => seen.push(value),
                None => return false,
            }
        }
        true
    }

    /// How many values `open` still has.
    pub(crate) fn left(&self, open: &IdSet<OfferingId>) -> usize {
        self.by_value.iter().filter(|(_, offerings)| offerings.intersects(open)).count()
    }
}

#[cfg(test)]
mod tests {
    use model::Id as _;

    use super::*;

    #[test]
    fn values_are_counted_as_by_looking_at_the_offerings_of_each() {
        let mut names = Interner::new();
        let key = names.key("k");
        let values: Vec<ValueId> = (0..40).map(|index| names.value(&format!("v{index}"))).collect();
        let offering = |index: usize| OfferingId::from_index(index);
        // Each value on three offerings, and then one offering with two values.
        for has_several in [false, true] {
            let of = |index: usize| match has_several && index == 7 {
                true => Some(Cow::Owned(ValueSet::among([values[0], values[9]]))),
                false => values.get(index / 3).map(|&value| Cow::Owned(ValueSet::among([value]))),
            };
            for wanted in [0, 1, 5, 33, 40] {
                let min = MinValues::new(key, wanted, (0..123).map(|index| (offering(index), of(index))), &names);
                assert_eq!(min.only_value.is_none(), has_several);
                for step in [1, 2, 3, 4, 20] {
                    let open: IdSet<OfferingId> = (0..123).step_by(step).map(offering).collect();
                    assert_eq!(min.is_kept(&open), min.left(&open) >= wanted);
                    let mut all: Vec<ValueId> = open.iter().flat_map(|offering| min.values_of(offering)).collect();
                    all.sort_unstable();
                    all.dedup();
                    assert_eq!(all.len(), min.left(&open));
                }
            }
        }
    }
}
