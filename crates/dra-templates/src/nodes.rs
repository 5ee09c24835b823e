//! Who can use devices, as templates say it and as planning takes it.

use api::NodeSelectorRequirement;
use api::resource_slice_template::{DeviceTemplate, NodeSelectorTemplate, ResourceSliceTemplateSpec};
use dra_sched::DomainSelector;
use dra_types::NodeSelectorTerm;

use super::{Nodes, Selection};

impl Nodes {
    pub(super) fn of_template(spec: &ResourceSliceTemplateSpec) -> Self {
        match &spec.node_selector {
            Some(selector) => Self::Selected(Selection::new(selector)),
            None if spec.all_nodes == Some(true) => Self::All,
            None if spec.per_device_node_selection == Some(true) => Self::PerDevice,
            None => Self::Host,
        }
    }

    pub(super) fn of_device(device: &DeviceTemplate) -> Option<Self> {
        match &device.node_selector {
            Some(selector) => Some(Self::Selected(Selection::new(selector))),
            None => (device.all_nodes == Some(true)).then_some(Self::All),
        }
    }

    /// Which nodes besides the machine can use it; `None` for none.
    pub(super) fn domain(&self) -> Option<DomainSelector> {
        match self {
            Self::Host | Self::PerDevice => None,
            Self::All => Some(DomainSelector::default()),
            Self::Selected(selection) if selection.is_one_node() => None,
            Self::Selected(selection) => Some(selection.domain()),
        }
    }
}

impl Selection {
    /// Whether it is the machine alone: its hostname is not known before there is a Node, but no other has it.
    fn is_one_node(&self) -> bool {
        self.match_label_keys.contains(api::labels::HOSTNAME) && self.expressions.is_empty() && self.fields.is_empty()
    }

    fn domain(&self) -> DomainSelector {
        let requirement = |of: &NodeSelectorRequirement| dra_types::NodeSelectorRequirement {
            key: of.key.as_str().into(),
            operator: of.operator.as_str().into(),
            values: of.values.iter().map(|value| value.as_str().into()).collect(),
        };
        DomainSelector {
            match_label_keys: self.match_label_keys.iter().map(|key| key.as_str().into()).collect(),
            term: NodeSelectorTerm {
                match_expressions: self.expressions.iter().map(requirement).collect(),
                match_fields: self.fields.iter().map(requirement).collect(),
            },
        }
    }

    fn new(selector: &NodeSelectorTemplate) -> Self {
        let mut selection = Self::default();
        // Exactly one; `check` has seen to it.
        for term in &selector.node_selector_terms {
            selection.match_label_keys.extend(term.match_label_keys.iter().cloned());
            selection.expressions.extend(term.match_expressions.iter().cloned());
            selection.fields.extend(term.match_fields.iter().cloned());
        }
        selection
    }
}
