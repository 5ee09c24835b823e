//! Random small clusters in which one driver has pools of several kinds: of the machine, of each machine for its zone,
//! and one for the zone, so that it matters which of them the scheduler comes to first and which are published when.

use seeded_random::Random;
use serde_json::{Value, json};

use super::random_clusters::{ZONE, ZONES, object, pods, resource};

const DRIVERS: [&str; 2] = ["gpu.example.com", "net.example.com"];
const ROOT: &str = "resource.kubernetes.io/pcieRoot";
const MODELS: [&str; 2] = ["x", "y"];

/// Devices of one pool, and the counters that they draw from.
fn devices(random: &mut Random, prefix: &str, driver: &str) -> (Vec<Value>, Value) {
    let count = 1 + random.below(2);
    let draws = random.percent(15);
    let devices = (0..count).map(|index| {
        let mut device = json!({"name": format!("{prefix}{index}"),
            "attributes": {format!("{driver}/model"): {"string": *random.pick(&MODELS)}}});
        if draws {
            let units = (1 + random.below(2)).to_string();
            device["consumesCounters"] = json!([{"counterSet": "board", "counters": {"units": {"value": units}}}]);
        }
        device
    });
    let devices = devices.collect();
    let counters = if draws { json!([{"name": "board", "counters": {"units": {"value": "2"}}}]) } else { Value::Null };
    (devices, counters)
}

/// The devices of a driver's one pool of a zone, which all types describe alike.
type OfZone = (Vec<Value>, Value);

fn templates(random: &mut Random, of_zone: &[OfZone]) -> Value {
    let mut templates = Vec::new();
    let mut bound = Vec::new();
    for (driver, of_zone) in DRIVERS.into_iter().zip(of_zone) {
        for (kind, chance) in [("own", 60), ("host", 25), ("zone", 35)] {
            if !random.percent(chance) {
                continue;
            }
            let name = format!("{}-{kind}", driver.split('.').next().unwrap_or_default());
            let (devices, counters) = match kind {
                "zone" => of_zone.clone(),
                _ => devices(random, &format!("{}{}", &name[..1], &kind[..1]), driver),
            };
            if kind != "zone" && random.percent(40) {
                let each = devices.iter().map(|it| json!({"resourceSliceTemplate": name, "device": it["name"]}));
                bound.extend(each);
            }
            let mut spec = json!({"driver": driver, "devices": devices});
            if !counters.is_null() {
                spec["sharedCounters"] = counters;
            }
            if kind != "own" {
                spec["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchLabelKeys": [ZONE]}]});
                spec["scope"] = if kind == "host" { "Machine" } else { "Domain" }.into();
            }
            templates.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
    }
    let bindings: Vec<Value> = match (bound.is_empty(), random.below(3)) {
        (true, _) | (_, 0) => Vec::new(),
        (false, 1) => vec![json!({"attributes": [ROOT], "deviceSelectors": bound})],
        (false, _) => {
            let one = |of: &Value| json!({"attributes": [ROOT], "distinctGroups": true, "deviceSelectors": [of]});
            bound.iter().map(one).collect()
        }
    };
    json!({"resourceSliceTemplates": templates, "attributeBindings": bindings})
}

pub(crate) fn instance_types(random: &mut Random) -> String {
    let of_zone = DRIVERS.map(|driver| devices(random, &format!("{}z", &driver[..1]), driver));
    let types: Vec<Value> = (0..1 + random.below(3))
        .map(|index| {
            let zones: Vec<&str> = if random.percent(60) { ZONES.to_vec() } else { vec![*random.pick(&ZONES)] };
            let offerings = zones.into_iter().map(|zone| {
                json!({"Price": 1 + random.below(9), "Available": true, "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": ZONE, "operator": "In", "values": [zone]}]})
            });
            let offerings: Vec<Value> = offerings.collect();
            json!({"name": format!("type-{index}"), "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": (1 + random.below(3)).to_string(), "memory": "8Gi"},
                "offerings": offerings, "dynamicResources": templates(random, &of_zone)})
        })
        .collect();
    Value::Array(types).to_string()
}

fn requests(random: &mut Random) -> Value {
    let exact = |random: &mut Random| {
        let mut exact = json!({"deviceClassName": *random.pick(&["gpu", "gpu", "gpu-x", "net", "any"])});
        if random.percent(15) {
            exact["allocationMode"] = "All".into();
        } else {
            exact["count"] = (*random.pick(&[1, 1, 1, 2])).into();
        }
        exact
    };
    let mut all = Vec::new();
    for index in 0..*random.pick(&[1, 1, 2]) {
        let name = format!("r{index}");
        if random.percent(15) {
            let alternative = |random: &mut Random, index: u64| {
                let mut alternative = exact(random);
                alternative["name"] = format!("s{index}").into();
                alternative
            };
            let alternatives: Vec<Value> = (0..2).map(|index| alternative(random, index)).collect();
            all.push(json!({"name": name, "firstAvailable": alternatives}));
        } else {
            all.push(json!({"name": name, "exactly": exact(random)}));
        }
    }
    let mut devices = json!({"requests": all});
    if random.percent(25) {
        devices["constraints"] = json!([{"matchAttribute": *random.pick(&[ROOT, "gpu.example.com/model"])}]);
    }
    devices
}

pub(crate) fn manifests(random: &mut Random) -> String {
    let mut text = String::new();
    let [gpu, net] = DRIVERS;
    for (name, expression) in [
        ("gpu", format!("device.driver == '{gpu}'")),
        ("gpu-x", format!("device.driver == '{gpu}' && device.attributes['{gpu}'].model == 'x'")),
        ("net", format!("device.driver == '{net}'")),
        ("any", "true".to_owned()),
    ] {
        object(&mut text, &resource("DeviceClass", name, &json!({"selectors": [{"cel": {"expression": expression}}]})));
    }
    object(
        &mut text,
        &json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"}, "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"},
                "requirements": [{"key": ZONE, "operator": "In", "values": ZONES}]}}}}),
    );
    if random.percent(20) {
        let driver = *random.pick(&DRIVERS);
        let devices =
            json!([{"name": "p0", "attributes": {format!("{driver}/model"): {"string": *random.pick(&MODELS)}}}]);
        let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [*random.pick(&ZONES)]}]});
        let spec = json!({"driver": driver, "devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]},
            "pool": {"name": "m-published", "generation": 1, "resourceSliceCount": 1}});
        object(&mut text, &resource("ResourceSlice", "published", &spec));
    }
    pods(random, &mut text, &["200m", "600m", "900m"], 15, requests);
    text
}
