//! The room that DaemonSets take: on machines that do not exist yet, and on nodes whose daemons have not come up. Where
//! they run [`crate::snapshot::daemons`] says.
//!
//! A daemon that does not get its devices somewhere takes nothing there: [`crate::devices`] says where that is.

use std::{borrow::Cow, sync::Arc};

use model::{IdSet, IdVec, Interner, PodShape, Requirement, ResourceVec, pod::HostPort, workload::DaemonSet};

use super::{
    catalogue_index::{CatalogueIndex, Lookups, Net},
    pools::PoolTable,
};
use crate::{
    catalogue::OfferingId,
    snapshot::{
        NodeId, Snapshot,
        affinity::{Term, accepts_unknown, terms, untolerated},
        daemons::missing_sets,
    },
};

/// What offerings hold beside all daemons that would run on their machines, or less where machines turned out to.
pub(crate) fn net(
    table: &PoolTable<'_>,
    index: &CatalogueIndex<'_>,
    lookups: &mut Lookups,
    snapshot: &Snapshot,
) -> Arc<Net> {
    let sets = snapshot.daemon_sets.iter();
    let running = sets.flat_map(|set| taking(table, lookups, set, snapshot)).collect();
    let net = index.net(lookups, running, &snapshot.interner);
    if table.pool.observed_room.is_empty() {
        return net;
    }
    let mut rooms = net.net.clone();
    for (instance_type, observed) in &table.pool.observed_room {
        for offering in table.catalogue.offerings_of(*instance_type) {
            for &(resource, amount) in observed {
                let computed = rooms[offering].get(resource);
                rooms[offering].set(resource, computed.min(amount));
            }
        }
    }
    Arc::new(Net::new(rooms, net.daemons.clone(), &snapshot.interner))
}

/// Host ports of all daemons that would run on a machine from each offering.
pub(crate) fn ports(
    table: &PoolTable<'_>,
    lookups: &mut Lookups,
    snapshot: &Snapshot,
) -> IdVec<OfferingId, Vec<HostPort>> {
    let mut ports = IdVec::filled(Vec::new(), table.catalogue.offerings.len());
    let has_ports = |set: &&Arc<DaemonSet>| !set.template.shape.host_ports.is_empty();
    for set in snapshot.daemon_sets.iter().filter(has_ports) {
        for offering in taking(table, lookups, set, snapshot).iter().flat_map(|(_, running)| running.iter()) {
            ports[offering].extend(&set.template.shape.host_ports);
        }
    }
    ports
}

/// What a daemon requests on which machines. It requests the same on all, unless it wants devices.
fn taking<'s>(
    table: &PoolTable<'_>,
    lookups: &mut Lookups,
    set: &'s DaemonSet,
    snapshot: &'s Snapshot,
) -> Vec<(Cow<'s, ResourceVec>, IdSet<OfferingId>)> {
    let running = running_on(table, lookups, &set.template.shape, &snapshot.interner);
    let wants_devices = snapshot.devices.as_ref().filter(|devices| devices.is_daemon_with_devices(set));
    let Some(devices) = wants_devices else { return vec![(Cow::Borrowed(&set.template.shape.requests), running)] };
    let mut taking: Vec<(Cow<'s, ResourceVec>, IdSet<OfferingId>)> = Vec::new();
    for offering in running.iter() {
        let offered = &table.catalogue.offerings[offering];
        let place = (table.id, offered.instance_type);
        let Some(requests) = devices.daemon_requests(set, place, &offered.allocatable) else { continue };
        match taking.iter_mut().find(|(known, _)| *known == requests) {
            Some((_, offerings)) => drop(offerings.insert(offering)),
            None => taking.push((requests, [offering].into_iter().collect())),
        }
    }
    taking
}

/// The offerings, launchable now or not, on whose machines a daemon would run if the pool allows them.
fn running_on(table: &PoolTable<'_>, lookups: &mut Lookups, shape: &PodShape, names: &Interner) -> IdSet<OfferingId> {
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
            by_term.intersect_with(&table.having(lookups, (wanted.key, &wanted.values), names));
        }
        running.union_with(&by_term);
    }
    running
}

