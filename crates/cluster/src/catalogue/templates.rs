//! What drivers will publish on machines of an instance type, for the planner.
//!
//! `overlay` writes the templates out; here types with equal templates come to share them.

use std::sync::Arc;

use api::DynamicResources;
use cloudprovider::InstanceType;
use dra_sched::Templates;
use dra_templates::{Expansion, counting_labels};
use model::collections::NameMap;

use decode::{Problem, Reason};

/// Labels that say how many devices there are, as far as templates ask.
type Counts = Vec<Option<String>>;

/// Expands templates, equal ones once.
#[derive(Default)]
pub(crate) struct Expander {
    known: NameMap<(DynamicResources, Counts), Result<Arc<Templates>, Problem>>,
    none: Option<Arc<Templates>>,
}

impl Expander {
    /// What drivers will publish on machines of a type.
    ///
    /// # Errors
    /// The first template that makes no sense for it.
    pub(crate) fn expand(&mut self, instance_type: &InstanceType) -> Result<Arc<Templates>, Problem> {
        let resources = &instance_type.dynamic_resources;
        if resources.is_empty() {
            return Ok(self.nothing());
        }
        let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
        let counts = counting_labels(resources).map(label).collect();
        let expand = || match Expansion::new(resources, &label) {
            Ok(expansion) => Ok(Arc::new(expansion.templates())),
            Err(error) => {
                Err(Problem { field: "dynamicResources".to_owned(), reason: Reason::Invalid(error.to_string()) })
            }
        };
        self.known.entry((resources.clone(), counts)).or_insert_with(expand).clone()
    }

    /// What machines without devices publish.
    pub(crate) fn nothing(&mut self) -> Arc<Templates> {
        Arc::clone(self.none.get_or_insert_default())
    }
}
