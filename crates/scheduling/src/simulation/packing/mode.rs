//! How copies are placed for the moment. A mode is a value that holds while something runs, so that nobody has to put
//! back what it was before.

use model::ValueId;
use smallvec::SmallVec;

use super::Packing;
use super::devices::Replaying;
use crate::simulation::topology::{Checking, DomainId};

/// What is allowed when copies are placed.
#[derive(Debug, Clone)]
pub(crate) struct Mode {
    /// When skews and affinity are checked.
    pub(crate) checking: Checking,
    /// Domains that a class is confined to: (position among its involvements, domain).
    pub(crate) confined: SmallVec<[(usize, DomainId); 2]>,
    /// On which reservations machines that are opened may draw.
    pub(crate) reserving: Reserving,
    /// Of the ways to have devices on new machines, those that kube-scheduler scores lower are left out.
    pub(crate) least_score: u32,
    /// Which budget pays for replaying claims in other orders.
    pub(crate) replaying: Replaying,
}

/// On which reservations new machines may draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserving {
    /// On all with something left.
    All,
    /// On this one.
    Only(ValueId),
    /// On none.
    Nothing,
}

impl Reserving {
    pub(crate) fn includes(self, reservation: ValueId) -> bool {
        match self {
            Self::All => true,
            Self::Only(one) => one == reservation,
            Self::Nothing => false,
        }
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self {
            checking: Checking::Stepwise,
            confined: SmallVec::new(),
            reserving: Reserving::All,
            least_score: 0,
            replaying: Replaying::Placing,
        }
    }
}

impl Packing<'_> {
    /// The mode that holds now.
    pub(crate) fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The packing in another mode from the start.
    pub(crate) fn in_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Runs something in a mode; afterwards the one before holds again.
    pub(crate) fn with<R>(&mut self, mode: Mode, run: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.mode, mode);
        let result = run(self);
        self.mode = before;
        result
    }

    /// Runs something while rules are checked at that time.
    pub(crate) fn checking<R>(&mut self, checking: Checking, run: impl FnOnce(&mut Self) -> R) -> R {
        self.with(Mode { checking, ..self.mode.clone() }, run)
    }
}
