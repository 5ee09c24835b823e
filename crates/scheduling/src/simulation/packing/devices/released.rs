//! Devices of claims that only pods use which leave their node.

use dra_sched::ClaimId;

use super::{DeviceState, NodeBefore};
use crate::simulation::compile::devices::ProblemDevices;
use crate::snapshot::NodeId;

/// What changes besides the ledger where claims of a node are released.
#[derive(Debug)]
pub(crate) struct BeforeRelease {
    pub(crate) of_node: NodeBefore,
    version: u64,
}

impl DeviceState {
    /// Gives back what claims hold on a node that only pods use which leave it.
    pub(crate) fn release_claims(
        &mut self,
        of_problem: &ProblemDevices<'_>,
        node: NodeId,
        claims: &[ClaimId],
    ) -> BeforeRelease {
        let of_node = NodeBefore { node, ledger: None, version: self.of_nodes.get(&node).copied() };
        let before = BeforeRelease { of_node, version: self.version };
        for claim in claims {
            self.cluster.release(&of_problem.devices.inventory, *claim);
        }
        let version = self.new_version();
        self.of_nodes.insert(node, version);
        // Elsewhere the claims can be allocated too.
        self.version = self.new_version();
        before
    }

    /// Undoes [`Self::release_claims`] where that is not in a journal.
    pub(crate) fn take_back(&mut self, of_problem: &ProblemDevices<'_>, before: BeforeRelease, claims: &[ClaimId]) {
        for claim in claims {
            self.cluster.take_back(&of_problem.devices.inventory, *claim);
        }
        self.restore(before.of_node);
        self.version = before.version;
    }
}

/// States are equal that give the same answers; what is kept of these, and which number comes next, does not count.
#[cfg(test)]
impl PartialEq for DeviceState {
    fn eq(&self, other: &Self) -> bool {
        let rest = |state: &Self| format!("{:?} {:?} {:?}", state.spare, state.expected, state.held);
        self.cluster == other.cluster
            && self.of_nodes == other.of_nodes
            && self.version == other.version
            && rest(self) == rest(other)
    }
}
