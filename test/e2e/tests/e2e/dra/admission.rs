//! What the API server refuses of `resource.k8s.io`, and of the claims that pods and PodGroups refer to, offline
//! commands refuse too, and nothing else: objects of the scenarios and of real drivers, as they are and with a random
//! mistake, are created on trial and read offline.
//!
//! Objects of real drivers are not part of the repository, see the crate `corpus`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use decode::devices::{
    AdminNamespaces, Admitted, DeviceKind, device_class, device_taint_rule, pod_devices_as, pod_group_claims,
    resource_claim, resource_claim_template, resource_slice,
};
use dra_types::{Compat, Gates, KubernetesMinor};
use e2e::{Kubernetes, apply, objects};
use futures::{StreamExt, stream};
use kube::Client;
use kube::api::PostParams;
use seeded_random::Random;
use serde_json::{Value, json};

use super::scenario::Scenario;
use super::stage::create;

const NAMESPACE: &str = "dra-admission";
const SEED: u64 = 30;
/// Objects with a mistake for each without.
const MISTAKES: u64 = 4;
const PARALLEL: usize = 8;

/// An object on trial.
struct Trial {
    name: String,
    object: Value,
    /// The part of it in which mistakes are made.
    part: &'static str,
}

impl Trial {
    fn with_mistakes(&self, case: u64) -> Vec<Self> {
        let mut random = Random::of_case(SEED, case);
        let mistaken = |_| {
            let mut object = self.object.clone();
            let mistake = make_a_mistake(&mut object, self.part, &mut random);
            Self { name: format!("{}, {mistake}", self.name), object, part: self.part }
        };
        (0..MISTAKES).map(mistaken).collect()
    }
}

/// Holds what is read offline against what a control plane with all gates takes.
pub(super) async fn check(client: &Client, kubernetes: Kubernetes, scenarios: &[Scenario]) -> Result<()> {
    const NAME: &str = "e2e, objects of resource.k8s.io that are refused or not";
    let mut trials: Vec<Trial> = scenarios.iter().flat_map(|scenario| &scenario.objects).filter_map(trial).collect();
    let of_scenarios = trials.len();
    if let Some(folder) = corpus::open(NAME, "corpus/dra") {
        trials.extend(real(&folder)?.iter().filter_map(trial));
    }
    let with_mistakes: Vec<Trial> =
        trials.iter().zip(0..).flat_map(|(trial, case)| trial.with_mistakes(case)).collect();
    trials.extend(with_mistakes);
    apply::apply_one(client, objects::namespace(NAMESPACE)).await?;
    let minor = match kubernetes {
        Kubernetes::V1_36 => KubernetesMinor::V1_36,
        Kubernetes::V1_37 => KubernetesMinor::V1_37,
    };
    let compat = Compat::with_gates(minor, Gates::all(minor));
    let answers: Vec<Answer> = stream::iter(&trials)
        .map(|trial| async { answer(client, trial, &compat).await.with_context(|| trial.name.clone()) })
        .buffer_unordered(PARALLEL)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<_>>()?;
    let count = |is: fn(&Answer) -> bool| answers.iter().filter(|answer| is(answer)).count();
    let (taken, refused) =
        (count(|answer| matches!(answer, Answer::Taken)), count(|answer| matches!(answer, Answer::Refused)));
    let mut different: Vec<&str> = answers
        .iter()
        .filter_map(|answer| if let Answer::Different(how) = answer { Some(&**how) } else { None })
        .collect();
    different.sort_unstable();
    let counts = format!("{taken} taken, {refused} refused, {} differently", different.len());
    corpus::note(NAME, &format_args!("{counts} on {kubernetes}; {of_scenarios} objects of scenarios"));
    ensure!(different.is_empty(), "{counts}\n{}", different.join("\n"));
    ensure!(taken >= of_scenarios && refused >= of_scenarios, "too little was tried: {counts}");
    Ok(())
}

enum Answer {
    Taken,
    Refused,
    /// The release does not serve the version, or drops a field that we read all the same.
    OfOtherRelease,
    Different(String),
}

async fn answer(client: &Client, trial: &Trial, compat: &Compat) -> Result<Answer> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let theirs = match create(client, &trial.object, &dry_run).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Answer::OfOtherRelease),
        // A request that is too large, or not what its kind looks like, is refused before it is looked at.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 413 | 422) => Err(status.message),
        Err(error) => return Err(error.into()),
    };
    let ours = read(&trial.object, compat);
    Ok(match (theirs, ours) {
        (Ok(()), Ok(())) => Answer::Taken,
        (Err(_), Err(_)) => Answer::Refused,
        (Ok(()), Err(why)) if is_of_other_release(&why, compat.kubernetes) => Answer::OfOtherRelease,
        (Ok(()), Err(why)) => Answer::Different(format!("{}: taken, and refused by us: {why}", trial.name)),
        (Err(why), Ok(())) => Answer::Different(format!("{}: read by us, and refused: {why}", trial.name)),
    })
}

/// Whether what we refuse is a part that other releases have: `offline-other-release` of `docs/compatibility.md`.
fn is_of_other_release(why: &str, kubernetes: KubernetesMinor) -> bool {
    let parts: &[&str] = if kubernetes < KubernetesMinor::V1_37 {
        &["].nodeAllocatableResources", "].compatibilityGroups", ".validRange.step: must be greater"]
    } else {
        &["].nodeAllocatableResourceMappings"]
    };
    // A rule with a field of nobody is taken without it, and refused by us.
    parts.iter().any(|part| why.contains(part)) || why.ends_with(" is not understood")
}

