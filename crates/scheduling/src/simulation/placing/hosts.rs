//! Machines whose pools others use.
//!
//! What a machine brings for its domain can be used by others as soon as it is certain in which domain it will be. As
//! long as the machine may land anywhere it brings them nothing, and to decide is a choice with a price: some of its
//! offerings go. So before each machine that a class with claims is given, the rest of the class is placed for
//! comparison as things are and with each open machine decided in each of its ways ([`MAX_HOSTS`], [`HOST_TRIALS`]);
//! the cheapest way goes on.
//!
//! A claim may need what several machines of one domain bring. So where no machine alone is of use, the domain is
//! chosen first: in each, more and more of the machines that can be there are decided together.
//!
//! Left out: machines that nobody runs on, launched for what they bring alone.

use model::{Answer, Budget, Requirements, SearchEnd};

use super::{backtracking, choose, fill};
use crate::plan::Verdict;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::BinId;
use crate::tuning::{HOST_TRIALS, MAX_HOSTS, MAX_HOSTS_OF_DOMAINS};

/// Machines, with labels that all of them will have from now on.
#[derive(Debug, Clone)]
struct Hosts {
    bins: Vec<BinId>,
    pins: Requirements,
}

impl Hosts {
    /// Decides the labels; false if a machine cannot have them, and then the others are decided all the same.
    fn pin(&self, packing: &mut Packing<'_>) -> bool {
        self.bins.iter().all(|&bin| packing.pin_bin(bin, &self.pins))
    }
}

/// Places up to `wanted` copies of a class and returns how many are left; where machines bring pools for others, some
/// may be pinned to their domain for it.
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
        if let Some(hosts) = best_hosts(packing, class, left, &mut trials).part_of(&mut end)
            && hosts.pin(packing)
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

/// The machines to be decided for the class, if that leaves fewer copies or costs less: one of them, or, where one
/// alone is of no use, several for one domain.
fn best_hosts(packing: &mut Packing<'_>, class: ClassId, wanted: u32, trials: &mut usize) -> Answer<Option<Hosts>> {
    let alone = hosts(packing, MAX_HOSTS);
    *trials = trials.saturating_sub(alone.len() + 1);
    if alone.is_empty() {
        return Answer::finished(None);
    }
    let mut trial = Trial { packing, class, wanted, end: SearchEnd::default() };
    let as_is = trial.outcome(None);
    let tried = alone.into_iter().filter_map(|hosts| Some((trial.outcome(Some(&hosts))?, hosts)));
    let best = tried.min_by_key(|(outcome, _)| *outcome);
    let better = best.zip(as_is).and_then(|((best, host), as_is)| (best < as_is).then_some(host));
    let several = match (&better, as_is) {
        (None, Some((left, _))) if left > 0 => several_of_a_domain(&mut trial, left, trials),
        _ => None,
    };
    Answer::new(better.or(several), trial.end)
}

/// The machines of one domain which, decided together, leave fewest copies, then those that cost least, then the fewest
/// of them; `None` if none leave fewer than `left`.
fn several_of_a_domain(trial: &mut Trial<'_, '_>, left: u32, trials: &mut usize) -> Option<Hosts> {
    let mut best: Option<((u32, i128), Hosts)> = None;
    for domain in by_domain(hosts(trial.packing, MAX_HOSTS_OF_DOMAINS)) {
        for several in 2..=domain.bins.len() {
            let Some(rest) = trials.checked_sub(1) else { return best.map(|(_, hosts)| hosts) };
            *trials = rest;
            let hosts = Hosts { bins: domain.bins.iter().take(several).copied().collect(), ..domain.clone() };
            let Some(outcome) = trial.outcome(Some(&hosts)) else { break };
            if outcome.0 < left && best.as_ref().is_none_or(|(best, _)| outcome < *best) {
                best = Some((outcome, hosts));
            }
            // More of them would bring what nobody lacks.
            if outcome.0 == 0 {
                break;
            }
        }
    }
    best.map(|(_, hosts)| hosts)
}

/// The rest of a class, placed for comparison.
struct Trial<'t, 'p> {
    packing: &'t mut Packing<'p>,
    class: ClassId,
    wanted: u32,
    end: SearchEnd,
}

impl Trial<'_, '_> {
    /// How many copies are left and what all machines cost, if these machines are decided; `None` if they cannot be.
    fn outcome(&mut self, hosts: Option<&Hosts>) -> Option<(u32, i128)> {
        let mark = self.packing.mark();
        let outcome = hosts.is_none_or(|hosts| hosts.pin(self.packing)).then(|| {
            let left = place_as_is(self.packing, self.class, self.wanted).part_of(&mut self.end);
            let price: i128 = self.packing.state.bins.iter().map(|bin| i128::from(bin.price.0)).sum();
            (left, price)
        });
        self.packing.rollback(mark);
        outcome
    }
}

/// Machines that would bring more pools if they were decided, in each of their ways, one by one; so many at most.
fn hosts(packing: &mut Packing<'_>, most: usize) -> Vec<Hosts> {
    let mut hosts = Vec::new();
    for bin in (0..packing.state.bins.len()).map(BinId) {
        for pins in packing.ways_to_decide(bin) {
            if hosts.len() == most {
                return hosts;
            }
            let before = packing.pools_brought_by(bin);
            let mark = packing.mark();
            let brings_more = packing.pin_bin(bin, &pins) && packing.pools_brought_by(bin) > before;
            packing.rollback(mark);
            if brings_more {
                hosts.push(Hosts { bins: vec![bin], pins });
            }
        }
    }
    hosts
}

/// All machines of each domain together, in the order in which the domains come up.
fn by_domain(alone: Vec<Hosts>) -> Vec<Hosts> {
    let mut domains: Vec<Hosts> = Vec::new();
    for hosts in alone {
        match domains.iter_mut().find(|domain| domain.pins == hosts.pins) {
            Some(domain) => domain.bins.extend(hosts.bins),
            None => domains.push(hosts),
        }
    }
    domains
}
