//! Makes a question smaller while it stays interesting.

use serde_json::Value;

/// Questions asked at most.
const MAX_TRIALS: usize = 2000;

/// What may be made smaller, large parts first.
const FIELDS: [&str; 12] = [
    "pods",
    "pod",
    "running",
    "claims",
    "nodes",
    "slices",
    "taintRules",
    "classes",
    "features",
    "allocatedDevices",
    "allocatedSharedDevices",
    "aggregatedCapacity",
];

/// Fields without which an object is another one, or none.
const NEEDED: [&str; 33] = [
    "allocatable",
    "allocationMode",
    "allocationMultiplier",
    "capacityKey",
    "cel",
    "consumedCapacity",
    "containers",
    "count",
    "counterSet",
    "counters",
    "deviceClassName",
    "deviceSelector",
    "devices",
    "driver",
    "effect",
    "exactly",
    "expression",
    "generation",
    "ints",
    "key",
    "metadata",
    "name",
    "namespace",
    "nodeName",
    "operator",
    "pool",
    "pods",
    "resourceSliceCount",
    "shareID",
    "spec",
    "taint",
    "uid",
    "value",
];

/// The smallest question found that is still interesting: entries of lists and fields are left out one by one.
pub fn shrink(mut question: Value, mut interesting: impl FnMut(&Value) -> bool) -> Value {
    let mut trials = 0;
    loop {
        let mut paths = Vec::new();
        for field in FIELDS {
            collect(&question[field], &format!("/{field}"), &mut paths);
        }
        let mut smaller = false;
        for path in paths {
            if trials >= MAX_TRIALS {
                return question;
            }
            let Some(candidate) = without(&question, &path) else { continue };
            trials += 1;
            if interesting(&candidate) {
                question = candidate;
                smaller = true;
                break;
            }
        }
        if !smaller {
            return question;
        }
    }
}

/// Everything that could be left out, large parts first.
fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            paths.extend((0..items.len()).map(|index| format!("{path}/{index}")));
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{path}/{index}"), paths);
            }
        }
        Value::Object(fields) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            let optional = fields.keys().filter(|name| !NEEDED.contains(&name.as_str()));
            paths.extend(optional.map(|name| format!("{path}/{}", escaped(name))));
            for (name, field) in fields {
                collect(field, &format!("{path}/{}", escaped(name)), paths);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn without(question: &Value, path: &str) -> Option<Value> {
    let (parent, last) = path.rsplit_once('/')?;
    let mut question = question.clone();
    match question.pointer_mut(parent)? {
        Value::Array(items) => {
            let index: usize = last.parse().ok()?;
            (index < items.len()).then(|| items.remove(index))?;
        }
        Value::Object(fields) => {
            fields.remove(&last.replace("~1", "/").replace("~0", "~"))?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(question)
}
