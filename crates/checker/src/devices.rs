//! Claims, played: every machine publishes its slices, those of a domain once, and each pod's claims are allocated one
//! after the other by `dra-sched`'s allocator for single nodes, which knows nothing of machines to be. What devices
//! cost of a node is written down here a second time.
//!
//! Nothing is remembered: each question allocates for all pods that were bound before, in their order.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dra_sched::{
    ClaimClassId, ClaimId, ClusterLedger, Inventory, InventoryBuilder, MachineTemplate, PoolScope, Refusal,
    Reservation, SharedTemplate, Templates, Verdict, allocate,
    faults::Fault,
    machine::binding_group,
    pods::{self, ExtendedResources, IN_MEMORY_CLAIM, Served, WantedClaim},
};
use dra_types::{
    Allocation, AttributeValue, ClaimSource, Device, KubernetesMinor, NodeAllocatableMapping, NodeFacts, NodeScope,
    NodeSelector, NodeSelectorOperator, NodeSelectorRequirement, ObjectMeta, Pod as DevicePod, Pool, ResourceClaim,
    ResourceSlice, Resources, is_for_whole_pods,
};
use model::{Budget, NamespacedName, Pod, Quantity, ResourceVec, Uid};
use scheduling::{Devices, Snapshot, snapshot::NodeId};

use crate::world::World;

const STEPS: u64 = 2_000_000;

/// Most entries of `status.reservedFor`, written down here a second time.
const MOST_CONSUMERS: usize = 256;

/// How the reason begins why a pod without its devices is not let in.
pub(crate) const NO_DEVICES: &str = "devices: ";

/// A claim of a pod: by name, or made for the pod alone by the entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Named(NamespacedName),
    Own(Uid, Arc<str>),
}

/// A claim with the class of its spec and the containers that use it.
type Asked = (Key, ClaimClassId, u32);

/// What pods ask for and machines publish, compiled for the nodes that there are.
pub(crate) struct Compiled {
    inventory: Inventory,
    devices: BTreeMap<String, Device>,
    facts: Vec<NodeFacts>,
    /// By pod: its claims with the class of those to be allocated, and its containers that use each.
    claims: BTreeMap<Uid, Result<Vec<Asked>, String>>,
    /// By pod and node: the claim for extended resources, with the resources that it serves.
    extended: BTreeMap<(Uid, usize), (ClaimClassId, Vec<String>)>,
    allocated: BTreeMap<NamespacedName, Allocation>,
    /// Claims that are allocated and that nobody uses.
    idle: BTreeMap<NamespacedName, ClaimId>,
    /// By pod: who will be a consumer of which existing claims once it is bound.
    joining: BTreeMap<Uid, BTreeSet<Consumer>>,
    /// Consumers that existing claims have in the cluster.
    consumers: BTreeMap<NamespacedName, usize>,
    /// By pod: resources that it requests as a whole, in which its devices' costs are included (KEP-5517), with what is
    /// left for these beside its containers, in nano-units.
    whole: BTreeMap<Uid, BTreeMap<String, i128>>,
    /// Pods that are bound before all others, with their nodes.
    nominated: Vec<(Uid, usize)>,
}

/// Why a pod's claims are not allocated on a node.
pub(crate) struct NotGiven {
    why: String,
    /// An error, which kube-scheduler takes for the answer of all nodes.
    is_error: bool,
}

impl From<String> for NotGiven {
    fn from(why: String) -> Self {
        Self { why, is_error: false }
    }
}

/// What a pod has of its claims.
#[derive(Default)]
struct Given {
    /// Claims that were just allocated.
    new: Vec<(Asked, Allocation)>,
    /// Those that were before, with the containers that use them.
    old: Vec<(Allocation, u32)>,
    /// Those of the new ones that were allocated elsewhere, for nobody's use.
    taken_back: Vec<NamespacedName>,
}

/// A consumer of a claim: the claim, and the pod or its group.
type Consumer = (NamespacedName, Result<Uid, NamespacedName>);

