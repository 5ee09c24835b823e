//! Random questions: every feature, mixed, small.

use dra_types::{Gate, Gates, KubernetesMinor};
use serde_json::{Map, Value, json};

use seeded_random::Random;

const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const CLASSES: [&str; 4] = ["class-a", "class-b", "class-any", "class-model"];

/// What a question is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Everything there is, rarely much of one kind.
    Varied,
    /// Few kinds of devices on one node and requests for most of them, so that the search has to come back often.
    Crowded,
}

/// A question.
pub(crate) fn question(random: &mut Random, name: &str) -> Value {
    let features = features(random);
    let style = if random.percent(30) { Style::Crowded } else { Style::Varied };
    let pools = match style {
        Style::Varied => 2 + random.below(4),
        Style::Crowded => 1 + random.below(2),
    };
    let mut slices = Vec::new();
    for index in 0..pools {
        pool(random, style, index, &mut slices);
    }
    let devices = device_ids(&slices);
    let chosen = |random: &mut Random, chance: u64| -> Vec<Value> {
        devices.iter().filter(|_| random.percent(chance)).map(|(id, _)| json!(id)).collect()
    };
    let in_use = random.below(30);
    let allocated = chosen(random, in_use);
    let mut shares = Vec::new();
    let mut consumed = Vec::new();
    for (id, device) in devices.iter().filter(|(_, device)| device["allowMultipleAllocations"] == true) {
        if random.percent(25) {
            shares.push(json!(id));
            if device["capacity"]["mem"].is_object() {
                consumed.push(json!({"device": id, "consumed": {"mem": random.pick(&["1", "2", "4"])}}));
            }
        }
    }
    let nodes = match style {
        Style::Varied => 1 + random.below(5) * random.below(2) / 2,
        Style::Crowded => 1,
    };
    let pods = 1 + random.below(7) * random.below(2) / 2;
    json!({
        "name": name, "features": features, "classes": classes(), "slices": slices, "taintRules": rules(random, &devices),
        "nodes": (0..nodes).map(|index| node(random, index)).collect::<Vec<_>>(),
        "pods": (0..pods).map(|index| pod(random, style, index)).collect::<Vec<_>>(),
        "allocatedDevices": allocated, "allocatedSharedDevices": shares, "aggregatedCapacity": consumed,
    })
}

fn node(random: &mut Random, index: usize) -> Value {
    let zone = if index == 1 { "z2" } else { "z1" };
    let mut node = json!({"metadata": {"name": NODES[index], "labels": {"zone": zone}}});
    if random.percent(50) {
        node["status"] = json!({"declaredFeatures": ["DRAOptionalNodeOperations"]});
    }
    node
}

fn pod(random: &mut Random, style: Style, index: usize) -> Vec<Value> {
    (0..1 + random.below(3) * random.below(2))
        .map(|claim| self::claim(random, style, &format!("claim-{index}-{claim}")))
        .collect()
}

/// Rules that taint devices from outside: of a driver, a pool, a device, all, or none.
fn rules(random: &mut Random, devices: &[([String; 3], Value)]) -> Vec<Value> {
    let rule = |random: &mut Random, index: usize| {
        let mut spec = json!({"taint": taint(random)});
        if random.percent(90) {
            let [driver, pool, device] = &random.pick(devices).0;
            let mut selector = json!({});
            for (field, value) in [("driver", driver), ("pool", pool), ("device", device)] {
                if random.percent(50) {
                    selector[field] = value.as_str().into();
                }
            }
            spec["deviceSelector"] = selector;
        }
        json!({"metadata": {"name": format!("rule-{index}")}, "spec": spec})
    };
    if devices.is_empty() || !random.percent(20) {
        return Vec::new();
    }
    (0..1 + random.below(2)).map(|index| rule(random, index)).collect()
}

fn taint(random: &mut Random) -> Value {
    json!({"key": random.pick(&["k1", "k2"]), "value": random.pick(&["v1", "v2"]),
        "effect": random.pick(&["NoSchedule", "NoExecute", "None"]), "timeAdded": "2026-01-01T00:00:00Z"})
}

/// As a release has them, all, most or few. Which of its variants upstream's allocator takes depends on them.
fn features(random: &mut Random) -> Vec<&'static str> {
    let chance = match random.below(6) {
        0 => return Gates::defaults(KubernetesMinor::V1_36).iter().map(Gate::name).collect(),
        1 => return Gates::defaults(KubernetesMinor::V1_37).iter().map(Gate::name).collect(),
        2 => 20,
        3 => 70,
        _ => 100,
    };
    Gate::ALL.iter().filter(|_| random.percent(chance)).map(|gate| gate.name()).collect()
}

