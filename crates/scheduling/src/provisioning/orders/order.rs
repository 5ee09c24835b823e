//! The orders of placing, and how each of them begins.

use std::collections::BTreeSet;

use model::IdVec;

use super::{karpenter, patterns};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::placing::choose;
use crate::simulation::placing::fill::{PlacingOrder, on_nodes, place};
use crate::simulation::topology::{GroupId, Kind, Scope};

/// In which order places are looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order<'w> {
    /// Class by class.
    Plain,
    /// Class by class, but first those that spreads of others count and that do not keep these themselves: whenever
    /// they are bound, the spreads are planned with them.
    CountedFirst,
    /// Class by class, but first these.
    First(&'w BTreeSet<ClassId>),
    /// Classes that nothing couples get their machines pattern by pattern, by what a copy is worth.
    ByWorth(&'w IdVec<ClassId, i64>),
    /// Pod by pod, as Karpenter does it.
    Karpenter {
        /// Else it is given up where it takes too long.
        is_asked_for: bool,
    },
}

impl PlacingOrder for Order<'_> {
    fn begin(&self, packing: &mut Packing<'_>, waiting: &mut IdVec<ClassId, u32>) -> bool {
        match *self {
            Self::Plain | Self::CountedFirst | Self::First(_) => true,
            Self::ByWorth(worth) => {
                by_worth(packing, waiting, worth);
                true
            }
            Self::Karpenter { is_asked_for } => karpenter::place(packing, waiting, is_asked_for),
        }
    }

    fn sequence(&self, problem: &Problem<'_>) -> Vec<ClassId> {
        let classes = problem.classes.ids();
        match self {
            Self::Plain | Self::ByWorth(_) | Self::Karpenter { .. } => classes.collect(),
            Self::CountedFirst => counted_first(problem, classes.collect()),
            Self::First(first) => {
                let others = classes.filter(|class| !first.contains(class));
                first.iter().copied().chain(others).collect()
            }
        }
    }

    fn keeps_skews(&self) -> bool {
        matches!(self, Self::CountedFirst)
    }
}

/// Each class after those that its spreads count and that do not keep them themselves, and after others that it wants
/// to be near to; where classes wait for each other, and otherwise, the order stays.
fn counted_first(problem: &Problem<'_>, mut left: Vec<ClassId>) -> Vec<ClassId> {
    // By group: classes to come that it counts, and those of them that have not to keep it.
    let mut counted: IdVec<GroupId, (usize, usize)> = problem.topology.groups.map(|_| (0, 0));
    for mine in problem.classes.iter().flat_map(|class| &class.involved).filter(|mine| mine.matched) {
        let (all, only_counted) = &mut counted[mine.group];
        *all += 1;
        *only_counted += usize::from(!mine.owner);
    }
    let is_ready = |class: ClassId, counted: &IdVec<GroupId, (usize, usize)>| {
        problem.classes[class].involved.iter().filter(|mine| mine.owner).all(|mine| {
            let (all, only_counted) = counted[mine.group];
            let group = &problem.topology.groups[mine.group];
            match group.kind {
                // There are always more hosts.
                Kind::Spread { .. } => only_counted == 0 || group.scope == Scope::Host,
                // Who is near to nobody but its own kind can begin; if others count as well and come first, it can't.
                Kind::Affinity => all == usize::from(mine.matched),
                Kind::AntiAffinity => true,
            }
        })
    };
    let mut sequence = Vec::with_capacity(left.len());
    // Those before were not ready, and nothing has changed for them since.
    let mut from = 0;
    while !left.is_empty() {
        let next = left.iter().skip(from).position(|&class| is_ready(class, &counted));
        let next = next.map_or(0, |next| from + next);
        let class = left.remove(next);
        from = next;
        for mine in problem.classes[class].involved.iter().filter(|mine| mine.matched) {
            let (all, only_counted) = &mut counted[mine.group];
            *all -= 1;
            *only_counted -= usize::from(!mine.owner);
            if *all <= 1 || *only_counted == 0 {
                from = 0;
            }
        }
        sequence.push(class);
    }
    sequence
}

/// Places what goes by worth: what is coupled first, then whatever fits into room that is paid for, then patterns. What
/// is left over is refused by nobody here; it goes class by class.
fn by_worth(packing: &mut Packing<'_>, waiting: &mut IdVec<ClassId, u32>, worth: &IdVec<ClassId, i64>) {
    let problem = packing.problem;
    for class in problem.classes.ids().filter(|&class| !problem.classes[class].is_refused()) {
        let wanted = waiting[class];
        let left =
            if problem.is_free(class) { on_nodes(packing, class, wanted) } else { place(packing, class, wanted) };
        waiting[class] = left.so_far();
    }
    for class in problem.classes.ids().filter(|&class| problem.is_free(class)) {
        waiting[class] = choose::into_paid_room(packing, class, waiting[class]).so_far();
    }
    patterns::place(packing, waiting, worth);
}
