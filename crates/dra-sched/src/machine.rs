//! Machines that do not exist yet: what their drivers will publish, and the labels they will have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{NamespacedName, NodeName, Uid};

use crate::inventory::SliceIndex;
use crate::types::{
    CounterSet, Device, DeviceName, DriverName, NodeScope, ObjectMeta, Pool, PoolName, QualifiedName, ResourceSlice,
};

/// The pool that one driver will publish on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineTemplate {
    /// The driver.
    pub driver: DriverName,
    /// Tells several pools of one driver apart; empty for the only one. Pools of planned machines come before published
    /// ones of the driver, since their real names are not known.
    pub pool_suffix: PoolName,
    /// The devices, in the order of publishing.
    pub devices: Vec<Device>,
    /// Counters that they draw from.
    pub shared_counters: Vec<CounterSet>,
    /// Attributes that have one unknown value within a group (the group's number, a member).
    pub bindings: Vec<(u32, BoundAttribute)>,
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
    /// It will have one of these values, which one is up to the choice of the offering: the key of a domain.
    OneOf(BTreeSet<Arc<str>>),
}

/// What machines of some instance types have in common as far as devices matter.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineShape {
    /// What their drivers will publish.
    pub templates: Vec<Arc<MachineTemplate>>,
    /// Labels; a key that is not here is absent.
    pub labels: BTreeMap<Arc<str>, LabelKnowledge>,
    /// Features that the node will declare.
    pub declared_features: BTreeSet<Arc<str>>,
    /// Those of its templates; known once a builder has it.
    pub(crate) slices: Vec<SliceIndex>,
}

/// The number of a group of bound attributes, for [`MachineTemplate::bindings`]: groups that were declared distinct have
/// different values.
pub fn binding_group(index: u32, distinct: bool) -> u32 {
    crate::attributes::group_number(index, distinct)
}

impl MachineShape {
    /// A shape.
    pub fn new(
        templates: Vec<Arc<MachineTemplate>>,
        labels: BTreeMap<Arc<str>, LabelKnowledge>,
        declared_features: BTreeSet<Arc<str>>,
    ) -> Self {
        Self { templates, labels, declared_features, slices: Vec::new() }
    }

    /// Whether two shapes are equal, whatever slices were made of their templates.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<MachineTemplate>, &Arc<MachineTemplate>)| Arc::ptr_eq(a, b) || a == b;
        self.labels == other.labels
            && self.declared_features == other.declared_features
            && self.templates.len() == other.templates.len()
            && self.templates.iter().zip(&other.templates).all(same)
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
            // The machine's own name is not known yet; views of machines do not ask.
            node_scope: Some(NodeScope::Node(NodeName::from(""))),
            devices,
            shared_counters,
            partition_type_attribute: None,
            skip_node_operations: Vec::new(),
            unsupported: Vec::new(),
            unknown_fields: Vec::new(),
        };
        let mut slices = vec![slice("devices", self.devices.clone(), Vec::new())];
        if !self.shared_counters.is_empty() {
            slices.push(slice("counters", Vec::new(), self.shared_counters.clone()));
        }
        slices
    }
}
