//! Who decides which machines go.
//!
//! Both sides get the same from the world around them: machines launched before others go, pods that are nominated to
//! where the command has a place for them, fifteen seconds between asking for a command and beginning with it.

mod karpenter;
mod ours;

use anyhow::Result;
use model::{DurationMs, Timestamp};
use scheduling::snapshot::DisruptionOptions;

use self::karpenter::Karpenter;
use self::ours::Ours;
use crate::market::Wanted;
use crate::world::{MachineKey, PodKey, World};

/// How long a command is only proposed.
const PROPOSED_FOR: DurationMs = DurationMs::from_seconds(15);

/// Whose rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `plan_disruption` with these options.
    Ours(DisruptionOptions),
    /// Karpenter's.
    Karpenter,
}

/// Machines that go, and what takes their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The machines that go, in order.
    pub going: Vec<MachineKey>,
    /// Machines that are launched before.
    pub launches: Vec<Wanted>,
    /// Where pods of those that go are to run.
    pub moves: Vec<(PodKey, Destination)>,
    /// What the evictions cost, in nano-dollars.
    pub evictions_nano_usd: i128,
}

/// Where a pod is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// On a machine that is there.
    Machine(MachineKey),
    /// On a machine that is launched, by its position.
    Launched(usize),
}

/// What came of looking.
#[derive(Debug, Default)]
pub struct Look {
    /// What begins now.
    pub due: Vec<Decision>,
    /// When to look again in any case.
    pub again: Option<Timestamp>,
    /// Whether something is proposed that has not begun.
    pub is_proposing: bool,
}

/// A side, with what it remembers.
#[derive(Debug)]
pub enum Rules {
    /// Ours.
    Ours(Ours),
    /// Karpenter's.
    Karpenter(Karpenter),
}

impl Rules {
    /// Those of a side.
    pub fn new(side: Side) -> Self {
        match side {
            Side::Ours(_) => Self::Ours(Ours::default()),
            Side::Karpenter => Self::Karpenter(Karpenter::default()),
        }
    }

    /// Decides what begins now.
    ///
    /// # Errors
    /// A plan that does not fit the world.
    pub fn look(&mut self, world: &mut World, now: Timestamp) -> Result<Look> {
        match self {
            Self::Ours(ours) => ours.look(world, now),
            Self::Karpenter(karpenter) => karpenter.look(world, now),
        }
    }
}
