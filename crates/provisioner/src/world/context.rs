//! What every controller is given.

use std::fmt;
use std::sync::Arc;

use api::NodeOverlay;
use cloudprovider::{CloudProvider, RepairPolicies};
use kube::Client;
use scheduling::snapshot::Options as PlanOptions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::options::Options;
use crate::runtime::beats::Beats;
use crate::runtime::clock::Clock;
use crate::runtime::leader_election::Fence;
use crate::runtime::metrics::Metrics;
use crate::runtime::queue::{self, Owner};
use crate::runtime::recorder::Recorder;
use crate::runtime::supervision::Supervision;
use crate::world::assignments::Assignments;
use crate::world::catalogues::Catalogues;
use crate::world::cluster_metrics::ClusterMetrics;
use crate::world::departures::Departures;
use crate::world::held_devices::HeldDevices;
use crate::world::overlays::Overlays;
use crate::world::pace::Pace;
use crate::world::plan_options::plan_options;
use crate::world::status_conditions::StatusConditions;
use crate::world::store::ClusterStore;
use crate::world::successors::Successors;

/// What every controller is given. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The API server, rate limited.
    pub client: Client,
    /// The API server without a rate limit, for a few calls that must go out together.
    pub urgent_client: Client,
    /// The API server without kube's own retries, for evictions: a refusal by a PodDisruptionBudget (429) is an answer.
    /// kube would ask again for minutes, past the moment from which the pod is deleted and not asked.
    pub eviction_client: Client,
    /// The cluster as we know it.
    pub store: Arc<ClusterStore>,
    /// Which pods each machine was launched for.
    pub assignments: Arc<Assignments>,
    /// Which pods will come in the place of others, and where to.
    pub(crate) successors: Arc<Successors>,
    /// Where pods go whose Nodes are being deleted.
    pub(crate) departures: Arc<Departures>,
    /// What each NodePool can launch, compiled for planners.
    pub(crate) catalogues: Arc<Catalogues>,
    /// Devices that count although their drivers are being replaced.
    pub(crate) held_devices: Arc<HeldDevices>,
    /// What NodeOverlays make of the provider's answers.
    pub overlays: Arc<Overlays>,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// The cloud, measured.
    pub cloud: Arc<dyn CloudProvider>,
    /// When the cloud says that a Node is broken; `None` if none is to be repaired (gate NodeRepair).
    pub repair_policies: Option<Arc<RepairPolicies>>,
    /// How often the cloud is asked to end a machine.
    pub pace: Arc<Pace>,
    /// Writes events.
    pub recorder: Recorder,
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Shows Nodes and pods once it is told of the store.
    pub cluster_metrics: Arc<ClusterMetrics>,
    /// Shows the status conditions of our objects once it is told of the store.
    pub status_conditions: Arc<StatusConditions>,
    /// Where loops tell that they live.
    pub beats: Arc<Beats>,
    /// Open while we lead.
    pub fence: Fence,
    /// Where tasks are told that ended though they should not.
    pub supervision: Supervision,
    /// Tasks that only the end of the process waits for.
    pub background: TaskTracker,
    /// What the user asked for.
    pub options: Arc<Options>,
    /// Cancelled when the controller shall stop: start nothing new, finish what is under way.
    pub stop: CancellationToken,
}

impl Context {
    /// What a controller's queue needs to know of it.
    pub fn owner(&self, name: &'static str) -> Owner {
        Owner { name, beat: self.beats.beat(name, queue::BOUND), stop: self.stop.clone() }
    }

    /// Runs something that only the end of the process waits for.
    pub fn in_background(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(self.supervision.finite(name, task));
    }

    /// What changes a plan beside the cluster.
    pub(crate) fn plan_options(&self) -> PlanOptions {
        plan_options(&self.options, self.cloud.config(), self.successors.displacement_price(self.clock.now()))
    }

    /// When disruption replaces a machine because it is broken; `None` if none is to be repaired, and by the rules of
    /// Karpenter before 1.15, which launch nothing beforehand.
    pub(crate) fn policies_of_replacement(&self) -> Option<&Arc<RepairPolicies>> {
        self.repair_policies.as_ref().filter(|_| !self.options.legacy_node_repair)
    }

    /// The NodeOverlays that are to be applied, by name; none if the gate NodeOverlay is off.
    pub fn node_overlays(&self) -> Vec<Arc<NodeOverlay>> {
        match self.options.feature_gates.node_overlay {
            true => self.store.read().node_overlays.values().cloned().collect(),
            false => Vec::new(),
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("cloud", &self.cloud.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
