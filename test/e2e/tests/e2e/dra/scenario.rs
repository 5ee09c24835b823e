//! A scenario: a file with objects and with what is done with them.
//!
//! The first document is a [`Header`], all others are objects; `$NAME` stands for the name of the file,
//! `$POD_GROUP_VERSION` and `$TAINT_RULE_VERSION` for the versions that the release has these kinds in. Objects that no
//! step speaks of are there from the start. What scenarios do not care about is filled in: namespaces, the size of
//! nodes, images, and that pods run on the nodes of their scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::Kubernetes;
use e2e::objects::TEST_KEY;
use serde::Deserialize;
use serde_json::{Value, json};

/// What a scenario is about and what happens in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Header {
    /// Rows of the support matrix.
    features: Vec<String>,
    /// The version in which objects of `resource.k8s.io` are read back.
    #[serde(default = "newest")]
    read: String,
    /// The only release that has what it uses.
    only_on: Option<String>,
    /// It uses versions of the API that a server has only if told so.
    #[serde(default)]
    only_with_all_gates: bool,
    #[serde(default)]
    namespace_labels: BTreeMap<String, String>,
    steps: Vec<Step>,
}

fn newest() -> String {
    "v1".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Step {
    /// A pod is predicted, created, and compared.
    Pod(Expected),
    /// Objects come or change, given as `Kind/name`.
    Apply(Vec<String>),
    /// A pod goes, and its claims with it or back.
    Delete(String),
    /// A rule comes that ends a pod; the pod is created again and compared with what was predicted before the rule.
    Evict { by: String, pod: Expected },
}

/// What a scenario is to show, so that prediction and scheduler cannot agree on something else.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expected {
    pub name: String,
    /// `request device` for each, in order.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Where several nodes would do.
    pub node: Option<String>,
    /// Conditions that the driver sets before the pod may be bound.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// What the devices cost of the node.
    #[serde(default)]
    pub node_resources: BTreeMap<String, String>,
    /// The code of the reason in our refusal.
    pub refused: Option<String>,
    /// Its claims are allocated all the same, and yet it is never bound.
    #[serde(default)]
    pub stranded: bool,
    /// A part of the scheduler's event about a pod that is refused.
    pub event: Option<String>,
}

#[derive(Debug)]
pub(super) struct Scenario {
    pub name: String,
    pub features: Vec<String>,
    pub read: String,
    pub only_with_all_gates: bool,
    only_on: Option<String>,
    pub namespace: Value,
    pub steps: Vec<Step>,
    /// In the order of the file.
    pub objects: Vec<Value>,
}

impl Scenario {
    /// All, by name, in the versions of a release's API.
    pub(super) fn all(kubernetes: Kubernetes) -> Result<Vec<Self>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/dra/scenarios");
        let mut files = std::fs::read_dir(&folder)?
            .map(|entry| Ok(entry?.path()))
            .filter(|path| path.as_ref().is_ok_and(|path| path.extension().is_some_and(|name| name == "yaml")))
            .collect::<Result<Vec<_>>>()?;
        files.sort();
        ensure!(!files.is_empty(), "no scenario in {}", folder.display());
        files.iter().map(|file| Self::read(file, kubernetes).with_context(|| file.display().to_string())).collect()
    }

    fn read(file: &Path, kubernetes: Kubernetes) -> Result<Self> {
        let name = file.file_stem().context("a file without a name")?.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file)?
            .replace("$NAME", &name)
            .replace("$POD_GROUP_VERSION", kubernetes.pod_group_version())
            .replace("$TAINT_RULE_VERSION", kubernetes.taint_rule_version());
        let mut documents = e2e::apply::parse(&text)?.into_iter();
        let header: Header = serde_json::from_value(documents.next().context("no header")?).context("header")?;
        let mut objects: Vec<Value> = documents.collect();
        ensure!(objects.iter().any(|object| object["kind"] == "Node"), "no Node");
        for object in &mut objects {
            fill(object, &name);
        }
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": header.namespace_labels },
        });
        let Header { features, read, only_with_all_gates, only_on, steps, .. } = header;
        let scenario = Self { name, features, read, only_with_all_gates, only_on, namespace, steps, objects };
        for name in scenario.held_back() {
            scenario.object(&name)?;
        }
        Ok(scenario)
    }

    /// Whether a release can have what it uses.
    pub(super) fn is_for(&self, kubernetes: Kubernetes) -> bool {
        self.only_on.as_ref().is_none_or(|release| *release == kubernetes.to_string())
    }

    /// An object by `Kind/name`.
    pub(super) fn object(&self, id: &str) -> Result<&Value> {
        self.objects.iter().find(|object| id_of(object) == id).with_context(|| format!("no object {id}"))
    }

    /// What is there before the first step.
    pub(super) fn at_start(&self) -> impl Iterator<Item = &Value> {
        let held_back = self.held_back();
        self.objects.iter().filter(move |object| !held_back.contains(&id_of(object)))
    }

    /// The nodes' names.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        let nodes = self.objects.iter().filter(|object| object["kind"] == "Node");
        nodes.filter_map(|node| node["metadata"]["name"].as_str())
    }

    fn held_back(&self) -> BTreeSet<String> {
        let pod = |expected: &Expected| format!("Pod/{}", expected.name);
        let mut ids = BTreeSet::new();
        for step in &self.steps {
            match step {
                Step::Pod(expected) => ids.extend([pod(expected)]),
                Step::Apply(named) => ids.extend(named.iter().cloned()),
                Step::Evict { by, pod: expected } => ids.extend([by.clone(), pod(expected)]),
                Step::Delete(_) => {}
            }
        }
        ids
    }
}

pub(super) fn id_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// What a scenario does not care about.
fn fill(object: &mut Value, scenario: &str) {
    let name = object["metadata"]["name"].clone();
    let defaults = match object["kind"].as_str().unwrap_or_default() {
        "Node" => {
            let size = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
            json!({
                "metadata": {
                    "annotations": { "kwok.x-k8s.io/node": "fake" },
                    "labels": { TEST_KEY: scenario, "kubernetes.io/hostname": name },
                },
                "status": { "capacity": size, "allocatable": size },
            })
        }
        "Pod" => {
            for field in ["initContainers", "containers"] {
                for container in object["spec"][field].as_array_mut().into_iter().flatten() {
                    defaulted(container, &json!({ "image": "example.org/main" }));
                }
            }
            json!({
                "metadata": { "namespace": scenario },
                "spec": { "nodeSelector": { TEST_KEY: scenario }, "terminationGracePeriodSeconds": 0 },
            })
        }
        "ResourceClaim" | "ResourceClaimTemplate" | "PodGroup" | "Workload" => {
            json!({ "metadata": { "namespace": scenario } })
        }
        _ => json!({}),
    };
    defaulted(object, &defaults);
}

/// Fills in what is not set.
fn defaulted(object: &mut Value, defaults: &Value) {
    match (object, defaults) {
        (Value::Object(fields), Value::Object(defaults)) => {
            for (key, default) in defaults {
                defaulted(fields.entry(key).or_insert(Value::Null), default);
            }
        }
        (field @ Value::Null, default) => *field = default.clone(),
        _ => {}
    }
}
