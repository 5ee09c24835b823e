//! Random questions about one pod: only what an API server would accept.

use dra_types::KubernetesMinor;
use serde_json::{Map, Value, json};

use seeded_random::Random;

const NODE: &str = "node-1";
const GPU: &str = "example.com/gpu";
const NIC: &str = "example.com/nic";
const CLASSES: [&str; 3] = ["class-gpu", "class-nic", "class-any"];
const DRIVERS: [&str; 2] = ["gpu.example.com", "nic.example.com"];
const GATES: [&str; 3] = ["DRAConsumableCapacity", "DRAExtendedResource", "DRANodeAllocatableResources"];

/// A question to a release. Devices say in the shapes of all releases what they cost, each shape something else.
pub(crate) fn question(random: &mut Random, name: &str, release: KubernetesMinor) -> Value {
    let features: Vec<&str> = GATES.into_iter().filter(|_| random.percent(92)).collect();
    let claims: Vec<Value> = (0..random.below(3)).map(|index| claim(random, index)).collect();
    let running: Vec<Value> = (0..random.below(3)).map(|index| running(random, index, release)).collect();
    let mut question = json!({
        "name": name,
        "features": features,
        "classes": classes(random),
        "slices": slices(random),
        "nodes": [node(random)],
        "claims": claims,
        "running": running,
    });
    question["pod"] = pod(random, &question["claims"]);
    share(random, &mut question, release);
    withdraw(random, &mut question);
    question
}

/// Two classes may have one extended resource; then the newer one serves it.
fn classes(random: &mut Random) -> Vec<Value> {
    let mut classes = Vec::new();
    for (name, resource, driver) in
        [(CLASSES[0], GPU, Some(DRIVERS[0])), (CLASSES[1], NIC, Some(DRIVERS[1])), (CLASSES[2], GPU, None)]
    {
        let created = format!("2026-01-0{}T00:00:00Z", 1 + random.below(2));
        let mut class = json!({"metadata": {"name": name, "creationTimestamp": created}, "spec": {}});
        if let Some(driver) = driver {
            class["spec"]["selectors"] = json!([{"cel": {"expression": format!("device.driver == \"{driver}\"")}}]);
        }
        let chance = if driver.is_some() { 85 } else { 8 };
        if random.percent(chance) {
            class["spec"]["extendedResourceName"] = resource.into();
        }
        classes.push(class);
    }
    classes
}

fn slices(random: &mut Random) -> Vec<Value> {
    DRIVERS
        .iter()
        .map(|driver| {
            let count = 1 + random.below(6);
            // Upstream looks for a device by pool and name, in whichever slice comes first: no two drivers have one
            // name.
            let prefix = &driver[..3];
            let devices: Vec<Value> = (0..count).map(|index| device(random, &format!("{prefix}-{index}"))).collect();
            json!({"metadata": {"name": driver}, "spec": {
                "driver": driver, "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            }})
        })
        .collect()
}

fn device(random: &mut Random, name: &str) -> Value {
    let mut device = json!({"name": name});
    let has_capacity = random.percent(40);
    if has_capacity {
        device["capacity"] = json!({"cores": {"value": random.pick(&["4", "8", "1500m"])}});
        if random.percent(60) {
            device["allowMultipleAllocations"] = true.into();
        }
    }
    if random.percent(45) {
        let mut mappings = Map::new();
        for resource in ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi"] {
            if random.percent(35) {
                mappings.insert(resource.to_owned(), mapping(random, resource, has_capacity));
            }
        }
        if !mappings.is_empty() {
            device["nodeAllocatableResourceMappings"] = Value::Object(mappings);
        }
        let mut resources = Map::new();
        for resource in ["cpu", "memory", "hugepages-2Mi"] {
            if random.percent(35) {
                resources.insert(resource.to_owned(), costs(random, resource, has_capacity));
            }
        }
        if !resources.is_empty() {
            device["nodeAllocatableResources"] = Value::Object(resources);
        }
    }
    device
}

fn mapping(random: &mut Random, resource: &str, has_capacity: bool) -> Value {
    let multiplier = match resource {
        "cpu" => *random.pick(&["1", "500m", "2", "1500m"]),
        _ => *random.pick(&["256Mi", "1Gi", "2Mi"]),
    };
    match random.below(3) {
        0 if has_capacity => json!({"capacityKey": "cores"}),
        1 if has_capacity => json!({"capacityKey": "cores", "allocationMultiplier": multiplier}),
        _ => json!({"allocationMultiplier": multiplier}),
    }
}

/// What 1.37 knows of a device's costs.
fn costs(random: &mut Random, resource: &str, has_capacity: bool) -> Value {
    let amount = |random: &mut Random| match resource {
        "cpu" => *random.pick(&["1", "500m", "2", "1500m"]),
        _ => *random.pick(&["256Mi", "1Gi", "2Mi"]),
    };
    let mut costs = json!({});
    let which = random.below(3);
    if which != 0 {
        costs["mapping"] = if has_capacity && random.percent(60) {
            json!({"capacityKey": "cores", "capacityMultiplier": amount(random)})
        } else {
            json!({"deviceMultiplier": amount(random)})
        };
    }
    if which != 1 {
        costs["overhead"] = match random.below(3) {
            0 => json!({"perPod": amount(random)}),
            1 => json!({"perContainer": amount(random)}),
            _ => json!({"perPod": amount(random), "perContainer": amount(random)}),
        };
    }
    costs
}

/// What devices of a claim cost a pod, in the words of a release.
fn charged(release: KubernetesMinor, claim: &Value, amounts: &[(&str, &str)]) -> Value {
    let mut status = json!({"resourceClaimName": claim, "containers": ["main"]});
    if release < KubernetesMinor::V1_37 {
        status["resources"] = amounts.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect();
    } else {
        status["mapping"] = amounts.iter().map(|(name, amount)| json!({"name": name, "quantity": amount})).collect();
        status["overhead"] = json!([{"name": "memory", "perPod": "1Mi", "perContainer": "2Mi"}]);
    }
    json!({"nodeAllocatableResourceClaimStatuses": [status]})
}

fn node(random: &mut Random) -> Value {
    let mut allocatable = json!({
        "cpu": random.pick(&["8", "12", "32"]),
        "memory": random.pick(&["6Gi", "32Gi"]),
        "ephemeral-storage": "20Gi",
        "pods": "110",
    });
    if random.percent(90) {
        allocatable["hugepages-2Mi"] = (*random.pick(&["512Mi", "1Gi", "8Gi"])).into();
    }
    // What a device plugin offers, or once did.
    for resource in [GPU, NIC] {
        if random.percent(15) {
            allocatable[resource] = (*random.pick(&["0", "2", "4"])).into();
        }
    }
    json!({"metadata": {"name": NODE}, "status": {"allocatable": allocatable}})
}

fn claim(random: &mut Random, index: usize) -> Value {
    let requests: Vec<Value> = (0..1 + random.below(2))
        .map(|request| {
            let mut exactly = json!({
                "deviceClassName": random.pick(&CLASSES), "allocationMode": "ExactCount", "count": 1 + random.below(2),
            });
            if random.percent(3) {
                exactly["deviceClassName"] = "class-absent".into();
            }
            if random.percent(6) {
                // It fails on every device that the walk gets to.
                let expression = "device.attributes[device.driver].absent == 1";
                exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            if random.percent(30) {
                exactly["capacity"] = json!({"requests": {"cores": random.pick(&["1", "2", "500m", "6"])}});
            }
            json!({"name": format!("req-{request}"), "exactly": exactly})
        })
        .collect();
    let name = format!("claim-{index}");
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"devices": {"requests": requests}},
    })
}

