use std::collections::BTreeMap;

use api::DynamicResources;
use dra_types::{AttributeValue, ResourceSlice, validate};
use serde_json::{Value, json};

use super::layout::{Host, pool_name, slices};
use super::*;

fn parse(json: Value) -> DynamicResources {
    serde_json::from_value(json).unwrap()
}

fn expand(json: Value, labels: &[(&str, &str)]) -> Result<Expansion, String> {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    Expansion::new(&parse(json), &|key| labels.get(key).map(|value| (*value).to_owned()))
        .map_err(|error| error.to_string())
}

fn template(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["driver"] = spec.get("driver").cloned().unwrap_or_else(|| json!("gpu.example.com"));
    json!({ "metadata": {"name": name}, "spec": spec })
}

fn one(spec: Value) -> Value {
    json!({ "resourceSliceTemplates": [template("t", spec)] })
}

fn names(pool: &Pool) -> Vec<&str> {
    pool.devices.iter().map(|device| device.device.name.as_str()).collect()
}

#[test]
fn replicas_are_written_out_with_their_number() {
    let device = json!({
        "name": "gpu-{index}", "replicasFromLabel": "example.com/gpus",
        "attributes": {
            "model": {"string": "x1"}, "slot": {"string": "s{index}"}, "index": {"int": "{index}"}, "numa": {"int": 1},
            "peers": {"ints": ["{index}", 9]},
        },
        "consumesCounters": [{"counterSet": "c-{index}", "counters": {"units": {"value": "2"}}}],
    });
    let counters = json!([{"name": "c-{index}", "replicas": 4, "counters": {"units": {"value": "7"}}}]);
    let spec = json!({"devices": [{"name": "first"}, device], "sharedCounters": counters});
    let expansion = expand(one(spec), &[("example.com/gpus", "3")]).unwrap();
    let [pool] = expansion.pools.as_slice() else { panic!("{expansion:?}") };
    assert_eq!(names(pool), ["first", "gpu-0", "gpu-1", "gpu-2"]);
    let last = &pool.devices[3].device;
    assert_eq!(last.attributes["index"], AttributeValue::Int(2));
    assert_eq!(last.attributes["slot"], AttributeValue::String("s2".into()));
    assert_eq!(last.attributes["peers"], AttributeValue::Ints([2, 9].into()));
    assert_eq!(last.attributes["numa"], AttributeValue::Int(1));
    assert_eq!(last.consumes_counters[0].counter_set.as_str(), "c-2");
    assert_eq!(pool.shared_counters.len(), 4);
    assert_eq!(expansion.device_counts().into_values().collect::<Vec<_>>(), [4]);
}

#[test]
fn templates_of_one_driver_and_selection_are_one_pool() {
    let devices = |name: &str| json!([{ "name": name }]);
    let zone = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["topology.kubernetes.io/zone"]}]});
    let expansion = expand(
        json!({"resourceSliceTemplates": [
            template("a", json!({"devices": devices("a")})),
            template("b", json!({"devices": devices("b"), "nodeSelector": zone})),
            template("c", json!({"devices": devices("c")})),
            template("d", json!({"devices": devices("d"), "poolSuffix": "more"})),
            template("e", json!({"devices": devices("e"), "driver": "nic.example.com"})),
            template("f", json!({"devices": devices("f"), "nodeSelector": zone, "scope": "Domain"})),
            template("g", json!({"devices": devices("g"), "allNodes": true})),
        ]}),
        &[],
    )
    .unwrap();
    let pools: Vec<String> = expansion.pools.iter().map(|pool| names(pool).concat()).collect();
    assert_eq!(pools, ["ac", "b", "d", "e", "f", "g"]);
    assert_eq!(expansion.pools[4].scope, PoolScope::Domain);
    let labels = [("topology.kubernetes.io/zone".to_owned(), "Zone_1".to_owned())].into();
    let host = Host { node_name: "n1", labels: &labels };
    let published: Vec<String> = expansion.pools.iter().map(|pool| pool_name(pool, host)).collect();
    assert_eq!(published, ["n1", "n1/selected", "n1/more", "n1", "zone-1", "n1/all"]);
}

