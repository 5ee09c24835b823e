//! What the labels of a pool's offerings say, for all offerings at once: a catalogue of a cloud has tens of thousands,
//! and a plan asks for each machine.

use model::{IdSet, Interner, KeyId, Requirements, ValueId, collections::FastMap};

use super::PoolTable;
use crate::catalogue::OfferingId;
use crate::simulation::compile::catalogue_index::Lookups;

/// The members of a pool that leave a label the same values, and these.
#[derive(Debug)]
pub(crate) struct WithValues {
    pub(crate) values: Vec<ValueId>,
    pub(crate) offerings: IdSet<OfferingId>,
}

impl PoolTable<'_> {
    /// The offerings that share a value (or absence) with the requirements on each key that both restrict, as
    /// [`Requirements::intersects`] says of each.
    pub(crate) fn agreeing_with(
        &self,
        lookups: &mut Lookups,
        requirements: &Requirements,
        names: &Interner,
    ) -> IdSet<OfferingId> {
        let mut agreeing = IdSet::full(self.catalogue.offerings.len());
        for wanted in requirements {
            let mut contradicting = self.index.of_key(wanted.key).mentioned.clone();
            contradicting.difference_with(self.index.agreeing(lookups, wanted.key, &wanted.values, names));
            agreeing.difference_with(&contradicting);
        }
        agreeing
    }

    /// The members by the values that they leave a label, where these are finitely many.
    pub(crate) fn by_values(&self, key: KeyId) -> Vec<WithValues> {
        let mut groups: Vec<WithValues> = Vec::new();
        let mut indices: FastMap<&[ValueId], usize> = FastMap::default();
        for of_values in &self.index.of_key(key).by_values {
            let Some(values) = of_values.values.finite_values() else { continue };
            let mut members =
                of_values.offerings.iter().copied().filter(|&offering| self.members.contains(offering)).peekable();
            if members.peek().is_none() {
                continue;
            }
            let index = *indices.entry(values).or_insert_with(|| {
                let offerings = IdSet::with_len(self.catalogue.offerings.len());
                groups.push(WithValues { values: values.to_vec(), offerings });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(index) {
                group.offerings.extend(members);
            }
        }
        groups.sort_by_key(|group| group.offerings.iter().next());
        groups
    }
}
