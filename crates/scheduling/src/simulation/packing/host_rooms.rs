//! How many copies rules over hosts let onto each open machine, kept until the machine changes.
//!
//! A class asks some of the machines opened last for every few copies, and many classes are concerned by the same
//! rules. Those that are full for one are so for the next, and are passed over without asking again.

use smallvec::SmallVec;

use super::state::BinId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::Alternative;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::upsizing::Some64;
use crate::simulation::topology::{AllCounts, Checking, GroupId, Place};
use crate::tuning::HOST_ROOM_ROWS;

/// Not computed yet.
const UNKNOWN: u32 = u32::MAX;

/// No limit.
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

/// Where the answers for some rules are. Once rows were dropped to make room it is none of a row: nothing is known by
/// it then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowIndex {
    index: usize,
    dropped: u64,
}

impl HostRooms {
    /// Forgets a machine's answers, because it changed.
    pub(crate) fn forget(&mut self, id: BinId) {
        for row in &mut self.rows {
            if let Some(copies) = row.copies.get_mut(id.0) {
                *copies = UNKNOWN;
            }
        }
    }

    /// Where answers are for several ways of a class; there are so many machines. `None` for a way whose answers may
    /// change although the machine does not.
    pub(crate) fn rows<'a>(
        &mut self,
        (problem, counts): (&Problem<'_>, &AllCounts),
        class: ClassId,
        checking: Checking,
        ways: impl Iterator<Item = &'a Alternative> + Clone,
        bins: usize,
    ) -> SmallVec<[Option<RowIndex>; 4]> {
        if self.rows.len() + ways.clone().count() > HOST_ROOM_ROWS {
            self.rows.clear();
            self.dropped += 1;
        }
        ways.map(|alternative| {
            let rules = lasting_rules(problem, counts, class, alternative)?;
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

    /// How many copies a machine takes, if that was computed.
    pub(crate) fn copies(&self, row: RowIndex, id: BinId) -> Option<u32> {
        let copies = self.row(row).and_then(|row| row.copies.get(id.0)).copied();
        copies.filter(|copies| *copies != UNKNOWN)
    }

    /// Stores how many of [`ANY`] copies a machine takes.
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

/// The rules over hosts that concern a class on a machine by an alternative, if what they allow there depends on what
/// the machine holds alone.
fn lasting_rules(
    problem: &Problem<'_>,
    counts: &AllCounts,
    class: ClassId,
    alternative: &Alternative,
) -> Option<Rules> {
    let pods = &problem.classes[class];
    if !pods.affinity_sets.is_empty() {
        return None;
    }
    let over_hosts = pods.involved.iter().zip(&alternative.places).filter(|(_, place)| **place == Place::OwnHost);
    over_hosts
        .map(|(mine, _)| {
            let is_lasting = problem.topology.groups[mine.group].depends_on_domain_alone(&counts[mine.group]);
            is_lasting.then_some((mine.group, mine.owner, mine.matched))
        })
        .collect()
}
