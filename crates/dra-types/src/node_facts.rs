//! A node as slices look at it, and how their node selectors are evaluated (kube-scheduler's `nodeaffinity` rules).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::NodeName;

use crate::{NodeScope, NodeSelector, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};

/// What decides which devices a node can reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// Its name; None for a machine that does not exist yet.
    pub name: Option<NodeName>,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// `status.declaredFeatures`.
    pub declared_features: BTreeSet<Arc<str>>,
}

/// A selector that the API server should not have accepted. Upstream fails the pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that does not exist.
    #[error("node selector has the unknown operator {0:?}")]
    UnknownOperator(Arc<str>),
    /// A number of values that the operator does not take.
    #[error("node selector requirement on {key:?}: {operator} takes {expected}, not {found} values")]
    ValueCount {
        /// The label or field.
        key: Arc<str>,
        /// The operator.
        operator: &'static str,
        /// What it takes.
        expected: &'static str,
        /// How many there are.
        found: usize,
    },
    /// Gt and Lt compare integers.
    #[error("node selector requirement on {key:?}: {value:?} is not an integer")]
    NotAnInteger {
        /// The label.
        key: Arc<str>,
        /// The value.
        value: Arc<str>,
    },
    /// Fields other than `metadata.name`.
    #[error("node selector names the unknown field {0:?}")]
    UnknownField(Arc<str>),
}

impl NodeFacts {
    /// Whether a scope of a slice or device holds this node. `PerDevice` does not by itself.
    ///
    /// # Errors
    /// What makes the selector one that the API server should not have accepted.
    pub fn is_in(&self, scope: &NodeScope) -> Result<bool, SelectorError> {
        match scope {
            NodeScope::Node(name) => Ok(self.name.as_ref() == Some(name)),
            NodeScope::AllNodes => Ok(true),
            NodeScope::Selector(selector) => self.matches(selector),
            NodeScope::PerDevice => Ok(false),
        }
    }

    /// Whether a node selector matches: one of its terms does, and an empty term never does.
    pub fn matches(&self, selector: &NodeSelector) -> Result<bool, SelectorError> {
        let mut matched = false;
        for term in &selector.terms {
            matched |= self.matches_term(term)?;
        }
        Ok(matched)
    }

    fn matches_term(&self, term: &NodeSelectorTerm) -> Result<bool, SelectorError> {
        let mut matched = !(term.match_expressions.is_empty() && term.match_fields.is_empty());
        for requirement in &term.match_expressions {
            matched &= matches_label(requirement, self.labels.get(&requirement.key).map(|value| &**value))?;
        }
        for requirement in &term.match_fields {
            matched &= self.matches_field(requirement)?;
        }
        Ok(matched)
    }

    fn matches_field(&self, requirement: &NodeSelectorRequirement) -> Result<bool, SelectorError> {
        if &*requirement.key != "metadata.name" {
            return Err(SelectorError::UnknownField(Arc::clone(&requirement.key)));
        }
        let name = self.name.as_ref().map_or("", |name| name.as_str());
        match (&requirement.operator, requirement.values.as_slice()) {
            (NodeSelectorOperator::In, [value]) => Ok(**value == *name),
            (NodeSelectorOperator::NotIn, [value]) => Ok(**value != *name),
            (NodeSelectorOperator::In | NodeSelectorOperator::NotIn, values) => {
                Err(value_count(requirement, "exactly one value", values.len()))
            }
            (
                NodeSelectorOperator::Exists
                | NodeSelectorOperator::DoesNotExist
                | NodeSelectorOperator::Gt
                | NodeSelectorOperator::Lt
                | NodeSelectorOperator::Other(_),
                _,
            ) => Err(SelectorError::UnknownOperator(requirement.operator.as_str().into())),
        }
    }
}

fn value_count(requirement: &NodeSelectorRequirement, expected: &'static str, found: usize) -> SelectorError {
    let operator = match requirement.operator {
        NodeSelectorOperator::In => "In",
        NodeSelectorOperator::NotIn => "NotIn",
        NodeSelectorOperator::Exists => "Exists",
        NodeSelectorOperator::DoesNotExist => "DoesNotExist",
        NodeSelectorOperator::Gt => "Gt",
        NodeSelectorOperator::Lt => "Lt",
        NodeSelectorOperator::Other(_) => "the operator",
    };
    SelectorError::ValueCount { key: Arc::clone(&requirement.key), operator, expected, found }
}

