//! Whether the DRA drivers of a machine have published what its templates say.
//!
//! At launch the NodeClaim gets the drivers and how many devices each is to bring ([`annotation`]); plans note on it
//! the drivers whose devices its pods claim ([`with_requested`]). Until the pools on the node of drivers that are in
//! both are complete, at most for `--dra-publish-timeout`, the machine is not initialized, and its templates describe
//! it. Then its slices do: they are held against the templates, and a difference is told. Slices win.
//!
//! Nobody waits for other drivers: a provider's catalogue describes devices of drivers that need not be installed.
//! Karpenter waits for drivers in the same way (`pkg/controllers/nodeclaim/lifecycle/initialization.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::conditions::node_claim::DEVICES_PUBLISHED;
use api::{NodeClaim, annotations, conditions};
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
    /// All that are awaited have.
    Published {
        /// How many devices each driver was to bring that has published, also those that nobody waited for.
        drivers: BTreeMap<DriverName, usize>,
        /// What of that is not as it was described.
        differences: Vec<Difference>,
    },
}

/// The annotation's value: `{"gpu.example.com":8}`. `None` if no driver is expected to publish devices.
pub(crate) fn annotation(expansion: &Expansion) -> Option<String> {
    let counts: BTreeMap<String, usize> =
        expansion.device_counts().into_iter().map(|(driver, count)| (driver.to_string(), count)).collect();
    let is_empty = counts.values().all(|count| *count == 0);
    (!is_empty).then(|| serde_json::to_string(&counts).unwrap_or_default())
}

/// Whether a machine was launched as one with devices.
pub(crate) fn are_described(claim: &NodeClaim) -> bool {
    of_claim(claim, annotations::DEVICES).is_some()
}

/// Whether a machine waits for drivers: pods that are planned on it claim devices that it is to bring.
pub(crate) fn are_expected(claim: &NodeClaim) -> bool {
    let Some(described) = of_claim(claim, annotations::DEVICES) else { return false };
    // Somebody else may have written it.
    let counts: BTreeMap<String, usize> = serde_json::from_str(described).unwrap_or_default();
    counts.iter().any(|(driver, count)| *count > 0 && is_requested(claim, driver))
}

/// Whether pods that were planned on a machine claim devices of a driver.
pub(crate) fn is_requested(claim: &NodeClaim, driver: &str) -> bool {
    requested(claim).any(|known| known == driver)
}

/// The annotation of a NodeClaim whose pods claim devices of these drivers too; `None` if it says so already.
pub(crate) fn with_requested<'d>(claim: &'d NodeClaim, drivers: impl IntoIterator<Item = &'d str>) -> Option<String> {
    let before: BTreeSet<&str> = requested(claim).collect();
    let after: BTreeSet<&str> = before.iter().copied().chain(drivers).collect();
    (after.len() > before.len()).then(|| after.into_iter().collect::<Vec<_>>().join(","))
}

fn requested(claim: &NodeClaim) -> impl Iterator<Item = &str> {
    drivers_in(claim, annotations::REQUESTED_DRA_DRIVERS)
}

/// The drivers that are noted to have taken devices of a machine away ([`note_lost`]).
pub(crate) fn lost(claim: &NodeClaim) -> BTreeSet<DriverName> {
    drivers_in(claim, annotations::LOST_DRA_DRIVERS).map(DriverName::from).collect()
}

/// Notes which drivers have taken devices of a machine away, or that none has.
pub(crate) fn note_lost(claim: &mut NodeClaim, drivers: &BTreeSet<DriverName>) {
    let notes = claim.metadata.annotations.get_or_insert_default();
    if drivers.is_empty() {
        notes.remove(annotations::LOST_DRA_DRIVERS);
    } else {
        let drivers: Vec<&str> = drivers.iter().map(DriverName::as_str).collect();
        notes.insert(annotations::LOST_DRA_DRIVERS.to_owned(), drivers.join(","));
    }
}

/// The drivers in an annotation that lists them.
fn drivers_in<'c>(claim: &'c NodeClaim, annotation: &str) -> impl Iterator<Item = &'c str> + use<'c> {
    of_claim(claim, annotation).unwrap_or_default().split(',').filter(|driver| !driver.is_empty())
}

fn of_claim<'c>(claim: &'c NodeClaim, key: &str) -> Option<&'c str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
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

