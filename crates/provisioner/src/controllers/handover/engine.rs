//! The order of steps in a hand-over, as a state machine: observations go in, commands come out, time is a parameter.
//!
//! A new machine keeps the taint `dovetail.sh/held` until its pods are bound. There are two ways to get them there.
//!
//! **By tolerations** ([`Config::tolerate`]): as soon as the held taint is the only one that keeps pods away from a
//! machine, each of its planned pods gets a toleration of this machine's taint. No other pod can be bound there, and
//! these pods fit nowhere else, so the plan is carried out exactly. Pods that other pods count in their spread may get
//! their toleration later, since not every spread can be reached in every order. Once the pods are bound, and no pod
//! that waits for another machine would fit into the remaining room, the taint is removed. Planned pods that are not
//! bound yet are nominated to their open machine just before ([`reminders`]). The taint stays until there is a pause in
//! the binding of planned pods, or for [`Config::max_wait_for_others`], because every opening makes kube-scheduler try
//! all pending pods. If a machine's pods may not be patched (admission policies, missing permissions), the machine uses
//! the other way.
//!
//! A machine to which pods of a disruption command move is closed in the same way while they do, although it is in use:
//! its pods are the successors, and come one by one.
//!
//! A machine that gets its planned pods in every order of binding opens at once, and none of its pods is patched
//! ([`unpatched`]).
//!
//! **By nominations**: kube-scheduler tries the nominated node first. Machines that nothing else keeps pods away from
//! are taken in batches, one batch at a time, and a batch goes through these phases:
//!
//! 1. quiet: no taint of any node has changed and no nomination was cleared for a while, because either makes
//!    kube-scheduler try every waiting pod again, and an attempt that fails clears the pod's nomination; and no machine
//!    of the same plan is just about to appear, because that changes taints;
//! 2. nominate: the planned pods that still wait, each with one patch, and wait until the watch shows them;
//! 3. settle, then check: nominations that were lost are given once more. Not after another quiet time: measured, the
//!    others are lost meanwhile;
//! 4. open: our taint is taken off all machines of the batch;
//! 5. bind: the next batch starts when these pods are bound, or after a while.
//!
//! Invariants, whatever comes in: a machine that is seen again and again is opened, at the latest [`Config::max_hold`]
//! after it was first held plus as long after it became usable (five times as long while planned pods keep coming), not
//! counting the time in which other taints keep its pods away as well; no pod gets more than
//! [`Config::patches_per_pod`] nominations to one machine, nor more than that many tries of a toleration; a pod that
//! somebody else nominated is left alone; of pods that keep each other out while they are nominated, one at a time is;
//! at most one batch is under way; a nomination that was cleared is never answered before the settling time is over.
//!
//! How long is quiet depends on how many pods wait, because kube-scheduler tries them one after the other.
//!
//! The machines of a batch open in the same moment. One by one, the first to open would take pods of the others into
//! whatever room the plan left on it, nominated or not: a nomination to a machine that is still closed does not keep a
//! pod from going elsewhere. All at once, nominating would take so long that the first nominations are lost before the
//! last is given. So a batch is bounded by its pods.
//!
//! A machine that had to be opened early, because a DaemonSet's pod must run there first, is closed again as soon as
//! that pod is there; if it becomes usable before that, its pods get one round of nominations.
//!
//! `reference` for the figures: KEP-5278, and measurements described in `docs/rfcs/0004-hand-over.md`.

use std::collections::{BTreeMap, BTreeSet};

use model::{DurationMs, NamespacedName, NodeName, Timestamp, Uid};

pub(crate) use interface::{
    Attracts, Command, Config, Event, Machine, Opening, PlannedPod, PodState, Surroundings, TolerationOutcome, View,
};
use progress::{Progress, Stage};
use reminders::Reminders;

/// Between these, a scheduler's time for one pod is believed.
const FASTEST_ATTEMPT_US: i64 = 1_000;
const SLOWEST_ATTEMPT_US: i64 = 20_000;
/// With fewer pods, other delays outweigh the scheduler's.
const FEWEST_TO_LEARN_FROM: i64 = 20;