#[test]
fn pools_of_a_driver_for_different_nodes_have_different_names() {
    let like = |key: &str| json!({"nodeSelectorTerms": [{"matchLabelKeys": [key]}]});
    let of_zone = |capacity_type: &str| {
        let requirement = json!({"key": "example.com/kind", "operator": "In", "values": [capacity_type]});
        json!({"nodeSelectorTerms": [{"matchLabelKeys": ["zone"], "matchExpressions": [requirement]}]})
    };
    let shared = |name: &str, selector: Value, scope: &str| {
        template(name, json!({"devices": [{ "name": name }], "nodeSelector": selector, "scope": scope}))
    };
    let domains =
        [shared("c", like("zone"), "Domain"), shared("d", of_zone("x"), "Domain"), shared("e", of_zone("y"), "Domain")];
    let machines = [shared("a", like("zone"), "Machine"), shared("b", like("rack"), "Machine")];
    let labels = [("zone".to_owned(), "z1".to_owned()), ("rack".to_owned(), "r1".to_owned())].into();
    let names = |templates: &[Value]| {
        let expansion = expand(json!({"resourceSliceTemplates": templates}), &[]).unwrap();
        let host = Host { node_name: "n1", labels: &labels };
        expansion.pools.iter().map(|pool| pool_name(pool, host)).collect::<Vec<_>>()
    };
    assert_eq!(names(&machines), ["n1/selected", "n1/selected/2"]);
    let of_domains = ["z1", "z1/example-com-kind-in-x", "z1/example-com-kind-in-y"];
    assert_eq!(names(&domains), of_domains);
    // Whatever else a machine's templates say, a domain's pool has one name.
    assert_eq!(names(&domains[2..]), of_domains[2..]);
}

#[test]
fn a_selection_by_hostname_is_the_machine() {
    let selector = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["kubernetes.io/hostname"]}]});
    let expansion = expand(one(json!({"devices": [{"name": "d"}], "nodeSelector": selector})), &[]).unwrap();
    let templates = expansion.templates();
    assert_eq!((templates.own.len(), templates.shared.len()), (1, 0));
    let labels = [("kubernetes.io/hostname".to_owned(), "n1".to_owned())].into();
    let published = slices(&expansion.pools[0], Host { node_name: "n1", labels: &labels }).unwrap();
    let requirement = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
    assert_eq!(
        published[0]["spec"]["nodeSelector"],
        json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]})
    );
}

#[test]
fn selectors_that_no_scheduler_takes_are_refused() {
    let refused = |term: Value| {
        let selector = json!({"nodeSelectorTerms": [term]});
        expand(one(json!({"devices": [{"name": "d"}], "nodeSelector": selector})), &[]).err().unwrap_or_default()
    };
    assert_eq!(
        refused(json!({})),
        "resourceSliceTemplates[t].spec.nodeSelector.nodeSelectorTerms: a term without requirements selects no node; \
         allNodes selects every one"
    );
    assert_eq!(
        refused(json!({"matchExpressions": [{"key": "zone", "operator": "In"}]})),
        "driver gpu.example.com: spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values: In takes at least \
         one value, not 0"
    );
    assert_eq!(refused(json!({"matchLabelKeys": ["zone"]})), "");
}

