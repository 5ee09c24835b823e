//! What a plan changes in the cluster, and what must still hold when it does.
//!
//! A plan is made from a snapshot, and the cluster goes on. An action therefore names what it relies on; whoever
//! carries it out looks at the cluster of that moment first and drops the action as a whole if anything of it no longer
//! holds. Provisioning creates; who takes nodes out of a cluster deletes.
//!
//! To replace nodes is no action. Its nodes may only go once the new machines are initialized, minutes later, so it is
//! a command that is written down in the cluster; its last step is a deletion.

use model::IdVec;

use super::{Machine, MachineId};
use crate::snapshot::{NodeId, PoolId};

/// A change to the cluster, dropped as a whole if anything that it relies on does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A NodeClaim is created.
    Create {
        /// What it is made from.
        machine: MachineId,
        /// What must still hold.
        preconditions: Vec<Precondition>,
    },
    /// The NodeClaims of these nodes are deleted, and their nodes drained.
    Delete {
        /// Nodes of ours.
        nodes: Vec<NodeId>,
        /// What must still hold.
        preconditions: Vec<Precondition>,
    },
}

/// What an action relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precondition {
    /// The NodePool is the object that the snapshot shows, with that spec, ready, and its limits are not used up by
    /// NodeClaims that the snapshot does not show.
    PoolUnchanged(PoolId),
    /// One of the machine's pods still waits, or a buffer with room on it still asks for it.
    StillWanted(MachineId),
    /// The node has its NodeClaim, and nobody deletes either.
    NodeStays(NodeId),
    /// No pod runs there that the snapshot does not show. DaemonSets' pods do not count.
    NoPodArrived(NodeId),
    /// Nothing forbids to evict the pods that run there.
    PodsMayLeave(NodeId),
}

impl Action {
    /// Creates a machine while its NodePool is as it was and somebody wants it.
    fn create(id: MachineId, machine: &Machine) -> Self {
        let preconditions = vec![Precondition::PoolUnchanged(machine.node_pool), Precondition::StillWanted(id)];
        Self::Create { machine: id, preconditions }
    }

    /// Creates each of the machines.
    pub fn create_each(machines: &IdVec<MachineId, Machine>) -> Vec<Self> {
        machines.iter_enumerated().map(|(id, machine)| Self::create(id, machine)).collect()
    }

    /// Deletes nodes whose pods, those that the snapshot shows, have a place elsewhere. One pod more, or one that may
    /// not leave any more, on any of the nodes keeps all of them.
    pub fn delete(nodes: Vec<NodeId>) -> Self {
        Self::delete_eventually(nodes, |_| false)
    }

    /// As [`Self::delete`]. A pod that may not leave does not keep a node which `ends_by_force`.
    pub fn delete_eventually(nodes: Vec<NodeId>, ends_by_force: impl Fn(NodeId) -> bool) -> Self {
        let of_node = |&id: &NodeId| {
            let may_leave = (!ends_by_force(id)).then_some(Precondition::PodsMayLeave(id));
            [Precondition::NodeStays(id), Precondition::NoPodArrived(id)].into_iter().chain(may_leave)
        };
        let preconditions = nodes.iter().flat_map(of_node).collect();
        Self::Delete { nodes, preconditions }
    }

    /// What must still hold, in the order in which it is looked at.
    pub fn preconditions(&self) -> &[Precondition] {
        match self {
            Self::Create { preconditions, .. } | Self::Delete { preconditions, .. } => preconditions,
        }
    }
}
