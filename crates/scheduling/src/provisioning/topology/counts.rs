//! What is placed where, and how many more copies may come.
//!
//! Placing goes step by step: each step keeps every rule at that moment, so that the order of placing is an order in which
//! kube-scheduler can bind. A search, or a class that is dealt out over domains at once, checks the rules that later
//! steps can still mend only at the end ([`Checking::AtTheEnd`]): skews, because the least may rise, and affinity,
//! because the pods that it wants may come.

use model::{Id, IdVec};

use super::{AffinitySet, DomainId, Group, GroupId, Kind, Place, Scope};
use crate::provisioning::{classes::ClassId, problem::Problem, state::State, state::Target};

/// Counters of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    matched: Vec<u32>,
    owners: Vec<u32>,
    /// Matched pods in any domain.
    total: u32,
}

/// The counters of one domain, to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    matched: u32,
    owners: u32,
    total: u32,
}

/// When rules are checked that later steps may mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checking {
    /// With each step.
    Stepwise,
    /// By the caller, with [`rules_hold`].
    AtTheEnd,
}

impl Counts {
    pub(crate) fn matched(&self, domain: DomainId) -> u32 {
        self.matched.get(domain.index()).copied().unwrap_or(0)
    }

    pub(crate) fn owners(&self, domain: DomainId) -> u32 {
        self.owners.get(domain.index()).copied().unwrap_or(0)
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Adds pods and says what was there before.
    pub(crate) fn add(&mut self, domain: DomainId, matched: u32, owners: u32) -> Before {
        let before = Before { matched: self.matched(domain), owners: self.owners(domain), total: self.total };
        self.set(
            domain,
            Before { matched: before.matched + matched, owners: before.owners + owners, total: before.total + matched },
        );
        before
    }

    /// Sets one domain to what it was.
    pub(crate) fn set(&mut self, domain: DomainId, to: Before) {
        for (counts, value) in [(&mut self.matched, to.matched), (&mut self.owners, to.owners)] {
            if counts.len() <= domain.index() {
                counts.resize(domain.index() + 1, 0);
            }
            if let Some(slot) = counts.get_mut(domain.index()) {
                *slot = value;
            }
        }
        self.total = to.total;
    }
}

impl Group {
    /// The least count of the domains other than `domain`; `None` if there is no other.
    fn least_elsewhere(&self, counts: &Counts, domain: DomainId) -> Option<u32> {
        let Kind::Spread { min_domains, .. } = self.kind else { return None };
        if self.new_hosts || self.present.count() < min_domains as usize {
            return Some(0);
        }
        self.present.iter().filter(|&other| other != domain).map(|other| counts.matched(other)).min()
    }

    /// How many more copies, at most `wanted`, of a class that the group concerns may go to the place. Affinity is for
    /// the caller, since it is the sets of a class that count.
    pub(crate) fn room(
        &self,
        counts: &Counts,
        owner: bool,
        matched: bool,
        place: Place,
        checking: Checking,
        wanted: u32,
    ) -> u32 {
        let domain = match place {
            Place::Domain(domain) => domain,
            Place::Unknown => return 0,
            Place::Outside | Place::OwnHost => {
                return match self.kind {
                    Kind::Spread { .. } | Kind::Affinity if owner => 0,
                    Kind::Spread { .. } | Kind::Affinity | Kind::AntiAffinity => wanted,
                };
            }
        };
        match self.kind {
            Kind::Affinity => wanted,
            Kind::AntiAffinity => {
                let blocked = (owner && counts.matched(domain) > 0) || (matched && counts.owners(domain) > 0);
                match (blocked, owner && matched) {
                    (true, _) => 0,
                    (false, true) => wanted.min(1),
                    (false, false) => wanted,
                }
            }
            Kind::Spread { max_skew, .. } => {
                // While machines can be launched the least of hosts stays 0, so nothing later mends a skew there.
                let final_now = self.new_hosts && self.scope == Scope::Host;
                let concerns = owner || counts.owners(domain) > 0;
                if !concerns || (checking == Checking::AtTheEnd && !final_now) {
                    return wanted;
                }
                let Some(least) = self.least_elsewhere(counts, domain) else { return wanted };
                let limit = u64::from(max_skew) + u64::from(least);
                match limit.checked_sub(u64::from(counts.matched(domain))) {
                    None => 0,
                    Some(room) if matched => wanted.min(u32::try_from(room).unwrap_or(u32::MAX)),
                    Some(_) => wanted,
                }
            }
        }
    }

