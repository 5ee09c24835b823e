//! Simple selectors have two evaluators, which must agree on everything: match, error, cost.

#[path = "../examples/cel_cases/generate.rs"]
mod generate;

use dra_types::{AttributeValue, Compat, Device, DriverName, Gates, KubernetesMinor};
use k8s_cel::{DeviceView, Selector, SlotTable};
use seeded_random::Random;
use serde_json::{Value, json};

/// Compares both evaluators on a device, for two releases; how many programs there were.
fn compare(text: &str, device: &Value) -> usize {
    compare_bound(text, device, |_| false)
}

/// Compares where the values of some attributes are known after launch only.
fn compare_bound(text: &str, device: &Value, is_bound: impl Fn(&str) -> bool) -> usize {
    let driver = DriverName::from(device["driver"].as_str().unwrap_or_default());
    let mut object = device.clone();
    object.as_object_mut().unwrap().remove("driver");
    object["name"] = "device".into();
    let mut device = Device::from_json(&object).unwrap();
    for (_, value) in device.attributes.iter_mut().filter(|(name, _)| is_bound(name.id())) {
        *value = AttributeValue::AfterLaunch;
    }
    let mut programs = 0;
    for release in [KubernetesMinor::V1_36, KubernetesMinor::V1_37] {
        for gates in [Gates::all(release), Gates::defaults(release)] {
            let compat = Compat::with_gates(release, gates);
            let Ok(selector) = Selector::compile(text, &compat) else { continue };
            // Slots that others use do not matter.
            let mut table = SlotTable::default();
            let other = Selector::compile("device.attributes['gpu.example.com'].other == 1", &compat).unwrap();
            assert!(other.lower(&mut table).is_some());
            let Some(program) = selector.lower(&mut table) else { continue };
            programs += 1;
            let by_slots = program.evaluate(&table.row(&driver, &device, &compat));
            let general = selector.evaluate(&DeviceView::new(&driver, &device, &compat));
            assert_eq!(by_slots, Some(general), "{text}\non {object}");
        }
    }
    programs
}

#[test]
fn both_evaluators_agree_on_any_selector() {
    let mut programs = 0;
    for number in 0..1500 {
        let case = generate::case(&mut Random::of_case(3, number), "random");
        programs += compare(case["expr"].as_str().unwrap(), &case["device"]);
    }
    assert!(programs > 300, "only {programs} were simple");
}

#[test]
fn both_evaluators_agree_on_combinations_of_reads_and_comparisons() {
    let mut programs = 0;
    for number in 0..1500 {
        let mut random = Random::of_case(4, number);
        let text = condition(&mut random, 3);
        let device = generate::case(&mut random, "random")["device"].take();
        programs += compare(&text, &device);
    }
    assert!(programs > 4000, "only {programs} were simple");
}

#[test]
fn both_evaluators_agree_where_values_are_known_after_launch() {
    let mut programs = 0;
    for number in 0..1500 {
        let mut random = Random::of_case(5, number);
        let text = condition(&mut random, 2);
        let device = generate::case(&mut random, "random")["device"].take();
        programs += compare_bound(&text, &device, |id| ["type", "index", "numa"].contains(&id));
    }
    assert!(programs > 4000, "only {programs} were simple");
}

#[test]
fn an_attribute_under_both_its_names_reads_as_the_one_that_sorts_last() {
    for (bare, whole) in [(1, 2), (2, 1)] {
        for driver in ["gpu.example.com", "z.example.com"] {
            let attributes = json!({"index": {"int": bare}, format!("{driver}/index"): {"int": whole}});
            let device = json!({"driver": driver, "attributes": attributes});
            assert_eq!(compare(&format!("device.attributes['{driver}'].index == 1"), &device), 4);
        }
    }
}

#[test]
fn what_reads_no_named_attribute_keeps_the_general_evaluator() {
    let device = json!({"driver": "gpu.example.com"});
    for text in ["device.attributes.exists(d, d == 'x')", "[1, 2].all(x, x > 0)", "true ? device.driver == '' : false"]
    {
        assert_eq!(compare(text, &device), 0, "{text}");
    }
}

fn condition(random: &mut Random, depth: usize) -> String {
    if depth > 0 && random.percent(70) {
        let operator = *random.pick(&["&&", "||"]);
        let (left, right) = (condition(random, depth - 1), condition(random, depth - 1));
        return format!("({left} {operator} {right})");
    }
    let domain = *random.pick(&["gpu.example.com", "dra.net", "resource.kubernetes.io", "no.such"]);
    let id = *random.pick(&["type", "index", "ready", "version", "numa", "name", "nope"]);
    let attribute = match random.below(4) {
        0 => format!("device.attributes['{domain}']['{id}']"),
        _ => format!("device.attributes['{domain}'].{id}"),
    };
    let constant = *random.pick(&["1", "3", "'gpu'", "true", "2.5", "semver('1.2.3')", "quantity('4Gi')", "null"]);
    let capacity = format!("device.capacity['{domain}'].{}", random.pick(&["memory", "cores", "nope"]));
    match random.below(14) {
        0 | 1 => format!("{attribute} {} {constant}", random.pick(&["==", "!="])),
        2 => format!("{constant} {} {attribute}", random.pick(&["==", "!="])),
        3 => format!(
            "{attribute} {} {}",
            random.pick(&["<", "<=", ">", ">="]),
            random.pick(&["1", "2u", "2.5", "'gpu'"])
        ),
        4 => format!("{attribute} in {}", random.pick(&["['gpu', 'nic']", "[0, 1, 2]", "[]", "[1, 'gpu']", "[true]"])),
        5 => format!("has(device.attributes['{domain}'].{id})"),
        6 => format!("'{id}' in device.attributes['{domain}']"),
        7 => format!("'{domain}' in device.{}", random.pick(&["attributes", "capacity"])),
        8 => format!("{capacity}.compareTo(quantity('{}')) >= 0", random.pick(&["4Gi", "1", "1500m", "x"])),
        9 => format!("{capacity}.{}(quantity('4Gi'))", random.pick(&["isGreaterThan", "isLessThan"])),
        10 => format!("device.attributes['{domain}'].?{id}.orValue({constant}) == {constant}"),
        11 => format!("!({attribute})"),
        12 => format!("device.driver {} 'gpu.example.com'", random.pick(&["==", "!="])),
        _ => attribute,
    }
}
