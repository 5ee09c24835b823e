//! The way by tolerations: each planned pod may enter its machine while that is closed to all others.

use model::{Timestamp, Uid};

use super::{Attracts, Command, Config, Engine, Machine, NodeName, Opening, Progress, Stage, TolerationOutcome, View};

/// What is remembered of a pod's toleration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Toleration {
    pub(super) tries: u32,
    pub(super) call: Call,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// None is under way: there was none yet, or it failed.
    None,
    UnderWay {
        since: Timestamp,
    },
    /// The watch will show it.
    Done,
}

impl Engine {
    /// Lets the planned pods of machines that only our taint keeps them from come in, and opens the machines that have
    /// theirs.
    pub(super) fn tolerate(&mut self, now: Timestamp, view: &View, commands: &mut Vec<Command>) {
        let config = self.config;
        if !config.tolerate {
            return;
        }
        let mut given_up = now >= self.tolerating_ends();
        let last_progress = self.last_progress;
        let mut left_over = Vec::new();
        for (node, machine) in &mut self.machines {
            let Some((name, seen)) = view.get_key_value(node).filter(|(_, seen)| seen.held && seen.tolerable) else {
                continue;
            };
            if machine.stage == Stage::Waiting && seen.usable && !machine.intolerable {
                machine.stage = Stage::Tolerating;
            }
            if machine.stage == Stage::Tolerating && machine.intolerable {
                // Who has a toleration keeps it; the others are nominated.
                machine.stage = Stage::Waiting;
            }
            if machine.stage != Stage::Tolerating {
                continue;
            }
            let patient = now < deferral_ends(&config, machine, last_progress);
            // Who has not come yet is waited for as long as who has, and is not bound.
            let (mut waiting, mut deferred) = (seen.waits_for_successors, false);
            for pod in seen.pods.iter().filter(|pod| pod.is_waiting()) {
                waiting = true;
                if pod.may_enter {
                    continue;
                }
                if pod.after_others && patient {
                    deferred = true;
                    continue;
                }
                let unknown = Toleration { tries: 0, call: Call::None };
                let toleration = machine.tolerations.entry(pod.uid.clone()).or_insert(unknown);
                match toleration.call {
                    Call::UnderWay { since } if now < since.saturating_add(config.call_timeout) => {}
                    Call::UnderWay { .. } | Call::None if toleration.tries >= config.patches_per_pod => {
                        machine.intolerable = true;
                    }
                    Call::UnderWay { .. } | Call::None => {
                        *toleration = Toleration { tries: toleration.tries + 1, call: Call::UnderWay { since: now } };
                        let (uid, pod, node) = (pod.uid.clone(), pod.name.clone(), node.clone());
                        commands.push(Command::Tolerate { uid, pod, node });
                        self.last_progress = now;
                        given_up = false;
                    }
                    Call::Done => {}
                }
            }
            for pod in &seen.onlookers {
                let unknown = Toleration { tries: 0, call: Call::None };
                let toleration = machine.onlookers.entry(pod.uid.clone()).or_insert(unknown);
                // One that cannot be let in waits for the machine to open, as it would without.
                if toleration.call == Call::None && toleration.tries < config.patches_per_pod {
                    *toleration = Toleration { tries: toleration.tries + 1, call: Call::UnderWay { since: now } };
                    let (uid, pod, node) = (pod.uid.clone(), pod.name.clone(), node.clone());
                    commands.push(Command::Tolerate { uid, pod, node });
                    self.last_progress = now;
                    given_up = false;
                }
            }
            // Its pods can be here before the news that the node is ready and has its labels, which tell who else fits.
            let has_its_pods = !waiting || (given_up && !deferred);
            let may_open = match seen.attracts {
                Attracts::Nobody => true,
                // They may need this one open too.
                Attracts::LetIn => given_up,
                Attracts::Others => false,
            };
            let is_complete = seen.usable && has_its_pods && may_open && !machine.intolerable;
            machine.complete_since = is_complete.then(|| machine.complete_since.unwrap_or(now));
            if machine.intolerable {
                machine.stage = Stage::Waiting;
            } else if is_complete && waiting {
                left_over.push((name, seen));
            }
        }
        self.open_complete(now, &left_over, commands);
    }