/// Looks at what is published for a node that waits for some of its drivers.
pub(crate) fn look<'s>(
    expansion: &Expansion,
    is_awaited: impl Fn(&DriverName) -> bool,
    node: &Node,
    slices: impl Iterator<Item = &'s Arc<ResourceSlice>>,
) -> Devices {
    let facts = facts(node);
    let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap_or(false);
    let mut drivers = expansion.device_counts();
    drivers.retain(|_, count| *count > 0);
    let slices: Vec<&ResourceSlice> =
        slices.map(AsRef::as_ref).filter(|slice| drivers.contains_key(&slice.driver)).collect();
    let mut missing: BTreeMap<DriverName, String> = drivers
        .iter()
        .filter_map(|(driver, count)| Some((driver.clone(), awaited(expansion, driver, *count, &slices, &is_here)?)))
        .collect();
    drivers.retain(|driver, _| !missing.contains_key(driver));
    missing.retain(|driver, _| is_awaited(driver));
    if missing.is_empty() {
        // A driver that is not there, or not yet, is no difference as long as nobody waits for it.
        let mut differences = verify(expansion, &slices, &is_here);
        differences.retain(|difference| drivers.contains_key(&difference.driver));
        return Devices::Published { drivers, differences };
    }
    let (missing, words): (Vec<DriverName>, Vec<String>) = missing.into_iter().unzip();
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

    /// What a machine finds that waits for these drivers.
    fn looked(awaited: &[&str], change: impl FnOnce(&mut Vec<Value>)) -> Devices {
        let (expansion, labels) = (expansion(), BTreeMap::new());
        let host = Host { node_name: "n1", labels: &labels };
        let mut json: Vec<Value> = expansion.pools.iter().flat_map(|pool| slices(pool, host).unwrap()).collect();
        change(&mut json);
        let slices: Vec<Arc<ResourceSlice>> =
            json.iter().map(|slice| Arc::new(ResourceSlice::from_json(slice).unwrap())).collect();
        let node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        look(&expansion, |driver| awaited.contains(&driver.as_str()), &node, slices.iter())
    }

    #[test]
    fn the_annotation_counts_the_devices_of_each_driver() {
        assert_eq!(annotation(&expansion()).as_deref(), Some(r#"{"gpu.example.com":2,"nic.example.com":1}"#));
        assert_eq!(annotation(&Expansion::default()), None);
    }

    fn published(drivers: &[(&str, usize)]) -> Devices {
        let drivers = drivers.iter().map(|(driver, count)| (DriverName::from(*driver), *count)).collect();
        Devices::Published { drivers, differences: Vec::new() }
    }

    #[test]
    fn a_machine_waits_for_the_drivers_that_its_pods_claim_and_names_each_that_is_not_ready() {
        let (gpu, nic) = ("gpu.example.com", "nic.example.com");
        let incomplete = |slices: &mut Vec<Value>| slices[0]["spec"]["pool"]["resourceSliceCount"] = json!(2);
        let without = |driver: &'static str| {
            move |slices: &mut Vec<Value>| slices.retain(|slice| slice["spec"]["driver"] != driver)
        };
        assert_eq!(looked(&[gpu, nic], |_| {}), published(&[(gpu, 2), (nic, 1)]));
        assert_eq!(
            looked(&[gpu, nic], incomplete),
            Devices::Awaited(vec![gpu.into()], "gpu.example.com has a pool of which slices are missing".to_owned())
        );
        assert_eq!(
            looked(&[gpu, nic], Vec::clear),
            Devices::Awaited(
                vec![gpu.into(), nic.into()],
                "gpu.example.com has not published its 2 device(s); nic.example.com has not published its 1 device(s)"
                    .to_owned()
            )
        );
        // The other driver may never come, or be half there.
        assert_eq!(looked(&[nic], incomplete), published(&[(nic, 1)]));
        assert_eq!(looked(&[nic], without(gpu)), published(&[(nic, 1)]));
        assert_eq!(looked(&[gpu], without(nic)), published(&[(gpu, 2)]));
        assert_eq!(
            looked(&[nic], without(nic)),
            Devices::Awaited(vec![nic.into()], "nic.example.com has not published its 1 device(s)".to_owned())
        );
    }

    fn claim(annotations: &Value) -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "m", "annotations": annotations},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        }))
        .unwrap()
    }

    #[test]
    fn drivers_are_expected_that_are_described_and_claimed() {
        let described = r#"{"gpu.example.com":2,"none.example.com":0}"#;
        for (described, requested, expected) in [
            (None, None, false),
            (None, Some("gpu.example.com"), false),
            (Some(described), None, false),
            (Some(described), Some(""), false),
            (Some(described), Some("gpu.example.com"), true),
            (Some(described), Some("disk.example.com,gpu.example.com"), true),
            (Some(described), Some("disk.example.com"), false),
            (Some(described), Some("gpu.example"), false),
            (Some(described), Some("none.example.com"), false),
            (Some("what is this"), Some("gpu.example.com"), false),
        ] {
            let mut all = serde_json::Map::new();
            all.extend(described.map(|it| (annotations::DEVICES.to_owned(), json!(it))));
            all.extend(requested.map(|it| (annotations::REQUESTED_DRA_DRIVERS.to_owned(), json!(it))));
            let claim = claim(&all.into());
            assert_eq!(are_expected(&claim), expected, "{described:?} {requested:?}");
            assert_eq!(are_described(&claim), described.is_some());
        }
    }

    #[test]
    fn lost_drivers_are_noted_and_read_by_whole_names() {
        let mut noted = claim(&json!({"other": "stays"}));
        for drivers in [&["gpu.example.com", "nic.example.com"][..], &["example.com"], &[]] {
            let drivers: BTreeSet<DriverName> = drivers.iter().map(|driver| DriverName::from(*driver)).collect();
            note_lost(&mut noted, &drivers);
            assert_eq!(lost(&noted), drivers);
        }
        assert_eq!(noted.metadata.annotations, Some([("other".to_owned(), "stays".to_owned())].into()));
    }

    #[test]
    fn drivers_of_later_pods_are_added_by_name_and_only_if_they_are_new() {
        let requested = |value: &str| claim(&json!({annotations::REQUESTED_DRA_DRIVERS: value}));
        assert_eq!(with_requested(&claim(&json!({})), ["b", "a"]).as_deref(), Some("a,b"));
        assert_eq!(with_requested(&requested("b,c"), ["a", "c"]).as_deref(), Some("a,b,c"));
        assert_eq!(with_requested(&requested("b,c"), ["c"]), None);
        assert_eq!(with_requested(&claim(&json!({})), []), None);
    }

    #[test]
    fn what_differs_is_told_in_a_few_words() {
        let found = looked(&["gpu.example.com"], |slices| {
            slices[0]["spec"]["devices"][1]["attributes"]["model"]["string"] = json!("x2");
        });
        let Devices::Published { differences, .. } = found else { panic!("not published") };
        assert_eq!(in_words(&differences), "gpu.example.com: device gpu-1 has \"x2\" for attribute model, not \"x1\"");
        let many = vec![differences[0].clone(); 7];
        assert!(in_words(&many).ends_with("; 2 more"));
    }
}
