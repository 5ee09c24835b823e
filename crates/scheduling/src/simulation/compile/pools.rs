//! One table per NodePool that may launch: which offerings its own requirements leave, what they hold net of daemons,
//! and, per class of pods, which of them the class accepts. All of it is computed once per plan; packing then only ANDs
//! bitsets.
//!
//! A label key is *determined* in a pool when every offering gives it exactly one value (or leaves it absent). Nearly
//! all keys are. The others (a custom label that the pool leaves open, an instance type that allows several values) are
//! *open*: their values are tracked per machine as a requirement.

mod labels;
mod min_values;
mod shapes;

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use model::{
    IdSet, IdVec, Interner, KeyId, PriceNanoUsdPerHour, Requirements, ResourceId, ResourceVec, Toleration, ValueSet,
    collections::FastMap, define_id, pod::HostPort,
};
use smallvec::SmallVec;

pub(crate) use self::labels::WithValues;
pub(crate) use self::min_values::MinValues;
use self::shapes::ShapesOfPool;
use super::catalogue_index::{CatalogueIndex, Catalogues, Lookups, Net};
use super::classes::{ClassId, PodClass};
use super::daemons;
use super::fit_index::LeastPrices;
use super::limits::Limits;
use crate::simulation::compile::pareto_front::Staircase;
use crate::simulation::topology::{Cell, CellKey, GroupId, Place, Topology, cells};
use crate::snapshot::affinity::{Term, accepts_unknown, keeps_out};
use crate::tuning::MAX_ALTERNATIVES;
use crate::{
    catalogue::{Catalogue, OfferingId},
    devices::Demand,
    snapshot::{MinValuesPolicy, NodePool, PoolId, Snapshot},
};

define_id! {
    /// A usable NodePool; ids follow the order of preference.
    pub(crate) struct PoolRank;
}

define_id! {
    /// Index of a [`Fit`] in one pool.
    pub(crate) struct FitId;
}

/// What a plan needs of one NodePool.
#[derive(Debug)]
pub(crate) struct PoolTable<'s> {
    pub(crate) id: PoolId,
    pub(crate) pool: &'s NodePool,
    pub(crate) catalogue: &'s Catalogue,
    /// Launchable offerings that the pool's requirements allow.
    pub(crate) members: IdSet<OfferingId>,
    /// What offerings hold beside daemons; for those that the pool allows.
    pub(crate) holds: Arc<Net>,
    /// Host ports of the daemons that would run there; empty while no class takes a port.
    pub(crate) daemon_ports: IdVec<OfferingId, Vec<HostPort>>,
    index: Arc<CatalogueIndex<'s>>,
    least_prices: LeastPrices,
    /// What the members are to claims.
    pub(crate) shapes: ShapesOfPool,
    /// The members, cheapest first; equal prices by type, zone and capacity type.
    pub(crate) by_price: Vec<OfferingId>,
    /// What these cost, in the same order.
    prices: Vec<PriceNanoUsdPerHour>,
    pub(crate) limits: Limits,
    /// The minValues that have to hold: none under the policy BestEffort.
    pub(crate) min_values: Vec<MinValues>,
    /// All minValues of the pool.
    pub(crate) all_min_values: Vec<MinValues>,
    /// By class: the terms that the pool can satisfy. Empty where taints or labels exclude the class.
    pub(crate) by_class: IdVec<ClassId, Vec<Alternative>>,
    /// Classes that would have more alternatives than are kept.
    pub(crate) cut_off: IdSet<ClassId>,
    /// What alternatives ask, those of many classes alike.
    pub(crate) fits: IdVec<FitId, Fit>,
    hostname: Option<KeyId>,
    node_price: PriceNanoUsdPerHour,
    open_keys: IdVec<KeyId, OnceLock<bool>>,
}

