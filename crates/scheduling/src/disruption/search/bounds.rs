//! What can be gained at most: by the whole fleet, and by a set of machines.
//!
//! A set brings its price less what machines for its pods cost. These cost at least what the pods are worth that find
//! no free room on other nodes, by the dual prices of the relaxation; and no more pods of a class find room than there
//! is room for copies of it, if nothing else came there, and no more of all classes than all free room is worth.
//! Beside machines that are launched already for others, a set brings more by no more than these cost beyond what is on
//! them: with the set's pods on it a machine costs at least what all its pods are worth.

use std::collections::BTreeMap;

use model::{IdVec, PriceNanoUsdPerHour};

use super::certificates::Certificate;
use super::trials::Trials;
use super::{CouldGo, Pods, Question};
use crate::bound;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::Bin;
use crate::tuning::SMALLEST_GAIN;

/// What the relaxation says.
#[derive(Debug)]
pub(super) struct Bounds {
    /// What machines for all pods cost at least.
    pub(super) bound: i128,
    /// By class, by each of the relaxation's dual prices; there is one at least.
    worth: Vec<IdVec<ClassId, i64>>,
    /// By each of these: what all free room on nodes is worth at most before anybody moves. Whoever moves leaves less.
    free: Vec<i128>,
    /// Before anybody moves.
    openings: Openings,
    /// A reservation may cost less than its pods are worth.
    has_reservations: bool,
}

/// Where pods may go that cost nothing more.
#[derive(Debug)]
pub(super) struct Openings {
    /// By class: for how many copies nodes have free room.
    free: IdVec<ClassId, u32>,
    /// What open machines cost beyond what is on them, by each of the relaxation's dual prices.
    paid: Vec<i128>,
}

impl Bounds {
    pub(super) fn new(question: &Question<'_>, trials: &mut Trials<'_, '_>) -> Self {
        let problem = trials.packing.problem;
        let placed = problem.classes.map(|class| {
            let placed = class.members.iter().filter(|pod| !question.refused.contains(pod)).count();
            u32::try_from(placed).unwrap_or(u32::MAX)
        });
        let could_go = trials.rooms_without_pods();
        let relaxed = bound::relax_fleet(problem, trials.packing.run, &placed, &could_go, question.solved);
        let worth: Vec<IdVec<ClassId, i64>> =
            [Some(relaxed.worth), Some(relaxed.other_worth), relaxed.whole_worth].into_iter().flatten().collect();
        Self {
            bound: i128::from(relaxed.bound.0),
            openings: Openings::new(&worth, &trials.packing),
            worth,
            free: relaxed.free,
            has_reservations: !problem.reservations.is_empty(),
        }
    }

    /// As things are in a packing.
    pub(super) fn openings_in(&self, packing: &Packing<'_>) -> Openings {
        Openings::new(&self.worth, packing)
    }

    /// Whether no command can pay, or all of them together save less than counts.
    pub(super) fn is_at_the_least(&self, question: &Question<'_>) -> bool {
        let least = question.machines.iter().map(|machine| machine.wanted).min().unwrap_or(1);
        let price = price(question);
        price + question.launched_anyway - self.bound < least.max(price / SMALLEST_GAIN)
    }

    /// Why a machine stays of a fleet that [is at the least](Self::is_at_the_least): nothing can be gained, or not so
    /// much that its evictions pay.
    pub(super) fn nothing_to_gain(&self, question: &Question<'_>, pods: &Pods, index: usize) -> Certificate {
        let (price, bound) = (price(question), self.bound - question.launched_anyway);
        let most = self.most(question, pods, &[index]).min(price - bound);
        let machine = question.machines.get(index).filter(|_| price - bound >= (price / SMALLEST_GAIN).max(1));
        machine
            .and_then(|machine| Certificate::by_bound(most, machine))
            .unwrap_or(Certificate::NothingToGain { price: nano(price), bound: nano(bound) })
    }