/// Whether a requirement on a label holds for its value.
pub(crate) fn matches_label(requirement: &NodeSelectorRequirement, value: Option<&str>) -> Result<bool, SelectorError> {
    let listed = || requirement.values.iter().any(|listed| Some(&**listed) == value);
    match &requirement.operator {
        NodeSelectorOperator::In | NodeSelectorOperator::NotIn if requirement.values.is_empty() => {
            Err(value_count(requirement, "at least one value", 0))
        }
        NodeSelectorOperator::In => Ok(listed()),
        NodeSelectorOperator::NotIn => Ok(!listed()),
        NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist if !requirement.values.is_empty() => {
            Err(value_count(requirement, "no values", requirement.values.len()))
        }
        NodeSelectorOperator::Exists => Ok(value.is_some()),
        NodeSelectorOperator::DoesNotExist => Ok(value.is_none()),
        NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => {
            let [bound] = requirement.values.as_slice() else {
                return Err(value_count(requirement, "exactly one value", requirement.values.len()));
            };
            let bound: i64 = bound.parse().map_err(|_| SelectorError::NotAnInteger {
                key: Arc::clone(&requirement.key),
                value: Arc::clone(bound),
            })?;
            let Some(value) = value.and_then(|value| value.parse::<i64>().ok()) else { return Ok(false) };
            Ok(if requirement.operator == NodeSelectorOperator::Gt { value > bound } else { value < bound })
        }
        NodeSelectorOperator::Other(text) => Err(SelectorError::UnknownOperator(Arc::clone(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
        NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().map(|value| (*value).into()).collect(),
        }
    }

    fn node() -> NodeFacts {
        NodeFacts {
            name: Some("n1".into()),
            labels: [("zone", "a"), ("gpus", "8")].map(|(key, value)| (key.into(), value.into())).into(),
            declared_features: BTreeSet::new(),
        }
    }

    #[test]
    fn operators_mean_what_they_mean_in_node_affinity() {
        let cases: [(&str, &str, &[&str], bool); 12] = [
            ("zone", "In", &["a", "b"], true),
            ("zone", "In", &["b"], false),
            ("absent", "In", &["b"], false),
            ("absent", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a"], false),
            ("zone", "Exists", &[], true),
            ("absent", "DoesNotExist", &[], true),
            ("gpus", "Gt", &["7"], true),
            ("gpus", "Gt", &["8"], false),
            ("gpus", "Lt", &["9"], true),
            ("zone", "Lt", &["9"], false),
            ("absent", "Gt", &["1"], false),
        ];
        for (key, operator, values, expected) in cases {
            let requirement = requirement(key, operator, values);
            let value = node().labels.get(key).cloned();
            assert_eq!(matches_label(&requirement, value.as_deref()), Ok(expected), "{requirement:?}");
        }
    }

    #[test]
    fn what_the_api_server_should_have_refused_is_an_error() {
        for (operator, values) in
            [("In", &[][..]), ("Exists", &["x"]), ("Gt", &["1", "2"]), ("Gt", &["x"]), ("Near", &["x"])]
        {
            let requirement = requirement("zone", operator, values);
            assert!(matches_label(&requirement, Some("a")).is_err(), "{requirement:?}");
        }
    }

    #[test]
    fn an_empty_term_matches_nothing_and_one_matching_term_is_enough() {
        let term = |requirements| NodeSelectorTerm { match_expressions: requirements, match_fields: vec![] };
        let matches = |terms| node().matches(&NodeSelector { terms }).unwrap();
        assert!(!matches(vec![]));
        assert!(!matches(vec![term(vec![])]));
        assert!(matches(vec![term(vec![]), term(vec![requirement("zone", "Exists", &[])])]));
    }

    #[test]
    fn only_the_name_is_a_field() {
        let matches = |requirement| {
            let term = NodeSelectorTerm { match_expressions: vec![], match_fields: vec![requirement] };
            node().matches(&NodeSelector { terms: vec![term] })
        };
        assert_eq!(matches(requirement("metadata.name", "In", &["n1"])), Ok(true));
        assert_eq!(matches(requirement("metadata.name", "NotIn", &["n1"])), Ok(false));
        assert!(matches(requirement("metadata.uid", "In", &["n1"])).is_err());
        assert!(matches(requirement("metadata.name", "In", &["n1", "n2"])).is_err());
    }
}
