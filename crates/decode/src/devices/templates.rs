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
use overlay::expand::{Expansion, Nodes, Pool, counting_labels};

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
        let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
        let counts = counting_labels(resources).map(label).collect();
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

/// Whether the machine that publishes a device can use it, whatever its labels.
fn is_usable(pool: &Pool, of_device: Option<&Nodes>) -> bool {
    match of_device.unwrap_or(&pool.nodes) {
        Nodes::Host | Nodes::All => true,
        // A machine is like itself.
        Nodes::Selected(selection) => selection.expressions.is_empty() && selection.fields.is_empty(),
        Nodes::PerDevice => false,
    }
}