/// One way for a class to be in one pool: by one of its terms and, if rules couple it with other pods, in one domain of
/// each of them.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    /// Its position among the class's alternatives in the pool.
    pub(crate) index: usize,
    /// Index into the class's terms.
    pub(crate) term: usize,
    /// Members that satisfy it. Of thousands of classes most share one of a few sets.
    pub(crate) offerings: Arc<IdSet<OfferingId>>,
    /// What it says of open keys.
    pub(crate) open: Requirements,
    /// Where a machine is for each of the class's involvements.
    pub(crate) places: Vec<Place>,
    /// Which of the class's variants it is: by who serves its extended resources.
    pub(crate) variant: usize,
    /// What its copies ask of a machine beside rules and devices.
    pub(crate) fit: FitId,
}

/// What alternatives with equal requests and equal offerings have in common. Many classes differ only in rules between
/// pods.
#[derive(Debug)]
pub(crate) struct Fit {
    /// Of a copy.
    pub(crate) requests: ResourceVec,
    /// The offerings with their prices, in the order of the pool's.
    pub(crate) by_price: Arc<[(PriceNanoUsdPerHour, OfferingId)]>,
    /// The number of this set of offerings, from 0 in each pool.
    pub(crate) set: usize,
    staircase: OnceLock<Staircase>,
}

/// Numbers what alternatives of one pool ask.
#[derive(Default)]
struct Fits {
    fits: IdVec<FitId, Fit>,
    /// By offerings: these by price, and the fits with them.
    by_offerings: FastMap<Arc<IdSet<OfferingId>>, OfOfferings>,
}

struct OfOfferings {
    by_price: Arc<[(PriceNanoUsdPerHour, OfferingId)]>,
    set: usize,
    fits: FastMap<ResourceVec, FitId>,
}

impl Fits {
    /// Gives the alternative the number of what its copies ask, and the set of offerings that others with as many have.
    fn number(&mut self, table: &PoolTable<'_>, requests: &ResourceVec, alternative: &mut Alternative) {
        let offerings = &alternative.offerings;
        if let Some((known, _)) = self.by_offerings.get_key_value(offerings) {
            alternative.offerings = Arc::clone(known);
        } else {
            let all = table.prices.iter().copied().zip(table.by_price.iter().copied());
            let by_price = all.filter(|(_, offering)| offerings.contains(*offering)).collect();
            let set = self.by_offerings.len();
            self.by_offerings.insert(Arc::clone(offerings), OfOfferings { by_price, set, fits: FastMap::default() });
        }
        let of_offerings = self.by_offerings.get_mut(&alternative.offerings);
        let of_offerings = of_offerings.expect("it was put there where it was missing");
        if let Some(&known) = of_offerings.fits.get(requests) {
            alternative.fit = known;
            return;
        }
        let fit = Fit {
            requests: requests.clone(),
            by_price: Arc::clone(&of_offerings.by_price),
            set: of_offerings.set,
            staircase: OnceLock::new(),
        };
        let fit = self.fits.push(fit);
        of_offerings.fits.insert(requests.clone(), fit);
        alternative.fit = fit;
    }
}

impl Alternative {
    /// The part of it that is in a cell.
    fn within(&self, cell: &Cell, names: &Interner) -> Option<Self> {
        if !self.offerings.intersects(&cell.offerings) {
            return None;
        }
        let mut within = self.clone();
        if !within.offerings.is_subset(&cell.offerings) {
            Arc::make_mut(&mut within.offerings).intersect_with(&cell.offerings);
        }
        within.places.push(cell.place);
        if let Some(pin) = &cell.pin {
            within.open.insert_intersect(pin.clone(), names);
        }
        within.open.first_empty(names).is_none().then_some(within)
    }
}

/// How one pool's members fall into places, by group, each worked out once.
struct Cells<'t> {
    topology: &'t Topology,
    lookups: &'t mut Lookups,
    by_group: FastMap<(GroupId, bool), Arc<Vec<Cell>>>,
    by_key: FastMap<CellKey<'t>, Arc<Vec<Cell>>>,
    /// Set when a class gets fewer alternatives than it has.
    cut_off: bool,
}

