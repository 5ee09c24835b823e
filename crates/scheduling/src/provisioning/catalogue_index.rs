//! What pools of one catalogue have in common, worked out once for all of them: which offerings have which labels, what
//! they hold net of daemons, and their order by price. A cluster of sixty NodePools mostly has one catalogue.

use std::{borrow::Cow, cell::RefCell, rc::Rc};

use model::{IdSet, IdVec, Interner, KeyId, ResourceVec, ValueSet, collections::FastMap};

use super::fit_index::FitIndex;
use crate::{
    catalogue::{Catalogue, OfferingId},
    snapshot::Snapshot,
};

/// What was worked out once.
pub(crate) type Kept<K, V> = RefCell<FastMap<K, Rc<V>>>;

/// Facts about one catalogue; those about labels are found when they are asked for.
#[derive(Debug)]
pub(crate) struct CatalogueIndex<'s> {
    catalogue: &'s Catalogue,
    /// Cheapest first; equal prices by type, zone and capacity type.
    pub(crate) by_price: Vec<OfferingId>,
    by_key: Kept<KeyId, OfKey>,
    agreeing: Kept<(KeyId, ValueSet), IdSet<OfferingId>>,
    nets: Kept<Vec<(ResourceVec, IdSet<OfferingId>)>, Net>,
}

/// What offerings say of one label key.
#[derive(Debug)]
pub(crate) struct OfKey {
    /// Those that say something.
    pub(crate) mentioned: IdSet<OfferingId>,
    /// Those that leave several values possible.
    pub(crate) open: IdSet<OfferingId>,
}

/// What offerings hold beside daemons.
#[derive(Debug, Default)]
pub(crate) struct Net {
    /// Allocatable minus the daemons that would run there.
    pub(crate) net: IdVec<OfferingId, ResourceVec>,
    /// Requests of the daemons that would run there.
    pub(crate) daemons: IdVec<OfferingId, ResourceVec>,
    pub(crate) fit: FitIndex,
}

impl Net {
    pub(crate) fn new(
        net: IdVec<OfferingId, ResourceVec>,
        daemons: IdVec<OfferingId, ResourceVec>,
        names: &Interner,
    ) -> Self {
        let fit = FitIndex::new(&net, names.resource_count());
        Self { net, daemons, fit }
    }
}

impl<'s> CatalogueIndex<'s> {
    /// One for each distinct catalogue, in the order of the pools.
    pub(crate) fn all(snapshot: &'s Snapshot) -> Vec<Rc<Self>> {
        let mut known: Vec<Rc<Self>> = Vec::new();
        let of_pool = |pool: &'s crate::snapshot::NodePool| {
            let catalogue = &*pool.catalogue;
            let found = known.iter().find(|known| std::ptr::eq(known.catalogue, catalogue)).map(Rc::clone);
            found.unwrap_or_else(|| {
                let index = Rc::new(Self::new(catalogue));
                known.push(Rc::clone(&index));
                index
            })
        };
        snapshot.node_pools.iter().map(of_pool).collect()
    }

    fn new(catalogue: &'s Catalogue) -> Self {
        let mut by_price: Vec<OfferingId> = catalogue.offerings.ids().collect();
        by_price.sort_by_key(|&offering| (catalogue.offerings[offering].price, offering));
        Self { catalogue, by_price, by_key: RefCell::default(), agreeing: RefCell::default(), nets: RefCell::default() }
    }

    /// What offerings say of the key.
    pub(crate) fn of_key(&self, key: KeyId) -> Rc<OfKey> {
        if let Some(known) = self.by_key.borrow().get(&key) {
            return Rc::clone(known);
        }
        let len = self.catalogue.offerings.len();
        let mut of_key = OfKey { mentioned: IdSet::with_len(len), open: IdSet::with_len(len) };
        for (id, offering) in self.catalogue.offerings.iter_enumerated() {
            let Some(requirement) = offering.requirements.get(key) else { continue };
            of_key.mentioned.insert(id);
            if requirement.values.single_value().is_none() && requirement.values != ValueSet::only_absent() {
                of_key.open.insert(id);
            }
        }
        let of_key = Rc::new(of_key);
        self.by_key.borrow_mut().insert(key, Rc::clone(&of_key));
        of_key
    }

    /// The offerings that say something of the key which agrees with the wanted values.
    pub(crate) fn agreeing(&self, key: KeyId, wanted: &ValueSet, names: &Interner) -> Rc<IdSet<OfferingId>> {
        let asked = (key, wanted.clone());
        if let Some(known) = self.agreeing.borrow().get(&asked) {
            return Rc::clone(known);
        }
        let mut agreeing = IdSet::with_len(self.catalogue.offerings.len());
        agreeing.extend(self.of_key(key).mentioned.iter().filter(|&id| {
            let offered = self.catalogue.offerings[id].requirements.get(key);
            offered.is_some_and(|offered| offered.values.intersects(wanted, names))
        }));
        let agreeing = Rc::new(agreeing);
        self.agreeing.borrow_mut().insert(asked, Rc::clone(&agreeing));
        agreeing
    }

    /// What offerings hold where these daemons run: requests, and the offerings on whose machines they would.
    pub(crate) fn net(&self, running: Vec<(Cow<'_, ResourceVec>, IdSet<OfferingId>)>, names: &Interner) -> Rc<Net> {
        let running: Vec<(ResourceVec, IdSet<OfferingId>)> =
            running.into_iter().map(|(requests, offerings)| (requests.into_owned(), offerings)).collect();
        if let Some(known) = self.nets.borrow().get(&running) {
            return Rc::clone(known);
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
        let net = Rc::new(Net::new(net, daemons, names));
        self.nets.borrow_mut().insert(running, Rc::clone(&net));
        net
    }
}
