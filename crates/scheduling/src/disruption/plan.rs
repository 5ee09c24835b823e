//! What disruption plans, as data: commands, and one reason for each machine.
//!
//! Order: commands of emptiness by node, then those of repair and drift, that which drifted first first, then those of
//! consolidation, that which saves most first, then those that terminate first to free a reservation, then those of
//! static NodePools, by their names and by drift; nodes, pods and reasons by name.

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
    /// The commands. They are independent: each can be carried out at any time, beside the others.
    pub commands: Vec<Command>,
    /// How NodePools with the policy `Balanced` score the commands that consolidate, by command and name.
    pub scores: Vec<CommandScore>,
    /// Why each machine is disrupted or stays.
    pub node_reasons: Vec<(NodeId, NodeReason)>,
    /// How many disruptions each NodePool allows, by name.
    pub pools: Vec<PoolAllowance>,
    /// The price of the fleet.
    pub fleet_price: FleetPrice,
    /// With machines that may not go as they are, no fleet costs less in which all pods have a place: a lower bound, by
    /// linear relaxation. `None` if no machine could go to save something, while pods wait for machines of their own,
    /// and where nodes cost something besides their machines.
    pub fleet_bound: Option<PriceNanoUsdPerHour>,
    /// Whether all that goes to save money was asked for before, so that nothing was looked for beside it: why others
    /// stay was not found out, nor a bound.
    pub is_asked_for: bool,
    /// The simulation behind commands with pods that move; `None` if there are none.
    pub simulated: Option<Arc<Simulated>>,
}

/// The score of a command for one NodePool with the policy `Balanced`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandScore {
    /// The command, by its position in the plan.
    pub command: usize,
    /// The NodePool.
    pub node_pool: NodePoolName,
    /// The saving as a part of what the NodePool costs, divided by the disruption as a part of what disrupting all of
    /// it would cost; in thousandths.
    pub score_permille: i64,
}

/// Machines that are removed together, and what takes their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Why they are removed.
    pub reason: Reason,
    /// The machines that are removed, by name.
    pub nodes: Vec<NodeId>,
    /// The machines of [`Simulated::plan`] that have to be ready first.
    pub replacements: Vec<MachineId>,
    /// For machines of a static NodePool, its name: each of them is replaced by a machine of its template, which has to
    /// be ready first. No pods are placed for that, so `moves` and `replacements` are empty.
    pub static_pool: Option<NodePoolName>,
    /// Why the machines go before anything is launched in their place. Whoever keeps their NodePools filled launches
    /// afterwards, so `moves` and `replacements` are empty.
    pub terminate_first: Option<TerminateFirst>,
    /// The pods that have to be placed elsewhere, by name.
    pub moves: Vec<Move>,
    /// The price of the machines less that of their replacements; below zero if the replacements cost more. A machine
    /// whose price is not known counts as free.
    pub saving: PriceNanoUsdPerHour,
    /// What the evictions cost.
    pub eviction_cost: EvictionCost,
}

impl Command {
    /// Whether nothing has to be launched first.
    pub fn only_deletes(&self) -> bool {
        self.replacements.is_empty() && self.launches_from().is_none()
    }

    /// The static NodePool of which one machine for each that goes has to be ready first.
    pub fn launches_from(&self) -> Option<&NodePoolName> {
        self.static_pool.as_ref().filter(|_| self.terminate_first.is_none())
    }
}

/// Why there is no room for a machine beside the one that it replaces (Karpenter 1.15, gates `TerminateFirstDrift` and
/// `TerminateFirstRepair`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TerminateFirst {
    /// Only reservations have what is wanted, and they are full until the machine gives its place back.
    NoReservedCapacity,
    /// Its static NodePool is at `limits.nodes`.
    StaticAtLimit,
}

impl TerminateFirst {
    /// As Karpenter's metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoReservedCapacity => "no-reserved-capacity",
            Self::StaticAtLimit => "static-at-limit",
        }
    }
}

/// A pod that is placed elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The pod, of [`Simulated::snapshot`].
    pub pod: PodId,
    /// The machine that it leaves.
    pub from: NodeId,
    /// The place of its successor.
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

/// The simulation of all commands: their machines are gone, and the pods that move are pending and have places.
#[derive(Debug)]
pub struct Simulated {
    /// The snapshot, with the machines as if they were being deleted. Its nodes have the ids of the plan's.
    pub snapshot: Snapshot,
    /// Where all pending pods go in it, those included that were pending before.
    pub plan: Plan,
}

/// How many nodes of a NodePool may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolAllowance {
    /// The NodePool.
    pub name: NodePoolName,
    /// How many nodes count for its budgets.
    pub nodes: u32,
    /// How many of these are being disrupted already, or are not ready.
    pub disrupted: u32,
    /// How many of those only because they are not ready, which does not count for the reason Unhealthy.
    pub unready: u32,
    /// How many the commands of the plan disrupt.
    pub taken: u32,
    /// How many may be disrupted at once for each reason that something is planned for; `None` if nothing limits them.
    pub allowed: Vec<(Reason, Option<u32>)>,
    /// Budgets that cannot be read and that therefore allow none.
    pub faults: Vec<BudgetFault>,
}

/// The price of all machines per hour. Machines that are being deleted are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FleetPrice {
    /// How many there are.
    pub nodes: usize,
    /// The price now.
    pub before: PriceNanoUsdPerHour,
    /// The price of the machines and replacements once all commands are carried out.
    pub after: PriceNanoUsdPerHour,
    /// How many of them have no known price and count as free.
    pub unknown: usize,
}
