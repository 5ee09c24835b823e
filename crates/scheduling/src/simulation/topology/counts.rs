//! What is placed where, and how many more copies may come.
//!
//! Placing goes step by step: each step keeps every rule at that moment, so that the order of placing is an order in
//! which kube-scheduler can bind. A search, or a class that is dealt out over domains at once, checks the rules that
//! later steps can still mend only at the end ([`Checking::AtTheEnd`]): skews, because the least may rise, and
//! affinity, because the pods that it wants may come.

use std::sync::Arc;

use model::{Id, IdVec};

use super::{AffinitySet, AllDomains, DomainId, Domains, Group, GroupId, Involvement, Kind, Place, Topology};
use crate::simulation::compile::classes::PodClass;

/// Counters of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    matched: Vec<u32>,
    owners: Vec<u32>,
    /// Matched pods in any domain.
    total: u32,
    /// Over which domains they are spread.
    pub(crate) spread: Arc<Domains>,
}

/// The counters of one domain, to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    matched: u32,
    owners: u32,
    total: u32,
    /// How many domains had counters.
    domains: usize,
}

/// When rules are checked that later steps may mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checking {
    /// With each step, for the pods placed and for those placed before: nothing breaks a skew that an owner was planned
    /// with, so that the order of binding matters little.
    Stepwise,
    /// With each step, for the pods placed: kube-scheduler asks no more, but those placed before have to be bound
    /// first.
    OwnOnly,
    /// By the caller, with `rules_hold`.
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
        let before = self.before(domain);
        let (matched, total) = (before.matched + matched, before.total + matched);
        self.set(domain, Before { matched, owners: before.owners + owners, total, ..before });
        before
    }

    /// Takes pods out again and says what was there before.
    pub(crate) fn remove(&mut self, domain: DomainId, matched: u32, owners: u32) -> Before {
        let before = self.before(domain);
        let left = Before {
            matched: before.matched.saturating_sub(matched),
            owners: before.owners.saturating_sub(owners),
            total: before.total.saturating_sub(matched),
            ..before
        };
        self.set(domain, left);
        before
    }

    fn before(&self, domain: DomainId) -> Before {
        let domains = self.matched.len();
        Before { matched: self.matched(domain), owners: self.owners(domain), total: self.total, domains }
    }

    /// The domains that have or had pods.
    fn domains(&self) -> impl Iterator<Item = DomainId> + use<> {
        (0..self.owners.len()).map(DomainId::from_index)
    }

    /// Makes one domain what it was before the latest change.
    pub(crate) fn restore(&mut self, domain: DomainId, before: Before) {
        self.set(domain, before);
        self.matched.truncate(before.domains);
        self.owners.truncate(before.domains);
    }

    fn set(&mut self, domain: DomainId, to: Before) {
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
        if !matches!(self.kind, Kind::Spread { .. }) {
            return None;
        }
        if self.least_stays_zero(counts) {
            return Some(0);
        }
        counts.spread.present.iter().filter(|&other| other != domain).map(|other| counts.matched(other)).min()
    }

    /// Whether what is in other domains says nothing of how many may go to one.
    pub(crate) fn depends_on_domain_alone(&self, counts: &Counts) -> bool {
        match self.kind {
            Kind::Spread { .. } => self.least_stays_zero(counts),
            Kind::Affinity | Kind::AntiAffinity => true,
        }
    }

    /// How many more copies, at most `wanted`, of a class that the group concerns may go to the place. Affinity is for
    /// the caller, since it is the sets of a class that count.
    pub(crate) fn room(
        &self,
        counts: &Counts,
        mine: &Involvement,
        place: Place,
        checking: Checking,
        wanted: u32,
    ) -> u32 {
        let &Involvement { owner, matched, .. } = mine;
        let domain = match place {
            Place::Domain(domain) => domain,
            // Whatever domain that turns out to be, where only a pod's own rules ask it may come.
            Place::Unknown => {
                let nobody_asks = !owner && checking == Checking::OwnOnly && self.kind != Kind::AntiAffinity;
                return if nobody_asks { wanted } else { 0 };
            }
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
                // Where the least stays 0 nothing later mends a skew.
                let final_now = counts.spread.least_is_zero;
                let concerns = owner || (checking != Checking::OwnOnly && counts.owners(domain) > 0);
                if !concerns || (checking == Checking::AtTheEnd && (!final_now || !owner)) {
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

    /// Whether a domain has more than its skew allows and will have at the end, if so many matched copies are still to
    /// come.
    pub(crate) fn is_broken_for_good(&self, counts: &Counts, domain: DomainId, to_come: u64) -> bool {
        let Kind::Spread { max_skew, .. } = self.kind else { return false };
        if self.skew_holds_in(counts, domain) {
            return false;
        }
        // All others have to get that far.
        let wanted = counts.matched(domain).saturating_sub(max_skew);
        let missing = |other: DomainId| u64::from(wanted.saturating_sub(counts.matched(other)));
        let others = || counts.spread.present.iter().filter(|&other| other != domain);
        self.least_stays_zero(counts) || others().map(missing).sum::<u64>() > to_come
    }

    /// Whether the least is 0 whatever is placed.
    fn least_stays_zero(&self, counts: &Counts) -> bool {
        let Kind::Spread { min_domains, .. } = self.kind else { return false };
        counts.spread.least_is_zero || counts.spread.present.count() < min_domains as usize
    }

    pub(crate) fn skew_holds(&self, counts: &Counts) -> bool {
        counts.domains().all(|domain| self.skew_holds_in(counts, domain))
    }

    /// Whether the domain has no more than the skew allows, if an owner is there.
    pub(crate) fn skew_holds_in(&self, counts: &Counts, domain: DomainId) -> bool {
        self.excess(counts, domain) == 0
    }

    /// How many pods the domain has more than the skew allows, if an owner is there.
    pub(crate) fn excess(&self, counts: &Counts, domain: DomainId) -> u32 {
        let Kind::Spread { max_skew, .. } = self.kind else { return 0 };
        if counts.owners(domain) == 0 {
            return 0;
        }
        let least = self.least_elsewhere(counts, domain);
        least.map_or(0, |least| counts.matched(domain).saturating_sub(max_skew.saturating_add(least)))
    }

    /// The domains with more pods than the skew allows, of those in which an owner is.
    pub(crate) fn too_full(&self, counts: &Counts) -> impl Iterator<Item = DomainId> {
        counts.domains().filter(|&domain| !self.skew_holds_in(counts, domain))
    }
}

/// Counters by group.
pub(crate) type AllCounts = IdVec<GroupId, Counts>;

/// Lets rules be checked with the domains that a run knows of by now.
pub(crate) fn set_domains(counts: &mut AllCounts, domains: &AllDomains) {
    for (counts, domains) in counts.iter_mut().zip(domains) {
        counts.spread = Arc::clone(domains);
    }
}

impl Topology {
    /// Copies of a class that all its rules allow at a place, at most `wanted`. `place` says where that is, by position
    /// among the class's involvements; rules for which it does not tell are left out.
    pub(crate) fn room(
        &self,
        counts: &AllCounts,
        checking: Checking,
        class: &PodClass,
        place: impl Fn(usize, &Involvement) -> Option<Place>,
        wanted: u32,
    ) -> u32 {
        let mut room = wanted;
        for (position, mine) in class.involved.iter().enumerate() {
            let Some(place) = place(position, mine) else { continue };
            let (group, counts) = (&self.groups[mine.group], &counts[mine.group]);
            room = group.room(counts, mine, place, checking, room);
            if room == 0 {
                return 0;
            }
        }
        if checking == Checking::AtTheEnd {
            return room;
        }
        let there = |position: usize| {
            let mine = class.involved.get(position)?;
            match place(position, mine)? {
                Place::Domain(domain) => Some((counts[mine.group].matched(domain), counts[mine.group].total())),
                Place::OwnHost | Place::Outside | Place::Unknown => None,
            }
        };
        let is_asked =
            |position: &usize| class.involved.get(*position).is_none_or(|mine| place(*position, mine).is_some());
        let is_near = |set: &AffinitySet| {
            if !set.involvements.iter().all(is_asked) {
                return true;
            }
            let all = || set.involvements.iter().map(|&position| there(position));
            all().all(|there| there.is_some_and(|(matched, _)| matched > 0))
                || (set.matches_itself && all().all(|there| there.is_some_and(|(_, total)| total == 0)))
        };
        if class.affinity_sets.iter().all(is_near) { room } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use model::{IdSet, LabelSelector, pod::SpreadSource};

    use super::*;
    use crate::simulation::topology::{Rule, Scope};

    fn spread(max_skew: u32) -> Group {
        Group {
            kind: Kind::Spread { max_skew, min_domains: 1, source: SpreadSource::Pod },
            scope: Scope::Cluster,
            rule: Rule::Selected { namespace: "n".into(), selector: LabelSelector::Nothing },
            filter: None,
            placing: Arc::default(),
            start: Counts::default(),
        }
    }

    /// Whether some way to add so many copies to the domains keeps the skew in the first.
    fn can_be_mended(group: &Group, counts: &Counts, to_come: u32) -> bool {
        let first = DomainId::from_index(0);
        group.skew_holds_in(counts, first)
            || (to_come > 0
                && counts.spread.present.iter().any(|domain| {
                    let mut more = counts.clone();
                    more.add(domain, 1, 0);
                    can_be_mended(group, &more, to_come - 1)
                }))
    }

    #[test]
    fn a_skew_is_broken_for_good_if_no_way_to_place_what_is_to_come_mends_it() {
        let mut seen = [0, 0];
        for (max_skew, least_is_zero) in [(1, false), (2, false), (1, true)] {
            let group = spread(max_skew);
            let spread = Arc::new(Domains { present: IdSet::full(3), least_is_zero, ..Domains::default() });
            for numbers in 0..4_u32.pow(3) {
                let mut counts = Counts { spread: Arc::clone(&spread), ..Counts::default() };
                counts.add(DomainId::from_index(0), 0, 1);
                for domain in 0..3 {
                    counts.add(DomainId::from_index(domain), numbers / 4_u32.pow(domain as u32) % 4, 0);
                }
                for to_come in 0..4 {
                    let is_broken = group.is_broken_for_good(&counts, DomainId::from_index(0), u64::from(to_come));
                    assert_eq!(is_broken, !can_be_mended(&group, &counts, to_come), "{counts:?} {to_come}");
                    seen[usize::from(is_broken)] += 1;
                }
            }
        }
        assert!(seen.iter().all(|&cases| cases > 50), "{seen:?}");
    }
}
