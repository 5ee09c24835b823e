//! Why nothing is left of what a pod asks of nodes.

use std::sync::Arc;

use model::{Interner, PodShape, pod::VolumeRef};

use crate::plan::reason::Contradiction;
use crate::snapshot::Volumes;
use crate::snapshot::affinity;
use crate::snapshot::affinity::Term;

/// What contradicts what, of a shape without any [`Term`] left.
pub(super) fn contradictions(shape: &PodShape, volumes: &Volumes, names: &Interner) -> Vec<Contradiction> {
    let left = affinity::terms(shape, names);
    if left.is_empty() { within_affinity(shape, names) } else { with_volumes(left, shape, volumes, names) }
}

fn within_affinity(shape: &PodShape, names: &Interner) -> Vec<Contradiction> {
    let terms = shape.required_node_affinity.iter().enumerate();
    terms
        .filter_map(|(term, wanted)| {
            if let Some(why) = &wanted.unusable {
                return Some(Contradiction::UnusableTerm { term, why: why.clone() });
            }
            if let Some(key) = wanted.expressions.first_empty(names) {
                return Some(Contradiction::WithinTerm { term, key });
            }
            let mut both = shape.node_selector.clone();
            both.intersect(&wanted.expressions, names);
            let key = both.first_empty(names)?;
            let asked = wanted.expressions.get(key)?.values.clone();
            let selected = shape.node_selector.get(key)?.values.clone();
            Some(Contradiction::NodeSelector { term, key, asked, selected })
        })
        .collect()
}

/// The first volume that nothing is left with; one contradiction for each way that was left before it.
fn with_volumes(mut left: Vec<Term>, shape: &PodShape, volumes: &Volumes, names: &Interner) -> Vec<Contradiction> {
    for volume in &shape.volumes {
        let places = affinity::reachable(volume, volumes);
        let narrowed = affinity::narrowed(&left, &places, names);
        if narrowed.is_empty() {
            let name = named(volume);
            let mut found: Vec<Contradiction> = Vec::new();
            for (term, place) in left.iter().flat_map(|term| places.iter().map(move |place| (term, place))) {
                let mut both = term.requirements.clone();
                both.intersect(&place.requirements, names);
                let Some(key) = both.first_empty(names) else { continue };
                let of = |term: &Term| term.requirements.get(key).map(|wanted| wanted.values.clone());
                let (Some(reachable), Some(wanted)) = (of(place), of(term)) else { continue };
                let one = Contradiction::Volume { volume: Arc::clone(&name), key, reachable, wanted };
                if !found.contains(&one) {
                    found.push(one);
                }
            }
            return found;
        }
        left = narrowed;
    }
    Vec::new()
}

fn named(volume: &VolumeRef) -> Arc<str> {
    match volume {
        VolumeRef::Ephemeral { volume, .. } => format!("ephemeral volume {volume}").into(),
        VolumeRef::Claim(claim) => format!("PersistentVolumeClaim {claim}").into(),
    }
}
