//! What decides where a pod may go.

use std::sync::Arc;

use super::Pod;
use super::affinity::{NodeSelectorTerm, PodAffinity, Weighted};
use super::host_port::HostPort;
use crate::intern::{Interner, KeyId, ValueId};
use crate::labels::Labels;
use crate::names::{NamespacedName, ResourceClaimName};
use crate::requirement::Requirements;
use crate::resources::ResourceVec;
use crate::selector::LabelSelector;
use crate::taint::Toleration;
use crate::unsupported::Unsupported;

/// Everything about a pod that decides where it may go. Pods with equal shapes are one class.
///
/// References to objects carry the namespace, so that equal shapes mean the same objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodShape {
    /// What it requests, including one of `pods`.
    pub requests: ResourceVec,
    /// `spec.nodeSelector`.
    pub node_selector: Requirements,
    /// The alternatives of the required node affinity. None at all means no requirement; an affinity that is present
    /// but matches nothing holds an unusable term.
    pub required_node_affinity: Vec<NodeSelectorTerm>,
    /// The preferred node affinity.
    pub preferred_node_affinity: Vec<Weighted<NodeSelectorTerm>>,
    /// The taints it puts up with.
    pub tolerations: Vec<Toleration>,
    /// Whether `PreferNoSchedule` taints that it does not tolerate keep it away too. No pod says so of itself: it is
    /// how a plan is made in which that preference holds.
    pub avoids_soft_taints: bool,
    /// How it wants to be spread.
    pub topology_spread: Vec<TopologySpreadConstraint>,
    /// Which pods it wants to be near to.
    pub pod_affinity: PodAffinity,
    /// Which pods it wants to be away from.
    pub pod_anti_affinity: PodAffinity,
    /// The ports it takes on its node.
    pub host_ports: Vec<HostPort>,
    /// The volumes that can restrict where it goes.
    pub volumes: Vec<VolumeRef>,
    /// The devices it claims.
    pub resource_claims: Vec<PodResourceClaim>,
    /// The group it is scheduled with.
    pub scheduling_group: Option<SchedulingGroup>,
    /// Constructs that cannot be planned for: the pod is refused for each.
    pub unsupported: Vec<Unsupported>,
}

impl PodShape {
    /// The spread that must be kept.
    pub fn hard_spread(&self) -> impl Iterator<Item = &TopologySpreadConstraint> {
        self.topology_spread.iter().filter(|spread| spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
    }

    /// Whether node selector and required node affinity allow a node with these labels and this name, as kube-scheduler
    /// decides it. For `node_name` see [`NodeSelectorTerm::matches`].
    pub fn node_affinity_matches(&self, labels: &Labels, node_name: Option<ValueId>, interner: &Interner) -> bool {
        self.node_selector.matches_labels(labels, interner)
            && (self.required_node_affinity.is_empty()
                || self.required_node_affinity.iter().any(|term| term.matches(labels, node_name, interner)))
    }
}

/// How pods that a selector picks are to be spread over the values of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopologySpreadConstraint {
    /// How much more pods one value may have than the least.
    pub max_skew: u32,
    /// The label.
    pub topology_key: KeyId,
    /// What happens if it cannot be kept.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// Which pods count.
    pub selector: LabelSelector,
    /// The namespace they count in, which is the pod's own.
    pub namespace: Arc<str>,
    /// How many values there must be before the least is not zero.
    pub min_domains: Option<u32>,
    /// Whether only nodes count that the pod's node selector and affinity allow.
    pub node_affinity_policy: NodeInclusionPolicy,
    /// Whether only nodes count whose taints the pod tolerates.
    pub node_taints_policy: NodeInclusionPolicy,
    /// Keys whose values at the pod narrow the selector.
    pub match_label_keys: Vec<KeyId>,
    /// Who asks for it.
    pub source: SpreadSource,
}

impl TopologySpreadConstraint {
    /// Whether it counts the pod, wherever that is.
    pub fn counts(&self, pod: &Pod, names: &Interner) -> bool {
        self.namespace == pod.name.namespace && self.selector.matches(&pod.labels, names)
    }
}

/// Who asks for a spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpreadSource {
    /// The pod itself.
    Pod,
    /// kube-scheduler's configuration, of pods that ask for none themselves.
    ClusterDefault,
}

/// What happens to a pod whose spread constraint cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenUnsatisfiable {
    /// It stays pending.
    DoNotSchedule,
    /// It is placed as well as possible.
    ScheduleAnyway,
}

/// Whether a property of nodes is looked at when topology values are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeInclusionPolicy {
    /// It is.
    Honor,
    /// It is not.
    Ignore,
}

/// A volume that can restrict where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeRef {
    /// A claim that exists by itself.
    Claim(NamespacedName),
    /// A claim that is made for this pod.
    Ephemeral {
        /// The volume's name in the pod.
        volume: Arc<str>,
        /// The storage class; `None` for the default one.
        storage_class: Option<Arc<str>>,
    },
}

