//! Node selectors as slices, devices and allocations hold them: raw, their evaluation is the engine's.

use std::sync::Arc;

use super::json::{FieldError, Reader};

/// A node matches if one of the terms matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    /// The terms. An empty term matches nothing.
    pub terms: Vec<NodeSelectorTerm>,
}

/// A node matches if all requirements hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields; `metadata.name` is the only one that exists.
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// One requirement on a label or field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeSelectorRequirement {
    /// The label or field.
    pub key: Arc<str>,
    /// How its value compares.
    pub operator: NodeSelectorOperator,
    /// With what.
    pub values: Vec<Arc<str>>,
}

/// How a value compares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeSelectorOperator {
    /// Present and one of the values.
    In,
    /// Absent or none of the values.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
    /// An integer greater than the value.
    Gt,
    /// An integer less than the value.
    Lt,
    /// An operator that upstream does not know.
    Other(Arc<str>),
}

impl From<&str> for NodeSelectorOperator {
    fn from(text: &str) -> Self {
        match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            other => Self::Other(other.into()),
        }
    }
}

impl NodeSelectorOperator {
    /// Kubernetes' spelling.
    pub fn as_str(&self) -> &str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Other(text) => text,
        }
    }
}

impl NodeSelector {
    pub(crate) fn read(reader: &Reader<'_>) -> Result<Option<Self>, FieldError> {
        if !reader.is_present() {
            return Ok(None);
        }
        reader.object(&["nodeSelectorTerms"])?;
        Ok(Some(Self { terms: reader.field("nodeSelectorTerms").list(NodeSelectorTerm::read)? }))
    }
}

impl NodeSelectorTerm {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["matchExpressions", "matchFields"])?;
        Ok(Self {
            match_expressions: reader.field("matchExpressions").list(NodeSelectorRequirement::read)?,
            match_fields: reader.field("matchFields").list(NodeSelectorRequirement::read)?,
        })
    }
}

impl NodeSelectorRequirement {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["key", "operator", "values"])?;
        Ok(Self {
            key: reader.field("key").string()?,
            operator: reader.field("operator").string()?,
            values: reader.field("values").strings()?,
        })
    }
}
