//! Which subnet machines of a zone are put into: the one with the most free addresses, those less that launches under
//! way will take. `pkg/providers/subnet` of karpenter-provider-aws 1.15.

use std::collections::BTreeMap;

use model::{DurationMs, Timestamp};

use crate::node_class::status::Subnet;
use crate::service::ec2;

/// How long EC2's word counts.
const FRESH: DurationMs = DurationMs::from_seconds(60);

/// What is known of a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    /// Whether EC2 said that some are free.
    has_some: bool,
    /// Addresses that EC2 said are free, less those that launches since may take. That is the most that they may, so it
    /// can be below zero with addresses left: it orders subnets, and rules none out.
    free: i64,
    at: Timestamp,
}

/// What is known of subnets.
#[derive(Debug, Default)]
pub(super) struct Subnets {
    known: BTreeMap<String, Known>,
}

impl Subnets {
    /// Of these subnets, the ids of those that EC2 must be asked about.
    pub(super) fn stale(&self, subnets: &[Subnet], now: Timestamp) -> Vec<String> {
        let is_fresh = |id: &String| self.known.get(id).is_some_and(|known| now.since(known.at) < FRESH);
        subnets.iter().map(|subnet| &subnet.id).filter(|id| !is_fresh(id)).cloned().collect()
    }

    /// Takes EC2's word.
    pub(super) fn learn(&mut self, found: &[ec2::Subnet], now: Timestamp) {
        self.known.retain(|_, known| now.since(known.at) < DurationMs(10 * FRESH.0));
        for subnet in found {
            let known = Known { has_some: subnet.free_addresses > 0, free: subnet.free_addresses.into(), at: now };
            self.known.insert(subnet.id.clone(), known);
        }
    }

    /// The subnet for each zone. One that EC2 says has no address left, or that `is_out`, is not taken; of equal ones
    /// the first by id.
    pub(super) fn choose(&self, subnets: &[Subnet], is_out: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let mut best: BTreeMap<String, (i64, String)> = BTreeMap::new();
        for subnet in subnets {
            let known = self.known.get(&subnet.id).filter(|known| known.has_some);
            let Some(Known { free, .. }) = known.copied().filter(|_| !is_out(&subnet.id)) else { continue };
            let better = best.get(&subnet.zone).is_none_or(|(other, id)| (free, id) > (*other, &subnet.id));
            if better {
                best.insert(subnet.zone.clone(), (free, subnet.id.clone()));
            }
        }
        best.into_iter().map(|(zone, (_, id))| (zone, id)).collect()
    }

    /// Takes addresses for a launch that is under way.
    pub(super) fn take(&mut self, id: &str, addresses: u32) {
        if let Some(known) = self.known.get_mut(id) {
            known.free = known.free.saturating_sub(addresses.into());
        }
    }

    /// Gives back what a launch has not used.
    pub(super) fn give_back(&mut self, id: &str, addresses: u32) {
        if let Some(known) = self.known.get_mut(id) {
            known.free = known.free.saturating_add(addresses.into());
        }
    }

    /// Notes that a subnet has no addresses.
    pub(super) fn exhausted(&mut self, id: &str) {
        if let Some(known) = self.known.get_mut(id) {
            known.has_some = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(id: &str, zone: &str) -> Subnet {
        Subnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: None }
    }

    fn found(id: &str, free_addresses: u32) -> ec2::Subnet {
        ec2::Subnet { id: id.to_owned(), free_addresses, ..ec2::Subnet::default() }
    }

    #[test]
    fn the_subnet_with_the_most_addresses_is_taken_less_what_is_under_way() {
        let all = [subnet("s-2", "a"), subnet("s-1", "a"), subnet("s-3", "b"), subnet("s-4", "c")];
        let mut subnets = Subnets::default();
        assert_eq!(subnets.stale(&all, Timestamp(0)), ["s-2", "s-1", "s-3", "s-4"]);
        subnets.learn(&[found("s-1", 100), found("s-2", 100), found("s-3", 9), found("s-4", 0)], Timestamp(0));
        let chosen = |subnets: &Subnets, out: &str| {
            let text = |(zone, id): (String, String)| format!("{zone}={id}");
            subnets.choose(&all, |id| id == out).into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&subnets, ""), ["a=s-1", "b=s-3"]);
        assert_eq!(chosen(&subnets, "s-3"), ["a=s-1"]);
        subnets.take("s-1", 11);
        assert_eq!(chosen(&subnets, ""), ["a=s-2", "b=s-3"]);
        // What launches may take at most rules no subnet out.
        subnets.take("s-2", 200);
        subnets.take("s-3", 10);
        assert_eq!(chosen(&subnets, ""), ["a=s-1", "b=s-3"]);
        subnets.take("s-1", 200);
        assert_eq!(chosen(&subnets, ""), ["a=s-2", "b=s-3"]);
        for (id, addresses) in [("s-1", 211), ("s-2", 200), ("s-3", 10)] {
            subnets.give_back(id, addresses);
        }
        subnets.exhausted("s-3");
        assert_eq!(chosen(&subnets, ""), ["a=s-1"]);
        assert_eq!(subnets.stale(&all, Timestamp(59_999)), [] as [&str; 0]);
        assert_eq!(subnets.stale(&all[..1], Timestamp(60_000)), ["s-2"]);
    }
}
