//! The pods that want a place, by the rules of [`scheduling::snapshot::pending`].

use std::collections::BTreeSet;
use std::sync::Arc;

use decode::ObjectRef;
use model::pod::PodResourceClaimSource;
use model::{IdVec, Interner, NodeName, Pod};
use scheduling::snapshot::eviction::Budgets;
use scheduling::snapshot::pending::{
    GivenUp, is_ignored, is_of_planned_scheduler, is_provisionable, is_unbound, may_leave, will_be_replaced,
};
use scheduling::snapshot::{Excluded, Node, NodeId, PendingPod, PodId};

use super::{Cluster, PendingRule, quota};

pub(super) fn pending_pods(
    cluster: &Cluster,
    nodes: &IdVec<NodeId, Arc<Node>>,
    interner: &Interner,
) -> IdVec<PodId, PendingPod> {
    let deleting: BTreeSet<&NodeName> = nodes
        .iter()
        .filter(|node| node.excluded == Some(Excluded::Deleting))
        .filter_map(|node| node.name.as_ref())
        .collect();
    let given_up = match cluster.pending {
        PendingRule::Unbound => GivenUp::default(),
        PendingRule::Unschedulable => GivenUp::of(cluster.pods.iter().map(AsRef::as_ref)),
    };
    let may_want_place = |pod: &&Arc<Pod>| is_unbound(pod) && is_of_planned_scheduler(pod, &cluster.options);
    let may_want_place = cluster.pods.iter().filter(may_want_place).map(AsRef::as_ref);
    let without_claims = quota::without_claims(cluster, may_want_place, interner);
    let budgets = Budgets::new(cluster.pod_disruption_budgets.iter().map(AsRef::as_ref));
    let wants_place = |pod: &Pod| match cluster.pending {
        PendingRule::Unbound => is_unbound(pod),
        PendingRule::Unschedulable => {
            is_provisionable(pod)
                || (given_up.includes_one_like(pod) && !without_claims.contains_key(&pod.uid))
                || (pod.node_name.as_ref().is_some_and(|node| deleting.contains(node))
                    && will_be_replaced(pod)
                    && may_leave(pod, cluster.now, &budgets, interner))
        }
    };
    let is_asked_about = |pod: &Pod| {
        is_of_planned_scheduler(pod, &cluster.options)
            && !is_ignored(pod, &cluster.options)
            && !cluster.left_out.contains(&pod.uid)
    };
    let wants_place = |pod: &Pod| is_asked_about(pod) && wants_place(pod);
    let mut waiting: Vec<&Arc<Pod>> = cluster.pods.iter().filter(|pod| wants_place(pod)).collect();
    let in_order = waiting.len();
    waiting.extend(deleting.iter().flat_map(|node| cluster.bound.on(node)).filter(|pod| wants_place(pod)));
    if waiting.len() > in_order {
        waiting.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let pending = waiting.into_iter().map(|pod| PendingPod {
        pod: Arc::clone(pod),
        planned_on: cluster.planned_on.get(&pod.uid).cloned(),
        devices: cluster.devices.pods.get(&pod.uid).cloned(),
        waits_for: without_claims.get(&pod.uid).cloned().or_else(|| unusable(cluster, pod)),
        stays_within: None,
    });
    pending.collect()
}

/// What the pod names of claims and cannot be used. It is not what does not exist.
fn unusable(cluster: &Cluster, pod: &Pod) -> Option<Arc<str>> {
    if cluster.unusable.is_empty() {
        return None;
    }
    let group = pod.shape.scheduling_group.as_ref().map(|group| ("PodGroup", group.pod_group.clone()));
    let claims = pod.shape.resource_claims.iter().map(|claim| match &claim.source {
        PodResourceClaimSource::Claim(name) => ("ResourceClaim", name.clone()),
        PodResourceClaimSource::Template(name) => ("ResourceClaimTemplate", name.clone()),
    });
    group.into_iter().chain(claims).find_map(|(kind, name)| {
        let error = cluster.unusable.get(&ObjectRef { kind: kind.into(), name })?;
        Some(format!("{}: {}", decode::unusable(&error.object), error.problem).into())
    })
}
