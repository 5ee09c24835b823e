//! Random small clusters whose machines bring GPUs of their own and links for their zone.

use std::fmt::Write as _;

use seeded_random::Random;
use serde_json::{Value, json};

pub(crate) const GPU: &str = "gpu.example.com";
pub(crate) const NET: &str = "net.example.com";
pub(crate) const ROOT: &str = "resource.kubernetes.io/pcieRoot";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const ZONES: [&str; 2] = ["test-zone-a", "test-zone-b"];
pub(crate) const MODELS: [&str; 2] = ["x", "y"];

/// What a machine brings: GPUs of its own, perhaps links for all nodes of its zone.
pub(crate) fn templates(random: &mut Random) -> Value {
    let mut resources = gpus(random);
    if random.percent(30) {
        let nodes = json!({"nodeSelectorTerms": [{"matchLabelKeys": [ZONE]}]});
        let devices: Vec<Value> = (0..1 + random.below(3)).map(|index| json!({"name": format!("l{index}")})).collect();
        let scope = *random.pick(&["Machine", "Domain"]);
        let spec = json!({"driver": NET, "scope": scope, "nodeSelector": nodes, "devices": devices});
        let mut all = resources["resourceSliceTemplates"].as_array().cloned().unwrap_or_default();
        all.push(json!({"metadata": {"name": "links"}, "spec": spec}));
        resources["resourceSliceTemplates"] = all.into();
    }
    resources
}

