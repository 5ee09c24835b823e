//! How many copies rules over hosts let onto each open machine, kept until the machine changes.
//!
//! A class asks some of the machines opened last for every few copies, and many classes are concerned by the same rules.
//! Those that are full for one are so for the next, and are passed over without asking again.

use smallvec::SmallVec;

use super::{
    classes::ClassId,
    growth::Some64,
    pools::Alternative,
    problem::Problem,
    state::BinId,
    topology::{Checking, GroupId, Place},
};

/// For how many combinations of rules answers are kept.
const MAX_ROWS: usize = 64;

/// Nobody has asked yet.
const UNKNOWN: u32 = u32::MAX;

/// As many as anybody wants.
pub(crate) const ANY: u32 = u32::MAX - 1;

/// What is known of open machines.
#[derive(Debug, Default)]
pub(crate) struct HostRooms {
    rows: Vec<Row>,
    /// How often all rows were dropped.
    dropped: u64,
}

/// What the same rules let onto each machine.
#[derive(Debug)]
struct Row {
    rules: Rules,
    checking: Checking,
    /// By machine.
    copies: Vec<u32>,
}

/// Groups over hosts that concern a class, with whether it has to keep the rule and whether that counts it.
type Rules = SmallVec<[(GroupId, bool, bool); 4]>;

/// Where the answers for some rules are. Once rows were dropped to make room it is none of a row: nothing is known by it then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowIndex {
    index: usize,
    dropped: u64,
}

impl HostRooms {
    /// The machine is no longer what it was.
    pub(crate) fn forget(&mut self, id: BinId) {
        for row in &mut self.rows {
            if let Some(copies) = row.copies.get_mut(id.0) {
                *copies = UNKNOWN;
            }
        }
    }

    /// Where answers are for several ways of a class; there are so many machines. `None` for a way whose answers may change
    /// although the machine does not.
    pub(crate) fn rows<'a>(
        &mut self,
        problem: &Problem<'_>,
        class: ClassId,
        checking: Checking,
        ways: impl Iterator<Item = &'a Alternative> + Clone,
        bins: usize,
    ) -> SmallVec<[Option<RowIndex>; 4]> {
        if self.rows.len() + ways.clone().count() > MAX_ROWS {
            self.rows.clear();
            self.dropped += 1;
        }
        ways.map(|alternative| {
            let rules = lasting_rules(problem, class, alternative)?;
            let known = self.rows.iter().position(|row| row.rules == rules && row.checking == checking);
            let index = known.unwrap_or_else(|| {
                self.rows.push(Row { rules, checking, copies: Vec::new() });
                self.rows.len() - 1
            });
            if let Some(row) = self.rows.get_mut(index).filter(|row| row.copies.len() < bins) {
                row.copies.resize(bins, UNKNOWN);
            }
            Some(RowIndex { index, dropped: self.dropped })
        })
        .collect()
    }

    /// Which machines are known to take no copy.
    pub(crate) fn full(&self, row: RowIndex, bins: &Some64<'_>) -> u64 {
        self.row(row).map_or(0, |row| bins.that(&row.copies, |copies| *copies == 0))
    }

    /// How many copies a machine takes, if that is known.
    pub(crate) fn copies(&self, row: RowIndex, id: BinId) -> Option<u32> {
        let copies = self.row(row).and_then(|row| row.copies.get(id.0)).copied();
        copies.filter(|copies| *copies != UNKNOWN)
    }

    /// A machine takes so many of [`ANY`] copies.
    pub(crate) fn keep(&mut self, row: RowIndex, id: BinId, copies: u32) {
        let row = if row.dropped == self.dropped { self.rows.get_mut(row.index) } else { None };
        if let Some(slot) = row.and_then(|row| row.copies.get_mut(id.0)) {
            *slot = copies.min(ANY);
        }
    }

    fn row(&self, row: RowIndex) -> Option<&Row> {
        if row.dropped == self.dropped { self.rows.get(row.index) } else { None }
    }
}

/// The rules over hosts that concern a class on a machine by an alternative, if what they allow there depends on what the
/// machine holds alone.
fn lasting_rules(problem: &Problem<'_>, class: ClassId, alternative: &Alternative) -> Option<Rules> {
    let pods = &problem.classes[class];
    if !pods.affinity_sets.is_empty() {
        return None;
    }
    let over_hosts = pods.involved.iter().zip(&alternative.places).filter(|(_, place)| **place == Place::OwnHost);
    over_hosts
        .map(|(mine, _)| {
            let is_lasting = problem.topology.groups[mine.group].depends_on_domain_alone();
            is_lasting.then_some((mine.group, mine.owner, mine.matched))
        })
        .collect()
}
