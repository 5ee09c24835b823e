use serde_json::json;

use super::*;
use crate::crd;

fn admission() -> Admission {
    Admission::new(&crd::crds()).unwrap()
}

fn node_pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "namespace": "ignored"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        }}},
    })
}

fn refusals(result: Result<Value, Vec<FieldError>>) -> Vec<String> {
    result.unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_filled_in_and_unknown_fields_dropped() {
    let mut object = node_pool();
    object["spec"]["unknown"] = json!(1);
    object["spec"]["disruption"] = json!({"budgets": null, "consolidateAfter": "1m"});
    let admitted = admission().admit(&object, Operation::Create).unwrap();
    assert_eq!(
        admitted["spec"]["disruption"],
        json!({"budgets": [{"nodes": "10%"}], "consolidateAfter": "1m", "consolidationPolicy": "WhenEmptyOrUnderutilized"})
    );
    assert_eq!(admitted["spec"]["template"]["spec"]["expireAfter"], "720h");
    assert_eq!(admitted["spec"].get("unknown"), None);
    assert_eq!(admitted["metadata"], json!({"name": "default"}));
}

#[test]
fn every_mistake_is_named_with_its_field() {
    let mut object = node_pool();
    object["spec"]["weight"] = json!(101);
    object["spec"]["template"]["spec"]["requirements"] = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": []},
        {"key": "kubernetes.io/hostname", "operator": "Exists"},
    ]);
    let errors = refusals(admission().admit(&object, Operation::Create));
    assert_eq!(
        errors,
        [
            "spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100",
            "spec.template.spec.requirements: Invalid value: requirements with operator 'In' must have a value defined",
            "spec.template.spec.requirements[1].key: Invalid value: label \"kubernetes.io/hostname\" is restricted",
        ]
    );
}

#[test]
fn rules_are_not_run_on_an_object_of_the_wrong_shape() {
    let mut object = node_pool();
    object["spec"]["template"]["spec"]["requirements"] = json!("all");
    let errors = refusals(admission().admit(&object, Operation::Create));
    assert!(errors[0].starts_with("spec.template.spec.requirements: Invalid value: \"string\""), "{errors:?}");
    assert!(errors[1].contains("some validation rules were not checked"), "{errors:?}");
}

#[test]
fn a_mistake_that_was_there_before_does_not_block_an_update() {
    let mut old = node_pool();
    old["spec"]["weight"] = json!(500);
    old["spec"]["template"]["spec"]["requirements"][0]["values"] = json!([]);
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"team": "a"});
    assert!(admission().admit(&new, Operation::Create).is_err());
    assert!(admission().admit(&new, Operation::Update { old: &old }).is_ok());
    new["spec"]["weight"] = json!(501);
    let errors = refusals(admission().admit(&new, Operation::Update { old: &old }));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("spec.weight"), "{errors:?}");
}

#[test]
fn status_changes_only_by_its_subresource() {
    let admission = admission();
    let old = admission.admit(&node_pool(), Operation::Create).unwrap();
    let mut new = old.clone();
    new["status"] = json!({"nodes": 3});
    new["spec"]["weight"] = json!(7);
    let updated = admission.admit(&new, Operation::Update { old: &old }).unwrap();
    assert_eq!((updated.get("status"), &updated["spec"]["weight"]), (None, &json!(7)));
    let updated = admission.admit(&new, Operation::UpdateStatus { old: &old }).unwrap();
    assert_eq!((&updated["status"]["nodes"], updated["spec"].get("weight")), (&json!(3), None));
}

#[test]
fn a_restored_object_keeps_its_status_and_is_held_to_it() {
    let mut object = node_pool();
    object["status"] = json!({"nodes": 3, "conditions": [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"},
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"},
    ]});
    let errors = refusals(admission().admit(&object, Operation::Restore));
    assert_eq!(errors, ["status.conditions[1]: Duplicate value: {\"type\":\"Ready\"}"]);
    object["status"]["conditions"].as_array_mut().unwrap().pop();
    assert_eq!(admission().admit(&object, Operation::Restore).unwrap()["status"]["nodes"], 3);
}

#[test]
fn an_admitted_object_is_one_that_the_types_read() {
    let admission = admission();
    let admitted = admission.admit(&node_pool(), Operation::Create).unwrap();
    let pool: crate::NodePool = serde_json::from_value(admitted.clone()).unwrap();
    assert_eq!(serde_json::to_value(&pool).unwrap(), admitted);
}

#[test]
fn whole_numbers_are_integers_however_they_are_written() {
    let mut object = node_pool();
    object["spec"]["weight"] = json!(2.0);
    let admitted = admission().admit(&object, Operation::Create).unwrap();
    assert_eq!(admitted["spec"]["weight"].to_string(), "2");
    object["spec"]["template"]["spec"]["requirements"][0]["minValues"] = json!(1.0);
    let errors = refusals(admission().admit(&object, Operation::Create));
    assert!(errors[0].ends_with("specified in the 'values' field"), "a rule reads minValues: {errors:?}");
    object = node_pool();
    object["spec"]["weight"] = json!(2.5);
    assert!(admission().admit(&object, Operation::Create).is_err());
}

#[test]
fn kinds_without_a_crd_are_refused_by_name() {
    let object = json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool"});
    let errors = refusals(admission().admit(&object, Operation::Create));
    assert_eq!(errors, ["kind: no CRD serves apiVersion \"karpenter.sh/v1beta1\" and kind \"NodePool\""]);
}
