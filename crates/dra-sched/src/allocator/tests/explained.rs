//! What a refusal says when somebody reads it: a table of one cause each.

use serde_json::{Value, json};

use crate::explain::{Explanation, RequestStep};
use crate::fixture::{ask_with, builder, claim, exactly, local, slice};
use crate::inventory::{Inventory, InventoryBuilder};
use crate::ledger::ClusterLedger;
use crate::verdict::{Refusal, Verdict};
use dra_types::DeviceId;

fn id(device: &str) -> DeviceId {
    DeviceId { driver: "gpu".into(), pool: "n1".into(), device: device.into() }
}

/// How a claim of that spec is refused, where the named devices are taken.
fn refused(mut builder: InventoryBuilder, spec: &Value, taken: &[&str]) -> (Inventory, Refusal) {
    let class = claim(&mut builder, "c", spec);
    let inventory = builder.build();
    let mut ledger = ClusterLedger::new(&inventory);
    for device in taken {
        ledger.hold_device(&inventory, &id(device));
    }
    let (verdict, _) = ask_with(&inventory, &[class], &ledger);
    let Verdict::Refused(refusal) = verdict else { panic!("{verdict:?}") };
    (inventory, refusal)
}

/// The explanation for one request, where the named devices are taken.
fn explained(builder: InventoryBuilder, request: Value, taken: &[&str]) -> Explanation {
    let (inventory, refusal) = refused(builder, &json!({"requests": [request]}), taken);
    let holder = |device: &DeviceId| taken.contains(&device.device.as_str()).then(|| format!("owner of {device}"));
    Explanation::of(&inventory, &refusal, &holder)
}

fn with(devices: &Value) -> InventoryBuilder {
    let mut builder = builder(&["gpu"]);
    builder.slice(local("gpu", devices));
    builder
}

#[test]
fn devices_in_use_name_who_has_them() {
    let why = explained(with(&json!([{"name": "a"}, {"name": "b"}])), exactly("r", "gpu", 2), &["a"]);
    assert_eq!(why.code, "TooFewDevices");
    let fell = &why.requests[0].fell[0];
    assert_eq!((fell.rule, fell.devices), ("InUse", 1));
    assert_eq!((fell.held_by[0].device.as_str(), fell.held_by[0].holder.as_str()), ("a", "owner of gpu/n1/a"));
    assert_eq!(why.hints, ["1 device for request r is given back", "request r wants 1 or fewer"]);
    assert_eq!(fell.message, "is allocated");
}

#[test]
fn a_refusal_is_explained_by_what_was_taken_when_it_was_made() {
    let mut builder = with(&json!([{"name": "a"}, {"name": "b"}]));
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "gpu", 2)]}));
    let inventory = builder.build();
    let mut ledger = ClusterLedger::new(&inventory);
    ledger.hold_device(&inventory, &id("a"));
    let (verdict, _) = ask_with(&inventory, &[class], &ledger);
    let Verdict::Refused(refusal) = verdict else { panic!("{verdict:?}") };
    ledger.hold_device(&inventory, &id("b"));
    let why = Explanation::of(&inventory, &refusal, &|_| None);
    assert_eq!(why.message, "claim c, request r: 1 of 2 devices are usable, 2 wanted; 1 is allocated");
}

#[test]
fn what_a_planned_machine_holds_itself_is_in_the_reasons() {
    let template = json!([{"name": "a"}, {"name": "b"}]);
    let devices = template.as_array().unwrap().iter().map(|device| dra_types::Device::from_json(device).unwrap());
    let template = crate::MachineTemplate {
        driver: "gpu".into(),
        pool_suffix: "".into(),
        devices: devices.collect(),
        shared_counters: Vec::new(),
        bindings: Vec::new(),
    };
    let mut builder = builder(&["gpu"]);
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "gpu", 1)]}));
    let shape = crate::machine::MachineShape::new(vec![template.into()], [].into(), [].into());
    let shapes = [builder.machine_shape(shape)].into_iter().collect();
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let bin = crate::BinLedger::machine(&shapes, &mut cluster);
    let uses = [crate::ClaimUse::Fresh { class, containers: 1 }];
    let offer = crate::Copies { claims: &uses, copies: 3 }.try_add(
        &inventory,
        &bin,
        &shapes,
        &cluster,
        &mut model::Budget::new(1000),
    );
    assert_eq!(offer.refused[0].copies, 2);
    let why = Explanation::of(&inventory, &offer.refused[0].refusal, &|_| None);
    assert_eq!(why.message, "claim c, request r: 0 of 2 devices are usable, 1 wanted; 2 are allocated");
}

