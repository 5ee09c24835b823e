//! What a provider may launch for a planned NodeClaim.

use scheduling::{Snapshot, catalogue::OfferingId, plan::Machine, snapshot::PoolId};

/// Every offering that a machine of a NodePool could be launched from, limits aside.
pub(crate) fn possible(snapshot: &Snapshot) -> impl Iterator<Item = (PoolId, OfferingId)> + '_ {
    let usable = snapshot.node_pools.iter_enumerated().filter(|(_, pool)| pool.usable.is_ok());
    usable.flat_map(move |(id, pool)| {
        let offerings = pool.catalogue.offerings.iter_enumerated();
        let is_possible = move |offering: &scheduling::catalogue::Offering| {
            let agrees = pool.requirements.iter().all(|wanted| {
                let offered = offering.requirements.get(wanted.key);
                offered.is_none_or(|offered| offered.values.intersects(&wanted.values, &snapshot.interner))
            });
            agrees && offering.launchable()
        };
        offerings.filter(move |(_, offering)| is_possible(offering)).map(move |(offering, _)| (id, offering))
    })
}

/// All offerings that agree with the claim, available or not.
pub(crate) fn allowed(snapshot: &Snapshot, machine: &Machine) -> Vec<OfferingId> {
    let catalogue = &snapshot.node_pools[machine.node_pool].catalogue;
    let agrees = |&id: &OfferingId| {
        let offering = &catalogue.offerings[id];
        machine.instance_types.contains(&offering.instance_type)
            && machine.requirements.iter().all(|wanted| {
                offering
                    .requirements
                    .get(wanted.key)
                    .is_none_or(|offered| offered.values.intersects(&wanted.values, &snapshot.interner))
            })
    };
    catalogue.offerings.ids().filter(agrees).collect()
}
