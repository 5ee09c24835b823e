//! What pools of one catalogue have in common, worked out once for all of them: which offerings have which labels, what
//! they hold net of daemons, and their order by price. A cluster of sixty NodePools mostly has one catalogue.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use model::{IdSet, IdVec, Interner, KeyId, Requirement, ResourceVec, ValueSet, collections::FastMap};

use super::fit_index::FitIndex;
use crate::{
    catalogue::{Catalogue, OfferingId},
    snapshot::{PoolId, Snapshot},
};

/// Facts about one catalogue; those about labels are found when they are asked for.
#[derive(Debug)]
pub(crate) struct CatalogueIndex<'s> {
    catalogue: &'s Catalogue,
    /// Cheapest first; equal prices by type, zone and capacity type.
    pub(crate) by_price: Vec<OfferingId>,
    by_key: IdVec<KeyId, OnceLock<Box<OfKey>>>,
}

/// Lookups that compiling the tables of one catalogue shares. They are dropped afterwards.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    agreeing: FastMap<(KeyId, ValueSet), IdSet<OfferingId>>,
    nets: FastMap<Vec<(ResourceVec, IdSet<OfferingId>)>, Arc<Net>>,
}

/// Each distinct catalogue once, and which of them each pool has.
#[derive(Debug)]
pub(crate) struct Catalogues<'s> {
    all: Vec<(Arc<CatalogueIndex<'s>>, Lookups)>,
    of_pools: IdVec<PoolId, usize>,
}

impl<'s> Catalogues<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let mut all: Vec<(Arc<CatalogueIndex<'s>>, Lookups)> = Vec::new();
        let of_pool = |pool: &'s crate::snapshot::NodePool| {
            let catalogue = &*pool.catalogue;
            all.iter().position(|(known, _)| std::ptr::eq(known.catalogue, catalogue)).unwrap_or_else(|| {
                all.push((Arc::new(CatalogueIndex::new(catalogue, &snapshot.interner)), Lookups::default()));
                all.len() - 1
            })
        };
        let of_pools = snapshot.node_pools.iter().map(of_pool).collect();
        Self { all, of_pools }
    }

    pub(crate) fn of(&mut self, pool: PoolId) -> Option<(Arc<CatalogueIndex<'s>>, &mut Lookups)> {
        let (index, lookups) = self.all.get_mut(self.of_pools[pool])?;
        Some((Arc::clone(index), lookups))
    }
}

/// Which offerings define one label key.
#[derive(Debug)]
pub(crate) struct OfKey {
    /// The offerings that define it.
    pub(crate) mentioned: IdSet<OfferingId>,
    /// The offerings that leave several of its values possible.
    pub(crate) open: IdSet<OfferingId>,
    /// Those that define it, by what they say: a type is sold in dozens of ways, so there are far fewer of these.
    pub(crate) by_values: Vec<OfValues>,
}

/// The offerings that say the same of a key.
#[derive(Debug)]
pub(crate) struct OfValues {
    pub(crate) values: ValueSet,
    pub(crate) offerings: Vec<OfferingId>,
}

/// What offerings hold beside daemons.
#[derive(Debug, Default)]
pub(crate) struct Net {
    /// Allocatable minus the daemons that would run there.
    pub(crate) net: IdVec<OfferingId, ResourceVec>,
    /// Requests of the daemons that would run there.
    pub(crate) daemons: IdVec<OfferingId, ResourceVec>,
    pub(crate) fit: FitIndex,
    /// Which offerings hold the same, by a number from 0: mostly those of a type.
    kinds: IdVec<OfferingId, usize>,
    kind_count: usize,
}

impl Net {
    pub(crate) fn new(
        net: IdVec<OfferingId, ResourceVec>,
        daemons: IdVec<OfferingId, ResourceVec>,
        names: &Interner,
    ) -> Self {
        let fit = FitIndex::new(&net, names.resource_count());
        let mut numbers: FastMap<&ResourceVec, usize> = FastMap::default();
        let mut last: Option<(&ResourceVec, usize)> = None;
        let kind_of = |net| {
            let number = match last {
                Some((before, number)) if before == net => number,
                _ => {
                    let next = numbers.len();
                    *numbers.entry(net).or_insert(next)
                }
            };
            last = Some((net, number));
            number
        };
        let kinds = net.iter().map(kind_of).collect();
        let kind_count = numbers.len();
        Self { net, daemons, fit, kinds, kind_count }
    }