#[test]
fn a_selector_names_what_it_looks_at_and_nothing_else() {
    let devices = json!([
        {"name": "a", "attributes": {"model": {"string": "x"}, "models": {"int": 1}}, "capacity": {"mem": {"value": "8Gi"}}},
        {"name": "b", "attributes": {"model": {"string": "y"}}, "capacity": {"mem": {"value": "8Gi"}}},
    ]);
    let mut request = exactly("r", "gpu", 1);
    let text = "device.attributes['gpu'].model == 'z' || device.capacity['gpu'].mem.isGreaterThan(quantity('9Gi'))";
    request["exactly"]["selectors"] = json!([{"cel": {"expression": text}}]);
    let why = explained(with(&devices), request, &[]);
    let fell = &why.requests[0].fell[0];
    let met: Vec<(&str, String)> = fell.met.iter().map(|met| (met.name.as_str(), met.values.join(" "))).collect();
    assert_eq!(met, [("model", "\"x\" \"y\"".to_owned()), ("mem", "8Gi".to_owned())]);
    assert!(fell.message.contains(text));
}

#[test]
fn a_taint_says_what_tolerating_it_would_do() {
    let taint = json!([{"key": "broken", "value": "yes", "effect": "NoSchedule"}]);
    let why = explained(with(&json!([{"name": "a", "taints": taint}])), exactly("r", "gpu", 1), &[]);
    assert_eq!(why.requests[0].fell[0].rule, "Taint");
    assert_eq!(why.hints, ["request r tolerates broken=yes:NoSchedule"]);
}

#[test]
fn a_counter_says_what_is_needed_what_is_left_and_who_draws() {
    let draw = |name: &str, amount: &str| json!({"name": name, "consumesCounters": [{"counterSet": "s", "counters": {"mem": {"value": amount}}}]});
    let mut builder = builder(&["gpu"]);
    let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 2});
    let devices = json!([draw("a", "30Gi"), draw("b", "20Gi"), draw("c", "30Gi")]);
    builder.slice(slice("devices", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "devices": devices})));
    let counters = json!([{"name": "s", "counters": {"mem": {"value": "40Gi"}}}]);
    builder.slice(slice(
        "counters",
        &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "sharedCounters": counters}),
    ));
    let why = explained(builder, exactly("r", "gpu", 1), &["a"]);
    let fell = why.requests[0].fell.iter().find(|fell| fell.rule == "Counter").unwrap();
    let amount = fell.amount.as_ref().unwrap();
    assert_eq!((fell.devices, amount.needed.as_str(), amount.left.as_str()), (2, "20Gi", "10Gi"));
    assert_eq!(fell.held_by.iter().map(|holder| holder.device.as_str()).collect::<Vec<_>>(), ["a"]);
    assert!(why.hints.iter().any(|hint| hint.contains("counter s/mem")), "{:?}", why.hints);
}

#[test]
fn a_capacity_says_what_is_needed_and_what_is_left() {
    let devices = json!([{"name": "a", "allowMultipleAllocations": true, "capacity": {"mem": {"value": "8Gi"}}}]);
    let mut request = exactly("r", "gpu", 1);
    request["exactly"]["capacity"] = json!({"requests": {"mem": "9Gi"}});
    let why = explained(with(&devices), request, &[]);
    let fell = &why.requests[0].fell[0];
    let amount = fell.amount.as_ref().unwrap();
    assert_eq!((fell.rule, amount.needed.as_str(), amount.left.as_str()), ("Capacity", "9Gi", "8Gi"));
}

#[test]
fn pools_that_are_not_used_are_named_with_the_reason() {
    let mut builder = builder(&["gpu"]);
    let pool = json!({"name": "n1", "generation": 3, "resourceSliceCount": 2});
    builder.slice(slice("half", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "devices": [{"name": "a"}]})));
    let why = explained(builder, exactly("r", "gpu", 1), &[]);
    assert_eq!(why.pools, ["gpu/n1 is incomplete: 1 of 2 slices of generation 3"]);
    assert_eq!(why.hints, ["the driver publishes the missing slices of pool gpu/n1"]);
}

