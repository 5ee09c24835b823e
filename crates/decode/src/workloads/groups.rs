//! Workloads whose pods come in groups.
//!
//! A JobSet makes for each of its `replicatedJobs` so many Jobs, named `<jobset>-<replicatedjob>-<index>`. A
//! LeaderWorkerSet makes groups of a leader, `<set>-<group>`, and workers, `<set>-<group>-<index>`. Pods of a group
//! carry labels with their group's number, which affinity in the templates goes by, so each group is read by itself.
//!
//! Left out: the annotations for exclusive topology, by which the controllers write affinity into the pods; JobSets
//! that start one replicated job after another count as if all ran.

use serde_json::{Value, json};

use super::{MAX_PODS_PER_WORKLOAD, Owner, PodSet, WorkloadKind, count, job_count};
use crate::error::{Problem, Reason};
use crate::field::Field;

/// Sums up pods, and refuses more than one workload may make.
#[derive(Default)]
struct Total(i64);

impl Total {
    fn add(&mut self, groups: i64, pods: i64, field: &Field<'_, '_>) -> Result<(), Problem> {
        self.0 = self.0.saturating_add(groups.saturating_mul(pods));
        if self.0 > MAX_PODS_PER_WORKLOAD {
            let (value, max) = (self.0.to_string(), MAX_PODS_PER_WORKLOAD);
            return Err(field.problem(Reason::OutOfRange { value, min: 0, max }));
        }
        Ok(())
    }
}

/// The pods of a JobSet.
pub(super) fn job_set(root: &Field<'_, '_>) -> Result<Vec<PodSet>, Problem> {
    let (metadata, spec) = (root.field("metadata")?, root.field("spec")?);
    let owner = Owner::of(&metadata, WorkloadKind::JobSet)?;
    if spec.field("suspend")?.bool()? {
        return Ok(Vec::new());
    }
    let (mut sets, mut total) = (Vec::new(), Total::default());
    for (index, replicated) in spec.field("replicatedJobs")?.items()?.enumerate() {
        let field = replicated.field("name")?;
        let name = field.required_str()?;
        let replicas = replicated.field("replicas")?;
        let jobs = count(&replicas)?.unwrap_or(1);
        let job = replicated.field("template")?;
        let job_spec = job.field("spec")?;
        // Jobs that are not there have no status.
        let pods = job_count(&job_spec, &job_spec.field("status")?)?;
        total.add(jobs, pods, &replicas)?;
        let pod = owner.pod(&job_spec.field("template")?)?;
        for job in 0..jobs {
            let labels = [
                ("jobset.sigs.k8s.io/jobset-name", owner.name.to_owned()),
                ("jobset.sigs.k8s.io/replicatedjob-name", name.to_owned()),
                ("jobset.sigs.k8s.io/replicatedjob-replicas", jobs.to_string()),
                ("jobset.sigs.k8s.io/job-index", job.to_string()),
            ];
            sets.push(PodSet {
                suffixes: (0..pods).map(|pod| format!("{name}-{job}-{pod}")).collect(),
                pod: labelled(pod.clone(), labels),
                claims: Vec::new(),
                template: format!("spec.replicatedJobs[{index}].template.spec.template"),
            });
        }
    }
    Ok(sets)
}

/// The pods of a LeaderWorkerSet.
pub(super) fn leader_worker_set(root: &Field<'_, '_>) -> Result<Vec<PodSet>, Problem> {
    let (metadata, spec) = (root.field("metadata")?, root.field("spec")?);
    let owner = Owner::of(&metadata, WorkloadKind::LeaderWorkerSet)?;
    let replicas = spec.field("replicas")?;
    let groups = count(&replicas)?.unwrap_or(1);
    let templates = spec.field("leaderWorkerTemplate")?;
    let size = templates.field("size")?.int(1, MAX_PODS_PER_WORKLOAD)?.unwrap_or(1);
    Total::default().add(groups, size, &replicas)?;
    let (leader, worker) = (templates.field("leaderTemplate")?, templates.field("workerTemplate")?);
    let of_worker = owner.pod(&worker)?;
    let (of_leader, leader_field) = match leader.is_absent() {
        true => (of_worker.clone(), "workerTemplate"),
        false => (owner.pod(&leader)?, "leaderTemplate"),
    };
    let set = |suffixes: Vec<String>, pod: &Value, group: i64, template: &str| {
        let labels = [
            ("leaderworkerset.sigs.k8s.io/name", owner.name.to_owned()),
            ("leaderworkerset.sigs.k8s.io/group-index", group.to_string()),
        ];
        let template = format!("spec.leaderWorkerTemplate.{template}");
        PodSet { suffixes, pod: labelled(pod.clone(), labels), claims: Vec::new(), template }
    };
    let mut sets = Vec::new();
    for group in 0..groups {
        sets.push(set(vec![group.to_string()], &of_leader, group, leader_field));
        let workers: Vec<String> = (1..size).map(|worker| format!("{group}-{worker}")).collect();
        if !workers.is_empty() {
            sets.push(set(workers, &of_worker, group, "workerTemplate"));
        }
    }
    Ok(sets)
}

/// The pod with these labels too.
fn labelled<const N: usize>(mut pod: Value, labels: [(&str, String); N]) -> Value {
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(all) = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut()
    {
        all.extend(labels.map(|(key, value)| (key.to_owned(), Value::String(value))));
    }
    pod
}