impl Cells<'_> {
    fn of(&mut self, table: &PoolTable<'_>, group: GroupId, owner: bool, names: &Interner) -> Arc<Vec<Cell>> {
        let of_group = &self.topology.groups[group];
        let by_key = &mut self.by_key;
        let split = || {
            let cells = || Arc::new(cells(table, of_group, owner, names));
            Arc::clone(by_key.entry(CellKey::new(of_group, owner)).or_insert_with(cells))
        };
        Arc::clone(self.by_group.entry((group, owner)).or_insert_with(split))
    }
}

/// The ways of classes in one pool. Many classes differ in what they request only.
struct KnownWays<'c> {
    cells: Cells<'c>,
    by_key: FastMap<WaysKey<'c>, (Vec<Alternative>, bool)>,
}

/// All that tells the ways of one class that wants no devices from those of another.
#[derive(PartialEq, Eq, Hash)]
struct WaysKey<'c> {
    terms: &'c [Term],
    tolerations: &'c [Toleration],
    avoids_soft_taints: bool,
    host_ports: &'c [HostPort],
    /// Which groups concern it, and whether as their owner.
    involved: SmallVec<[(GroupId, bool); 4]>,
}

impl<'c> KnownWays<'c> {
    fn alternatives(
        &mut self,
        table: &PoolTable<'_>,
        class: &'c PodClass,
        demand: Option<&Demand>,
        names: &Interner,
    ) -> Vec<Alternative> {
        if class.is_refused() || class.devices.is_some() {
            return table.alternatives(class, demand, &mut self.cells, names);
        }
        let key = WaysKey {
            terms: &class.terms,
            tolerations: &class.shape.tolerations,
            avoids_soft_taints: class.shape.avoids_soft_taints,
            host_ports: &class.shape.host_ports,
            involved: class.involved.iter().map(|mine| (mine.group, mine.owner)).collect(),
        };
        let cells = &mut self.cells;
        let (alternatives, cut_off) = self.by_key.entry(key).or_insert_with(|| {
            let alternatives = table.alternatives(class, demand, cells, names);
            (alternatives, std::mem::take(&mut cells.cut_off))
        });
        cells.cut_off = *cut_off;
        alternatives.clone()
    }
}

/// The pools that may launch, preferred first: higher weight, then the name that sorts later (as Karpenter does).
pub(crate) fn tables<'s>(
    snapshot: &'s Snapshot,
    classes: &IdVec<ClassId, PodClass>,
    topology: &Topology,
) -> IdVec<PoolRank, PoolTable<'s>> {
    let mut order: Vec<PoolId> =
        snapshot.node_pools.ids().filter(|&id| snapshot.node_pools[id].usable.is_ok()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&snapshot.node_pools[a], &snapshot.node_pools[b]);
        b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name))
    });
    let mut catalogues = Catalogues::new(snapshot);
    let table = |id: PoolId| Some(PoolTable::new(id, snapshot, catalogues.of(id)?, classes, topology));
    order.into_iter().filter_map(table).collect()
}

