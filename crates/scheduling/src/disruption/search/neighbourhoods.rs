//! Which sets of machines are tried, and which of those that pay are taken.
//!
//! A beginning, then first improvement: each machine alone, by saving per disruption, as long as one more pays; then
//! each machine with those of its NodePool and zone that could bring most, two at a time and more. A set is taken
//! without the machines that it does as well without, so that nobody is evicted for nothing. Beginnings are: none;
//! Karpenter's prefixes of machines by saving per disruption; machines that cost more than their pods are worth, the
//! most per disruption first; all machines at once. Each is followed to its end, and the end that brings most is
//! improved (`exchanges`) and counts.

use std::cmp::Reverse;

use super::bounds::{Bounds, Openings};
use super::exchanges::Exchanges;
use super::trials::{Gain, Trials};
use super::{CouldGo, Left};
use crate::tuning::{CONSOLIDATION_STEPS, LARGEST_PREFIX, RELATED_MACHINES, SURPLUS_PREFIXES, TRIMMING_TRIALS};

/// The sets that bring most of all that was tried, in the order in which they are to be taken.
pub(super) fn best_sets(trials: &mut Trials<'_, '_>, bounds: &Bounds, exchanges: &mut Exchanges) -> Vec<Vec<usize>> {
    let walk = Walk::new(trials, bounds);
    let beginnings = walk.beginnings(trials);
    // Each gets as much, so that a long walk does not keep the others from beginning.
    let share = CONSOLIDATION_STEPS / (1 + beginnings.len() as u64);
    trials.refill(share);
    let mut best = walk.follow(trials, None);
    for beginning in beginnings {
        trials.refill(share);
        let end = walk.follow(trials, Some(beginning));
        if end.net > best.net {
            best = end;
        }
    }
    let improved = exchanges.improve(trials, &walk, best);
    trials.refill(CONSOLIDATION_STEPS);
    walk.without_needless(trials, improved).sets
}

/// The machines by what they cost for what it costs to disrupt them, the dearest first: Karpenter's order.
pub(crate) fn by_saving_per_disruption(machines: &[CouldGo]) -> Vec<usize> {
    by_share(machines, |_, machine| machine.cost)
}

/// The machines by an amount for what it costs to disrupt them, the largest first.
fn by_share(machines: &[CouldGo], amount: impl Fn(usize, &CouldGo) -> i128) -> Vec<usize> {
    let mut order: Vec<(usize, i128, i128)> = machines
        .iter()
        .enumerate()
        .map(|(index, machine)| (index, amount(index, machine), i128::from(machine.disruption_cost)))
        .collect();
    // As fractions, in integers; machines are by name, so that equal ones stay so.
    order.sort_by(|(_, a, cost_of_a), (_, b, cost_of_b)| (b * cost_of_a).cmp(&(a * cost_of_b)));
    order.into_iter().map(|(index, _, _)| index).collect()
}

/// Sets that go together, and what they bring.
#[derive(Debug, Clone, Default)]
pub(super) struct End {
    pub(super) sets: Vec<Vec<usize>>,
    pub(super) net: i128,
}

/// In which order machines are looked at.
pub(super) struct Walk<'b> {
    bounds: &'b Bounds,
    /// By saving per disruption, the most first.
    order: Vec<usize>,
    /// By what they cost more than their pods are worth, per disruption, the most first; with whether that is enough to
    /// pay.
    by_surplus: Vec<(usize, bool)>,
    /// Those that cost more than their pods are worth and their evictions have to save, the most first.
    pub(super) by_profit: Vec<usize>,
    /// Those of one NodePool and zone, what could bring most first; and where each machine is among them.
    kin: Vec<Vec<usize>>,
}

/// What is taken in one walk.
struct Taken {
    is_taken: Vec<bool>,
    /// Where pods of further ones may go; `None` as long as nothing is taken.
    openings: Option<Openings>,
    left: Left,
    end: End,
}

