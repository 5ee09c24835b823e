//! What drivers will publish on machines of an instance type, for the planner.
//!
//! `overlay` writes the templates out; here types with equal templates come to share them. Devices that a machine can
//! certainly use itself count; those of a pool per domain, and those whose nodes depend on other labels, are not planned
//! with yet.

use std::sync::Arc;

use api::DynamicResources;
use cloudprovider::InstanceType;
use dra_sched::MachineTemplate;
use model::collections::NameMap;
use overlay::expand::{Expansion, Nodes, Pool};

use crate::error::{Problem, Reason};

/// The templates of an instance type.
type Templates = Arc<[Arc<MachineTemplate>]>;

/// Labels that say how many devices there are, as far as templates ask.
type Counts = Vec<Option<String>>;

/// Expands templates, equal ones once.
#[derive(Default)]
pub(crate) struct Expander {
    known: NameMap<(DynamicResources, Counts), Result<Templates, Problem>>,
    none: Option<Templates>,
}

impl Expander {
    /// What drivers will publish on machines of a type.
    ///
    /// # Errors
    /// The first template that makes no sense for it.
    pub(crate) fn expand(&mut self, instance_type: &InstanceType) -> Result<Templates, Problem> {
        let resources = &instance_type.dynamic_resources;
        if resources.is_empty() {
            return Ok(self.nothing());
        }
        let label = |key: &str| label(instance_type, key);
        let specs = resources.resource_slice_templates.iter().map(|template| &template.spec);
        let keys = specs.flat_map(|spec| {
            let of_devices = spec.devices.iter().map(|device| &device.replicas_from_label);
            of_devices.chain(spec.shared_counters.iter().map(|set| &set.replicas_from_label)).flatten()
        });
        let counts = keys.map(|key| label(key)).collect();
        let expand = || match Expansion::new(resources, &label) {
            Ok(expansion) => Ok(expansion.machine_templates(is_usable).into()),
            Err(error) => {
                Err(Problem { field: "dynamicResources".to_owned(), reason: Reason::Invalid(error.to_string()) })
            }
        };
        self.known.entry((resources.clone(), counts)).or_insert_with(expand).clone()
    }

    /// What machines without devices publish.
    pub(crate) fn nothing(&mut self) -> Templates {
        Arc::clone(self.none.get_or_insert_with(|| Arc::new([])))
    }
}

/// The one value of a label of all machines of a type.
fn label(instance_type: &InstanceType, key: &str) -> Option<String> {
    let mut values = instance_type.requirements.get(key)?.iter();
    values.next().filter(|_| values.next().is_none()).cloned()
}

/// Whether the machine that publishes a device can use it, whatever its labels.
fn is_usable(pool: &Pool, of_device: Option<&Nodes>) -> bool {
    match of_device.unwrap_or(&pool.nodes) {
        Nodes::Host | Nodes::All => true,
        // A machine is like itself.
        Nodes::Selected(selection) => selection.expressions.is_empty() && selection.fields.is_empty(),
        Nodes::PerDevice => false,
    }
}
