//! An upper bound on what existing nodes and reserved machines are worth to the pods.
//!
//! Copies on an existing node pay nothing. For *any* prices ρ ≥ 0 with `ρ · requests_k ≥ w_k` for each kind that the
//! node takes, the copies on it are worth at most `ρ · room`. The prices of each site, scaled up until they cover all
//! kinds, are such prices, and so is a price on one resource alone; the least result counts. A node that could go has a
//! price as long as it stays, so it is worth no more than what is beyond that price.

use model::{IdSet, PriceNanoUsdPerHour, collections::FastMap};

use super::{
    KindId, Nodes, Relaxation,
    patterns::Patterns,
    solve::{ONE, ResourcePrices, at, pays},
};
use crate::simulation::compile::problem::Problem;
use crate::snapshot::NodeId;
use crate::tuning::{PATTERN_STEPS, ROOMS_COVERED};

/// Prices of resources that cover what kinds are worth: by dimension, scaled by a factor in parts of 2³².
struct Cover<'p> {
    prices: std::borrow::Cow<'p, [i128]>,
    factor: i128,
}

/// By the kinds that a room takes and what there is: what it is worth, and the steps that it took to find that.
pub(super) type Rooms = FastMap<(IdSet<KindId>, Vec<i64>), (i128, u64)>;

/// What is free on a node: the kinds that it takes a copy of, and how much there is.
pub(super) type FreeRoom = (IdSet<KindId>, Vec<i64>);

/// What rooms are worth by the best pattern that they hold: of a kind of machine there are many nodes.
pub(super) struct WholeRooms<'p> {
    patterns: &'p Patterns,
    /// Whose search has come to its end.
    known: Rooms,
    /// What was found in this bound, whether its search came to an end or not.
    now: FastMap<(IdSet<KindId>, Vec<i64>), i128>,
    steps: u64,
}

impl<'p> WholeRooms<'p> {
    /// Rooms that are known from before are not searched again.
    pub(super) fn new(patterns: &'p Patterns, known: Rooms) -> Self {
        Self { patterns, known, now: FastMap::default(), steps: PATTERN_STEPS }
    }

    /// What is known of the rooms that this bound has asked about.
    pub(super) fn known(self) -> Rooms {
        let Self { mut known, now, .. } = self;
        known.retain(|room, _| now.contains_key(room));
        known
    }

    /// No more than `most`, and no more than the best pattern if that is looked at.
    fn at_most(this: &mut Option<&mut Self>, takes: &IdSet<KindId>, room: &[i64], worth: &[i64], most: i128) -> i128 {
        let Some(Self { patterns, known, now, steps }) = this else { return most };
        let key = (takes.clone(), room.to_vec());
        if let Some(of_pattern) = now.get(&key) {
            return most.min(*of_pattern);
        }
        let of_pattern = match known.get(&key) {
            // As if it had been searched: a search that would not have come to its end is not to know the end.
            Some((of_pattern, took)) if *took < *steps => {
                *steps -= took;
                *of_pattern
            }
            _ if *steps == 0 => i128::MAX,
            _ => {
                let before = *steps;
                let found = patterns.most(takes, room, worth, steps).worth;
                if *steps > 0 {
                    known.insert(key.clone(), (found, before - *steps));
                }
                found
            }
        };
        now.insert(key, of_pattern);
        most.min(of_pattern)
    }
}

impl Relaxation {
    pub(super) fn worth_of_all(&self, worth: &[i64]) -> i128 {
        self.kinds.iter().zip(worth).map(|(kind, &worth)| i128::from(worth) * i128::from(kind.copies)).sum()
    }

    /// The bound: what all copies are worth, less the most that room can be worth on existing nodes, on reserved
    /// machines, and, beyond their price, on nodes that could go.
    pub(super) fn bound(
        &self,
        nodes: Nodes<'_>,
        prices: &ResourcePrices,
        worth: &[i64],
        whole: Option<&mut WholeRooms<'_>>,
    ) -> PriceNanoUsdPerHour {
        let Nodes { problem, devices, could_go } = nodes;
        let mut whole = whole;
        let mut bound = self.worth_of_all(worth);
        let mut covers: FastMap<IdSet<KindId>, Vec<Cover<'_>>> = FastMap::default();
        let mut elsewhere = IdSet::with_len(self.kinds.len());
        let costs: IdSet<NodeId> = could_go.iter().map(|node| node.node).collect();
        for node in problem.node_order.iter().copied().filter(|node| !costs.contains(*node)) {
            if bound <= 0 {
                return PriceNanoUsdPerHour(0);
            }
            let Some((takes, room)) = self.free_room(nodes, node) else { continue };
            elsewhere.union_with(&takes);
            let covers = covers.entry(takes.clone()).or_insert_with(|| self.covers(&takes, prices, worth));
            bound -=
                WholeRooms::at_most(&mut whole, &takes, &room, worth, self.room_worth(&takes, &room, covers, worth));
        }
        for node in could_go {
            let room = self.amounts(&node.room, &devices.on_node_without_pods(node));
            let mut takes = IdSet::with_len(self.kinds.len());
            // Pods that run there may stay even where a taint or rule keeps others out.
            takes.extend(self.kinds.ids().filter(|&kind| self.fits(kind, &room)));
            elsewhere.union_with(&takes);
            let covers = covers.entry(takes.clone()).or_insert_with(|| self.covers(&takes, prices, worth));
            let most = self.room_worth(&takes, &room, covers, worth);
            bound -= (WholeRooms::at_most(&mut whole, &takes, &room, worth, most) - node.price).max(0);
        }
        for reserved in &self.reserved {
            let covers = self.covers(&reserved.site.takes, prices, worth);
            let one = self.room_worth(&reserved.site.takes, &reserved.site.holds, &covers, worth);
            let gain = (one - i128::from(reserved.site.price.0)).max(0);
            bound -= gain * i128::from(self.left_of(problem, reserved));
        }
        let bound = bound.max(0) + self.whole.beyond(&self.kinds, worth, &elsewhere);
        PriceNanoUsdPerHour(i64::try_from(bound).unwrap_or(i64::MAX))
    }