/// The state machine. See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
    config: Config,
    /// When the scheduler was last given a reason to try pods again.
    last_disturbance: Timestamp,
    /// When the last batch was over.
    idle_since: Timestamp,
    /// When a pod last got a toleration or stopped waiting.
    last_progress: Timestamp,
    /// How many planned pods of the machines in view waited then.
    waiting: usize,
    surroundings: Surroundings,
    /// How long the scheduler takes for a pod, as far as it could be seen, in microseconds.
    attempt_us: i64,
    machines: BTreeMap<NodeName, Progress>,
    reminders: Reminders,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Nominating {
        batch: Vec<NodeName>,
        unanswered: BTreeSet<Uid>,
        unseen: BTreeSet<Uid>,
        /// When the calls were started, or the last of them ended.
        since: Timestamp,
        /// Whether this is the second time for this batch.
        again: bool,
    },
    Settling {
        batch: Vec<NodeName>,
        until: Timestamp,
        again: bool,
    },
    Opening {
        batch: Vec<NodeName>,
        unanswered: BTreeSet<NodeName>,
        since: Timestamp,
    },
    Binding {
        batch: Vec<NodeName>,
        since: Timestamp,
        waiting_pods: usize,
    },
}

impl Engine {
    /// An engine that has seen nothing yet.
    pub(crate) fn new(config: Config, now: Timestamp) -> Self {
        Self {
            attempt_us: config.quiet_per_pod.0.saturating_mul(1000),
            config,
            last_disturbance: now,
            idle_since: now,
            last_progress: now,
            waiting: 0,
            surroundings: Surroundings::default(),
            machines: BTreeMap::new(),
            reminders: Reminders::default(),
            phase: Phase::Idle,
        }
    }

    /// Whether the engine still wants to see that node although it no longer carries our taint.
    #[cfg(test)]
    fn follows(&self, node: &str) -> bool {
        self.machines.get(node).is_some_and(|machine| !matches!(machine.stage, Stage::Done { .. }))
    }

    /// The nodes that the engine still wants to see although they may no longer carry our taint.
    pub(crate) fn followed(&self) -> impl Iterator<Item = &NodeName> {
        self.machines.iter().filter(|(_, machine)| !matches!(machine.stage, Stage::Done { .. })).map(|(node, _)| node)
    }

    /// Whether nominations are under way.
    pub(crate) fn is_nominating(&self) -> bool {
        !matches!(self.phase, Phase::Idle) || self.reminders.under_way_until(&self.config).is_some()
    }

