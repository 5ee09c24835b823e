//! In which domains pods may come back that are moved to save money.
//!
//! A plan takes all pods of a command away at once and places them anew. In the cluster they are evicted one after the
//! other, and kube-scheduler binds each successor by what runs at that moment: where pods are spread with a skew of 1,
//! no order of evictions lets two pods change zones, and whoever comes too early takes a place that was planned for
//! another. Commands depend on each other in the same way, if only both together keep the skew. So a pod stays in its
//! domain if there is another into which the scheduler would not let it if it alone was evicted now. Rules over such
//! domains count it where it is throughout, and are no more asked about it.
//!
//! Not asking is right only as long as what runs keeps the rules, and what they count of it stays too:
//! * Whom the scheduler would not let back into its own domain may go anywhere, and is asked.
//! * Pods that are counted by rules of pods that stay, such as those that they have to be near to, stay with them.
//! * If one of these cannot, since it may not come back or goes without regard to domains, then whoever has the rule
//!   is asked as well. Not so for pods with the same spread and a skew of 1: where they are asked themselves, they
//!   leave no domain that had the fewest.
//! * So is whoever has a spread that counts pods which wait and do not have it.
//!
//! Hosts are left out: each machine is one, and those of a command are new.
//!
//! Differs: `one-eviction-at-a-time`. Karpenter plans pods into any domain.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::collections::{FastMap, NameMap};
use model::{
    IdSet, IdVec, Interner, KeyId, Labels, NodeName, Pod, PodShape, Requirement, Requirements, ResourceVec, Uid,
    ValueId, ValueSet, define_id,
};

use crate::simulation::compile::classes::{self, ClassId, PodClass};
use crate::simulation::compile::request::Request;
use crate::simulation::topology::{
    AllCounts, Checking, DomainId, Group, GroupId, Involvement, Kind, Place, Scope, Topology,
};
use crate::snapshot::coupling::coupled_over;
use crate::snapshot::fleet::Fleet;
use crate::snapshot::{NodeId, PendingPod, PodId, Snapshot};

define_id! {
    /// Pods of one class that are in the same domains.
    pub(crate) struct SpotId;
}

/// Where the pods of a fleet that would have to move are, and by which rules they stay there.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    spots: IdVec<SpotId, Spot>,
    /// By pod; nothing for those that no rule concerns.
    spot_of: NameMap<Uid, SpotId>,
    rules: Vec<Rule>,
    /// Where pods go without a command.
    free: IdSet<SpotId>,
}

/// The domains of some pods into which they may come back, of labels over which a rule concerns them.
#[derive(Debug, Default)]
struct Spot(Vec<Home>);

#[derive(Debug)]
struct Home {
    key: KeyId,
    value: ValueId,
    /// There are nodes with another value that the pods could not have now.
    is_only: bool,
}

/// A spread or an affinity, and whom it concerns.
#[derive(Debug)]
struct Rule {
    key: KeyId,
    owners: IdSet<SpotId>,
    /// Those that it counts where they are.
    counted: Vec<SpotId>,
    /// Owners that leave do no harm to those that stay.
    is_kept_by_owners: bool,
    /// It is a spread and counts pods that wait and are not asked about it.
    counts_others: bool,
}

/// By spot: labels of the domains in which its pods stay; `None` for those that may go anywhere.
pub(crate) struct Stays<'h> {
    homes: &'h Homes,
    within: IdVec<SpotId, Option<Arc<Requirements>>>,
}

