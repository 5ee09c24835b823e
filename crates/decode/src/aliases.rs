//! Old spellings of label keys on machines that are still to come.
//!
//! kube-scheduler compares label keys literally: a pod that selects `beta.kubernetes.io/arch` needs a Node with that
//! very label. What NodePools, NodeClaims and instance types say is normalized to today's keys, so for a machine to
//! come each old key that its Node will carry says what today's key says. Old keys that no Node gets by itself
//! (`failure-domain.beta.kubernetes.io/zone`) are labels like any other: nobody defines them.
//!
//! Differs: `old-labels`. Karpenter normalizes what pods ask for as well, and so launches machines that kube-scheduler
//! refuses.

use api::labels::ALIASES_ON_NODES;
use model::{Interner, Labels, Requirement, Requirements};

/// Takes old keys for the keys that they stand for: how a NodeClaim that was planned for pods says what they ask for.
pub fn normalize(requirements: &mut Requirements, interner: &Interner) {
    for (alias, key) in ALIASES_ON_NODES {
        let (Some(alias), Some(key)) = (interner.find_key(alias), interner.find_key(key)) else { continue };
        if let Some(Requirement { values, min_values, .. }) = requirements.remove(alias) {
            requirements.insert_intersect(Requirement { key, values, min_values }, interner);
        }
    }
}

/// Adds the old keys to what is known of a machine's labels.
pub fn promise(requirements: &mut Requirements, interner: &mut Interner) {
    for (alias, key) in ALIASES_ON_NODES {
        let (alias, key) = (interner.key(alias), interner.key(key));
        if let Some(requirement) = requirements.get(key) {
            let copy = Requirement::new(alias, requirement.values.clone());
            requirements.insert_intersect(copy, interner);
        }
    }
}

/// Adds the old keys to the labels of a Node that has only just come and does not have them yet.
pub fn complete(labels: &mut Labels, interner: &mut Interner) {
    for (alias, key) in ALIASES_ON_NODES {
        let (alias, key) = (interner.key(alias), interner.key(key));
        if let (None, Some(value)) = (labels.get(alias), labels.get(key)) {
            labels.insert(alias, value);
        }
    }
}
