//! How often pods are packed for one plan.
//!
//! Passes and orders plan many times: up to 96 times for group domains, ten for gangs, 18 for preferences, three for
//! colocation, and a dozen orders each. Every one of these bounds is small, and their product is not. So one budget is
//! handed through all of them. It counts fills: one is a packing of all classes in one order, whatever becomes of it.
//!
//! When it is used up, the best plan so far is the answer, and what was not tried is as if it had not come out better.
//! The last fills are kept back for plans that are needed to have an answer at all; these then do with one fill each.
//! It counts and looks at no clock, so equal snapshots still give equal plans.

use crate::simulation::compile::request::Purpose;
use crate::tuning::{KEPT_BACK, MAX_FILLS};

/// The fills that one plan may still take.
#[derive(Debug)]
pub(crate) struct PlanBudget {
    most: u32,
    taken: u32,
}

impl Default for PlanBudget {
    fn default() -> Self {
        Self::new(MAX_FILLS)
    }
}

impl PlanBudget {
    /// At least what is kept back.
    pub(crate) fn new(fills: u32) -> Self {
        Self { most: fills.max(KEPT_BACK), taken: 0 }
    }

    /// Takes a fill. False, and none is taken, if there is none left for the purpose: always true for needed ones.
    pub(crate) fn take(&mut self, purpose: Purpose) -> bool {
        let is_there = purpose == Purpose::Needed || !self.is_short();
        self.taken += u32::from(is_there);
        is_there
    }

    /// Whether only needed plans are made from now on, with one fill each.
    pub(crate) fn is_short(&self) -> bool {
        self.left() <= KEPT_BACK
    }

    /// Whether the next fill is the last one.
    pub(crate) fn is_last(&self) -> bool {
        self.left() <= 1
    }

    /// How many fills were taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    fn left(&self) -> u32 {
        self.most.saturating_sub(self.taken)
    }
}