/// What machines from offerings that a pool does not allow would hold beside daemons. All daemons count whose terms the
/// offering's own labels satisfy.
pub(crate) struct NetIfAllowed<'s> {
    snapshot: &'s Snapshot,
    /// The sets that tolerate the pool's taints.
    sets: Vec<(&'s DaemonSet, Vec<Term>)>,
    net: IdVec<OfferingId, Option<ResourceVec>>,
}

impl<'s> NetIfAllowed<'s> {
    pub(crate) fn new(table: &PoolTable<'_>, snapshot: &'s Snapshot) -> Self {
        let names = &*snapshot.interner;
        let tolerates = |shape: &PodShape| untolerated(&table.pool.taints, &shape.tolerations, names).is_none();
        let sets = snapshot.daemon_sets.iter().map(AsRef::as_ref).filter(|set| tolerates(&set.template.shape));
        let sets = sets.map(|set| (set, terms(&set.template.shape, names))).collect();
        Self { snapshot, sets, net: IdVec::filled(None, table.catalogue.offerings.len()) }
    }

    /// Worked out once for each offering.
    pub(crate) fn of(&mut self, table: &PoolTable<'_>, offering: OfferingId) -> &ResourceVec {
        let Self { snapshot, sets, net } = self;
        net[offering].get_or_insert_with(|| Self::look(sets, table, offering, snapshot))
    }

    fn look(
        sets: &[(&'s DaemonSet, Vec<Term>)],
        table: &PoolTable<'_>,
        offering: OfferingId,
        snapshot: &Snapshot,
    ) -> ResourceVec {
        let names = &*snapshot.interner;
        let offered = &table.catalogue.offerings[offering];
        let accepts = |wanted: &Requirement| match offered.requirements.get(wanted.key) {
            Some(offered) => offered.values.intersects(&wanted.values, names),
            None => table.can_have(None, wanted.key, &wanted.values, names),
        };
        let lets_in =
            |term: &Term| term.node_name.as_ref().is_none_or(accepts_unknown) && term.requirements.iter().all(accepts);
        let mut net = offered.allocatable.clone();
        for &(set, _) in sets.iter().filter(|(_, terms)| terms.iter().any(lets_in)) {
            let devices = snapshot.devices.as_ref().filter(|devices| devices.is_daemon_with_devices(set));
            let requests = match devices {
                Some(devices) => devices.daemon_requests(set, (table.id, offered.instance_type), &offered.allocatable),
                None => Some(Cow::Borrowed(&set.template.shape.requests)),
            };
            if let Some(requests) = requests {
                net.saturating_sub_assign(&requests);
            }
        }
        net
    }
}

/// Requests of the daemons that will run on an existing node and have no pod there yet.
pub(crate) fn missing(id: NodeId, snapshot: &Snapshot) -> ResourceVec {
    let mut missing = ResourceVec::default();
    for (_, requests) in missing_with_requests(id, snapshot) {
        missing.saturating_add_assign(&requests);
    }
    missing
}

/// The daemons that will run on an existing node and have no pod there yet.
pub(crate) fn missing_shapes(id: NodeId, snapshot: &Snapshot) -> impl Iterator<Item = &PodShape> {
    missing_with_requests(id, snapshot).map(|(set, _)| &*set.template.shape)
}

fn missing_with_requests(
    id: NodeId,
    snapshot: &Snapshot,
) -> impl Iterator<Item = (&Arc<DaemonSet>, Cow<'_, ResourceVec>)> {
    let node = &snapshot.nodes[id];
    missing_sets(node, &snapshot.daemon_sets, &snapshot.interner).filter_map(move |set| {
        let requests = match &snapshot.devices {
            Some(devices) => devices.daemon_requests_on(set, id, &node.allocatable)?,
            None => Cow::Borrowed(&set.template.shape.requests),
        };
        Some((set, requests))
    })
}
