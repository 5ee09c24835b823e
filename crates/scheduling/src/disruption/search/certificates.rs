//! Why a machine stays, once it is decided which go: what comes of it if it went as well.

use std::collections::{BTreeMap, BTreeSet};

use model::{NamespacedName, PriceNanoUsdPerHour};

use super::bounds::{Bounds, nano};
use super::trials::{Obstacle, Trials};
use super::{CouldGo, NewMachine};
use crate::tuning::CONSOLIDATION_STEPS;

/// What keeps a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// No fleet with room for all pods costs less.
    NothingToGain { price: PriceNanoUsdPerHour, bound: PriceNanoUsdPerHour },
    /// It can bring nothing, by the dual prices of its pods.
    WorthItsPrice { most: PriceNanoUsdPerHour },
    /// It can bring no more than that, by the bound, and its evictions have to save more.
    CannotPay { most: PriceNanoUsdPerHour, wanted: PriceNanoUsdPerHour },
    /// This pod has no place elsewhere.
    NoPlace(NamespacedName),
    /// What would have to be launched costs so much at least.
    NoSaving(PriceNanoUsdPerHour),
    /// Alone it would save so much, which does not pay or is against a rule.
    NotAllowed { saving: i128, launched: Vec<NewMachine> },
    /// It would go, and budgets let no more go.
    Budget,
    /// Pods that move, or that wait, have got a place on it.
    TakesPods,
    /// The steps were used up before its turn came.
    Undecided,
}

impl Certificate {
    /// For a machine that brings so much at most, whatever is tried; `None` if that may be enough.
    pub(super) fn by_bound(most: i128, machine: &CouldGo) -> Option<Self> {
        match most {
            _ if most >= machine.wanted => None,
            ..1 => Some(Self::WorthItsPrice { most: nano(most) }),
            _ => Some(Self::CannotPay { most: nano(most), wanted: nano(machine.wanted) }),
        }
    }
}

/// Looks at all that are in none of the sets, beside these.
pub(super) fn of_the_rest(
    trials: &mut Trials<'_, '_>,
    bounds: &Bounds,
    sets: &[Vec<usize>],
) -> BTreeMap<usize, Certificate> {
    trials.refill(CONSOLIDATION_STEPS);
    let mark = trials.packing.mark();
    let (machines, mut left) = (trials.question.machines, trials.question.left.clone());
    // Together, since some only pay beside others.
    trials.accept(&sets.concat());
    for &index in sets.iter().flatten() {
        left.take(machines, index);
    }
    let going: BTreeSet<usize> = sets.iter().flatten().copied().collect();
    let openings = bounds.openings_in(&trials.packing);
    let mut certificates = BTreeMap::new();
    for (index, machine) in machines.iter().enumerate().filter(|(index, _)| !going.contains(index)) {
        let most = bounds.most_beside(&openings, (trials.question, trials.pods), &[index]);
        let certificate = match Certificate::by_bound(most, machine) {
            Some(certificate) => certificate,
            None => alone(trials, index, machine, left.lets(machines, &[index])),
        };
        certificates.insert(index, certificate);
    }
    trials.packing.rollback(mark);
    certificates
}

fn alone(trials: &mut Trials<'_, '_>, index: usize, machine: &CouldGo, is_allowed: bool) -> Certificate {
    match trials.ask(&[index]) {
        Err(Obstacle::InUse) => Certificate::TakesPods,
        Err(Obstacle::NoPlace(class)) => {
            let snapshot = trials.packing.problem.snapshot;
            let of_class = machine.pods.iter().filter(|pod| trials.pods.class_of[**pod] == Some(class));
            let names = of_class.filter_map(|pod| snapshot.pods.try_get(*pod)).map(|pending| &pending.pod.name);
            names.min().map_or(Certificate::Undecided, |pod| Certificate::NoPlace(pod.clone()))
        }
        Err(Obstacle::NoSaving(added)) => Certificate::NoSaving(nano(added)),
        Err(Obstacle::OutOfSteps) => Certificate::Undecided,
        Ok(gain) if trials.pays(&[index], &gain) && !is_allowed => Certificate::Budget,
        Ok(gain) if trials.pays(&[index], &gain) => Certificate::Undecided,
        Ok(gain) => Certificate::NotAllowed { saving: gain.saving, launched: gain.launched },
    }
}
