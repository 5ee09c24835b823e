//! What a provider may launch for a planned NodeClaim.

use scheduling::{Snapshot, catalogue::OfferingId, plan::Machine};

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
