//! Planned machines: what their drivers will publish, and the labels they will have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{NamespacedName, NodeName, Uid};

use crate::compile::attributes;
use crate::compile::ids::{SharedPoolId, SliceIndex};
use crate::compile::node_scope;
use dra_types::{
    AttributeValue, CounterSet, Device, DeviceName, DriverName, NodeScope, NodeSelector, NodeSelectorOperator,
    NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta, Pool, PoolName, QualifiedName, ResourceSlice,
};

/// The pool that one driver will publish on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineTemplate {
    /// The driver.
    pub driver: DriverName,
    /// Distinguishes several pools of one driver; empty for the only one. Its place among pools with real names is
    /// assumed ([`crate::PoolOrder`]).
    pub pool_suffix: PoolName,
    /// The devices, in the order of publishing.
    pub devices: Vec<Device>,
    /// Counters that they draw from.
    pub shared_counters: Vec<CounterSet>,
    /// Attributes with an unknown value that the devices of a group share: (number of the group, member).
    pub bindings: Vec<(u32, BoundAttribute)>,
}

/// A pool whose devices all nodes of a domain can use, not only the machine that brings it.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedTemplate {
    /// The pool's driver, suffix, devices, counters. Bindings of a [`PoolScope::Machine`] join the groups of the
    /// machine's own templates; seen from another machine they are groups by themselves.
    pub template: MachineTemplate,
    /// How many of the pool there are.
    pub scope: PoolScope,
    /// Who can use it.
    pub nodes: DomainSelector,
}

/// What drivers will publish because of one machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Templates {
    /// Pools of the machine alone.
    pub own: Vec<Arc<MachineTemplate>>,
    /// Pools for the nodes of its domain.
    pub shared: Vec<Arc<SharedTemplate>>,
}

impl Templates {
    /// Whether nothing will be published.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }
}

/// How many of a shared pool there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolScope {
    /// Each machine brings one, which goes when the machine goes.
    Machine,
    /// One for each domain, however many machines bring it. If a complete pool of the driver with an equivalent node
    /// selector is published, nothing is planned.
    Domain,
}

/// Selects the nodes of a machine's domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DomainSelector {
    /// Labels in which a node must equal the machine. A machine that lacks one does not bring the pool.
    pub match_label_keys: BTreeSet<Arc<str>>,
    /// What else is required of a node.
    pub term: NodeSelectorTerm,
}

impl DomainSelector {
    /// The values that a machine with these labels gives the keys; None if it lacks one.
    pub(crate) fn domain(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        let value = |key: &Arc<str>| Some((Arc::clone(key), Arc::clone(labels.get(key)?)));
        self.match_label_keys.iter().map(value).collect()
    }

    /// The scope that a driver will publish for a domain.
    pub(crate) fn scope(&self, domain: &BTreeMap<Arc<str>, Arc<str>>) -> NodeScope {
        let mut term = self.term.clone();
        term.match_expressions.extend(domain.iter().map(|(key, value)| NodeSelectorRequirement {
            key: Arc::clone(key),
            operator: NodeSelectorOperator::In,
            values: vec![Arc::clone(value)],
        }));
        if term == NodeSelectorTerm::default() {
            return NodeScope::AllNodes;
        }
        NodeScope::Selector(NodeSelector { terms: vec![term] })
    }

    /// Label keys that decide who can use the pool.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        let of_term = self.term.match_expressions.iter().map(|requirement| &requirement.key);
        of_term.chain(&self.match_label_keys)
    }
}

impl SharedTemplate {
    /// Who could use the pool that a machine with these labels brings; None if it brings none.
    pub fn scope_of(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> Option<NodeScope> {
        Some(self.nodes.scope(&self.nodes.domain(labels)?))
    }

    /// How many complete pools of the driver are published for the nodes of a scope.
    pub fn published_pools<'s>(&self, scope: &NodeScope, slices: impl IntoIterator<Item = &'s ResourceSlice>) -> usize {
        let mut pools: BTreeMap<&PoolName, Vec<&ResourceSlice>> = BTreeMap::new();
        for slice in slices.into_iter().filter(|slice| slice.driver == self.template.driver) {
            pools.entry(&slice.pool.name).or_default().push(slice);
        }
        let is_for = |slice: &&ResourceSlice| slice.node_scope.as_ref().is_some_and(|it| node_scope::alike(it, scope));
        let complete = |slices: &&Vec<&ResourceSlice>| slices.iter().any(is_for) && node_scope::is_complete(slices);
        pools.values().filter(complete).count()
    }
}

