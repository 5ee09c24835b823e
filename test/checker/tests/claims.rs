//! Plans of random small clusters whose pods claim devices: played on machines that publish their slices, and refusals
//! held against a search that tries everything.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use api::labels::ProviderLabels;
use checker::Room;
use cloudprovider_kwok::catalogue;
use decode::offline::{self, Settings};
use model::{NodeClaimName, ResourceId, ResourceVec, Uid};
use scheduling::{
    Plan, Snapshot,
    plan::{Machine, Verdict},
    provisioning,
    snapshot::PodId,
};
use serde_json::{Value, json};

const CASES: u64 = 100;
/// Of planning twice, up to a machine that can be of two types, each in a zone of its own.
const CASES_AGAIN: u64 = 120;

/// A small generator of numbers (splitmix64), so that a seed is all that a failure needs.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

const GPU: &str = "gpu.example.com";
const NET: &str = "net.example.com";
const ROOT: &str = "resource.kubernetes.io/pcieRoot";
const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: [&str; 2] = ["test-zone-a", "test-zone-b"];
const MODELS: [&str; 2] = ["x", "y"];

/// What a machine brings: GPUs of its own, perhaps links for all nodes of its zone.
fn templates(random: &mut Random) -> Value {
    let mut resources = gpus(random);
    if random.chance(30) {
        let nodes = json!({"nodeSelectorTerms": [{"matchLabelKeys": [ZONE]}]});
        let devices: Vec<Value> = (0..1 + random.below(3)).map(|index| json!({"name": format!("l{index}")})).collect();
        let scope = random.pick(&["Machine", "Domain"]);
        let spec = json!({"driver": NET, "scope": scope, "nodeSelector": nodes, "devices": devices});
        let mut all = resources["resourceSliceTemplates"].as_array().cloned().unwrap_or_default();
        all.push(json!({"metadata": {"name": "links"}, "spec": spec}));
        resources["resourceSliceTemplates"] = all.into();
    }
    resources
}

/// GPUs of a machine: with models, some under one root, some cut out of shared counters.
fn gpus(random: &mut Random) -> Value {
    let count = random.below(4);
    if count == 0 {
        return json!({});
    }
    let partitioned = random.chance(25);
    let devices: Vec<Value> = (0..count)
        .map(|index| {
            let attributes = json!({"model": {"string": random.pick(&MODELS)}, "revision": {"int": 1}});
            let mut device = json!({"name": format!("g{index}"), "attributes": attributes});
            if partitioned {
                let slices = 1 + random.below(2);
                device["consumesCounters"] =
                    json!([{"counterSet": "board", "counters": {"slices": {"value": slices.to_string()}}}]);
            }
            if random.chance(10) {
                device["taints"] = json!([{"key": "old", "value": "yes", "effect": "NoSchedule"}]);
            }
            device
        })
        .collect();
    let mut spec = json!({"driver": GPU, "devices": devices});
    if partitioned {
        spec["sharedCounters"] = json!([{"name": "board", "counters": {"slices": {"value": "3"}}}]);
    }
    let selector = |index: u64| json!({"resourceSliceTemplate": "gpus", "device": format!("g{index}")});
    let bindings: Vec<Value> = match random.below(3) {
        0 => Vec::new(),
        1 => vec![json!({"attributes": [ROOT], "deviceSelectors": (0..count).map(selector).collect::<Vec<_>>()})],
        _ => (0..count)
            .map(|index| json!({"attributes": [ROOT], "distinctGroups": true, "deviceSelectors": [selector(index)]}))
            .collect(),
    };
    json!({"resourceSliceTemplates": [{"metadata": {"name": "gpus"}, "spec": spec}], "attributeBindings": bindings})
}

fn instance_types(random: &mut Random) -> String {
    let types: Vec<Value> = (0..1 + random.below(3))
        .map(|index| {
            let zones: Vec<&str> = if random.chance(60) { ZONES.to_vec() } else { vec![random.pick(&ZONES)] };
            let offerings: Vec<Value> = zones
                .into_iter()
                .map(|zone| {
                    json!({"Price": 1 + random.below(9), "Available": random.chance(90), "Requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": ZONE, "operator": "In", "values": [zone]}]})
                })
                .collect();
            json!({"name": format!("type-{index}"), "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": (2 + random.below(4)).to_string(), "memory": "8Gi"},
                "offerings": offerings, "dynamicResources": templates(random)})
        })
        .collect();
    Value::Array(types).to_string()
}

