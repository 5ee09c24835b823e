//! Which pods belong together, as kube-scheduler sees it: those that the Services of a pod and its controller select.
//!
//! The selector of a pod's defaults holds the labels that Services ask for, of all Services that select the pod, and
//! the selector of its controller, if that is a ReplicationController, ReplicaSet or StatefulSet. A ReplicaSet's
//! selector names the hash of its template, so the pods of a Deployment are spread revision by revision.

use std::fmt;
use std::sync::Arc;

use api::labels::POD_TEMPLATE_HASH;
use model::pod::Owner;
use model::{Interner, LabelSelector, Labels, NamespacedName, Requirement, Requirements, ValueSet};
use serde_json::Value;

use crate::api_resources::{self, Resource};
use crate::context::Context;
use crate::error::ObjectError;
use crate::metadata::{Metadata, decode_object};
use crate::selector::label_selector;

/// A kind of object that selects pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the kinds' own")]
pub enum SelectorKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    /// In a cluster its ReplicaSets select its pods; this stands for the one that nobody has made yet.
    Deployment,
}

impl SelectorKind {
    /// Those that kube-scheduler looks at.
    pub const OF_SCHEDULER: [Self; 4] =
        [Self::Service, Self::ReplicationController, Self::ReplicaSet, Self::StatefulSet];

    /// Where the API server has it.
    pub fn resource(self) -> &'static Resource {
        match self {
            Self::Service => &api_resources::SERVICE,
            Self::ReplicationController => &api_resources::REPLICATION_CONTROLLER,
            Self::ReplicaSet => &api_resources::REPLICA_SET,
            Self::StatefulSet => &api_resources::STATEFUL_SET,
            Self::Deployment => &api_resources::DEPLOYMENT,
        }
    }

    /// The kind as manifests spell it.
    pub fn as_str(self) -> &'static str {
        self.resource().kind
    }

    /// The kind of that group and name.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        let all = Self::OF_SCHEDULER.into_iter().chain([Self::Deployment]);
        all.into_iter().find(|it| it.resource().is(group, kind))
    }

    /// The kind of a controller, if it decides about the selector; others of the same name in other groups do not.
    pub fn of_controller(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::of(group, kind).filter(|kind| version == "v1" && *kind != Self::Service)
    }
}

/// Which object selects pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorKey {
    /// The kind.
    pub kind: SelectorKind,
    /// Namespace and name.
    pub name: NamespacedName,
}

impl fmt::Display for SelectorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// An object, as far as it selects pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSelector {
    /// Which it is.
    pub key: SelectorKey,
    /// Which pods.
    pub selects: Selects,
}

/// How an object selects pods of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selects {
    /// By labels that they have, as Services and ReplicationControllers do. Without any, none.
    Labels(Labels),
    /// By a selector, as all others do.
    Selector(LabelSelector),
}

/// Reads which pods an object of that kind selects.
pub fn pod_selector(object: &Value, kind: SelectorKind, context: &mut Context<'_>) -> Result<PodSelector, ObjectError> {
    decode_object(object, kind.as_str(), |root| {
        let name = Metadata::decode(&root.field("metadata")?)?.name;
        let spec = root.field("spec")?;
        let selector = spec.field("selector")?;
        let selects = match kind {
            SelectorKind::Service | SelectorKind::ReplicationController => {
                Selects::Labels(selector.labels(context.interner)?)
            }
            SelectorKind::ReplicaSet | SelectorKind::StatefulSet => {
                Selects::Selector(label_selector(&selector, context)?)
            }
            SelectorKind::Deployment => {
                let mut selector = label_selector(&selector, context)?;
                // Its next ReplicaSet selects by the template's hash besides: pods to be made of the workload have none
                // yet, those of other revisions have theirs.
                if let LabelSelector::Matching(requirements) = &mut selector {
                    let hash = context.interner.key(POD_TEMPLATE_HASH);
                    let absent = Requirement::new(hash, ValueSet::only_absent());
                    requirements.insert_intersect(absent, context.interner);
                }
                Selects::Selector(selector)
            }
        };
        Ok(PodSelector { key: SelectorKey { kind, name }, selects })
    })
}

/// All that selects pods, to look things up in.
pub struct PodSelectors {
    /// Sorted by key: Services come first, by namespace. Of one key there is one.
    by_key: Vec<Arc<PodSelector>>,
}

impl PodSelectors {
    /// Of those; of two with one key the first counts.
    pub fn new(mut selectors: Vec<Arc<PodSelector>>) -> Self {
        selectors.sort_by(|a, b| a.key.cmp(&b.key));
        selectors.dedup_by(|later, first| later.key == first.key);
        Self { by_key: selectors }
    }

    /// The selector of a pod's defaults; `None` if nothing selects it. `owner` is its controller.
    pub fn deduce(
        &self,
        namespace: &Arc<str>,
        pod: &Labels,
        owner: Option<&Owner>,
        names: &Interner,
    ) -> Option<LabelSelector> {
        let mut labels = Labels::new();
        // Whatever selects one pod asks for the same value of a label.
        for service in self.services(namespace).filter(|service| selects(service, pod)) {
            labels.extend(service.iter());
        }
        let mut requirements = Requirements::new();
        match owner.and_then(|owner| self.of_owner(namespace, owner)) {
            Some(Selects::Labels(controllers)) => labels.extend(controllers.iter()),
            Some(Selects::Selector(LabelSelector::Matching(controllers))) => requirements = controllers.clone(),
            Some(Selects::Selector(LabelSelector::Nothing)) | None => {}
        }
        requirements.intersect(&Requirements::from_labels(&labels), names);
        (!requirements.is_empty()).then_some(LabelSelector::Matching(requirements))
    }

    fn services(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Labels> {
        let is_before =
            |it: &Arc<PodSelector>| (it.key.kind, &it.key.name.namespace) < (SelectorKind::Service, namespace);
        let of_namespace = self.by_key.get(self.by_key.partition_point(is_before)..).unwrap_or_default();
        let is_one =
            move |it: &&Arc<PodSelector>| it.key.kind == SelectorKind::Service && it.key.name.namespace == *namespace;
        of_namespace.iter().take_while(is_one).filter_map(|service| match &service.selects {
            Selects::Labels(labels) => Some(labels),
            Selects::Selector(_) => None,
        })
    }

    fn of_owner(&self, namespace: &Arc<str>, owner: &Owner) -> Option<&Selects> {
        let kind = SelectorKind::of_controller(&owner.api_version, &owner.kind)?;
        let name = NamespacedName::new(Arc::clone(namespace), Arc::clone(&owner.name));
        let key = SelectorKey { kind, name };
        let index = self.by_key.binary_search_by(|it| it.key.cmp(&key)).ok()?;
        Some(&self.by_key.get(index)?.selects)
    }
}

/// Whether a Service that asks for these labels selects a pod. One that asks for none selects none, and has no label to
/// add either.
fn selects(service: &Labels, pod: &Labels) -> bool {
    service.iter().all(|(key, value)| pod.get(key) == Some(value))
}
