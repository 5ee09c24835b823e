//! Machines whose pools others use.
//!
//! What a machine brings for its domain can be used by others as soon as it is certain in which domain it will be. As
//! long as the machine may land anywhere it brings them nothing, and to decide is a choice with a price: some of its
//! offerings go. So before each machine that a class with claims is given, the rest of the class is placed for
//! comparison as things are and with each open machine decided in each of its ways ([`MAX_HOSTS`], [`HOST_TRIALS`]);
//! the cheapest way goes on.
//!
//! Left out: machines that nobody runs on, launched for what they bring alone; deciding two machines at once where one
//! alone is of no use.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::Domain;
use model::{Answer, Budget, IdSet, KeyId, Requirement, Requirements, SearchEnd, ValueId, ValueSet};

use super::{DeviceState, narrow};
use crate::catalogue::OfferingId;
use crate::plan::Verdict;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::PoolTable;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::{Bin, BinId};
use crate::simulation::placing::{backtracking, choose, fill};
use crate::tuning::{HOST_TRIALS, MAX_HOSTS};

/// A machine, with labels that it will have from now on.
#[derive(Debug, Clone)]
struct Host {
    bin: BinId,
    pins: Requirements,
}

/// Places up to `wanted` copies of a class and returns how many are left; where machines bring pools for others, one
/// may be pinned to its domain for it.
pub(crate) fn place_with_hosts(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let problem = packing.problem;
    let brings_pools = problem.devices.as_ref().is_some_and(|of| of.devices.brings_pools());
    if !brings_pools || problem.classes[class].devices.is_none() {
        return place_as_is(packing, class, wanted);
    }
    let mut end = SearchEnd::default();
    let mut left = fill::on_nodes(packing, class, wanted).part_of(&mut end);
    let mut trials = HOST_TRIALS;
    while left > 0 && trials > 0 {
        if let Some(host) = best_host(packing, class, left, &mut trials).part_of(&mut end)
            && packing.pin_bin(host.bin, &host.pins)
        {
            left = fill::on_nodes(packing, class, left).part_of(&mut end);
        }
        left = choose::into_paid_room(packing, class, left).part_of(&mut end);
        let placed = if left > 0 { choose::by_preference(packing, class, left).part_of(&mut end) } else { 0 };
        left -= placed;
        if placed == 0 {
            break;
        }
    }
    left = place_as_is(packing, class, left).part_of(&mut end);
    Answer::new(left, end)
}

/// Tries classes again that found no devices, or for which the search ended early: by now machines may bring them. Room
/// that is contended is searched once more, since the machines of classes that came later are among what is placed. What
/// is still left stays refused for the reason that it was: classes for which machines may bring something were out of
/// budget before, unless they want more than there can be.
pub(crate) fn retry_with_hosts<'p>(
    mut packing: Packing<'p>,
    refused: &mut Vec<(ClassId, u32, Verdict)>,
    budget: &mut Budget,
) -> Packing<'p> {
    let problem = packing.problem;
    let Some(of_problem) = problem.devices.as_ref().filter(|of| of.devices.brings_pools()) else { return packing };
    for (class, left, _) in refused.iter_mut() {
        let pods = &problem.classes[*class];
        if pods.devices.is_none() || pods.is_refused() {
            continue;
        }
        *left = fill::place(&mut packing, *class, *left).so_far();
        if *left > 0 && of_problem.grows(pods) {
            let repaired = backtracking::place_more(packing, *class, *left, budget);
            (packing, *left) = (repaired.packing, repaired.left);
        }
    }
    refused.retain(|(_, left, _)| *left > 0);
    packing
}

fn place_as_is(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let left = fill::on_nodes(packing, class, wanted).part_of(&mut end);
    let left = choose::place(packing, class, left).part_of(&mut end);
    Answer::new(left, end)
}

/// The machine to be decided for the class, if that leaves fewer copies or costs less.
fn best_host(packing: &mut Packing<'_>, class: ClassId, wanted: u32, trials: &mut usize) -> Answer<Option<Host>> {
    let hosts = hosts(packing);
    *trials = trials.saturating_sub(hosts.len() + 1);
    if hosts.is_empty() {
        return Answer::finished(None);
    }
    let mut end = SearchEnd::default();
    let mut outcome = |host: Option<&Host>| {
        let mark = packing.mark();
        let outcome = host.is_none_or(|host| packing.pin_bin(host.bin, &host.pins)).then(|| {
            let left = place_as_is(packing, class, wanted).part_of(&mut end);
            let price: i128 = packing.state.bins.iter().map(|bin| i128::from(bin.price.0)).sum();
            (left, price)
        });
        packing.rollback(mark);
        outcome
    };
    let as_is = outcome(None);
    let tried = hosts.into_iter().filter_map(|host| Some((outcome(Some(&host))?, host)));
    let best = tried.min_by_key(|(outcome, _)| *outcome);
    let better = best.zip(as_is).and_then(|((best, host), as_is)| (best < as_is).then_some(host));
    Answer::new(better, end)
}

/// Machines that would bring more pools if they were decided, in each of their ways.
fn hosts(packing: &mut Packing<'_>) -> Vec<Host> {
    let mut hosts = Vec::new();
    for bin in (0..packing.state.bins.len()).map(BinId) {
        for pins in ways_to_decide(packing, bin) {
            if hosts.len() == MAX_HOSTS {
                return hosts;
            }
            let before = pools_of(packing, bin);
            let mark = packing.mark();
            let brings_more = packing.pin_bin(bin, &pins) && pools_of(packing, bin) > before;
            packing.rollback(mark);
            if brings_more {
                hosts.push(Host { bin, pins });
            }
        }
    }
    hosts
}

fn pools_of(packing: &Packing<'_>, bin: BinId) -> usize {
    let own = packing.state.bins.get(bin.0).and_then(|bin| bin.devices.as_ref());
    own.zip(packing.state.devices.as_ref()).map_or(0, |(own, devices)| devices.cluster.pools_brought_by(&own.ledger))
}

/// The values that open labels of a machine can still take, all labels that matter together.
fn ways_to_decide(packing: &Packing<'_>, id: BinId) -> Vec<Requirements> {
    let problem = packing.problem;
    let Some((bin, own)) = packing.state.bins.get(id.0).and_then(|bin| Some((bin, bin.devices.as_ref()?))) else {
        return Vec::new();
    };
    let Some(of_problem) = &problem.devices else { return Vec::new() };
    let inventory = &of_problem.devices.inventory;
    if !own.ledger.shapes().into_iter().flatten().all(|shape| inventory.brings_pools(shape)) {
        return Vec::new();
    }
    let table = &problem.pools[bin.pool];
    let names = problem.names();
    let keys: Vec<KeyId> =
        open_keys(own.ledger.domain(), inventory.mentioned_keys()).filter_map(|key| names.find_key(key)).collect();
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
