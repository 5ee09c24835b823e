//! From workloads to the pods they will make, for manifests that no controller has seen.
//!
//! Deployments, ReplicaSets and StatefulSets make as many pods as they have replicas, Jobs as many as run at once. The
//! pods are named `<workload>-<ordinal>`. What another object in the input stands for (a ReplicaSet of a Deployment) is
//! not expanded again; CronJobs and HorizontalPodAutoscalers change numbers over time and are not expanded at all.

use serde_json::{Map, Value, json};

use crate::error::{ObjectError, Problem, Reason};
use crate::field::Field;
use crate::manifests::Manifest;
use crate::metadata::decode_object;

/// Most pods of one workload.
pub const MAX_PODS_PER_WORKLOAD: i64 = 100_000;

/// A kind of object that makes pods and says how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// `apps` Deployment.
    Deployment,
    /// `apps` ReplicaSet.
    ReplicaSet,
    /// `apps` StatefulSet.
    StatefulSet,
    /// `batch` Job.
    Job,
}

impl WorkloadKind {
    /// The kind of an object, if it makes pods.
    pub fn of(manifest: &Manifest) -> Option<Self> {
        match (manifest.group.as_str(), manifest.kind.as_str()) {
            ("apps", "Deployment") => Some(Self::Deployment),
            ("apps", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            ("batch", "Job") => Some(Self::Job),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet => "apps/v1",
            Self::Job => "batch/v1",
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
        }
    }
}

/// The pods of one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// How many there are.
    pub count: usize,
    /// A Pod as JSON, without a name: `<workload>-<ordinal>` from 0 on.
    pub pod: Value,
}

/// Reads a workload. `None` if another object makes its pods or it makes none for ever.
pub fn workload(object: &Value, kind: WorkloadKind) -> Result<Option<Workload>, ObjectError> {
    decode_object(object, kind.as_str(), |root| {
        let metadata = root.field("metadata")?;
        if kind != WorkloadKind::Job && is_controlled(&metadata)? {
            return Ok(None);
        }
        let spec = root.field("spec")?;
        let count = match kind {
            WorkloadKind::Job => job_count(root)?,
            WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => {
                count(&spec.field("replicas")?)?.unwrap_or(1)
            }
        };
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Some(Workload { count, pod: pod(&metadata, &spec, kind)? }))
    })
}

fn is_controlled(metadata: &Field<'_, '_>) -> Result<bool, Problem> {
    for owner in metadata.field("ownerReferences")?.items()? {
        if owner.field("controller")?.bool()? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn count(field: &Field<'_, '_>) -> Result<Option<i64>, Problem> {
    field.int(0, MAX_PODS_PER_WORKLOAD)
}

/// How many pods of a Job run at once: `parallelism`, but no more than are still wanted. One that is suspended or has
/// ended runs none.
fn job_count(job: &Field<'_, '_>) -> Result<i64, Problem> {
    let spec = job.field("spec")?;
    if spec.field("suspend")?.bool()? {
        return Ok(0);
    }
    let status = job.field("status")?;
    for condition in status.field("conditions")?.items()? {
        let has_ended = matches!(condition.field("type")?.str()?, Some("Complete" | "Failed"));
        if has_ended && condition.field("status")?.str()? == Some("True") {
            return Ok(0);
        }
    }
    let parallelism = count(&spec.field("parallelism")?)?.unwrap_or(1);
    let completions = spec.field("completions")?.int(0, i64::from(i32::MAX))?;
    Ok(completions.map_or(parallelism, |completions| completions.min(parallelism)))
}

/// The pod that the template describes.
fn pod(metadata: &Field<'_, '_>, spec: &Field<'_, '_>, kind: WorkloadKind) -> Result<Value, Problem> {
    let template = spec.field("template")?;
    let pod_metadata = template.field("metadata")?;
    let pod_spec = template.field("spec")?;
    let Some(Value::Object(pod_spec_map)) = pod_spec.value() else {
        return Err(pod_spec.problem(Reason::Missing));
    };
    let mut pod_spec_map = pod_spec_map.clone();
    if kind == WorkloadKind::StatefulSet {
        add_claims(&spec.field("volumeClaimTemplates")?, &mut pod_spec_map)?;
    }
    let mut owned = Map::new();
    for key in ["labels", "annotations"] {
        if let Some(value) = pod_metadata.field(key)?.value() {
            owned.insert(key.to_owned(), value.clone());
        }
    }
    owned.insert("namespace".to_owned(), json!(metadata.field("namespace")?.str_or_empty()?));
    owned.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": kind.api_version(),
            "kind": kind.as_str(),
            "name": metadata.field("name")?.required_str()?,
            "uid": metadata.field("uid")?.str_or_empty()?,
            "controller": true,
        }]),
    );
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": pod_spec_map}))
}

/// The claims that a StatefulSet makes for each pod are the same to the planner as ephemeral volumes: a claim of the
/// pod's own, made once the pod is there.
fn add_claims(templates: &Field<'_, '_>, pod_spec: &mut Map<String, Value>) -> Result<(), Problem> {
    for template in templates.items()? {
        let metadata = template.field("metadata")?;
        let name = metadata.field("name")?.required_str()?;
        let claim_spec = template.field("spec")?.value().cloned().unwrap_or(Value::Null);
        let volume = json!({"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec}}});
        let volumes = pod_spec.entry("volumes").or_insert_with(|| json!([]));
        if let Value::Array(volumes) = volumes {
            volumes.retain(|volume| volume.get("name").and_then(Value::as_str) != Some(name));
            volumes.push(volume);
        }
    }
    Ok(())
}