impl<'b> Walk<'b> {
    fn new(trials: &Trials<'_, '_>, bounds: &'b Bounds) -> Self {
        let machines = trials.question.machines;
        let order = by_saving_per_disruption(machines);
        let surplus: Vec<i128> =
            (0..machines.len()).map(|index| bounds.surplus(trials.question, trials.pods, index)).collect();
        let surplus = |index: usize| surplus.get(index).copied().unwrap_or(0);
        let by_surplus = by_share(machines, |index, _| surplus(index));
        let pays = |index: &usize| machines.get(*index).is_some_and(|machine| surplus(*index) >= machine.wanted);
        let by_surplus = by_surplus.into_iter().map(|index| (index, pays(&index))).collect();
        let profit = |index: usize| surplus(index) - machines.get(index).map_or(0, |machine| machine.wanted);
        let mut by_profit: Vec<usize> = (0..machines.len()).filter(|&index| profit(index) > 0).collect();
        by_profit.sort_by_cached_key(|&index| Reverse(profit(index)));
        let most = |index: &usize| Reverse(bounds.most(trials.question, trials.pods, &[*index]));
        let mut kin: Vec<Vec<usize>> = Vec::new();
        for &index in &order {
            let Some(machine) = machines.get(index) else { continue };
            if kin.len() <= machine.kin {
                kin.resize(machine.kin + 1, Vec::new());
            }
            if let Some(kin) = kin.get_mut(machine.kin) {
                kin.push(index);
            }
        }
        kin.iter_mut().for_each(|kin| kin.sort_by_cached_key(most));
        Self { bounds, order, by_surplus, by_profit, kin }
    }

    /// Karpenter's prefixes, those by surplus, and all machines that budgets let go.
    fn beginnings(&self, trials: &Trials<'_, '_>) -> Vec<Vec<usize>> {
        let (machines, mut left) = (trials.question.machines, trials.question.left.clone());
        let all: Vec<usize> = self.order.iter().copied().filter(|&index| left.take(machines, index)).collect();
        let mut sizes: Vec<usize> = Vec::new();
        let mut size = all.len().min(LARGEST_PREFIX);
        while size > 1 {
            sizes.push(size);
            // Small ones all, large ones by halves: a fleet in which only a few go has found them before.
            size = if size <= RELATED_MACHINES { size - 1 } else { (size / 2).max(RELATED_MACHINES) };
        }
        let prefixes = sizes.into_iter().filter_map(|size| all.get(..size)).map(<[usize]>::to_vec);
        let whole = (all.len() > LARGEST_PREFIX).then(|| all.clone());
        let mut beginnings: Vec<Vec<usize>> = whole.into_iter().chain(prefixes).collect();
        for beginning in self.surplus_prefixes(trials) {
            if !beginnings.contains(&beginning) {
                beginnings.push(beginning);
            }
        }
        beginnings
    }

    /// Machines that cost more than their pods are worth, as many as budgets let go, then half of these and so on.
    fn surplus_prefixes(&self, trials: &Trials<'_, '_>) -> Vec<Vec<usize>> {
        let (machines, mut left) = (trials.question.machines, trials.question.left.clone());
        let paying = self.by_surplus.iter().filter(|(_, pays)| *pays).map(|(index, _)| *index);
        let mut prefix: Vec<usize> = paying.filter(|&index| left.take(machines, index)).collect();
        let mut prefixes = Vec::new();
        // Smaller ones are among Karpenter's, or found by one machine after the other.
        while prefix.len() > RELATED_MACHINES && prefixes.len() < SURPLUS_PREFIXES {
            prefixes.push(prefix.clone());
            prefix.truncate(prefix.len() / 2);
        }
        prefixes
    }

    /// Takes the beginning, if it pays, and all that pays after it. The packing is as before in the end.
    fn follow(&self, trials: &mut Trials<'_, '_>, beginning: Option<Vec<usize>>) -> End {
        let mark = trials.packing.mark();
        let mut taken = Taken {
            is_taken: vec![false; self.order.len()],
            openings: None,
            left: trials.question.left.clone(),
            end: End::default(),
        };
        let is_open = match beginning {
            Some(set) => self.try_set(trials, &mut taken, set),
            None => true,
        };
        if is_open {
            self.alone(trials, &mut taken);
            self.related(trials, &mut taken);
        }
        trials.packing.rollback(mark);
        self.without_needless(trials, taken.end)
    }

    /// Without machines that went before others made that needless.
    fn without_needless(&self, trials: &mut Trials<'_, '_>, end: End) -> End {
        let all = sorted(&end.sets.concat());
        if end.sets.len() < 2 {
            return end;
        }
        let Ok(gain) = trials.ask(&all) else { return end };
        let (rest, gain) = self.trimmed(trials, all, gain);
        let mut sets = end.sets;
        sets.iter_mut().for_each(|set| set.retain(|index| rest.contains(index)));
        sets.retain(|set| !set.is_empty());
        End { sets, net: gain.net }
    }

    /// Machines that can go alone, until none can.
    fn alone(&self, trials: &mut Trials<'_, '_>, taken: &mut Taken) {
        loop {
            let before = taken.end.sets.len();
            for &index in &self.order {
                self.try_set(trials, taken, vec![index]);
            }
            if taken.end.sets.len() == before {
                return;
            }
        }
    }

