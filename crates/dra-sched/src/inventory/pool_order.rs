//! Assumed names of pools that are not published yet.
//!
//! The scheduler goes through the pools of a driver by name, and drivers choose the names when they publish: by the
//! machine's name, the zone's, or any other. If a node sees several pools of a driver and some are still to be
//! published, a plan therefore has to hold whatever they will be called. A ledger says which names are assumed.
//!
//! Not every order is tried, only those that reverse the others ([`PoolOrder::all`]): pools of machines in the order of
//! opening or reversed, pools of domains before or behind them, published pools before or behind all.

use super::unit::Instance;

/// The order of a driver's pools, as far as they are still to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PoolOrder {
    hosts: Hosts,
    domains_first: bool,
    published_first: bool,
}

/// The order of machines' pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Hosts {
    /// The machine's own pools first. Plans are made with this order.
    #[default]
    OwnFirst,
    Opened,
    OpenedLast,
    /// Machines opened last come first; of one machine, what it brings for others comes before what is its own.
    BroughtOpenedLast,
}

/// The kinds of pools of one driver of which some claims could take devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolKinds {
    /// Pools of one node or machine alone, published or planned.
    pub own: bool,
    /// What each of several planned machines brings for others.
    pub hosts: bool,
    /// What planned machines bring once for a domain.
    pub domains: bool,
    /// Those that are published for several nodes.
    pub published: bool,
    /// Some of its own are still to be published.
    pub planned: bool,
}

/// A pool by its kind, which its assumed place among its driver's pools depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PoolKind {
    Own(Option<Instance>),
    Brought(Instance),
    Published,
}

impl PoolKinds {
    /// Whether the answer may depend on what pools will be called.
    pub fn is_unordered(&self) -> bool {
        let several = [self.own, self.hosts, self.domains, self.published].into_iter().filter(|it| *it).count() > 1;
        self.hosts || several && (self.planned || self.domains)
    }

    /// Adds the kinds of another.
    pub fn extend(&mut self, other: Self) {
        self.own |= other.own;
        self.hosts |= other.hosts;
        self.domains |= other.domains;
        self.published |= other.published;
        self.planned |= other.planned;
    }
}

impl PoolOrder {
    /// The orders to try where there are pools of these kinds. The first is the one in which plans are made.
    pub fn all(kinds: PoolKinds) -> Vec<Self> {
        let mut orders = vec![Self::default()];
        if !kinds.is_unordered() {
            return orders;
        }
        for (hosts, domains_first, published_first) in
            [(Hosts::OpenedLast, true, true), (Hosts::Opened, true, false), (Hosts::BroughtOpenedLast, false, true)]
        {
            let order = Self {
                hosts: if kinds.hosts { hosts } else { Hosts::OwnFirst },
                domains_first: kinds.domains && domains_first,
                published_first: kinds.published && published_first,
            };
            if !orders.contains(&order) {
                orders.push(order);
            }
        }
        orders
    }

    /// The sort key of a pool among those of its driver.
    pub(crate) fn rank(self, kind: PoolKind) -> (u8, i64, bool) {
        let of_host = |host: Instance, is_own: bool| match self.hosts {
            Hosts::OwnFirst => (2 + u8::from(!is_own), host.number(), false),
            Hosts::Opened => (3, host.number(), !is_own),
            Hosts::OpenedLast => (3, -host.number(), !is_own),
            Hosts::BroughtOpenedLast => (3, -host.number(), is_own),
        };
        match kind {
            PoolKind::Own(Some(host)) => of_host(host, true),
            PoolKind::Own(None) => (2, 0, false),
            PoolKind::Brought(pool) if pool.is_of_domain() => {
                (if self.domains_first { 1 } else { 4 }, pool.number(), false)
            }
            PoolKind::Brought(host) => of_host(host, false),
            PoolKind::Published => (if self.published_first { 0 } else { 5 }, 0, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Id;

    use super::*;
    use crate::inventory::unit::BinId;

    #[test]
    fn every_pair_of_pools_that_are_still_to_be_published_is_tried_both_ways_round() {
        let bin = |index| Instance::of_bin(BinId::from_index(index));
        let pools = [
            PoolKind::Own(Some(bin(1))),
            PoolKind::Brought(bin(0)),
            PoolKind::Brought(bin(1)),
            PoolKind::Brought(bin(2)),
            PoolKind::Brought(Instance::of_domain(1)),
            PoolKind::Published,
        ];
        let kinds = PoolKinds { own: true, hosts: true, domains: true, published: true, planned: true };
        let orders = PoolOrder::all(kinds);
        assert_eq!(orders.first(), Some(&PoolOrder::default()));
        for (place, a) in pools.iter().enumerate() {
            for b in &pools[place + 1..] {
                let ways = [true, false].map(|way| orders.iter().any(|of| (of.rank(*a) < of.rank(*b)) == way));
                assert_eq!(ways, [true, true], "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn names_matter_only_where_several_pools_of_a_driver_can_be_seen_and_one_has_none_yet() {
        let own = PoolKinds { own: true, planned: true, ..PoolKinds::default() };
        let published = PoolKinds { own: true, published: true, ..PoolKinds::default() };
        let domains = PoolKinds { domains: true, ..own };
        assert_eq!([own, published, domains].map(|kinds| PoolOrder::all(kinds).len()), [1, 1, 2]);
    }
}
