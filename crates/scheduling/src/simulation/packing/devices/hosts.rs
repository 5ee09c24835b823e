//! Machines that bring pools for others, whether or not their own pods have claims: which of their labels are still to
//! be decided for that, and what is left of their offerings once these are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::{BinLedger, Domain, ShapeId};
use model::{IdSet, KeyId, Requirement, Requirements, ValueId, ValueSet};

use super::{BinDevices, DeviceState, narrow};
use crate::catalogue::OfferingId;
use crate::simulation::compile::pools::PoolTable;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::{Bin, BinId};

impl Packing<'_> {
    /// How many pools an open machine brings for others as far as its labels are decided.
    pub(crate) fn pools_brought_by(&self, bin: BinId) -> usize {
        let own = self.state.bins.get(bin.0).and_then(|bin| bin.devices.as_ref());
        own.zip(self.state.devices.as_ref()).map_or(0, |(own, devices)| devices.cluster.pools_brought_by(&own.ledger))
    }

    /// The devices once every machine is taken to bring what it surely brings to its domain, whoever asks for it;
    /// `None` where no machine brings anything for others. For reasons: while placing, that is done where it pays.
    pub(crate) fn with_all_that_is_brought(&self) -> Option<DeviceState> {
        let problem = self.problem;
        problem.devices.as_ref().filter(|of| of.devices.brings_pools())?;
        let mut devices = self.state.devices.clone()?;
        for bin in &self.state.bins {
            let mut bin = bin.clone();
            devices.begin_ledger(problem, &mut bin);
            devices.release(problem, &mut bin);
        }
        Some(devices)
    }

    /// The values that open labels of a machine can still take, all labels that matter together.
    pub(crate) fn ways_to_decide(&self, id: BinId) -> Vec<Requirements> {
        let problem = self.problem;
        let (Some(bin), Some(of_problem)) = (self.state.bins.get(id.0), &problem.devices) else { return Vec::new() };
        let inventory = &of_problem.devices.inventory;
        let table = &problem.pools[bin.pool];
        let own = bin.devices.as_ref().map(|own| &own.ledger);
        let shapes: IdSet<ShapeId> = match own {
            Some(ledger) => ledger.shapes().into_iter().flatten().collect(),
            None => table.shapes.shapes(&bin.offerings),
        };
        if shapes.is_empty() || !shapes.iter().all(|shape| inventory.brings_pools(shape)) {
            return Vec::new();
        }
        let names = problem.names();
        let decided = own.and_then(BinLedger::domain);
        let keys: Vec<KeyId> =
            open_keys(decided, inventory.mentioned_keys()).filter_map(|key| names.find_key(key)).collect();
        let mut ways: BTreeMap<Vec<Arc<str>>, Requirements> = BTreeMap::new();
        for offering in bin.offerings.iter() {
            let values = keys.iter().filter_map(|&key| Some((key, value_of(table, Some(bin), offering, key)?)));
            let values: Vec<(KeyId, ValueId)> = values.collect();
            let text = values.iter().map(|(_, value)| names.value_arc(*value)).collect();
            ways.entry(text).or_insert_with(|| {
                let pins = values.iter().map(|(key, value)| Requirement::new(*key, ValueSet::one(*value)));
                Requirements::from_requirements(pins, names)
            });
        }
        ways.into_values().filter(|pins| !pins.is_empty()).collect()
    }
}

fn open_keys<'k>(decided: Option<&'k Domain>, all: &'k BTreeSet<Arc<str>>) -> impl Iterator<Item = &'k Arc<str>> {
    all.iter().filter(move |key| decided.is_none_or(|decided| !decided.0.contains_key(*key)))
}

/// The value of a label of a machine, if it is launched from an offering and that decides it.
pub(super) fn value_of(table: &PoolTable<'_>, bin: Option<&Bin>, offering: OfferingId, key: KeyId) -> Option<ValueId> {
    let of_offering = table.catalogue.offerings[offering].requirements.get(key);
    let of_bin = || bin.and_then(|bin| bin.open.get(key));
    let known = of_offering.or_else(|| table.pool.requirements.get(key)).or_else(of_bin);
    known?.values.single_value()
}

impl DeviceState {
    /// Begins to keep what a machine holds and brings, if that is not kept yet; what daemons take of every machine is
    /// in it from the start.
    pub(crate) fn begin_ledger(&mut self, problem: &Problem<'_>, bin: &mut Bin) {
        let Some(of_problem) = problem.devices.as_ref().filter(|_| bin.devices.is_none()) else { return };
        let shapes = &problem.pools[bin.pool].shapes.all;
        let ledger = BinLedger::machine_with(shapes, of_problem.devices.overhead(), &mut self.cluster);
        bin.devices = Some(Arc::new(BinDevices { ledger, version: 0, extra: Vec::new(), planned: Vec::new() }));
    }

    /// Pins labels that all offerings of a machine agree on.
    pub(super) fn pin_decided(&mut self, problem: &Problem<'_>, bin: &mut Bin) {
        let Some(of_problem) = problem.devices.as_ref().filter(|of| of.devices.brings_pools()) else { return };
        let Some(own) = &bin.devices else { return };
        let table = &problem.pools[bin.pool];
        let names = problem.names();
        let inventory = &of_problem.devices.inventory;
        let mut pins = Domain::default();
        for name in open_keys(own.ledger.domain(), inventory.mentioned_keys()) {
            let Some(key) = names.find_key(name) else { continue };
            let mut values = bin.offerings.iter().map(|offering| value_of(table, Some(bin), offering, key));
            if let Some(Some(first)) = values.next()
                && values.all(|value| value == Some(first))
            {
                pins.0.insert(Arc::clone(name), names.value_arc(first));
            }
        }
        if pins.0.is_empty() {
            return;
        }
        if let Some(own) = bin.devices.as_mut().map(Arc::make_mut) {
            own.ledger.pin(inventory, &mut self.cluster, &pins);
            own.version = self.new_version();
            self.version = self.new_version();
        }
    }
}

/// What is left of a machine's offerings if its labels are pinned so.
pub(crate) fn pinned(problem: &Problem<'_>, bin: &Bin, pins: &Requirements) -> IdSet<OfferingId> {
    let table = &problem.pools[bin.pool];
    let names = problem.names();
    let mut offerings = bin.offerings.clone();
    let excluded: Vec<OfferingId> = offerings
        .iter()
        .filter(|&offering| !pins.iter().all(|pin| table.can_have(Some(offering), pin.key, &pin.values, names)))
        .collect();
    for offering in excluded {
        offerings.remove(offering);
    }
    narrow(&mut offerings, table, &bin.requests, Some(bin), None);
    offerings
}
