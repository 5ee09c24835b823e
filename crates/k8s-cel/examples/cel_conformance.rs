//! Runs selectors with known verdicts of upstream and compares compile verdict, match, error and costs.
//!
//! ```text
//! cargo run --release -p k8s-cel --example cel_conformance -- FILE.jsonl…
//! ```
//!
//! Each line is a device, `{"device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}}`, which the
//! following lines are about, or a case, `{"name", "expr", "upstream": {"match", "error", "actualCost", "maxCost"}}`;
//! `{"compileError"}` stands for a text that upstream refuses, and must be refused at the same place. A case may carry
//! a `device` and a list of `features` of its own; without that list all gates are on. `kubernetes`, as in `"1.36"`, is
//! the release that answered, by default 1.37 while it was an alpha. Exits with 1 if a case fails.

use std::process::ExitCode;

use dra_types::{Compat, Device, DriverName, Gate, Gates, KubernetesMinor};
use k8s_cel::{CompileError, DeviceView, Evaluation, MAX_COST, Selector};
use serde_json::Value;

fn main() -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::from(2);
            }
        };
        match run(&text) {
            Ok((cases, differences)) => {
                passed += cases - differences.len();
                failed += differences.len();
                differences.iter().for_each(|difference| println!("{path}:{difference}"));
            }
            Err(error) => {
                eprintln!("{path}:{error}");
                return ExitCode::from(2);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the cases of a file: how many there are, and what differs in which line.
pub(crate) fn run(text: &str) -> Result<(usize, Vec<String>), String> {
    let (mut cases, mut differences) = (0, Vec::new());
    let mut device = Value::Null;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).map_err(|error| format!("{}: {error}", number + 1))?;
        if let Some(found) = case.get("device") {
            device = found.clone();
        }
        if case.get("expr").is_none() {
            continue;
        }
        cases += 1;
        if let Err(difference) = check(&case, &device) {
            differences.push(format!("{}: {}\n  {}\n  {difference}", number + 1, case["name"], case["expr"]));
        }
    }
    Ok((cases, differences))
}

/// The difference between upstream's answer to a case and ours, if there is one.
pub(crate) fn check(case: &Value, device: &Value) -> Result<(), String> {
    let compat = compat(case)?;
    let upstream = &case["upstream"];
    let refused = upstream["compileError"].as_str();
    let expected_error = upstream["error"].as_str().unwrap_or_default();
    let compiled: Result<Selector, CompileError> =
        Selector::compile(case["expr"].as_str().unwrap_or_default(), &compat);
    let selector = match (compiled, refused) {
        (Err(error), Some(expected)) => return same_place(&error, expected),
        (Err(error), None) => return Err(format!("refused: {error}; upstream compiles it")),
        (Ok(_), Some(expected)) => return Err(format!("compiled; upstream refuses it: {expected}")),
        (Ok(selector), None) => selector,
    };
    let driver = DriverName::from(device["driver"].as_str().unwrap_or_default());
    let view = DeviceView::new(&driver, &read_device(device)?, &compat);
    let found = selector.evaluate(&view);
    compare(&found, upstream, expected_error)?;
    let expected = upstream["maxCost"].as_u64();
    if expected.is_some_and(|expected| expected != selector.max_cost()) {
        return Err(format!("estimated cost {}, upstream {expected:?}", selector.max_cost()));
    }
    let too_complex = selector.max_cost() > MAX_COST;
    if expected.is_some_and(|expected| (expected > MAX_COST) != too_complex) {
        return Err("admission differs".to_owned());
    }
    Ok(())
}

/// Upstream reports all errors, ours the first; a place is not given for every kind.
fn same_place(error: &CompileError, expected: &str) -> Result<(), String> {
    let place = |rest: &str| {
        let mut numbers = rest.split(':').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let places: Vec<_> = expected.split("<input>:").skip(1).filter_map(place).collect();
    if places.is_empty() || places.contains(&(error.line, error.column)) {
        return Ok(());
    }
    Err(format!("refused at another place: {error}; upstream: {expected}"))
}

fn compare(found: &Evaluation, upstream: &Value, expected_error: &str) -> Result<(), String> {
    match &found.outcome {
        Ok(_) if !expected_error.is_empty() => {
            return Err(format!("{:?}, upstream fails: {expected_error}", found.outcome));
        }
        Ok(matches) if Some(*matches) != upstream["match"].as_bool() => {
            return Err(format!("match is {matches}, upstream {}", upstream["match"]));
        }
        Err(error) if category(&error.to_string()) != category(expected_error) => {
            return Err(format!("fails with {error:?}, upstream with {expected_error:?}"));
        }
        Ok(_) | Err(_) => {}
    }
    match upstream["actualCost"].as_u64() {
        Some(expected) if expected != found.cost => Err(format!("cost {}, upstream {expected}", found.cost)),
        _ => Ok(()),
    }
}

/// What kind of error a message is; the words of functions' own errors are not compared.
fn category(message: &str) -> &str {
    const KINDS: [&str; 10] = [
        "no such key",
        "index out of bounds",
        "no such overload",
        "integer overflow",
        "division by zero",
        "modulus by zero",
        "actual cost limit exceeded",
        "could not be converted to bool",
        "attribute ",
        "internal error",
    ];
    if message.contains("return error for overflow") || message.contains("overflow") {
        return "integer overflow";
    }
    KINDS.iter().find(|kind| message.contains(**kind)).copied().unwrap_or(if message.is_empty() { "" } else { "other" })
}

fn compat(case: &Value) -> Result<Compat, String> {
    let release = match case["kubernetes"].as_str() {
        None => KubernetesMinor::V1_37,
        Some(release) => release
            .strip_prefix("1.")
            .and_then(|minor| minor.parse().ok())
            .and_then(KubernetesMinor::from_minor)
            .ok_or_else(|| format!("unknown release {release}"))?,
    };
    let gates = match case["features"].as_array() {
        None => Gates::all(release),
        Some(names) => {
            let parse = |name: &Value| name.as_str().unwrap_or_default().parse::<Gate>();
            names.iter().map(parse).collect::<Result<Gates, _>>().map_err(|error| error.to_string())?
        }
    };
    Ok(if case["kubernetes"].is_null() { Compat::alpha_1_37(gates) } else { Compat::with_gates(release, gates) })
}

/// The device of a case.
pub(crate) fn read_device(device: &Value) -> Result<Device, String> {
    let mut object = device.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("driver");
    }
    object["name"] = "device".into();
    Device::from_json(&object).map_err(|error| error.to_string())
}
