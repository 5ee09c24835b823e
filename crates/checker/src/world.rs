//! The cluster as it will be: nodes with names, labels, taints and pods.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use api::labels;
use dra_sched::PoolScope;
use dra_types::{NodeFacts, NodeScope, ResourceSlice};
use model::pod::NodeSelectorTerm;
use model::{Interner, KeyId, Pod, PodShape, Requirements, ResourceVec, Taint, ValueId};
use scheduling::{
    Plan, Snapshot,
    catalogue::OfferingId,
    devices::NodeDevices,
    snapshot::{Excluded, NodeId, NodeLabels, PodId, PoolId},
};

use crate::{
    devices::{self, Compiled, PoolNames},
    launches,
};

/// A node, there already or launched for a planned machine.
pub(crate) struct Node<'s> {
    name: String,
    /// Key and value, sorted by nothing.
    pub(crate) labels: Vec<(KeyId, ValueId)>,
    pub(crate) taints: &'s [Taint],
    pub(crate) allocatable: ResourceVec,
    pub(crate) attach_limits: Vec<(Arc<str>, u32)>,
    pub(crate) pods: Vec<&'s Pod>,
    /// Daemons that will run and do not yet.
    pub(crate) daemons: Vec<&'s PodShape>,
    /// What drivers will publish there and have not yet.
    unpublished: Vec<ResourceSlice>,
    /// Nobody launches it: a machine that could be there, whose domains spreads count.
    pub(crate) is_only_possible: bool,
}

/// A pod with the node it is planned on.
#[derive(Clone)]
pub(crate) struct Planned<'s> {
    pub(crate) pod: &'s Pod,
    pub(crate) node: usize,
    /// It is bound after all of earlier stages.
    pub(crate) stage: u32,
}

/// What nobody decides before launch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choice {
    /// Which of the offerings that a claim allows is launched for it.
    pub(crate) launches: usize,
    /// What drivers call their pools.
    pub(crate) pools: PoolNames,
}

/// Everything a scheduler sees.
pub(crate) struct World<'s> {
    pub(crate) snapshot: &'s Snapshot,
    /// The snapshot's names and those of labels that NodeClaims give.
    pub(crate) names: Interner,
    pub(crate) nodes: Vec<Node<'s>>,
    /// Nodes that are going, with the pods that stay there until somebody lets them go.
    pub(crate) going: Vec<Node<'s>>,
    pub(crate) planned: Vec<Planned<'s>>,
    /// Pods that were let in, in order.
    bound: RefCell<Vec<(&'s Pod, usize)>>,
    compiled: OnceCell<Rc<Compiled>>,
    pub(crate) choice: Choice,
}

impl Node<'_> {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What decides which devices it can reach.
    pub(crate) fn facts(&self, names: &Interner) -> NodeFacts {
        NodeFacts {
            name: Some(self.name.as_str().into()),
            labels: labels_by_name(&self.labels, names),
            declared_features: BTreeSet::new(),
        }
    }

    pub(crate) fn label(&self, key: KeyId) -> Option<ValueId> {
        self.labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Whether the pod tolerates its taints.
    pub(crate) fn is_tolerated_by(&self, shape: &PodShape, names: &Interner) -> bool {
        let mut hard = self.taints.iter().filter(|taint| taint.is_hard());
        hard.all(|taint| shape.tolerations.iter().any(|toleration| toleration.tolerates(taint, names)))
    }

    /// Whether node selector and required node affinity let the pod here.
    pub(crate) fn is_wanted_by(&self, shape: &PodShape, names: &Interner) -> bool {
        self.has(&shape.node_selector, names)
            && (shape.required_node_affinity.is_empty()
                || shape.required_node_affinity.iter().any(|term| self.is_of(term, names)))
    }

    fn is_of(&self, term: &NodeSelectorTerm, names: &Interner) -> bool {
        let by_name = |wanted: &model::ValueSet| wanted.contains(names.find_value(&self.name), names);
        term.unusable.is_none() && term.node_name.as_ref().is_none_or(by_name) && self.has(&term.expressions, names)
    }

    fn has(&self, wanted: &Requirements, names: &Interner) -> bool {
        wanted.iter().all(|wanted| wanted.values.contains(self.label(wanted.key), names))
    }
}

/// Whether a pod of a node that is going, which no place is looked for, will be there for longer: it may not be
/// evicted. Others end with the node, or are not ours to place.
fn is_held(pod: &Pod, snapshot: &Snapshot) -> bool {
    let options = &snapshot.options;
    let is_left_to_others = !options.scheduler_names.include(&pod.scheduler_name)
        || (options.ignore_dra_requests && !pod.shape.resource_claims.is_empty());
    let ends = pod.is_daemon || pod.is_mirror || pod.phase.is_terminal() || pod.deletion_timestamp.is_some();
    !ends && !is_left_to_others
}

