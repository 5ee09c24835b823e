//! Whether the DRA drivers of a machine have published what its templates say.
//!
//! At launch the NodeClaim gets the drivers and how many devices each is to bring ([`annotation`]). Until their pools
//! on the node are complete, at most for `--dra-publish-timeout`, the machine is not initialized, and its templates
//! describe it. Then its slices do: they are held against the templates, and a difference is told. Slices win.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::conditions::node_claim::DEVICES_PUBLISHED;
use api::{NodeClaim, conditions};
use dra_templates::Expansion;
use dra_types::{DriverName, NodeFacts, NodeScope, ResourceSlice};
use k8s_openapi::api::core::v1::Node;
use overlay::verify::{Difference, Publication, publication, verify};

/// Differences that a message names before it counts the rest.
const NAMED: usize = 5;

/// What became of a machine's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Devices {
    /// Some drivers have still to publish: which, and in words.
    Awaited(Vec<DriverName>, String),
    /// All have, and this is not as it was described.
    Published(Vec<Difference>),
}

/// The annotation's value: `{"gpu.example.com":8}`. `None` if no driver is expected to publish devices.
pub(crate) fn annotation(expansion: &Expansion) -> Option<String> {
    let counts: BTreeMap<String, usize> =
        expansion.device_counts().into_iter().map(|(driver, count)| (driver.to_string(), count)).collect();
    let is_empty = counts.values().all(|count| *count == 0);
    (!is_empty).then(|| serde_json::to_string(&counts).unwrap_or_default())
}

/// Whether a machine's drivers are expected to publish devices.
pub(crate) fn are_expected(claim: &NodeClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(api::annotations::DEVICES))
}

/// Whether the drivers of a machine have still to publish: they were not given up yet.
pub(crate) fn are_awaited(claim: &NodeClaim) -> bool {
    let decided = super::claim::conditions(claim).iter().filter(|condition| condition.type_ == DEVICES_PUBLISHED);
    are_expected(claim) && decided.into_iter().all(|condition| condition.status == conditions::UNKNOWN)
}

/// Whether a machine's drivers did not publish in time.
pub(crate) fn are_given_up(claim: &NodeClaim) -> bool {
    let mut conditions = super::claim::conditions(claim).iter();
    conditions.any(|condition| condition.type_ == DEVICES_PUBLISHED && condition.status == conditions::FALSE)
}

/// Looks at what is published for a node.
pub(crate) fn look<'s>(
    expansion: &Expansion,
    node: &Node,
    slices: impl Iterator<Item = &'s Arc<ResourceSlice>>,
) -> Devices {
    let facts = facts(node);
    let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap_or(false);
    let drivers = expansion.device_counts();
    let slices: Vec<&ResourceSlice> =
        slices.map(AsRef::as_ref).filter(|slice| drivers.contains_key(&slice.driver)).collect();
    let (missing, words): (Vec<DriverName>, Vec<String>) = drivers
        .iter()
        .filter(|(_, count)| **count > 0)
        .filter_map(|(driver, count)| Some((driver.clone(), awaited(expansion, driver, *count, &slices, &is_here)?)))
        .unzip();
    if missing.is_empty() {
        return Devices::Published(verify(expansion, &slices, &is_here));
    }
    Devices::Awaited(missing, words.join("; "))
}

/// How what is published for a node differs from the templates, by driver, in words. A driver whose pools are not
/// complete differs in that alone.
pub(crate) fn differences(
    expansion: &Expansion,
    node: &Node,
    slices: &[&ResourceSlice],
) -> BTreeMap<DriverName, Vec<String>> {
    let facts = facts(node);
    let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap_or(false);
    let mut different: BTreeMap<DriverName, Vec<String>> = BTreeMap::new();
    for (driver, count) in expansion.device_counts().iter().filter(|(_, count)| **count > 0) {
        if let Some(words) = awaited(expansion, driver, *count, slices, &is_here) {
            different.insert(driver.clone(), vec![words]);
        }
    }
    let incomplete: BTreeSet<DriverName> = different.keys().cloned().collect();
    for difference in verify(expansion, slices, &is_here) {
        if !incomplete.contains(&difference.driver) {
            different.entry(difference.driver.clone()).or_default().push(difference.to_string());
        }
    }
    different
}

