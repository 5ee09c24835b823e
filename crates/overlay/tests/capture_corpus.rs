//! Overlays captured from nodes of the corpus of published objects: templates expanded for such a machine match the
//! slices that they come from, and claims get devices of the same shape from both.
//!
//! The objects are not part of the repository, see the crate `corpus`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dra_sched::{ClusterLedger, InventoryBuilder, Verdict, allocate};
use dra_templates::Expansion;
use dra_templates::layout::{Host, slices};
use dra_types::{
    AttributeValue, ClaimTemplate, Compat, Device, DeviceClass, DeviceId, Gates, KubernetesMinor, NodeFacts, NodeScope,
    ResourceClaim, ResourceClaimSpec, ResourceSlice, validate,
};
use model::Budget;
use overlay::capture::{Captured, Source, capture, implied_labels};
use overlay::verify::{Publication, publication, verify};
use serde_json::{Value, json};

const STEPS: u64 = 200_000;
const INSTANCE_TYPE: &str = "corpus-type";

/// The slices of one node.
struct Machine {
    name: String,
    files: Vec<String>,
    slices: Vec<Arc<ResourceSlice>>,
    labels: BTreeMap<String, String>,
}

impl Machine {
    fn references(&self) -> Vec<&ResourceSlice> {
        self.slices.iter().map(AsRef::as_ref).collect()
    }

    fn facts(&self) -> NodeFacts {
        let labels = self.labels.iter();
        NodeFacts {
            name: Some(self.name.as_str().into()),
            labels: labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
            ..NodeFacts::default()
        }
    }

    fn captured(&self) -> Result<Captured, overlay::capture::Error> {
        let slices = self.references();
        capture(&Source {
            node_name: &self.name,
            labels: &self.labels,
            slices: &slices,
            label_of_type: &|key| (key == api::labels::INSTANCE_TYPE).then(|| INSTANCE_TYPE.to_owned()),
            driver: None,
            without: &[],
        })
    }