impl<'s> PoolTable<'s> {
    fn new(
        id: PoolId,
        snapshot: &'s Snapshot,
        (index, lookups): (Arc<CatalogueIndex<'s>>, &mut Lookups),
        classes: &IdVec<ClassId, PodClass>,
        topology: &Topology,
    ) -> Self {
        let names = &*snapshot.interner;
        let pool = &snapshot.node_pools[id];
        let catalogue = &*pool.catalogue;
        let mut table = Self {
            id,
            pool,
            catalogue,
            members: IdSet::with_len(catalogue.offerings.len()),
            holds: Arc::default(),
            daemon_ports: IdVec::default(),
            index,
            least_prices: LeastPrices::default(),
            shapes: ShapesOfPool::default(),
            by_price: Vec::new(),
            prices: Vec::new(),
            limits: Limits::default(),
            min_values: Vec::new(),
            all_min_values: Vec::new(),
            by_class: IdVec::default(),
            cut_off: IdSet::default(),
            fits: IdVec::default(),
            hostname: names.find_key(api::labels::HOSTNAME),
            node_price: snapshot.options.node_price,
            open_keys: (0..names.key_count()).map(|_| OnceLock::new()).collect(),
        };
        // Members are the launchable offerings that agree with each of the pool's requirements. An offering that does
        // not define a label agrees: the machine gets it from the pool.
        let launchable = catalogue.offerings.iter_enumerated().filter(|(_, offering)| offering.launchable());
        table.members.extend(launchable.map(|(id, _)| id));
        let agreeing = table.agreeing_with(lookups, &pool.requirements, names);
        table.members.intersect_with(&agreeing);
        table.holds = daemons::net(&table, &table.index, lookups, snapshot);
        // A machine that is overcommitted by its own daemons takes nothing, as in Karpenter.
        let overcommitted: Vec<OfferingId> =
            table.members.iter().filter(|&offering| table.net(offering).has_negative()).collect();
        for offering in overcommitted {
            table.members.remove(offering);
        }
        // From here on everything is about members, so it comes after the last of them is removed.
        table.shapes = ShapesOfPool::new(&table, snapshot.devices.as_deref());
        table.by_price = table.index.by_price.iter().copied().filter(|&id| table.members.contains(id)).collect();
        table.prices = table.by_price.iter().map(|&id| table.price(id)).collect();
        let prices = table.by_price.iter().zip(&table.prices).map(|(&id, &price)| (table.net(id), price));
        table.least_prices = LeastPrices::new(&table.holds.fit, prices);
        table.limits = Limits::new(pool.remaining.clone(), catalogue, &table.members);
        table.all_min_values = table.all_min_values(names);
        if snapshot.options.min_values == MinValuesPolicy::Strict {
            table.min_values.clone_from(&table.all_min_values);
        }
        if classes.iter().any(|class| !class.shape.host_ports.is_empty()) {
            table.daemon_ports = daemons::ports(&table, lookups, snapshot);
        }
        // Classes with equal requirements and rules share their alternatives and cells, so that each is split once per
        // pool.
        let cells =
            Cells { topology, lookups, by_group: FastMap::default(), by_key: FastMap::default(), cut_off: false };
        let mut known = KnownWays { cells, by_key: FastMap::default() };
        let mut cut_off = IdSet::default();
        let mut fits = Fits::default();
        table.by_class = classes
            .iter_enumerated()
            .map(|(id, class)| {
                let demand = class
                    .devices
                    .as_ref()
                    .and_then(|devices| snapshot.devices.as_ref()?.demands.try_get(devices.demand));
                let mut alternatives = known.alternatives(&table, class, demand, names);
                for alternative in &mut alternatives {
                    let requests = class.requests(alternative.variant);
                    fits.number(&table, requests, alternative);
                }
                // A class with more alternatives than are kept may have a place that is not looked at; its refusal is
                // then no proof.
                if std::mem::take(&mut known.cells.cut_off) {
                    cut_off.insert(id);
                }
                alternatives
            })
            .collect();
        table.cut_off = cut_off;
        table.fits = fits.fits;
        table
    }

    /// Whether a machine with these offerings open keeps every minValues.
    pub(crate) fn has_min_values(&self, open: &IdSet<OfferingId>) -> bool {
        self.min_values.iter().all(|min| min.is_kept(open))
    }

    /// Allocatable minus the daemons that would run there.
    pub(crate) fn net(&self, offering: OfferingId) -> &ResourceVec {
        &self.holds.net[offering]
    }

    /// How often requests fit into a machine of each of the offerings that holds nothing.
    pub(crate) fn times<'a>(
        &'a self,
        requests: &'a ResourceVec,
        offerings: impl Iterator<Item = OfferingId> + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        self.holds.times(requests, offerings)
    }

