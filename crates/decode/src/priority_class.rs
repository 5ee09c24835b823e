//! PriorityClasses: which priority admission gives to pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::error::ObjectError;
use crate::metadata::{Metadata, decode_object};

/// The API server makes these in every cluster, so input without them means them too.
const SYSTEM: [(&str, i32); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// A PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityClass {
    /// Its name.
    pub name: Arc<str>,
    /// The priority of its pods.
    pub value: i32,
    /// Whether it is for pods that name no class.
    pub is_global_default: bool,
    /// Whether its pods may preempt others, where it says so.
    pub preemption_policy: Option<Arc<str>>,
}

/// Reads a PriorityClass.
///
/// # Errors
/// If a field has another type than the API gives it; the error names it.
pub fn priority_class(object: &Value) -> Result<PriorityClass, ObjectError> {
    decode_object(object, "PriorityClass", |root| {
        Ok(PriorityClass {
            name: Metadata::decode(&root.field("metadata")?)?.name.name,
            value: root.field("value")?.int32()?.unwrap_or(0),
            is_global_default: root.field("globalDefault")?.bool()?,
            preemption_policy: root.field("preemptionPolicy")?.str()?.map(Arc::from),
        })
    })
}

/// The PriorityClasses of a cluster.
#[derive(Debug, Clone)]
pub struct PriorityClasses(BTreeMap<Arc<str>, Arc<PriorityClass>>);

impl Default for PriorityClasses {
    fn default() -> Self {
        let system = |(name, value): (&str, i32)| PriorityClass {
            name: name.into(),
            value,
            is_global_default: false,
            preemption_policy: None,
        };
        SYSTEM.map(system).into_iter().map(Arc::new).collect()
    }
}

impl FromIterator<Arc<PriorityClass>> for PriorityClasses {
    fn from_iter<I: IntoIterator<Item = Arc<PriorityClass>>>(classes: I) -> Self {
        Self(classes.into_iter().map(|class| (Arc::clone(&class.name), class)).collect())
    }
}

impl PriorityClasses {
    /// Adds one, or replaces the one of its name; says whether there was one.
    pub fn insert(&mut self, class: PriorityClass) -> bool {
        self.0.insert(Arc::clone(&class.name), Arc::new(class)).is_some()
    }

    /// The class of pods that name this one, or none: then the global default, if there is one. Of several defaults the
    /// one with the least value counts, as for the API server.
    pub fn of(&self, name: Option<&str>) -> Option<&PriorityClass> {
        match name {
            Some(name) => self.0.get(name).map(AsRef::as_ref),
            None => {
                let defaults = self.0.values().filter(|class| class.is_global_default);
                defaults.min_by_key(|class| class.value).map(AsRef::as_ref)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_have_the_priority_of_their_class_or_of_the_least_default() {
        let mut classes = PriorityClasses::default();
        for (name, value, is_default) in [("high", 1000, false), ("usual", 5, true), ("more", 7, true)] {
            let object = json!({"metadata": {"name": name}, "value": value, "globalDefault": is_default});
            assert!(!classes.insert(priority_class(&object).unwrap()));
        }
        let value = |name| classes.of(name).map(|class| class.value);
        assert_eq!(value(Some("high")), Some(1000));
        assert_eq!(value(Some("system-node-critical")), Some(2_000_001_000));
        assert_eq!(value(Some("lost")), None, "a class that is not there is no reason to take the default");
        assert_eq!(value(None), Some(5));
    }
}
