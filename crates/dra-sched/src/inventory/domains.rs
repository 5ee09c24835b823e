//! The domains in which a planned machine could land, as far as devices depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::Inventory;
use crate::compile::ids::ShapeId;
use crate::machine::LabelKnowledge;
use crate::tuning::MAX_DOMAINS;
use dra_types::NodeFacts;

/// Values of labels that the choice of an offering decides, such as the machine's zone. Empty if no device depends on
/// one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Domain(pub BTreeMap<Arc<str>, Arc<str>>);

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Each domain once for each of these values of a label, at most [`MAX_DOMAINS`](crate::tuning::MAX_DOMAINS) in all.
pub(super) fn split<'v>(
    domains: &[Domain],
    key: &Arc<str>,
    values: impl IntoIterator<Item = &'v Arc<str>> + Clone,
) -> Vec<Domain> {
    let with = |domain: &Domain, value: &Arc<str>| {
        let mut domain = domain.clone();
        domain.0.insert(Arc::clone(key), Arc::clone(value));
        domain
    };
    let all = domains.iter().flat_map(|domain| values.clone().into_iter().map(|value| with(domain, value)));
    all.take(MAX_DOMAINS).collect()
}

impl Inventory {
    /// Label keys that node selectors of slices, devices and allocated claims mention.
    pub fn mentioned_keys(&self) -> &BTreeSet<Arc<str>> {
        &self.mentioned_keys
    }

    /// The domains in which a machine of a shape could land, as far as devices depend on them and labels are not
    /// pinned.
    pub fn domains(&self, shape: ShapeId, pinned: &Domain) -> Vec<Domain> {
        let mut domains = vec![Domain::default()];
        for (key, knowledge) in &self.machines[shape].labels {
            let LabelKnowledge::OneOf(values) = knowledge else { continue };
            if pinned.0.contains_key(key) || !self.mentioned_keys.contains(key) {
                continue;
            }
            domains = split(&domains, key, values);
        }
        domains
    }

    pub(crate) fn facts(&self, shape: ShapeId, pinned: &Domain, domain: &Domain) -> NodeFacts {
        let machine = &self.machines[shape];
        let mut facts =
            NodeFacts { name: None, labels: BTreeMap::new(), declared_features: machine.declared_features.clone() };
        for (key, knowledge) in &machine.labels {
            if let LabelKnowledge::Known(value) = knowledge {
                facts.labels.insert(Arc::clone(key), Arc::clone(value));
            }
        }
        for (key, value) in pinned.0.iter().chain(&domain.0) {
            facts.labels.insert(Arc::clone(key), Arc::clone(value));
        }
        facts
    }
}