/// What bound pods hold.
pub(crate) struct Held {
    ledger: ClusterLedger,
    consumers: BTreeSet<Consumer>,
    /// Claims whose allocation the scheduler took back.
    taken_back: BTreeSet<NamespacedName>,
    done: BTreeMap<Key, Allocation>,
    /// What devices cost of each node.
    pub(crate) costs: BTreeMap<usize, BTreeMap<String, i128>>,
}

fn pods_of(snapshot: &Snapshot) -> impl Iterator<Item = (&Pod, &Arc<DevicePod>)> {
    snapshot.pods.iter().filter_map(|pending| Some((&*pending.pod, pending.devices.as_ref()?)))
}

/// Whether the pod can want devices at all.
pub(crate) fn concern(snapshot: &Snapshot, pod: &Pod) -> bool {
    snapshot.devices.is_some() && pods_of(snapshot).any(|(known, _)| known.uid == pod.uid)
}

/// Claims that end with the pods that use them before anybody is bound to their devices: kube-scheduler binds nobody
/// before. Where somebody who waits has the claim too, it stays.
fn given_back<'d>(snapshot: &Snapshot, devices: &'d Devices) -> BTreeSet<&'d NamespacedName> {
    let objects = &devices.objects;
    let is_over = |consumer: &dra_types::Consumer| consumer.is_pod() && devices.ending().contains(&consumer.uid);
    let over = objects.claims.iter().filter(|(_, claim)| !claim.reserved_for.is_empty());
    let mut over: BTreeSet<&NamespacedName> =
        over.filter(|(_, claim)| claim.reserved_for.iter().all(is_over)).map(|(name, _)| name).collect();
    if over.is_empty() {
        return over;
    }
    let waiting = pods_of(snapshot).map(|(_, wants)| wants).chain(devices.nominated().map(|(_, wants)| wants));
    for wanted in
        waiting.filter_map(|pod| pods::claims(pod, &objects.lookup(), devices.inventory.compat()).ok()).flatten()
    {
        if let WantedClaim::Existing { claim, .. } = &wanted {
            over.remove(claim);
        }
    }
    over
}

/// Whether nobody uses an allocated claim, or only a pod that waits.
fn is_idle(snapshot: &Snapshot, claim: &ResourceClaim) -> bool {
    let waits = |consumer: &dra_types::Consumer| {
        let is_it = |pod: &Pod| pod.uid == consumer.uid && pod.node_name.is_none();
        consumer.is_pod() && snapshot.pods.iter().any(|pending| is_it(&pending.pod))
    };
    let is_for_one = match claim.reserved_for.as_slice() {
        [] => true,
        [only] => waits(only),
        _ => false,
    };
    claim.allocation.is_some() && is_for_one
}