    fn expansion(&self, captured: &Captured) -> Expansion {
        let resources = captured.overlay.spec.dynamic_resources.clone().unwrap_or_default();
        Expansion::new(&resources, &|key| self.labels.get(key).cloned()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The objects of these kinds that a real API server takes, with their files.
fn objects(corpus: &Path, kinds: &[&str]) -> Vec<(String, Value)> {
    let wanted = corpus::index::<Value>(corpus).into_iter().filter(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        kinds.contains(&text("kind"))
            && text("check").starts_with("accepted")
            && !text("check").starts_with("accepted only")
    });
    let read = |entry: Value| {
        let file = entry["file"].as_str().unwrap().to_owned();
        let text = std::fs::read_to_string(corpus.join(&file)).unwrap();
        (file, serde_saphyr::from_str(&text).unwrap())
    };
    wanted.map(read).collect()
}

/// The nodes, each with the slices that name it. Where documents show a pool several times, each is a node of its own.
fn machines(corpus: &Path) -> Vec<Machine> {
    let mut machines: Vec<Machine> = Vec::new();
    for (file, object) in objects(corpus, &["ResourceSlice"]) {
        let slice = Arc::new(ResourceSlice::from_json(&object).unwrap());
        validate::slice(&slice).unwrap();
        let name = match &slice.node_scope {
            Some(NodeScope::Node(name)) => name.to_string(),
            _ => format!("of-{}", slice.pool.name),
        };
        let has_room = |machine: &&mut Machine| {
            let of_pool = machine.slices.iter().filter(|it| it.pool_id() == slice.pool_id()).count();
            machine.name == name && i64::try_from(of_pool).unwrap() < slice.pool.resource_slice_count
        };
        match machines.iter_mut().find(has_room) {
            Some(machine) => {
                machine.files.push(file);
                machine.slices.push(slice);
            }
            None => {
                machines.push(Machine { name, files: vec![file], slices: vec![slice], labels: BTreeMap::new() });
            }
        }
    }
    for machine in &mut machines {
        machine.labels = implied_labels(&machine.references());
        machine.labels.insert(api::labels::INSTANCE_TYPE.to_owned(), INSTANCE_TYPE.to_owned());
        machine.labels.insert(api::labels::HOSTNAME.to_owned(), machine.name.clone());
    }
    machines
}

/// The slices that drivers would publish for a machine of which only templates are known.
fn published(machine: &Machine, expansion: &Expansion) -> Vec<Arc<ResourceSlice>> {
    let expansion = expansion.clone().with_values(|group| format!("value-{group}"));
    let host = Host { node_name: &machine.name, labels: &machine.labels };
    let all = expansion.pools.iter().flat_map(|pool| slices(pool, host).unwrap());
    all.map(|slice| Arc::new(ResourceSlice::from_json(&slice).unwrap())).collect()
}

#[test]
fn templates_captured_from_a_node_match_its_slices_and_the_api_server_takes_them() {
    const NAME: &str = "overlay, templates captured from real nodes";
    let Some(corpus) = corpus::open(NAME, "corpus/dra") else { return };
    let admission = api::admission::Admission::new(&api::crd::crds()).unwrap();
    let (mut devices, mut drivers, mut passed) = (0, BTreeSet::new(), 0);
    for machine in machines(&corpus) {
        let captured = match machine.captured() {
            Ok(captured) => captured,
            Err(error) => {
                println!("skipped: {:?}: {error}", machine.files);
                assert!(error.to_string().contains("slices are missing"), "{:?}: {error}", machine.files);
                continue;
            }
        };
        let json = serde_json::to_value(&captured.overlay).unwrap();
        admission.admit(&json, api::admission::Operation::Create).unwrap_or_else(|errors| {
            panic!("{:?}: {errors:?}", machine.files);
        });
        let expansion = machine.expansion(&captured);
        let facts = machine.facts();
        let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap();
        for slices in [&machine.slices, &published(&machine, &expansion)] {
            let slices: Vec<&ResourceSlice> = slices.iter().map(AsRef::as_ref).collect();
            let differences = verify(&expansion, &slices, &is_here);
            assert!(differences.is_empty(), "{:?}: {}\n{json:#}", machine.files, differences[0]);
            for driver in expansion.device_counts().keys() {
                assert_eq!(publication(&expansion, driver, &slices, &is_here), Publication::Complete);
            }
        }
        let count: usize = machine.slices.iter().map(|slice| slice.devices.len()).sum();
        assert_eq!(expansion.device_counts().values().sum::<usize>(), count, "{:?}", machine.files);
        devices += count;
        drivers.extend(expansion.device_counts().into_keys());
        passed += 1;
    }
    corpus::note(NAME, &format_args!("{passed} nodes with {devices} devices of {} drivers", drivers.len()));
    assert!(passed >= 25 && drivers.len() >= 10, "{passed} nodes, {} drivers", drivers.len());
}

/// A device without what tells it from others of its shape.
fn shape(device: &Device) -> String {
    // Places are told by decimal numbers, and PCI addresses by hexadecimal ones.
    let blunt = |text: &str| {
        let is_address = text.matches(':').count() == 2;
        text.replace(|it: char| it.is_ascii_digit() || (is_address && it.is_ascii_hexdigit()), "#")
    };
    let attributes: Vec<String> = device
        .attributes
        .iter()
        .filter(|(_, value)| !matches!(value, AttributeValue::Int(_)))
        .map(|(name, value)| format!("{name}={}", blunt(&value.to_string())))
        .collect();
    let capacity: Vec<String> = device.capacity.iter().map(|(name, it)| format!("{name}={}", it.value)).collect();
    format!("{} {attributes:?} {capacity:?}", blunt(device.name.as_str()))
}

/// What claims get on a node, each alone: the shapes of their devices by request, or nothing.
fn asked(
    machine: &Machine,
    slices: &[Arc<ResourceSlice>],
    classes: &[Arc<DeviceClass>],
    claims: &[(String, Arc<ResourceClaimSpec>)],
    shape_of: &dyn Fn(&DeviceId) -> String,
) -> Vec<Option<Vec<(String, String)>>> {
    let compat = Compat::with_gates(KubernetesMinor::V1_36, Gates::all(KubernetesMinor::V1_36));
    let mut builder = InventoryBuilder::new(compat);
    classes.iter().for_each(|class| builder.class(Arc::clone(class)));
    slices.iter().for_each(|slice| builder.slice(Arc::clone(slice)));
    let ids: Vec<_> = claims.iter().map(|(name, claim)| builder.claim_class(name, claim, None)).collect();
    let inventory = builder.build();
    let ledger = ClusterLedger::new(&inventory);
    let allocated = ids.iter().map(|class| {
        match allocate(&inventory, &machine.facts(), &[*class], &ledger, &mut Budget::new(STEPS)) {
            Verdict::Allocated { allocations, .. } => {
                let results = allocations.iter().flat_map(|allocation| &allocation.results);
                Some(results.map(|it| (it.request.to_string(), shape_of(&it.device))).collect())
            }
            Verdict::Refused(_) => None,
            Verdict::OutOfBudget(_) => panic!("{}: out of budget", machine.name),
        }
    });
    allocated.collect()
}

/// Claims for one, two and all devices of a class, and for two that share an attribute; and two drivers' that do.
fn claims_of(machine: &Machine) -> Vec<(String, Value)> {
    let drivers: BTreeSet<&str> = machine.slices.iter().map(|slice| slice.driver.as_str()).collect();
    let request = |name: &str, class: &str, count: u32| json!({"name": name, "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}});
    let mut claims = Vec::new();
    for driver in &drivers {
        for count in 1..=3 {
            claims.push((format!("{count} of {driver}"), json!({"requests": [request("r", driver, count)]})));
        }
        let all = json!({"name": "r", "exactly": {"deviceClassName": driver, "allocationMode": "All"}});
        claims.push((format!("all of {driver}"), json!({"requests": [all]})));
        let of_driver = machine.slices.iter().filter(|slice| slice.driver.as_str() == *driver);
        let devices: Vec<&Device> = of_driver.flat_map(|slice| &slice.devices).collect();
        let attributes: BTreeSet<String> = devices
            .iter()
            .flat_map(|device| device.attributes.keys())
            .map(|name| {
                let (domain, id) = name.resolve(&machine.slices[0].driver);
                if name.domain().is_some() { format!("{domain}/{id}") } else { format!("{driver}/{id}") }
            })
            .collect();
        for attribute in attributes {
            let constraint = json!([{"requests": ["r"], "matchAttribute": attribute}]);
            let claim = json!({"requests": [request("r", driver, 2)], "constraints": constraint});
            claims.push((format!("2 of {driver} with one {attribute}"), claim));
        }
    }
    for (one, other) in drivers.iter().zip(drivers.iter().skip(1)) {
        for (count, root) in [(1, "resource.kubernetes.io/pcieRoot"), (2, "resource.kubernetes.io/pcieRoot")] {
            let constraint = json!([{"requests": ["a", "b"], "matchAttribute": root}]);
            let requests = [request("a", one, count), request("b", other, 1)];
            let claim = json!({"requests": requests, "constraints": constraint});
            claims.push((format!("{count} of {one} and one of {other} on one root"), claim));
        }
    }
    claims
}

#[test]
fn claims_get_devices_of_the_same_shape_from_templates_as_from_the_slices_they_come_from() {
    const NAME: &str = "overlay, claims on captured templates";
    let Some(corpus) = corpus::open(NAME, "corpus/dra") else { return };
    let mut classes: BTreeMap<String, Arc<DeviceClass>> = BTreeMap::new();
    for (_, object) in objects(&corpus, &["DeviceClass"]) {
        let class = DeviceClass::from_json(&object).unwrap();
        classes.insert(class.meta.name.name.to_string(), Arc::new(class));
    }
    let mut specs: Vec<(String, Arc<ResourceClaimSpec>)> = Vec::new();
    for (file, object) in objects(&corpus, &["ResourceClaim"]) {
        specs.push((file, Arc::new(ResourceClaim::from_json(&object).unwrap().spec)));
    }
    for (file, object) in objects(&corpus, &["ResourceClaimTemplate"]) {
        specs.push((file, Arc::new(ClaimTemplate::from_json(&object).unwrap().spec)));
    }
    let (mut allocated, mut refused) = (0, 0);
    let mut different = Vec::new();
    for machine in machines(&corpus) {
        let Ok(captured) = machine.captured() else { continue };
        let expansion = machine.expansion(&captured);
        let published = published(&machine, &expansion);
        // Many of the corpus's classes come with their drivers' charts and are named like them.
        let mut classes = classes.clone();
        for slice in &machine.slices {
            let driver = slice.driver.as_str();
            let spec = json!({"selectors": [{"cel": {"expression": format!("device.driver == \"{driver}\"")}}]});
            let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver}, "spec": spec});
            classes.entry(driver.to_owned()).or_insert_with(|| Arc::new(DeviceClass::from_json(&class).unwrap()));
        }
        let classes: Vec<Arc<DeviceClass>> = classes.into_values().collect();
        let mut asked_for = specs.clone();
        for (name, devices) in claims_of(&machine) {
            let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}});
            asked_for.push((name, Arc::new(ResourceClaim::from_json(&claim).unwrap().spec)));
        }
        let described = |id: &DeviceId| {
            let of_driver = expansion.pools.iter().filter(|pool| pool.driver == id.driver);
            let device = of_driver.flat_map(|pool| &pool.devices).find(|it| it.device.name == id.device);
            device.map_or_else(|| id.to_string(), |it| shape(&it.device))
        };
        let live = asked(&machine, &machine.slices, &classes, &asked_for, &described);
        let planned = asked(&machine, &published, &classes, &asked_for, &described);
        for (((name, _), live), planned) in asked_for.iter().zip(live).zip(planned) {
            match (&live, &planned) {
                (Some(_), Some(_)) => allocated += 1,
                (None, None) => refused += 1,
                _ => {}
            }
            if live != planned {
                different.push(format!("{} {name}\n  live    {live:?}\n  planned {planned:?}", machine.name));
            }
        }
    }
    let sums = format_args!("{allocated} claims allocated, {refused} refused on both, {} differ", different.len());
    corpus::note(NAME, &sums);
    for line in &different {
        println!("{line}");
    }
    assert!(different.is_empty(), "{} differ", different.len());
    assert!(allocated > 300, "{allocated} allocated");
}
