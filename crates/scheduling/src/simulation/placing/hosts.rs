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

use model::{Answer, Budget, Requirements, SearchEnd};

use super::{backtracking, choose, fill};
use crate::plan::Verdict;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::BinId;
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
/// that is contended is searched once more, since the machines of classes that came later are among what is placed.
/// What is still left stays refused for the reason that it was: classes for which machines may bring something were out
/// of budget before, unless they want more than there can be.
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
        for pins in packing.ways_to_decide(bin) {
            if hosts.len() == MAX_HOSTS {
                return hosts;
            }
            let before = packing.pools_brought_by(bin);
            let mark = packing.mark();
            let brings_more = packing.pin_bin(bin, &pins) && packing.pools_brought_by(bin) > before;
            packing.rollback(mark);
            if brings_more {
                hosts.push(Host { bin, pins });
            }
        }
    }
    hosts
}