#[test]
fn slices_are_laid_out_as_a_driver_would_and_the_api_server_would_take_them() {
    let plain = json!({"name": "d-{index}", "replicas": 300});
    let partition = json!({
        "name": "p-{index}", "replicas": 130,
        "consumesCounters": [{"counterSet": "c-0", "counters": {"units": {"value": "1"}}}],
    });
    let counters = json!([{"name": "c-{index}", "replicas": 10, "counters": {"units": {"value": "1000"}}}]);
    let labels = BTreeMap::new();
    let cut = |spec: Value| {
        let expansion = expand(one(spec), &[]).unwrap();
        let slices = slices(&expansion.pools[0], Host { node_name: "n1", labels: &labels }).unwrap();
        let read: Vec<ResourceSlice> = slices.iter().map(|slice| ResourceSlice::from_json(slice).unwrap()).collect();
        assert!(read.iter().all(|slice| validate::slice(slice).is_ok()));
        assert!(read.iter().all(|slice| slice.pool.resource_slice_count == i64::try_from(read.len()).unwrap()));
        assert!(read.is_sorted_by(|a, b| a.meta.name.name < b.meta.name.name));
        read.iter().map(|slice| (slice.shared_counters.len(), slice.devices.len())).collect::<Vec<_>>()
    };
    assert_eq!(cut(json!({"devices": [plain]})), [(0, 128), (0, 128), (0, 44)]);
    let with_counters = json!({"devices": [partition], "sharedCounters": counters});
    assert_eq!(cut(with_counters), [(8, 0), (2, 0), (0, 64), (0, 64), (0, 2)]);
}

#[test]
fn the_machine_that_publishes_is_part_of_the_selection() {
    let selector = json!({"nodeSelectorTerms": [{
        "matchLabelKeys": ["rack"], "matchExpressions": [{"key": "gen", "operator": "Exists"}],
    }]});
    let expansion = expand(one(json!({"devices": [{"name": "d"}], "nodeSelector": selector})), &[]).unwrap();
    let publish = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        slices(&expansion.pools[0], Host { node_name: "n1", labels: &labels }).map_err(|error| error.to_string())
    };
    assert_eq!(
        publish(&[("rack", "r7")]).unwrap()[0]["spec"]["nodeSelector"],
        json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "rack", "operator": "In", "values": ["r7"]}, {"key": "gen", "operator": "Exists"},
        ]}]})
    );
    assert_eq!(
        publish(&[]).unwrap_err(),
        "driver gpu.example.com: machines of this instance type have no certain label rack"
    );
}

