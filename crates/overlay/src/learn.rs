//! Devices that machines have and no template describes: what is missing, and an overlay that says it.
//!
//! A gap is a driver that has published all of a pool of devices on a machine of a type, where no template of the
//! driver describes that type for the machine's NodePool. One machine of each driver, type and node class is enough:
//! its slices make an overlay ([`crate::capture`]) for the NodePools of that class. Such an overlay bears the label
//! `dovetail.sh/generated` and ranks below all others ([`crate::Overlay::new`]), so that it never says anything over a
//! person's, and is of no use as soon as one of these describes the same.
//!
//! Left out: pools that nodes share. Which machine brought them cannot be told from slices.

use std::collections::{BTreeMap, BTreeSet};

use api::{NodeOverlay, NodeSelectorRequirement, Operator, annotations, labels};
use dra_types::{DriverName, NodeScope, PoolName, ResourceSlice};

use crate::capture::{self, Captured, Source};

/// A machine that is up.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Its Node.
    pub node_name: &'a str,
    /// Its instance type.
    pub instance_type: &'a str,
    /// Its node class, in a form that tells classes apart.
    pub node_class: &'a str,
    /// Drivers that templates describe on the type in its NodePool.
    pub described: &'a BTreeSet<&'a str>,
}

/// A driver on a type and node class without a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    /// The driver.
    pub driver: DriverName,
    /// The instance type.
    pub instance_type: String,
    /// The node class.
    pub node_class: String,
    /// The first machine on which it was seen, by name of its Node.
    pub node_name: String,
    /// How many devices the driver has published there.
    pub devices: usize,
}

/// The gaps, by driver, type and node class.
pub fn gaps<'s>(machines: &[Machine<'_>], slices: impl IntoIterator<Item = &'s ResourceSlice>) -> Vec<Gap> {
    let mut by_node: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        if let Some(NodeScope::Node(node)) = &slice.node_scope {
            by_node.entry(node.as_str()).or_default().push(slice);
        }
    }
    let mut found: BTreeMap<(DriverName, &str, &str), Gap> = BTreeMap::new();
    for machine in machines {
        let of_node = by_node.get(machine.node_name).map_or(&[][..], Vec::as_slice);
        for (driver, devices) in complete(of_node) {
            if machine.described.contains(driver.as_str()) {
                continue;
            }
            let gap = Gap {
                driver: driver.clone(),
                instance_type: machine.instance_type.to_owned(),
                node_class: machine.node_class.to_owned(),
                node_name: machine.node_name.to_owned(),
                devices,
            };
            let key = (driver.clone(), machine.instance_type, machine.node_class);
            match found.get_mut(&key) {
                Some(known) if known.node_name <= gap.node_name => {}
                Some(known) => *known = gap,
                None => drop(found.insert(key, gap)),
            }
        }
    }
    found.into_values().collect()
}

/// Drivers whose pools on a node are all complete, with the number of their devices; only drivers with devices.
fn complete<'s>(slices: &[&'s ResourceSlice]) -> Vec<(&'s DriverName, usize)> {
    let mut pools: BTreeMap<(&DriverName, &PoolName), Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        pools.entry((&slice.driver, &slice.pool.name)).or_default().push(slice);
    }
    let mut drivers: BTreeMap<&DriverName, Option<usize>> = BTreeMap::new();
    for ((driver, _), slices) in pools {
        let newest = slices.iter().map(|slice| slice.pool.generation).max().unwrap_or_default();
        let newest: Vec<_> = slices.iter().filter(|slice| slice.pool.generation == newest).collect();
        let is_complete = newest
            .iter()
            .all(|slice| i64::try_from(newest.len()).is_ok_and(|count| count == slice.pool.resource_slice_count));
        let devices: usize = newest.iter().map(|slice| slice.devices.len()).sum();
        let so_far = drivers.entry(driver).or_insert(Some(0));
        *so_far = so_far.filter(|_| is_complete).map(|count| count + devices);
    }
    drivers.into_iter().filter_map(|(driver, devices)| Some((driver, devices.filter(|count| *count > 0)?))).collect()
}

/// An overlay that closes a gap for some NodePools, from the machine on which it was seen; `source` is that machine
/// with the gap's driver.
///
/// # Errors
/// The slices cannot be described.
pub fn overlay(gap: &Gap, source: &Source<'_>, node_pools: &[&str]) -> Result<Captured, capture::Error> {
    let mut captured = capture::capture(source)?;
    let overlay = &mut captured.overlay;
    overlay.spec.requirements.push(NodeSelectorRequirement {
        key: labels::NODEPOOL.to_owned(),
        operator: Operator::In,
        values: node_pools.iter().map(|&name| name.to_owned()).collect(),
    });
    overlay.metadata.name = Some(name(gap));
    let of = &mut overlay.metadata;
    of.labels.get_or_insert_default().insert(labels::GENERATED.to_owned(), labels::TRUE.to_owned());
    let from = format!("{} on {} ({}), node {}", gap.driver, gap.instance_type, gap.node_class, gap.node_name);
    of.annotations.get_or_insert_default().insert(annotations::GENERATED_FROM.to_owned(), from);
    Ok(captured)
}

