//! From workloads to the pods they will make, for manifests that no controller has seen.
//!
//! Deployments, ReplicaSets, ReplicationControllers and StatefulSets make as many pods as they have replicas, Jobs as
//! many as run at once; JobSets and LeaderWorkerSets make them in groups ([`groups`]). What another object in the input
//! stands for (a ReplicaSet of a Deployment) is not expanded again; CronJobs and HorizontalPodAutoscalers change
//! numbers over time and are not expanded at all.

mod groups;

#[cfg(test)]
mod tests;

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
    /// ReplicationController.
    ReplicationController,
    /// `apps` StatefulSet.
    StatefulSet,
    /// `batch` Job.
    Job,
    /// `jobset.x-k8s.io` JobSet.
    JobSet,
    /// `leaderworkerset.x-k8s.io` LeaderWorkerSet.
    LeaderWorkerSet,
}

impl WorkloadKind {
    /// The kind of an object, if it makes pods.
    pub fn of(manifest: &Manifest) -> Option<Self> {
        match (manifest.group.as_str(), manifest.kind.as_str()) {
            ("apps", "Deployment") => Some(Self::Deployment),
            ("apps", "ReplicaSet") => Some(Self::ReplicaSet),
            ("", "ReplicationController") => Some(Self::ReplicationController),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            ("batch", "Job") => Some(Self::Job),
            ("jobset.x-k8s.io", "JobSet") => Some(Self::JobSet),
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => Some(Self::LeaderWorkerSet),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet => "apps/v1",
            Self::ReplicationController => "v1",
            Self::Job => "batch/v1",
            Self::JobSet => "jobset.x-k8s.io/v1alpha2",
            Self::LeaderWorkerSet => "leaderworkerset.x-k8s.io/v1",
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
            Self::JobSet => "JobSet",
            Self::LeaderWorkerSet => "LeaderWorkerSet",
        }
    }

    /// Whether another object can stand for its pods: a Deployment for its ReplicaSets'.
    fn may_be_controlled(self) -> bool {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::ReplicationController | Self::StatefulSet => true,
            // The controllers of Jobs and of groups of them are seldom in the input, or make them over time.
            Self::Job | Self::JobSet | Self::LeaderWorkerSet => false,
        }
    }
}

/// Pods that look alike but for their names.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSet {
    /// Their names, without the workload's and a hyphen before.
    pub suffixes: Vec<String>,
    /// A Pod as JSON, without a name.
    pub pod: Value,
    /// Names of volumes for each of which a pod gets a PersistentVolumeClaim of its own, `<volume>-<pod>`.
    pub claims: Vec<String>,
    /// The field with the template.
    pub template: String,
}

/// Reads a workload. `None` if another object makes its pods.
pub fn workload(object: &Value, kind: WorkloadKind) -> Result<Option<Vec<PodSet>>, ObjectError> {
    decode_object(object, kind.as_str(), |root| {
        let metadata = root.field("metadata")?;
        if kind.may_be_controlled() && is_controlled(&metadata)? {
            return Ok(None);
        }
        let spec = root.field("spec")?;
        let (first, count) = match kind {
            WorkloadKind::JobSet => return groups::job_set(root).map(Some),
            WorkloadKind::LeaderWorkerSet => return groups::leader_worker_set(root).map(Some),
            WorkloadKind::Job => (0, job_count(&spec, &root.field("status")?)?),
            WorkloadKind::StatefulSet => {
                let first = spec.field("ordinals")?.field("start")?.int(0, i64::from(i32::MAX))?;
                (first.unwrap_or(0), count(&spec.field("replicas")?)?.unwrap_or(1))
            }
            WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController => {
                (0, count(&spec.field("replicas")?)?.unwrap_or(1))
            }
        };
        let owner = Owner::of(&metadata, kind)?;
        let (mut pod, mut claims) = (owner.pod(&spec.field("template")?)?, Vec::new());
        if kind == WorkloadKind::StatefulSet
            && let Some(pod_spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        {
            claims = add_claims(&spec.field("volumeClaimTemplates")?, pod_spec)?;
        }
        let suffixes = (first..first.saturating_add(count)).map(|ordinal| ordinal.to_string()).collect();
        Ok(Some(vec![PodSet { suffixes, pod, claims, template: "spec.template".to_owned() }]))
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
fn job_count(spec: &Field<'_, '_>, status: &Field<'_, '_>) -> Result<i64, Problem> {
    if spec.field("suspend")?.bool()? {
        return Ok(0);
    }
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

/// What pods say of the object that makes them.
struct Owner<'v> {
    namespace: &'v str,
    kind: WorkloadKind,
    name: &'v str,
    uid: &'v str,
}

impl<'v> Owner<'v> {
    fn of(metadata: &Field<'v, '_>, kind: WorkloadKind) -> Result<Self, Problem> {
        Ok(Self {
            namespace: metadata.field("namespace")?.str_or_empty()?,
            kind,
            name: metadata.field("name")?.required_str()?,
            uid: metadata.field("uid")?.str_or_empty()?,
        })
    }

    /// The pod that a template describes.
    fn pod(&self, template: &Field<'_, '_>) -> Result<Value, Problem> {
        let metadata = template.field("metadata")?;
        let spec = template.field("spec")?;
        let Some(Value::Object(spec_map)) = spec.value() else {
            return Err(spec.problem(Reason::Missing));
        };
        let mut owned = Map::new();
        for key in ["labels", "annotations"] {
            if let Some(value) = metadata.field(key)?.value() {
                owned.insert(key.to_owned(), value.clone());
            }
        }
        owned.insert("namespace".to_owned(), json!(self.namespace));
        let owner = json!([{
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.as_str(),
            "name": self.name,
            "uid": self.uid,
            "controller": true,
        }]);
        owned.insert("ownerReferences".to_owned(), owner);
        Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": spec_map}))
    }
}

/// The claims that a StatefulSet makes for each pod are the same to the planner as ephemeral volumes: a claim of the
/// pod's own, made once the pod is there. Returns their names.
fn add_claims(templates: &Field<'_, '_>, pod_spec: &mut Map<String, Value>) -> Result<Vec<String>, Problem> {
    let mut names = Vec::new();
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
        names.push(name.to_owned());
    }
    Ok(names)
}