#[test]
fn a_group_is_made_for_each_number_that_all_selectors_have() {
    let devices = |name: &str, count: i64| json!([{ "name": format!("{name}-{{index}}"), "replicas": count }]);
    let selector = |template: &str, device: &str| json!({"resourceSliceTemplate": template, "device": device});
    let json = json!({
        "resourceSliceTemplates": [
            template("gpus", json!({"devices": devices("gpu", 3)})),
            template("nics", json!({"driver": "nic.example.com", "devices": devices("nic", 2)})),
        ],
        "attributeBindings": [
            {"attributes": ["resource.kubernetes.io/pcieRoot"], "distinctGroups": true,
             "deviceSelectors": [selector("gpus", "gpu-{index}"), selector("nics", "nic-{index}")]},
            {"attributes": ["board"], "deviceSelectors": [selector("gpus", "gpu-0"), selector("gpus", "gpu-2")]},
        ],
    });
    let expansion = expand(json, &[]).unwrap();
    let groups: Vec<_> = expansion.groups.iter().map(|it| (it.binding, it.distinct, it.members.clone())).collect();
    assert_eq!(
        groups,
        [(0, true, vec![(0, 0), (1, 0)]), (0, true, vec![(0, 1), (1, 1)]), (1, false, vec![(0, 0), (0, 2)])]
    );
    let found_out = expansion.clone().with_values(|group| format!("root-{group}"));
    let labels = BTreeMap::new();
    let host = Host { node_name: "n1", labels: &labels };
    let published = slices(&found_out.pools[1], host).unwrap()[0]["spec"]["devices"][1]["attributes"].clone();
    assert_eq!(published, json!({"resource.kubernetes.io/pcieRoot": {"string": "root-1"}}));
    let templates = expansion.templates().own;
    let bound: Vec<usize> = templates.iter().map(|template| template.bindings.len()).collect();
    assert_eq!(bound, [4, 2]);
    assert_eq!(templates[0].bindings[0].0, templates[1].bindings[0].0, "a group spans drivers");
    assert_ne!(templates[0].bindings[0].0, templates[0].bindings[1].0);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let zone = || json!({"nodeSelectorTerms": [{"matchLabelKeys": ["zone"]}]});
    let device = |fields: Value| {
        let mut device = json!({"name": "d"});
        device.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        one(json!({"devices": [device]}))
    };
    let bind = |template: &str, device: &str, attribute: &str| {
        let mut json = one(json!({"devices": [{"name": "d", "attributes": {"a": {"int": 1}}}, {"name": "e"}]}));
        let selector = json!({"resourceSliceTemplate": template, "device": device});
        json["attributeBindings"] = json!([{"attributes": [attribute], "deviceSelectors": [selector]}]);
        json
    };
    let twice = |binding: Value| {
        let mut json = binding;
        let first = json["attributeBindings"][0].clone();
        json["attributeBindings"].as_array_mut().unwrap().push(first);
        json
    };
    let drivers = |entries: Value| {
        let mut json = one(json!({"devices": [{"name": "d"}]}));
        json["drivers"] = entries;
        json
    };
    let daemon_set = |named: Value| drivers(json!([{"name": "gpu.example.com", "daemonSet": named}]));
    let counter = |set: &str| json!([{"counterSet": set, "counters": {"units": {"value": "1"}}}]);
    let cases = [
        (
            json!({"resourceSliceTemplates": [template("t", json!({"devices": [{"name": "d"}]})),
                                              template("t", json!({"devices": [{"name": "e"}]}))]}),
            "resourceSliceTemplates[t].metadata.name: is there twice",
        ),
        (one(json!({})), "resourceSliceTemplates[t].spec.devices: is required"),
        (
            one(json!({"devices": [{"name": "d"}], "allNodes": true, "nodeSelector": zone()})),
            "resourceSliceTemplates[t].spec.nodeSelector: only one of nodeSelector, allNodes and perDeviceNodeSelection \
             can be set",
        ),
        (
            one(json!({"devices": [{"name": "d"}], "nodeSelector": {"nodeSelectorTerms": []}})),
            "resourceSliceTemplates[t].spec.nodeSelector.nodeSelectorTerms: must have exactly one term",
        ),
        (
            one(json!({"devices": [{"name": "d"}], "scope": "Domain"})),
            "resourceSliceTemplates[t].spec.scope: Domain needs a nodeSelector or allNodes: devices that only one machine \
             can use belong to no domain",
        ),
        (
            one(json!({"devices": [{"name": "d"}], "scope": "Rack"})),
            "resourceSliceTemplates[t].spec.scope: \"Rack\" is neither Machine nor Domain",
        ),
        (
            device(json!({"nodeSelector": zone()})),
            "resourceSliceTemplates[t].spec.devices[0].nodeSelector: devices select nodes only where the template says \
             perDeviceNodeSelection",
        ),
        (
            one(json!({"devices": [{"name": "d"}], "perDeviceNodeSelection": true})),
            "resourceSliceTemplates[t].spec.devices[0].nodeSelector: is required",
        ),
        (
            device(json!({"replicas": 2})),
            "resourceSliceTemplates[t].spec.devices[0].name: must contain {index}, since there are replicas",
        ),
        (
            device(json!({"name": "d-{index}"})),
            "resourceSliceTemplates[t].spec.devices[0].name: contains {index}, but there are neither replicas nor \
             replicasFromLabel",
        ),
        (
            device(json!({"name": "d-{index}", "replicas": 2, "replicasFromLabel": "l"})),
            "resourceSliceTemplates[t].spec.devices[0]: replicas and replicasFromLabel exclude each other",
        ),
        (
            device(json!({"name": "d-{index}", "replicas": -1})),
            "resourceSliceTemplates[t].spec.devices[0]: -1 is not a number of devices",
        ),
        (
            device(json!({"name": "d-{index}", "replicas": 9_000_000_000_i64})),
            "resourceSliceTemplates[t].spec.devices[0]: 9000000000 is not a number of devices",
        ),
        (
            device(json!({"name": "d-{index}", "replicasFromLabel": "missing"})),
            "resourceSliceTemplates[t].spec.devices[0]: machines of this instance type have no certain label missing",
        ),
        (
            device(json!({"name": "d-{index}", "replicasFromLabel": "text"})),
            "resourceSliceTemplates[t].spec.devices[0]: label text is \"many\", which is not a number of devices",
        ),
        (
            device(json!({"attributes": {"a": {"int": "{index}"}}})),
            "resourceSliceTemplates[t].spec.devices[0]: \"{index}\" is not an integer",
        ),
        (
            device(json!({"capacity": {"memory": {"value": "lots"}}})),
            "resourceSliceTemplates[t].spec.devices[0]: capacity[memory].value: ",
        ),
        (device(json!({"name": "Not_A_Label"})), "driver gpu.example.com: device Not_A_Label, name: "),
        (
            device(json!({"attributes": {"a": {"string": "x".repeat(65)}}})),
            "driver gpu.example.com: device d, attributes[a]",
        ),
        (
            device(json!({"consumesCounters": counter("none")})),
            "driver gpu.example.com: device d consumes counter units of counter set none, which the pool does not have",
        ),
        (
            one(json!({"devices": [{"name": "d-{index}", "replicas": 2}, {"name": "d-1"}]})),
            "driver gpu.example.com: two devices of one pool have the name d-1",
        ),
        (
            bind("other", "d", "b"),
            "attributeBindings[0].deviceSelectors[0].resourceSliceTemplate: there is no template \"other\"",
        ),
        (bind("t", "x", "b"), "attributeBindings[0].deviceSelectors[0]: the template has no device \"x\""),
        (
            bind("t", "d", "gpu.example.com/a"),
            "attributeBindings[0].attributes: device d has a value for gpu.example.com/a already",
        ),
        (twice(bind("t", "e", "b")), "attributeBindings[1].attributes: device e is in two groups for b"),
        (drivers(json!([{"name": "nic.example.com"}])), "drivers[nic.example.com].name: no template is of this driver"),
        (
            drivers(json!([{"name": "gpu.example.com"}, {"name": "gpu.example.com"}])),
            "drivers[gpu.example.com].name: is there twice",
        ),
        (
            daemon_set(json!({"namespace": "gpu"})),
            "drivers[gpu.example.com].daemonSet: needs either a name or matchLabels",
        ),
        (
            daemon_set(json!({"name": "a", "matchLabels": {"a": "b"}})),
            "drivers[gpu.example.com].daemonSet: needs either a name or matchLabels",
        ),
        (daemon_set(json!({"name": "A"})), "drivers[gpu.example.com].daemonSet.name: \"A\" is not a name of an object"),
        (
            daemon_set(json!({"namespace": "", "name": "a"})),
            "drivers[gpu.example.com].daemonSet.namespace: \"\" is not a name of an object",
        ),
        (
            daemon_set(json!({"matchLabels": {"a": "b c"}})),
            "drivers[gpu.example.com].daemonSet.matchLabels: \"a=b c\" is not a label: a valid label must be",
        ),
    ];
    for (json, expected) in cases {
        let error = expand(json.clone(), &[("text", "many")]).err().unwrap_or_default();
        assert!(error.starts_with(expected), "{json}\n{error:?}");
    }
}

