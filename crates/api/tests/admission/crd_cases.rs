//! Cases that an API server with Karpenter's CRDs accepts or refuses, one a rule and more. `crd-cases.jsonl` and
//! `ec2-cases.jsonl` are ours, made from what is publicly known of the rules; an e2e test asks a real server what this
//! asks the offline admission. More cases are outside the repository. Node classes are among the kinds, and labels of
//! one provider's domain, so providers are needed for the CRDs.

use api::{
    admission::{Admission, Operation},
    crd,
};
use serde::Deserialize;
use serde_json::Value;

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
    const NAME: &str = "api, accept and refuse cases of the CRDs";
    let Some(path) = corpus::open(NAME, "vectors/crd-cases.jsonl") else { return };
    let (cases, failures) = failures(&std::fs::read_to_string(path).unwrap());
    corpus::note(NAME, &format_args!("{cases} cases, {} differ", failures.len()));
    assert!(failures.is_empty(), "{} of {cases} cases differ:\n{}", failures.len(), failures.join("\n"));
    assert!(cases > 1000, "only {cases} cases were read");
}

#[test]
fn every_case_of_ours_gets_the_verdict_of_the_api_server() {
    let (cases, failures) = failures(include_str!("crd-cases.jsonl"));
    assert!(failures.is_empty(), "{} of {cases} cases differ:\n{}", failures.len(), failures.join("\n"));
    assert!(cases >= 200, "only {cases} cases were read");
}

#[test]
fn every_case_of_ec2_node_classes_gets_the_verdict_of_the_api_server() {
    const NAME: &str = "api, accept and refuse cases of EC2NodeClass";
    let Some(path) = corpus::open(NAME, "vectors/ec2nodeclass-cases.jsonl") else { return };
    let (cases, failures) = failures(&std::fs::read_to_string(path).unwrap());
    corpus::note(NAME, &format_args!("{cases} cases, {} differ", failures.len()));
    assert!(failures.is_empty(), "{} of {cases} cases differ:\n{}", failures.len(), failures.join("\n"));
    assert!(cases > 800, "only {cases} cases were read");
}

#[test]
fn every_case_of_ours_of_ec2_gets_the_verdict_of_the_api_server() {
    let (cases, failures) = failures(include_str!("ec2-cases.jsonl"));
    assert!(failures.is_empty(), "{} of {cases} cases differ:\n{}", failures.len(), failures.join("\n"));
    assert!(cases >= 200, "only {cases} cases were read");
}

/// How many cases there are, and those that are answered otherwise.
fn failures(text: &str) -> (usize, Vec<String>) {
    let providers = [cloudprovider_aws::DECLARATION, cloudprovider_kwok::DECLARATION];
    let domains: Vec<_> = providers.iter().flat_map(|provider| provider.label_domains).copied().collect();
    let of_providers = providers.iter().flat_map(|provider| (provider.crds)());
    let crds: Vec<_> = crd::crds_with_label_domains(&domains).into_iter().chain(of_providers).collect();
    let admission = Admission::new(&crds).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failures = cases
        .iter()
        .filter_map(|case| {
            let difference = difference(&admission, case)?;
            Some(format!("{} [{}]\n    {difference}", case.name, case.rule))
        })
        .collect();
    (cases.len(), failures)
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