impl Compiled {
    pub(crate) fn new(world: &World<'_>, devices: &Devices) -> Self {
        let objects = &devices.objects;
        let compat = *devices.inventory.compat();
        let mut builder = InventoryBuilder::new(compat);
        objects.classes.values().for_each(|class| builder.class(Arc::clone(class)));
        objects.taint_rules.values().for_each(|rule| builder.taint_rule(Arc::clone(rule)));
        let mut slices: Vec<Arc<ResourceSlice>> = objects.slices.values().cloned().collect();
        let published = world.published().into_iter();
        slices.extend(published.map(|(host, slice)| Arc::new(named(slice, host, world.choice.pools, devices))));
        let mut by_name = BTreeMap::new();
        for slice in &slices {
            for device in &slice.devices {
                let name = format!("{}/{}/{}", slice.driver, slice.pool.name, device.name);
                by_name.insert(name, device.clone());
            }
            builder.slice(Arc::clone(slice));
        }
        let mut allocated = BTreeMap::new();
        let mut idle = BTreeMap::new();
        let given_back = given_back(world.snapshot, devices);
        for (name, claim) in objects.claims.iter().filter(|(name, _)| !given_back.contains(name)) {
            let id = builder.claim(Arc::clone(claim));
            if is_idle(world.snapshot, claim) {
                idle.insert(name.clone(), id);
            }
            allocated.extend(claim.allocation.clone().map(|allocation| (name.clone(), allocation)));
        }
        let extended = ExtendedResources::new(objects.classes.values().map(|class| &**class), &compat);
        let mut compiled = (BTreeMap::new(), BTreeMap::new());
        let lookup = objects.lookup();
        let mut joining: BTreeMap<Uid, BTreeSet<Consumer>> = BTreeMap::new();
        let waiting = pods_of(world.snapshot).map(|(pod, wants)| (&pod.uid, wants));
        let nominated = || devices.nominated().map(|(node, wants)| (*node, wants));
        let mut whole = BTreeMap::new();
        for (uid, wants) in waiting.chain(nominated().map(|(_, wants)| (&wants.meta.uid, wants))) {
            let of_containers = wants.container_requests();
            let left = wants.pod_requests.iter().filter(|(name, _)| is_for_whole_pods(name)).map(|(name, whole)| {
                let taken = of_containers.get(name).map_or(0, |amount| amount.to_nano());
                (name.to_string(), whole.to_nano() - taken)
            });
            whole.insert(uid.clone(), left.collect::<BTreeMap<String, i128>>());
            let wanted = pods::claims(wants, &lookup, &compat).map_err(|fault| fault.to_string());
            let wanted = wanted.and_then(|wanted| {
                let gone = |name: &NamespacedName| format!("{name} is not there");
                let of_template = |name: &NamespacedName| {
                    let template = objects.claim_templates.get(name).ok_or_else(|| gone(name))?;
                    Ok::<_, String>(Arc::new(template.spec.clone()))
                };
                let mut claims = Vec::new();
                for wanted in wanted {
                    let containers = wants.containers_using(wanted.entry());
                    let is_own = |entry: &Arc<str>| {
                        wants.claims.iter().any(|of| of.name == *entry && matches!(of.source, ClaimSource::Template(_)))
                    };
                    let (key, spec) = match wanted {
                        WantedClaim::Existing { entry, claim, reservation } => {
                            let who = match reservation {
                                // Who keeps such a claim uses it.
                                Reservation::OfPod if idle.contains_key(&claim) => Some(Ok(uid.clone())),
                                Reservation::OfPod | Reservation::OfGroup => None,
                                Reservation::NewPod => Some(Ok(uid.clone())),
                                Reservation::NewGroup(group) => Some(Err(group)),
                            };
                            let consumer = who.map(|who| (claim.clone(), who));
                            joining.entry(uid.clone()).or_default().extend(consumer);
                            let known = objects.claims.get(&claim).ok_or_else(|| gone(&claim))?;
                            let spec = Arc::new(known.spec.clone());
                            // Bound pods that have to move get new claims.
                            let moves = wants.node_name.is_some() && is_own(&entry);
                            (if moves { Key::Own(uid.clone(), entry) } else { Key::Named(claim) }, spec)
                        }
                        WantedClaim::Fresh { entry, template } => {
                            (Key::Own(uid.clone(), entry), of_template(&template)?)
                        }
                        WantedClaim::OfGroup { entry, group, template } => {
                            let name = NamespacedName::new(group.namespace, format!("{}-{entry}", group.name));
                            (Key::Named(name), of_template(&template)?)
                        }
                    };
                    claims.push((key, builder.claim_class("claim", &spec, None), containers));
                }
                Ok(claims)
            });
            compiled.0.insert(uid.clone(), wanted);
            for (index, node) in world.nodes.iter().enumerate() {
                let allocatable: Resources = node
                    .allocatable
                    .iter()
                    .filter(|(_, amount)| *amount > 0)
                    .map(|(id, _)| (Arc::from(world.names.resource_name(id)), node.allocatable.quantity(id)))
                    .collect();
                if let Served::Claim(claim) = extended.serve(wants, &allocatable) {
                    let class = builder.claim_class(IN_MEMORY_CLAIM, &claim.spec, None);
                    let served = claim.mappings.iter().map(|mapping| mapping.resource.to_string()).collect();
                    compiled.1.insert((uid.clone(), index), (class, served));
                }
            }
        }
        let index_of = |node: NodeId| {
            let name = world.snapshot.nodes[node].display_name();
            world.nodes.iter().position(|known| known.name() == name)
        };
        let facts = world.nodes.iter().map(|node| node.facts(&world.names)).collect();
        let before = world.without_machines();
        let before = before.as_ref().and_then(World::devices);
        let is_about_to_be_bound = |pod: &Uid| before.as_ref().is_none_or(|before| before.has_nominated(pod));
        Self {
            inventory: builder.build(),
            devices: by_name,
            facts,
            claims: compiled.0,
            extended: compiled.1,
            allocated,
            idle,
            joining,
            whole,
            consumers: objects.claims.iter().map(|(name, of)| (name.clone(), of.reserved_for.len())).collect(),
            nominated: nominated()
                .filter(|(_, wants)| is_about_to_be_bound(&wants.meta.uid))
                .filter_map(|(node, wants)| Some((wants.meta.uid.clone(), index_of(node)?)))
                .collect(),
        }
    }

