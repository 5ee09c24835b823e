//! What a provider says about itself, before any machine is launched.

use std::collections::BTreeSet;

use api::{NodeClassReference, groups};

use super::{Finding, Kit, ensure};
use crate::{NodeClassReadiness, RepairPolicies};

pub(super) fn it_says_what_it_is(kit: &Kit<'_>) -> Result<(), Finding> {
    ensure!(!kit.provider.name().is_empty(), "the name is empty");
    let kinds = kit.provider.node_class_kinds();
    ensure!(!kinds.is_empty(), "it serves no node class");
    let mut seen = BTreeSet::new();
    for kind in kinds {
        let complete = [kind.group, kind.version, kind.kind, kind.plural].iter().all(|part| !part.is_empty());
        ensure!(complete, "node class kind {kind:?} is incomplete");
        ensure!(seen.insert((kind.group, kind.kind)), "node class kind {kind:?} twice");
        ensure!(kind.group != groups::KARPENTER, "node class kind {kind:?} is in the core's own group");
    }
    let config = kit.provider.config();
    ensure!(config.launch_timeout.0 > 0, "the launch time-out is not positive");
    if let Some(label) = &config.labels.reservation_id {
        ensure!(config.labels.is_well_known(label), "the reservation id label {label} is not well-known");
    }
    Ok(())
}

pub(super) fn its_repair_policies_are_valid(kit: &Kit<'_>) -> Result<(), Finding> {
    match RepairPolicies::new(kit.provider.repair_policies()) {
        Ok(_) => Ok(()),
        Err(invalid) => Err(invalid.to_string().into()),
    }
}

pub(super) async fn an_absent_node_class_is_not_ready(kit: &Kit<'_>) -> Result<(), Finding> {
    let Some(kind) = kit.provider.node_class_kinds().first() else {
        return Err(Finding::NotPossible("it serves no node class".to_owned()));
    };
    let absent = NodeClassReference {
        group: kind.group.to_owned(),
        kind: kind.kind.to_owned(),
        name: "conformance-there-is-no-such-node-class".to_owned(),
    };
    let readiness = kit.provider.node_class_readiness(&absent).await?;
    ensure!(readiness == NodeClassReadiness::NotFound, "an absent node class reads {readiness:?}");
    Ok(())
}
