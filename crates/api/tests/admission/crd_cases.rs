//! `vectors/crd-cases.jsonl`: one case a rule and more, each with the server's verdict.

use api::{
    admission::{Admission, Operation},
    crd,
};
use serde::Deserialize;
use serde_json::Value;

use crate::shared::shared;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    rule: String,
    op: String,
    object: Value,
    old_object: Option<Value>,
    subresource: Option<String>,
    expect: String,
    /// Text that a refusal contains.
    why: Option<String>,
    /// Values of an accepted object, after defaulting.
    #[serde(default)]
    expect_fields: Vec<(Vec<Value>, Value)>,
}

#[test]
fn every_case_gets_the_verdict_of_the_api_server() {
    let Some(path) = shared("vectors/crd-cases.jsonl") else { return };
    let admission = Admission::new(&crd::crds()).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let difference = difference(&admission, case)?;
            Some(format!("{} [{}]\n    {difference}", case.name, case.rule))
        })
        .collect();
    println!("{} passed, {} failed", cases.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(!cases.is_empty());
}

fn difference(admission: &Admission, case: &Case) -> Option<String> {
    let old = match &case.old_object {
        None => None,
        Some(old) => match admission.admit(old, Operation::Create) {
            Ok(old) => Some(old),
            Err(errors) => return Some(format!("the old object is refused: {errors:?}")),
        },
    };
    let operation = match (case.op.as_str(), &old, case.subresource.as_deref()) {
        ("create", None, None) => Operation::Create,
        ("update", Some(old), None) => Operation::Update { old },
        ("update", Some(old), Some("status")) => Operation::UpdateStatus { old },
        ("update", Some(old), Some("scale")) => Operation::UpdateScale { old },
        other => return Some(format!("unknown operation {other:?}")),
    };
    match (case.expect.as_str(), admission.admit(&case.object, operation)) {
        ("accept", Ok(object)) => case.expect_fields.iter().find_map(|(path, wanted)| {
            let found = get(&object, path);
            (found != wanted).then(|| format!("{path:?} is {found}, not {wanted}"))
        }),
        ("refuse", Err(errors)) => {
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let why = case.why.as_deref().unwrap_or_default();
            (!text.contains(why)).then(|| format!("refused, but not for {why:?}: {text}"))
        }
        (expected, result) => Some(format!("expected {expected}, got {result:?}")),
    }
}

fn get<'a>(object: &'a Value, path: &[Value]) -> &'a Value {
    static ABSENT: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::from("<absent>"));
    path.iter()
        .try_fold(object, |value, step| match step {
            Value::String(name) => value.get(name),
            step => value.get(usize::try_from(step.as_u64()?).ok()?),
        })
        .unwrap_or(&ABSENT)
}
