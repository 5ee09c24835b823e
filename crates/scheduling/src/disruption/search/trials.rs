//! Sets of machines that are taken away, with their pods placed elsewhere, and put back.

use std::collections::BTreeMap;

use model::{IdSet, ResourceVec};

use super::{Known, Pods, Question};
use crate::bound;
use crate::catalogue::TypeId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{Bin, BinId, Charging};
use crate::simulation::placing::fill;
use crate::snapshot::PoolId;
use crate::tuning::{CONSOLIDATION_STEPS, NODES_OF_A_STEP, STEPS_OF_DEVICE_QUESTION};
use cloudprovider::CapacityType;

/// The packing on which sets are tried, and what that may still cost.
pub(super) struct Trials<'q, 'p> {
    pub(super) question: &'q Question<'q>,
    /// What does not hold is not tried again.
    pub(super) known: Known,
    pub(super) pods: &'q Pods,
    pub(super) packing: Packing<'p>,
    steps: u64,
    /// What would come of a machine alone as long as nothing else has been taken away. The search asks about most of
    /// them, and so do certificates after it.
    alone: BTreeMap<usize, Result<Gain, Obstacle>>,
}

/// What comes of a set that can go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gain {
    /// What it saves, in nano-dollars per hour: what the machines cost, less what new ones do.
    pub(super) saving: i128,
    /// Less what the evictions have to save.
    pub(super) net: i128,
    pub(super) launched: Vec<NewMachine>,
}

/// A machine that takes the place of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewMachine {
    pub(crate) pool: PoolId,
    /// Spot types of it that cost less than the machines that go together; `None` if it can't be a spot machine.
    pub(crate) cheaper_spot_types: Option<usize>,
}

/// How machines are found for pods without room on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Those that cost least for each copy.
    Cheapest,
    /// One that becomes as large as it has to, as in Karpenter.
    Together,
}

/// Why a set cannot go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Pods that move, or that wait, have got their places on one of them.
    InUse,
    /// A copy of the class has no place elsewhere.
    NoPlace(ClassId),
    /// What is launched costs as much, or so much before all is placed.
    NoSaving(i128),
    /// The steps are used up.
    OutOfSteps,
}

impl<'q, 'p> Trials<'q, 'p> {
    /// With pods that wait in the places that they have got.
    pub(super) fn new(question: &'q Question<'q>, problem: &'p Problem<'p>, run: &'p PlanRun, pods: &'q Pods) -> Self {
        let mut packing = Packing::new(problem, run, Charging::Least);
        packing.state.settle_start();
        let (known, alone) = (Known::default(), BTreeMap::new());
        let mut trials = Self { question, known, pods, packing, steps: CONSOLIDATION_STEPS, alone };
        trials.settle();
        trials
    }

    /// Places what waits where it was planned, as far as it fits one after the other.
    fn settle(&mut self) {
        let mut waiting = self.question.settled.to_vec();
        loop {
            let before = waiting.len();
            waiting.retain(|(node, pod)| {
                let Some(class) = self.pods.class_of.try_get(*pod).copied().flatten() else { return false };
                let fits = self.packing.copies_on_node(*node, class, 1).so_far() == 1;
                if fits {
                    self.packing.place_on_node(*node, class, 1);
                }
                !fits
            });
            if waiting.is_empty() || waiting.len() == before {
                return;
            }
        }
    }

