//! Reads a folder of `resource.k8s.io` objects and compares each with the verdict of a real API server.
//!
//! ```text
//! cargo run -p dra-sched --example read_corpus -- FOLDER
//! ```
//!
//! `FOLDER/index.jsonl` has a line per object: `{"file", "kind", "api", "check"}`, where `check` starts with `accepted`
//! or `refused` and, for the latter, names the fields. An object that the server takes must be read and be valid, or be
//! marked as unsupported by the path of a field that the server does not know either; one that it refuses must be
//! refused with a field that the server names. Other kinds are left out. Exits with 1 if an object fails.

use std::path::Path;
use std::process::ExitCode;

use dra_types::{
    ClaimTemplate, Compat, DeviceClass, DeviceTaintRule, FieldError, Gates, KubernetesMinor, ResourceClaim,
    ResourceSlice, validate,
};
use k8s_cel::compiles;
use serde_json::Value;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: read_corpus FOLDER");
        return ExitCode::from(2);
    };
    let folder = Path::new(&folder);
    let index = match std::fs::read_to_string(folder.join("index.jsonl")) {
        Ok(index) => index,
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for line in index.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let ours = ["ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "DeviceTaintRule"];
        if !ours.contains(&text("kind").as_str()) {
            continue;
        }
        match check(&folder.join(text("file")), &text("check")) {
            Ok(()) => passed += 1,
            Err(difference) => {
                failed += 1;
                println!("{}: {difference}\n  server: {}", text("file"), text("check"));
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(file: &Path, server: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let object: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let found = read(&object);
    if server.starts_with("accepted") {
        let unknown = found.map_err(|errors| format!("refused: {}", joined(&errors)))?;
        // The server writes keys of maps like fields.
        let expected = |path: &String| server.contains(path.as_str()) || server.contains(&with_dots(path));
        return match unknown.iter().find(|path| !expected(path)) {
            Some(path) => Err(format!("{path} is unknown to us only")),
            None => Ok(()),
        };
    }
    let named = |field: &str| !field.is_empty() && (server.contains(field) || server.contains(&without_indexes(field)));
    match found {
        Err(errors) if errors.iter().any(|error| named(&error.field) || is_version(error)) => Ok(()),
        Err(errors) => Err(format!("refused for something else: {}", joined(&errors))),
        Ok(unknown) if unknown.iter().any(|path| server.contains(path.as_str())) => Ok(()),
        Ok(_) => Err("read".to_owned()),
    }
}

fn joined(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A version that is not served has no field in the server's words.
fn is_version(error: &FieldError) -> bool {
    matches!(&*error.field, "apiVersion" | "kind")
}

/// The decoder of the server names fields without indexes and keys.
fn without_indexes(field: &str) -> String {
    let mut depth = 0;
    let outside = |c: char| {
        depth += i32::from(c == '[');
        let keep = depth == 0;
        depth -= i32::from(c == ']');
        keep
    };
    let mut filter = outside;
    let plain: String = field.chars().filter(|c| filter(*c)).collect();
    // `spec.devices.capacity.memory.value` is `…capacity` there.
    match plain.rsplit_once('.') {
        Some((head, _)) if head.contains('.') => head.to_owned(),
        _ => plain,
    }
}

/// `counters[x].y` as `counters.x.y`; indexes of lists stay.
fn with_dots(path: &str) -> String {
    let mut out = String::new();
    for part in path.split_inclusive(']') {
        match part.split_once('[') {
            Some((head, key)) if !key.starts_with(|c: char| c.is_ascii_digit()) => {
                out.push_str(&format!("{head}.{}", key.trim_end_matches(']')));
            }
            _ => out.push_str(part),
        }
    }
    out
}

/// The paths of unknown fields, or what is wrong.
fn read(object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    let compat = Compat::with_gates(KubernetesMinor::V1_36, Gates::all(KubernetesMinor::V1_36));
    let one = |error: FieldError| vec![error];
    let paths = |unsupported: &[model::Unsupported]| unsupported.iter().map(|it| it.construct.to_string()).collect();
    match object["kind"].as_str().unwrap_or_default() {
        "ResourceSlice" => {
            let slice = ResourceSlice::from_json(object).map_err(one)?;
            validate::slice(&slice).map(|()| paths(&slice.unsupported))
        }
        "ResourceClaim" => {
            let claim = ResourceClaim::from_json(object).map_err(one)?;
            validate::claim(&claim, &compiles(&compat)).map(|()| paths(&claim.unsupported))
        }
        "ResourceClaimTemplate" => {
            let template = ClaimTemplate::from_json(object).map_err(one)?;
            validate::claim_template(&template, &compiles(&compat)).map(|()| paths(&template.unsupported))
        }
        "DeviceClass" => {
            let class = DeviceClass::from_json(object).map_err(one)?;
            validate::class(&class, &compiles(&compat)).map(|()| paths(&class.unsupported))
        }
        _ => {
            let rule = DeviceTaintRule::from_json(object).map_err(one)?;
            Ok(paths(&rule.unsupported))
        }
    }
}
