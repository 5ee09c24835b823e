//! Takes the pods of an existing node out, or the whole node: whoever asks whether a node could go places its pods
//! elsewhere.
//!
//! Pods of DaemonSets stay, since they run wherever the node does.
//!
//! Claims that are reserved only for pods that leave lose their allocation, as they do in the cluster once the last of
//! these pods is gone: their devices on the node are free, and they can be allocated anew there or elsewhere. Claims
//! stay as they are if a pod that stays uses them too, if they are reserved for a PodGroup, or if they have a device
//! that several nodes can use. What is taken for pods that are only nominated to the node stays taken, since none of
//! their claims is allocated.

use std::sync::Arc;

use dra_sched::ClaimId;

use super::Packing;
use super::devices::BeforeRelease;
use super::state::{State, Undo};
use crate::simulation::compile::attachments::{self, Attached};
use crate::simulation::compile::problem::Problem;
use crate::simulation::topology::{Before, DomainId, GroupId};
use crate::snapshot::{NodeId, RunningPods};
use model::{Pod, ResourceVec};

/// What leaves a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// Its pods: the node takes others.
    Pods,
    /// Its pods and the node itself: it takes nobody.
    All,
}

/// What a node held before its pods left, now and at the start of each search. The two are equal, because nothing of
/// the plan was there.
#[derive(Debug)]
pub(super) struct Vacated {
    node: NodeId,
    room: ResourceVec,
    /// `None` if no volume is shared.
    attached: Option<Attached>,
    /// Claims that were released, and what the devices were at the start of each search.
    claims: Vec<ClaimId>,
    start_devices: Option<BeforeRelease>,
    /// By change: what rules counted now and at the start. The latest is last.
    counts: Vec<(GroupId, DomainId, Before, Before)>,
}

impl State {
    /// Releases claims of a node, now and at the start of each search. Gives what the latter was.
    fn release(&mut self, problem: &Problem<'_>, node: NodeId, claims: &[ClaimId]) -> Option<BeforeRelease> {
        let of_problem = problem.devices.as_ref().filter(|_| !claims.is_empty())?;
        if let Some(devices) = &mut self.devices {
            let before = devices.release_claims(of_problem, node, claims);
            self.journal.push(|| Undo::Devices(before.of_node));
        }
        self.start_devices.as_mut().map(|devices| devices.release_claims(of_problem, node, claims))
    }
}

impl Packing<'_> {
    /// Takes the pods that run on a node out: their requests, their volumes, what rules over pods and host ports count
    /// of them, and the devices of claims that only they use. False, and nothing changes, if the plan has placed
    /// something there or the node is vacated already.
    ///
    /// Searches for another arrangement begin without these pods too. The node stays open to others: it has the room
    /// that its pods leave.
    pub(crate) fn vacate(&mut self, node: NodeId) -> bool {
        self.leave(node, Leaving::Pods)
    }

    /// Takes the node away: [`Self::vacate`], and nobody finds room there any more.
    pub(crate) fn take_away(&mut self, node: NodeId) -> bool {
        self.leave(node, Leaving::All)
    }

    fn leave(&mut self, node: NodeId, leaving: Leaving) -> bool {
        let (problem, state) = (self.problem, &mut self.state);
        if state.room[node] != problem.room[node] {
            return false;
        }
        let snapshot = problem.snapshot;
        let there = &snapshot.nodes[node];
        let (stay, leave): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = there.pods.iter().cloned().partition(|pod| pod.is_daemon);
        let claims = match (&problem.devices, &there.name) {
            (Some(of_problem), Some(name)) => {
                let uids = leave.iter().map(|pod| &pod.uid).collect();
                of_problem.devices.inventory.held_alone(&uids, name)
            }
            (Some(_), None) | (None, _) => Vec::new(),
        };
        let start_devices = state.release(problem, node, &claims);
        let mut room = state.room[node].clone();
        room.saturating_add_assign(RunningPods::from(leave).requests());
        for (resource, amount) in attachments::given_back(there, &stay, snapshot) {
            room.set(resource, room.get(resource).saturating_add(amount));
        }
        let mut counts = Vec::new();
        for (group, domain, matched, owners) in problem.topology.counted_on(node, snapshot, |pod| !pod.is_daemon) {
            let now = state.counts[group].remove(domain, matched, owners);
            let at_start = state.start_counts[group].remove(domain, matched, owners);
            counts.push((group, domain, now, at_start));
        }
        let attached = state.attached.try_get_mut(node).map(|attached| {
            let left = attachments::shared_by(&stay, problem.request);
            state.start_attached[node].clone_from(&left);
            std::mem::replace(attached, left)
        });
        if leaving == Leaving::All {
            // Every pod takes one of what a node can hold of pods, so none fits.
            room = ResourceVec::default();
        }
        state.start[node].clone_from(&room);
        let before = std::mem::replace(&mut state.room[node], room);
        state
            .journal
            .push(|| Undo::Vacated(Box::new(Vacated { node, room: before, attached, claims, start_devices, counts })));
        self.note_room(node);
        true
    }

    pub(super) fn occupy(&mut self, vacated: Vacated) {
        let Vacated { node, room, attached, claims, start_devices, counts } = vacated;
        let state = &mut self.state;
        if let (Some(of_problem), Some(devices), Some(start)) =
            (&self.problem.devices, &mut state.start_devices, start_devices)
        {
            devices.take_back(of_problem, start, &claims);
        }
        for (group, domain, now, at_start) in counts.into_iter().rev() {
            state.counts[group].restore(domain, now);
            state.start_counts[group].restore(domain, at_start);
        }
        if let Some(attached) = attached {
            state.start_attached[node].clone_from(&attached);
            state.attached[node] = attached;
        }
        state.start[node].clone_from(&room);
        state.room[node] = room;
        self.note_room(node);
    }
}