#[test]
fn the_number_of_devices_is_bounded() {
    let many = |count: usize| {
        let device = |name: &str| json!({"name": format!("{name}-{{index}}"), "replicas": count});
        expand(one(json!({"devices": [device("a"), device("b")]})), &[])
    };
    assert_eq!(many(MAX_DEVICES / 2).unwrap().pools[0].devices.len(), MAX_DEVICES);
    assert_eq!(
        many(MAX_DEVICES / 2 + 1).unwrap_err(),
        "resourceSliceTemplates[t].spec.devices[1]: more than 2048 devices in one pool"
    );
}

#[test]
fn devices_of_other_nodes_become_pools_for_the_machines_domain() {
    let zone = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["zone"], "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["gold"]}]}]});
    let json = json!({"resourceSliceTemplates": [
        template("own", json!({"devices": [{"name": "a"}]})),
        template("zonal", json!({"devices": [{"name": "b"}], "nodeSelector": zone, "scope": "Domain"})),
        template("all", json!({"devices": [{"name": "c"}], "allNodes": true})),
        template("each", json!({"perDeviceNodeSelection": true, "devices": [
            {"name": "d", "allNodes": true}, {"name": "e", "nodeSelector": zone}, {"name": "f", "allNodes": true}]})),
    ]});
    let templates = expand(json, &[]).unwrap().templates();
    let devices = |template: &MachineTemplate| -> Vec<String> {
        template.devices.iter().map(|device| device.name.to_string()).collect()
    };
    assert_eq!(templates.own.iter().map(|own| devices(own)).collect::<Vec<_>>(), [["a"]]);
    let keys = |shared: &SharedTemplate| shared.nodes.keys().map(|key| key.to_string()).collect::<Vec<_>>();
    let shared: Vec<_> =
        templates.shared.iter().map(|shared| (devices(&shared.template), shared.scope, keys(shared))).collect();
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    use dra_sched::PoolScope::{Domain, Machine};
    assert_eq!(
        shared,
        [
            (text(&["b"]), Domain, text(&["tier", "zone"])),
            (text(&["c"]), Machine, text(&[])),
            (text(&["d", "f"]), Machine, text(&[])),
            (text(&["e"]), Machine, text(&["tier", "zone"])),
        ]
    );
}