impl Homes {
    /// For all pods of the fleet that would have to move.
    pub(crate) fn new(snapshot: &Snapshot, fleet: &Fleet) -> Self {
        let movers = fleet.nodes.iter().flat_map(|machine| machine.moving().map(|pending| (pending, machine.node)));
        let movers: Vec<(&PendingPod, NodeId)> = movers.collect();
        let is_coupled = |shape: &PodShape| coupled_over(shape, &snapshot.interner).next().is_some();
        let mut coupled: FastMap<*const PodShape, bool> = FastMap::default();
        let mut asks = |pending: &PendingPod| {
            let shape = &pending.pod.shape;
            *coupled.entry(Arc::as_ptr(shape)).or_insert_with(|| is_coupled(shape))
        };
        if !movers.iter().any(|(pending, _)| asks(pending)) {
            return Self::default();
        }
        let (probes, mut kinds) = probes(snapshot, movers.iter().map(|(pending, _)| *pending).chain(&snapshot.pods));
        let (classes, topology) = classes::classes(&Request::of(&probes), &ResourceVec::default());
        let counts = topology.start_in(&topology.domains_of_nodes());
        let mut class_of: FastMap<PodId, ClassId> = FastMap::default();
        for (id, class) in classes.iter_enumerated() {
            class_of.extend(class.members.iter().map(|pod| (*pod, id)));
        }
        let mut alone = Alone { topology: &topology, counts };
        let mut known: FastMap<(ClassId, Vec<Place>), SpotId> = FastMap::default();
        let mut rules: BTreeMap<GroupId, Rule> = BTreeMap::new();
        let mut homes = Self::default();
        let (mut free, mut fed) = (IdSet::default(), IdSet::<GroupId>::default());
        let mut spot_of = |pending: &PendingPod, node: NodeId, class: ClassId| {
            let of_class = &classes[class];
            if of_class.involved.is_empty() {
                return None;
            }
            let places = of_class.involved.iter().map(|mine| topology.place_of_node(mine.group, node)).collect();
            let spot = *known.entry((class, places)).or_insert_with_key(|(_, places)| {
                let spot = homes.spots.push(Spot(alone.homes(of_class, places)));
                for (mine, place) in of_class.involved.iter().zip(places) {
                    let Some(rule) = rule(&topology, mine.group, &mut rules) else { continue };
                    if mine.owner {
                        rule.owners.insert(spot);
                    }
                    if mine.matched && matches!(place, Place::Domain(_)) {
                        rule.counted.push(spot);
                    }
                }
                spot
            });
            homes.spot_of.insert(pending.pod.uid.clone(), spot);
            Some(spot)
        };
        for ((pending, node), kind) in movers.into_iter().zip(&mut kinds) {
            class_of.get(&kind).map(|class| spot_of(pending, node, *class));
        }
        let by_name = OnceCell::new();
        for (pending, kind) in snapshot.pods.iter().zip(kinds) {
            let Some(&class) = class_of.get(&kind) else { continue };
            if let Some(name) = &pending.pod.node_name
                && let Some(&node) = by_name.get_or_init(|| nodes_by_name(snapshot)).get(name)
            {
                free.extend(spot_of(pending, node, class));
            }
            let others = classes[class].involved.iter().filter(|mine| mine.matched && !mine.owner);
            fed.extend(others.map(|mine| mine.group));
        }
        for (group, rule) in &mut rules {
            rule.counts_others = fed.contains(*group) && matches!(topology.groups[*group].kind, Kind::Spread { .. });
        }
        homes.rules = rules.into_values().collect();
        homes.free = free;
        homes
    }

    /// Where pods stay while these go without regard to domains.
    pub(crate) fn stays<'p>(&self, free: impl Iterator<Item = &'p Pod>, names: &Interner) -> Stays<'_> {
        let mut free: IdSet<SpotId> = free.filter_map(|pod| self.spot_of.get(&pod.uid)).copied().collect();
        free.extend(self.free.iter());
        let keys: BTreeSet<KeyId> = self.spots.iter().flat_map(|spot| &spot.0).map(|home| home.key).collect();
        let staying: BTreeMap<KeyId, IdSet<SpotId>> =
            keys.into_iter().map(|key| (key, self.staying(key, &free))).collect();
        let within = self.spots.iter_enumerated().map(|(spot, Spot(homes))| {
            let stays = |home: &&Home| staying.get(&home.key).is_some_and(|spots| spots.contains(spot));
            let kept = homes.iter().filter(stays).map(|home| Requirement::new(home.key, ValueSet::one(home.value)));
            let within = Requirements::from_requirements(kept, names);
            (!within.is_empty()).then(|| Arc::new(within))
        });
        Stays { homes: self, within: within.collect() }
    }

    /// The pods that stay in their domains of a label.
    fn staying(&self, key: KeyId, free: &IdSet<SpotId>) -> IdSet<SpotId> {
        let home = |spot: SpotId| self.spots[spot].0.iter().find(|home| home.key == key);
        let mut staying: IdSet<SpotId> =
            self.spots.ids().filter(|spot| home(*spot).is_some_and(|home| home.is_only)).collect();
        // Pods that are asked, whatever else stays.
        let mut asked: IdSet<SpotId> = self.spots.ids().filter(|spot| home(*spot).is_none()).collect();
        let rules = || self.rules.iter().filter(|rule| rule.key == key);
        // Each round lets another spot stay, or lets another be asked for good.
        loop {
            let mut is_settled = true;
            for rule in rules() {
                if !rule.owners.iter().any(|owner| staying.contains(owner)) {
                    continue;
                }
                let is_kept = |spot: SpotId| rule.is_kept_by_owners && rule.owners.contains(spot);
                let counted = || rule.counted.iter().copied().filter(|spot| !is_kept(*spot));
                let leaves = |spot| asked.contains(spot) || free.contains(spot);
                if rule.counts_others || counted().any(leaves) {
                    for owner in rule.owners.iter() {
                        staying.remove(owner);
                        asked.insert(owner);
                    }
                    is_settled = false;
                    continue;
                }
                for spot in counted() {
                    is_settled &= !staying.insert(spot);
                }
            }
            if is_settled {
                return staying;
            }
        }
    }
}

impl Stays<'_> {
    /// Where a pod stays; `None` if it may come back anywhere.
    pub(crate) fn of(&self, pod: &Pod) -> Option<&Arc<Requirements>> {
        self.within.try_get(*self.homes.spot_of.get(&pod.uid)?)?.as_ref()
    }
}

