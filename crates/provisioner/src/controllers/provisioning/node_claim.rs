//! What provisioning notes on a planned machine's NodeClaim beside what the plan says of it.

use api::{NodeClaim, annotations};
use model::Uid;
use model::collections::NameMap;

use crate::world::planned_pods;

/// Notes on a planned claim for which classes of pods it is launched.
pub(super) fn note_classes(claim: &mut NodeClaim, classes: Option<&String>) {
    let noted = classes.map(|classes| (annotations::LAUNCHED_FOR.to_owned(), classes.clone()));
    claim.metadata.annotations.get_or_insert_default().extend(noted);
}

/// Notes on a planned claim which of its pods are to be bound after others.
pub(super) fn note_stages(claim: &mut NodeClaim, pods: &[Uid], stages: &NameMap<Uid, u32>) {
    if pods.iter().any(|pod| stages.contains_key(pod)) {
        let all = claim.metadata.annotations.get_or_insert_default();
        all.extend(planned_pods::encode(pods, stages).map(|value| (planned_pods::ANNOTATION.to_owned(), value)));
    }
}
