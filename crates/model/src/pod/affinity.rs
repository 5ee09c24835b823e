//! Node affinity terms and pod affinity terms.

use std::sync::Arc;

use crate::intern::{Interner, KeyId, ValueId};
use crate::labels::Labels;
use crate::requirement::{Requirements, ValueSet};
use crate::selector::LabelSelector;

/// A preference: something that counts for a placement with a weight of 1 to 100.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Weighted<T> {
    /// The weight.
    pub weight: i32,
    /// What is preferred.
    pub term: T,
}

/// One alternative of a node affinity: its expressions and fields must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelectorTerm {
    /// `matchExpressions`, on the node's labels.
    pub expressions: Requirements,
    /// `matchFields` on `metadata.name`, the only field there is. The values are node names.
    pub node_name: Option<ValueSet>,
    /// Why the term matches no node whatever, if so.
    pub unusable: Option<UnusableTerm>,
}

/// Why a node selector term matches nothing in kube-scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UnusableTerm {
    /// It has neither expressions nor fields. A required affinity with an empty list of terms is one such term.
    Empty,
    /// It could not be read.
    Invalid(Arc<str>),
}

impl NodeSelectorTerm {
    /// A term that matches no node.
    pub fn unusable(reason: UnusableTerm) -> Self {
        Self { unusable: Some(reason), ..Self::default() }
    }

    /// Whether a node with these labels and this name matches.
    ///
    /// `node_name` is `None` for a node whose name no requirement mentions, in particular one that does not exist yet.
    pub fn matches(&self, labels: &Labels, node_name: Option<ValueId>, interner: &Interner) -> bool {
        self.unusable.is_none()
            // NotIn allows absence, so an unmentioned name satisfies it and nothing else, as it should.
            && self.node_name.as_ref().is_none_or(|names| names.contains(node_name, interner))
            && self.expressions.matches_labels(labels, interner)
    }
}

/// Pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodAffinity {
    /// Terms that must hold.
    pub required: Vec<PodAffinityTerm>,
    /// Terms that count.
    pub preferred: Vec<Weighted<PodAffinityTerm>>,
}

impl PodAffinity {
    /// Whether there is no term.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }
}

/// Which pods, and in which topology, a pod wants to be near to or away from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodAffinityTerm {
    /// Nodes with the same value of this label are one place.
    pub topology_key: KeyId,
    /// Which pods. The API server has merged `matchLabelKeys` and `mismatchLabelKeys` into it when the pod was created.
    pub selector: LabelSelector,
    /// In which namespaces by name, sorted; the pod's own if the term names and selects none.
    pub namespaces: Vec<Arc<str>>,
    /// And in which namespaces by label.
    pub namespace_selector: LabelSelector,
    /// `matchLabelKeys` as written.
    pub match_label_keys: Vec<KeyId>,
    /// `mismatchLabelKeys` as written.
    pub mismatch_label_keys: Vec<KeyId>,
}