/// GPUs of a machine: with models, some under one root, some cut out of shared counters.
pub(crate) fn gpus(random: &mut Random) -> Value {
    let count = random.below(4);
    if count == 0 {
        return json!({});
    }
    let partitioned = random.percent(25);
    let devices: Vec<Value> = (0..count)
        .map(|index| {
            let attributes = json!({"model": {"string": *random.pick(&MODELS)}, "revision": {"int": 1}});
            let mut device = json!({"name": format!("g{index}"), "attributes": attributes});
            if partitioned {
                let slices = 1 + random.below(2);
                device["consumesCounters"] =
                    json!([{"counterSet": "board", "counters": {"slices": {"value": slices.to_string()}}}]);
            }
            if random.percent(10) {
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

pub(crate) fn instance_types(random: &mut Random) -> String {
    let types: Vec<Value> = (0..1 + random.below(3))
        .map(|index| {
            let zones: Vec<&str> = if random.percent(60) { ZONES.to_vec() } else { vec![*random.pick(&ZONES)] };
            let offerings: Vec<Value> = zones
                .into_iter()
                .map(|zone| {
                    json!({"Price": 1 + random.below(9), "Available": random.percent(90), "Requirements": [
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

pub(crate) fn object(text: &mut String, object: &Value) {
    let _ = writeln!(text, "---\n{object}");
}

pub(crate) fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "d"}, "spec": spec})
}

/// What a claim asks for.
pub(crate) fn requests(random: &mut Random) -> Value {
    let exact = |random: &mut Random| {
        let class = *random.pick(&["gpu", "gpu", "gpu-x", "net"]);
        let mut exact = json!({"deviceClassName": class});
        if random.percent(8) {
            exact["allocationMode"] = "All".into();
        } else {
            exact["count"] = (*random.pick(&[1, 1, 1, 2])).into();
        }
        if random.percent(30) {
            exact["tolerations"] = json!([{"operator": "Exists"}]);
        }
        if random.percent(8) {
            // What fails on devices that lack the attribute, or whose value is known after launch.
            let root = "device.attributes['resource.kubernetes.io'].pcieRoot";
            let revision = format!("device.attributes['{GPU}'].revision == 1");
            let of_root = [format!("has({root})"), format!("!has({root})"), format!("{root} == 'p'")];
            let expression = if random.percent(50) { revision } else { of_root[random.below(3) as usize].clone() };
            exact["selectors"] = json!([{"cel": {"expression": expression}}]);
        }
        exact
    };
    let mut all = Vec::new();
    for index in 0..*random.pick(&[1, 1, 2]) {
        let name = format!("r{index}");
        if random.percent(20) {
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
    if random.percent(35) {
        devices["constraints"] = json!([{"matchAttribute": *random.pick(&[ROOT, "gpu.example.com/model"])}]);
    }
    devices
}

pub(crate) fn slice(text: &mut String, name: &str, driver: &str, node: (&str, Value), devices: &[Value]) {
    let mut spec = json!({"driver": driver, "devices": devices,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}});
    spec[node.0] = node.1;
    object(text, &resource("ResourceSlice", name, &spec));
}

pub(crate) fn device_classes(text: &mut String) {
    for (name, expression) in [
        ("gpu", format!("device.driver == '{GPU}'")),
        ("gpu-x", format!("device.driver == '{GPU}' && device.attributes['{GPU}'].model == 'x'")),
        ("net", format!("device.driver == '{NET}'")),
    ] {
        object(text, &resource("DeviceClass", name, &json!({"selectors": [{"cel": {"expression": expression}}]})));
    }
}

pub(crate) fn manifests(random: &mut Random) -> String {
    let mut text = String::new();
    device_classes(&mut text);
    let limits = if random.percent(25) { json!({"nodes": 1 + random.below(2)}) } else { json!({}) };
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
            json!({"model": {"string": *random.pick(&MODELS)}, ROOT: {"string": *random.pick(&["p", "q"])}});
        if random.percent(50) {
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
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, ZONE: *random.pick(&ZONES)}},
                "status": {"allocatable": {"cpu": random.below(4).to_string(), "memory": "8Gi", "pods": "20"},
                    "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        let devices: Vec<Value> = (0..1 + random.below(2)).map(|index| device(random, index)).collect();
        if random.percent(70) {
            slice(&mut text, &format!("{name}-gpus"), GPU, ("nodeName", name.as_str().into()), &devices);
        }
    }
    if random.percent(40) {
        let zone = *random.pick(&ZONES);
        let term = json!({"matchExpressions": [requirement(ZONE, &[zone])]});
        let devices: Vec<Value> = (0..1 + random.below(2)).map(|index| device(random, index)).collect();
        let selector = json!({"nodeSelectorTerms": [term]});
        slice(&mut text, "shared-zonal", NET, ("nodeSelector", selector), &devices);
    }
    if random.percent(20) {
        let devices: Vec<Value> = (0..1 + random.below(2)).map(|index| device(random, index)).collect();
        let driver = *random.pick(&[NET, GPU]);
        slice(&mut text, "shared-everywhere", driver, ("allNodes", true.into()), &devices);
    }
    pods(random, &mut text, &["200m", "900m", "1700m"], 20, requests);
    if random.percent(30) {
        spare_room(random, &mut text);
    }
    if random.percent(30) {
        taken_before(random, nodes, &mut text);
    }
    text
}

/// Up to three kinds of pods, most of which claim devices; of a hundred kinds so many are in one zone.
pub(crate) fn pods(
    random: &mut Random,
    text: &mut String,
    cpus: &[&str],
    zonal: u64,
    requests: fn(&mut Random) -> Value,
) {
    for class in 0..1 + random.below(3) {
        let claim = format!("claim-{class}");
        let devices = requests(random);
        let entry = match random.below(6) {
            0 => None,
            1 => {
                object(text, &resource("ResourceClaim", &claim, &json!({"devices": devices})));
                Some(json!({"name": "c", "resourceClaimName": claim}))
            }
            _ => {
                let spec = json!({"spec": {"devices": devices}});
                object(text, &resource("ResourceClaimTemplate", &claim, &spec));
                Some(json!({"name": "c", "resourceClaimTemplateName": claim}))
            }
        };
        let cpu = *random.pick(cpus);
        let selector = if random.percent(zonal) { json!({ZONE: *random.pick(&ZONES)}) } else { json!({}) };
        for copy in 0..1 + random.below(3) {
            let claims = if entry.is_some() { json!([{"name": "c"}]) } else { json!([]) };
            let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "claims": claims}});
            object(
                text,
                &json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("p{class}-{copy}"), "namespace": "d"},
                    "spec": {"containers": [container], "nodeSelector": selector,
                        "resourceClaims": entry.iter().collect::<Vec<_>>()}}),
            );
        }
    }
}

/// What others have of devices that is not to be seen yet: pods that are about to be bound, links of a zone whose pool
/// is not there.
pub(crate) fn taken_before(random: &mut Random, nodes: u64, text: &mut String) {
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
    let zone = json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [*random.pick(&ZONES)]}]}]);
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "net", "count": 1}}]});
    let mut claim = resource("ResourceClaim", "held", &json!({"devices": devices}));
    let result = json!({"request": "r", "driver": NET, "pool": "links-of-zone", "device": "l0"});
    let nodes = json!({"nodeSelectorTerms": zone});
    claim["status"] = json!({"allocation": {"devices": {"results": [result]}, "nodeSelector": nodes}});
    object(text, &claim);
}

/// Room for pods with claims of their own that nobody has made yet.
pub(crate) fn spare_room(random: &mut Random, text: &mut String) {
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
