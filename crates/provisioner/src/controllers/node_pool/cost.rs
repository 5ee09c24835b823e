//! `karpenter_nodepools_cost_total`: what a NodePool's machines cost now.

use std::sync::Arc;

use api::{NodeClaim, labels};
use cloudprovider::{InstanceType, Offering};
use model::PriceNanoUsdPerHour;

use crate::world::claim;

/// The sum of the prices of machines, and how many of them are of no offering that is known.
pub(crate) fn cost<'c>(
    types: &[Arc<InstanceType>],
    machines: impl IntoIterator<Item = &'c NodeClaim>,
) -> (PriceNanoUsdPerHour, u64) {
    let (mut sum, mut unknown) = (PriceNanoUsdPerHour(0), 0);
    for machine in machines {
        match price(types, machine) {
            Some(price) => sum = PriceNanoUsdPerHour(sum.0.saturating_add(price.0)),
            None => unknown += 1,
        }
    }
    (sum, unknown)
}

/// That of the cheapest offering with the labels of the machine.
fn price(types: &[Arc<InstanceType>], machine: &NodeClaim) -> Option<PriceNanoUsdPerHour> {
    let label = |key| claim::label(machine, key);
    let of_type = types.iter().find(|it| *it.name == *label(labels::INSTANCE_TYPE))?;
    let is_it = |offering: &&Offering| {
        offering.zone == label(labels::ZONE)
            && offering.capacity_type.as_str() == label(labels::CAPACITY_TYPE)
            && offering.labels.iter().all(|(key, value)| {
                let of_machine = claim::label(machine, key);
                of_machine.is_empty() || of_machine == value
            })
    };
    of_type.offerings.iter().filter(is_it).map(|offering| offering.price).min()
}

#[cfg(test)]
mod tests {
    use cloudprovider_kwok::catalogue::default_instance_types;
    use serde_json::json;

    use super::*;

    #[test]
    fn machines_cost_what_their_offerings_do_and_those_without_are_counted() {
        let types: Vec<Arc<InstanceType>> = default_instance_types().into_iter().map(Arc::new).collect();
        let offering = &types[3].offerings[1];
        let machine = |zone: &str| -> NodeClaim {
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "a", "labels": {
                    "node.kubernetes.io/instance-type": &*types[3].name, "topology.kubernetes.io/zone": zone,
                    "karpenter.sh/capacity-type": offering.capacity_type.as_str(),
                }},
                "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
            }))
            .unwrap()
        };
        let machines = [machine(&offering.zone), machine(&offering.zone), machine("elsewhere")];
        assert_eq!(cost(&types, &machines), (PriceNanoUsdPerHour(offering.price.0 * 2), 1));
        assert!(offering.price.0 > 0);
    }
}