/// Whether an overlay was made here.
pub fn is_generated(overlay: &NodeOverlay) -> bool {
    overlay.metadata.labels.as_ref().and_then(|of| of.get(labels::GENERATED)).is_some_and(|value| value == labels::TRUE)
}

/// A name that only depends on driver, type and node class.
fn name(gap: &Gap) -> String {
    // FNV-1a: a name must not change with a release of a hasher.
    let text = [gap.driver.as_str(), &gap.instance_type, &gap.node_class].join("\n");
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let readable: String = format!("{}-{}", gap.instance_type, gap.driver)
        .to_ascii_lowercase()
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it } else { '-' })
        .take(150)
        .collect();
    format!("generated-{}-{hash:016x}", readable.trim_matches('-'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TYPE: &str = "m-8x-amd64-linux";

    fn slice(node: &str, driver: &str, devices: usize, count: usize) -> ResourceSlice {
        let devices: Vec<Value> = (0..devices)
            .map(|index| json!({"name": format!("gpu-{index}"), "attributes": {"model": {"string": "x1"}}}))
            .collect();
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-{driver}")},
            "spec": {"driver": driver, "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": count}},
        });
        ResourceSlice::from_json(&object).unwrap()
    }

    #[test]
    fn a_driver_is_a_gap_once_for_each_type_and_node_class_where_its_pools_are_complete_and_not_described() {
        let (nothing, gpus) = (BTreeSet::new(), BTreeSet::from(["gpu"]));
        let machine = |node_name, instance_type, node_class, described| Machine {
            node_name,
            instance_type,
            node_class,
            described,
        };
        let machines = [
            machine("b", TYPE, "one", &nothing),
            machine("a", TYPE, "one", &nothing),
            machine("c", TYPE, "two", &nothing),
            machine("d", "other", "one", &gpus),
            machine("e", "half", "one", &nothing),
        ];
        let slices = [
            slice("a", "gpu", 2, 1),
            slice("b", "gpu", 2, 1),
            slice("c", "gpu", 3, 1),
            slice("d", "gpu", 2, 1),
            slice("e", "gpu", 2, 2),
            slice("a", "empty", 0, 1),
            slice("elsewhere", "gpu", 2, 1),
        ];
        let found: Vec<(String, String, usize)> =
            gaps(&machines, &slices).into_iter().map(|gap| (gap.node_class, gap.node_name, gap.devices)).collect();
        assert_eq!(found, [("one".into(), "a".into(), 2), ("two".into(), "c".into(), 3)]);
    }

    #[test]
    fn what_is_made_says_so_and_is_for_the_node_pools_of_the_class_alone() {
        let nothing = BTreeSet::new();
        let machine = Machine { node_name: "a", instance_type: TYPE, node_class: "one", described: &nothing };
        let slices = [slice("a", "gpu.example.com", 2, 1), slice("a", "nic.example.com", 1, 1)];
        let gaps = gaps(&[machine], &slices);
        let node_labels = BTreeMap::from([(labels::INSTANCE_TYPE.to_owned(), TYPE.to_owned())]);
        let all: Vec<&ResourceSlice> = slices.iter().collect();
        let source = Source {
            node_name: "a",
            labels: &node_labels,
            slices: &all,
            label_of_type: &|_| None,
            driver: Some("gpu.example.com"),
            without: &[],
        };
        let made = overlay(&gaps[0], &source, &["p", "q"]).unwrap().overlay;
        assert!(is_generated(&made));
        let name = made.metadata.name.as_deref().unwrap();
        assert!(name.starts_with("generated-m-8x-amd64-linux-gpu-example-com-"), "{name}");
        let requirements: Vec<(&str, Vec<&str>)> = made
            .spec
            .requirements
            .iter()
            .map(|it| (it.key.as_str(), it.values.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(requirements, [(labels::INSTANCE_TYPE, vec![TYPE]), (labels::NODEPOOL, vec!["p", "q"])]);
        let templates = &made.spec.dynamic_resources.as_ref().unwrap().resource_slice_templates;
        assert_eq!(templates.iter().map(|it| it.spec.driver.as_str()).collect::<Vec<_>>(), ["gpu.example.com"]);
        assert_eq!(
            made.metadata.annotations.as_ref().unwrap()[annotations::GENERATED_FROM],
            "gpu.example.com on m-8x-amd64-linux (one), node a"
        );
    }
}
