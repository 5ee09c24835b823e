//! Node selector and required node affinity against what is known of a node's or machine's labels.

use model::{Interner, PodShape, Requirement, Requirements, Taint, Toleration, ValueSet};

use crate::snapshot::{Node, NodeLabels};

/// The node selector together with one term of the required node affinity: one way to satisfy both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    /// On labels.
    pub(crate) requirements: Requirements,
    /// On the node's name.
    pub(crate) node_name: Option<ValueSet>,
}

/// All ways to satisfy a shape; none if no node can. Terms are alternatives: all of them count, in the given order.
pub(crate) fn terms(shape: &PodShape, names: &Interner) -> Vec<Term> {
    if shape.required_node_affinity.is_empty() {
        return vec![Term { requirements: shape.node_selector.clone(), node_name: None }];
    }
    let usable = shape.required_node_affinity.iter().filter(|term| term.unusable.is_none());
    let mut terms: Vec<Term> = Vec::new();
    for term in usable {
        let mut requirements = shape.node_selector.clone();
        requirements.intersect(&term.expressions, names);
        let term = Term { requirements, node_name: term.node_name.clone() };
        if term.requirements.first_empty(names).is_none() && !terms.contains(&term) {
            terms.push(term);
        }
    }
    terms
}

impl Term {
    /// Whether an existing node satisfies the term whatever comes of the labels it has not got yet.
    pub(crate) fn accepts(&self, node: &Node, names: &Interner) -> bool {
        self.accepts_name(node, names) && self.requirements.iter().all(|wanted| surely(&node.labels, wanted, names))
    }

    fn accepts_name(&self, node: &Node, names: &Interner) -> bool {
        let Some(wanted) = &self.node_name else { return true };
        match &node.name {
            // A name that nobody mentions is not interned; NotIn lets it pass and In does not, like absence.
            Some(name) => wanted.contains(names.find_value(name.as_ref()), names),
            None => accepts_unknown(wanted),
        }
    }
}

/// Whether a value that nobody can name beforehand is in the set: the hostname or name of a machine to come.
pub(crate) fn accepts_unknown(wanted: &ValueSet) -> bool {
    wanted.excluded_values().is_some() && wanted.bounds() == (None, None)
}

/// Whether what is known of a node's labels satisfies one requirement in every case.
pub(crate) fn surely(labels: &NodeLabels, wanted: &Requirement, names: &Interner) -> bool {
    match labels {
        NodeLabels::Known(labels) => wanted.values.contains(labels.get(wanted.key), names),
        NodeLabels::Promised(promised) => match promised.get(wanted.key) {
            Some(promised) => promised.values.is_subset(&wanted.values, names),
            None => wanted.values.is_any(),
        },
    }
}

/// The first taint, by name, that keeps pods away and is not tolerated.
///
/// Differs: Karpenter treats `PreferNoSchedule` as hard until relaxed; here it is the preference that it is for
/// kube-scheduler.
pub(crate) fn untolerated(taints: &[Taint], tolerations: &[Toleration], names: &Interner) -> Option<Taint> {
    taints
        .iter()
        .filter(|taint| taint.is_hard() && !taint.is_tolerated_by(tolerations, names))
        .min_by_key(|taint| (names.key_name(taint.key), names.value_name(taint.value), taint.effect))
        .copied()
}
