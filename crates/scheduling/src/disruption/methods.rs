//! Methods: each takes candidates and budgets and gives commands.

pub(super) mod consolidation;
pub(super) mod drift;
pub(super) mod emptiness;
pub(super) mod static_drift;
pub(super) mod terminate_first;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{Command, Simulated};
use super::reason::NodeReason;
use crate::snapshot::NodeId;

/// What methods have decided.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) commands: Vec<Command>,
    /// Why machines stay that they looked at.
    pub(super) stays: BTreeMap<NodeId, NodeReason>,
    /// What commands with pods that move come from.
    pub(super) simulated: Option<Arc<Simulated>>,
    /// Machines that go whose pods stay in their domains there.
    pub(super) in_domains: BTreeSet<NodeId>,
}

impl Outcome {
    /// What a later method has decided: it says more about a machine than the one before.
    pub(super) fn extend(&mut self, later: Self) {
        self.commands.extend(later.commands);
        self.stays.extend(later.stays);
        self.simulated = later.simulated.or(self.simulated.take());
        self.in_domains.extend(later.in_domains);
    }
}