fn object(text: &mut String, object: &Value) {
    let _ = writeln!(text, "---\n{object}");
}

fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "d"}, "spec": spec})
}

/// What a claim asks for.
fn requests(random: &mut Random) -> Value {
    let exact = |random: &mut Random| {
        let class = random.pick(&["gpu", "gpu", "gpu-x", "net"]);
        let mut exact = json!({"deviceClassName": class});
        if random.chance(8) {
            exact["allocationMode"] = "All".into();
        } else {
            exact["count"] = random.pick(&[1, 1, 1, 2]).into();
        }
        if random.chance(30) {
            exact["tolerations"] = json!([{"operator": "Exists"}]);
        }
        if random.chance(8) {
            // What fails on devices that lack the attribute.
            exact["selectors"] = json!([{"cel": {"expression": format!("device.attributes['{GPU}'].revision == 1")}}]);
        }
        exact
    };
    let mut all = Vec::new();
    for index in 0..random.pick(&[1, 1, 2]) {
        let name = format!("r{index}");
        if random.chance(20) {
            let alternatives: Vec<Value> = (0..2)
                .map(|index| {
                    let mut alternative = exact(random);
                    alternative["name"] = format!("s{index}").into();
                    alternative
                })
                .collect();
            all.push(json!({"name": name, "firstAvailable": alternatives}));
        } else {
            all.push(json!({"name": name, "exactly": exact(random)}));
        }
    }
    let mut devices = json!({"requests": all});
    if random.chance(35) {
        devices["constraints"] = json!([{"matchAttribute": random.pick(&[ROOT, "gpu.example.com/model"])}]);
    }
    devices
}

fn slice(text: &mut String, name: &str, driver: &str, node: (&str, Value), devices: &[Value]) {
    let mut spec = json!({"driver": driver, "devices": devices,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}});
    spec[node.0] = node.1;
    object(text, &resource("ResourceSlice", name, &spec));
}

fn manifests(random: &mut Random) -> String {
    let mut text = String::new();
    for (name, expression) in [
        ("gpu", format!("device.driver == '{GPU}'")),
        ("gpu-x", format!("device.driver == '{GPU}' && device.attributes['{GPU}'].model == 'x'")),
        ("net", format!("device.driver == '{NET}'")),
    ] {
        object(&mut text, &resource("DeviceClass", name, &json!({"selectors": [{"cel": {"expression": expression}}]})));
    }
    let limits = if random.chance(25) { json!({"nodes": 1 + random.below(2)}) } else { json!({}) };
    let requirement = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    object(
        &mut text,
        &json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"}, "spec": {
            "limits": limits, "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"},
                "requirements": [requirement(ZONE, &ZONES)]}}}}),
    );
    let device = |random: &mut Random, index: u64| {
        let mut attributes =
            json!({"model": {"string": random.pick(&MODELS)}, ROOT: {"string": random.pick(&["p", "q"])}});
        if random.chance(50) {
            attributes["revision"] = json!({"int": random.below(2)});
        }
        json!({"name": format!("d{index}"), "attributes": attributes})
    };
    let nodes = random.below(3);
    for node in 0..nodes {
        let name = format!("n{node}");
        object(
            &mut text,
            &json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, ZONE: random.pick(&ZONES)}},
                "status": {"allocatable": {"cpu": random.below(4).to_string(), "memory": "8Gi", "pods": "20"},
                    "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        let devices: Vec<Value> = (0..1 + random.below(2)).map(|index| device(random, index)).collect();
        if random.chance(70) {
            slice(&mut text, &format!("{name}-gpus"), GPU, ("nodeName", name.as_str().into()), &devices);
        }
    }
    if random.chance(40) {
        let zone = random.pick(&ZONES);
        let term = json!({"matchExpressions": [requirement(ZONE, &[zone])]});
        let devices: Vec<Value> = (0..1 + random.below(2)).map(|index| device(random, index)).collect();
        let selector = json!({"nodeSelectorTerms": [term]});
        slice(&mut text, "shared-zonal", NET, ("nodeSelector", selector), &devices);
    }
    if random.chance(20) {
        let devices: Vec<Value> = (0..1 + random.below(2)).map(|index| device(random, index)).collect();
        // Its pool sorts behind those of machines, whose real names nobody knows beforehand (RFC 0003).
        slice(&mut text, "shared-everywhere", random.pick(&[NET, GPU]), ("allNodes", true.into()), &devices);
    }
    for class in 0..1 + random.below(3) {
        let claim = format!("claim-{class}");
        let devices = requests(random);
        let entry = match random.below(6) {
            0 => None,
            1 => {
                object(&mut text, &resource("ResourceClaim", &claim, &json!({"devices": devices})));
                Some(json!({"name": "c", "resourceClaimName": claim}))
            }
            _ => {
                let spec = json!({"spec": {"devices": devices}});
                object(&mut text, &resource("ResourceClaimTemplate", &claim, &spec));
                Some(json!({"name": "c", "resourceClaimTemplateName": claim}))
            }
        };
        let cpu = random.pick(&["200m", "900m", "1700m"]);
        let selector = if random.chance(20) { json!({ZONE: random.pick(&ZONES)}) } else { json!({}) };
        for copy in 0..1 + random.below(3) {
            let claims = if entry.is_some() { json!([{"name": "c"}]) } else { json!([]) };
            let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "claims": claims}});
            object(
                &mut text,
                &json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("p{class}-{copy}"), "namespace": "d"},
                    "spec": {"containers": [container], "nodeSelector": selector,
                        "resourceClaims": entry.iter().collect::<Vec<_>>()}}),
            );
        }
    }
    if random.chance(30) {
        spare_room(random, &mut text);
    }
    if random.chance(30) {
        taken_before(random, nodes, &mut text);
    }
    text
}

