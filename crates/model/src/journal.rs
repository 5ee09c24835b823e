//! What takes changes back, so that a search can return to where it was.
//!
//! The owner of a state pushes the undo of each change. A search sets a mark, tries something, and then either keeps it
//! ([`Journal::close`]) or pops what was pushed since ([`Journal::pop_since`]) and closes the mark after that. Marks
//! nest: the one set last is closed first.

/// Undo entries of one state, the latest last. Without an open mark nothing can be taken back, so nothing is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal<U> {
    entries: Vec<U>,
    open_marks: usize,
}

/// A position in a [`Journal`]. It has to be closed, by the journal that gave it.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Mark(usize);

impl<U> Default for Journal<U> {
    fn default() -> Self {
        Self { entries: Vec::new(), open_marks: 0 }
    }
}

impl<U> Journal<U> {
    /// Begins a part that may be taken back.
    pub fn mark(&mut self) -> Mark {
        self.open_marks += 1;
        Mark(self.entries.len())
    }

    /// Whether a mark is open, so that changes have to be recorded.
    pub fn is_recording(&self) -> bool {
        self.open_marks > 0
    }

    /// Records what undoes a change. It is not made unless a mark is open.
    pub fn push(&mut self, undo: impl FnOnce() -> U) {
        if self.is_recording() {
            self.entries.push(undo());
        }
    }

    /// Entries since the mark, the latest last.
    pub fn since(&self, mark: &Mark) -> &[U] {
        self.entries.get(mark.0..).unwrap_or_default()
    }

    /// Takes out the latest entry since the mark, for the owner to apply; `None` once all of them are undone.
    pub fn pop_since(&mut self, mark: &Mark) -> Option<U> {
        if self.entries.len() > mark.0 { self.entries.pop() } else { None }
    }

    /// Ends the part that began at the mark. What is left of it stays, and can be undone by an outer mark alone.
    pub fn close(&mut self, mark: Mark) {
        debug_assert!(self.open_marks > 0 && mark.0 <= self.entries.len(), "marks are closed once, the last one first");
        self.open_marks = self.open_marks.saturating_sub(1);
        if self.open_marks == 0 {
            self.entries.clear();
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number with a journal of what it was.
    #[derive(Default)]
    struct Number {
        value: u32,
        journal: Journal<u32>,
    }

    impl Number {
        fn set(&mut self, value: u32) {
            let before = std::mem::replace(&mut self.value, value);
            self.journal.push(|| before);
        }

        fn rollback(&mut self, mark: Mark) {
            while let Some(before) = self.journal.pop_since(&mark) {
                self.value = before;
            }
            self.journal.close(mark);
        }
    }

    #[test]
    fn a_rollback_undoes_what_an_inner_mark_kept() {
        let mut number = Number::default();
        number.set(1);
        let outer = number.journal.mark();
        number.set(2);
        let kept = number.journal.mark();
        number.set(3);
        assert_eq!(number.journal.since(&kept), [2]);
        number.journal.close(kept);
        assert_eq!(number.journal.since(&outer), [1, 2]);
        number.rollback(outer);
        assert_eq!(number.value, 1);
        assert!(number.journal.is_empty() && !number.journal.is_recording());
    }

    #[test]
    fn a_rollback_goes_back_to_its_own_mark_and_no_further() {
        let mut number = Number::default();
        let outer = number.journal.mark();
        number.set(1);
        let inner = number.journal.mark();
        number.set(2);
        number.set(3);
        number.rollback(inner);
        assert_eq!((number.value, number.journal.len()), (1, 1));
        number.rollback(outer);
        assert_eq!(number.value, 0);
    }

    #[test]
    fn nothing_is_recorded_without_a_mark_or_kept_after_the_last() {
        let mut journal = Journal::default();
        journal.push(|| -> u32 { unreachable!("it is not made") });
        assert!(journal.is_empty());
        let mark = journal.mark();
        journal.push(|| 1);
        assert_eq!(journal.len(), 1);
        journal.close(mark);
        assert!(journal.is_empty());
    }
}
