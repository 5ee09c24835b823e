//! How many more machines budgets let go.

use super::CouldGo;

/// By NodePool of a question, how many more of its machines may go; `None` if nothing limits them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left(Vec<Option<u32>>);

impl FromIterator<Option<u32>> for Left {
    fn from_iter<I: IntoIterator<Item = Option<u32>>>(left: I) -> Self {
        Self(left.into_iter().collect())
    }
}

impl Left {
    /// Takes a machine's part; false if nothing is left.
    pub(crate) fn take(&mut self, machines: &[CouldGo], index: usize) -> bool {
        let Some(machine) = machines.get(index) else { return false };
        match self.0.get_mut(machine.pool) {
            Some(Some(0)) | None => false,
            Some(Some(left)) => {
                *left -= 1;
                true
            }
            Some(None) => true,
        }
    }

    /// Takes the parts of all of a set, or of none.
    pub(crate) fn take_all(&mut self, machines: &[CouldGo], set: &[usize]) -> bool {
        let mut left = self.clone();
        let may_go = set.iter().all(|&index| left.take(machines, index));
        if may_go {
            *self = left;
        }
        may_go
    }

    /// Whether all of a set may go.
    pub(crate) fn lets(&self, machines: &[CouldGo], set: &[usize]) -> bool {
        self.clone().take_all(machines, set)
    }
}
