//! Some of the machines that go are put back, and others go in their place, as long as that brings more.
//!
//! Room is filled in the order in which machines go, so that what a walk ends with leaves parts of it unused, and it
//! may be used by machines whose pods are worth less than those of others. Random exchanges of a machine or two go on
//! from there (a stochastic hill climb): of all that go then, all pods are placed anew, the large before the small,
//! since room that was filled one machine after the other is in pieces.
//!
//! The random numbers are the same each time, so the same question has the same answer.

use fastrand::Rng;

use super::neighbourhoods::{End, Walk, sorted};
use super::trials::Trials;
use crate::tuning::{EXCHANGE_TRIALS, EXCHANGES_IN_VAIN, LEAST_EXCHANGED};

/// How many machines an exchange puts back, and how many go in their place at most: single exchanges are tried most.
const KINDS: [(usize, usize); 5] = [(1, 1), (1, 1), (0, 1), (1, 2), (2, 1)];

/// What exchanges of one search may still cost, however often it looks.
#[derive(Debug)]
pub(super) struct Exchanges {
    trials: usize,
    random: Rng,
}

impl Default for Exchanges {
    fn default() -> Self {
        Self { trials: EXCHANGE_TRIALS, random: Rng::with_seed(0) }
    }
}

impl Exchanges {
    /// What brings more than what a walk has ended with, or that.
    pub(super) fn improve(&mut self, trials: &mut Trials<'_, '_>, walk: &Walk<'_>, end: End) -> End {
        let mut going = sorted(&end.sets.concat());
        if going.len() < LEAST_EXCHANGED {
            return end;
        }
        let mut net = end.net;
        // Half of what is left, so that a later look has some too.
        self.trials /= 2;
        let mut in_vain = 0;
        for _ in 0..self.trials {
            if in_vain == EXCHANGES_IN_VAIN {
                break;
            }
            in_vain += 1;
            let next = self.exchanged((trials.question.machines.len(), walk), &going);
            let is_open = next != going
                && trials.question.left.lets(trials.question.machines, &next)
                && !trials.known.breaks_apart(|index| next.contains(&index));
            if !is_open {
                continue;
            }
            if let Ok(gain) = trials.ask(&next)
                && gain.net > net
                && trials.pays(&next, &gain)
            {
                (going, net) = (next, gain.net);
                in_vain = 0;
            }
        }
        let mut sets = end.sets;
        let others = going.iter().copied().filter(|index| !sets.iter().any(|set| set.contains(index)));
        let others: Vec<Vec<usize>> = others.map(|index| vec![index]).collect();
        sets.iter_mut().for_each(|set| set.retain(|index| going.contains(index)));
        sets.extend(others);
        sets.retain(|set| !set.is_empty());
        End { sets, net }
    }

    /// Without one or two of these, and with others: every second of all machines, the rest of those that cost more
    /// than their pods are worth. One fleet of 49 machines came to $11.31/h in place of $10.84 with the latter alone.
    fn exchanged(&mut self, (machines, walk): (usize, &Walk<'_>), going: &[usize]) -> Vec<usize> {
        let (put_back, more) = self.random.choice(KINDS).unwrap_or_default();
        let mut next = going.to_vec();
        for _ in 0..put_back.min(next.len()) {
            next.swap_remove(self.random.usize(..next.len()));
        }
        for _ in 0..more {
            let of_all = self.random.usize(..machines);
            let other = match self.random.choice(&walk.by_profit) {
                Some(&dear) if self.random.bool() => dear,
                _ => of_all,
            };
            if !going.contains(&other) && !next.contains(&other) {
                next.push(other);
            }
        }
        sorted(&next)
    }
}
