//! `spec.affinity`.

use std::sync::Arc;

use model::pod::{NodeSelectorTerm, PodAffinity, PodAffinityTerm, Weighted};
use model::{KeyId, LabelSelector, Labels, Operator, Requirement, ValueSet};

use crate::context::Context;
use crate::error::{Problem, Reason};
use crate::field::Field;
use crate::selector::{label_selector, node_selector, node_selector_term};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn required_node_affinity(
    affinity: &Field<'_, '_>,
    context: &mut Context<'_>,
) -> Result<Vec<NodeSelectorTerm>, Problem> {
    affinity.only(&[REQUIRED, PREFERRED])?;
    node_selector(&affinity.field(REQUIRED)?, context)
}

pub(super) fn preferred_node_affinity(
    affinity: &Field<'_, '_>,
    context: &mut Context<'_>,
) -> Result<Vec<Weighted<NodeSelectorTerm>>, Problem> {
    let terms = affinity.field(PREFERRED)?;
    let term = |item: Field<'_, '_>| {
        let term = node_selector_term(&item.field("preference")?, context)?;
        Ok(Weighted { weight: weight(&item)?, term })
    };
    terms.items()?.map(term).collect()
}

pub(super) fn pod_affinity(
    affinity: &Field<'_, '_>,
    namespace: &str,
    labels: &Labels,
    context: &mut Context<'_>,
) -> Result<PodAffinity, Problem> {
    affinity.only(&[REQUIRED, PREFERRED])?;
    let (required, preferred) = (affinity.field(REQUIRED)?, affinity.field(PREFERRED)?);
    let mut decoded = PodAffinity::default();
    for item in required.items()? {
        decoded.required.push(pod_affinity_term(&item, namespace, labels, context)?);
    }
    for item in preferred.items()? {
        let term = pod_affinity_term(&item.field("podAffinityTerm")?, namespace, labels, context)?;
        decoded.preferred.push(Weighted { weight: weight(&item)?, term });
    }
    Ok(decoded)
}

fn pod_affinity_term(
    term: &Field<'_, '_>,
    namespace: &str,
    labels: &Labels,
    context: &mut Context<'_>,
) -> Result<PodAffinityTerm, Problem> {
    term.only(&[
        "labelSelector",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "namespaceSelector",
        "namespaces",
        "topologyKey",
    ])?;
    let mut keys = |name| -> Result<Vec<KeyId>, Problem> {
        Ok(term.field(name)?.strings()?.into_iter().map(|key| context.interner.key(key)).collect())
    };
    let (match_label_keys, mismatch_label_keys) = (keys("matchLabelKeys")?, keys("mismatchLabelKeys")?);
    let mut selector = label_selector(&term.field("labelSelector")?, context)?;
    // The API server merges both lists into the selector when a pod is created; to do it again changes nothing, and a
    // manifest that never met an API server needs it.
    if let LabelSelector::Matching(requirements) = &mut selector {
        let lists = [(&match_label_keys, Operator::In), (&mismatch_label_keys, Operator::NotIn)];
        for (keys, operator) in lists {
            for &key in keys {
                let Some(value) = labels.get(key) else { continue };
                if let Ok(values) = ValueSet::of(operator, &[value], context.interner) {
                    requirements.insert_intersect(Requirement::new(key, values), context.interner);
                }
            }
        }
    }
    let mut namespaces: Vec<Arc<str>> = term.field("namespaces")?.strings()?.into_iter().map(Arc::from).collect();
    let namespace_selector = label_selector(&term.field("namespaceSelector")?, context)?;
    if namespaces.is_empty() && namespace_selector == LabelSelector::Nothing {
        namespaces.push(namespace.into());
    }
    namespaces.sort();
    namespaces.dedup();
    Ok(PodAffinityTerm {
        topology_key: context.interner.key(term.field("topologyKey")?.required_str()?),
        selector,
        namespaces,
        namespace_selector,
        match_label_keys,
        mismatch_label_keys,
    })
}

fn weight(item: &Field<'_, '_>) -> Result<i32, Problem> {
    item.only(&["weight", "preference", "podAffinityTerm"])?;
    let weight = item.field("weight")?;
    let weight_or_missing = weight.int(1, 100)?.ok_or_else(|| weight.problem(Reason::Missing))?;
    Ok(i32::try_from(weight_or_missing).unwrap_or(100))
}
