//! The seam between the autoscaler and a cloud.
//!
//! A provider launches, lists and removes machines, and lists the instance types that it can launch. Only controllers
//! call it: the planner gets the catalogue as data. Contract, checked by the `conformance` module:
//!
//! * [`CloudProvider::create`] with a token that was used before returns the machine of that token and launches none,
//!   even if the earlier answer was lost or both calls run at once.
//! * [`CloudProvider::list`] eventually shows every machine that was launched, with its token, wherever a crash
//!   happened.
//! * [`CloudProvider::delete`] may be called repeatedly; in the end it returns [`Error::NotFound`].
//! * Only caches are kept in memory alone, since a restart loses them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{NodeClaim, NodeClassReference, NodePool};
use async_trait::async_trait;
use model::{InstanceTypeName, NodeClaimName, ProviderId, Timestamp, Uid};
use serde::{Deserialize, Serialize};

use crate::{CapacityType, Error, InstanceType, ProviderConfig, RepairPolicy, ResourceList};

/// A launch: the NodeClaim, and the token that makes it idempotent.
#[derive(Debug, Clone, Copy)]
pub struct CreateRequest<'a> {
    /// What to launch. Its `spec.requirements` and `spec.resources.requests` bind the choice.
    pub claim: &'a NodeClaim,
    /// The NodeClaim's UID.
    pub token: &'a Uid,
    /// The NodePool's instance types after NodeOverlays: the choice uses these prices and amounts. `None` if no overlay
    /// corrects anything; the provider uses its own then.
    pub instance_types: Option<&'a [Arc<InstanceType>]>,
}

/// A machine, as the provider knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// What the Node will carry as `spec.providerID`.
    pub provider_id: ProviderId,
    /// The token of its launch. Absent for a machine that another autoscaler launched.
    pub token: Option<Uid>,
    /// The NodeClaim it was launched for, by name.
    pub claim_name: Option<NodeClaimName>,
    /// Labels that its Node gets from the provider. They satisfy the NodeClaim's requirements.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the NodeClaim.
    pub annotations: BTreeMap<String, String>,
    /// The image it runs.
    pub image_id: Option<String>,
    /// The whole machine.
    pub capacity: ResourceList,
    /// What pods can use.
    pub allocatable: ResourceList,
    /// Its type.
    pub instance_type: InstanceTypeName,
    /// Where it is.
    pub zone: String,
    /// The terms it was bought under.
    pub capacity_type: CapacityType,
    /// When it was launched.
    pub created_at: Timestamp,
    /// Where it is in its life.
    pub state: InstanceState,
}

/// Where a machine is in its life. A machine that is gone is [`Error::NotFound`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstanceState {
    /// Launched; booting or up.
    Running,
    /// Its removal was requested.
    Terminating,
}

/// A NodePool's instance types. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InstanceTypes {
    /// Equal numbers mean equal `types`, between answers for one NodePool in one process. It must not change while the
    /// types do not change.
    pub generation: u64,
    /// All types, ordered by name, including those without available offerings.
    pub types: Arc<[Arc<InstanceType>]>,
}

/// Why the provider would launch a NodeClaim's machine differently today: the reason of condition `Drifted`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftReason(pub String);

/// A kind of node class that a provider serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClassKind {
    /// API group.
    pub group: &'static str,
    /// API version that is watched.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name.
    pub plural: &'static str,
}

/// Whether machines can be launched from a node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeClassReadiness {
    /// They can.
    Ready,
    /// They cannot now.
    NotReady {
        /// CamelCase.
        reason: String,
        /// For people.
        message: String,
    },
    /// It is being deleted.
    Terminating,
    /// There is no such object.
    NotFound,
}

/// A cloud that machines are launched in.
#[async_trait]
pub trait CloudProvider: Send + Sync + 'static {
    /// Its name, as in the `provider` label of metrics.
    fn name(&self) -> &'static str;

    /// What is special about this cloud's labels, grace periods and time-outs.
    fn config(&self) -> &ProviderConfig;

    /// The node classes it serves, the default one first. Never empty.
    fn node_class_kinds(&self) -> &[NodeClassKind];

    /// Whether machines can be launched from that node class.
    async fn node_class_readiness(&self, node_class: &NodeClassReference) -> Result<NodeClassReadiness, Error>;

    /// Launches a machine that meets the NodeClaim's requirements and requests, or returns the machine of the token.
    /// Returns when the cloud has accepted the launch, not when the machine is ready.
    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error>;

    /// Starts to remove a machine. `Ok` means that removal has started; the caller calls again until
    /// [`Error::NotFound`].
    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error>;

    /// One machine. [`Error::NotFound`] when it is gone.
    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error>;

    /// Every machine of this cluster, ordered by provider id. A new machine may appear late, but it must appear.
    async fn list(&self) -> Result<Vec<Instance>, Error>;

    /// The machine of a token, by default looked up in [`Self::list`]. A provider that can look it up directly should
    /// do so.
    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        self.list()
            .await?
            .into_iter()
            .find(|instance| instance.token.as_ref() == Some(token))
            .ok_or_else(|| Error::NotFound(format!("no instance with token {token}")))
    }

    /// What could be launched for a NodePool. Called often: the provider caches.
    async fn instance_types(&self, node_pool: &NodePool) -> Result<InstanceTypes, Error>;

    /// Whether the NodeClaim's machine differs from what would be launched today from its node class; the caller
    /// compares the NodePool. Called every few minutes for each machine, and soon after its node class has changed.
    /// [`Error::NotFound`] or `None` if the machine is gone.
    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error>;

    /// When a Node counts as broken and what to do then. Empty: never.
    fn repair_policies(&self) -> &[RepairPolicy];

    /// Reboots a NodeClaim's machine. Returns when the cloud has accepted the reboot. Calls with the same operation id
    /// reboot once, if the cloud's API supports that.
    async fn reboot(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), Error>;
}