/// What offline commands say of an object.
fn read(object: &Value, compat: &Compat) -> Result<(), String> {
    let nobody = AdminNamespaces::default();
    let admitted = Admitted::ByNobody(compat, &nobody);
    let read = match kind(object) {
        Some(DeviceKind::DeviceClass) => device_class(object, admitted).map(drop),
        Some(DeviceKind::ResourceSlice) => resource_slice(object, admitted).map(drop),
        Some(DeviceKind::ResourceClaim) => resource_claim(object, admitted).map(drop),
        Some(DeviceKind::ResourceClaimTemplate) => resource_claim_template(object, admitted).map(drop),
        Some(DeviceKind::DeviceTaintRule) => device_taint_rule(object, admitted).map(drop),
        Some(DeviceKind::PodGroup) => pod_group_claims(object, admitted).map(drop),
        None => pod_devices_as(object, admitted).map(drop),
    };
    read.map_err(|error| error.to_string())
}

fn kind(object: &Value) -> Option<DeviceKind> {
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    DeviceKind::of(group, object["kind"].as_str()?)
}

/// An object of a kind that is held to the rules, as one that somebody creates.
fn trial(object: &Value) -> Option<Trial> {
    const CLAIMS: &str = "/spec/resourceClaims";
    let (is_namespaced, part) = match kind(object) {
        Some(DeviceKind::PodGroup) => (true, CLAIMS),
        Some(kind) => (kind.is_namespaced(), "/spec"),
        None => (true, CLAIMS),
    };
    let is_pod = object["apiVersion"] == "v1" && object["kind"] == "Pod";
    if kind(object).is_none() && !is_pod || object.pointer(part).is_none() {
        return None;
    }
    // Objects of the scenarios may be there.
    let name = format!("trial-{}", object["metadata"]["name"].as_str().unwrap_or("nameless"));
    let mut trial = json!({ "metadata": { "name": name } });
    for field in ["apiVersion", "kind", "spec"] {
        trial[field] = object[field].clone();
    }
    if is_namespaced {
        trial["metadata"]["namespace"] = json!(NAMESPACE);
    }
    let name = format!("{} {} {}", object["apiVersion"], object["kind"], object["metadata"]["name"]).replace('"', "");
    Some(Trial { name, object: trial, part })
}

/// Objects of real drivers.
fn real(folder: &Path) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for entry in corpus::index::<Value>(folder) {
        if !entry["api"].as_str().is_some_and(|api| api.starts_with("resource.k8s.io/")) {
            continue;
        }
        let file = entry["file"].as_str().context("an entry without a file")?;
        let text = std::fs::read_to_string(folder.join(file))?;
        found.push(serde_saphyr::from_str(&text).with_context(|| format!("parse {file}"))?);
    }
    Ok(found)
}

/// Makes one mistake in a part of an object, or a change that is none; says which.
fn make_a_mistake(object: &mut Value, part: &str, random: &mut Random) -> String {
    let mut fields = Vec::new();
    collect(object.pointer(part).unwrap_or(&Value::Null), part, &mut fields);
    if fields.is_empty() {
        return "as it is".to_owned();
    }
    let field = random.pick(&fields).clone();
    let Some(value) = object.pointer_mut(&field) else { return "as it is".to_owned() };
    let before = value.clone();
    if random.one_in(12) {
        *value = random.pick(&[json!(3), json!("x"), json!({}), json!([]), json!(true)]).clone();
    } else {
        change(value, random);
    }
    let short = |value: &Value| value.to_string().chars().take(60).collect::<String>();
    let text = format!("{field} {} for {}", short(value), short(&before));
    if random.one_in(5)
        && let Some((parent, key)) = field.rsplit_once('/')
        && let Some(Value::Object(parent)) = object.pointer_mut(parent)
    {
        parent.remove(key);
        return format!("without {field}");
    }
    text
}

fn change(value: &mut Value, random: &mut Random) {
    match value {
        Value::String(text) => {
            let upper = text.to_ascii_uppercase();
            let others = [
                String::new(),
                upper,
                format!("{text} x"),
                format!("{text}/x"),
                format!("-{text}"),
                "x".repeat(64),
                "x".repeat(300),
            ];
            *text = random.pick(&others).clone();
        }
        Value::Number(_) => *value = random.pick(&[json!(-1), json!(0), json!(1), json!(1_000_000)]).clone(),
        Value::Bool(is) => *is = !*is,
        Value::Array(list) => {
            let last = list.last().cloned();
            let times = *random.pick(&[0, 1, 1, 9, 33, 129]);
            if times == 0 {
                list.clear();
            }
            list.extend(std::iter::repeat_n(last.unwrap_or_default(), times));
        }
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let Some(key) = keys.get(random.below(keys.len().max(1))) else { return };
            let of_key = if random.one_in(2) { fields.get(key).cloned() } else { fields.remove(key) };
            let others = [format!("{key} x"), key.to_ascii_uppercase(), format!("x.test/{key}"), "x".repeat(64)];
            fields.insert(random.pick(&others).clone(), of_key.unwrap_or_default());
        }
        Value::Null => *value = json!({}),
    }
}

/// Pointers to all fields below one, itself included.
fn collect(value: &Value, at: &str, fields: &mut Vec<String>) {
    match value {
        Value::Object(parts) => parts.iter().for_each(|(key, part)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            collect(part, &format!("{at}/{key}"), fields);
        }),
        Value::Array(parts) => {
            parts.iter().enumerate().for_each(|(index, part)| collect(part, &format!("{at}/{index}"), fields));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    fields.push(at.to_owned());
}
