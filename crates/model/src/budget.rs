//! A limit on the work of one search.
//!
//! Counted in steps, not in time, so that the same input ends in the same answer on any machine.

/// How many steps a search may still take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    remaining: u64,
}

/// A search stopped because its [`Budget`] was spent. That is a verdict of its own: it does *not* mean that nothing
/// fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("search budget spent")]
pub struct OutOfBudget;

impl Budget {
    /// A budget of `steps` steps.
    pub const fn new(steps: u64) -> Self {
        Self { remaining: steps }
    }

    /// Takes `steps` from the budget, or all of it and fails if there are fewer left.
    pub fn spend(&mut self, steps: u64) -> Result<(), OutOfBudget> {
        match self.remaining.checked_sub(steps) {
            Some(remaining) => {
                self.remaining = remaining;
                Ok(())
            }
            None => {
                self.remaining = 0;
                Err(OutOfBudget)
            }
        }
    }

    /// The steps that are left.
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spending_more_than_is_left_leaves_nothing() {
        let mut budget = Budget::new(10);
        assert_eq!(budget.spend(10), Ok(()));
        assert_eq!(budget.spend(0), Ok(()));

        let mut budget = Budget::new(10);
        assert_eq!(budget.spend(11), Err(OutOfBudget));
        assert_eq!(budget.remaining(), 0);
        assert_eq!(budget.spend(1), Err(OutOfBudget));
    }
}
