//! Pods that nobody has made, for the room that CapacityBuffers keep free; they come after all that wait.
//!
//! A virtual pod has the labels and the shape of the buffer's template, without volumes and group. What it wants of
//! devices is planned like a pod's: of a claim template it gets a claim that nobody makes. Its priority is below that
//! of every other pod. It counts for spread, affinity and host ports like any pod, since those that will take the room
//! will.
//!
//! Differs: `buffers-come-last`. Karpenter gives virtual pods of the same size the same rank as real ones; here they
//! never take room from a pod that waits. Karpenter plans a template with resource claims without them.

use std::sync::Arc;

use model::{NamespacedName, Pod, PodShape, Uid, pod};

use super::{Buffer, PendingPod, Snapshot};

/// Below every pod that waits.
const PRIORITY: i32 = i32::MIN;

impl Snapshot {
    /// The snapshot with the pods of its buffers after its own; `None` if there are none.
    pub(crate) fn with_virtual_pods(&self) -> Option<Self> {
        if self.buffers.iter().all(|buffer| buffer.replicas == 0) {
            return None;
        }
        let mut with = self.clone();
        for pending in with.pods.iter_mut().filter(|pending| pending.pod.priority == PRIORITY) {
            pending.pod = Arc::new(Pod { priority: PRIORITY + 1, ..(*pending.pod).clone() });
        }
        for buffer in &self.buffers {
            let shape =
                Arc::new(PodShape { volumes: Vec::new(), scheduling_group: None, ..(*buffer.template.shape).clone() });
            for index in 0..buffer.replicas {
                let pod = Arc::new(virtual_pod(buffer, index, &shape));
                with.pods.push(PendingPod {
                    pod,
                    planned_on: None,
                    devices: buffer.devices.clone(),
                    waits_for: None,
                    stays_within: None,
                });
            }
        }
        Some(with)
    }
}

fn virtual_pod(buffer: &Buffer, index: u32, shape: &Arc<PodShape>) -> Pod {
    let name = format!("capacity-buffer-{}-{index}", buffer.name.name);
    Pod {
        name: NamespacedName::new(Arc::clone(&buffer.name.namespace), name),
        uid: Uid::from(format!("{}-{index}", buffer.uid)),
        labels: buffer.template.labels.clone(),
        created_at: model::Timestamp(i64::MAX),
        started_at: None,
        deletion_timestamp: None,
        priority: PRIORITY,
        preemption_policy: pod::PreemptionPolicy::Never,
        owner: None,
        is_daemon: false,
        template_generation: None,
        is_mirror: false,
        node_name: None,
        nominated_node_name: None,
        phase: pod::PodPhase::Pending,
        is_unready: false,
        scheduling: pod::SchedulingState::Unschedulable,
        scheduler_name: "default-scheduler".into(),
        do_not_disrupt: pod::DoNotDisrupt::default(),
        disruption_cost: None,
        deletion_cost: None,
        termination_grace_period_s: None,
        resource_claim_names: Vec::new(),
        may_enter: Vec::new(),
        kubelet_plugins: None,
        resizing: None,
        unreadable: None,
        shape: Arc::clone(shape),
    }
}
