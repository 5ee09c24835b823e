//! What is remembered of a machine, and how far it is.

use std::collections::BTreeMap;

use model::{DurationMs, NodeName, Timestamp, Uid};

use super::tolerate::Toleration;
use super::{Command, Config, Opening};

/// How many times as long as [`Config::max_hold`] a machine is held while planned pods keep coming.
const HOLD_TIMES_IN_PROGRESS: i64 = 5;

/// What is remembered of a machine.
#[derive(Debug)]
pub(super) struct Progress {
    /// Or since when nothing else keeps pods away.
    pub(super) held_since: Timestamp,
    pub(super) usable_since: Option<Timestamp>,
    pub(super) nominations: BTreeMap<Uid, u32>,
    pub(super) tolerations: BTreeMap<Uid, Toleration>,
    /// Those of pods that are not its own.
    pub(super) onlookers: BTreeMap<Uid, Toleration>,
    /// Whether its pods could not be given tolerations.
    pub(super) intolerable: bool,
    /// Since when it has its pods and could be opened.
    pub(super) complete_since: Option<Timestamp>,
    /// Whether it was, when last seen.
    pub(super) guarded: bool,
    /// Whether it was opened for a pod that must enter first, and is to be closed again after that.
    pub(super) close_again: bool,
    pub(super) stage: Stage,
}

impl Progress {
    /// Of a machine that is seen for the first time.
    pub(super) fn new(now: Timestamp, held: bool) -> Self {
        Self {
            held_since: now,
            usable_since: None,
            nominations: BTreeMap::new(),
            tolerations: BTreeMap::new(),
            onlookers: BTreeMap::new(),
            intolerable: false,
            complete_since: None,
            guarded: false,
            close_again: false,
            stage: if held { Stage::Waiting } else { Stage::OpenAlone },
        }
    }

    /// When the machine is opened whatever is missing. `last_progress` is when a planned pod of any machine last got
    /// on: while they do, pods that may enter only wait for their turn, which with thousands of them takes
    /// kube-scheduler minutes.
    pub(super) fn hold_ends(&self, config: &Config, last_progress: Timestamp) -> Timestamp {
        let since = self.usable_since.unwrap_or(self.held_since);
        let ends = since.saturating_add(config.max_hold);
        if self.stage != Stage::Tolerating {
            return ends;
        }
        let at_most = since.saturating_add(DurationMs(config.max_hold.0.saturating_mul(HOLD_TIMES_IN_PROGRESS)));
        ends.max(last_progress.saturating_add(config.patience_after_progress()).min(at_most))
    }

    /// Opens the machine outside any batch.
    pub(super) fn open(&mut self, node: &NodeName, opening: Opening, retry_at: Timestamp, commands: &mut Vec<Command>) {
        self.stage = Stage::OpeningAlone { opening, retry_at };
        commands.push(Command::Open { node: node.clone(), opening });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not opened, and in no batch.
    Waiting,
    /// In the batch under way.
    InBatch,
    /// Its pods get tolerations, or have them and are being bound.
    Tolerating,
    /// Needs no patches, and opens then, together with others that come until then.
    Gathering { until: Timestamp },
    /// Opened without patches; its pods come by themselves.
    Filling,
    /// Being opened outside any batch; if pods still wait then, they get a round of nominations.
    OpeningAlone { opening: Opening, retry_at: Timestamp },
    /// Opened outside any batch.
    OpenAlone,
    /// Nothing more to do.
    Done { since: Timestamp },
}