    /// The phase, for logs.
    pub(crate) fn phase(&self) -> &'static str {
        match &self.phase {
            Phase::Idle => "idle",
            Phase::Nominating { .. } => "nominating",
            Phase::Settling { .. } => "settling",
            Phase::Opening { .. } => "opening",
            Phase::Binding { .. } => "binding",
        }
    }

    /// Takes in what happened and what is, and says what to do now.
    pub(crate) fn step(
        &mut self,
        now: Timestamp,
        view: &View,
        surroundings: Surroundings,
        events: &[Event],
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        self.surroundings = surroundings;
        self.take_in(now, events);
        self.observe(now, view);
        self.close_again(view, &mut commands);
        self.open_unpatched(now, view, &mut commands);
        self.open_alone(now, view, &mut commands);
        self.tolerate(now, view, &mut commands);
        // Each transition moves the phase forward, and a batch of nothing to wait for ends in `Idle` with fewer
        // machines that wait; so this ends.
        while self.advance(now, view, &mut commands) {}
        commands
    }

    /// When to step again at the latest, even if nothing happens.
    pub(crate) fn next_step(&self, now: Timestamp) -> Option<Timestamp> {
        let config = &self.config;
        let phase = match &self.phase {
            Phase::Idle => self.machines.values().filter_map(|machine| self.ready_at(machine, now)).min(),
            Phase::Nominating { unanswered, since, .. } if unanswered.is_empty() => {
                Some(since.saturating_add(config.max_wait_for_watch))
            }
            Phase::Nominating { since, .. } | Phase::Opening { since, .. } => {
                Some(since.saturating_add(config.call_timeout))
            }
            Phase::Settling { until, .. } => Some(*until),
            Phase::Binding { since, .. } => Some(since.saturating_add(config.max_wait_for_binding)),
        };
        let completes_at = self.reminders.under_way_until(config).or_else(|| self.completes_at());
        let hold_ends = self.machines.values().filter_map(|machine| match machine.stage {
            // Of one whose pods turned out not to get tolerations, the longer time may have been over before.
            Stage::Waiting => Some(self.hold_ends(machine).max(now)),
            Stage::Tolerating => Some(self.next_toleration(machine, now, completes_at).min(self.hold_ends(machine))),
            Stage::Gathering { until } => Some(until),
            Stage::Filling => Some(self.tolerating_ends()),
            Stage::OpeningAlone { retry_at, .. } => Some(retry_at),
            Stage::InBatch | Stage::OpenAlone | Stage::Done { .. } => None,
        });
        phase.into_iter().chain(hold_ends).min()
    }

    fn take_in(&mut self, now: Timestamp, events: &[Event]) {
        for event in events {
            match event {
                Event::TaintChanged | Event::NominationCleared => self.last_disturbance = now,
                Event::NominationEnded { pod, accepted } => {
                    if !accepted {
                        self.reminders.refused(pod);
                    }
                    if let Phase::Nominating { unanswered, unseen, since, .. } = &mut self.phase {
                        if unanswered.remove(pod) && unanswered.is_empty() {
                            *since = now;
                        }
                        if !accepted {
                            unseen.remove(pod);
                        }
                    }
                }
                Event::TolerationEnded { pod, node, outcome } => self.toleration_ended(now, pod, node, *outcome),
                // The watch shows the taint if it is there, and the machine is held anew.
                Event::ClosingEnded => self.last_disturbance = now,
                Event::OpeningEnded { node, opened } => self.opening_ended(now, node, *opened),
            }
        }
    }

    fn opening_ended(&mut self, now: Timestamp, node: &NodeName, opened: bool) {
        self.last_disturbance = now;
        let Some(machine) = self.machines.get_mut(node) else { return };
        if let Stage::OpeningAlone { opening, .. } = machine.stage {
            let retry_at = now.saturating_add(self.config.max_wait_for_binding);
            machine.stage = match opened {
                true if opening == Opening::Unpatched => Stage::Filling,
                true => Stage::OpenAlone,
                false => Stage::OpeningAlone { opening, retry_at },
            };
            if machine.stage == Stage::Filling {
                self.last_progress = now;
            }
            return;
        }
        if let Phase::Opening { unanswered, .. } = &mut self.phase
            && unanswered.remove(node)
            && !opened
        {
            machine.stage = Stage::Waiting;
        }
    }

    fn observe(&mut self, now: Timestamp, view: &View) {
        self.machines.retain(|node, _| view.contains_key(node));
        let waiting = view.values().flat_map(|machine| &machine.pods).filter(|pod| pod.is_waiting()).count();
        if waiting < self.waiting {
            self.last_progress = now;
        }
        self.waiting = waiting;
        let is_filling_over = now >= self.tolerating_ends();
        for (node, seen) in view {
            if seen.waits_for_successors && !self.machines.contains_key(node) {
                // The first of its pods are about to be evicted.
                self.last_progress = now;
            }
            let machine = self.machines.entry(node.clone()).or_insert_with(|| Progress::new(now, seen.held));
            if machine.guarded || seen.guarded {
                machine.held_since = now;
            }
            machine.guarded = seen.guarded;
            machine.usable_since = seen.usable.then(|| machine.usable_since.unwrap_or(now));
            match machine.stage {
                // Somebody put the taint back: hold anew.
                Stage::OpenAlone | Stage::Filling if seen.held => machine.stage = Stage::Waiting,
                Stage::Done { since } if seen.held && now >= since.saturating_add(self.config.call_timeout) => {
                    machine.stage = Stage::Waiting;
                }
                Stage::OpenAlone | Stage::Filling if !seen.pods.iter().any(PlannedPod::is_waiting) => {
                    machine.stage = Stage::Done { since: now };
                }
                // Those that wait still are nominated.
                Stage::Filling if is_filling_over => machine.stage = Stage::OpenAlone,
                Stage::Tolerating if !seen.held => machine.stage = Stage::OpenAlone,
                Stage::Waiting
                | Stage::InBatch
                | Stage::Tolerating
                | Stage::Gathering { .. }
                | Stage::Filling
                | Stage::OpeningAlone { .. }
                | Stage::OpenAlone
                | Stage::Done { .. } => {}
            }
        }
    }

    /// Closes machines that were opened for a pod that has come in.
    fn close_again(&mut self, view: &View, commands: &mut Vec<Command>) {
        for (node, machine) in &mut self.machines {
            let guarded = view.get(node).is_some_and(|seen| seen.guarded && !seen.held);
            if guarded && machine.stage == Stage::OpenAlone && std::mem::take(&mut machine.close_again) {
                commands.push(Command::Close { node: node.clone() });
            }
        }
    }

    fn hold_ends(&self, machine: &Progress) -> Timestamp {
        machine.hold_ends(&self.config, self.last_progress)
    }

    /// Opens machines that cannot wait any longer.
    fn open_alone(&mut self, now: Timestamp, view: &View, commands: &mut Vec<Command>) {
        let due: Vec<(NodeName, Opening)> = self
            .machines
            .iter()
            .filter_map(|(node, machine)| {
                let seen = view.get(node).filter(|seen| seen.held)?;
                let opening = match machine.stage {
                    Stage::OpeningAlone { opening, retry_at } => (now >= retry_at).then_some(opening),
                    Stage::Waiting | Stage::Tolerating | Stage::Gathering { .. } if seen.needs_entry => {
                        Some(Opening::EntryNeeded)
                    }
                    Stage::Waiting | Stage::Tolerating | Stage::Gathering { .. } => {
                        (now >= self.hold_ends(machine)).then_some(Opening::HeldTooLong)
                    }
                    Stage::InBatch | Stage::OpenAlone | Stage::Filling | Stage::Done { .. } => None,
                };
                opening.map(|opening| (node.clone(), opening))
            })
            .collect();
        for (node, opening) in due {
            let retry_at = now.saturating_add(self.config.call_timeout);
            if let Some(machine) = self.machines.get_mut(&node) {
                machine.close_again |= opening == Opening::EntryNeeded;
                machine.open(&node, opening, retry_at, commands);
            }
        }
    }

    /// When a machine that waits for its turn may have it, if nothing happens until then.
    fn ready_at(&self, machine: &Progress, now: Timestamp) -> Option<Timestamp> {
        let since = machine.usable_since.filter(|_| matches!(machine.stage, Stage::Waiting | Stage::OpenAlone))?;
        let gathered = self.machines.values().filter_map(|other| self.comes_until(other, now));
        let all = gathered.chain(self.surroundings.expected_until).fold(self.quiet_at(), Timestamp::max);
        Some(all.min(self.patience_ends(since)).max(now))
    }

    /// Until when others wait for a machine that is held and not usable yet: its taints are about to change.
    fn comes_until(&self, machine: &Progress, now: Timestamp) -> Option<Timestamp> {
        let until = machine.held_since.saturating_add(self.config.gather);
        (machine.stage == Stage::Waiting && machine.usable_since.is_none() && now < until).then_some(until)
    }

    /// How long the scheduler is busy after a disturbance.
    fn quiet(&self) -> DurationMs {
        let waiting = i64::try_from(self.surroundings.waiting_pods).unwrap_or(i64::MAX);
        DurationMs(self.config.quiet.0.saturating_add(self.attempt_us.saturating_mul(waiting) / 1000))
    }

    /// The opening woke all pods that waited; the batch's were bound, or not yet, after that time. The scheduler may
    /// have been done sooner, so this errs on the slow side.
    fn learn(&mut self, took: DurationMs, waiting_pods: usize) {
        let Some(waiting) = i64::try_from(waiting_pods).ok().filter(|waiting| *waiting >= FEWEST_TO_LEARN_FROM) else {
            return;
        };
        let seen = took.0.saturating_mul(1000) / waiting;
        self.attempt_us = ((3 * self.attempt_us + seen) / 4).clamp(FASTEST_ATTEMPT_US, SLOWEST_ATTEMPT_US);
    }

    /// When it is quiet, if nothing happens until then.
    fn quiet_at(&self) -> Timestamp {
        self.last_disturbance.saturating_add(self.quiet())
    }

    /// When a machine that is usable since then no longer waits for quiet. The opening of the batch before it is a
    /// disturbance too, so the wait starts anew after each.
    fn patience_ends(&self, usable_since: Timestamp) -> Timestamp {
        usable_since.max(self.idle_since).saturating_add(self.config.max_wait_for_quiet)
    }

    /// One transition. Says whether there may be another one.
    fn advance(&mut self, now: Timestamp, view: &View, commands: &mut Vec<Command>) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => self.start_batch(now, view, commands),
            Phase::Nominating { batch, unanswered, mut unseen, since, again } => {
                unseen.retain(|pod| state_of(view, &batch, pod).is_some_and(|state| state == PodState::Waiting));
                let lost = now >= since.saturating_add(self.config.call_timeout);
                let late = unanswered.is_empty() && now >= since.saturating_add(self.config.max_wait_for_watch);
                if (unanswered.is_empty() && unseen.is_empty()) || lost || late {
                    // The second time there is nothing to check.
                    let settle = if again { DurationMs::ZERO } else { self.config.settle };
                    self.phase = Phase::Settling { batch, until: now.saturating_add(settle), again };
                    return true;
                }
                self.phase = Phase::Nominating { batch, unanswered, unseen, since, again };
                false
            }
            Phase::Settling { batch, until, again } => {
                if now < until {
                    self.phase = Phase::Settling { batch, until, again };
                    return false;
                }
                if again || !self.nominate(&batch, now, view, true, commands) {
                    self.open(batch, now, view, commands);
                }
                true
            }
            Phase::Opening { batch, mut unanswered, since } => {
                unanswered.retain(|node| view.get(node).is_some_and(|machine| machine.held));
                if !unanswered.is_empty() && now < since.saturating_add(self.config.call_timeout) {
                    self.phase = Phase::Opening { batch, unanswered, since };
                    return false;
                }
                for node in &unanswered {
                    self.set_stage(node, Stage::Waiting);
                }
                self.phase = Phase::Binding { batch, since: now, waiting_pods: self.surroundings.waiting_pods };
                true
            }
            Phase::Binding { batch, since, waiting_pods } => {
                let machines = batch.iter().filter_map(|node| view.get(node));
                let waiting = machines.flat_map(|machine| &machine.pods).any(PlannedPod::is_waiting);
                if waiting && now < since.saturating_add(self.config.max_wait_for_binding) {
                    self.phase = Phase::Binding { batch, since, waiting_pods };
                    return false;
                }
                for node in &batch {
                    if self.machines.get(node).is_some_and(|machine| machine.stage == Stage::InBatch) {
                        self.set_stage(node, Stage::Done { since: now });
                    }
                }
                self.learn(now.since(since), waiting_pods);
                self.idle_since = now;
                true
            }
        }
    }

    /// Starts on the next batch, if there is one and its time has come.
    fn start_batch(&mut self, now: Timestamp, view: &View, commands: &mut Vec<Command>) -> bool {
        let mut ready: Vec<(Timestamp, &NodeName, &Machine)> = self
            .machines
            .iter()
            .filter(|(_, machine)| matches!(machine.stage, Stage::Waiting | Stage::OpenAlone))
            .filter_map(|(node, machine)| Some((machine.usable_since?, node, view.get(node)?)))
            .collect();
        ready.sort_by_key(|(since, node, _)| (*since, (*node).clone()));
        let Some((_, first_node, first)) = ready.first() else { return false };
        let ready_at = self.machines.get(*first_node).and_then(|machine| self.ready_at(machine, now));
        if ready_at.is_none_or(|ready_at| now < ready_at) {
            return false;
        }
        let most = self.config.batch_machines.max(1);
        let mut batch: Vec<NodeName> = Vec::new();
        let mut pods = 0;
        if first.nominate {
            for (_, node, machine) in ready.iter().filter(|(_, _, machine)| machine.nominate) {
                pods += machine.pods.len();
                if batch.len() == most || (!batch.is_empty() && pods > self.config.batch_pods) {
                    break;
                }
                batch.push((*node).clone());
            }
        } else {
            batch.extend(ready.first().map(|(_, node, _)| (*node).clone()));
        }
        for node in &batch {
            self.set_stage(node, Stage::InBatch);
        }
        if !self.nominate(&batch, now, view, false, commands) {
            self.open(batch, now, view, commands);
        }
        true
    }

    /// The pods of a batch that wait without nomination, and may get one more.
    fn lost<'a>(
        &'a self,
        batch: &'a [NodeName],
        view: &'a View,
    ) -> impl Iterator<Item = (&'a NodeName, &'a PlannedPod)> {
        let seen = batch.iter().filter_map(|node| Some((node, view.get(node)?, self.machines.get(node)?)));
        seen.filter(|(_, seen, _)| seen.nominate).flat_map(|(node, seen, machine)| {
            let waiting = seen.pods.iter().filter(|pod| pod.state == PodState::Waiting);
            let allowed = waiting.filter(|pod| {
                machine.nominations.get(&pod.uid).copied().unwrap_or_default() < self.config.patches_per_pod
            });
            allowed.map(move |pod| (node, pod))
        })
    }

    /// Nominates what waits in the batch. Says whether anything does.
    fn nominate(
        &mut self,
        batch: &[NodeName],
        now: Timestamp,
        view: &View,
        again: bool,
        commands: &mut Vec<Command>,
    ) -> bool {
        let machines = batch.iter().filter_map(|node| Some((node, view.get(node)?)));
        let mut crowding =
            Crowding::of(machines.flat_map(|(node, machine)| machine.pods.iter().map(move |pod| (node, pod))));
        let due = self.lost(batch, view).filter(|(node, pod)| crowding.admits(node, pod));
        let due: Vec<(NodeName, Uid, NamespacedName)> =
            due.map(|(node, pod)| (node.clone(), pod.uid.clone(), pod.name.clone())).collect();
        let mut asked = BTreeSet::new();
        for (node, uid, pod) in due {
            if let Some(machine) = self.machines.get_mut(&node) {
                *machine.nominations.entry(uid.clone()).or_default() += 1;
            }
            asked.insert(uid.clone());
            commands.push(Command::Nominate { uid, pod, node });
        }
        if asked.is_empty() {
            return false;
        }
        self.phase =
            Phase::Nominating { batch: batch.to_vec(), unanswered: asked.clone(), unseen: asked, since: now, again };
        true
    }

    fn open(&mut self, batch: Vec<NodeName>, now: Timestamp, view: &View, commands: &mut Vec<Command>) {
        let held: BTreeSet<NodeName> =
            batch.iter().filter(|node| view.get(*node).is_some_and(|machine| machine.held)).cloned().collect();
        commands.extend(held.iter().map(|node| Command::Open { node: node.clone(), opening: Opening::HandedOver }));
        self.phase = Phase::Opening { batch, unanswered: held, since: now };
    }

    fn set_stage(&mut self, node: &NodeName, stage: Stage) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.stage = stage;
        }
    }
}

/// The machines to which a pod is nominated that keeps others like it out for as long.
#[derive(Debug, Default)]
struct Crowding(BTreeSet<NodeName>);

impl Crowding {
    fn of<'a>(pods: impl Iterator<Item = (&'a NodeName, &'a PlannedPod)>) -> Self {
        let crowded = pods.filter(|(_, pod)| pod.crowds_out_alike && pod.state == PodState::Nominated);
        Self(crowded.map(|(node, _)| node.clone()).collect())
    }

    /// Whether the pod may be nominated to the machine; it is taken to be, then.
    fn admits(&mut self, node: &NodeName, pod: &PlannedPod) -> bool {
        !pod.crowds_out_alike || self.0.insert(node.clone())
    }
}

fn state_of(view: &View, batch: &[NodeName], pod: &Uid) -> Option<PodState> {
    let machines = batch.iter().filter_map(|node| view.get(node));
    machines.flat_map(|machine| &machine.pods).find(|planned| planned.uid == *pod).map(|planned| planned.state)
}

mod interface;
mod progress;
mod reminders;
#[cfg(test)]
mod tests;
mod tolerate;
mod unpatched;
