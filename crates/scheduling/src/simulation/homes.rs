//! In which domains pods may come back that are moved to save money.
//!
//! A plan takes all pods of a command away at once and places them anew. In the cluster they are evicted one after the
//! other, and kube-scheduler binds each successor by what runs at that moment: where pods are spread with a skew of 1,
//! no order of evictions lets two pods change zones, and whoever comes too early takes a place that was planned for
//! another. Commands depend on each other in the same way, if only both together keep the skew. So a pod stays in its
//! domain if there is another into which the scheduler would not let it if it alone was evicted now. Rules over such
//! domains count it where it is throughout, and are no more asked about it.
//!
//! Hosts are left out: each machine is one, and those of a command are new.
//!
//! Differs: `one-eviction-at-a-time`. Karpenter plans pods into any domain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::collections::{FastMap, NameMap};
use model::{
    IdVec, Interner, KeyId, Labels, Pod, PodShape, Requirement, Requirements, ResourceVec, Uid, ValueId, ValueSet,
};

use crate::simulation::compile::classes::{self, ClassId, PodClass};
use crate::simulation::compile::request::Request;
use crate::simulation::topology::{AllCounts, Checking, DomainId, Group, GroupId, Involvement, Place, Scope, Topology};
use crate::snapshot::coupling::coupled_over;
use crate::snapshot::fleet::{Fleet, Moves};
use crate::snapshot::{NodeId, PendingPod, Snapshot};

/// By pod: labels of the domains in which it stays, for those that do.
#[derive(Debug, Default)]
pub(crate) struct Homes(NameMap<Uid, Arc<Requirements>>);

impl Homes {
    /// For all pods of the fleet that would have to move.
    pub(crate) fn new(snapshot: &Snapshot, fleet: &Fleet) -> Self {
        let mut coupled: FastMap<*const PodShape, bool> = FastMap::default();
        let mut movers: Vec<(&PendingPod, NodeId)> = Vec::new();
        for machine in &fleet.nodes {
            for pod in &machine.pods {
                let Moves::As(pending) = &pod.moves else { continue };
                let shape = &pending.pod.shape;
                if *coupled
                    .entry(Arc::as_ptr(shape))
                    .or_insert_with(|| coupled_over(shape, &snapshot.interner).next().is_some())
                {
                    movers.push((pending, machine.node));
                }
            }
        }
        if movers.is_empty() {
            return Self::default();
        }
        let (probes, kind_of) = probes(snapshot, &movers);
        let (classes, topology) = classes::classes(&Request::of(&probes), &ResourceVec::default());
        let counts = topology.start_in(&topology.domains_of_nodes());
        let mut class_of: FastMap<usize, ClassId> = FastMap::default();
        for (id, class) in classes.iter_enumerated() {
            class_of.extend(class.members.iter().map(|pod| (model::Id::index(*pod), id)));
        }
        let mut rules = Rules { topology: &topology, counts, names: &snapshot.interner };
        let mut known: FastMap<(ClassId, Vec<Place>), Option<Arc<Requirements>>> = FastMap::default();
        let mut homes = NameMap::default();
        for ((pending, node), kind) in movers.into_iter().zip(kind_of) {
            let Some(&id) = class_of.get(&kind) else { continue };
            let class = &classes[id];
            let places = class.involved.iter().map(|mine| topology.place_of_node(mine.group, node)).collect();
            let found = known.entry((id, places)).or_insert_with_key(|(_, places)| rules.homes(class, places));
            homes.extend(found.as_ref().map(|found| (pending.pod.uid.clone(), Arc::clone(found))));
        }
        Self(homes)
    }

    /// Where a pod stays; `None` if it may come back anywhere.
    pub(crate) fn of(&self, pod: &Pod) -> Option<&Arc<Requirements>> {
        self.0.get(&pod.uid)
    }
}

