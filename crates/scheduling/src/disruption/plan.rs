//! What disruption plans, as data: commands, and one reason for each machine.
//!
//! Order: commands of emptiness by node, then those of drift, that which drifted first first, then those of
//! consolidation, that which saves most first, then those of static NodePools, by their names and by drift; nodes, pods
//! and reasons by name.

use std::sync::Arc;

use model::{NodePoolName, PriceNanoUsdPerHour};

use super::reason::NodeReason;
use crate::plan::{MachineId, Plan};
use crate::snapshot::eviction::EvictionCost;
use crate::snapshot::fleet::{BudgetFault, Reason};
use crate::snapshot::{NodeId, PodId, Snapshot};

/// What to do about the machines of one snapshot.
#[derive(Debug, Clone, Default)]
pub struct DisruptionPlan {
    /// What is to be done, each by itself and at any time beside the others.
    pub commands: Vec<Command>,
    /// Why each machine goes or stays.
    pub node_reasons: Vec<(NodeId, NodeReason)>,
    /// How many nodes each NodePool lets go, by name.
    pub pools: Vec<PoolAllowance>,
    /// What the machines cost.
    pub fleet_price: FleetPrice,
    /// With machines that may not go as they are, no fleet costs less in which all pods have a place: a lower bound, by
    /// linear relaxation. `None` if no machine could go to save something, while pods wait for machines of their own,
    /// and where nodes cost something besides their machines.
    pub fleet_bound: Option<PriceNanoUsdPerHour>,
    /// What commands with pods that move come from; `None` if there are none.
    pub simulated: Option<Arc<Simulated>>,
}

/// Machines that go together, and what takes their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Why.
    pub reason: Reason,
    /// The machines that go, by name.
    pub nodes: Vec<NodeId>,
    /// The machines that have to be there first, of [`Simulated::plan`].
    pub replacements: Vec<MachineId>,
    /// The static NodePool of theirs, by whose template a machine has to be there first in the place of each. No pod
    /// decides about that, so none is placed: `moves` and `replacements` are empty.
    pub static_pool: Option<NodePoolName>,
    /// The pods that have to be placed elsewhere, by name.
    pub moves: Vec<Move>,
    /// What the machines cost less than their replacements by the hour; below zero if they cost more. A machine whose
    /// price is not known counts as free.
    pub saving: PriceNanoUsdPerHour,
    /// What the evictions cost.
    pub eviction_cost: EvictionCost,
}

impl Command {
    /// Whether nothing has to be launched first.
    pub fn only_deletes(&self) -> bool {
        self.replacements.is_empty() && self.static_pool.is_none()
    }
}

/// A pod that is placed elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The pod, of [`Simulated::snapshot`].
    pub pod: PodId,
    /// The machine that goes.
    pub from: NodeId,
    /// Where its successor has a place.
    pub to: Place,
}

/// A place for a pod that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A node that is there.
    Node(NodeId),
    /// A machine that takes the place of others, of [`Simulated::plan`].
    Machine(MachineId),
}

/// What would be if the machines of all commands went: the pods that move wait for a place, and have got one.
#[derive(Debug)]
pub struct Simulated {
    /// The snapshot, with the machines as if they were being deleted. Its nodes have the ids of the plan's.
    pub snapshot: Snapshot,
    /// Where all pods go that wait in it, those that waited before included.
    pub plan: Plan,
}

/// How many nodes of a NodePool may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolAllowance {
    /// The NodePool.
    pub name: NodePoolName,
    /// Its nodes that count.
    pub nodes: u32,
    /// How many of these are being disrupted already, or are not ready.
    pub disrupted: u32,
    /// How many commands of the plan take.
    pub taken: u32,
    /// How many may be disrupted at once for each reason that something is planned for; `None` if nothing limits them.
    pub allowed: Vec<(Reason, Option<u32>)>,
    /// Budgets that cannot be read and that therefore allow none.
    pub faults: Vec<BudgetFault>,
}

/// What the machines cost by the hour, those left out that are being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FleetPrice {
    /// How many there are.
    pub nodes: usize,
    /// What they cost now.
    pub before: PriceNanoUsdPerHour,
    /// What they and their replacements cost once all commands are carried out.
    pub after: PriceNanoUsdPerHour,
    /// How many of them have no known price and count as free.
    pub unknown: usize,
}