#[test]
fn values_in_play_are_counted_for_each_request() {
    let root = |name: &str, root: &str| json!({"name": name, "attributes": {"example.com/root": {"string": root}}});
    let mut builder = builder(&["gpu", "nic"]);
    builder.slice(local("gpu", &json!([root("a", "r0"), root("b", "r0"), root("c", "r1")])));
    builder.slice(local("nic", &json!([root("n", "r2")])));
    let spec = json!({"requests": [exactly("gpu", "gpu", 1), exactly("nic", "nic", 1)],
        "constraints": [{"matchAttribute": "example.com/root"}]});
    let class = claim(&mut builder, "c", &spec);
    let inventory = builder.build();
    let (verdict, _) = ask_with(&inventory, &[class], &ClusterLedger::new(&inventory));
    let Verdict::Refused(refusal) = verdict else { panic!("{verdict:?}") };
    let why = Explanation::of(&inventory, &refusal, &|_| None);
    let shown: Vec<(&str, Vec<(&str, u64)>)> = why
        .values
        .iter()
        .map(|value| (value.request.as_str(), value.devices.iter().map(|(text, count)| (&**text, *count)).collect()))
        .collect();
    assert_eq!(shown, [("gpu", vec![("\"r0\"", 2), ("\"r1\"", 1)]), ("nic", vec![("\"r2\"", 1)])]);
    assert_eq!(why.hints, ["devices shared example.com/root, but gpu has \"r0\", \"r1\"; nic has \"r2\""]);
}

/// Where each request ends: code, devices of the class, usable ones, nearest miss.
fn ends(builder: InventoryBuilder, spec: &Value, taken: &[&str]) -> Vec<(&'static str, u64, u64, String)> {
    let (inventory, refusal) = refused(builder, spec, taken);
    let steps = RequestStep::all_of(&inventory, &refusal).unwrap_or_default();
    let of = |step: RequestStep| {
        let code = step.step.map_or("", |step| step.code());
        (code, step.of_class, step.usable, step.nearest.map(|text| text.to_string()).unwrap_or_default())
    };
    steps.into_iter().map(of).collect()
}

#[test]
fn a_request_ends_at_the_rule_after_which_too_few_devices_are_left() {
    let of = |name: &str, model: &str, taints: Value| json!({"name": name, "attributes": {"model": {"string": model}}, "taints": taints});
    let taint = json!([{"key": "broken", "value": "yes", "effect": "NoSchedule"}]);
    let devices =
        json!([of("a", "x", json!([])), of("b", "y", json!([])), of("c", "y", taint), of("d", "y", json!([]))]);
    let wants = |count: usize| {
        let mut request = exactly("r", "gpu", count);
        request["exactly"]["selectors"] = json!([{"cel": {"expression": "device.attributes['gpu'].model == 'y'"}}]);
        json!({"requests": [request]})
    };
    let tainted = || "gpu/n1/c has taint broken=yes:NoSchedule".to_owned();
    assert_eq!(ends(with(&devices), &wants(4), &[]), [("RequestSelector", 4, 2, tainted())]);
    assert_eq!(ends(with(&devices), &wants(3), &[]), [("Taint", 4, 2, tainted())]);
    assert_eq!(ends(with(&devices), &wants(2), &["b"]), [("Taint", 4, 1, tainted())], "b falls first, c is too much");
    assert_eq!(ends(with(&devices), &wants(5), &[]), [("TooFewDevices", 4, 2, tainted())]);
    let none = json!({"requests": [exactly("r", "nic", 1)]});
    let mut both = builder(&["gpu", "nic"]);
    both.slice(local("gpu", &devices));
    assert_eq!(ends(both, &none, &[]), [("NoDevices", 0, 0, String::new())]);
}

#[test]
fn requests_with_enough_each_end_at_what_they_may_not_be_together() {
    let two = json!([{"name": "a"}, {"name": "b"}]);
    let compete = json!({"requests": [exactly("r", "gpu", 2), exactly("s", "gpu", 1)]});
    let together = ("TooFewDevicesTogether", 2, 2, String::new());
    assert_eq!(ends(with(&two), &compete, &[]), [together.clone(), together]);
    let root = |name: &str, root: &str| json!({"name": name, "attributes": {"example.com/root": {"string": root}}});
    let apart = json!([root("a", "r0"), root("b", "r1")]);
    let one_root =
        json!({"requests": [exactly("r", "gpu", 2)], "constraints": [{"matchAttribute": "example.com/root"}]});
    assert_eq!(ends(with(&apart), &one_root, &[]), [("NoCommonValue", 2, 2, String::new())]);
}