    /// Opens all machines that have their pods, if it is time; if there are none, those `left_over`, whose pods do not
    /// come although they may.
    fn open_complete(&mut self, now: Timestamp, left_over: &[(&NodeName, &Machine)], commands: &mut Vec<Command>) {
        if self.completes_at().is_none_or(|at| now < at) {
            self.reminders.cancel();
            return;
        }
        if !self.remind(now, left_over, commands) {
            return;
        }
        let retry_at = now.saturating_add(self.config.call_timeout);
        let is_left_over = |node: &NodeName| left_over.iter().any(|(left_over, _)| *left_over == node);
        let mut complete: Vec<(&NodeName, &mut Progress)> = self
            .machines
            .iter_mut()
            .filter(|(_, machine)| machine.stage == Stage::Tolerating && machine.complete_since.is_some())
            .collect();
        // Their pods may come now that these are open, and come to them alone as long as they are not.
        if !left_over.is_empty() && complete.iter().any(|(node, _)| !is_left_over(node)) {
            for (_, machine) in complete.extract_if(.., |(node, _)| is_left_over(node)) {
                machine.complete_since = None;
            }
            self.last_progress = now;
        }
        for (node, machine) in complete {
            let opening = if is_left_over(node) { Opening::HeldTooLong } else { Opening::HandedOver };
            machine.open(node, opening, retry_at, commands);
        }
    }

    /// When the machines that have their pods are opened: an opening makes the scheduler try every pod that waits, so
    /// they open together in a pause, or when nobody waits.
    pub(super) fn completes_at(&self) -> Option<Timestamp> {
        let complete = self.machines.values().filter(|machine| machine.stage == Stage::Tolerating);
        let since = complete.filter_map(|machine| machine.complete_since).min()?;
        if self.surroundings.waiting_pods == 0 {
            return Some(since);
        }
        let config = &self.config;
        let in_pause = self.last_progress.saturating_add(config.pause);
        Some(in_pause.min(since.saturating_add(config.max_wait_for_others)))
    }

    pub(super) fn toleration_ended(&mut self, now: Timestamp, pod: &Uid, node: &NodeName, outcome: TolerationOutcome) {
        let most = self.config.patches_per_pod;
        let Some(machine) = self.machines.get_mut(node) else { return };
        if let Some(onlooker) = machine.onlookers.get_mut(pod) {
            onlooker.call = if outcome == TolerationOutcome::Done { Call::Done } else { Call::None };
        }
        let Some(toleration) = machine.tolerations.get_mut(pod) else { return };
        toleration.call = Call::None;
        match outcome {
            TolerationOutcome::Done => {
                toleration.call = Call::Done;
                self.last_progress = now;
            }
            TolerationOutcome::Refused => machine.intolerable = true,
            TolerationOutcome::Failed => machine.intolerable |= toleration.tries >= most,
        }
    }

    /// When pods that may enter their machines are given up.
    pub(super) fn tolerating_ends(&self) -> Timestamp {
        self.last_progress.saturating_add(self.config.max_wait_for_tolerating)
    }

    /// When something of a machine's tolerations is next due, if those that have their pods are opened at that time.
    pub(super) fn next_toleration(
        &self,
        machine: &Progress,
        now: Timestamp,
        completes_at: Option<Timestamp>,
    ) -> Timestamp {
        let lost = machine.tolerations.values().filter_map(|toleration| match toleration.call {
            Call::UnderWay { since } => Some(since.saturating_add(self.config.call_timeout)),
            Call::None | Call::Done => None,
        });
        // What is over has been seen to.
        let given_up = Some(self.tolerating_ends()).filter(|end| *end > now);
        let complete = completes_at.filter(|_| machine.complete_since.is_some());
        let deferral_ends = Some(deferral_ends(&self.config, machine, self.last_progress)).filter(|end| *end > now);
        lost.chain(given_up).chain(complete).chain(deferral_ends).min().unwrap_or_else(|| self.hold_ends(machine))
    }
}

/// Until when pods wait for those that have to be bound before them: then there is still time to let them in.
fn deferral_ends(config: &Config, machine: &Progress, last_progress: Timestamp) -> Timestamp {
    machine.hold_ends(config, last_progress).saturating_sub(config.max_wait_for_tolerating)
}
