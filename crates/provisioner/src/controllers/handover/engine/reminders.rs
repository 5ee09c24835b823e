//! Pods that have not come to a machine that is open by now, or that they may enter.
//!
//! A rule may keep such a pod from its machine until others are open: a spread that counts only nodes that the pod may
//! enter. When they are, kube-scheduler would place it by its scores, which may be on one of those that just opened. So
//! it is nominated to its machine right before: a nomination is good for that moment.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeName, Timestamp, Uid};

use super::{Command, Config, Crowding, Engine, Machine, PlannedPod, PodState};

/// Who was reminded; bounded by the pods that are late.
#[derive(Debug, Default)]
pub(super) struct Reminders {
    /// How often each pod was, for as long as it is late.
    given: BTreeMap<Uid, u32>,
    /// Reminders that the watch has not shown.
    unseen: BTreeSet<Uid>,
    /// When those were given.
    since: Option<Timestamp>,
}

impl Reminders {
    /// Until when others wait for them, if any are under way.
    pub(super) fn under_way_until(&self, config: &Config) -> Option<Timestamp> {
        self.since.map(|since| since.saturating_add(config.max_wait_for_watch))
    }

    /// Forgets those under way.
    pub(super) fn cancel(&mut self) {
        self.unseen.clear();
        self.since = None;
    }

    /// A nomination has not worked.
    pub(super) fn refused(&mut self, pod: &Uid) {
        self.unseen.remove(pod);
    }

    /// Takes in how far the pods are.
    fn observe(&mut self, late: &[(NodeName, PlannedPod)], left_over: &[(&NodeName, &Machine)]) {
        let pods = late.iter().map(|(_, pod)| pod).chain(left_over.iter().flat_map(|(_, machine)| &machine.pods));
        let waiting: BTreeSet<&Uid> = pods.filter(|pod| pod.state == PodState::Waiting).map(|pod| &pod.uid).collect();
        self.unseen.retain(|uid| waiting.contains(uid));
        self.given.retain(|uid, _| late.iter().any(|(_, pod)| pod.uid == *uid && pod.state != PodState::Settled));
    }
}

impl Engine {
    /// Reminds the pods that are late, and those that wait for machines that are to be opened without them, of their
    /// machines. Says whether that is done.
    pub(super) fn remind(
        &mut self,
        now: Timestamp,
        left_over: &[(&NodeName, &Machine)],
        commands: &mut Vec<Command>,
    ) -> bool {
        self.reminders.observe(&self.surroundings.late, left_over);
        if let Some(until) = self.reminders.under_way_until(&self.config) {
            let over = self.reminders.unseen.is_empty() || now >= until;
            if over {
                self.reminders.cancel();
            }
            return over;
        }
        let most = self.config.patches_per_pod;
        let late = self.surroundings.late.iter().filter(|(node, _)| !self.is_filling(node));
        let late = late.map(|(node, pod)| (node, pod));
        let helped = left_over.iter().filter(|(_, machine)| machine.nominate);
        let waiting = helped.flat_map(|(node, machine)| machine.pods.iter().map(move |pod| (*node, pod)));
        let waiting: Vec<(&NodeName, &PlannedPod)> = late.chain(waiting).collect();
        let mut crowding = Crowding::of(waiting.iter().copied());
        let waiting = waiting.into_iter().filter(|(_, pod)| pod.state == PodState::Waiting);
        for (node, pod) in waiting.take(self.config.batch_pods) {
            // Of a machine that is not open yet, it is one of the nominations to it.
            let given = match self.machines.get_mut(node) {
                Some(machine) => machine.nominations.entry(pod.uid.clone()).or_default(),
                None => self.reminders.given.entry(pod.uid.clone()).or_default(),
            };
            if *given < most && crowding.admits(node, pod) {
                *given += 1;
                self.reminders.unseen.insert(pod.uid.clone());
                commands.push(Command::Nominate { uid: pod.uid.clone(), pod: pod.name.clone(), node: node.clone() });
            }
        }
        if self.reminders.unseen.is_empty() {
            return true;
        }
        self.reminders.since = Some(now);
        false
    }
}
