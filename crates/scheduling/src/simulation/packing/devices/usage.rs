//! The budget of steps for devices in one run, and the results of replays, which the run keeps.

use model::collections::NameMap;

use super::Replaying;
use super::orders::Replay;
use crate::tuning::{KNOWN_REPLAYS, REPLAYS, SEARCH_REPLAYS};

/// What the packings of one run have used of devices' steps together.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceUse {
    /// Steps that are left for the plan.
    steps: u64,
    steps_taken: u64,
    questions: u64,
    /// Allocations that may still be replayed in other orders, while placing and in the search for contended room.
    replays: usize,
    search_replays: usize,
    /// Whether orders of claims hold, which stays true for the whole problem.
    known_replays: NameMap<Replay, bool>,
    /// Whether claims were kept apart because there is an order in which they would not all get their devices.
    pub(crate) kept_apart: bool,
}

impl DeviceUse {
    pub(crate) fn new(steps: u64) -> Self {
        Self { steps, replays: REPLAYS, search_replays: SEARCH_REPLAYS, ..Self::default() }
    }

    /// Refills the budget for another plan of the run.
    pub(crate) fn refill(&mut self, steps: u64) {
        self.steps = steps;
        self.replays = REPLAYS;
        self.search_replays = SEARCH_REPLAYS;
    }

    /// Steps that are left for the plan.
    pub(crate) fn steps_left(&self) -> u64 {
        self.steps
    }

    /// Steps that were taken since the beginning, however often the plan was begun anew; those of replays are not among
    /// them.
    pub(crate) fn steps_taken(&self) -> u64 {
        self.steps_taken
    }

    /// How many questions were put to the engine since the beginning.
    pub(crate) fn questions(&self) -> u64 {
        self.questions
    }

    /// Charges steps of a question.
    pub(super) fn spend(&mut self, steps: u64) {
        self.questions += 1;
        self.steps -= steps;
        self.steps_taken = self.steps_taken.saturating_add(steps);
    }

    /// Charges steps of replays.
    pub(super) fn spend_on_replays(&mut self, steps: u64) {
        self.steps -= steps;
    }

    /// Whether a search for contended room has replays left.
    pub(crate) fn may_search(&self) -> bool {
        self.search_replays > 0
    }

    /// Whether so many more allocations may be replayed.
    pub(crate) fn may_replay(&mut self, count: usize, replaying: Replaying) -> bool {
        let left = match replaying {
            Replaying::Placing => &mut self.replays,
            Replaying::Searching => &mut self.search_replays,
            Replaying::Never => return false,
        };
        let enough = *left >= count;
        *left = left.saturating_sub(count);
        enough
    }

    /// Whether an order holds, if it was replayed before.
    pub(super) fn known(&self, replay: &Replay) -> Option<bool> {
        self.known_replays.get(replay).copied()
    }

    /// Stores whether an order holds, as its replay has shown.
    pub(super) fn learn(&mut self, replay: Replay, holds: bool) {
        if self.known_replays.len() < KNOWN_REPLAYS {
            self.known_replays.insert(replay, holds);
        }
    }
}