#[test]
fn devices_that_choose_their_nodes_share_a_counter_set_only_with_devices_for_the_same_nodes() {
    let draws = |set: &str| json!([{"counterSet": set, "counters": {"units": {"value": "1"}}}]);
    let hosts = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["kubernetes.io/hostname"]}]});
    let zone = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["zone"]}]});
    let json = |set: &str| {
        one(json!({"perDeviceNodeSelection": true,
            "sharedCounters": [{"name": "c", "counters": {"units": {"value": "7"}}},
                               {"name": "e", "counters": {"units": {"value": "7"}}}],
            "devices": [{"name": "mine", "nodeSelector": hosts, "consumesCounters": draws("c")},
                        {"name": "ours", "nodeSelector": zone, "consumesCounters": draws(set)},
                        {"name": "too", "nodeSelector": zone, "consumesCounters": draws(set)},
                        {"name": "free", "allNodes": true}]}))
    };
    let templates = expand(json("e"), &[]).unwrap().templates();
    let devices =
        |template: &MachineTemplate| template.devices.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    assert_eq!(templates.own.iter().map(|own| devices(own)).collect::<Vec<_>>(), [["mine"]]);
    let shared: Vec<_> = templates.shared.iter().map(|shared| devices(&shared.template).join(" ")).collect();
    assert_eq!(shared, ["ours too", "free"]);
    assert_eq!(
        expand(json("c"), &[]).unwrap_err(),
        "driver gpu.example.com: devices mine and ours consume counters of set c and are for different nodes; devices that \
         share a counter set need the same nodeSelector"
    );
}

#[test]
fn devices_written_out_equal_replicas() {
    let replicas = expand(
        one(json!({"devices": [
        {"name": "d-{index}", "replicas": 2, "attributes": {"index": {"int": "{index}"}, "model": {"string": "x"}}}]})),
        &[],
    );
    let device = |index: i64| json!({"name": format!("d-{index}"), "attributes": {"index": {"int": index}, "model": {"string": "x"}}});
    let written = expand(one(json!({"devices": [device(0), device(1)]})), &[]).unwrap();
    let replicas = replicas.unwrap();
    assert_eq!(replicas, written);
    let labels = BTreeMap::new();
    let host = Host { node_name: "n", labels: &labels };
    assert_eq!(slices(&replicas.pools[0], host).unwrap(), slices(&written.pools[0], host).unwrap());
}
