//! Whether a skew can still be mended by copies that are to come.

use model::IdVec;

use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::state::{Assignment, State};
use crate::simulation::topology::{DomainId, GroupId, Place};

/// Copies that spreads count and that are still to come, by group.
#[derive(Debug)]
pub(crate) struct ToCome(IdVec<GroupId, u64>);

impl ToCome {
    pub(crate) fn new(problem: &Problem<'_>, waiting: &IdVec<ClassId, u32>) -> Self {
        let mut to_come = Self(problem.topology.groups.map(|_| 0));
        for (class, &copies) in waiting.iter_enumerated() {
            for mine in problem.classes[class].involved.iter().filter(|mine| mine.matched) {
                to_come.0[mine.group] += u64::from(copies);
            }
        }
        to_come
    }

    /// Notes that copies of a class were placed by these assignments, or refused; says whether that broke a skew for
    /// good.
    pub(crate) fn has_broken(
        &mut self,
        problem: &Problem<'_>,
        state: &State,
        (class, copies): (ClassId, u32),
        assignments: &[Assignment],
    ) -> bool {
        let involved = &problem.classes[class].involved;
        for mine in involved.iter().filter(|mine| mine.matched) {
            self.0[mine.group] = self.0[mine.group].saturating_sub(u64::from(copies));
        }
        let is_broken = |group: GroupId, domain: DomainId| {
            problem.topology.groups[group].is_broken_for_good(&state.counts[group], domain, self.0[group])
        };
        assignments.iter().any(|entry| {
            involved.iter().enumerate().any(|(position, mine)| {
                let place = state.place_of(problem, entry, position);
                matches!(place, Place::Domain(domain) if entry.class == class && is_broken(mine.group, domain))
            })
        })
    }
}