/// What others have of devices that is not to be seen yet: pods that are about to be bound, links of a zone whose pool is
/// not there.
fn taken_before(random: &mut Random, nodes: u64, text: &mut String) {
    object(text, &resource("ResourceClaimTemplate", "soon", &json!({"spec": {"devices": requests(random)}})));
    for index in 0..if nodes > 0 { 1 + random.below(2) } else { 0 } {
        let node = format!("n{}", random.below(nodes));
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1m"}, "claims": [{"name": "c"}]}});
        let claims = json!([{"name": "c", "resourceClaimTemplateName": "soon"}]);
        object(
            text,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("soon-{index}"), "namespace": "d"},
                "spec": {"containers": [container], "resourceClaims": claims, "nodeName": node},
                "status": {"nominatedNodeName": node}}),
        );
    }
    let zone = json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [random.pick(&ZONES)]}]}]);
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "net", "count": 1}}]});
    let mut claim = resource("ResourceClaim", "held", &json!({"devices": devices}));
    let result = json!({"request": "r", "driver": NET, "pool": "links-of-zone", "device": "l0"});
    let nodes = json!({"nodeSelectorTerms": zone});
    claim["status"] = json!({"allocation": {"devices": {"results": [result]}, "nodeSelector": nodes}});
    object(text, &claim);
}

/// Room for pods with claims of their own that nobody has made yet.
fn spare_room(random: &mut Random, text: &mut String) {
    object(text, &resource("ResourceClaimTemplate", "spare", &json!({"spec": {"devices": requests(random)}})));
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "300m"}, "claims": [{"name": "c"}]}});
    let claims = json!([{"name": "c", "resourceClaimTemplateName": "spare"}]);
    let metadata = json!({"name": "spare", "namespace": "d"});
    object(
        text,
        &json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata,
            "template": {"spec": {"containers": [container], "resourceClaims": claims}}}),
    );
    object(
        text,
        &json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata,
            "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 1 + random.below(3)}}),
    );
}

fn snapshot(random: &mut Random) -> (Snapshot, String) {
    let types = instance_types(random);
    let text = manifests(random);
    (read(&types, &text, &[]), format!("{types}\n{text}"))
}