    /// Whether a nominated pod gets its devices; nobody is nominated because of what machines to be will bring.
    fn has_nominated(&self, pod: &Uid) -> bool {
        let mut held = self.nothing_held();
        let with_devices = |(uid, node): &&(Uid, usize)| self.bind(&mut held, uid, *node).is_ok();
        self.nominated.iter().filter(with_devices).any(|(uid, _)| uid == pod)
    }

    fn nothing_held(&self) -> Held {
        Held {
            ledger: ClusterLedger::new(&self.inventory),
            consumers: BTreeSet::new(),
            taken_back: BTreeSet::new(),
            done: BTreeMap::new(),
            costs: BTreeMap::new(),
        }
    }

    /// What these pods hold, bound one after the other.
    pub(crate) fn replay(&self, bound: &[(&Pod, usize)]) -> Result<Held, String> {
        let mut held = self.nothing_held();
        for (pod, node) in &self.nominated {
            // Who gets none now takes none.
            let _ = self.bind(&mut held, pod, *node);
        }
        for (pod, node) in bound {
            self.bind(&mut held, &pod.uid, *node)?;
        }
        Ok(held)
    }

    /// The error with which the node keeps the pod from all nodes, before anything is bound.
    pub(crate) fn ends(&self, pod: &Uid, node: usize) -> Option<String> {
        let held = self.replay(&[]).ok()?;
        self.given(&held, pod, node).err().filter(|not| not.is_error).map(|not| not.why)
    }