/// The spread or affinity over a label that a group is.
fn rule<'r>(topology: &Topology, id: GroupId, rules: &'r mut BTreeMap<GroupId, Rule>) -> Option<&'r mut Rule> {
    let group = &topology.groups[id];
    let key = key_of(group)?;
    let is_kept_by_owners = match group.kind {
        Kind::Spread { max_skew, .. } => max_skew == 1,
        Kind::Affinity => false,
        // Nobody who leaves breaks it.
        Kind::AntiAffinity => return None,
    };
    let (owners, counted) = (IdSet::default(), Vec::new());
    let new = || Rule { key, owners, counted, is_kept_by_owners, counts_others: false };
    Some(rules.entry(id).or_insert_with(new))
}

fn nodes_by_name(snapshot: &Snapshot) -> NameMap<&NodeName, NodeId> {
    snapshot.nodes.iter_enumerated().filter_map(|(id, node)| Some((node.name.as_ref()?, id))).collect()
}

/// A snapshot in which one pod of each kind waits beside all that run, and the kind of each of the pods.
fn probes<'p>(
    snapshot: &Snapshot,
    pods: impl Iterator<Item = &'p PendingPod>,
) -> (Snapshot, std::vec::IntoIter<PodId>) {
    let mut probes = Snapshot { pods: IdVec::default(), devices: None, fleet: None, ..snapshot.clone() };
    let mut kinds: FastMap<(*const PodShape, &Arc<str>, &Labels), PodId> = FastMap::default();
    let kind_of = pods.map(|pending| {
        let pod = &pending.pod;
        *kinds.entry((Arc::as_ptr(&pod.shape), &pod.name.namespace, &pod.labels)).or_insert_with(|| {
            let waits = Pod { node_name: None, nominated_node_name: None, ..Pod::clone(pod) };
            let probe = PendingPod { pod: Arc::new(waits), devices: None, ..PendingPod::clone(pending) };
            probes.pods.push(probe)
        })
    });
    let kind_of: Vec<PodId> = kind_of.collect();
    (probes, kind_of.into_iter())
}

/// What a pod of a class may do that alone is evicted.
struct Alone<'r> {
    topology: &'r Topology,
    /// Of all that runs.
    counts: AllCounts,
}

impl Alone<'_> {
    /// The domains into which a pod may come back that is in these places, by position among what its class is involved
    /// in.
    fn homes(&mut self, class: &PodClass, places: &[Place]) -> Vec<Home> {
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
        let homes = keys.into_iter().filter_map(|key| self.home(class, places, key)).collect();
        for (group, home, before) in left.into_iter().rev() {
            self.counts[group].restore(home, before);
        }
        homes
    }

    fn group(&self, group: GroupId) -> &Group {
        &self.topology.groups[group]
    }

    /// The domain of a label that a pod has left, if it may come back.
    fn home(&self, class: &PodClass, places: &[Place], key: KeyId) -> Option<Home> {
        let is_of_key = |mine: &Involvement| key_of(self.group(mine.group)) == Some(key);
        let of_key = || class.involved.iter().zip(places).filter(|(mine, _)| is_of_key(mine));
        let value = of_key().find_map(|(mine, place)| match place {
            Place::Domain(home) => self.group(mine.group).values().try_get(*home).copied(),
            Place::OwnHost | Place::Outside | Place::Unknown => None,
        })?;
        let back = |position: usize, mine: &Involvement| places.get(position).copied().filter(|_| is_of_key(mine));
        if !self.is_open(class, back) {
            return None;
        }
        let mut others: BTreeMap<ValueId, Vec<(GroupId, DomainId)>> = BTreeMap::new();
        for (mine, _) in of_key() {
            let group = self.group(mine.group);
            let present = group.present_on_nodes();
            let domains = group.values().iter_enumerated().filter(|(domain, _)| present.contains(*domain));
            for (domain, &other) in domains.filter(|(_, other)| **other != value) {
                others.entry(other).or_default().push((mine.group, domain));
            }
        }
        let is_closed = |domains: &Vec<(GroupId, DomainId)>| {
            let there = |_: usize, mine: &Involvement| {
                let domain = domains.iter().find(|(group, _)| *group == mine.group);
                domain.map(|(_, domain)| Place::Domain(*domain))
            };
            !self.is_open(class, there)
        };
        Some(Home { key, value, is_only: others.values().any(is_closed) })
    }

    /// Whether the scheduler would let a pod in there; rules for which it is not told where that is are left out.
    fn is_open(&self, class: &PodClass, place: impl Fn(usize, &Involvement) -> Option<Place>) -> bool {
        self.topology.room(&self.counts, Checking::OwnOnly, class, place, 1) > 0
    }
}

fn key_of(group: &Group) -> Option<KeyId> {
    match group.scope {
        Scope::Label(key) => Some(key),
        Scope::Host | Scope::Cluster => None,
    }
}
