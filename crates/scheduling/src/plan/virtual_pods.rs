//! A plan without the virtual pods of CapacityBuffers, which tells where their room is, and the plan with them.

use std::{collections::BTreeMap, sync::Arc};

use model::{Id as _, NamespacedName};

use super::{BufferRoom, ExistingPlacement, Plan, Refusal, Verdict};
use crate::snapshot::{NodeId, PodId, PodsToPlace, Snapshot};

/// Takes the virtual pods out of a plan for a snapshot that had them ([`Snapshot::with_virtual_pods`]), and says where
/// their room is.
pub(crate) fn set_aside(mut plan: Plan, snapshot: &Snapshot) -> Plan {
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
    let mut with = snapshot.with_virtual_pods()?;
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
            plan.existing.push(ExistingPlacement { node, pods, drivers: Vec::new(), device_costs: Vec::new() });
            let name = |node: NodeId| snapshot.nodes.try_get(node).map(|node| node.display_name());
            plan.existing.sort_by_key(|placement| name(placement.node));
        }
    }
}