    /// Sets of machines that are alike.
    fn related(&self, trials: &mut Trials<'_, '_>, taken: &mut Taken) {
        for kin in &self.kin {
            for (position, &first) in kin.iter().enumerate() {
                if taken.is_taken(first) {
                    continue;
                }
                let others = kin.get(position + 1..).unwrap_or_default();
                let others = others.iter().copied().filter(|&other| !taken.is_taken(other));
                let mut set = vec![first];
                let mut best: Option<(i128, Vec<usize>)> = None;
                for other in others.take(RELATED_MACHINES - 1) {
                    set.push(other);
                    if !taken.left.lets(trials.question.machines, &set) {
                        break;
                    }
                    if self.could_pay(trials, taken.openings.as_ref(), &set)
                        && let Ok(gain) = trials.ask(&set)
                        && trials.pays(&sorted(&set), &gain)
                        && best.as_ref().is_none_or(|(net, _)| gain.net > *net)
                    {
                        best = Some((gain.net, set.clone()));
                    }
                }
                if let Some((_, set)) = best {
                    self.try_set(trials, taken, set);
                }
            }
        }
    }

    /// False if the bound says that it brings too little: beside what is taken, where pods have these openings left, or
    /// by itself.
    fn could_pay(&self, trials: &Trials<'_, '_>, openings: Option<&Openings>, set: &[usize]) -> bool {
        let machines = set.iter().filter_map(|index| trials.question.machines.get(*index));
        let wanted: i128 = machines.map(|machine| machine.wanted).sum();
        let most = match openings {
            Some(openings) => self.bounds.most_beside(openings, (trials.question, trials.pods), set),
            None => self.bounds.most(trials.question, trials.pods, set),
        };
        most >= wanted
    }

    /// Takes a set if it pays, without the machines that it does as well without.
    fn try_set(&self, trials: &mut Trials<'_, '_>, taken: &mut Taken, set: Vec<usize>) -> bool {
        let set = sorted(&set);
        let is_open =
            set.iter().all(|&index| !taken.is_taken(index)) && taken.left.lets(trials.question.machines, &set);
        if !is_open || taken.breaks_apart(trials, &set) || !self.could_pay(trials, taken.openings.as_ref(), &set) {
            return false;
        }
        let Ok(gain) = trials.ask(&set) else { return false };
        if !trials.pays(&set, &gain) {
            return false;
        }
        let (set, gain) = self.trimmed(trials, set, gain);
        if !trials.accept(&set) {
            return false;
        }
        for &index in &set {
            taken.left.take(trials.question.machines, index);
            if let Some(is_taken) = taken.is_taken.get_mut(index) {
                *is_taken = true;
            }
        }
        taken.openings = Some(self.bounds.openings_in(&trials.packing));
        taken.end.net += gain.net;
        taken.end.sets.push(set);
        true
    }

    /// Those that bring least are left out first, as long as the rest brings as much: of a large set many at a time,
    /// then fewer, up to a number of trials.
    fn trimmed(&self, trials: &mut Trials<'_, '_>, set: Vec<usize>, gain: Gain) -> (Vec<usize>, Gain) {
        let (mut set, mut gain) = (set, gain);
        let mut open: Vec<usize> =
            self.by_surplus.iter().rev().map(|(index, _)| *index).filter(|index| set.contains(index)).collect();
        let mut left = TRIMMING_TRIALS;
        let mut at_a_time = if set.len() > RELATED_MACHINES { set.len() / 2 } else { 1 };
        loop {
            let mut kept = Vec::new();
            for without in open.chunks(at_a_time) {
                let rest: Vec<usize> = set.iter().copied().filter(|index| !without.contains(index)).collect();
                if left == 0 || rest.is_empty() {
                    return (set, gain);
                }
                left -= 1;
                if let Ok(of_rest) = trials.ask(&rest)
                    && of_rest.net >= gain.net
                    && trials.pays(&rest, &of_rest)
                {
                    (set, gain) = (rest, of_rest);
                } else {
                    kept.extend_from_slice(without);
                }
            }
            if at_a_time == 1 {
                return (set, gain);
            }
            (open, at_a_time) = (kept, at_a_time / 2);
        }
    }
}

impl Taken {
    fn is_taken(&self, index: usize) -> bool {
        self.is_taken.get(index).copied().unwrap_or(true)
    }

    /// Whether all of those would go then of which some have to stay.
    fn breaks_apart(&self, trials: &Trials<'_, '_>, set: &[usize]) -> bool {
        trials.known.breaks_apart(|index| self.is_taken(index) || set.contains(&index))
    }
}

pub(super) fn sorted(set: &[usize]) -> Vec<usize> {
    let mut set = set.to_vec();
    set.sort_unstable();
    set
}