/// A member of a group of attributes with one unknown value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundAttribute {
    /// The device of the template.
    pub device: DeviceName,
    /// The attribute.
    pub attribute: QualifiedName,
}

/// What is known of a label of a planned machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LabelKnowledge {
    /// It will have this value.
    Known(Arc<str>),
    /// It will have one of these values, depending on the offering that is chosen: the label is the key of a domain.
    OneOf(BTreeSet<Arc<str>>),
}

/// What machines of some instance types have in common that matters to devices.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineShape {
    /// What their drivers will publish for the machine alone.
    pub templates: Vec<Arc<MachineTemplate>>,
    /// What their drivers will publish for the machine's domain.
    pub shared: Vec<Arc<SharedTemplate>>,
    /// Labels; a key that is not here is absent.
    pub labels: BTreeMap<Arc<str>, LabelKnowledge>,
    /// Features that the node will declare.
    pub declared_features: BTreeSet<Arc<str>>,
    /// The number, given by the caller, of the set of daemons that run on the machines. Machines of one shape have the
    /// same devices taken from the start.
    pub daemons: u32,
    /// The slices of its templates, once a builder has made them.
    pub(crate) slices: Vec<SliceIndex>,
    /// The pools of its shared templates, once a builder has made them.
    pub(crate) pools: Vec<SharedPoolId>,
}

/// The number of a group of bound attributes, for [`MachineTemplate::bindings`]: groups that were declared distinct
/// have different values.
pub fn binding_group(index: u32, distinct: bool) -> u32 {
    attributes::group_number(index, distinct)
}

impl MachineShape {
    /// A shape of machines whose devices are their own.
    pub fn new(
        templates: Vec<Arc<MachineTemplate>>,
        labels: BTreeMap<Arc<str>, LabelKnowledge>,
        declared_features: BTreeSet<Arc<str>>,
    ) -> Self {
        let (shared, slices, pools) = (Vec::new(), Vec::new(), Vec::new());
        Self { templates, shared, labels, declared_features, daemons: 0, slices, pools }
    }

    /// The shape with pools that machines bring for their domain as well. The shape's labels have to know every key
    /// that the pools' selectors mention.
    #[must_use]
    pub fn with_shared(self, shared: Vec<Arc<SharedTemplate>>) -> Self {
        Self { shared, ..self }
    }

    /// The shape where certain daemons run.
    #[must_use]
    pub fn with_daemons(self, daemons: u32) -> Self {
        Self { daemons, ..self }
    }

    /// Whether two shapes are equal, apart from the slices made of their templates.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        fn same<T: PartialEq>((a, b): (&Arc<T>, &Arc<T>)) -> bool {
            Arc::ptr_eq(a, b) || a == b
        }
        self.labels == other.labels
            && self.declared_features == other.declared_features
            && self.daemons == other.daemons
            && self.templates.len() == other.templates.len()
            && self.templates.iter().zip(&other.templates).all(same)
            && self.shared.len() == other.shared.len()
            && self.shared.iter().zip(&other.shared).all(same)
    }
}

impl MachineTemplate {
    /// The slices of a complete pool, laid out as a driver would: counters in a slice of their own.
    pub(crate) fn to_slices(&self) -> Vec<ResourceSlice> {
        let count = if self.shared_counters.is_empty() { 1 } else { 2 };
        let slice = |name: &str, devices, shared_counters| ResourceSlice {
            meta: ObjectMeta {
                name: NamespacedName::new("", name),
                uid: Uid::from(""),
                created_at: None,
                deletion_timestamp: None,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                owners: Vec::new(),
            },
            driver: self.driver.clone(),
            pool: Pool { name: self.pool_suffix.clone(), generation: 0, resource_slice_count: count },
            // A view of a machine does not look at the node's name, which is not known yet.
            node_scope: Some(NodeScope::Node(NodeName::from(""))),
            devices,
            shared_counters,
            partition_type_attribute: None,
            skip_node_operations: Vec::new(),
            unsupported: Vec::new(),
            unknown_fields: Vec::new(),
        };
        let mut devices = self.devices.clone();
        for (_, binding) in &self.bindings {
            for device in devices.iter_mut().filter(|device| device.name == binding.device) {
                device.attributes.entry(binding.attribute.clone()).or_insert(AttributeValue::AfterLaunch);
            }
        }
        let mut slices = vec![slice("devices", devices, Vec::new())];
        if !self.shared_counters.is_empty() {
            slices.push(slice("counters", Vec::new(), self.shared_counters.clone()));
        }
        slices
    }
}
