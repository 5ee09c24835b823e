//! Pods for tests.

use std::sync::Arc;

use model::pod::{PodPhase, PodShape};
use model::{Labels, NamespacedName, Pod, Timestamp};

/// A running pod with the default grace period and nothing special.
pub(crate) fn pod(name: &str) -> Pod {
    Pod {
        name: NamespacedName::new("default", name),
        uid: format!("uid-{name}").into(),
        labels: Labels::default(),
        created_at: Timestamp::default(),
        started_at: None,
        deletion_timestamp: None,
        priority: 0,
        preemption_policy: Default::default(),
        owner: None,
        is_daemon: false,
        template_generation: None,
        is_mirror: false,
        node_name: None,
        nominated_node_name: None,
        phase: PodPhase::Running,
        is_unready: false,
        scheduling: Default::default(),
        scheduler_name: "default-scheduler".into(),
        do_not_disrupt: Default::default(),
        disruption_cost: None,
        deletion_cost: None,
        termination_grace_period_s: Some(30),
        resource_claim_names: Vec::new(),
        may_enter: Vec::new(),
        kubelet_plugins: None,
        resizing: None,
        unreadable: None,
        shape: Arc::new(PodShape::default()),
    }
}
