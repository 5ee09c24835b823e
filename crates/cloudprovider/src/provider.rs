//! The seam between the autoscaler and a cloud.
//!
//! A provider launches, lists and removes machines and says which it could launch. It is called by the controllers
//! only: the planner sees its catalogue as data. Contract, checked by the `conformance` module:
//!
//! * [`CloudProvider::create`] with a token that was used before gives the machine that the token stands for, and
//!   launches none, also when the earlier answer was lost or both calls run at once.
//! * Whatever step a crash hits, [`CloudProvider::list`] sooner or later shows every machine that was launched, with
//!   its token.
//! * [`CloudProvider::delete`] may be called again and again; it ends in [`Error::NotFound`].
//! * Nothing here is remembered only in memory that a restart loses, except caches.

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
    /// What the NodePool can launch as NodeOverlays leave it: the choice follows their prices and amounts. `None` where
    /// nothing is corrected; the provider's own count then.
    pub instance_types: Option<&'a [Arc<InstanceType>]>,
}

/// A machine, as the provider knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// What the Node will carry as `spec.providerID`.
    pub provider_id: ProviderId,
    /// The token of its launch. Absent for a machine that another autoscaler launched before we took over.
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
    /// Its end was asked for.
    Terminating,
}

/// A NodePool's instance types. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InstanceTypes {
    /// Equal numbers mean equal `types`, between answers for one NodePool in one process. It does not change while
    /// nothing in them does.
    pub generation: u64,
    /// All types, also those that have run out, ordered by name.
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

    /// Launches a machine that meets the NodeClaim's requirements and requests, or gives back the one that the token
    /// stands for. Answers when the cloud has accepted the launch, not when the machine is up.
    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error>;

    /// Starts the end of a machine. `Ok` means it is on its way; the caller asks again until [`Error::NotFound`].
    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error>;

    /// One machine. [`Error::NotFound`] when it is gone.
    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error>;

    /// Every machine of this cluster, ordered by provider id. May lag behind launches, never for ever.
    async fn list(&self) -> Result<Vec<Instance>, Error>;

    /// The machine that a token stands for, as far as [`Self::list`] shows it. A provider that can look it up
    /// directly should.
    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        self.list()
            .await?
            .into_iter()
            .find(|instance| instance.token.as_ref() == Some(token))
            .ok_or_else(|| Error::NotFound(format!("no instance with token {token}")))
    }

    /// What could be launched for a NodePool. Called often: the provider caches.
    async fn instance_types(&self, node_pool: &NodePool) -> Result<InstanceTypes, Error>;

    /// Whether the NodeClaim's machine differs from what would be launched today from its node class. The NodePool is
    /// compared already. Asked every few minutes for each machine, and soon after its node class has changed.
    /// [`Error::NotFound`] or `None` if the machine is gone.
    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error>;

    /// When a Node counts as broken and what to do then. Empty: never.
    fn repair_policies(&self) -> &[RepairPolicy];

    /// Reboots a NodeClaim's machine. Answers when the cloud has accepted it. The same operation id reboots once, if
    /// the cloud's API allows to tell.
    async fn reboot(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), Error>;
}