    /// Of all nodes that take a copy of some kind.
    pub(super) fn free_rooms(&self, nodes: Nodes<'_>) -> Vec<FreeRoom> {
        nodes.problem.node_order.iter().filter_map(|&node| self.free_room(nodes, node)).collect()
    }

    /// What free rooms are worth at most: pods that move there, whichever they are, are worth no more together.
    pub(super) fn free_worth(&self, rooms: &[FreeRoom], prices: &ResourcePrices, worth: &[i64]) -> i128 {
        let mut covers: FastMap<&IdSet<KindId>, Vec<Cover<'_>>> = FastMap::default();
        let all: IdSet<KindId> = self.kinds.ids().collect();
        rooms.iter().fold(0, |sum, (takes, room)| {
            let covered = if covers.contains_key(takes) || covers.len() < ROOMS_COVERED { takes } else { &all };
            let covers = covers.entry(covered).or_insert_with(|| self.covers(covered, prices, worth));
            sum.saturating_add(self.room_worth(takes, room, covers, worth))
        })
    }

    /// What is free on a node beside its pods, and which kinds that takes a copy of; `None` if it takes none.
    fn free_room(&self, nodes: Nodes<'_>, node: NodeId) -> Option<FreeRoom> {
        let Nodes { problem, devices, .. } = nodes;
        let room = self.amounts(&problem.room[node], &devices.on_node(node));
        let mut takes = IdSet::with_len(self.kinds.len());
        for (class, kind) in self.kind_of.iter_enumerated() {
            if let Some(kind) = *kind
                && self.fits(kind, &room)
                && problem.node_accepts(class, node)
            {
                takes.insert(kind);
            }
        }
        (!takes.is_empty()).then_some((takes, room))
    }

    fn left_of(&self, problem: &Problem<'_>, reserved: &super::Reserved) -> i64 {
        let known = problem.reservations.iter().find(|(id, _)| *id == reserved.id);
        known.map_or(reserved.remaining, |(_, left)| *left).max(0)
    }

    fn fits(&self, kind: KindId, room: &[i64]) -> bool {
        self.kinds[kind].requests.iter().zip(room).all(|(amount, room)| amount <= room)
    }

    fn covers<'p>(&self, takes: &IdSet<KindId>, prices: &'p ResourcePrices, worth: &[i64]) -> Vec<Cover<'p>> {
        let cover = |prices: std::borrow::Cow<'p, [i128]>| {
            let mut factor = 0;
            for kind in takes.iter() {
                let worth = i128::from(at(worth, kind).copied().unwrap_or(0));
                let paid = pays(&self.kinds[kind].requests, &prices);
                if worth > 0 && paid <= 0 {
                    return None;
                }
                if worth > 0 {
                    // Rounded up: a cover must not be too cheap.
                    factor = factor.max((worth * ONE).saturating_mul(ONE) / paid + 1);
                }
            }
            Some(Cover { prices, factor })
        };
        let alone = (0..self.dimensions.len()).map(|dimension| {
            let price = |index| if index == dimension { ONE } else { 0 };
            std::borrow::Cow::Owned((0..self.dimensions.len()).map(price).collect())
        });
        let of_sites = prices.iter().map(|prices| std::borrow::Cow::Borrowed(prices.as_slice()));
        of_sites.chain(alone).filter_map(cover).collect()
    }

    fn room_worth(&self, takes: &IdSet<KindId>, room: &[i64], covers: &[Cover<'_>], worth: &[i64]) -> i128 {
        let each_alone = takes.iter().map(|kind| {
            let of_kind = &self.kinds[kind];
            let times = of_kind.requests.iter().zip(room).filter(|(amount, _)| **amount > 0);
            let copies = times
                .map(|(amount, room)| room / amount)
                .min()
                .map_or(of_kind.copies, |most| u64::try_from(most).unwrap_or(0).min(of_kind.copies));
            i128::from(copies) * i128::from(at(worth, kind).copied().unwrap_or(0))
        });
        let covered = covers.iter().map(|cover| {
            let priced = pays(room, &cover.prices);
            // Two factors of 2³², divided away one by one so that nothing overflows.
            (priced / ONE + 1).saturating_mul(cover.factor) / ONE + 1
        });
        covered.min().unwrap_or(i128::MAX).min(each_alone.fold(0, i128::saturating_add))
    }
}