/// A snapshot in which one pod of each kind waits beside all that run, and the kind of each mover.
fn probes(snapshot: &Snapshot, movers: &[(&PendingPod, NodeId)]) -> (Snapshot, Vec<usize>) {
    let mut probes = Snapshot { pods: IdVec::default(), devices: None, fleet: None, ..snapshot.clone() };
    let mut kinds: FastMap<(*const PodShape, &Arc<str>, &Labels), usize> = FastMap::default();
    let kind_of = movers.iter().map(|(pending, _)| {
        let pod = &pending.pod;
        *kinds.entry((Arc::as_ptr(&pod.shape), &pod.name.namespace, &pod.labels)).or_insert_with(|| {
            let waits = Pod { node_name: None, nominated_node_name: None, ..Pod::clone(pod) };
            let probe = PendingPod { pod: Arc::new(waits), devices: None, ..PendingPod::clone(pending) };
            model::Id::index(probes.pods.push(probe))
        })
    });
    let kind_of = kind_of.collect();
    (probes, kind_of)
}

/// What pods of a class may do by all that runs.
struct Rules<'r> {
    topology: &'r Topology,
    /// Of all that runs.
    counts: AllCounts,
    names: &'r Interner,
}

impl Rules<'_> {
    /// Where a pod stays that is in these places, by position among what its class is involved in.
    fn homes(&mut self, class: &PodClass, places: &[Place]) -> Option<Arc<Requirements>> {
        let involved = || class.involved.iter().zip(places);
        let left: Vec<_> = involved()
            .filter_map(|(mine, place)| match place {
                Place::Domain(home) => {
                    let (counts, one) = (&mut self.counts[mine.group], |is_counted: bool| u32::from(is_counted));
                    Some((mine.group, *home, counts.remove(*home, one(mine.matched), one(mine.owner))))
                }
                Place::OwnHost | Place::Outside | Place::Unknown => None,
            })
            .collect();
        let keys: BTreeSet<KeyId> = involved().filter_map(|(mine, _)| key_of(self.group(mine.group))).collect();
        let homes = keys.into_iter().filter_map(|key| Some(Requirement::new(key, self.home(class, places, key)?)));
        let homes = Requirements::from_requirements(homes, self.names);
        for (group, home, before) in left.into_iter().rev() {
            self.counts[group].restore(home, before);
        }
        (!homes.is_empty()).then(|| Arc::new(homes))
    }

    fn group(&self, group: GroupId) -> &Group {
        &self.topology.groups[group]
    }

    /// The value of a label with which a pod stays that has left these places: if there are nodes with another one that
    /// could not have it now.
    fn home(&self, class: &PodClass, places: &[Place], key: KeyId) -> Option<ValueSet> {
        let of_key =
            || class.involved.iter().zip(places).filter(|(mine, _)| key_of(self.group(mine.group)) == Some(key));
        let home = of_key().find_map(|(mine, place)| match place {
            Place::Domain(home) => self.group(mine.group).values().try_get(*home).copied(),
            Place::OwnHost | Place::Outside | Place::Unknown => None,
        })?;
        let mut others: BTreeMap<ValueId, Vec<(GroupId, DomainId)>> = BTreeMap::new();
        for (mine, _) in of_key() {
            let group = self.group(mine.group);
            let present = group.present_on_nodes();
            let domains = group.values().iter_enumerated().filter(|(domain, _)| present.contains(*domain));
            for (domain, &value) in domains.filter(|(_, value)| **value != home) {
                others.entry(value).or_default().push((mine.group, domain));
            }
        }
        let is_closed = |domains: &Vec<(GroupId, DomainId)>| {
            let place = |_: usize, mine: &Involvement| {
                let domain = domains.iter().find(|(group, _)| *group == mine.group);
                domain.map(|(_, domain)| Place::Domain(*domain))
            };
            self.topology.room(&self.counts, Checking::OwnOnly, class, place, 1) == 0
        };
        others.values().any(is_closed).then(|| ValueSet::one(home))
    }
}

fn key_of(group: &Group) -> Option<KeyId> {
    match group.scope {
        Scope::Label(key) => Some(key),
        Scope::Host | Scope::Cluster => None,
    }
}
