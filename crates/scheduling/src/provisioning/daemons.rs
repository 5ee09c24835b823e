//! The room that DaemonSets take: on machines that do not exist yet, and on nodes whose daemons have not come up.
//!
//! Which daemons run on a node is the DaemonSet controller's decision, not kube-scheduler's score: node selector,
//! required node affinity (any of its terms) and taints, with the tolerations that the controller adds (`decode` puts
//! these into the DaemonSet's shape). A daemon whose affinity depends on a label that is still open counts as running.

use std::{rc::Rc, sync::Arc};

use model::{IdSet, IdVec, Interner, PodShape, ResourceVec, pod::HostPort, workload::DaemonSet};

use super::{
    affinity::{accepts_unknown, terms, untolerated},
    catalogue_index::{CatalogueIndex, Net},
    pools::PoolTable,
};
use crate::{catalogue::OfferingId, snapshot::Node};

/// What offerings hold beside all daemons that would run on their machines.
pub(crate) fn net(
    table: &PoolTable<'_>,
    index: &CatalogueIndex<'_>,
    daemon_sets: &[Arc<DaemonSet>],
    names: &Interner,
) -> Rc<Net> {
    let running = |daemon_set: &'_ Arc<DaemonSet>| running_on(table, &daemon_set.template.shape, names);
    let requests = daemon_sets.iter().map(|daemon_set| &daemon_set.template.shape.requests);
    index.net(requests.zip(daemon_sets.iter().map(running)).collect(), names)
}

/// Host ports of all daemons that would run on a machine from each offering.
pub(crate) fn ports(
    table: &PoolTable<'_>,
    daemon_sets: &[Arc<DaemonSet>],
    names: &Interner,
) -> IdVec<OfferingId, Vec<HostPort>> {
    let mut ports = IdVec::filled(Vec::new(), table.catalogue.offerings.len());
    for daemon_set in daemon_sets.iter().filter(|daemon_set| !daemon_set.template.shape.host_ports.is_empty()) {
        let shape = &daemon_set.template.shape;
        for offering in running_on(table, shape, names).iter() {
            ports[offering].extend(&shape.host_ports);
        }
    }
    ports
}

/// The offerings, launchable now or not, on whose machines a daemon would run if the pool allows them.
fn running_on(table: &PoolTable<'_>, shape: &PodShape, names: &Interner) -> IdSet<OfferingId> {
    let mut running = IdSet::with_len(table.catalogue.offerings.len());
    if untolerated(&table.pool.taints, &shape.tolerations, names).is_some() {
        return running;
    }
    for term in terms(shape, names) {
        if !term.node_name.as_ref().is_none_or(accepts_unknown) {
            continue;
        }
        let mut by_term = IdSet::full(table.catalogue.offerings.len());
        for wanted in term.requirements.iter() {
            by_term.intersect_with(&table.having(wanted.key, &wanted.values, names));
        }
        running.union_with(&by_term);
    }
    running
}

/// Requests of the daemons that will run on an existing node and have no pod there yet.
pub(crate) fn missing(node: &Node, daemon_sets: &[Arc<DaemonSet>], names: &Interner) -> ResourceVec {
    let mut missing = ResourceVec::default();
    for shape in missing_shapes(node, daemon_sets, names) {
        missing.saturating_add_assign(&shape.requests);
    }
    missing
}

/// The daemons that will run on an existing node and have no pod there yet.
pub(crate) fn missing_shapes<'d>(
    node: &Node,
    daemon_sets: &'d [Arc<DaemonSet>],
    names: &Interner,
) -> Vec<&'d PodShape> {
    let mut missing = Vec::new();
    for daemon_set in daemon_sets {
        let shape = &daemon_set.template.shape;
        let present = node.pods.iter().any(|pod| {
            pod.is_daemon
                && pod.name.namespace == daemon_set.name.namespace
                && pod.owner.as_ref().is_some_and(|owner| *owner.name == *daemon_set.name.name)
        });
        if present || untolerated(&node.taints, &shape.tolerations, names).is_some() {
            continue;
        }
        if terms(shape, names).iter().any(|term| term.accepts(node, names)) {
            missing.push(&**shape);
        }
    }
    missing
}
