//! What the offline commands need to know of this provider.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::labels::{self, ProviderLabels};
use cloudprovider::declaration::{Catalogue, CatalogueError, CatalogueInput, Declaration, DefaultNodeClass};
use cloudprovider::{ConditionStatus, InstanceType, NodeClassKind, RepairAction, RepairPolicy};
use model::DurationMs;

use crate::{catalogue, names, node_class, options};

/// The only kind of node class.
const NODE_CLASS_KIND: NodeClassKind =
    NodeClassKind { group: names::GROUP, version: "v1alpha1", kind: "KWOKNodeClass", plural: "kwoknodeclasses" };

/// The provider for fake nodes.
pub const DECLARATION: Declaration = Declaration {
    name: "kwok",
    log_target: "cloudprovider_kwok",
    options_heading: "Provider kwok",
    options: &options::ALL,
    node_class_kinds: &[NODE_CLASS_KIND],
    crds: || vec![node_class::crd()],
    // A catalogue in a file may bring labels of this domain along.
    label_domains: &[],
    default_node_class: DefaultNodeClass { kind: NODE_CLASS_KIND, name: "default" },
    catalogue_options: &[],
    catalogue: machines,
    repair_policies,
    catalogue_of_node_class: None,
    labels: provider_labels,
};

/// Karpenter's: a Node that is not ready for ten minutes, and two conditions for tests.
pub fn repair_policies() -> Vec<RepairPolicy> {
    let policy = |condition_type: &str, condition_status, reason_regex: &str, toleration, grace, action| RepairPolicy {
        condition_type: condition_type.to_owned(),
        condition_status,
        reason_regex: reason_regex.to_owned(),
        toleration: DurationMs::from_seconds(toleration),
        termination_grace_period: Some(DurationMs::from_seconds(grace)),
        priority: 0,
        action,
    };
    let (replace, reboot) = (RepairAction::ReplaceNode, RepairAction::RebootNode);
    vec![
        policy("Ready", ConditionStatus::False, "", 600, 0, replace),
        policy("Ready", ConditionStatus::Unknown, ".*", 600, 0, replace),
        policy("KWOKUnhealthy", ConditionStatus::True, ".*", 30, 45, replace),
        policy("KWOKRebootRequired", ConditionStatus::True, ".*", 30, 60, reboot),
    ]
}

fn machines(input: &CatalogueInput) -> Result<Catalogue, CatalogueError> {
    let Some(text) = &input.instance_types else {
        return Ok(Catalogue { instance_types: catalogue::default_instance_types(), left_out: Vec::new() });
    };
    let told = |error: catalogue::Error| CatalogueError(error.to_string());
    let read = catalogue::parse(text).map_err(told)?;
    Ok(Catalogue { instance_types: read.instance_types, left_out: read.left_out.into_iter().map(told).collect() })
}

/// The label rules of a provider with that catalogue: Karpenter's kwok labels, and whatever else its machines carry.
pub fn provider_labels(types: &[Arc<InstanceType>]) -> ProviderLabels {
    let mut well_known: BTreeSet<String> =
        [names::KWOK_INSTANCE_CPU, names::KWOK_INSTANCE_MEMORY, names::KWOK_INSTANCE_FAMILY, names::KWOK_INSTANCE_SIZE]
            .map(str::to_owned)
            .into();
    for instance_type in types {
        well_known.extend(instance_type.requirements.keys().cloned());
    }
    well_known.retain(|key| !labels::WELL_KNOWN.contains(&key.as_str()));
    ProviderLabels { well_known, restricted_domains: [names::GROUP.to_owned()].into(), ..ProviderLabels::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_catalogue_are_well_known_and_the_rest_of_our_domain_is_restricted() {
        let types: Vec<_> = catalogue::default_instance_types().into_iter().map(Arc::new).collect();
        let labels = provider_labels(&types);
        assert!(labels.is_well_known(names::KWOK_INSTANCE_FAMILY));
        assert!(!labels.is_restricted(names::KWOK_INSTANCE_CPU));
        assert!(labels.is_restricted("karpenter.kwok.sh/anything-else"));
    }
}