/// A pod that takes some of the node, with what its devices cost.
fn running(random: &mut Random, index: usize, release: KubernetesMinor) -> Value {
    let name = format!("running-{index}");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": {"requests": {
            "cpu": random.pick(&["100m", "1", "2500m"]), "memory": random.pick(&["64Mi", "1Gi"]),
        }}}]},
    });
    if random.percent(40) {
        let (cpu, memory) = (*random.pick(&["1", "3"]), *random.pick(&["512Mi", "2Gi"]));
        pod["status"] = charged(release, &"of-running".into(), &[("cpu", cpu), ("memory", memory)]);
    }
    pod
}

/// Sometimes a claim is allocated, and in use by a pod that runs.
fn share(random: &mut Random, question: &mut Value, release: KubernetesMinor) {
    let count = question["claims"].as_array().map_or(0, Vec::len);
    if count == 0 || !random.percent(30) {
        return;
    }
    let device = {
        let devices = &question["slices"][0]["spec"]["devices"];
        devices[random.below(devices.as_array().map_or(0, Vec::len))].clone()
    };
    let mut result = json!({"request": "req-0", "driver": DRIVERS[0], "pool": NODE, "device": device["name"]});
    if device["allowMultipleAllocations"] == true {
        result["shareID"] = "11111111-1111-4111-8111-111111111111".into();
        result["consumedCapacity"] = json!({"cores": "1"});
    }
    let at = random.below(count);
    let claim = &mut question["claims"][at];
    // One request for one device, as the allocation has it.
    claim["spec"]["devices"]["requests"] = json!([{"name": "req-0", "exactly": {
        "deviceClassName": CLASSES[2], "allocationMode": "ExactCount", "count": 1,
    }}]);
    // Now and then of another node, whose device has the same name.
    let node = if random.percent(20) { "node-2" } else { NODE };
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [node]},
    ]}]});
    claim["status"] = json!({"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}});
    if random.percent(80) {
        let runs = question["running"].as_array().is_some_and(|running| !running.is_empty());
        let name = if runs && random.percent(75) { "running-0" } else { "pod" };
        if name == "running-0" && !device["nodeAllocatableResourceMappings"].is_null() {
            // Upstream tells by this who uses the claim.
            let claim = question["claims"][at]["metadata"]["name"].clone();
            question["running"][0]["status"] = charged(release, &claim, &[("cpu", "100m")]);
        }
        let claim = &mut question["claims"][at];
        claim["status"]["reservedFor"] = json!([{"resource": "pods", "name": name, "uid": format!("uid-{name}")}]);
    }
}

/// Sometimes a claim is on its way out.
fn withdraw(random: &mut Random, question: &mut Value) {
    let count = question["claims"].as_array().map_or(0, Vec::len);
    if count == 0 || !random.percent(3) {
        return;
    }
    let at = random.below(count);
    let meta = &mut question["claims"][at]["metadata"];
    meta["deletionTimestamp"] = "2026-01-03T00:00:00Z".into();
    meta["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
}

fn pod(random: &mut Random, claims: &Value) -> Value {
    let mut entries: Vec<(String, Value)> = claims
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|_| random.percent(85))
        .map(|(index, claim)| (format!("entry-{index}"), claim["metadata"]["name"].clone()))
        .collect();
    if random.percent(3) {
        entries.push(("entry-absent".to_owned(), "claim-absent".into()));
    }
    let names: Vec<&String> = entries.iter().map(|(name, _)| name).collect();
    let extended = random.percent(75);
    let containers = |prefix: &str, count: usize, random: &mut Random| -> Vec<Value> {
        (0..count).map(|index| container(random, &format!("{prefix}-{index}"), &names, extended)).collect()
    };
    let count = 1 + random.below(3);
    let regular = containers("main", count, random);
    let count = random.below(4) * random.below(2);
    let mut init = containers("init", count, random);
    for container in &mut init {
        if random.percent(35) {
            container["restartPolicy"] = "Always".into();
        }
    }
    let mut spec = json!({"containers": regular, "initContainers": init});
    if !entries.is_empty() {
        let entry = |(name, claim): &(String, Value)| json!({"name": name, "resourceClaimName": claim});
        spec["resourceClaims"] = entries.iter().map(entry).collect();
    }
    if random.percent(12) {
        spec["overhead"] = json!({"cpu": "250m", "memory": "64Mi"});
    }
    if random.percent(30) {
        spec["resources"] = whole(random, &spec);
    }
    json!({"metadata": {"name": "pod", "namespace": "default", "uid": "uid-pod"}, "spec": spec})
}

fn container(random: &mut Random, name: &str, entries: &[&String], extended: bool) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    if random.percent(50) {
        let cpu = *random.pick(&[100, 500, 1000]);
        requests.insert("cpu".to_owned(), json!(format!("{cpu}m")));
        if random.percent(40) {
            limits.insert("cpu".to_owned(), json!(format!("{}m", cpu * (1 + random.below(3)))));
        }
    }
    if random.percent(50) {
        let memory = *random.pick(&[64, 512]);
        requests.insert("memory".to_owned(), json!(format!("{memory}Mi")));
        if random.percent(40) {
            limits.insert("memory".to_owned(), json!(format!("{}Mi", memory * (1 + random.below(3)))));
        }
    }
    if random.percent(10) {
        requests.insert("hugepages-2Mi".to_owned(), json!("64Mi"));
        limits.insert("hugepages-2Mi".to_owned(), json!("64Mi"));
    }
    if extended && random.percent(65) {
        let implicit = format!("deviceclass.resource.kubernetes.io/{}", random.pick(&CLASSES));
        for _ in 0..1 + random.below(2) {
            let unknown = if random.percent(3) { "example.com/unknown" } else { GPU };
            let resource = *random.pick(&[GPU, NIC, implicit.as_str(), unknown]);
            let count = json!(random.pick(&["1", "1", "1", "2", "3", "0"]));
            requests.insert(resource.to_owned(), count.clone());
            limits.insert(resource.to_owned(), count);
        }
    }
    let mut resources = json!({"requests": requests, "limits": limits});
    let used: Vec<Value> = entries.iter().filter(|_| random.percent(60)).map(|entry| json!({"name": entry})).collect();
    if !used.is_empty() {
        resources["claims"] = used.into();
    }
    json!({"name": name, "resources": resources})
}

/// Resources of the pod as a whole: at least what its containers ask for.
fn whole(random: &mut Random, spec: &Value) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for (resource, unit, steps) in [("cpu", "m", [0, 500, 4000]), ("memory", "Mi", [0, 512, 8192])] {
        if !random.percent(70) {
            continue;
        }
        let of = |kind: &str| -> Vec<u64> {
            let containers = ["containers", "initContainers"].into_iter();
            let all = containers.flat_map(|field| spec[field].as_array().into_iter().flatten());
            all.filter_map(|container| {
                let text = container["resources"][kind][resource].as_str()?;
                text.strip_suffix(unit)?.parse().ok()
            })
            .collect()
        };
        // Init containers counted in full: more than the API server asks for.
        let asked: u64 = of("requests").iter().sum::<u64>() + *random.pick(&steps);
        let asked = asked.max(1);
        requests.insert(resource.to_owned(), json!(format!("{asked}{unit}")));
        if random.percent(50) {
            let limit = asked.max(of("limits").into_iter().max().unwrap_or(0)) + *random.pick(&steps);
            limits.insert(resource.to_owned(), json!(format!("{limit}{unit}")));
        }
    }
    json!({"requests": requests, "limits": limits})
}