    /// The offerings with at least `amount`, which is above zero; `None` when there are none.
    pub(crate) fn at_least(&self, resource: ResourceId, amount: i64) -> Option<&IdSet<OfferingId>> {
        self.holds.fit.at_least(resource, amount)
    }

    /// The most that one of these offerings has of each resource, net of daemons.
    pub(crate) fn most(&self, offerings: &IdSet<OfferingId>) -> ResourceVec {
        self.holds.fit.most(offerings)
    }

    /// The least that a machine costs which holds `requests` beside what it holds now, by each resource for itself;
    /// `None` if there is none.
    pub(crate) fn least_price_with(&self, requests: &ResourceVec, held: &ResourceVec) -> Option<PriceNanoUsdPerHour> {
        requests.iter().filter(|(_, amount)| *amount > 0).try_fold(
            PriceNanoUsdPerHour(i64::MIN),
            |least, (resource, amount)| {
                let total = held.get(resource).checked_add(amount)?;
                Some(least.max(self.least_prices.of(&self.holds.fit, resource, total)?))
            },
        )
    }

    /// What a machine from the offering costs, as a node too.
    pub(crate) fn price(&self, offering: OfferingId) -> PriceNanoUsdPerHour {
        self.catalogue.offerings[offering].price.saturating_add(self.node_price)
    }

    /// The members with at least this price, cheapest first.
    pub(crate) fn at_least_at_price(&self, price: PriceNanoUsdPerHour) -> &[OfferingId] {
        let first = self.prices.partition_point(|&known| known < price);
        self.by_price.get(first..).unwrap_or_default()
    }

    /// The Pareto front of a new machine for a class that wants no devices.
    pub(crate) fn staircase(&self, fit: FitId) -> &Staircase {
        let fit = &self.fits[fit];
        fit.staircase.get_or_init(|| Staircase::new(self, fit))
    }

    /// Whether the offering agrees with the pool's own requirements.
    pub(crate) fn allows(&self, offering: OfferingId, names: &Interner) -> bool {
        let offered = &self.catalogue.offerings[offering].requirements;
        self.pool.requirements.iter().all(|wanted| {
            offered.get(wanted.key).is_none_or(|offered| offered.values.intersects(&wanted.values, names))
        })
    }

    /// Whether the label of a machine of the pool can have one of the wanted values ([`NodePool::can_have`]).
    pub(crate) fn can_have(
        &self,
        offering: Option<OfferingId>,
        key: KeyId,
        wanted: &ValueSet,
        names: &Interner,
    ) -> bool {
        self.pool.can_have(offering, (key, self.is_hostname(key)), wanted, names)
    }