    /// What a machine costs more than its pods are worth: what it brings if they find no free room, and machines for
    /// them cost as little as they can. One that is full of the right pods has none.
    pub(super) fn surplus(&self, question: &Question<'_>, pods: &Pods, index: usize) -> i128 {
        let cost = question.machines.get(index).map_or(0, |machine| machine.cost);
        let of_class = |class: ClassId| self.worth.first().map_or(0, |worth| worth[class].max(0));
        let of_pods = pods.on(index).iter().map(|&(class, copies)| i128::from(copies) * i128::from(of_class(class)));
        cost - of_pods.sum::<i128>()
    }

    /// What a set brings at most, if no other machine goes.
    pub(super) fn most(&self, question: &Question<'_>, pods: &Pods, set: &[usize]) -> i128 {
        self.most_beside(&self.openings, (question, pods), set)
    }

    /// What a set brings at most beside others that go.
    pub(super) fn most_beside(
        &self,
        openings: &Openings,
        (question, pods): (&Question<'_>, &Pods),
        set: &[usize],
    ) -> i128 {
        let machines = set.iter().filter_map(|index| question.machines.get(*index));
        let cost: i128 = machines.map(|machine: &CouldGo| machine.cost).sum();
        if self.has_reservations {
            return cost;
        }
        let mut copies: BTreeMap<ClassId, u32> = BTreeMap::new();
        for &(class, of_class) in set.iter().flat_map(|index| pods.on(*index)) {
            *copies.entry(class).or_default() += of_class;
        }
        let homeless = |((worth, free), paid): ((&IdVec<ClassId, i64>, &i128), &i128)| -> i128 {
            let worth_of = |class: &ClassId, copies: u32| i128::from(copies) * i128::from(worth[*class].max(0));
            let (mut all, mut without_room) = (0, 0);
            for (class, copies) in &copies {
                all += worth_of(class, *copies);
                without_room += worth_of(class, copies.saturating_sub(openings.free[*class]));
            }
            without_room.max(all - free) - paid
        };
        cost - self.worth.iter().zip(&self.free).zip(&openings.paid).map(homeless).max().unwrap_or(0).max(0)
    }
}

impl Openings {
    fn new(worth: &[IdVec<ClassId, i64>], packing: &Packing<'_>) -> Self {
        let paid = |worth: &IdVec<ClassId, i64>| -> i128 {
            let of_bin = |bin: &Bin| {
                let of_class =
                    |(class, _, copies): &(ClassId, usize, u32)| i128::from(*copies) * i128::from(worth[*class].max(0));
                (i128::from(bin.price.0) - bin.contents.iter().map(of_class).sum::<i128>()).max(0)
            };
            packing.state.bins.iter().map(of_bin).sum()
        };
        Self {
            free: packing.problem.classes.ids().map(|class| free(packing, class)).collect(),
            paid: worth.iter().map(paid).collect(),
        }
    }
}

/// Copies of a class for which nodes have room, each by itself; no more than there are.
fn free(packing: &Packing<'_>, class: ClassId) -> u32 {
    let problem = packing.problem;
    let wanted = problem.classes[class].count();
    let (mut free, mut from) = (0_u32, 0);
    while let Some((position, node)) = packing.next_node(from, class) {
        from = position + 1;
        if !problem.node_accepts(class, node) {
            continue;
        }
        let requests = problem.classes[class].requests(problem.variant_on(class, node));
        let times = requests.times_in(&packing.state.room[node], wanted);
        let devices = packing.state.devices.as_ref();
        free = free.saturating_add(devices.map_or(times, |it| times.min(it.possible_copies(problem, node, class))));
        if free >= wanted {
            return wanted;
        }
    }
    free
}

/// What the machines cost that could go.
fn price(question: &Question<'_>) -> i128 {
    question.machines.iter().map(|machine| machine.cost).sum()
}

/// As a price, stopping at its ends.
pub(crate) fn nano(price: i128) -> PriceNanoUsdPerHour {
    PriceNanoUsdPerHour(i64::try_from(price).unwrap_or(if price < 0 { i64::MIN } else { i64::MAX }))
}
