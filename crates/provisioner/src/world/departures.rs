//! Where pods go whose Nodes are being deleted, as the last plan has it.
//!
//! The drain of a machine that the cloud takes back waits for the machines that take its pods. What these are is known
//! to provisioning alone, and written down only where they were launched for these very pods. After a restart the first
//! plan tells it anew.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeClaimName, NodeName, Uid};
use parking_lot::Mutex;

/// What the last plan says of the Nodes that were being deleted.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    last: Mutex<Departing>,
}

/// Nodes whose pods were planned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Departing {
    /// The Nodes. One that is missing is planned with the next plan.
    pub nodes: BTreeSet<NodeName>,
    /// The places of their pods; none for a pod that has no place, or one beside machines of ours.
    pub places: BTreeMap<Uid, NodeClaimName>,
}

impl Departures {
    /// Takes what a plan says in place of what the one before said.
    pub(crate) fn note(&self, departing: Departing) {
        *self.last.lock() = departing;
    }

    /// The places of these pods of a Node; `None` if no plan was made since it is being deleted.
    pub(crate) fn places<'p>(
        &self,
        node: &NodeName,
        pods: impl IntoIterator<Item = &'p Uid>,
    ) -> Option<Vec<(&'p Uid, NodeClaimName)>> {
        let last = self.last.lock();
        let place = |pod: &'p Uid| Some((pod, last.places.get(pod)?.clone()));
        last.nodes.contains(node).then(|| pods.into_iter().filter_map(place).collect())
    }
}