    fn given(&self, held: &Held, pod: &Uid, node: usize) -> Result<Given, NotGiven> {
        let Some(claims) = self.claims.get(pod) else { return Ok(Given::default()) };
        for (claim, who) in self.joining.get(pod).into_iter().flatten() {
            let planned = held.consumers.iter().filter(|(of, other)| of == claim && other != who).count();
            if self.consumers.get(claim).copied().unwrap_or(0) + planned >= MOST_CONSUMERS {
                return Err(format!("claim {claim} has {MOST_CONSUMERS} consumers").into());
            }
        }
        let facts = self.facts.get(node).ok_or_else(|| "the node is not known".to_owned())?;
        let mut new: Vec<Asked> = Vec::new();
        let mut old: Vec<(Allocation, u32)> = Vec::new();
        let mut taken_back: Vec<NamespacedName> = Vec::new();
        for (key, class, containers) in claims.clone()? {
            let in_cluster = match &key {
                Key::Named(name) => self.allocated.get(name).filter(|_| !held.taken_back.contains(name)),
                Key::Own(..) => None,
            };
            let reaches = |allocation: &Allocation| {
                allocation.node_selector.as_deref().is_none_or(|selector| facts.matches(selector).unwrap_or(false))
            };
            if let (Key::Named(name), Some(allocation)) = (&key, in_cluster)
                && !reaches(allocation)
                && self.idle.contains_key(name)
                && !held.consumers.iter().any(|(of, _)| of == name)
            {
                taken_back.push(name.clone());
                new.push((key, class, containers));
                continue;
            }
            match in_cluster.or_else(|| held.done.get(&key)).cloned() {
                None => new.push((key, class, containers)),
                Some(allocation) => {
                    if !reaches(&allocation) {
                        return Err(format!("claim {key:?} is allocated elsewhere").into());
                    }
                    old.push((allocation, containers));
                }
            }
        }
        if let Some((class, _)) = self.extended.get(&(pod.clone(), node)) {
            new.push((Key::Own(pod.clone(), IN_MEMORY_CLAIM.into()), *class, 0));
        }
        let classes: Vec<ClaimClassId> = new.iter().map(|(_, class, _)| *class).collect();
        let allocations = if classes.is_empty() {
            Vec::new()
        } else {
            let mut ledger = Cow::Borrowed(&held.ledger);
            self.take_back(&taken_back, &mut ledger);
            match allocate(&self.inventory, facts, &classes, &ledger, &mut Budget::new(STEPS)) {
                Verdict::Allocated { allocations, .. } => allocations,
                Verdict::Refused(refusal) => {
                    // An invalid pool is the only error that is about one node.
                    let is_error = match &refusal {
                        Refusal::Fault(fault) => !matches!(fault, Fault::InvalidPools { .. }),
                        _ => false,
                    };
                    return Err(NotGiven { why: format!("{NO_DEVICES}{refusal}"), is_error });
                }
                Verdict::OutOfBudget(_) => return Err(format!("{NO_DEVICES}out of budget").into()),
            }
        };
        let given = Given { new: new.into_iter().zip(allocations).collect(), old, taken_back };
        let costs = self.costs(&given);
        let left = self.whole.get(pod).into_iter().flatten();
        match left.into_iter().find(|(name, left)| costs.get(*name).is_some_and(|costs| costs > left)) {
            Some((name, _)) => Err(format!("{NO_DEVICES}the pod as a whole asks for too little {name}").into()),
            None => Ok(given),
        }
    }

    /// What the devices cost of the node, in nano-units.
    fn costs(&self, given: &Given) -> BTreeMap<String, i128> {
        let mut costs = BTreeMap::new();
        for ((_, _, containers), allocation) in &given.new {
            self.cost(&mut costs, allocation, *containers);
        }
        // The scheduler of 1.36 looks only at what it has just allocated.
        let pays = self.inventory.compat().kubernetes > KubernetesMinor::V1_36;
        for (allocation, containers) in given.old.iter().filter(|_| pays) {
            self.cost(&mut costs, allocation, *containers);
        }
        costs
    }

    /// What these claims held is free.
    fn take_back(&self, claims: &[NamespacedName], ledger: &mut Cow<'_, ClusterLedger>) {
        for id in claims.iter().filter_map(|claim| self.idle.get(claim)) {
            ledger.to_mut().release(&self.inventory, *id);
        }
    }

    /// Allocates what the pod claims on the node.
    pub(crate) fn bind(&self, held: &mut Held, pod: &Uid, node: usize) -> Result<(), String> {
        let given = self.given(held, pod, node).map_err(|not| not.why)?;
        let whole = self.whole.get(pod);
        let of_node = held.costs.entry(node).or_default();
        for (name, nano) in self.costs(&given) {
            if !whole.is_some_and(|whole| whole.contains_key(&name)) {
                *of_node.entry(name).or_default() += nano;
            }
        }
        let Given { new, taken_back, .. } = given;
        if !taken_back.is_empty() {
            let mut ledger = Cow::Borrowed(&held.ledger);
            self.take_back(&taken_back, &mut ledger);
            held.ledger = ledger.into_owned();
            held.taken_back.extend(taken_back);
        }
        held.consumers.extend(self.joining.get(pod).into_iter().flatten().cloned());
        for ((key, ..), allocation) in new {
            held.ledger.hold(&self.inventory, &allocation);
            held.done.insert(key, allocation);
        }
        Ok(())
    }

