//! Of nodes what devices depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::NodeName;
use serde_json::Value;

use super::json::{FieldError, Reader, Unknown};
use super::pod::Resources;
use crate::node_facts::NodeFacts;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What decides which devices it can reach.
    pub facts: NodeFacts,
    /// What it has to give to pods; device plugins among it.
    pub allocatable: Resources,
}

impl Node {
    /// Reads a node.
    ///
    /// # Errors
    /// A value of the wrong type; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        let (metadata, status) = (root.field("metadata"), root.field("status"));
        let labels: BTreeMap<Arc<str>, Arc<str>> = metadata.field("labels").map(|value| value.string())?;
        let features: Vec<Arc<str>> = status.field("declaredFeatures").strings()?;
        Ok(Self {
            facts: NodeFacts {
                name: Some(metadata.field("name").string::<NodeName>()?),
                labels,
                declared_features: features.into_iter().collect::<BTreeSet<_>>(),
            },
            allocatable: status.field("allocatable").map(|amount| Ok(amount.quantity()?.unwrap_or_default()))?,
        })
    }
}