/// The first release that knows every field of a question. A server of an older one would have dropped them.
pub(crate) fn first_release(question: &Value) -> KubernetesMinor {
    let is_derived = |pods: &Value| pods.to_string().contains("\"derivedAttributes\"");
    if is_derived(&question["pods"]) { KubernetesMinor::V1_37 } else { KubernetesMinor::V1_36 }
}

fn classes() -> Value {
    let class = |name: &str, expressions: &[&str], config: Value| {
        let selectors: Vec<Value> = expressions.iter().map(|text| json!({"cel": {"expression": text}})).collect();
        json!({"metadata": {"name": name}, "spec": {"selectors": selectors, "config": config}})
    };
    json!([
        class(CLASSES[0], &["device.driver == \"a.example.com\""], json!([])),
        class(
            CLASSES[1],
            &["device.driver == \"b.example.com\""],
            json!([{"opaque": {"driver": "b.example.com", "parameters": {"from": "class"}}}]),
        ),
        class(CLASSES[2], &[], json!([])),
        class(CLASSES[3], &["\"model\" in device.attributes[device.driver]"], json!([])),
    ])
}

/// One or two slices of a pool, now and then with something wrong.
fn pool(random: &mut Random, style: Style, index: usize, slices: &mut Vec<Value>) {
    let driver = *random.pick(&DRIVERS);
    // Equal pool names of two drivers are the usual case: both are named after the node.
    let name = if random.percent(25) { "pool".to_owned() } else { format!("pool-{index}") };
    let counters = random.percent(25);
    let parts = match style {
        Style::Varied => 1 + random.below(2),
        Style::Crowded => 1,
    };
    let mut count = parts + usize::from(counters);
    if random.percent(4) {
        count += 1;
    }
    let scope = match style {
        Style::Varied => random.below(10),
        Style::Crowded => 6,
    };
    let generation = 1 + random.below(2);
    for part in 0..parts {
        let per_device = scope == 8;
        let prefix = if random.percent(3) { "dev".to_owned() } else { format!("dev-{part}") };
        let number = match style {
            Style::Varied => random.below(5),
            Style::Crowded => 2 + random.below(4),
        };
        let devices: Vec<Value> = (0..number)
            .map(|number| device(random, style, &format!("{prefix}-{number}"), counters, per_device))
            .collect();
        let mut spec = json!({
            "driver": driver, "devices": devices,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
        });
        place(random, &mut spec, scope);
        if random.percent(4) {
            spec["skipNodeOperations"] = json!(random.pick(&[["*"], ["NodeUnprepareResources"]]));
        }
        slices.push(json!({"metadata": {"name": format!("slice-{}-{index}-{part}", random.below(9))}, "spec": spec}));
    }
    if counters {
        let mut spec = json!({
            "driver": driver,
            "sharedCounters": [{"name": "set", "counters": {
                "mem": {"value": random.pick(&["2", "4", "8"])}, "slots": {"value": random.pick(&["1", "2", "3"])},
            }}],
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
        });
        place(random, &mut spec, scope);
        slices.push(json!({"metadata": {"name": format!("counters-{index}")}, "spec": spec}));
    }
}

fn place(random: &mut Random, spec: &mut Value, scope: usize) {
    match scope {
        0..=5 => spec["nodeName"] = if random.percent(70) { NODES[0] } else { *random.pick(&NODES) }.into(),
        6 => spec["allNodes"] = true.into(),
        7 => spec["nodeSelector"] = zone_selector(random),
        _ => spec["perDeviceNodeSelection"] = true.into(),
    }
    if scope == 9 {
        // Without any way to say where, the slice is skipped.
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("perDeviceNodeSelection");
        }
    }
}

fn zone_selector(random: &mut Random) -> Value {
    let zone = if random.percent(80) { "z1" } else { "z2" };
    json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]})
}