fn awaited(
    expansion: &Expansion,
    driver: &DriverName,
    count: usize,
    slices: &[&ResourceSlice],
    is_here: &dyn Fn(&NodeScope) -> bool,
) -> Option<String> {
    match publication(expansion, driver, slices, is_here) {
        Publication::Complete => None,
        Publication::Incomplete => Some(format!("{driver} has a pool of which slices are missing")),
        Publication::Nothing => Some(format!("{driver} has not published its {count} device(s)")),
    }
}

fn facts(node: &Node) -> NodeFacts {
    let labels = node.metadata.labels.iter().flatten();
    NodeFacts {
        name: node.metadata.name.as_deref().map(Into::into),
        labels: labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
        ..NodeFacts::default()
    }
}

/// The first differences, and how many more there are.
pub(crate) fn in_words(differences: &[Difference]) -> String {
    let mut text: Vec<String> = differences.iter().take(NAMED).map(ToString::to_string).collect();
    if differences.len() > NAMED {
        text.push(format!("{} more", differences.len() - NAMED));
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    use dra_templates::layout::{Host, slices};
    use serde_json::{Value, json};

    use super::*;

    fn expansion() -> Expansion {
        let device = json!({"name": "gpu-{index}", "replicas": 2, "attributes": {"model": {"string": "x1"}}});
        let resources = json!({"resourceSliceTemplates": [
            {"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com", "devices": [device]}},
            {"metadata": {"name": "nics"}, "spec": {"driver": "nic.example.com", "devices": [{"name": "nic"}]}},
        ]});
        Expansion::new(&serde_json::from_value(resources).unwrap(), &|_| None).unwrap()
    }

    fn looked(change: impl FnOnce(&mut Vec<Value>)) -> Devices {
        let (expansion, labels) = (expansion(), BTreeMap::new());
        let host = Host { node_name: "n1", labels: &labels };
        let mut json: Vec<Value> = expansion.pools.iter().flat_map(|pool| slices(pool, host).unwrap()).collect();
        change(&mut json);
        let slices: Vec<Arc<ResourceSlice>> =
            json.iter().map(|slice| Arc::new(ResourceSlice::from_json(slice).unwrap())).collect();
        let node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        look(&expansion, &node, slices.iter())
    }

    #[test]
    fn the_annotation_counts_the_devices_of_each_driver() {
        assert_eq!(annotation(&expansion()).as_deref(), Some(r#"{"gpu.example.com":2,"nic.example.com":1}"#));
        assert_eq!(annotation(&Expansion::default()), None);
    }

    #[test]
    fn each_driver_that_is_not_ready_is_named() {
        assert_eq!(looked(|_| {}), Devices::Published(Vec::new()));
        assert_eq!(
            looked(|slices| slices[0]["spec"]["pool"]["resourceSliceCount"] = json!(2)),
            Devices::Awaited(
                vec!["gpu.example.com".into()],
                "gpu.example.com has a pool of which slices are missing".to_owned()
            )
        );
        assert_eq!(
            looked(Vec::clear),
            Devices::Awaited(
                vec!["gpu.example.com".into(), "nic.example.com".into()],
                "gpu.example.com has not published its 2 device(s); nic.example.com has not published its 1 device(s)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn what_differs_is_told_in_a_few_words() {
        let Devices::Published(differences) = looked(|slices| {
            slices[0]["spec"]["devices"][1]["attributes"]["model"]["string"] = json!("x2");
        }) else {
            panic!("not published")
        };
        assert_eq!(in_words(&differences), "gpu.example.com: device gpu-1 has \"x2\" for attribute model, not \"x1\"");
        let many = vec![differences[0].clone(); 7];
        assert!(in_words(&many).ends_with("; 2 more"));
    }
}
