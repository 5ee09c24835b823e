//! Where DaemonSets' pods run.
//!
//! Which daemons run on a node is the DaemonSet controller's decision, not kube-scheduler's score: node selector,
//! required node affinity (any of its terms) and taints, with the tolerations that the controller adds (`decode` puts
//! these into the DaemonSet's shape). A daemon whose affinity depends on a label that is still open counts as running.

use std::sync::Arc;

use api::labels;
use model::{Interner, PodShape, workload::DaemonSet};

use super::affinity::{accepts_unknown, terms, untolerated};
use super::{Node, NodePool};
use crate::catalogue::OfferingId;

/// Whether a daemon could run on a machine of a pool from an offering.
pub(crate) fn can_run(pool: &NodePool, offering: OfferingId, shape: &PodShape, names: &Interner) -> bool {
    let hostname = names.find_key(labels::HOSTNAME);
    untolerated(&pool.taints, &shape.tolerations, names).is_none()
        && terms(shape, names).iter().any(|term| {
            term.node_name.as_ref().is_none_or(accepts_unknown)
                && term.requirements.iter().all(|wanted| {
                    pool.can_have(Some(offering), (wanted.key, Some(wanted.key) == hostname), &wanted.values, names)
                })
        })
}

/// The daemons that the DaemonSet controller will make pods of for an existing node, and has not yet.
pub(crate) fn missing_sets<'d>(
    node: &Node,
    daemon_sets: &'d [Arc<DaemonSet>],
    names: &Interner,
) -> impl Iterator<Item = &'d Arc<DaemonSet>> {
    daemon_sets.iter().filter(move |set| {
        let shape = &set.template.shape;
        let is_there = node.pods.daemons().iter().any(|pod| {
            pod.name.namespace == set.name.namespace
                && pod.owner.as_ref().is_some_and(|owner| *owner.name == *set.name.name)
        });
        !is_there
            && untolerated(&node.taints, &shape.tolerations, names).is_none()
            && terms(shape, names).iter().any(|term| term.accepts(node, names))
    })
}