fn device(random: &mut Random, style: Style, name: &str, counters: bool, per_device: bool) -> Value {
    let mut device = json!({"name": name, "attributes": attributes(random, style)});
    if style == Style::Crowded && random.percent(70) {
        return device;
    }
    if per_device {
        match random.below(4) {
            0 => device["nodeName"] = NODES[0].into(),
            1 => device["nodeName"] = NODES[1].into(),
            2 => device["allNodes"] = true.into(),
            _ => device["nodeSelector"] = zone_selector(random),
        }
    }
    if random.percent(30) {
        device["capacity"] = json!({"mem": {"value": random.pick(&["2", "4", "8"])}});
    }
    if random.percent(30) {
        device["allowMultipleAllocations"] = true.into();
        policy(random, &mut device);
    }
    if random.percent(12) {
        device["taints"] = (0..1 + random.below(2)).map(|_| taint(random)).collect();
    }
    if counters && random.percent(80) {
        let mut draw = json!({"counterSet": if random.percent(97) { "set" } else { "other" }, "counters": {}});
        if random.percent(80) {
            draw["counters"]["mem"] = json!({"value": random.pick(&["1", "2", "3"])});
        }
        if random.percent(60) || draw["counters"].as_object().is_some_and(Map::is_empty) {
            draw["counters"]["slots"] = json!({"value": "1"});
        }
        if random.percent(15) {
            draw["compatibilityGroups"] = json!([random.pick(&["g1", "g2"])]);
        }
        device["consumesCounters"] = json!([draw]);
    }
    if random.percent(6) {
        device["bindingConditions"] = json!(["ready"]);
        device["bindingFailureConditions"] = json!(["failed"]);
    }
    if random.percent(5) {
        device["bindsToNode"] = true.into();
    }
    device
}

fn policy(random: &mut Random, device: &mut Value) {
    let Some(capacity) = device.pointer_mut("/capacity/mem") else { return };
    match random.below(4) {
        0 => capacity["requestPolicy"] = json!({"default": "1", "validValues": ["1", "2"]}),
        1 => capacity["requestPolicy"] = json!({"default": "1", "validRange": {"min": "1", "max": "2"}}),
        2 => capacity["requestPolicy"] = json!({"default": "1", "validRange": {"min": "500m", "step": "500m"}}),
        _ => {}
    }
}

fn attributes(random: &mut Random, style: Style) -> Value {
    let mut attributes = Map::new();
    if style == Style::Crowded {
        if random.percent(93) {
            attributes.insert("model".to_owned(), json!({"string": random.pick(&["x", "x", "x", "y"])}));
        }
        if random.percent(93) {
            attributes.insert("shared.example.com/root".to_owned(), json!({"int": 1 + random.below(3)}));
        }
        return Value::Object(attributes);
    }
    if random.percent(85) {
        attributes.insert("model".to_owned(), json!({"string": random.pick(&["x", "y"])}));
    }
    if random.percent(85) {
        let root = match random.below(20) {
            0 => json!({"string": "r1"}),
            1 | 2 => json!({"ints": [1, 2]}),
            3 => json!({"ints": [2, 3]}),
            _ => json!({"int": 1 + random.below(3)}),
        };
        attributes.insert("shared.example.com/root".to_owned(), root);
    }
    if random.percent(30) {
        attributes.insert("version".to_owned(), json!({"version": random.pick(&["1.0.0", "1.0.1"])}));
    }
    Value::Object(attributes)
}

fn claim(random: &mut Random, style: Style, name: &str) -> Value {
    let requests: Vec<Value> = (0..1 + random.below(2)).map(|index| request(random, style, index)).collect();
    let mut devices = json!({"requests": requests});
    if random.percent(if style == Style::Crowded { 60 } else { 35 }) {
        let attribute = *random.pick(&[
            "shared.example.com/root",
            "shared.example.com/root",
            "a.example.com/model",
            "a.example.com/version",
        ]);
        let kind = if random.percent(70) { "matchAttribute" } else { "distinctAttribute" };
        let mut constraint = json!({kind: attribute});
        if random.percent(40) {
            constraint["requests"] = json!([random.pick(&["req-0", "req-1", "req-0/sub-0"])]);
        }
        devices["constraints"] = json!([constraint]);
        if random.percent(15) {
            devices["constraints"] = json!([constraint, {"matchAttribute": "a.example.com/model"}]);
        }
    }
    if random.percent(8) {
        derive(random, &mut devices);
    }
    if random.percent(20) {
        let mut config = json!({"opaque": {"driver": "a.example.com", "parameters": {"from": "claim"}}});
        if random.percent(70) {
            let names = ["req-0", "req-1", "req-0/sub-0", "req-0/sub-1"];
            let named: Vec<&str> = names.into_iter().filter(|_| random.percent(40)).collect();
            config["requests"] = if named.is_empty() { json!([names[0]]) } else { json!(named) };
        }
        devices["config"] = json!([config]);
    }
    json!({"metadata": {"name": name}, "spec": {"devices": devices}})
}

