//! Rules of a command beside that it pays: spot machines, what has to be saved where pods are shared out anew, and the
//! policy Balanced.

use super::balanced::Balanced;
use super::eligible::Eligible;
use crate::disruption::candidates::Context;
use crate::disruption::reason::Unconsolidatable;
use crate::disruption::search::{NewMachine, nano};
use crate::snapshot::fleet::FleetNode;
use crate::tuning::{REGROUPING_SAVES, SPOT_TO_SPOT_TYPES};

pub(super) struct Rules<'a> {
    context: &'a Context<'a>,
    eligible: &'a Eligible<'a>,
    balanced: Balanced<'a>,
}

impl<'a> Rules<'a> {
    pub(super) fn new(context: &'a Context<'a>, eligible: &'a Eligible<'a>) -> Self {
        Self { context, eligible, balanced: Balanced::new(context) }
    }

    /// The rule against a command for these machines that would save so much and launch those.
    pub(super) fn forbids(&self, set: &[usize], saving: i128, launched: &[NewMachine]) -> Option<Unconsolidatable> {
        let machines = self.eligible.of(set);
        let spot = self.forbids_spot(&machines, launched);
        let spot = spot.or_else(|| self.forbids_regrouping(&machines, saving, launched.len()));
        spot.or_else(|| self.balanced.disapproves(self.context, &machines, saving))
    }

    /// Where pods of some machines are shared out anew over several others, a few do not come to their places before
    /// others have taken these, and what is launched for them costs more than a small saving. Karpenter launches one
    /// machine at most.
    fn forbids_regrouping(&self, machines: &[&FleetNode], saving: i128, launched: usize) -> Option<Unconsolidatable> {
        let cost: i128 = machines.iter().map(|machine| i128::from(machine.machine.price().unwrap_or_default().0)).sum();
        let wanted = cost / REGROUPING_SAVES;
        let is_too_little = launched > 1 && saving < wanted;
        is_too_little.then(|| Unconsolidatable::DoesNotPay { saving: nano(saving), wanted: nano(wanted) })
    }

    /// Spot machines are replaced by spot machines only if the gate is on, and one alone only if so many types are
    /// cheaper that the next one will not be replaced at once.
    fn forbids_spot(&self, machines: &[&FleetNode], launched: &[NewMachine]) -> Option<Unconsolidatable> {
        if !are_all_spot(machines) {
            return None;
        }
        let mut cheaper = launched.iter().filter_map(|machine| machine.cheaper_spot_types);
        let first = cheaper.next()?;
        if !self.context.snapshot.options.disruption.spot_to_spot_consolidation {
            return Some(Unconsolidatable::SpotToSpotOff);
        }
        let found = cheaper.fold(first, usize::min);
        (machines.len() == 1 && found < SPOT_TO_SPOT_TYPES).then_some(Unconsolidatable::TooFewCheaperTypes { found })
    }
}

/// Whether all of them are spot machines.
pub(super) fn are_all_spot(machines: &[&FleetNode]) -> bool {
    machines.iter().all(|machine| machine.machine.capacity_type.as_deref() == Some(api::labels::CAPACITY_TYPE_SPOT))
}
