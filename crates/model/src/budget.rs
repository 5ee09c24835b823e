//! A limit on the work of one search.
//!
//! Counted in steps, not in time, so that the same input ends in the same answer on any machine. Whoever asks a
//! function that searches gets an [`Answer`], which says whether a budget ended the search before it was through.

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

/// How the searches behind an answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use = "whoever refuses something has to know whether a budget ended the search"]
pub enum SearchEnd {
    /// All of them went through: there is no more than they found.
    #[default]
    Finished,
    /// A budget ended one of them: there may be more than they found.
    OutOfBudget,
}

impl SearchEnd {
    /// The end of a search that a budget ended or did not.
    pub const fn of(is_out_of_budget: bool) -> Self {
        if is_out_of_budget { Self::OutOfBudget } else { Self::Finished }
    }

    /// Takes another search into account.
    pub fn and(&mut self, other: Self) {
        *self = Self::of(self.is_out_of_budget() | other.is_out_of_budget());
    }

    /// Whether a budget ended one of the searches.
    pub const fn is_out_of_budget(self) -> bool {
        matches!(self, Self::OutOfBudget)
    }
}

/// The result of searches, with how they ended. A caller cannot take the result without deciding what a search out of
/// budget means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "whoever refuses something has to know whether a budget ended the search"]
pub struct Answer<T> {
    found: T,
    end: SearchEnd,
}

impl<T> Answer<T> {
    /// What was found by searches that ended so.
    pub const fn new(found: T, end: SearchEnd) -> Self {
        Self { found, end }
    }

    /// What was found by searches that went through.
    pub const fn finished(found: T) -> Self {
        Self::new(found, SearchEnd::Finished)
    }

    /// What was found, for an answer that is made of this one and others: `end` is how the searches of all of them
    /// ended.
    pub fn part_of(self, end: &mut SearchEnd) -> T {
        end.and(self.end);
        self.found
    }

    /// What was found, for a caller who refuses nothing if that is less than there is.
    pub fn so_far(self) -> T {
        self.found
    }

    /// How the searches ended.
    pub const fn end(&self) -> SearchEnd {
        self.end
    }

    /// An answer made of what was found.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Answer<U> {
        Answer::new(make(self.found), self.end)
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

    #[test]
    fn an_answer_made_of_others_is_out_of_budget_if_one_of_them_is() {
        let all = [SearchEnd::Finished, SearchEnd::OutOfBudget];
        for (first, second) in all.into_iter().flat_map(|first| all.map(|second| (first, second))) {
            let mut end = SearchEnd::default();
            let sum =
                Answer::new(1, first).part_of(&mut end) + Answer::new(2, second).map(|it| it + 1).part_of(&mut end);
            assert_eq!(sum, 4);
            assert_eq!(end.is_out_of_budget(), all[1] == first || all[1] == second, "{first:?} {second:?}");
        }
    }
}
