//! Over which domains pods are spread: those of nodes, those in which machines could be launched for them, and those
//! that machines of a plan add. The last only show while plans are made, so each run has its own.

use std::sync::Arc;

use model::{IdSet, IdVec, Interner};

use super::{DomainId, Group, GroupId, Kind, Place, Scope, Topology};
use crate::simulation::compile::pools::{PoolRank, PoolTable};

/// What spreads of one group know of domains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Domains {
    /// Those over which pods are spread.
    pub(crate) present: IdSet<DomainId>,
    /// Whether the least is 0 whatever is placed: machines with hosts of their own, or with values of the label that
    /// nobody names, could be launched or are planned.
    pub(crate) least_is_zero: bool,
    /// Whether machines of a plan have added a domain.
    pub(crate) was_added_to: bool,
}

/// Domains by group; shared with the counters of every state.
pub(crate) type AllDomains = IdVec<GroupId, Arc<Domains>>;

impl Domains {
    /// Whether machines that land there add a domain.
    pub(crate) fn are_opened_by(&self, domains: &IdSet<DomainId>, elsewhere: bool) -> bool {
        !domains.is_subset(&self.present) || (elsewhere && !self.least_is_zero)
    }

    /// Lets domains without nodes count no more.
    pub(crate) fn close(&mut self, domains: &IdSet<DomainId>) {
        self.present.difference_with(domains);
    }

    /// Adds a place of a machine that could be launched.
    pub(crate) fn open(&mut self, place: Place) {
        match place {
            Place::Domain(domain) => drop(self.present.insert(domain)),
            Place::OwnHost => self.least_is_zero = true,
            Place::Outside | Place::Unknown => {}
        }
    }
}

impl Group {
    /// Whether no machine can open another domain.
    pub(crate) fn is_open(&self, domains: &Domains, pools: &IdVec<PoolRank, PoolTable<'_>>, names: &Interner) -> bool {
        if !matches!(self.kind, Kind::Spread { .. }) {
            return true;
        }
        let is_numbered = || match self.scope {
            Scope::Host => false,
            Scope::Cluster => true,
            Scope::Label(key) => !pools.iter().any(|table| table.is_open(key, names)),
        };
        let all_present = self.values().ids().all(|domain| domains.present.contains(domain));
        all_present && (domains.least_is_zero || is_numbered())
    }
}

impl Topology {
    /// The domains that nodes have.
    pub(crate) fn domains_of_nodes(&self) -> AllDomains {
        let of_nodes = |group: &Group| Domains { present: group.placing.present.clone(), ..Domains::default() };
        self.groups.map(|group| Arc::new(of_nodes(group)))
    }

    /// Whether no plan can add a domain: mostly all of them are there.
    pub(crate) fn is_open(
        &self,
        domains: &AllDomains,
        pools: &IdVec<PoolRank, PoolTable<'_>>,
        names: &Interner,
    ) -> bool {
        self.groups.iter().zip(domains).all(|(group, domains)| group.is_open(domains, pools, names))
    }

    /// Adds all domains that machines of any plan could add. Then no plan has to be made again for one, and each holds,
    /// though pods may have no place that would have one with the domains that are really added.
    pub(crate) fn open_all(&self, domains: &mut AllDomains, pools: &IdVec<PoolRank, PoolTable<'_>>, names: &Interner) {
        for (group, known) in self.groups.iter().zip(domains.iter_mut()) {
            if !group.is_open(known, pools, names) {
                let known = Arc::make_mut(known);
                known.was_added_to = true;
                known.least_is_zero = true;
                known.present.extend(group.placing.values.ids());
            }
        }
    }
}