    fn cost(&self, total: &mut BTreeMap<String, i128>, allocation: &Allocation, containers: u32) {
        let nano = |amount: Option<Quantity>| amount.map_or(0, |amount| amount.to_nano());
        for result in &allocation.results {
            let Some(device) = self.devices.get(&result.device.to_string()) else { continue };
            for (resource, costs) in device.node_allocatable.in_release(self.inventory.compat().kubernetes) {
                let mapped = match &costs.mapping {
                    None => 0,
                    Some(NodeAllocatableMapping::Device { multiplier }) => multiplier.to_nano(),
                    Some(NodeAllocatableMapping::Capacity { key, multiplier }) => {
                        let taken = nano(result.consumed_capacity.get(key).copied());
                        taken * multiplier.to_nano() / 1_000_000_000
                    }
                };
                let overhead = costs.overhead.as_ref();
                *total.entry(resource.to_string()).or_default() += mapped
                    + nano(overhead.and_then(|overhead| overhead.per_pod))
                    + nano(overhead.and_then(|overhead| overhead.per_container)) * i128::from(containers);
            }
        }
    }

    /// What the pod requests of the node itself: what DRA serves is not among it.
    pub(crate) fn requests(&self, world: &World<'_>, pod: &Pod, node: usize) -> ResourceVec {
        let mut requests = pod.shape.requests.clone();
        if let Some((_, served)) = self.extended.get(&(pod.uid.clone(), node)) {
            for resource in served.iter().filter_map(|name| world.names.find_resource(name)) {
                requests.set(resource, 0);
            }
        }
        requests
    }
}

/// What drivers call the pools that they have still to publish. kube-scheduler goes by names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PoolNames {
    /// After their machines, as these were launched; a domain's after those; all before what is published.
    #[default]
    AsLaunched,
    /// A domain's before those of machines, all behind what is published.
    DomainsFirst,
    /// After their machines, those of the last first.
    LastLaunchedFirst,
}

impl PoolNames {
    /// Those between which devices may tell.
    pub(crate) fn of(snapshot: &Snapshot) -> Vec<Self> {
        let types = || snapshot.node_pools.iter().flat_map(|pool| pool.catalogue.types.iter());
        let slices = snapshot.devices.iter().flat_map(|devices| devices.objects.slices.values());
        let is_shared = |slice: &Arc<ResourceSlice>| !matches!(slice.node_scope, Some(NodeScope::Node(_)));
        let is_published = slices.into_iter().any(is_shared) && types().any(|of| !of.device_templates.is_empty());
        if is_published || types().any(|of| !of.device_templates.shared.is_empty()) {
            vec![Self::AsLaunched, Self::DomainsFirst, Self::LastLaunchedFirst]
        } else {
            vec![Self::AsLaunched]
        }
    }

    /// The names begin so that what the manifests of tests call published pools comes where it should.
    fn prefix(self, host: usize, is_of_domain: bool) -> String {
        match (self, is_of_domain) {
            (Self::AsLaunched, false) => format!("a{host:03}-"),
            (Self::AsLaunched, true) => "b-".to_owned(),
            (Self::DomainsFirst, true) => "x-".to_owned(),
            (Self::DomainsFirst, false) => format!("y{host:03}-"),
            (Self::LastLaunchedFirst, false) => format!("a{:03}-", 999_usize.saturating_sub(host)),
            (Self::LastLaunchedFirst, true) => "z-".to_owned(),
        }
    }
}

/// The slice as its driver will publish it: claims that have devices of its domain already say what the pool is called.
fn named(mut slice: ResourceSlice, host: usize, names: PoolNames, devices: &Devices) -> ResourceSlice {
    let scope = slice.node_scope.clone();
    let is_of_domain = scope.as_ref().is_some_and(|scope| slice.pool.name.as_str().starts_with(&format!("{scope:?}")));
    if let (Some(NodeScope::Selector(selector)), true) = (&scope, is_of_domain) {
        let allocations = devices.objects.claims.values().filter_map(|claim| claim.allocation.as_ref());
        let mut of_domain = allocations.filter(|allocation| allocation.node_selector.as_deref() == Some(selector));
        let name = of_domain.find_map(|allocation| {
            let result = allocation.results.iter().find(|result| result.device.driver == slice.driver)?;
            Some(result.device.pool.clone())
        });
        if let Some(name) = name {
            slice.pool.name = name;
            return slice;
        }
    }
    slice.pool.name = format!("{}{}", names.prefix(host, is_of_domain), slice.pool.name).as_str().into();
    slice
}