/// Makes requests compute an attribute that a constraint compares.
fn derive(random: &mut Random, devices: &mut Value) {
    let name = *random.pick(&["shared.example.com/root", "derived.example.com/group"]);
    let kind = if random.percent(75) { "matchAttribute" } else { "distinctAttribute" };
    for request in devices["requests"].as_array_mut().into_iter().flatten() {
        let alternatives = match request.get_mut("firstAvailable") {
            Some(alternatives) => alternatives.as_array_mut().into_iter().flatten().collect(),
            None => vec![&mut request["exactly"]],
        };
        for exact in alternatives {
            if random.percent(70) {
                let expression = *random.pick(&[
                    "device.attributes[device.driver].?model.orValue(\"none\")",
                    "device.attributes[\"shared.example.com\"].?root.orValue(2)",
                    "device.attributes[\"shared.example.com\"].root",
                    "device.driver.size() % 2",
                    "1 + 1",
                    "[1, 2]",
                    "semver(\"1.0.0\")",
                    "\"model\" in device.attributes[device.driver]",
                ]);
                exact["derivedAttributes"] = json!([{"name": name, "expression": expression}]);
            }
        }
    }
    let constraint = json!({kind: name});
    match devices["constraints"].as_array_mut() {
        Some(constraints) => constraints.push(constraint),
        None => devices["constraints"] = json!([constraint]),
    }
}

fn request(random: &mut Random, style: Style, index: usize) -> Value {
    let name = format!("req-{index}");
    if random.percent(25) {
        let alternative = |random: &mut Random, index: usize| {
            let mut exact = exact(random, style);
            exact["name"] = format!("sub-{index}").into();
            exact
        };
        let alternatives: Vec<Value> = (0..1 + random.below(3)).map(|index| alternative(random, index)).collect();
        return json!({"name": name, "firstAvailable": alternatives});
    }
    let mut exact = exact(random, style);
    if random.percent(8) {
        exact["adminAccess"] = true.into();
    }
    json!({"name": name, "exactly": exact})
}

fn exact(random: &mut Random, style: Style) -> Value {
    let mut exact = json!({"deviceClassName": random.pick(&CLASSES), "allocationMode": "ExactCount"});
    if style == Style::Crowded && random.percent(60) {
        exact["count"] = (1 + random.below(4)).into();
    } else if random.percent(12) {
        exact["allocationMode"] = "All".into();
    } else {
        exact["count"] = if random.percent(2) { 40 } else { 1 + random.below(3) * random.below(2) }.into();
    }
    if random.percent(30) {
        let text = match random.below(10) {
            0 => "device.attributes[\"a.example.com\"].model == \"x\"",
            1 => "device.capacity[device.driver].mem.compareTo(quantity(\"4\")) >= 0",
            2 => "device.allowMultipleAllocations == true",
            3..=5 => "device.attributes[device.driver].?model.orValue(\"\") == \"y\"",
            _ => "has(device.attributes[\"shared.example.com\"].root)",
        };
        exact["selectors"] = json!([{"cel": {"expression": text}}]);
    }
    if random.percent(15) {
        exact["tolerations"] = json!([random.pick(&[
            json!({"key": "k1", "operator": "Exists"}),
            json!({"operator": "Exists"}),
            json!({"key": "k2", "value": "v1", "effect": "NoSchedule"}),
            json!({"key": "k1", "operator": "Equal", "value": "v2"}),
        ])]);
    }
    if random.percent(15) {
        exact["capacity"] = json!({"requests": {"mem": random.pick(&["500m", "1", "3", "9"])}});
    }
    exact
}

/// [driver, pool, device] of every device, with the device.
fn device_ids(slices: &[Value]) -> Vec<([String; 3], Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_slice = |slice: &Value| {
        let spec = slice["spec"].clone();
        let devices = spec["devices"].as_array().cloned().unwrap_or_default();
        let with_id =
            move |device: Value| ([text(&spec["driver"]), text(&spec["pool"]["name"]), text(&device["name"])], device);
        devices.into_iter().map(with_id).collect::<Vec<_>>()
    };
    slices.iter().flat_map(of_slice).collect()
}