    fn skew_holds(&self, counts: &Counts) -> bool {
        let Kind::Spread { max_skew, .. } = self.kind else { return true };
        counts.owners.iter().enumerate().filter(|(_, owners)| **owners > 0).all(|(index, _)| {
            let domain = DomainId::from_index(index);
            self.least_elsewhere(counts, domain)
                .is_none_or(|least| u64::from(counts.matched(domain)) <= u64::from(max_skew) + u64::from(least))
        })
    }
}

/// Whether what is placed keeps the rules that are not checked with each step while [`Checking::AtTheEnd`].
pub(crate) fn rules_hold(problem: &Problem<'_>, state: &State) -> bool {
    spread_holds(problem, &state.counts) && affinity_holds(problem, state)
}

/// Whether every skew is kept by what is placed.
fn spread_holds(problem: &Problem<'_>, counts: &IdVec<GroupId, Counts>) -> bool {
    problem.topology.groups.iter().zip(counts.iter()).all(|(group, counts)| group.skew_holds(counts))
}

/// Pods with affinity at one place, for the order in which they can be bound.
struct Entry<'p> {
    sets: &'p [AffinitySet],
    /// By involvement of the class: the group and the place.
    places: Vec<(GroupId, Place)>,
    matched: Vec<(GroupId, DomainId)>,
}

/// Whether what is placed can be bound in some order, such that each pod finds the pods that it has to be near to. Pods
/// without affinity come first: kube-scheduler does not wait with them.
fn affinity_holds(problem: &Problem<'_>, state: &State) -> bool {
    let mut seen: Vec<(ClassId, Target)> = Vec::new();
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut bound = None;
    for assignment in &state.assignments {
        let class = &problem.classes[assignment.class];
        if class.affinity_sets.is_empty() {
            continue;
        }
        let bound = bound.get_or_insert_with(|| state.counts.clone());
        let places: Vec<(GroupId, Place)> = class
            .involved
            .iter()
            .enumerate()
            .map(|(position, involvement)| {
                (involvement.group, state.place_of(problem, assignment.class, assignment.target, position))
            })
            .collect();
        let mut matched = Vec::new();
        for (involvement, (group, place)) in class.involved.iter().zip(&places) {
            let is_affinity = problem.topology.groups[*group].kind == Kind::Affinity;
            if let (true, true, Place::Domain(domain)) = (is_affinity, involvement.matched, *place) {
                let counts = &mut bound[*group];
                let left = counts.matched(domain).saturating_sub(assignment.copies);
                let total = counts.total.saturating_sub(assignment.copies);
                let owners = counts.owners(domain);
                counts.set(domain, Before { matched: left, owners, total });
                matched.push((*group, domain));
            }
        }
        if !seen.contains(&(assignment.class, assignment.target)) {
            seen.push((assignment.class, assignment.target));
            entries.push(Entry { sets: &class.affinity_sets, places, matched });
        }
    }
    match bound {
        None => true,
        Some(bound) => can_bind(entries.iter().collect(), bound),
    }
}

fn can_bind(mut waiting: Vec<&Entry<'_>>, mut bound: IdVec<GroupId, Counts>) -> bool {
    loop {
        let before = waiting.len();
        waiting.retain(|entry| {
            let binds = entry.sets.iter().all(|set| finds_all(set, entry, &bound));
            if binds {
                bind(entry, &mut bound);
            }
            !binds
        });
        if waiting.is_empty() {
            return true;
        }
        if waiting.len() == before {
            break;
        }
    }
    // Somebody has to begin; who does can matter.
    (0..waiting.len()).any(|index| {
        let Some(entry) = waiting.get(index).copied() else { return false };
        if !entry.sets.iter().all(|set| finds_all(set, entry, &bound) || begins(set, entry, &bound)) {
            return false;
        }
        let mut bound = bound.clone();
        bind(entry, &mut bound);
        let mut rest = waiting.clone();
        rest.remove(index);
        can_bind(rest, bound)
    })
}

fn bind(entry: &Entry<'_>, bound: &mut IdVec<GroupId, Counts>) {
    for &(group, domain) in &entry.matched {
        bound[group].add(domain, 1, 0);
    }
}

fn finds_all(set: &AffinitySet, entry: &Entry<'_>, bound: &IdVec<GroupId, Counts>) -> bool {
    set.involvements.iter().filter_map(|&position| entry.places.get(position)).all(|&(group, place)| match place {
        Place::Domain(domain) => bound[group].matched(domain) > 0,
        Place::OwnHost | Place::Outside | Place::Unknown => false,
    })
}

fn begins(set: &AffinitySet, entry: &Entry<'_>, bound: &IdVec<GroupId, Counts>) -> bool {
    set.matches_itself
        && set.involvements.iter().filter_map(|&position| entry.places.get(position)).all(|&(group, place)| match place
        {
            Place::Domain(_) => bound[group].total == 0,
            Place::OwnHost | Place::Outside | Place::Unknown => false,
        })
}