/// A machine that publishes.
pub(crate) struct Host<'a> {
    pub(crate) name: &'a str,
    pub(crate) labels: BTreeMap<Arc<str>, Arc<str>>,
}

/// The slices that a machine's drivers publish: values that are unknown before made up. `missing` says of a driver, the
/// nodes that a pool is for, and how often there is one that machines bring for others, whether it is still to come.
pub(crate) fn slices_of(
    host: &Host<'_>,
    templates: &Templates,
    missing: impl Fn(&str, &NodeScope, Option<PoolScope>) -> bool,
    choice: usize,
) -> Vec<ResourceSlice> {
    let mut slices = Vec::new();
    let own = NodeScope::Node(host.name.into());
    for template in templates.own.iter().filter(|template| missing(template.driver.as_str(), &own, None)) {
        slices.extend(pool(host.name, host.name, template, &own, choice));
    }
    for shared in &templates.shared {
        let Some(scope) = scope_for(host, shared) else { continue };
        let nodes = format!("{scope:?}");
        let (name, publisher) = match shared.scope {
            // A driver has several where its devices are for different nodes.
            PoolScope::Machine => (format!("{}-{nodes}", host.name), host.name),
            // Whoever publishes it, it is the same.
            PoolScope::Domain => (nodes.clone(), nodes.as_str()),
        };
        if missing(shared.template.driver.as_str(), &scope, Some(shared.scope)) {
            slices.extend(pool(&name, publisher, &shared.template, &scope, choice));
        }
    }
    slices
}

/// Who can use a pool that a machine brings; `None` if it lacks a label for that.
fn scope_for(host: &Host<'_>, shared: &SharedTemplate) -> Option<NodeScope> {
    let mut term = shared.nodes.term.clone();
    for key in &shared.nodes.match_label_keys {
        let value = host.labels.get(key)?;
        let (key, values) = (Arc::clone(key), vec![Arc::clone(value)]);
        term.match_expressions.push(NodeSelectorRequirement { key, operator: NodeSelectorOperator::In, values });
    }
    let is_for_all = term.match_expressions.is_empty() && term.match_fields.is_empty();
    Some(if is_for_all { NodeScope::AllNodes } else { NodeScope::Selector(NodeSelector { terms: vec![term] }) })
}

/// `publisher` gives unknown values, which devices of several pools may share.
fn pool(
    name: &str,
    publisher: &str,
    template: &MachineTemplate,
    scope: &NodeScope,
    choice: usize,
) -> Vec<ResourceSlice> {
    let first_distinct = binding_group(0, true);
    let mut devices = template.devices.clone();
    for (group, bound) in &template.bindings {
        let is_distinct = *group >= first_distinct;
        let value =
            if is_distinct || choice.is_multiple_of(2) { format!("{publisher}-{group}") } else { publisher.to_owned() };
        for device in devices.iter_mut().filter(|device| device.name == bound.device) {
            device.attributes.insert(bound.attribute.clone(), AttributeValue::String(value.as_str().into()));
        }
    }
    let count = if template.shared_counters.is_empty() { 1 } else { 2 };
    let pool = format!("{name}{}", template.pool_suffix);
    let slice = |part: &str, devices, shared_counters| ResourceSlice {
        meta: ObjectMeta {
            name: NamespacedName::new("", format!("{pool}-{}-{part}", template.driver)),
            uid: Uid::from(""),
            created_at: None,
            deletion_timestamp: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            owners: Vec::new(),
        },
        driver: template.driver.clone(),
        pool: Pool { name: pool.as_str().into(), generation: 1, resource_slice_count: count },
        node_scope: Some(scope.clone()),
        devices,
        shared_counters,
        partition_type_attribute: None,
        skip_node_operations: Vec::new(),
        unsupported: Vec::new(),
        unknown_fields: Vec::new(),
    };
    let mut slices = vec![slice("devices", devices, Vec::new())];
    if count == 2 {
        slices.push(slice("counters", Vec::new(), template.shared_counters.clone()));
    }
    slices
}