impl<'s> World<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot, plan: &Plan, choice: Choice) -> Self {
        let mut world = Self {
            snapshot,
            names: (*snapshot.interner).clone(),
            nodes: Vec::new(),
            going: Vec::new(),
            planned: Vec::new(),
            bound: RefCell::default(),
            compiled: OnceCell::new(),
            choice,
        };
        let stages: BTreeMap<PodId, u32> = plan.stages().collect();
        let planned = |&pod: &PodId, node: usize| {
            let stage = stages.get(&pod).copied().unwrap_or(0);
            Planned { pod: &snapshot.pods[pod].pod, node, stage }
        };
        let waiting: BTreeSet<&str> = snapshot.pods.iter().map(|pending| pending.pod.uid.as_str()).collect();
        for (id, node) in snapshot.nodes.iter_enumerated() {
            let labels: Vec<(KeyId, ValueId)> = match &node.labels {
                NodeLabels::Known(labels) => labels.iter().collect(),
                NodeLabels::Promised(promised) => single_values(promised),
            };
            let pods = node.pods.iter().map(|pod| &**pod).filter(|pod| !waiting.contains(pod.uid.as_str()));
            let is_going = node.excluded == Some(Excluded::Deleting);
            let pods = pods.filter(|pod| !is_going || is_held(pod, snapshot)).collect();
            let unpublished = if is_going { Vec::new() } else { unpublished(snapshot, id, choice.launches) };
            let there = Node {
                name: node.display_name().to_owned(),
                labels,
                taints: &node.taints,
                allocatable: node.allocatable.clone(),
                attach_limits: node.attach_limits.clone(),
                pods,
                daemons: Vec::new(),
                unpublished,
                is_only_possible: false,
            };
            if is_going {
                world.going.push(there);
                continue;
            }
            world.nodes.push(there);
            let index = world.nodes.len() - 1;
            world.add_daemons_to(index);
            for placement in plan.existing.iter().filter(|placement| placement.node == id) {
                world.planned.extend(placement.pods.iter().map(|pod| planned(pod, index)));
            }
        }
        for (position, machine) in plan.machines.iter().enumerate() {
            let node = world.launch(position, machine, choice.launches);
            world.planned.extend(machine.pods.iter().map(|pod| planned(pod, node)));
        }
        world
    }

    /// What is there, before anything is planned, bound or published.
    pub(crate) fn as_it_is(snapshot: &'s Snapshot) -> Self {
        let mut world = Self::new(snapshot, &Plan::default(), Choice::default());
        world.nodes.iter_mut().for_each(|node| node.unpublished.clear());
        world
    }

    /// The world without planned machines; nothing if there are none.
    pub(crate) fn without_machines(&self) -> Option<Self> {
        let world = Self::new(self.snapshot, &Plan::default(), self.choice);
        (world.nodes.len() < self.nodes.len()).then_some(world)
    }

    /// Whether kube-scheduler asks the node for devices that its drivers have published.
    pub(crate) fn is_asked_for_devices(&self, node: usize) -> bool {
        let mut nodes = self.snapshot.nodes.iter_enumerated();
        let known = nodes.find(|(_, known)| known.display_name() == self.node(node).name);
        let describes = |id: NodeId| self.snapshot.devices.as_ref()?.node(id);
        known.is_some_and(|(id, known)| {
            known.excluded.is_none() && matches!(describes(id), Some(NodeDevices::Published(_)))
        })
    }

    fn launch(&mut self, position: usize, machine: &scheduling::plan::Machine, choice: usize) -> usize {
        let snapshot = self.snapshot;
        let allowed = launches::allowed(snapshot, machine);
        let other = allowed.get((choice + position) % allowed.len().max(1)).copied();
        let chosen = other.filter(|_| choice != 0).unwrap_or(machine.launch.offering);
        let labels = machine.labels.iter().map(|(key, value)| (*key, self.names.value(value))).collect();
        self.add_machine(machine.node_pool, chosen, labels);
        self.nodes.len() - 1
    }

    /// A node launched from an offering, with these labels besides those that pool and offering decide.
    pub(crate) fn add_machine(&mut self, pool: PoolId, offering: OfferingId, mut labels: Vec<(KeyId, ValueId)>) {
        let pool = &self.snapshot.node_pools[pool];
        let offering = &pool.catalogue.offerings[offering];
        for (key, value) in single_values(&offering.requirements).into_iter().chain(single_values(&pool.requirements)) {
            if !labels.iter().any(|(known, _)| *known == key) {
                labels.push((key, value));
            }
        }
        let name = format!("machine-{}", self.nodes.len());
        let hostname = self.names.key(labels::HOSTNAME);
        labels.push((hostname, self.names.value(&format!("host of {name}"))));
        let instance_type = &pool.catalogue.types[offering.instance_type];
        let host = devices::Host { name: &name, labels: labels_by_name(&labels, &self.names) };
        let snapshot = self.snapshot;
        // The one pool of a domain is there already, or comes with its first machine.
        let is_missing = |driver: &str, scope: &NodeScope, brought: Option<PoolScope>| {
            brought != Some(PoolScope::Domain) || !is_published(snapshot, driver, scope)
        };
        let unpublished = devices::slices_of(&host, &instance_type.device_templates, is_missing, self.choice.launches);
        self.compiled.take();
        self.nodes.push(Node {
            name,
            labels,
            taints: &pool.taints,
            allocatable: offering.allocatable.clone(),
            attach_limits: instance_type.volume_attachment_limits.clone(),
            pods: Vec::new(),
            daemons: Vec::new(),
            unpublished,
            is_only_possible: false,
        });
        let node = self.nodes.len() - 1;
        self.add_daemons_to(node);
    }

    /// Every machine that could be launched, as a node that nobody comes to: the planner spreads over its domains too.
    pub(crate) fn add_possible_machines(&mut self) {
        let snapshot = self.snapshot;
        for (pool, offering) in launches::possible(snapshot) {
            for labels in Self::labelings(snapshot, pool, offering) {
                self.add_machine(pool, offering, labels);
                if let Some(node) = self.nodes.last_mut() {
                    node.is_only_possible = true;
                }
            }
        }
    }

    /// The ways in which labels can turn out that neither the pool nor the offering decides.
    pub(crate) fn labelings(snapshot: &Snapshot, pool: PoolId, offering: OfferingId) -> Vec<Vec<(KeyId, ValueId)>> {
        let pool = &snapshot.node_pools[pool];
        let offered = &pool.catalogue.offerings[offering].requirements;
        let mut all = vec![Vec::new()];
        for wanted in pool.requirements.iter().filter(|wanted| !offered.contains_key(wanted.key)) {
            let Some(values @ [_, _, ..]) = wanted.values.finite_values() else { continue };
            all = all
                .iter()
                .flat_map(|labels: &Vec<(KeyId, ValueId)>| {
                    values.iter().map(|&value| [labels.clone(), vec![(wanted.key, value)]].concat())
                })
                .collect();
        }
        all
    }

    fn add_daemons_to(&mut self, index: usize) {
        let daemons = self.snapshot.daemon_sets.iter().filter(|daemon_set| {
            let shape = &daemon_set.template.shape;
            let runs = self.node(index).pods.iter().any(|pod| {
                pod.is_daemon
                    && pod.name.namespace == daemon_set.name.namespace
                    && pod.owner.as_ref().is_some_and(|owner| *owner.name == *daemon_set.name.name)
            });
            !runs && self.tolerates(shape, index) && self.affinity_matches(shape, index)
        });
        let daemons: Vec<&PodShape> = daemons.map(|daemon_set| &*daemon_set.template.shape).collect();
        self.node_mut(index).daemons = daemons;
    }

    /// The node at a place that this world has given out.
    #[expect(clippy::indexing_slicing, reason = "places are given out by this world, and nodes leave it last first")]
    pub(crate) fn node(&self, node: usize) -> &Node<'s> {
        &self.nodes[node]
    }

    #[expect(clippy::indexing_slicing, reason = "as for `node`")]
    fn node_mut(&mut self, node: usize) -> &mut Node<'s> {
        &mut self.nodes[node]
    }

    pub(crate) fn name(&self, node: usize) -> &str {
        &self.node(node).name
    }

    pub(crate) fn bind(&mut self, pod: &'s Pod, node: usize) {
        self.node_mut(node).pods.push(pod);
        self.bound.borrow_mut().push((pod, node));
    }

    /// Takes the last pod back.
    pub(crate) fn unbind(&mut self) {
        if let Some((_, node)) = self.bound.get_mut().pop() {
            self.node_mut(node).pods.pop();
        }
    }

    /// Takes back the machine launched last.
    pub(crate) fn remove_machine(&mut self) {
        self.nodes.pop();
        self.compiled.take();
    }

    /// Pods that were let in, in order.
    pub(crate) fn bound(&self) -> Vec<(&'s Pod, usize)> {
        self.bound.borrow().clone()
    }

    /// What drivers will publish and have not yet, with the node; a pool of a domain once, as the first
    /// that brings it describes it.
    pub(crate) fn published(&self) -> Vec<(usize, ResourceSlice)> {
        let mut publishers: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut published = Vec::new();
        for (host, node) in self.nodes.iter().enumerate() {
            for slice in &node.unpublished {
                let pool = (slice.driver.as_str(), slice.pool.name.as_str());
                if *publishers.entry(pool).or_insert(host) == host {
                    published.push((host, slice.clone()));
                }
            }
        }
        published
    }

    /// Drivers call their pools otherwise from now on.
    pub(crate) fn rename_pools(&mut self, pools: PoolNames) {
        self.choice.pools = pools;
        self.compiled.take();
    }

    /// Claims and devices, compiled for the nodes that there are.
    pub(crate) fn devices(&self) -> Option<Rc<Compiled>> {
        let devices = self.snapshot.devices.as_ref()?;
        Some(Rc::clone(self.compiled.get_or_init(|| Rc::new(Compiled::new(self, devices)))))
    }

    /// Whether the pod tolerates the node's taints.
    pub(crate) fn tolerates(&self, shape: &PodShape, node: usize) -> bool {
        self.node(node).is_tolerated_by(shape, &self.names)
    }

    /// Whether node selector and required node affinity let the pod onto the node.
    pub(crate) fn affinity_matches(&self, shape: &PodShape, node: usize) -> bool {
        self.node(node).is_wanted_by(shape, &self.names)
    }

    pub(crate) fn term_matches(&self, term: &NodeSelectorTerm, node: usize) -> bool {
        self.node(node).is_of(term, &self.names)
    }

    pub(crate) fn all_hold(&self, wanted: &Requirements, node: usize) -> bool {
        self.node(node).has(wanted, &self.names)
    }
}

