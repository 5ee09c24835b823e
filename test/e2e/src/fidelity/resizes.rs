//! Pods that are being resized in place, as their status tells: no kubelet of the test plane does it, so the statuses
//! are written here. What such a pod counts for is the largest of what it asks for, what is allocated to it and what is
//! in force, unless the resize cannot be done on its node.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use seeded_random::Random;
use serde_json::{Value, json};

use crate::cluster::{Corner, DEADLINE};
use crate::eventually;

/// By how much, in thousandths of a CPU.
const STEP: i64 = 150;

/// What becomes of a pod that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resize {
    /// It asks for more, and the kubelet has no room for it now.
    Deferred,
    /// It asks for more than its node has.
    Infeasible,
    /// It asks for less, which is not in force yet.
    Shrinking,
}

/// A pod of the scenario, and what it is to be resized to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resized {
    pod: String,
    resize: Resize,
    before: Value,
    milli_cpu: i64,
}

/// Which of the pods that stay are resized.
pub(super) fn of(seed: u64, pods: &[Value]) -> Vec<Resized> {
    // A stream of its own, so that all else of a scenario is what it was without them.
    let mut random = Random::new(seed ^ 0x7265_7369_7a65_7321);
    let mut resized = Vec::new();
    // Every other one goes.
    for pod in pods.iter().skip(1).step_by(2) {
        let resize = *random.pick(&[Resize::Deferred, Resize::Infeasible, Resize::Shrinking]);
        if !random.one_in(2) {
            continue;
        }
        let before = pod["spec"]["containers"][0]["resources"]["requests"].clone();
        let cpu = before["cpu"].as_str().and_then(|cpu| cpu.strip_suffix('m')?.parse::<i64>().ok());
        let (Some(cpu), Some(name)) = (cpu, pod["metadata"]["name"].as_str()) else { continue };
        let milli_cpu = match resize {
            Resize::Deferred | Resize::Infeasible => cpu + STEP,
            Resize::Shrinking => (cpu - STEP).max(50),
        };
        resized.push(Resized { pod: name.to_owned(), resize, before, milli_cpu });
    }
    resized
}

impl Resized {
    /// Asks for the resize, and says in the pod's status how far it is.
    pub(super) async fn play(&self, corner: &Corner) -> Result<()> {
        let pods = Api::<Pod>::namespaced(corner.client.clone(), &corner.name);
        // The API server admits a resize only where the kubelet tells what is in force.
        eventually(&format!("the status of {} tells of its resize", self.pod), DEADLINE, async || {
            let pod = pods.get(&self.pod).await?;
            let after = self.with_status(&pod)?;
            pods.replace_status(&self.pod, &PostParams::default(), &after).await?;
            Ok(())
        })
        .await?;
        let requests = json!({ "cpu": format!("{}m", self.milli_cpu) });
        let wanted = json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } });
        let patch = Patch::Strategic(wanted);
        let resized = pods.patch_subresource("resize", &self.pod, &PatchParams::default(), &patch).await;
        resized.map(drop).with_context(|| format!("resize {}", self.pod))
    }

    fn with_status(&self, pod: &Pod) -> Result<Pod> {
        let mut pod = serde_json::to_value(pod)?;
        let statuses = pod.pointer_mut("/status/containerStatuses").and_then(Value::as_array_mut);
        let statuses = statuses.filter(|statuses| !statuses.is_empty()).context("no container runs yet")?;
        for status in statuses {
            status["allocatedResources"] = self.before.clone();
            status["resources"] = json!({ "requests": self.before });
        }
        let pending = match self.resize {
            Resize::Deferred => json!({ "type": "PodResizePending", "status": "True", "reason": "Deferred" }),
            Resize::Infeasible => json!({ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }),
            Resize::Shrinking => json!({ "type": "PodResizeInProgress", "status": "True" }),
        };
        let conditions =
            pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut).context("no conditions")?;
        conditions.retain(|condition| condition["type"] != pending["type"]);
        conditions.push(pending);
        let after: Pod = serde_json::from_value(pod)?;
        ensure!(after.status.is_some(), "the status was lost");
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::Scenario;

    #[test]
    fn a_seed_gives_the_same_resizes_and_all_kinds_appear() {
        let mut kinds = Vec::new();
        for seed in 0..60 {
            let (one, other) = (Scenario::random(seed), Scenario::random(seed));
            assert_eq!(one.resizes, other.resizes);
            for resized in one.resizes {
                let before = resized.before["cpu"].as_str().unwrap().trim_end_matches('m').parse::<i64>().unwrap();
                assert_eq!(resized.milli_cpu > before, resized.resize != Resize::Shrinking, "{resized:?}");
                if !kinds.contains(&resized.resize) {
                    kinds.push(resized.resize);
                }
            }
        }
        assert_eq!(kinds.len(), 3);
    }
}
