//! Machines for other pods that stay out of domains over which somebody is spread.
//!
//! A machine whose zone or type is not decided could come up where it counts as a domain that pods with a spread cannot use:
//! their volume is elsewhere, say. The least is 0 there, and pods are refused that would have a place if the machine were
//! launched otherwise. Where that happens, its launch is decided so that it does not count.

use std::{cmp::Reverse, collections::BTreeSet};

use model::{IdSet, Requirement, Requirements, ValueSet};

use super::{Checking, Group, Scope};
use crate::{
    catalogue::{OfferingId, TypeId},
    provisioning::{
        classes::ClassId,
        devices::pinned,
        pools::PoolTable,
        problem::Problem,
        state::{Bin, BinId, Charging, State},
    },
    snapshot::PoolId,
};

/// Narrows what machines may be launched as, where they would otherwise add a domain; those that cannot are left as they
/// are.
pub(crate) fn keep_outside(problem: &Problem<'_>, state: &mut State) {
    let names = problem.names();
    for group in problem.topology.groups.iter().filter(|group| !group.is_open(&problem.pools, names)) {
        for id in (0..state.bins.len()).map(BinId) {
            let Some(bin) = state.bins.get(id.0) else { continue };
            for (offerings, pins) in ways(problem, group, bin) {
                if state.restrict_bin(problem, id, offerings, &pins) {
                    break;
                }
            }
        }
    }
}

/// Ways of a class to be on a machine that add a domain wherever that lands, of classes that have others: rules of their
/// own pin these pods before anything is counted, so that their machines could not be kept outside afterwards.
pub(crate) fn adding_ways(problem: &Problem<'_>) -> BTreeSet<(PoolId, ClassId, usize)> {
    let names = problem.names();
    let groups = problem.topology.groups.iter().filter(|group| !group.is_open(&problem.pools, names));
    let groups: Vec<&Group> = groups.collect();
    let mut untouched = State::new(problem, Charging::Least);
    untouched.checking = Checking::AtTheEnd;
    let mut adding = BTreeSet::new();
    for class in problem.classes.ids() {
        let (mut of_class, mut has_others) = (Vec::new(), false);
        for (pool, table) in problem.pools.iter_enumerated() {
            for way in &table.by_class[class] {
                let adds = |group: &&Group| {
                    let opens = |offering: OfferingId| {
                        let (domains, elsewhere) = group.landing(table, &way.open, offering, names);
                        group.is_opened_by(&domains, elsewhere)
                    };
                    way.offerings.iter().all(opens)
                };
                if groups.iter().any(adds) {
                    of_class.push((table.id, class, way.index));
                } else {
                    has_others |= untouched.copies_in_new_bin(problem, pool, class, way, 1) == 1;
                }
            }
        }
        if has_others {
            adding.extend(of_class);
        }
    }
    adding
}

/// Ways to keep a machine outside, the cheapest first: by the values of the label, or by instance types. A NodeClaim can say
/// no more.
fn ways(problem: &Problem<'_>, group: &Group, bin: &Bin) -> Vec<(IdSet<OfferingId>, Requirements)> {
    let (table, names) = (&problem.pools[bin.pool], problem.names());
    let opens = |offering: OfferingId| {
        let (domains, elsewhere) = group.landing(table, &bin.open, offering, names);
        group.is_opened_by(&domains, elsewhere)
    };
    let opening: Vec<OfferingId> = bin.offerings.iter().filter(|&offering| opens(offering)).collect();
    if opening.is_empty() {
        return Vec::new();
    }
    let mut ways = Vec::new();
    if let Scope::Label(key) = group.scope {
        let present = group.present.iter().map(|domain| group.values()[domain]);
        let mut pins = Requirements::new();
        pins.insert_intersect(Requirement::new(key, ValueSet::among(present)), names);
        ways.push((pinned(problem, bin, &pins), pins));
    }
    let types: IdSet<TypeId> =
        opening.iter().map(|&offering| table.catalogue.offerings[offering].instance_type).collect();
    let is_kept = |offering: &OfferingId| !types.contains(table.catalogue.offerings[*offering].instance_type);
    ways.push((bin.offerings.iter().filter(is_kept).collect(), Requirements::new()));
    ways.retain(|(offerings, _)| !offerings.is_empty());
    ways.sort_by_key(|(offerings, _)| (price(table, offerings), Reverse(offerings.count())));
    ways
}

fn price(table: &PoolTable<'_>, offerings: &IdSet<OfferingId>) -> Option<model::PriceNanoUsdPerHour> {
    offerings.iter().map(|offering| table.catalogue.offerings[offering].price).min()
}