    /// What pool and offering say of the key; `None` if neither says anything.
    pub(crate) fn known(
        &self,
        offering: Option<OfferingId>,
        key: KeyId,
        names: &Interner,
    ) -> Option<Cow<'_, ValueSet>> {
        self.pool.known(offering, key, names)
    }

    /// Whether some member leaves more than one value of the key possible.
    pub(crate) fn is_open(&self, key: KeyId, names: &Interner) -> bool {
        *self.open_keys[key].get_or_init(|| self.leaves_open(key, names))
    }

    fn leaves_open(&self, key: KeyId, names: &Interner) -> bool {
        let is_single = |values: &ValueSet| values.single_value().is_some() || *values == ValueSet::only_absent();
        let of_key = self.index.of_key(key);
        let pool_is_open = self.pool.requirements.get(key).is_some_and(|asked| !is_single(&asked.values));
        (pool_is_open && !self.members.is_subset(&of_key.mentioned))
            || self
                .members
                .iter()
                .filter(|&offering| of_key.open.contains(offering))
                .any(|offering| !self.known(Some(offering), key, names).is_none_or(|values| is_single(&values)))
    }

    /// Whether the pool or an offering defines the key.
    pub(crate) fn mentions(&self, key: KeyId) -> bool {
        self.pool.requirements.contains_key(key) || !self.index.of_key(key).mentioned.is_empty()
    }

    /// The offerings by what they say of these keys: the number of each, and one offering for each number.
    pub(crate) fn alike_in(
        &self,
        keys: impl IntoIterator<Item = KeyId>,
    ) -> (IdVec<OfferingId, usize>, Vec<OfferingId>) {
        let offerings = &self.catalogue.offerings;
        let mut numbers: IdVec<OfferingId, usize> = IdVec::filled(0, offerings.len());
        let mut examples: Vec<OfferingId> = offerings.ids().take(1).collect();
        for key in keys {
            // 0 for those that do not define it.
            let mut says: IdVec<OfferingId, usize> = IdVec::filled(0, offerings.len());
            for (values, said) in self.index.of_key(key).by_values.iter().zip(1..) {
                values.offerings.iter().for_each(|&offering| says[offering] = said);
            }
            let mut known: FastMap<(usize, usize), usize> = FastMap::default();
            examples.clear();
            for offering in offerings.ids() {
                numbers[offering] = *known.entry((numbers[offering], says[offering])).or_insert_with(|| {
                    examples.push(offering);
                    examples.len() - 1
                });
            }
        }
        (numbers, examples)
    }

    /// Whether one of the offerings defines the key.
    pub(crate) fn is_mentioned_by(&self, offerings: &IdSet<OfferingId>, key: KeyId) -> bool {
        self.index.of_key(key).mentioned.intersects(offerings)
    }

    /// The offerings whose label can have one of the wanted values, as [`Self::can_have`] says of each.
    pub(crate) fn having(
        &self,
        lookups: &mut Lookups,
        (key, wanted): (KeyId, &ValueSet),
        names: &Interner,
    ) -> IdSet<OfferingId> {
        let pool = self.pool.requirements.get(key).map(|asked| &asked.values);
        let both = pool.map_or(Cow::Borrowed(wanted), |pool| Cow::Owned(pool.intersect(wanted, names)));
        let mut having = self.index.agreeing(lookups, key, &both, names).clone();
        if self.can_have(None, key, wanted, names) {
            let mut without = IdSet::full(self.catalogue.offerings.len());
            without.difference_with(&self.index.of_key(key).mentioned);
            having.union_with(&without);
        }
        having
    }

    fn alternatives(
        &self,
        class: &PodClass,
        demand: Option<&Demand>,
        cells: &mut Cells<'_>,
        names: &Interner,
    ) -> Vec<Alternative> {
        if class.is_refused() || keeps_out(&self.pool.taints, &class.shape, names).is_some() {
            return Vec::new();
        }
        let terms = class.terms.iter().enumerate();
        let mut alternatives: Vec<Alternative> =
            terms.filter_map(|(index, term)| self.alternative(index, term, cells.lookups, names)).collect();
        if !class.shape.host_ports.is_empty() {
            for alternative in &mut alternatives {
                let taken = alternative.offerings.iter().filter(|&offering| self.daemon_takes_port(offering, class));
                let taken: IdSet<OfferingId> = taken.collect();
                Arc::make_mut(&mut alternative.offerings).difference_with(&taken);
            }
        }
        for involvement in &class.involved {
            let split = cells.of(self, involvement.group, involvement.owner, names);
            alternatives = alternatives
                .iter()
                .flat_map(|alternative| split.iter().filter_map(|cell| alternative.within(cell, names)))
                .take(MAX_ALTERNATIVES + 1)
                .collect();
            cells.cut_off |= alternatives.len() > MAX_ALTERNATIVES;
            alternatives.truncate(MAX_ALTERNATIVES);
        }
        alternatives = self.by_variant(alternatives, class, demand);
        alternatives.retain(|alternative| !alternative.offerings.is_empty());
        for (index, alternative) in alternatives.iter_mut().enumerate() {
            alternative.index = index;
        }
        alternatives
    }

    /// Splits alternatives by who serves the class's extended resources: device plugins, or DRA.
    fn by_variant(
        &self,
        alternatives: Vec<Alternative>,
        class: &PodClass,
        demand: Option<&Demand>,
    ) -> Vec<Alternative> {
        let Some(demand) = demand.filter(|demand| class.devices.is_some() && demand.variants.len() > 1) else {
            return alternatives;
        };
        let mut split = Vec::new();
        for alternative in alternatives {
            for variant in (0..demand.variants.len()).filter(|&variant| demand.can_be_bound(variant)) {
                let is_served_so = |offering: &OfferingId| {
                    demand.variant_for(&self.catalogue.offerings[*offering].allocatable) == variant
                };
                let offerings = Arc::new(alternative.offerings.iter().filter(is_served_so).collect());
                split.push(Alternative { offerings, variant, ..alternative.clone() });
            }
        }
        split
    }

    /// Whether a daemon on such a machine has a port that the class needs.
    pub(crate) fn daemon_takes_port(&self, offering: OfferingId, class: &PodClass) -> bool {
        self.port_of_daemon(offering, class).is_some()
    }

    /// The first port that the class needs and a daemon on such a machine has.
    pub(crate) fn port_of_daemon(&self, offering: OfferingId, class: &PodClass) -> Option<HostPort> {
        let ports = self.daemon_ports.try_get(offering)?;
        let is_taken = |wanted: &&HostPort| ports.iter().any(|port| wanted.conflicts_with(port));
        class.shape.host_ports.iter().find(is_taken).copied()
    }

    /// Whether the key is the hostname, which every machine has and nobody can name beforehand.
    pub(crate) fn is_hostname(&self, key: KeyId) -> bool {
        Some(key) == self.hostname
    }

    fn alternative(&self, index: usize, term: &Term, lookups: &mut Lookups, names: &Interner) -> Option<Alternative> {
        if !term.node_name.as_ref().is_none_or(accepts_unknown) {
            return None;
        }
        let mut offerings = self.members.clone();
        let mut open = Requirements::default();
        for wanted in term.requirements.iter() {
            offerings.intersect_with(&self.having(lookups, (wanted.key, &wanted.values), names));
            if offerings.is_empty() {
                return None;
            }
            if self.is_open(wanted.key, names) {
                open.insert_intersect(wanted.clone(), names);
            }
        }
        // The sets get their numbers once all splits are made.
        let fit = model::Id::from_index(0);
        let places = Vec::new();
        (!offerings.is_empty()).then_some(Alternative {
            index: 0,
            term: index,
            offerings: Arc::new(offerings),
            open,
            places,
            variant: 0,
            fit,
        })
    }

    /// Drops the offerings whose labels can't meet what a machine's pods ask together of open labels.
    pub(crate) fn retain_open(&self, offerings: &mut IdSet<OfferingId>, open: &Requirements, names: &Interner) {
        let excluded: Vec<OfferingId> = offerings
            .iter()
            .filter(|&offering| {
                open.iter().any(|wanted| !self.can_have(Some(offering), wanted.key, &wanted.values, names))
            })
            .collect();
        for offering in excluded {
            offerings.remove(offering);
        }
    }

    fn all_min_values(&self, names: &Interner) -> Vec<MinValues> {
        let wanted =
            self.pool.requirements.iter().filter_map(|requirement| Some((requirement.key, requirement.min_values?)));
        let mut all: Vec<MinValues> = wanted
            .map(|(key, wanted)| {
                let members = self.members.iter().map(|offering| (offering, self.known(Some(offering), key, names)));
                MinValues::new(key, wanted as usize, members, names)
            })
            .collect();
        all.sort_by_key(|min| names.key_name(min.key));
        all
    }
}
