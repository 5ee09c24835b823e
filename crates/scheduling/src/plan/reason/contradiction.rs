//! What a pod asks of nodes that no node whatever can give.

use std::sync::Arc;

use model::{Interner, KeyId, ValueSet, pod::UnusableTerm};

use super::expression;
use crate::tuning::TOLD_CONTRADICTIONS;

/// Why one alternative of a required node affinity matches no node, or why no node reaches a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contradiction {
    /// A term that matches nothing by itself.
    UnusableTerm {
        /// Its place among the `nodeSelectorTerms`, from 0.
        term: usize,
        /// Why.
        why: UnusableTerm,
    },
    /// The expressions of a term on one label exclude each other.
    WithinTerm {
        /// Its place, from 0.
        term: usize,
        /// The first such label by name.
        key: KeyId,
    },
    /// A term and the pod's `nodeSelector` exclude each other.
    NodeSelector {
        /// The term's place, from 0.
        term: usize,
        /// The first such label by name.
        key: KeyId,
        /// What the term asks.
        asked: ValueSet,
        /// What the node selector asks.
        selected: ValueSet,
    },
    /// A volume is only where the pod, or another of its volumes, can't be.
    Volume {
        /// The volume or its claim.
        volume: Arc<str>,
        /// The first label by name that keeps them apart.
        key: KeyId,
        /// Where the volume is, or will be made.
        reachable: ValueSet,
        /// What the pod and the volumes before it leave.
        wanted: ValueSet,
    },
}

impl Contradiction {
    fn message(&self, names: &Interner) -> String {
        let name = |term: &usize| format!("nodeSelectorTerms[{term}] of its node affinity");
        match self {
            Self::UnusableTerm { term, why: UnusableTerm::Empty } => format!("{} is empty", name(term)),
            Self::UnusableTerm { term, why: UnusableTerm::Invalid(why) } => {
                format!("{} is invalid ({why})", name(term))
            }
            Self::WithinTerm { term, key } => {
                format!("{} leaves no value of {}", name(term), names.key_name(*key))
            }
            Self::NodeSelector { term, key, asked, selected } => format!(
                "{} wants {}, its nodeSelector {}",
                name(term),
                expression(*key, asked, names),
                expression(*key, selected, names)
            ),
            Self::Volume { volume, key, reachable, wanted } => format!(
                "{volume} is only reached with {}, the pod wants {}",
                expression(*key, reachable, names),
                expression(*key, wanted, names)
            ),
        }
    }
}

/// All of them in one sentence.
pub(super) fn message(all: &[Contradiction], names: &Interner) -> String {
    let told: Vec<String> = all.iter().take(TOLD_CONTRADICTIONS).map(|one| one.message(names)).collect();
    let rest = all.len().saturating_sub(TOLD_CONTRADICTIONS);
    let rest = if rest > 0 { format!("; and {rest} more terms") } else { String::new() };
    format!("no node can satisfy it: {}{rest}", told.join("; "))
}
