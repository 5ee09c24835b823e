//! The cluster's default topology spread: what kube-scheduler does with pods that ask for no spread themselves.
//!
//! An administrator gives kube-scheduler a list of constraints (`defaultConstraints` of the plugin PodTopologySpread,
//! `defaultingType: List`), and us the same list ([`SchedulerConfig`]). A pod without constraints of its own gets them
//! with a selector that is deduced from what selects it ([`PodSelectors`]); one that nothing selects gets none. From
//! then on they are constraints like any, but for [`SpreadSource::ClusterDefault`], which reasons tell.
//!
//! The constraints are added when a snapshot is put together and are no part of a pod in the store: so a Service that
//! comes, changes or goes counts for each pod that it selects in the next plan, and no pod has to be read again. Pods
//! that run need none: a spread counts them by their labels.
//!
//! Left out: kube-scheduler's built-in defaults (`defaultingType: System`), which only prefer.
//!
//! Differs: `default-spread-listed`, `default-spread-daemons`. Karpenter asks for Services and controllers pod by pod
//! and passes over what it gets no answer to; here they are given, all of them. Pods of DaemonSets get no defaults, and
//! so count as overhead where kube-scheduler would refuse them because the node lacks a label; where it has the label,
//! a daemon's constraint counts its own node only and always holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::pod::{Owner, SpreadSource, TopologySpreadConstraint};
use model::{Interner, Labels, Pod, PodShape};
use scheduling::snapshot::{Buffer, PendingPod};

use model::pod::DEFAULT_SCHEDULER;

use decode::pod_selectors::{PodSelector, PodSelectors};
use decode::scheduler_config::{DefaultConstraint, SchedulerConfig};

/// The defaults, and what selects pods.
#[derive(Debug, Clone, Default)]
pub struct DefaultSpread {
    /// The constraints; usually none.
    pub config: SchedulerConfig,
    /// Services and controllers; not needed without constraints.
    pub selectors: Vec<Arc<PodSelector>>,
}

/// Gives pods that want a place, and the pods of buffers, the constraints that kube-scheduler will give them.
pub(crate) fn apply<'p>(
    defaults: DefaultSpread,
    pods: impl Iterator<Item = &'p mut PendingPod>,
    buffers: &mut [Buffer],
    interner: &mut Interner,
) {
    let DefaultSpread { config, selectors } = defaults;
    if config.is_empty() {
        return;
    }
    let mut defaulting =
        Defaulting { config: &config, selectors: PodSelectors::new(selectors), known: BTreeMap::new() };
    for PendingPod { pod, .. } in pods {
        let of = Defaulted {
            scheduler: &pod.scheduler_name,
            namespace: &pod.name.namespace,
            labels: &pod.labels,
            owner: pod.owner.as_ref(),
            own: &pod.shape,
        };
        if let Some(shape) = defaulting.shape(&of, interner) {
            *pod = Arc::new(Pod { shape, ..Pod::clone(pod) });
        }
    }
    let default_scheduler = Arc::from(DEFAULT_SCHEDULER);
    for buffer in buffers {
        // What room is kept for has no owner yet; what selects it by its labels is known.
        let template = &buffer.template;
        let of = Defaulted {
            scheduler: &default_scheduler,
            namespace: &buffer.name.namespace,
            labels: &template.labels,
            owner: None,
            own: &template.shape,
        };
        if let Some(shape) = defaulting.shape(&of, interner) {
            Arc::make_mut(&mut buffer.template).shape = shape;
        }
    }
}

/// What decides about the shape of a pod with defaults.
struct Defaulted<'p> {
    scheduler: &'p Arc<str>,
    namespace: &'p Arc<str>,
    labels: &'p Labels,
    owner: Option<&'p Owner>,
    /// The shape without.
    own: &'p Arc<PodShape>,
}

/// A [`Defaulted`] by value: scheduler, namespace, labels, owner, and the shape without by its address.
type Key = (Arc<str>, Arc<str>, Vec<(model::KeyId, model::ValueId)>, Option<(Arc<str>, Arc<str>)>, usize);

struct Defaulting<'c> {
    config: &'c SchedulerConfig,
    selectors: PodSelectors,
    /// Shapes with defaults; the one without is kept, so that its address stays its own.
    known: BTreeMap<Key, (Arc<PodShape>, Option<Arc<PodShape>>)>,
}

impl Defaulting<'_> {
    /// The shape with defaults; `None` if they don't apply.
    fn shape(&mut self, of: &Defaulted<'_>, interner: &mut Interner) -> Option<Arc<PodShape>> {
        let &Defaulted { scheduler, namespace, labels, owner, own } = of;
        let constraints = self.config.of_scheduler(scheduler);
        if !own.topology_spread.is_empty() || constraints.is_empty() {
            return None;
        }
        let owner = owner.filter(|owner| owner.controller);
        let by_owner = owner.map(|owner| (Arc::clone(&owner.kind), Arc::clone(&owner.name)));
        let address = Arc::as_ptr(own).addr();
        let key = (Arc::clone(scheduler), Arc::clone(namespace), labels.iter().collect(), by_owner, address);
        if let Some((_, shape)) = self.known.get(&key) {
            return shape.clone();
        }
        let selector = self.selectors.deduce(namespace, labels, owner, interner);
        let shape = selector.map(|selector| {
            let constraint = |default: &DefaultConstraint| TopologySpreadConstraint {
                max_skew: default.max_skew,
                topology_key: interner.key(&default.topology_key),
                when_unsatisfiable: default.when_unsatisfiable,
                selector: selector.clone(),
                namespace: Arc::clone(namespace),
                min_domains: default.min_domains,
                node_affinity_policy: default.node_affinity_policy,
                node_taints_policy: default.node_taints_policy,
                match_label_keys: Vec::new(),
                source: SpreadSource::ClusterDefault,
            };
            let topology_spread = constraints.iter().map(constraint).collect();
            Arc::new(PodShape { topology_spread, ..PodShape::clone(own) })
        });
        self.known.insert(key, (Arc::clone(own), shape.clone()));
        shape
    }
}

#[cfg(test)]
mod tests;
