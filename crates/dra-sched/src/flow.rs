//! Whether supplies can serve demands: a flow from demands to supplies, each of which has a limited amount.
//!
//! Units are given one at a time along augmenting paths, so the cost is units wanted × demands × offers.

/// How much a demand wants, and the most that each supply (by its position) could give it.
#[derive(Debug)]
pub(crate) struct Wants {
    pub(crate) wanted: usize,
    pub(crate) offers: Vec<(usize, usize)>,
}

/// Whether all demands get what they want from supplies of these amounts; `None` is unlimited.
pub(crate) fn serves(demands: &[Wants], supplies: &[Option<usize>]) -> bool {
    let given = demands.iter().map(|demand| vec![0; demand.offers.len()]).collect();
    let mut flow = Flow { demands, free: supplies.to_vec(), given };
    let mut visited = vec![false; supplies.len()];
    (0..demands.len()).all(|index| {
        let wanted = demands.get(index).map_or(0, |demand| demand.wanted);
        (0..wanted).all(|_| {
            visited.fill(false);
            flow.give_one(index, &mut visited)
        })
    })
}

struct Flow<'d> {
    demands: &'d [Wants],
    free: Vec<Option<usize>>,
    /// By demand and offer: how much is given.
    given: Vec<Vec<usize>>,
}

impl Flow<'_> {
    /// Gives a demand one more unit, and moves others to other supplies if that is needed.
    fn give_one(&mut self, index: usize, visited: &mut [bool]) -> bool {
        let demands = self.demands;
        let Some(demand) = demands.get(index) else { return false };
        for (position, &(supply, most)) in demand.offers.iter().enumerate() {
            let used = self.given.get(index).and_then(|given| given.get(position)).copied().unwrap_or(usize::MAX);
            let Some(seen) = visited.get_mut(supply).filter(|seen| used < most && !**seen) else { continue };
            *seen = true;
            let has_room = match self.free.get_mut(supply) {
                Some(None) => true,
                Some(Some(0)) | None => false,
                Some(Some(left)) => {
                    *left -= 1;
                    true
                }
            };
            if has_room || self.move_one(index, supply, visited) {
                if let Some(slot) = self.given.get_mut(index).and_then(|given| given.get_mut(position)) {
                    *slot += 1;
                }
                return true;
            }
        }
        false
    }

    /// Takes one unit of a supply from another demand that can have it from somewhere else.
    fn move_one(&mut self, index: usize, supply: usize, visited: &mut [bool]) -> bool {
        for (other, demand) in self.demands.iter().enumerate().filter(|(other, _)| *other != index) {
            let Some(position) = demand.offers.iter().position(|offer| offer.0 == supply) else { continue };
            let given = self.given.get(other).and_then(|given| given.get(position)).copied().unwrap_or(0);
            if given == 0 || !self.give_one(other, visited) {
                continue;
            }
            if let Some(slot) = self.given.get_mut(other).and_then(|given| given.get_mut(position)) {
                *slot -= 1;
            }
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether any way of dealing out serves all, by trying each.
    fn brute_force(demands: &[Wants], free: &mut [Option<usize>]) -> bool {
        fn deal(demands: &[Wants], offer: usize, left: usize, free: &mut [Option<usize>]) -> bool {
            let Some((demand, rest)) = demands.split_first() else { return true };
            let Some(&(supply, most)) = demand.offers.get(offer) else {
                return left == 0 && deal(rest, 0, rest.first().map_or(0, |next| next.wanted), free);
            };
            (0..=most.min(left).min(free[supply].unwrap_or(usize::MAX))).any(|count| {
                let before = free[supply];
                free[supply] = before.map(|before| before - count);
                let served = deal(demands, offer + 1, left - count, free);
                free[supply] = before;
                served
            })
        }
        deal(demands, 0, demands.first().map_or(0, |demand| demand.wanted), free)
    }

    proptest! {
        #[test]
        fn it_serves_exactly_what_some_way_of_dealing_out_does(
            demands in prop::collection::vec((0..4_usize, prop::collection::btree_map(0..3_usize, 0..4_usize, 0..3)), 0..4),
            supplies in prop::collection::vec(prop::option::weighted(0.9, 0..4_usize), 3),
        ) {
            let demands: Vec<Wants> = demands
                .into_iter()
                .map(|(wanted, offers)| Wants { wanted, offers: offers.into_iter().collect() })
                .collect();
            let served = serves(&demands, &supplies);
            let mut free = supplies;
            prop_assert_eq!(served, brute_force(&demands, &mut free));
        }
    }
}
