//! Machines for other pods that stay out of domains over which somebody is spread.
//!
//! A machine whose zone or type is not decided could come up where it counts as a domain that pods with a spread cannot
//! use: their volume is elsewhere, say. The least is 0 there, and pods are refused that would have a place if the
//! machine were launched otherwise. Where that happens, its launch is decided so that it does not count.

use std::{cmp::Reverse, collections::BTreeSet};

use model::{IdSet, Requirement, Requirements, ValueSet};

use super::Packing;
use super::devices::pinned;
use super::mode::Mode;
use super::plan_run::PlanRun;
use super::state::{Bin, BinId, Charging};
use crate::catalogue::{OfferingId, TypeId};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::PoolTable;
use crate::simulation::compile::problem::Problem;
use crate::simulation::topology::{Checking, DomainId, Domains, Group, Scope};
use crate::snapshot::PoolId;

/// Narrows what machines may be launched as, where they would otherwise add a domain; those that cannot are left as
/// they are.
pub(crate) fn keep_outside(packing: &mut Packing<'_>) {
    let (problem, run) = (packing.problem, packing.run);
    for (group, domains) in open_ended(problem, run) {
        for id in (0..packing.state.bins.len()).map(BinId) {
            let Some(bin) = packing.state.bins.get(id.0) else { continue };
            for (offerings, pins) in ways(problem, (group, domains), bin) {
                if packing.restrict_bin(id, offerings, &pins) {
                    break;
                }
            }
        }
    }
}

/// Ways of a class to be on a machine that add a domain wherever that lands, of classes that have others: rules of
/// their own pin these pods before anything is counted, so that their machines could not be kept outside afterwards.
pub(crate) fn adding_ways(problem: &Problem<'_>, run: &PlanRun) -> BTreeSet<(PoolId, ClassId, usize)> {
    let names = problem.names();
    let groups: Vec<(&Group, &Domains)> = open_ended(problem, run).collect();
    let mode = Mode { checking: Checking::AtTheEnd, ..Mode::default() };
    let mut untouched = Packing::new(problem, run, Charging::Least).in_mode(mode);
    let mut adding = BTreeSet::new();
    for class in problem.classes.ids() {
        let (mut of_class, mut has_others) = (Vec::new(), false);
        for (pool, table) in problem.pools.iter_enumerated() {
            for way in &table.by_class[class] {
                let adds = |(group, known): &(&Group, &Domains)| {
                    let opens = |offering: OfferingId| {
                        let (domains, elsewhere) = group.landing(table, &way.open, offering, names);
                        known.are_opened_by(&domains, elsewhere)
                    };
                    way.offerings.iter().all(opens)
                };
                if groups.iter().any(adds) {
                    of_class.push((table.id, class, way.index));
                } else {
                    has_others |= untouched.copies_in_new_bin(pool, class, way, 1).so_far() == 1;
                }
            }
        }
        if has_others {
            adding.extend(of_class);
        }
    }
    adding
}

/// Domains in which machines of a plan could land and would count, and whether one could land in one without a number;
/// see [`Group::landing`].
pub(super) fn landings(group: &Group, problem: &Problem<'_>, bins: &[Bin]) -> (IdSet<DomainId>, bool) {
    let (mut all, mut elsewhere) = (IdSet::new(), false);
    for bin in bins {
        let Some(table) = problem.pools.try_get(bin.pool) else { continue };
        for offering in bin.offerings.iter() {
            let (domains, lands_elsewhere) = group.landing(table, &bin.open, offering, problem.names());
            all.union_with(&domains);
            elsewhere |= lands_elsewhere;
        }
    }
    (all, elsewhere)
}

/// The groups to which machines can add a domain, with those that they have.
fn open_ended<'p>(problem: &'p Problem<'_>, run: &'p PlanRun) -> impl Iterator<Item = (&'p Group, &'p Domains)> {
    let groups = problem.topology.groups.iter().zip(run.domains().iter().map(|domains| &**domains));
    groups.filter(|(group, domains)| !group.is_open(domains, &problem.pools, problem.names()))
}

/// Ways to keep a machine outside, the cheapest first: by the values of the label, or by instance types. A NodeClaim
/// can say no more.
fn ways(
    problem: &Problem<'_>,
    (group, known): (&Group, &Domains),
    bin: &Bin,
) -> Vec<(IdSet<OfferingId>, Requirements)> {
    let (table, names) = (&problem.pools[bin.pool], problem.names());
    let opens = |offering: OfferingId| {
        let (domains, elsewhere) = group.landing(table, &bin.open, offering, names);
        known.are_opened_by(&domains, elsewhere)
    };
    let opening: Vec<OfferingId> = bin.offerings.iter().filter(|&offering| opens(offering)).collect();
    if opening.is_empty() {
        return Vec::new();
    }
    let mut ways = Vec::new();
    if let Scope::Label(key) = group.scope {
        let present = known.present.iter().map(|domain| group.values()[domain]);
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
