//! How many machines a NodePool has and what they add up to: `status.nodes` and `status.resources`.

use std::collections::BTreeMap;

use api::{ResourceList, resources};
use model::Quantity;

/// Resources that are always listed.
const BASELINE: [&str; 4] = [resources::CPU, resources::MEMORY, resources::PODS, resources::EPHEMERAL_STORAGE];

/// A NodePool's machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count {
    /// How many there are.
    pub nodes: i64,
    /// What they have, with `nodes` itself.
    pub resources: ResourceList,
}

/// Adds up the capacity of each machine, given as resource and quantity. What is no quantity, or would overflow, is
/// left out.
pub(crate) fn count<'a, M>(machines: impl IntoIterator<Item = M>) -> Count
where
    M: IntoIterator<Item = (&'a str, &'a str)>,
{
    let mut nodes = 0_i64;
    let mut sums: BTreeMap<&str, Quantity> = BTreeMap::new();
    for machine in machines {
        nodes += 1;
        for (resource, text) in machine {
            let Ok(quantity) = Quantity::parse(text) else { continue };
            let sum = match sums.get(resource) {
                Some(sum) => sum.checked_add(quantity).unwrap_or(*sum),
                None => quantity,
            };
            sums.insert(resource, sum);
        }
    }
    let mut resources: ResourceList = BASELINE.into_iter().map(|name| (name.to_owned(), "0".into())).collect();
    resources.extend(sums.into_iter().map(|(name, sum)| (name.to_owned(), sum.to_string().into())));
    resources.insert(resources::NODES.to_owned(), nodes.to_string().into());
    Count { nodes, resources }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_added_up_in_canonical_form() {
        let machines = [
            vec![("cpu", "1500m"), ("memory", "1Gi"), ("nvidia.com/gpu", "1")],
            vec![("cpu", "500m"), ("memory", "1Gi"), ("broken", "many")],
        ];
        let count = count(machines);
        assert_eq!(count.nodes, 2);
        let text: Vec<String> = count.resources.iter().map(|(name, sum)| format!("{name}={sum}")).collect();
        assert_eq!(text, ["cpu=2", "ephemeral-storage=0", "memory=2Gi", "nodes=2", "nvidia.com/gpu=1", "pods=0"]);
    }

    #[test]
    fn a_node_pool_without_machines_counts_zero() {
        let none: [Vec<(&str, &str)>; 0] = [];
        assert!(count(none).resources.values().all(|sum| sum.0 == "0"));
    }
}
