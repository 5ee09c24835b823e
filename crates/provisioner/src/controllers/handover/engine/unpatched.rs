//! Machines that need no patches: they open, and their pods come by themselves.
//!
//! An opening makes kube-scheduler try all pods that wait. So such a machine waits for others that are about to come,
//! and they open together. If its pods do not come although others do not either, they are nominated, like those of
//! every machine that was opened before its time.

use model::{NodeName, Timestamp};

use super::{Command, Engine, Opening, Stage, View};

impl Engine {
    /// Opens the machines whose time has come, of those that need no patches.
    pub(super) fn open_unpatched(&mut self, now: Timestamp, view: &View, commands: &mut Vec<Command>) {
        if !self.config.tolerate {
            return;
        }
        let others = self.machines.values().filter_map(|other| self.comes_until(other, now));
        let others = others.chain(self.surroundings.expected_until).fold(now, Timestamp::max);
        let gathered = others.min(now.saturating_add(self.config.pause));
        let mut is_time = false;
        for (node, machine) in &mut self.machines {
            let seen = view.get(node).filter(|seen| seen.needs_no_patches && seen.lets_pods_in());
            // One whose toleration is under way may enter soon, and then no other.
            let is_ripe = seen.is_some() && !machine.intolerable && machine.tolerations.is_empty();
            match machine.stage {
                Stage::Waiting if is_ripe => machine.stage = Stage::Gathering { until: gathered },
                Stage::Gathering { .. } if !is_ripe => machine.stage = Stage::Waiting,
                // It could not be opened, and others have come meanwhile that would take the room.
                Stage::OpeningAlone { opening: Opening::Unpatched, retry_at } if now >= retry_at && !is_ripe => {
                    machine.stage = Stage::Waiting;
                }
                Stage::Gathering { .. }
                | Stage::Waiting
                | Stage::Filling
                | Stage::InBatch
                | Stage::Tolerating
                | Stage::OpeningAlone { .. }
                | Stage::OpenAlone
                | Stage::Done { .. } => {}
            }
            is_time |= matches!(machine.stage, Stage::Gathering { until } if until <= now || others <= now);
        }
        if !is_time {
            return;
        }
        let retry_at = now.saturating_add(self.config.call_timeout);
        for (node, machine) in &mut self.machines {
            if matches!(machine.stage, Stage::Gathering { .. }) {
                machine.open(node, Opening::Unpatched, retry_at, commands);
            }
        }
    }

    /// Whether pods come to that node by themselves.
    pub(super) fn is_filling(&self, node: &NodeName) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.stage == Stage::Filling)
    }
}
