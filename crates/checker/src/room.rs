//! Whether pods could be placed at all, by trying: the other half of a refusal.
//!
//! Every pod goes onto every node, into every machine launched before it, and into a new machine from every offering,
//! as long as the filters that nothing later can mend let it in; at the end the arrangement is played. Exponential, so
//! for a handful of pods.

use model::Pod;
use scheduling::{
    Plan, Snapshot,
    catalogue::OfferingId,
    snapshot::{Limit, PodId, PoolId},
};

use crate::{
    devices, filter, launches,
    world::{Choice, Planned, World},
};

/// What became of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All of the pods can be placed at once.
    Found,
    /// No arrangement holds all of them.
    None,
    /// The search was given up.
    Undecided,
}

/// Whether `pods`, and no others that wait, can be placed at once. Labels that a NodePool leaves open take one of the
/// values that it lists; with endless lists the answer is "undecided" at best.
///
/// As the planner does, spreads count the domains of all machines that could be launched. That is stricter than
/// kube-scheduler, so what is found holds there too, and "none" is said of plans that do not hang on which machines
/// come.
pub fn room_for(snapshot: &Snapshot, pods: &[PodId], steps: u64) -> Room {
    let mut world = World::new(snapshot, &Plan::default(), Choice::default());
    if pods.iter().any(|&pod| snapshot.pods[pod].pod.shape.hard_spread().next().is_some()) {
        world.add_possible_machines();
    }
    let mut search = Search {
        snapshot,
        world,
        pods: pods.iter().map(|&pod| &*snapshot.pods[pod].pod).collect(),
        launched: Vec::new(),
        placed: Vec::new(),
        steps,
    };
    if search.pods.iter().any(|pod| filter::ended(snapshot, pod).is_some()) {
        return Room::None;
    }
    match search.place(0) {
        Some(true) => Room::Found,
        Some(false) => Room::None,
        None => Room::Undecided,
    }
}

struct Search<'s> {
    snapshot: &'s Snapshot,
    world: World<'s>,
    pods: Vec<&'s Pod>,
    launched: Vec<(PoolId, OfferingId)>,
    placed: Vec<usize>,
    steps: u64,
}

impl<'s> Search<'s> {
    fn place(&mut self, index: usize) -> Option<bool> {
        let Some(&pod) = self.pods.get(index) else { return Some(self.plays()) };
        for node in 0..self.world.nodes.len() {
            if self.world.node(node).is_only_possible {
                continue;
            }
            if self.enters(pod, node)? && self.descend(pod, node, index)? {
                return Some(true);
            }
        }
        let snapshot = self.snapshot;
        for (id, offering) in launches::possible(snapshot) {
            if !self.within_limits(id, offering) {
                continue;
            }
            for labels in World::labelings(snapshot, id, offering) {
                self.world.add_machine(id, offering, labels);
                self.launched.push((id, offering));
                let node = self.world.nodes.len() - 1;
                let found = match self.enters(pod, node) {
                    Some(true) => self.descend(pod, node, index),
                    other => other,
                };
                self.launched.pop();
                self.world.remove_machine();
                if found? {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    fn enters(&mut self, pod: &Pod, node: usize) -> Option<bool> {
        self.steps = self.steps.checked_sub(1)?;
        Some(filter::lasting(&self.world, pod, node).is_ok())
    }

    fn descend(&mut self, pod: &'s Pod, node: usize, index: usize) -> Option<bool> {
        self.world.bind(pod, node);
        self.placed.push(node);
        let found = self.place(index + 1);
        self.placed.pop();
        self.world.unbind();
        found
    }

    fn within_limits(&self, pool: PoolId, offering: OfferingId) -> bool {
        let node_pool = &self.snapshot.node_pools[pool];
        node_pool.remaining.iter().all(|entry| {
            let taken = |offering: OfferingId| match entry.limit {
                Limit::Nodes => 1,
                Limit::Resource(resource) => node_pool.catalogue.offerings[offering].capacity.get(resource),
            };
            let before = self.launched.iter().filter(|(launched, _)| *launched == pool).map(|(_, offering)| *offering);
            before.chain([offering]).map(taken).sum::<i64>() <= entry.remaining
        })
    }

    /// Whether pods with claims get their devices whichever of them comes first. An arrangement that lives from an
    /// order is none that a scheduler would find.
    fn plays_in_every_order(&mut self, planned: &[Planned<'s>]) -> bool {
        let before = self.world.choice.pools;
        let names = devices::PoolNames::of(self.snapshot);
        let plays = names.into_iter().all(|pools| {
            self.world.rename_pools(pools);
            self.plays_in_every_order_of_claims(planned)
        });
        self.world.rename_pools(before);
        plays
    }

    fn plays_in_every_order_of_claims(&mut self, planned: &[Planned<'s>]) -> bool {
        let with_claims = planned.iter().filter(|planned| devices::concern(self.snapshot, planned.pod));
        let orders = crate::orders_of(with_claims.map(|planned| &*planned.pod.shape));
        orders.into_iter().all(|order| {
            let mut waiting: Vec<Planned<'s>> = planned.to_vec();
            waiting.sort_by_key(|planned| order.iter().position(|kind| **kind == *planned.pod.shape));
            let all = waiting.len();
            let stuck = crate::let_in(&mut self.world, waiting, None, crate::Order::AsPlanned);
            for _ in 0..all - stuck.len() {
                self.world.unbind();
            }
            stuck.is_empty()
        })
    }

    /// Whether the arrangement can be bound in some order.
    fn plays(&mut self) -> bool {
        for _ in &self.placed {
            self.world.unbind();
        }
        let pods = self.pods.clone();
        let placed = self.placed.clone();
        let planned =
            || pods.iter().zip(&placed).map(|(&pod, &node)| Planned { pod, node, stage: 0 }).collect::<Vec<_>>();
        let begins = self.pods.iter().filter(|pod| !pod.shape.pod_affinity.required.is_empty());
        let firsts = std::iter::once(None).chain(begins.map(|pod| Some(*pod)));
        let orders = firsts.flat_map(|first| [(first, crate::Order::AsPlanned), (first, crate::Order::SpreadFirst)]);
        let orders: Vec<(Option<&Pod>, crate::Order)> = orders.collect();
        let mut found = false;
        for (first, order) in orders {
            let plan = planned();
            let stuck = crate::let_in(&mut self.world, plan, first, order);
            for _ in 0..self.placed.len() - stuck.len() {
                self.world.unbind();
            }
            if stuck.is_empty() && self.plays_in_every_order(&planned()) {
                found = true;
                break;
            }
        }
        for (&pod, &node) in self.pods.iter().zip(&self.placed) {
            self.world.bind(pod, node);
        }
        found
    }
}