    /// Lets so many classes be placed from now on.
    pub(super) fn refill(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// What each machine has free once its pods are gone, with what it costs; no less than these pods request, since
    /// whoever runs on too small a machine may stay.
    pub(super) fn rooms_without_pods(&mut self) -> Vec<bound::CouldGo> {
        let (question, problem) = (self.question, self.packing.problem);
        let rooms = question.machines.iter().enumerate().map(|(index, machine)| {
            let mark = self.packing.mark();
            self.packing.vacate(machine.node);
            let mut room = self.packing.state.room[machine.node].clone();
            self.packing.rollback(mark);
            let mut own = ResourceVec::default();
            for &(class, copies) in self.pods.on(index) {
                let requests = problem.classes[class].requests(problem.variant_on(class, machine.node));
                (0..copies).for_each(|_| own.saturating_add_assign(requests));
            }
            room.max_assign(&own);
            bound::CouldGo { node: machine.node, room, pods: self.pods.on(index).to_vec(), price: machine.cost }
        });
        rooms.collect()
    }

    /// What would come of it if these went beside what is accepted already.
    pub(super) fn ask(&mut self, set: &[usize]) -> Result<Gain, Obstacle> {
        let alone = match *set {
            [index] if !self.packing.has_undo() => Some(index),
            _ => None,
        };
        if let Some(known) = alone.and_then(|index| self.alone.get(&index)) {
            return known.clone();
        }
        let mark = self.packing.mark();
        let gain = self.take_away(set);
        self.packing.rollback(mark);
        if let Some(index) = alone.filter(|_| gain != Err(Obstacle::OutOfSteps)) {
            self.alone.insert(index, gain.clone());
        }
        gain
    }

    /// Lets these go; says whether they can.
    pub(super) fn accept(&mut self, set: &[usize]) -> bool {
        let mark = self.packing.mark();
        let is_done = self.take_away(set).is_ok();
        if is_done {
            self.packing.commit(mark)
        } else {
            self.packing.rollback(mark)
        }
        if is_done && !set.is_empty() && !self.packing.has_undo() {
            // Nobody will take it back.
            self.alone.clear();
        }
        is_done
    }

    fn take_away(&mut self, set: &[usize]) -> Result<Gain, Obstacle> {
        let machines = || set.iter().filter_map(|index| self.question.machines.get(*index));
        let cost: i128 = machines().map(|machine| machine.cost).sum();
        let wanted: i128 = machines().map(|machine| machine.wanted).sum();
        let (price_before, bins_before) = (self.packing.state.price(), self.packing.state.bins.len());
        let mut waiting: BTreeMap<ClassId, u32> = BTreeMap::new();
        for &index in set {
            let node = self.question.machines.get(index).map(|machine| machine.node).ok_or(Obstacle::InUse)?;
            if !self.packing.take_away(node) {
                return Err(Obstacle::InUse);
            }
            for &(class, copies) in self.pods.on(index) {
                *waiting.entry(class).or_default() += copies;
            }
        }
        // Machines that are cheapest for each copy, or one that grows with what comes: neither is cheaper always.
        let before = self.packing.mark();
        let cheapest = self.place(&waiting, Way::Cheapest, cost);
        let opened = self.packing.state.bins.len() - bins_before;
        let is_open = matches!(cheapest, Ok(_) | Err(Obstacle::NoSaving(_)));
        if is_open && (opened > 1 || cheapest.is_err()) {
            self.packing.rollback(before);
            let before = self.packing.mark();
            let together = self.place(&waiting, Way::Together, cost);
            let is_cheaper = match (&together, &cheapest) {
                (Ok(together), Ok(cheapest)) => together < cheapest,
                (together, _) => together.is_ok(),
            };
            if is_cheaper {
                self.packing.commit(before);
            } else {
                self.packing.rollback(before);
                let before = self.packing.mark();
                let again = self.place(&waiting, Way::Cheapest, cost);
                self.packing.commit(before);
                again?;
            }
        } else {
            self.packing.commit(before);
            cheapest?;
        }
        let saving = cost - (self.packing.state.price() - price_before);
        let launched = self.packing.state.bins.get(bins_before..).unwrap_or_default();
        let launched = launched.iter().map(|bin| new_machine(self.packing.problem, bin, cost)).collect();
        Ok(Gain { saving, net: saving - wanted, launched })
    }

    /// Places all of the classes, the large before the small, and says what that adds to the price.
    fn place(&mut self, waiting: &BTreeMap<ClassId, u32>, way: Way, cost: i128) -> Result<i128, Obstacle> {
        let (price_before, first) = (self.packing.state.price(), self.packing.state.bins.len());
        for (&class, &copies) in waiting {
            self.steps = self.steps.checked_sub(self.steps_of(class)).ok_or(Obstacle::OutOfSteps)?;
            let questions = self.packing.run.devices().questions();
            let left = match way {
                Way::Cheapest => fill::place(&mut self.packing, class, copies).so_far(),
                Way::Together => self.place_together(class, copies, first),
            };
            let questions = self.packing.run.devices().questions() - questions;
            self.steps = self.steps.saturating_sub(questions * STEPS_OF_DEVICE_QUESTION);
            if left > 0 {
                return Err(Obstacle::NoPlace(class));
            }
            let added = self.packing.state.price() - price_before;
            if added >= cost {
                return Err(Obstacle::NoSaving(added));
            }
        }
        Ok(self.packing.state.price() - price_before)
    }

    /// What placing a class counts besides questions about devices: where these are wanted, each node with room is
    /// looked at.
    fn steps_of(&self, class: ClassId) -> u64 {
        let problem = self.packing.problem;
        let nodes = problem.node_order.len() as u64 / NODES_OF_A_STEP;
        if problem.classes[class].devices.is_some() { 1 + nodes } else { 1 }
    }

    /// Places copies on nodes, then into the machines from `first` on whatever size they grow to, then onto new ones.
    fn place_together(&mut self, class: ClassId, copies: u32, first: usize) -> u32 {
        let problem = self.packing.problem;
        let mut left = fill::on_nodes(&mut self.packing, class, copies).so_far();
        for id in (first..self.packing.state.bins.len()).map(BinId) {
            let Some(pool) = self.packing.state.bins.get(id.0).map(|bin| bin.pool) else { break };
            for alternative in &problem.pools[pool].by_class[class] {
                if left == 0 {
                    return 0;
                }
                let more = self.packing.copies_in_bin(id, class, alternative, left).so_far();
                if more > 0 {
                    self.packing.place_in_bin(id, class, alternative, more);
                    left -= more;
                }
            }
        }
        fill::place(&mut self.packing, class, left).so_far()
    }

    /// Whether a set that would save so much may and should go.
    pub(super) fn pays(&self, set: &[usize], gain: &Gain) -> bool {
        gain.net >= 0 && !self.known.rejected.contains(set) && (self.question.allows)(set, gain.saving, &gain.launched)
    }
}

fn new_machine(problem: &Problem<'_>, bin: &Bin, cost: i128) -> NewMachine {
    let table = &problem.pools[bin.pool];
    let is_spot = |offering: &crate::catalogue::OfferingId| {
        table.catalogue.offerings[*offering].capacity_type == CapacityType::Spot
    };
    let mut may_be_spot = false;
    let mut cheaper: IdSet<TypeId> = IdSet::new();
    for offering in bin.offerings.iter().filter(is_spot) {
        may_be_spot = true;
        if i128::from(table.price(offering).0) < cost {
            cheaper.insert(table.catalogue.offerings[offering].instance_type);
        }
    }
    NewMachine { pool: table.id, cheaper_spot_types: may_be_spot.then(|| cheaper.count()) }
}
