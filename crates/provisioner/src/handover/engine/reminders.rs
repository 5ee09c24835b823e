//! Pods that were planned onto a machine that is open by now and have not come.
//!
//! A rule may keep such a pod from its machine until others are open: a spread that counts only nodes that the pod may
//! enter. When they are, kube-scheduler would place it by its scores, which is on one of those that just opened if it has
//! room. So it is nominated to its machine right before: a nomination is good for that moment.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeName, Timestamp, Uid};

use super::{Command, Engine, PlannedPod, PodState};

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
    pub(super) fn under_way_until(&self, engine: &super::Config) -> Option<Timestamp> {
        self.since.map(|since| since.saturating_add(engine.max_wait_for_watch))
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

    /// Forgets who is not late any more.
    pub(super) fn observe(&mut self, late: &[(NodeName, PlannedPod)]) {
        let waits =
            |uid: &Uid, wanted: fn(PodState) -> bool| late.iter().any(|(_, pod)| pod.uid == *uid && wanted(pod.state));
        self.given.retain(|uid, _| waits(uid, |state| state != PodState::Settled));
        self.unseen.retain(|uid| waits(uid, |state| state == PodState::Waiting));
    }
}

impl Engine {
    /// Reminds the pods that are late of their machines. Says whether that is done.
    pub(super) fn remind(&mut self, now: Timestamp, commands: &mut Vec<Command>) -> bool {
        if let Some(until) = self.reminders.under_way_until(&self.config) {
            let over = self.reminders.unseen.is_empty() || now >= until;
            if over {
                self.reminders.cancel();
            }
            return over;
        }
        let late = self.surroundings.late.iter().filter(|(_, pod)| pod.state == PodState::Waiting);
        let most = self.config.patches_per_pod;
        for (node, pod) in late.take(self.config.batch_pods) {
            let given = self.reminders.given.entry(pod.uid.clone()).or_default();
            if *given < most {
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
