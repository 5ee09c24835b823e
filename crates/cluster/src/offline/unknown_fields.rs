//! Fields of a NodeOverlay that its CRD does not know, and which the API server therefore drops.

use std::fmt;
use std::sync::LazyLock;

use dra_types::did_you_mean;
use serde_json::Value;

/// A field that is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// Its path.
    pub path: String,
    /// What was probably meant: the name of a field of the same object, or the path of another.
    pub meant: Option<String>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: is not a known field, and is dropped", self.path)?;
        self.meant.as_ref().map_or(Ok(()), |meant| write!(f, " (did you mean {meant}?)"))
    }
}

/// The schema of `spec` in our CRD of NodeOverlays.
static SPEC: LazyLock<Value> = LazyLock::new(|| {
    let crd = api::crd::crds().into_iter().find(|crd| crd.spec.names.kind == "NodeOverlay");
    let schema = crd.and_then(|crd| serde_json::to_value(crd).ok());
    let spec = schema.and_then(|crd| crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").cloned());
    spec.unwrap_or_default()
});

/// The fields below `spec` of a NodeOverlay that admission drops, in the order in which they are written.
pub fn unknown_fields(given: &Value, admitted: &Value) -> Vec<UnknownField> {
    let mut found = Vec::new();
    if let (Some(given), Some(admitted)) = (given.get("spec"), admitted.get("spec")) {
        walk(("spec", Some(&SPEC)), given, admitted, &mut found);
    }
    found
}

fn walk((path, schema): (&str, Option<&Value>), given: &Value, admitted: &Value, found: &mut Vec<UnknownField>) {
    match (given, admitted) {
        (Value::Object(given), Value::Object(admitted)) => {
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let at = format!("{path}.{name}");
                match admitted.get(name) {
                    Some(kept) => walk((&at, schema.and_then(|schema| field(schema, name))), value, kept, found),
                    None => {
                        let meant = schema.and_then(|schema| meant(path, schema, name));
                        found.push(UnknownField { path: at, meant });
                    }
                }
            }
        }
        (Value::Array(given), Value::Array(admitted)) => {
            let items = schema.and_then(|schema| schema.get("items"));
            for (index, (value, kept)) in given.iter().zip(admitted).enumerate() {
                walk((&format!("{path}[{index}]"), items), value, kept, found);
            }
        }
        _ => {}
    }
}

fn field<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let named = schema.get("properties").and_then(|fields| fields.get(name));
    named.or_else(|| schema.get("additionalProperties"))
}

/// The path of a field with this name below a field of an object of this schema, or the name of a field that looks like
/// it.
fn meant(path: &str, schema: &Value, name: &str) -> Option<String> {
    let fields = schema.get("properties")?.as_object()?;
    let mut deeper = fields.iter().filter(|(_, of)| of.pointer(&format!("/properties/{name}")).is_some());
    match deeper.next() {
        Some((parent, _)) => Some(format!("{path}.{parent}.{name}")),
        None => did_you_mean(name, fields.keys().map(String::as_str)).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::unknown_fields;

    #[test]
    fn a_field_that_is_dropped_is_named_with_the_one_that_was_meant() {
        let device = json!({"name": "d", "nodeAllocatableResources": {
            "cpu": {"direct": {"deviceMultiplier": 1}, "overhead": {"perPodReference": "1"}}},
            "nodeAllocatableResourceMappings": {"cpu": {"direct": {}}}, "colour": "red"});
        let template = json!({"metadata": {"name": "t"}, "spec": {"drivr": "x", "devices": [device]}});
        let given = json!({"spec": {"resourceSliceTemplates": [], "wieght": 1, "priceAdjustments": "1",
            "dynamicResources": {"resourceSliceTemplates": [template]}}});
        let device = json!({"name": "d", "nodeAllocatableResources": {"cpu": {"overhead": {}}},
            "nodeAllocatableResourceMappings": {"cpu": {}}});
        let template = json!({"metadata": {"name": "t"}, "spec": {"devices": [device]}});
        let admitted = json!({"spec": {"dynamicResources": {"resourceSliceTemplates": [template]}}});
        let found: Vec<String> = unknown_fields(&given, &admitted).iter().map(|field| format!("{field}\n")).collect();
        expect![[r#"
            spec.dynamicResources.resourceSliceTemplates[0].spec.devices[0].colour: is not a known field, and is dropped
            spec.dynamicResources.resourceSliceTemplates[0].spec.devices[0].nodeAllocatableResourceMappings.cpu.direct: is not a known field, and is dropped (did you mean mapping of nodeAllocatableResources?)
            spec.dynamicResources.resourceSliceTemplates[0].spec.devices[0].nodeAllocatableResources.cpu.direct: is not a known field, and is dropped (did you mean mapping?)
            spec.dynamicResources.resourceSliceTemplates[0].spec.devices[0].nodeAllocatableResources.cpu.overhead.perPodReference: is not a known field, and is dropped (did you mean perPod?)
            spec.dynamicResources.resourceSliceTemplates[0].spec.drivr: is not a known field, and is dropped (did you mean driver?)
            spec.priceAdjustments: is not a known field, and is dropped (did you mean priceAdjustment?)
            spec.resourceSliceTemplates: is not a known field, and is dropped (did you mean spec.dynamicResources.resourceSliceTemplates?)
            spec.wieght: is not a known field, and is dropped (did you mean weight?)
        "#]]
        .assert_eq(&found.concat());
    }
}
