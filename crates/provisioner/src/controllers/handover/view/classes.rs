//! What waiting pods are told apart by: shapes, classes of those that wait and of those that are spread.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use model::collections::NameSet;
use model::pod::{PodAffinityTerm, PodShape};
use model::{Interner, LabelSelector, NodeClaimName, Pod, ResourceId, ResourceVec, ValueId};

use crate::world::store::NodeRecord;

/// A shape that pods share. Equal ones are one object, so its address tells it from others, at less cost than what is
/// in it; were they two after all, the same would be looked at twice.
pub(super) struct Shape(pub(super) Arc<PodShape>);

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Shape {}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Pods of one shape that wait for machines.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct WaitingClass {
    pub(super) shape: Shape,
    /// It takes the room of bound pods whose priority is lower.
    pub(super) preempts_below: i32,
    pub(super) wants_devices: bool,
}

impl WaitingClass {
    /// What is to be free on a node. A resource that drivers' devices serve is not among what the node has.
    pub(super) fn requests(&self, node: &NodeRecord, interner: &Interner) -> ResourceVec {
        let mut requests = self.shape.0.requests.clone();
        let has = &node.model.allocatable;
        let is_served =
            |resource: &ResourceId| has.get(*resource) == 0 && interner.resource_name(*resource).contains('/');
        let served: Vec<ResourceId> = if self.wants_devices { requests.exceeding(has).collect() } else { Vec::new() };
        served.into_iter().filter(is_served).for_each(|resource| requests.set(resource, 0));
        requests
    }
}

/// What pods of one class wait for.
pub(super) struct Awaited {
    pub(super) machines: Machines,
    /// Whether each of them may enter its machine.
    pub(super) let_in: bool,
}

/// Which machines pods wait for.
pub(super) enum Machines {
    One(NodeClaimName),
    Several,
}

impl Machines {
    pub(super) fn include_others_than(&self, machine: Option<&str>) -> bool {
        match self {
            Self::One(name) => Some(&**name) != machine,
            Self::Several => true,
        }
    }
}

/// Pods of one shape, priority and stage that are to be spread over domains.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct SpreadingClass {
    pub(super) shape: Shape,
    pub(super) priority: i32,
    pub(super) stage: u32,
}

impl SpreadingClass {
    /// Whether required affinity selects the pod.
    pub(super) fn has_to_be_near(&self, pod: &Pod, interner: &Interner) -> bool {
        self.shape.0.pod_affinity.required.iter().any(|term| term_counts(term, pod, interner))
    }
}

/// Whether an affinity selects the pod; namespaces that are selected by label may be its own.
pub(super) fn term_counts(term: &PodAffinityTerm, pod: &Pod, interner: &Interner) -> bool {
    let may_be_in = term.namespaces.contains(&pod.name.namespace) || term.namespace_selector != LabelSelector::Nothing;
    may_be_in && term.selector.matches(&pod.labels, interner)
}

/// The values of a label that machines have for which pods wait.
#[derive(Default)]
pub(super) struct Domains {
    known: NameSet<ValueId>,
    /// Whether that of a machine is not known yet.
    unknown: bool,
}

impl Domains {
    pub(super) fn may_include(&self, domain: Option<ValueId>) -> bool {
        self.unknown || domain.is_none_or(|domain| self.known.contains(&domain))
    }
}

impl FromIterator<Option<ValueId>> for Domains {
    fn from_iter<I: IntoIterator<Item = Option<ValueId>>>(domains: I) -> Self {
        let mut all = Self::default();
        for domain in domains {
            match domain {
                Some(domain) => _ = all.known.insert(domain),
                None => all.unknown = true,
            }
        }
        all
    }
}