/// One entry of `spec.resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodResourceClaim {
    /// The entry's name, which containers refer to.
    pub name: ResourceClaimName,
    /// Where the claim comes from.
    pub source: PodResourceClaimSource,
}

/// Where a ResourceClaim comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodResourceClaimSource {
    /// It exists by itself and may be shared.
    Claim(NamespacedName),
    /// It is made for this pod from a ResourceClaimTemplate.
    Template(NamespacedName),
}

/// The group that a pod is scheduled with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchedulingGroup {
    /// Its PodGroup.
    pub pod_group: NamespacedName,
}

#[cfg(test)]
mod tests {
    use super::super::affinity::UnusableTerm;
    use super::*;
    use crate::requirement::{Operator, Requirement, ValueSet};

    fn requirements(list: &[(&str, Operator, &[&str])], interner: &mut Interner) -> Requirements {
        let parsed: Vec<_> = list
            .iter()
            .map(|(key, operator, values)| {
                Requirement::parse(key, *operator, values.iter().copied(), interner).unwrap()
            })
            .collect();
        Requirements::from_requirements(parsed, interner)
    }

    fn term(list: &[(&str, Operator, &[&str])], interner: &mut Interner) -> NodeSelectorTerm {
        NodeSelectorTerm { expressions: requirements(list, interner), ..NodeSelectorTerm::default() }
    }

    fn named(operator: Operator, name: &str, interner: &mut Interner) -> NodeSelectorTerm {
        let name = interner.value(name);
        let names = ValueSet::of(operator, &[name], interner).unwrap();
        NodeSelectorTerm { node_name: Some(names), ..NodeSelectorTerm::default() }
    }

    fn matches(shape: &PodShape, labels: &[(&str, &str)], name: &str, interner: &mut Interner) -> bool {
        let labels = Labels::intern(labels.iter().copied(), interner);
        shape.node_affinity_matches(&labels, interner.find_value(name), interner)
    }

    #[test]
    fn one_alternative_is_enough_but_the_node_selector_must_hold() {
        let mut interner = Interner::new();
        let shape = PodShape {
            node_selector: requirements(&[("os", Operator::In, &["linux"])], &mut interner),
            required_node_affinity: vec![
                term(&[("zone", Operator::In, &["a"]), ("cpu", Operator::Gt, &["4"])], &mut interner),
                term(&[("gpu", Operator::Exists, &[])], &mut interner),
            ],
            ..PodShape::default()
        };
        let cases: [(&[(&str, &str)], bool); 6] = [
            (&[("os", "linux"), ("zone", "a"), ("cpu", "8")], true),
            (&[("os", "linux"), ("gpu", "")], true),
            (&[("os", "linux"), ("zone", "a"), ("cpu", "4")], false),
            (&[("os", "linux"), ("zone", "a"), ("cpu", "many")], false),
            (&[("os", "linux")], false),
            (&[("zone", "a"), ("cpu", "8"), ("gpu", "")], false),
        ];
        for (labels, expected) in cases {
            assert_eq!(matches(&shape, labels, "n", &mut interner), expected, "{labels:?}");
        }
    }

    #[test]
    fn no_affinity_allows_every_node_and_an_unusable_one_none() {
        let mut interner = Interner::new();
        assert!(matches(&PodShape::default(), &[], "n", &mut interner));
        for reason in [UnusableTerm::Empty, UnusableTerm::Invalid("bad operator".into())] {
            let unusable = NodeSelectorTerm::unusable(reason);
            let shape = PodShape { required_node_affinity: vec![unusable.clone()], ..PodShape::default() };
            assert!(!matches(&shape, &[("a", "b")], "n", &mut interner));
            // It does not spoil the alternatives beside it.
            let other = term(&[("a", Operator::Exists, &[])], &mut interner);
            let shape = PodShape { required_node_affinity: vec![unusable, other], ..PodShape::default() };
            assert!(matches(&shape, &[("a", "b")], "n", &mut interner));
        }
    }

    #[test]
    fn terms_can_name_the_node() {
        let mut interner = Interner::new();
        let only =
            PodShape { required_node_affinity: vec![named(Operator::In, "n-1", &mut interner)], ..PodShape::default() };
        let except = PodShape {
            required_node_affinity: vec![named(Operator::NotIn, "n-1", &mut interner)],
            ..PodShape::default()
        };
        // A name that was never interned is one that no requirement mentions.
        for (name, is_it) in [("n-1", true), ("n-2", false)] {
            assert_eq!(matches(&only, &[], name, &mut interner), is_it, "{name}");
            assert_eq!(matches(&except, &[], name, &mut interner), !is_it, "{name}");
        }
    }
}