fn labels_by_name(labels: &[(KeyId, ValueId)], names: &Interner) -> BTreeMap<Arc<str>, Arc<str>> {
    labels.iter().map(|(key, value)| (Arc::from(names.key_name(*key)), names.value_arc(*value))).collect()
}

fn single_values(requirements: &Requirements) -> Vec<(KeyId, ValueId)> {
    requirements.iter().filter_map(|requirement| Some((requirement.key, requirement.values.single_value()?))).collect()
}

/// Whether a driver has a pool for these nodes.
fn is_published(snapshot: &Snapshot, driver: &str, scope: &NodeScope) -> bool {
    let slices = snapshot.devices.iter().flat_map(|devices| devices.objects.slices.values());
    slices.into_iter().any(|slice| slice.driver.as_str() == driver && slice.node_scope.as_ref() == Some(scope))
}

/// What the drivers of a node that is expected to have devices have still to publish.
fn unpublished(snapshot: &Snapshot, id: NodeId, choice: usize) -> Vec<ResourceSlice> {
    let Some(devices) = &snapshot.devices else { return Vec::new() };
    if !matches!(devices.node(id), Some(NodeDevices::Expected(_))) {
        return Vec::new();
    }
    let node = &snapshot.nodes[id];
    let names = &snapshot.interner;
    let pool = snapshot.node_pools.iter().find(|pool| Some(&pool.name) == node.node_pool.as_ref());
    let (Some(pool), Some(key)) = (pool, names.find_key(labels::INSTANCE_TYPE)) else { return Vec::new() };
    let is_of = |name: &str| match (&node.labels, names.find_value(name)) {
        (NodeLabels::Known(labels), value) => value.is_some() && labels.get(key) == value,
        (NodeLabels::Promised(promised), value) => {
            promised.get(key).is_some_and(|wanted| wanted.values.contains(value, names))
        }
    };
    let types: Vec<_> = pool.catalogue.types.iter().filter(|of| is_of(of.name.as_str())).collect();
    let Some(of_type) = types.get(choice % types.len().max(1)) else { return Vec::new() };
    let name = node.display_name();
    let known = match &node.labels {
        NodeLabels::Known(labels) => labels.iter().collect(),
        NodeLabels::Promised(promised) => single_values(promised),
    };
    let is_missing = |driver: &str, scope: &NodeScope, _| !is_published(snapshot, driver, scope);
    let host = devices::Host { name, labels: labels_by_name(&known, names) };
    devices::slices_of(&host, &of_type.device_templates, is_missing, choice)
}
