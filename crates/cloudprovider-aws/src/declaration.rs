//! What the offline commands need to know of this provider.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::labels::{self as core_labels, LabelDomain, ProviderLabels};
use cloudprovider::declaration::{Declaration, DefaultNodeClass};
use cloudprovider::{InstanceType, NodeClassKind};

use crate::{catalogue, labels, names, node_class, options};

/// The only kind of node class.
const NODE_CLASS_KIND: NodeClassKind =
    NodeClassKind { group: names::GROUP, version: "v1", kind: names::NODE_CLASS_KIND, plural: "ec2nodeclasses" };

/// The well-known labels of the domain, and that of the node class, which only NodeClaims have.
const LABELS_OF_DOMAIN: [&str; labels::WELL_KNOWN.len()] = {
    // The first of the well-known ones is of another domain.
    let mut keys = labels::WELL_KNOWN;
    keys[0] = names::NODE_CLASS;
    keys
};

/// The labels of the domain. They are in the CRDs, so that a label that is misspelled is refused.
const LABEL_DOMAIN: LabelDomain = LabelDomain {
    domain: names::GROUP,
    keys: &LABELS_OF_DOMAIN,
    not_in_overlays: &[
        labels::CAPACITY_RESERVATION_ID,
        labels::CAPACITY_RESERVATION_TYPE,
        labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ],
};

/// The provider for EC2.
pub const DECLARATION: Declaration = Declaration {
    name: "aws",
    log_target: "cloudprovider_aws",
    options_heading: "Provider aws",
    options: &options::ALL,
    node_class_kinds: &[NODE_CLASS_KIND],
    crds: || vec![node_class::crd()],
    label_domains: &[LABEL_DOMAIN],
    default_node_class: DefaultNodeClass { kind: NODE_CLASS_KIND, name: "default" },
    catalogue_options: &options::CATALOGUE,
    catalogue: catalogue::of_input,
    repair_policies: Vec::new,
    catalogue_of_node_class: Some(catalogue::of_node_class),
    labels: provider_labels,
};

/// The label rules of EC2. They do not depend on the catalogue: a type of tomorrow has labels of today.
pub fn provider_labels(_: &[Arc<InstanceType>]) -> ProviderLabels {
    let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
    ProviderLabels {
        well_known: owned(&labels::WELL_KNOWN),
        restricted_domains: owned(&[names::GROUP]),
        aliases: BTreeMap::from([(labels::EBS_ZONE.to_owned(), core_labels::ZONE.to_owned())]),
        offering: owned(&[
            labels::ZONE_ID,
            labels::CAPACITY_RESERVATION_ID,
            labels::CAPACITY_RESERVATION_TYPE,
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
            labels::PLACEMENT_GROUP_PARTITION,
        ]),
        reservation_id: Some(labels::CAPACITY_RESERVATION_ID.to_owned()),
        reserved_capacity: owned(&[labels::CAPACITY_RESERVATION_TYPE, labels::CAPACITY_RESERVATION_INTERRUPTIBLE]),
        ..ProviderLabels::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_ec2_are_well_known_and_the_rest_of_its_domain_is_restricted() {
        let labels = provider_labels(&[]);
        for key in labels::WELL_KNOWN {
            assert!(labels.is_well_known(key) && !labels.is_restricted(key), "{key}");
        }
        for key in ["karpenter.k8s.aws/instance-sizes", "karpenter.k8s.aws/nitro-sandbox", "a.karpenter.k8s.aws/b"] {
            assert!(labels.is_restricted(key), "{key}");
        }
        assert_eq!(labels.normalize(labels::EBS_ZONE), core_labels::ZONE);
    }

    #[test]
    fn the_domain_has_every_well_known_label_of_it_and_the_node_class() {
        let LabelDomain { domain, keys, not_in_overlays } = LABEL_DOMAIN;
        let of_domain = |key: &str| key.split_once('/').is_some_and(|(start, _)| start == domain);
        assert!(keys.iter().all(|key| of_domain(key)));
        assert!(labels::WELL_KNOWN.iter().filter(|key| of_domain(key)).all(|key| keys.contains(key)));
        assert!(keys.contains(&names::NODE_CLASS));
        assert!(not_in_overlays.iter().all(|key| keys.contains(key)));
    }

    #[test]
    fn the_crd_is_of_the_declared_kind() {
        let [kind] = DECLARATION.node_class_kinds else { panic!("one kind") };
        let crds = (DECLARATION.crds)();
        let spec = &crds[0].spec;
        assert_eq!((&*spec.group, &*spec.names.kind, &*spec.names.plural), (kind.group, kind.kind, kind.plural));
        assert_eq!(spec.versions[0].name, kind.version);
        assert_eq!(spec.scope, "Cluster");
    }
}
