//! Where DaemonSets' pods run.
//!
//! Which daemons run on a node is the DaemonSet controller's decision, not kube-scheduler's score: node selector,
//! required node affinity (any of its terms) and taints, with the tolerations that the controller adds (`decode` puts
//! these into the DaemonSet's shape). A daemon whose affinity depends on a label that is still open counts as running.

use std::borrow::Cow;
use std::sync::Arc;

use api::labels;
use model::{Interner, PodShape, Requirement, Taint, ValueSet, workload::DaemonSet};

use super::affinity::{Term, accepts_unknown, terms, untolerated};
use super::{Node, NodePool};
use crate::catalogue::{OfferingId, TypeId};

/// Whether a daemon could run on a machine of a pool from an offering.
pub(crate) fn can_run(pool: &NodePool, offering: OfferingId, shape: &PodShape, names: &Interner) -> bool {
    untolerated(&pool.taints, &shape.tolerations, names).is_none()
        && terms(shape, names).iter().any(|term| unmet(pool, offering, term, names).is_none())
}

/// The first thing, by label, of a term that machines from an offering do not have.
fn unmet(pool: &NodePool, offering: OfferingId, term: &Term, names: &Interner) -> Option<KeptOff> {
    if !term.node_name.as_ref().is_none_or(accepts_unknown) {
        return Some(KeptOff::NodeName);
    }
    let hostname = names.find_key(labels::HOSTNAME);
    let is_unmet = |wanted: &&Requirement| {
        !pool.can_have(Some(offering), (wanted.key, Some(wanted.key) == hostname), &wanted.values, names)
    };
    let wanted = term.requirements.iter_by_name(names).find(is_unmet)?;
    if Some(wanted.key) == hostname {
        return Some(KeptOff::NodeName);
    }
    let has = pool.known(Some(offering), wanted.key, names).map(Cow::into_owned);
    Some(KeptOff::Label { wanted: wanted.clone(), has })
}

/// What keeps the pods of a DaemonSet off machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptOff {
    /// A taint of the NodePool that they do not tolerate.
    Taint(Taint),
    /// A label that their node selector or affinity wants.
    Label {
        /// What they want.
        wanted: Requirement,
        /// What machines have; `None` if they will not have the label.
        has: Option<ValueSet>,
    },
    /// They are for nodes of certain names or hostnames.
    NodeName,
    /// No node can satisfy their affinity.
    Nowhere,
}

impl KeptOff {
    /// Why, as the end of a sentence about the DaemonSet.
    pub fn message(&self, names: &Interner) -> String {
        match self {
            Self::Taint(taint) => format!("does not tolerate taint {}", taint.display(names)),
            Self::Label { wanted, has: None } => {
                format!("selects {}, a label that the machines do not have", wanted.display(names))
            }
            Self::Label { wanted, has: Some(has) } => {
                format!("selects {}, and the machines have {}", wanted.display(names), has.display(names))
            }
            Self::NodeName => "selects nodes by their names".to_owned(),
            Self::Nowhere => "has a node affinity that no node satisfies".to_owned(),
        }
    }
}

/// What keeps the pods of a daemon off every machine of an instance type that the pool may launch; `None` if they can
/// run on one of them, or if the pool launches none.
pub fn kept_off(pool: &NodePool, instance_type: TypeId, shape: &PodShape, names: &Interner) -> Option<KeptOff> {
    let offerings = pool.catalogue.offerings_of(instance_type);
    let mut allowed = offerings.filter(|&offering| pool.allows(&pool.catalogue.offerings[offering], names)).peekable();
    let first = *allowed.peek()?;
    if let Some(taint) = untolerated(&pool.taints, &shape.tolerations, names) {
        return Some(KeptOff::Taint(taint));
    }
    let terms = terms(shape, names);
    let runs = |offering: OfferingId| terms.iter().any(|term| unmet(pool, offering, term, names).is_none());
    if allowed.any(runs) {
        return None;
    }
    Some(terms.iter().find_map(|term| unmet(pool, first, term, names)).unwrap_or(KeptOff::Nowhere))
}

/// The daemons that the DaemonSet controller will make pods of for an existing node, and has not yet.
pub(crate) fn missing_sets<'d>(
    node: &Node,
    daemon_sets: &'d [Arc<DaemonSet>],
    names: &Interner,
) -> impl Iterator<Item = &'d Arc<DaemonSet>> {
    daemon_sets.iter().filter(move |set| {
        let shape = &set.template.shape;
        let is_there = node.pods.daemons().iter().any(|pod| {
            pod.name.namespace == set.name.namespace
                && pod.owner.as_ref().is_some_and(|owner| *owner.name == *set.name.name)
        });
        !is_there
            && untolerated(&node.taints, &shape.tolerations, names).is_none()
            && terms(shape, names).iter().any(|term| term.accepts(node, names))
    })
}
