//! Node selector, required node affinity and taints against what is known of a node or of a machine to come.

use std::borrow::Cow;
use std::sync::Arc;

use model::{Interner, KeyId, PodShape, Requirement, Requirements, Taint, Toleration, ValueSet, pod::VolumeRef};

use super::{Node, NodeLabels, NodePool, Volumes};
use crate::catalogue::OfferingId;
use crate::tuning::MAX_TERMS;

/// The node selector together with one term of the required node affinity: one way to satisfy both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// The terms together with where each volume of the pod lets it go: a bound volume's node affinity, and the topologies
/// in which the class of a claim that waits makes volumes. `None` if there are more than [`MAX_TERMS`] combinations.
pub(crate) fn terms_with_volumes(shape: &PodShape, volumes: &Volumes, names: &Interner) -> Option<Vec<Term>> {
    let mut all = terms(shape, names);
    for volume in &shape.volumes {
        all = narrowed(&all, &reachable(volume, volumes), names);
        if all.len() > MAX_TERMS {
            return None;
        }
    }
    Some(all)
}

/// What is left of some terms where one of the places of a volume has to be reached, too.
pub(crate) fn narrowed(terms: &[Term], places: &[Term], names: &Interner) -> Vec<Term> {
    if places.is_empty() {
        return terms.to_vec();
    }
    let mut narrowed: Vec<Term> = Vec::new();
    for term in terms {
        for place in places {
            let mut requirements = term.requirements.clone();
            requirements.intersect(&place.requirements, names);
            let node_name = match (&term.node_name, &place.node_name) {
                (Some(one), Some(other)) => Some(one.intersect(other, names)),
                (one, other) => one.clone().or_else(|| other.clone()),
            };
            let term = Term { requirements, node_name };
            if term.requirements.first_empty(names).is_none() && !narrowed.contains(&term) {
                narrowed.push(term);
            }
        }
    }
    narrowed
}

/// Ways to reach a volume; none if every node does.
pub(crate) fn reachable(volume: &VolumeRef, volumes: &Volumes) -> Vec<Term> {
    let class_topologies = |class: Option<&Arc<str>>| {
        let class = volumes.class_of(class);
        let allowed = class.map(|class| class.allowed_topologies.as_slice()).unwrap_or_default();
        allowed.iter().map(|allowed| Term { requirements: allowed.clone(), node_name: None }).collect()
    };
    match volume {
        VolumeRef::Ephemeral { storage_class, .. } => class_topologies(storage_class.as_ref()),
        VolumeRef::Claim(claim) => {
            let Some(claim) = volumes.claims.get(claim) else { return Vec::new() };
            let Some(volume) = &claim.volume_name else { return class_topologies(claim.storage_class.as_ref()) };
            let Some(volume) = volumes.volumes.get(volume) else { return Vec::new() };
            let usable = volume.node_affinity.iter().filter(|term| term.unusable.is_none());
            let terms: Vec<Term> = usable
                .map(|term| Term { requirements: term.expressions.clone(), node_name: term.node_name.clone() })
                .collect();
            if terms.is_empty() && !volume.node_affinity.is_empty() { vec![Term::nowhere()] } else { terms }
        }
    }
}

impl Term {
    /// A term that no node satisfies.
    fn nowhere() -> Self {
        Self { requirements: Requirements::default(), node_name: Some(ValueSet::nothing()) }
    }

    /// Whether an existing node satisfies the term whatever comes of the labels it has not got yet.
    pub(crate) fn accepts(&self, node: &Node, names: &Interner) -> bool {
        self.accepts_name(node, names) && self.requirements.iter().all(|wanted| surely(&node.labels, wanted, names))
    }

    /// Whether the node may turn out to satisfy it: nothing that is known of its labels contradicts. The same as
    /// [`Self::accepts`] where all labels are known. `will_miss` says of a key that the node's NodeClaim does not
    /// mention whether the node will not have it.
    pub(crate) fn may_accept(&self, node: &Node, names: &Interner, will_miss: impl Fn(KeyId) -> bool) -> bool {
        let has_name = node.name.is_none() || self.accepts_name(node, names);
        has_name && self.requirements.iter().all(|wanted| possibly(&node.labels, wanted, names, &will_miss))
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

impl NodePool {
    /// What the pool and one of its offerings say of a label; `None` if neither says anything.
    pub(crate) fn known(
        &self,
        offering: Option<OfferingId>,
        key: KeyId,
        names: &Interner,
    ) -> Option<Cow<'_, ValueSet>> {
        let offered = offering.and_then(|offering| self.catalogue.offerings[offering].requirements.get(key));
        match (offered, self.requirements.get(key)) {
            (Some(offered), Some(pool)) => Some(Cow::Owned(offered.values.intersect(&pool.values, names))),
            (Some(known), None) | (None, Some(known)) => Some(Cow::Borrowed(&known.values)),
            (None, None) => None,
        }
    }

    /// Whether the label of a machine from the offering (or, without one, from an offering that does not mention the
    /// key) can have one of the wanted values. A key that neither the offering nor the pool knows will be absent; only
    /// the hostname is always there, with a value nobody can name beforehand: the key goes with whether it is that.
    ///
    /// Differs: `undefined-well-known-label`. Karpenter lets any well-known label be undefined, so that a pod can be
    /// planned onto a machine that will never have the label it selects.
    pub(crate) fn can_have(
        &self,
        offering: Option<OfferingId>,
        (key, is_hostname): (KeyId, bool),
        wanted: &ValueSet,
        names: &Interner,
    ) -> bool {
        match self.known(offering, key, names) {
            Some(values) => values.intersects(wanted, names),
            None if is_hostname => accepts_unknown(wanted),
            None => wanted.allows_absent(),
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

/// Whether nothing that is known of a node's labels contradicts one requirement.
fn possibly(labels: &NodeLabels, wanted: &Requirement, names: &Interner, will_miss: impl Fn(KeyId) -> bool) -> bool {
    match labels {
        NodeLabels::Known(_) => surely(labels, wanted, names),
        NodeLabels::Promised(promised) => match promised.get(wanted.key) {
            Some(promised) => promised.values.intersects(&wanted.values, names),
            None => wanted.values.allows_absent() || !will_miss(wanted.key),
        },
    }
}

/// The first taint, by name, that keeps pods away and is not tolerated. `PreferNoSchedule` keeps nobody away.
pub(crate) fn untolerated(taints: &[Taint], tolerations: &[Toleration], names: &Interner) -> Option<Taint> {
    first(taints.iter().filter(|taint| taint.is_hard()), tolerations, names)
}

/// The taint that keeps out a pod to be planned, which may be planned so that `PreferNoSchedule` counts.
pub(crate) fn keeps_out(taints: &[Taint], shape: &PodShape, names: &Interner) -> Option<Taint> {
    let counts = |taint: &&Taint| taint.is_hard() || shape.avoids_soft_taints;
    first(taints.iter().filter(counts), &shape.tolerations, names)
}

/// The first taint that would rather keep a pod away and is not tolerated.
pub(crate) fn would_keep_out(taints: &[Taint], shape: &PodShape, names: &Interner) -> Option<Taint> {
    first(taints.iter().filter(|taint| !taint.is_hard()), &shape.tolerations, names)
}

fn first<'t>(taints: impl Iterator<Item = &'t Taint>, tolerations: &[Toleration], names: &Interner) -> Option<Taint> {
    taints
        .filter(|taint| !taint.is_tolerated_by(tolerations, names))
        .min_by_key(|taint| (names.key_name(taint.key), names.value_name(taint.value), taint.effect))
        .copied()
}
