//! Whether pods could be placed at all, by trying: the other half of a refusal.
//!
//! Every pod goes onto every node, into every machine launched before it, and into a new machine from every offering, as
//! long as the filters that nothing later can mend let it in; at the end the arrangement is played. Exponential, so for
//! a handful of pods.

use model::Pod;
use scheduling::{
    Plan, Snapshot,
    catalogue::OfferingId,
    snapshot::{Limit, PodId, PoolId},
};

use crate::{
    filter,
    world::{Planned, World},
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
pub fn room_for(snapshot: &Snapshot, pods: &[PodId], steps: u64) -> Room {
    let mut search = Search {
        snapshot,
        world: World::new(snapshot, &Plan::default(), 0),
        pods: pods.iter().map(|&pod| &*snapshot.pods[pod].pod).collect(),
        launched: Vec::new(),
        placed: Vec::new(),
        steps,
    };
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
            if self.enters(pod, node)? && self.descend(pod, node, index)? {
                return Some(true);
            }
        }
        let snapshot = self.snapshot;
        for (id, pool) in snapshot.node_pools.iter_enumerated().filter(|(_, pool)| pool.usable.is_ok()) {
            for (offering, offered) in pool.catalogue.offerings.iter_enumerated() {
                let allowed = pool.requirements.iter().all(|wanted| {
                    let offered = offered.requirements.get(wanted.key);
                    offered.is_none_or(|offered| offered.values.intersects(&wanted.values, &snapshot.interner))
                });
                if !allowed || !offered.launchable() || !self.within_limits(id, offering) {
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
                    self.world.nodes.pop();
                    if found? {
                        return Some(true);
                    }
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
        self.world.nodes[node].pods.pop();
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

    /// Whether the arrangement can be bound in some order.
    fn plays(&mut self) -> bool {
        for &node in &self.placed {
            self.world.nodes[node].pods.pop();
        }
        let planned =
            || self.pods.iter().zip(&self.placed).map(|(&pod, &node)| Planned { pod, node }).collect::<Vec<_>>();
        let firsts: Vec<Option<&Pod>> = std::iter::once(None)
            .chain(self.pods.iter().filter(|pod| !pod.shape.pod_affinity.required.is_empty()).map(|pod| Some(*pod)))
            .collect();
        let mut found = false;
        for first in firsts {
            let plan = planned();
            let counts: Vec<usize> = self.world.nodes.iter().map(|node| node.pods.len()).collect();
            let stuck = crate::let_in(&mut self.world, plan, first, crate::Order::AsPlanned);
            for (node, count) in self.world.nodes.iter_mut().zip(counts) {
                node.pods.truncate(count);
            }
            if stuck.is_empty() {
                found = true;
                break;
            }
        }
        for (&pod, &node) in self.pods.iter().zip(&self.placed) {
            self.world.nodes[node].pods.push(pod);
        }
        found
    }
}