/// Reads manifests; pods stay planned on machines that were created for them.
fn read(types: &str, text: &str, planned_on: &[(Uid, NodeClaimName)]) -> Snapshot {
    let instance_types: Vec<_> = catalogue::parse(types).unwrap().instance_types.into_iter().map(Arc::new).collect();
    let labels = ProviderLabels::default();
    let parsed = decode::manifests::parse("random", text);
    let settings = Settings {
        expand_workloads: false,
        default_node_pool: None,
        instance_types: &instance_types,
        labels: &labels,
        node_classes: &[("karpenter.kwok.sh", "KWOKNodeClass")],
        release: offline::Release::default(),
        scheduler_config: None,
    };
    let mut input = offline::read(parsed.manifests, parsed.errors, &settings);
    assert!(input.problems.is_empty(), "{}\n{types}\n{text}", input.problems[0]);
    input.cluster.planned_on.extend(planned_on.iter().cloned());
    let (mut snapshot, errors) = decode::snapshot(input.cluster, input.interner, &labels);
    snapshot.options.search_steps = 5_000;
    assert!(errors.is_empty(), "{}\n{text}", errors[0]);
    snapshot
}

/// The NodeClaim of a planned machine before its launch, or after a launch as planned.
fn node_claim(snapshot: &Snapshot, machine: &Machine, name: &str, is_launched: bool) -> Value {
    let pool = &snapshot.node_pools[machine.node_pool];
    let offering = &pool.catalogue.offerings[machine.launch.offering];
    let names = &snapshot.interner;
    let amounts = |amounts: &ResourceVec| -> BTreeMap<String, String> {
        let each = amounts.iter().map(|(resource, amount)| {
            let unit = if resource == ResourceId::CPU { "m" } else { "" };
            (names.resource_name(resource).to_owned(), format!("{amount}{unit}"))
        });
        each.collect()
    };
    let mut labels: BTreeMap<&str, &str> = BTreeMap::from([("karpenter.sh/nodepool", &*pool.name)]);
    labels.extend(machine.labels.iter().map(|(key, value)| (names.key_name(*key), &**value)));
    let mut status = json!({});
    if is_launched {
        for requirement in offering.requirements.iter() {
            if let Some(value) = requirement.values.single_value() {
                labels.insert(names.key_name(requirement.key), names.value_name(value));
            }
        }
        status = json!({"providerID": format!("id-{name}"), "capacity": amounts(&offering.capacity),
            "allocatable": amounts(&offering.allocatable)});
    }
    let types: Vec<&str> = machine.instance_types.iter().map(|&of| &*pool.catalogue.types[of].name).collect();
    let mut requirements = vec![json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types})];
    for requirement in machine.requirements.iter() {
        if let Some(values) = requirement.values.finite_values() {
            let values: Vec<&str> = values.iter().map(|&value| names.value_name(value)).collect();
            requirements.push(json!({"key": names.key_name(requirement.key), "operator": "In", "values": values}));
        }
    }
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "labels": labels},
        "spec": {"nodeClassRef": class, "requirements": requirements,
            "resources": {"requests": amounts(&machine.requests)}},
        "status": status})
}

/// Machines, and nodes, with their pods, and who has none.
fn render(snapshot: &Snapshot, plan: &Plan) -> String {
    let mut text = String::new();
    let names = |pods: &[PodId]| pods.iter().map(|&pod| snapshot.pods[pod].pod.name.to_string()).collect::<Vec<_>>();
    for machine in &plan.machines {
        let pool = &snapshot.node_pools[machine.node_pool];
        let types: Vec<_> =
            machine.instance_types.iter().map(|&of| pool.catalogue.types[of].name.to_string()).collect();
        let requirements = machine.requirements.display(&snapshot.interner);
        let _ = writeln!(text, "{types:?} {requirements} {:?} {:?}", machine.devices, names(&machine.pods));
    }
    for placement in &plan.existing {
        let _ = writeln!(text, "{}: {:?}", snapshot.nodes[placement.node].display_name(), names(&placement.pods));
    }
    for refusal in &plan.refusals {
        let reasons: Vec<_> = refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
        let _ = writeln!(text, "{:?} {:?} {reasons:?}", names(&[refusal.pod]), refusal.verdict);
    }
    text
}

