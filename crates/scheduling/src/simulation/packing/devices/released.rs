//! Releases claims whose only users leave their node.

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
    /// Releases claims of a node whose only users leave it: their devices are free again.
    pub(crate) fn release_claims(
        &mut self,
        of_problem: &ProblemDevices<'_>,
        node: NodeId,
        claims: &[ClaimId],
    ) -> BeforeRelease {
        let of_node = NodeBefore { node, ledger: None, drivers: None, version: self.of_nodes.get(&node).copied() };
        let before = BeforeRelease { of_node, version: self.version };
        for claim in claims {
            self.cluster.release(&of_problem.devices.inventory, *claim);
        }
        let version = self.new_version();
        self.of_nodes.insert(node, version);
        // From now on these claims can be allocated elsewhere too.
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

/// Two states are equal if they give the same answers; kept answers and the next version do not count.
#[cfg(test)]
impl PartialEq for DeviceState {
    fn eq(&self, other: &Self) -> bool {
        let rest = |state: &Self| format!("{:?} {:?}", state.spare, state.expected);
        self.cluster == other.cluster
            && self.of_nodes == other.of_nodes
            && self.version == other.version
            && self.held == other.held
            && rest(self) == rest(other)
    }
}
