//! Machines: what is so, and what EC2 says.

use model::{DurationMs, Timestamp};

use crate::node_class::spec::Tags;
use crate::service::ec2::{Machine, MachineState, PlannedEvent};

/// How long a machine takes to run.
const BOOT: DurationMs = DurationMs::from_seconds(20);
/// How long it takes to end.
const SHUTDOWN: DurationMs = DurationMs::from_seconds(30);
/// How long one that has ended is still told of.
const REMEMBERED: DurationMs = DurationMs::from_seconds(3600);

/// A machine, as it is and as it is told of.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// What does not change. Its state and tags are those of the launch.
    machine: Machine,
    /// What it is told when it boots, encoded.
    pub(super) user_data: String,
    /// From when on it is told of.
    shown_from: Timestamp,
    /// Its states, and from when on each is so; in order.
    states: Vec<(Timestamp, MachineState)>,
    /// How long after a change of state that is told.
    state_lag: DurationMs,
    /// Its tags, and from when on each set is told of; in order.
    tags: Vec<(Timestamp, Tags)>,
    /// Since when its own checks have failed.
    pub(super) impaired_since: Option<Timestamp>,
    /// Since when those of its host have failed.
    pub(super) host_impaired_since: Option<Timestamp>,
    /// Events that are planned for it.
    pub(super) events: Vec<PlannedEvent>,
}

/// How late a machine's launch, states and tags are told of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lags {
    pub(super) launch: DurationMs,
    pub(super) state: DurationMs,
    pub(super) tags: DurationMs,
}

impl Record {
    pub(super) fn launched(machine: Machine, user_data: String, lags: Lags) -> Self {
        let at = machine.launched_at;
        Self {
            shown_from: at.saturating_add(lags.launch),
            states: vec![(at, MachineState::Pending), (at.saturating_add(BOOT), MachineState::Running)],
            state_lag: lags.state,
            tags: vec![(at.saturating_add(lags.tags), machine.tags.clone())],
            machine,
            user_data,
            impaired_since: None,
            host_impaired_since: None,
            events: Vec::new(),
        }
    }

    /// What it does at that time.
    pub(super) fn state(&self, now: Timestamp) -> MachineState {
        let states = self.states.iter().rev();
        states.clone().find(|(from, _)| *from <= now).map_or(MachineState::Pending, |(_, state)| *state)
    }

    /// Whether it costs money.
    pub(super) fn is_alive(&self, now: Timestamp) -> bool {
        match self.state(now) {
            MachineState::Pending | MachineState::Running | MachineState::Stopping | MachineState::Stopped => true,
            MachineState::ShuttingDown | MachineState::Terminated => false,
        }
    }

    /// What EC2 says of it; none if nothing, because it does not yet, or not any more.
    pub(super) fn told(&self, now: Timestamp) -> Option<Machine> {
        let told_at = now.saturating_sub(self.state_lag);
        let ended = self.states.iter().find(|(_, state)| *state == MachineState::Terminated);
        let is_forgotten = ended.is_some_and(|(at, _)| now.since(*at) > REMEMBERED);
        if now < self.shown_from || is_forgotten {
            return None;
        }
        let tags = self.tags.iter().rev().find(|(from, _)| *from <= now);
        Some(Machine {
            state: self.state(told_at),
            tags: tags.map(|(_, tags)| tags.clone()).unwrap_or_default(),
            ..self.machine.clone()
        })
    }

    /// The machine as it is.
    pub(super) fn truth(&self, now: Timestamp) -> Machine {
        let tags = self.tags.last().map(|(_, tags)| tags.clone()).unwrap_or_default();
        Machine { state: self.state(now), tags, ..self.machine.clone() }
    }

    /// Begins to end at that time, unless it has ended or ends before.
    pub(super) fn terminate_at(&mut self, at: Timestamp) {
        if self.is_alive(at) {
            self.states.retain(|(from, _)| *from <= at);
            self.states.push((at, MachineState::ShuttingDown));
            self.states.push((at.saturating_add(SHUTDOWN), MachineState::Terminated));
        }
    }

    /// Is in that reservation no more, if it was.
    pub(super) fn leave_reservation(&mut self, id: &str) {
        self.machine.capacity_reservation_id.take_if(|reservation| reservation == id);
    }

    pub(super) fn add_tags(&mut self, tags: &Tags, lag: DurationMs, now: Timestamp) {
        let mut all = self.tags.last().map(|(_, tags)| tags.clone()).unwrap_or_default();
        all.extend(tags.clone());
        let last = self.tags.last().map_or(now, |(from, _)| *from);
        self.tags.push((last.max(now.saturating_add(lag)), all));
    }

    /// What it is launched from.
    pub(super) fn facts(&self) -> &Machine {
        &self.machine
    }
}