    /// How often requests fit into a machine of each of the offerings.
    pub(crate) fn times<'a>(
        &'a self,
        requests: &'a ResourceVec,
        offerings: impl Iterator<Item = OfferingId> + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut known: Vec<Option<u32>> = vec![None; self.kind_count];
        offerings.map(move |offering| {
            let times = || requests.times_in(&self.net[offering], u32::MAX);
            known.get_mut(self.kinds[offering]).map_or_else(times, |known| *known.get_or_insert_with(times))
        })
    }
}

impl<'s> CatalogueIndex<'s> {
    fn new(catalogue: &'s Catalogue, names: &Interner) -> Self {
        let mut by_price: Vec<OfferingId> = catalogue.offerings.ids().collect();
        by_price.sort_by_key(|&offering| (catalogue.offerings[offering].price, offering));
        let by_key = (0..names.key_count()).map(|_| OnceLock::new()).collect();
        Self { catalogue, by_price, by_key }
    }

    /// Which offerings define the key.
    pub(crate) fn of_key(&self, key: KeyId) -> &OfKey {
        self.by_key[key].get_or_init(|| Box::new(self.look_for(key)))
    }

    fn look_for(&self, key: KeyId) -> OfKey {
        let catalogue = self.catalogue;
        let len = catalogue.offerings.len();
        let (mut mentioned, mut open) = (IdSet::with_len(len), IdSet::with_len(len));
        let mut by_values: Vec<OfValues> = Vec::new();
        let mut indices: FastMap<&ValueSet, usize> = FastMap::default();
        let mut position = 0;
        let mut last: Option<(&Requirement, usize)> = None;
        for (id, offering) in catalogue.offerings.iter_enumerated() {
            let Some(requirement) = offering.requirements.get_near(key, &mut position) else { continue };
            let values = &requirement.values;
            // What offerings of a type have in common is one object.
            let index = match last {
                Some((before, index)) if std::ptr::eq(before, requirement) => index,
                _ => *indices.entry(values).or_insert_with(|| {
                    by_values.push(OfValues { values: values.clone(), offerings: Vec::new() });
                    by_values.len() - 1
                }),
            };
            last = Some((requirement, index));
            if let Some(of_values) = by_values.get_mut(index) {
                of_values.offerings.push(id);
            }
        }
        for OfValues { values, offerings } in &by_values {
            mentioned.extend(offerings.iter().copied());
            if values.single_value().is_none() && *values != ValueSet::only_absent() {
                open.extend(offerings.iter().copied());
            }
        }
        OfKey { mentioned, open, by_values }
    }

    /// The offerings that define the key with one of the wanted values possible.
    pub(crate) fn agreeing<'l>(
        &self,
        lookups: &'l mut Lookups,
        key: KeyId,
        wanted: &ValueSet,
        names: &Interner,
    ) -> &'l IdSet<OfferingId> {
        lookups.agreeing.entry((key, wanted.clone())).or_insert_with(|| {
            let mut agreeing = IdSet::with_len(self.catalogue.offerings.len());
            let offered = self.of_key(key).by_values.iter().filter(|offered| offered.values.intersects(wanted, names));
            agreeing.extend(offered.flat_map(|offered| &offered.offerings).copied());
            agreeing
        })
    }

    /// What offerings hold where these daemons run: requests, and the offerings on whose machines they would.
    pub(crate) fn net(
        &self,
        lookups: &mut Lookups,
        running: Vec<(Cow<'_, ResourceVec>, IdSet<OfferingId>)>,
        names: &Interner,
    ) -> Arc<Net> {
        let running: Vec<(ResourceVec, IdSet<OfferingId>)> =
            running.into_iter().map(|(requests, offerings)| (requests.into_owned(), offerings)).collect();
        if let Some(known) = lookups.nets.get(&running) {
            return Arc::clone(known);
        }
        let mut daemons = IdVec::filled(ResourceVec::default(), self.catalogue.offerings.len());
        for (requests, offerings) in &running {
            for offering in offerings.iter() {
                daemons[offering].saturating_add_assign(requests);
            }
        }
        let net_of = |(offering, daemons): (OfferingId, &ResourceVec)| {
            let mut net = self.catalogue.offerings[offering].allocatable.clone();
            net.saturating_sub_assign(daemons);
            net
        };
        let net: IdVec<OfferingId, ResourceVec> = daemons.iter_enumerated().map(net_of).collect();
        let net = Arc::new(Net::new(net, daemons, names));
        lookups.nets.insert(running, Arc::clone(&net));
        net
    }
}