#[test]
fn planned_pods_get_their_devices_whatever_is_launched_and_no_refusal_is_wrong() {
    let (mut placed, mut refused, mut proved, mut with_devices, mut kept) = (0, 0, 0, 0, 0);
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("CHECKER_SEED").unwrap_or(0);
    for seed in first..first + number("CHECKER_CASES").unwrap_or(CASES) {
        let (snapshot, text) = snapshot(&mut Random(seed));
        let plan = provisioning::plan(&snapshot);
        let problems = checker::check(&snapshot, &plan);
        assert!(problems.is_empty(), "seed {seed}: {problems:#?}\n{}\n{text}", render(&snapshot, &plan));
        let has_place = |pod: PodId| !plan.refusals.iter().any(|refusal| refusal.pod == pod);
        let has_place: Vec<PodId> = snapshot.pods.ids().filter(|&pod| has_place(pod)).collect();
        for refusal in &plan.refusals {
            assert_ne!(refusal.verdict, Verdict::Unsupported, "seed {seed}\n{text}");
            if refusal.verdict == Verdict::OutOfBudget {
                continue;
            }
            let pods = [has_place.clone(), vec![refusal.pod]].concat();
            let room = checker::room_for(&snapshot, &pods, 1_500);
            let name = &snapshot.pods[refusal.pod].pod.name;
            assert!(room != Room::Found, "seed {seed}: {name} fits\n{}\n{text}", render(&snapshot, &plan));
            proved += usize::from(room == Room::None);
        }
        refused += plan.refusals.len();
        kept += plan.buffers.iter().map(|room| room.on_existing() + room.on_new()).sum::<u32>();
        placed += has_place.len();
        with_devices += has_place.iter().filter(|&&pod| snapshot.pods[pod].devices.is_some()).count();
    }
    println!(
        "{placed} placed, {with_devices} of them with claims, {refused} refused, {proved} refusals proved, room for {kept}"
    );
    assert!(
        with_devices > 100 && proved > 50 && kept > 15,
        "{with_devices} with claims, {proved} proved, room for {kept}: the cases say nothing"
    );
}

/// A controller plans again as soon as anything changes, so also before its machines are launched or registered.
#[test]
fn pods_stay_planned_on_the_machines_that_were_created_for_them() {
    let (mut machines, mut pods) = (0, 0);
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("CHECKER_SEED").unwrap_or(0);
    for seed in first..first + number("CHECKER_CASES").unwrap_or(CASES_AGAIN) {
        let random = &mut Random(seed);
        let types = instance_types(random);
        let mut text = manifests(random);
        let before = read(&types, &text, &[]);
        let plan = provisioning::plan(&before);
        if plan.refusals.iter().any(|refusal| refusal.verdict == Verdict::OutOfBudget) {
            // With fewer machines to think of, another search may find them a place.
            continue;
        }
        let mut planned_on = Vec::new();
        for (index, machine) in plan.machines.iter().enumerate() {
            let name = format!("machine-{index}");
            object(&mut text, &node_claim(&before, machine, &name, random.chance(60)));
            let uids = machine.pods.iter().map(|&pod| before.pods[pod].pod.uid.clone());
            planned_on.extend(uids.map(|uid| (uid, NodeClaimName::from(name.as_str()))));
        }
        let after = read(&types, &text, &planned_on);
        let again = provisioning::plan(&after);
        let context = || format!("seed {seed}\n{}\n{}\n{text}", render(&before, &plan), render(&after, &again));
        assert!(again.machines.is_empty(), "{}", context());
        let claims: BTreeMap<&Uid, &NodeClaimName> = planned_on.iter().map(|(uid, claim)| (uid, claim)).collect();
        for placement in &again.existing {
            for &pod in &placement.pods {
                let planned = claims.get(&after.pods[pod].pod.uid).copied();
                if planned.is_some() {
                    assert_eq!(after.nodes[placement.node].node_claim.as_ref(), planned, "{}", context());
                    pods += 1;
                }
            }
        }
        machines += plan.machines.len();
    }
    println!("{machines} machines with {pods} pods");
    assert!(std::env::var_os("CHECKER_SEED").is_some() || (machines > 50 && pods > 100), "{machines}, {pods}");
}
