//! Metrics of NodeClaims that a controller deletes by its own decision, for all controllers.

use api::{NodeClaim, labels};
use cluster::node_repair::Repair;
use model::DurationMs;
use scheduling::snapshot::pending::will_be_replaced;

use crate::runtime::metrics::{DisruptedLabels, Metrics, UnhealthyLabels};
use crate::world::store::State;
use crate::world::{claim, termination};

/// A NodeClaim as it was when it was decided to delete it.
#[derive(Debug, Clone)]
pub(crate) struct Disrupted {
    labels: DisruptedLabels,
    /// How many pods have to go from its Node to another.
    pods: u64,
}

impl Disrupted {
    /// A NodeClaim that is deleted now. `reason` is that of Karpenter's metrics.
    pub(crate) fn now(state: &State, node_claim: &NodeClaim, reason: &str) -> Self {
        let nodes = claim::provider_id(node_claim).into_iter().flat_map(|id| state.nodes_of_machine(id));
        let pods = nodes.flat_map(|node| state.pods_on_node(&node.model.name));
        Self {
            labels: DisruptedLabels {
                reason: reason.to_owned(),
                nodepool: claim::node_pool(node_claim).to_owned(),
                capacity_type: claim::label(node_claim, labels::CAPACITY_TYPE).to_owned(),
                consolidation_policy: String::new(),
                termination_mode: termination::mode(node_claim).to_owned(),
            },
            pods: pods.filter(|pod| will_be_replaced(pod)).map(|_| 1).sum(),
        }
    }

    /// By which policy of its NodePool it was consolidated.
    #[must_use]
    pub(crate) fn by_policy(mut self, policy: &str) -> Self {
        policy.clone_into(&mut self.labels.consolidation_policy);
        self
    }

    /// The bound of its drain, if another rule than the NodeClaim's sets it; `None` is no bound.
    #[must_use]
    pub(crate) fn bounded(mut self, bound: Option<DurationMs>) -> Self {
        termination::mode_of(bound).clone_into(&mut self.labels.termination_mode);
        self
    }

    /// Counts it.
    pub(crate) fn count(&self, metrics: &Metrics) {
        metrics.nodeclaims_disrupted.get_or_create(&self.labels).inc();
        metrics.pods_disruption_initiated.get_or_create(&self.labels).inc_by(self.pods);
    }
}

/// Counts a broken machine that is replaced, with the bound of its drain.
pub(crate) fn count_unhealthy(
    metrics: &Metrics,
    node_claim: &NodeClaim,
    repair: &Repair<'_>,
    bound: Option<DurationMs>,
) {
    let labels = UnhealthyLabels {
        condition: repair.because.policy.condition_type.clone(),
        nodepool: claim::node_pool(node_claim).to_owned(),
        capacity_type: claim::label(node_claim, labels::CAPACITY_TYPE).to_owned(),
        image_id: node_claim.status.as_ref().map(|status| status.image_id.clone()).unwrap_or_default(),
        termination_mode: termination::mode_of(bound).to_owned(),
    };
    metrics.nodeclaims_unhealthy_disrupted.get_or_create(&labels).inc();
}
