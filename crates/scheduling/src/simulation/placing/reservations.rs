//! Reserved offerings: a few machines at a price of their own.
//!
//! While packing, an open machine counts against every reservation that an offering of it draws on, first come, first
//! served. What comes later and cannot do without is given room by machines that can ([`make_room`]); the exact search
//! tries for each machine which reservation it keeps, if any ([`Packing::ways_to_reserve`]).

use std::cmp::Reverse;

use model::{Answer, SearchEnd, ValueId};
use smallvec::{SmallVec, smallvec};

use super::fill::place;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::mode::Reserving;
use crate::simulation::packing::state::{BinId, State};

impl State {
    /// Whether nothing is left of a reservation.
    pub(crate) fn uses_up(&self, reservation: ValueId) -> bool {
        self.reservations_left().iter().any(|(id, left)| *id == reservation && *left <= 0)
    }
}

impl Packing<'_> {
    /// The choices that a new machine has: each reservation that it could draw on, then none.
    pub(crate) fn ways_to_reserve(&self, pool: PoolRank, alternative: &Alternative) -> SmallVec<[Reserving; 2]> {
        let left = self.state.reservations_left().iter().filter(|(_, left)| *left > 0);
        let open = left.filter(|(id, _)| self.problem.reserved(pool, *id).intersects(&alternative.offerings));
        let mut ways: SmallVec<[Reserving; 2]> = open.map(|(id, _)| Reserving::Only(*id)).collect();
        if ways.is_empty() {
            return smallvec![Reserving::All];
        }
        ways.push(Reserving::Nothing);
        ways
    }
}

/// Places up to `left` copies that have no place because reservations are used up. Machines that can do without a
/// reservation leave it, the cheapest change first. Returns how many copies are left.
pub(crate) fn make_room(packing: &mut Packing<'_>, class: ClassId, mut left: u32) -> Answer<u32> {
    let mut end = SearchEnd::default();
    for index in 0..packing.problem.reservations.len() {
        while left > 0 {
            let Some(&(reservation, remaining)) = packing.state.reservations_left().get(index) else { break };
            if remaining > 0 || !could_draw(packing.problem, class, reservation) {
                break;
            }
            let mark = packing.mark();
            let before = left;
            if leave_one(packing, reservation) {
                left = place(packing, class, left).part_of(&mut end);
            }
            if left == before {
                packing.rollback(mark);
                break;
            }
            packing.commit(mark);
        }
    }
    Answer::new(left, end)
}

fn could_draw(problem: &Problem<'_>, class: ClassId, reservation: ValueId) -> bool {
    problem.pools.iter_enumerated().any(|(pool, table)| {
        let mut ways = table.by_class[class].iter();
        ways.any(|way| problem.reserved(pool, reservation).intersects(&way.offerings))
    })
}

/// Lets the machine leave the reservation for which that costs least, of several the last; false if none can.
fn leave_one(packing: &mut Packing<'_>, reservation: ValueId) -> bool {
    let costs = |id: usize| Some((packing.price_without(BinId(id), reservation)?, Reverse(id)));
    let Some((_, Reverse(id))) = (0..packing.state.bins.len()).filter_map(costs).min() else { return false };
    packing.leave_reservation(BinId(id), reservation);
    true
}
