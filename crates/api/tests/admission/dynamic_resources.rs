//! What can be seen of ResourceSliceTemplates without a machine. The end-to-end tests ask a real API server the same.

use api::admission::{Admission, Operation};
use serde_json::{Value, json};

#[test]
fn templates_get_the_verdict_of_the_api_server() {
    let admission = Admission::new(&api::crd::crds()).unwrap();
    let cases = include_str!("dynamic-resources.jsonl").lines().map(|line| serde_json::from_str(line).unwrap());
    let wrong: Vec<String> = cases.filter_map(|case: Value| wrong(&admission, &case)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn wrong(admission: &Admission, case: &Value) -> Option<String> {
    let object = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "o"},
        "spec": {"requirements": [], "dynamicResources": case["dynamicResources"]},
    });
    let errors = admission.admit(&object, Operation::Create).err().unwrap_or_default();
    let errors = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match case["refused"].as_str() {
        None => (!errors.is_empty()).then(|| format!("{}: refused: {errors}", case["name"])),
        Some(expected) => (!errors.contains(expected)).then(|| format!("{}: {errors:?}", case["name"])),
    }
}
