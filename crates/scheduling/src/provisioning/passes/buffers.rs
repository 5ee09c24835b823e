//! Room that CapacityBuffers keep free: planned as virtual pods ([`Snapshot::with_virtual_pods`]), and taken out of the
//! plan again, so that whoever carries it out meets pods of the cluster only.

use super::Rewrite;
use crate::plan::{Plan, virtual_pods};
use crate::simulation::compile::request::Request;

pub(crate) struct Buffers;

impl Rewrite for Buffers {
    fn rewrite(&self, request: &Request<'_>) -> Option<Request<'static>> {
        Some(request.with_snapshot(request.snapshot.with_virtual_pods()?))
    }

    fn restore(&self, plan: Plan, request: &Request<'_>) -> Plan {
        set_aside(plan, &request.snapshot)
    }
}

/// The snapshot with the pods of its buffers after its own; `None` if there are none.
fn as_pods(snapshot: &Snapshot) -> Option<Snapshot> {
    if snapshot.buffers.iter().all(|buffer| buffer.replicas == 0) {
        return None;
    }
    let mut with = snapshot.clone();
    for pending in with.pods.iter_mut().filter(|pending| pending.pod.priority == PRIORITY) {
        pending.pod = Arc::new(Pod { priority: PRIORITY + 1, ..(*pending.pod).clone() });
    }
    for buffer in &snapshot.buffers {
        let shape =
            Arc::new(PodShape { volumes: Vec::new(), scheduling_group: None, ..(*buffer.template.shape).clone() });
        for index in 0..buffer.replicas {
            let pod = Arc::new(virtual_pod(buffer, index, &shape));
            with.pods.push(PendingPod { pod, planned_on: None, devices: buffer.devices.clone(), waits_for: None });
        }
    }
    Some(with)
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
        deletion_cost: 0,
        termination_grace_period_s: None,
        resource_claim_names: Vec::new(),
        may_enter: Vec::new(),
        kubelet_plugins: None,
        unreadable: None,
        shape: Arc::clone(shape),
    }
}

/// Takes the virtual pods out of a plan for [`as_pods`] and says where their room is.
fn set_aside(mut plan: Plan, snapshot: &Snapshot) -> Plan {
    let own = snapshot.pods.len();
    let owners: Vec<usize> = PodsToPlace { pods: &snapshot.pods, buffers: &snapshot.buffers }.owners().collect();
    let mut rooms = vec![BufferRoom::default(); snapshot.buffers.len()];
    // Takes virtual pods out of a place's, and counts them by buffer.
    let take = |pods: &mut Vec<PodId>| -> BTreeMap<usize, u32> {
        let mut taken = BTreeMap::new();
        pods.retain(|pod| match pod.index().checked_sub(own) {
            None => true,
            Some(index) => {
                owners.get(index).into_iter().for_each(|&buffer| *taken.entry(buffer).or_default() += 1);
                false
            }
        });
        taken
    };
    for id in plan.machines.ids() {
        for (buffer, pods) in plan.machines.try_get_mut(id).map(|it| take(&mut it.pods)).unwrap_or_default() {
            rooms.get_mut(buffer).into_iter().for_each(|room| room.on_machines.push((id, pods)));
        }
    }
    for placement in &mut plan.existing {
        for (buffer, pods) in take(&mut placement.pods) {
            rooms.get_mut(buffer).into_iter().for_each(|room| room.on_nodes.push((placement.node, pods)));
        }
    }
    plan.existing.retain(|placement| !placement.pods.is_empty());
    plan.later.iter_mut().for_each(|pods| pods.retain(|pod| pod.index() < own));
    plan.refusals.retain(|refusal| match refusal.pod.index().checked_sub(own) {
        None => true,
        Some(index) => {
            if let Some(room) = owners.get(index).and_then(|&buffer| rooms.get_mut(buffer)) {
                room.missing += 1;
                room.reasons = Arc::clone(&refusal.reasons);
            }
            false
        }
    });
    let is_own = |name: &NamespacedName| snapshot.pods.iter().any(|pending| pending.pod.name == *name);
    plan.notes.retain(|note| is_own(&note.example));
    plan.buffers = rooms;
    plan
}

/// Snapshot and plan with the virtual pods of buffers as pods among the others, for those who look at every pod; `None`
/// if there are none.
pub fn with_virtual_pods(snapshot: &Snapshot, plan: &Plan) -> Option<(Snapshot, Plan)> {
    let mut with = as_pods(snapshot)?;
    with.buffers = Vec::new();
    let mut plan = plan.clone();
    let mut next = snapshot.pods.len();
    for (buffer, room) in snapshot.buffers.iter().zip(std::mem::take(&mut plan.buffers)) {
        let end = next + buffer.replicas as usize;
        let mut ids = (next..end).map(PodId::from_index);
        let mut take = |pods: u32| -> Vec<PodId> { ids.by_ref().take(pods as usize).collect() };
        for (id, pods) in room.on_machines {
            if let Some(machine) = plan.machines.try_get_mut(id) {
                machine.pods.extend(take(pods));
            }
        }
        for (node, pods) in room.on_nodes {
            add_to_node(&mut plan, node, take(pods), snapshot);
        }
        let refused = take(room.missing).into_iter().map(|pod| Refusal {
            pod,
            verdict: Verdict::DoesNotFit,
            reasons: Arc::clone(&room.reasons),
        });
        plan.refusals.extend(refused);
        next = end;
    }
    Some((with, plan))
}

fn add_to_node(plan: &mut Plan, node: NodeId, pods: Vec<PodId>, snapshot: &Snapshot) {
    match plan.existing.iter_mut().find(|placement| placement.node == node) {
        Some(placement) => placement.pods.extend(pods),
        None => {
            plan.existing.push(crate::plan::ExistingPlacement { node, pods });
            let name = |node: NodeId| snapshot.nodes.try_get(node).map(|node| node.display_name());
            plan.existing.sort_by_key(|placement| name(placement.node));
        }
    }
}
