//! Everything the planner may know, at one moment. Immutable; built by `decode` from a file or by the controller from
//! its store. The planner sees no API object and no overlay, only this.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    DurationMs, IdVec, Interner, KeyId, Labels, NamespacedName, NodeClaimName, NodeName, NodePoolName, Pod, PodShape,
    PriceNanoUsdPerHour, Requirements, ResourceId, ResourceVec, Taint, Timestamp, Uid, define_id,
    volume::{PersistentVolume, PersistentVolumeClaim, StorageClass},
    workload::{DaemonSet, PodGroup, PodTemplate},
};

use crate::{
    catalogue::{Catalogue, Offering, TypeId},
    devices::Devices,
};

pub(crate) mod affinity;
pub mod coupling;
pub mod daemons;
pub mod eviction;
pub mod expiration;
pub mod fleet;
pub mod pending;
mod running;
mod virtual_pods;

use self::eviction::DeletionCosts;
use self::expiration::ExpirationRules;
use self::fleet::Reason;

pub use fleet::Fleet;
pub use running::{Kinds, RunningKind, RunningPods};

define_id! {
    /// A NodePool of a [`Snapshot`].
    pub struct PoolId;
}
define_id! {
    /// An existing node or an in-flight NodeClaim of a [`Snapshot`].
    pub struct NodeId;
}
define_id! {
    /// A pod of a [`Snapshot`] that waits for a place.
    pub struct PodId;
}

/// The planner's whole input.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Names of all interned labels and resources; a frozen view.
    pub interner: Arc<Interner>,
    /// When the snapshot was taken. The only time the planner knows.
    pub now: Timestamp,
    /// How to plan.
    pub options: Options,
    /// NodePools that may launch machines, in any order.
    pub node_pools: IdVec<PoolId, NodePool>,
    /// Nodes and in-flight NodeClaims, in any order.
    pub nodes: IdVec<NodeId, Arc<Node>>,
    /// Pods that wait for a place, in any order.
    pub pods: IdVec<PodId, PendingPod>,
    /// Every DaemonSet, for the overhead on nodes that have not got their daemons yet.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// The PodGroups that pods can belong to, by name.
    pub pod_groups: BTreeMap<NamespacedName, Arc<PodGroup>>,
    /// What the pods' volumes refer to.
    pub volumes: Volumes,
    /// Labels of each namespace, for `namespaceSelector`. Empty if nobody looked: then pods that select namespaces by
    /// label are refused.
    pub namespaces: BTreeMap<Arc<str>, Labels>,
    /// Devices and claims; `None` if no pod that waits wants a device.
    pub devices: Option<Arc<Devices>>,
    /// Room that is kept free for pods to come, by name.
    pub buffers: Vec<Buffer>,
    /// What is known of our own machines; `None` for who only provisions.
    pub fleet: Option<Arc<Fleet>>,
}

/// A CapacityBuffer: room for so many pods that nobody has made yet. They get theirs after all pods that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// The object.
    pub name: NamespacedName,
    /// Its uid.
    pub uid: Uid,
    /// What the pods look like; their priority is of no account.
    pub template: Arc<PodTemplate>,
    /// What devices read of one of the pods; `None` if they can't want any. Claims from templates are counted as those
    /// of pods are, though nobody makes them.
    pub devices: Option<Arc<dra_types::Pod>>,
    /// How many of them.
    pub replicas: u32,
}

/// All that want a place: the pods that wait, and after them the virtual pods of buffers, buffer by buffer. That order
/// gives virtual pods their ids.
#[derive(Debug, Clone, Copy)]
pub struct PodsToPlace<'a> {
    /// The pods that wait.
    pub pods: &'a IdVec<PodId, PendingPod>,
    /// The buffers.
    pub buffers: &'a [Buffer],
}

impl<'a> PodsToPlace<'a> {
    /// What devices read of each pod that waits, then of a pod of each buffer.
    pub fn devices(self) -> impl Iterator<Item = Option<&'a Arc<dra_types::Pod>>> {
        let of_pods = self.pods.iter().map(|pending| pending.devices.as_ref());
        of_pods.chain(self.buffers.iter().map(|buffer| buffer.devices.as_ref()))
    }

    /// The shapes of the pods that wait and of the buffers' pods.
    pub fn shapes(self) -> impl Iterator<Item = &'a Arc<PodShape>> {
        let of_pods = self.pods.iter().map(|pending| &pending.pod.shape);
        of_pods.chain(self.buffers.iter().map(|buffer| &buffer.template.shape))
    }

    /// Which buffer each virtual pod belongs to, by position.
    pub fn owners(self) -> impl Iterator<Item = usize> {
        let buffers = self.buffers.iter().enumerate();
        buffers.flat_map(|(index, buffer)| std::iter::repeat_n(index, buffer.replicas as usize))
    }
}

/// The resource that stands for what a CSI driver can attach. Whoever makes a snapshot interns it for each driver that
/// some node or instance type has a limit of.
pub fn attach_resource(driver: &str) -> String {
    format!("attachable-volumes-csi-{driver}")
}

/// Storage objects, by name.
#[derive(Debug, Clone, Default)]
pub struct Volumes {
    /// PersistentVolumeClaims.
    pub claims: BTreeMap<NamespacedName, Arc<PersistentVolumeClaim>>,
    /// PersistentVolumes.
    pub volumes: BTreeMap<Arc<str>, Arc<PersistentVolume>>,
    /// StorageClasses.
    pub classes: BTreeMap<Arc<str>, Arc<StorageClass>>,
}

impl Volumes {
    /// The named StorageClass or, without a name, the default one.
    pub(crate) fn class_of(&self, name: Option<&Arc<str>>) -> Option<&Arc<StorageClass>> {
        match name {
            Some(name) => self.classes.get(name),
            None => self.classes.values().find(|class| class.is_default),
        }
    }
}

/// Options that change a plan. Part of every snapshot file, so that a replay plans alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What happens when `minValues` of a NodePool can't be met.
    pub min_values: MinValuesPolicy,
    /// What preferences of pods count for.
    pub preference_policy: PreferencePolicy,
    /// What it may cost to keep a preference, for each pod and each point of its weight. Nothing by default: it is kept
    /// if that is free.
    pub preference_price: PriceNanoUsdPerHour,
    /// Which machines are launched for claims with alternatives (firstAvailable).
    pub prioritized_list_policy: PrioritizedListPolicy,
    /// What a node costs besides its machine: licences, addresses, agents.
    pub node_price: PriceNanoUsdPerHour,
    /// Most instance types kept on one NodeClaim, the cheapest first.
    pub max_instance_types: usize,
    /// Steps that the search for contended room may take before the verdict is "out of budget".
    pub search_steps: u64,
    /// Steps that the allocation of devices may take in all before the verdict is "out of budget".
    pub device_steps: u64,
    /// Karpenter's `IGNORE_DRA_REQUESTS`: pods with resource claims are left to others, so `decode` leaves them out of
    /// [`Snapshot::pods`], and DaemonSets with claims out of [`Snapshot::daemon_sets`].
    pub ignore_dra_requests: bool,
    /// Whose pods are planned; those of other schedulers are left out of [`Snapshot::pods`].
    pub scheduler_names: SchedulerNames,
    /// What becomes of a machine that could draw on a reservation and finds it used up by others of the plan.
    pub reserved_capacity: ReservedCapacityMode,
    /// The volumes that this cloud's machines cannot serve.
    pub unsupported_storage: UnsupportedStorage,
    /// What disruption goes by.
    pub disruption: DisruptionOptions,
}

/// Options that change which machines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisruptionOptions {
    /// What the eviction of a pod costs about which nobody says anything, in nano-dollars. With nothing, any saving
    /// pays, as in Karpenter.
    pub eviction_price_nano_usd: i64,
    /// How long a saving counts: a command pays if what it saves meanwhile is no less than what its evictions cost.
    pub consolidation_horizon: DurationMs,
    /// How long a pod with devices is at work on nothing once it is moved: images and data come anew. As long as an
    /// eviction has a price, the price of the machine for that time is one more cost of moving such pods.
    pub device_restart: DurationMs,
    /// What machines have cost lately, for each pod that was moved, which were launched because pods did not come to
    /// their places. Twice as much has to be saved for each pod besides, whatever an eviction costs.
    pub displacement_price: PriceNanoUsdPerHour,
    /// Karpenter's gate `SpotToSpotConsolidation`: spot machines may be replaced by cheaper spot machines.
    pub spot_to_spot_consolidation: bool,
    /// Karpenter's gate `TerminateFirstDrift`: a machine that has drifted or expired goes before its replacement is
    /// launched where there is no room for both.
    pub terminate_first_drift: bool,
    /// Karpenter's gate `TerminateFirstRepair`: the same for machines that are broken.
    pub terminate_first_repair: bool,
    /// What becomes of machines that are past their time.
    pub expiration: ExpirationRules,
    /// Who writes deletion costs of pods.
    pub deletion_costs: DeletionCosts,
}

impl DisruptionOptions {
    /// Whether machines that go for that reason may go before what replaces them is launched.
    pub fn may_terminate_first(&self, reason: Reason) -> bool {
        match reason {
            Reason::Drifted | Reason::Expired => self.terminate_first_drift,
            Reason::Unhealthy => self.terminate_first_repair,
            Reason::Underutilized | Reason::Empty => false,
        }
    }
}

impl Default for DisruptionOptions {
    /// Differs: `eviction-price`. In Karpenter an eviction costs nothing. By `cargo xtask simulate` this price takes
    /// less than half of the evictions for a fleet that is no dearer (docs/disruption.md).
    ///
    /// Differs: `device-restart`. In Karpenter pods with devices are moved as others are.
    fn default() -> Self {
        Self {
            eviction_price_nano_usd: 21_000_000,
            consolidation_horizon: DurationMs::from_seconds(3600),
            device_restart: DurationMs::from_seconds(300),
            displacement_price: PriceNanoUsdPerHour::default(),
            spot_to_spot_consolidation: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            expiration: ExpirationRules::default(),
            deletion_costs: DeletionCosts::OfUsers,
        }
    }
}

/// Schedulers whose pods are planned, by kube-scheduler's rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SchedulerNames {
    /// Those of every scheduler, as in Karpenter.
    #[default]
    All,
    /// Those of these.
    Only(BTreeSet<Arc<str>>),
}

impl SchedulerNames {
    /// Whether pods of this scheduler are planned.
    pub fn include(&self, scheduler: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(scheduler),
        }
    }
}

/// Karpenter's two ways to deal with reservations that other machines of the plan use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedCapacityMode {
    /// The machine is launched elsewhere.
    ///
    /// Differs: `reserved-fallback`. Karpenter lets the pods wait for the next plan when it provisions, because it
    /// counts a machine against every reservation that it could draw on. Here a machine is for reservations or for
    /// none, so what is used up is used up.
    #[default]
    Fallback,
    /// Its pods wait: what they would cost elsewhere is not asked. For questions of the kind "would it do with the
    /// reservation".
    Strict,
}

/// What a cloud provider says of storage that it cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnsupportedStorage {
    /// Provisioners of StorageClasses, and CSI drivers of volumes.
    pub provisioners: BTreeSet<Arc<str>>,
    /// Labels by which volumes say where they are.
    pub topology_keys: BTreeSet<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            min_values: MinValuesPolicy::Strict,
            preference_policy: PreferencePolicy::Respect,
            preference_price: PriceNanoUsdPerHour::ZERO,
            prioritized_list_policy: PrioritizedListPolicy::Order,
            node_price: PriceNanoUsdPerHour::ZERO,
            max_instance_types: cloudprovider::MAX_INSTANCE_TYPES,
            search_steps: crate::tuning::SEARCH_STEPS,
            device_steps: crate::tuning::DEVICE_STEPS,
            ignore_dra_requests: false,
            scheduler_names: SchedulerNames::All,
            reserved_capacity: ReservedCapacityMode::Fallback,
            unsupported_storage: UnsupportedStorage::default(),
            disruption: DisruptionOptions::default(),
        }
    }
}

/// Karpenter's `PREFERENCE_POLICY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreferencePolicy {
    /// Preferences are kept where they cost nothing, or what they are worth.
    #[default]
    Respect,
    /// Preferences are left to kube-scheduler.
    Ignore,
}

/// What decides between the alternatives of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrioritizedListPolicy {
    /// A machine is planned for an alternative only if none that can be launched gives an earlier one.
    #[default]
    Order,
    /// The machine's price, whichever alternative it gives.
    Price,
}

/// Karpenter's `MIN_VALUES_POLICY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinValuesPolicy {
    /// A machine that can't offer the wanted number of values is not planned.
    #[default]
    Strict,
    /// A new machine takes as many values as there are, and its NodeClaim says that minValues was relaxed.
    BestEffort,
}

/// A NodePool, resolved: labels folded into requirements, instance types compiled.
#[derive(Debug, Clone)]
pub struct NodePool {
    /// The object's name.
    pub name: NodePoolName,
    /// Higher first; 0 when the object has none.
    pub weight: i32,
    /// Whether it may launch: `Err` says why not (not ready, being deleted, static, class not found, no catalogue).
    pub usable: Result<(), Arc<str>>,
    /// Template requirements, template labels, the nodepool label and the node class label, intersected. Also
    /// `karpenter.sh/registered` and `karpenter.sh/initialized` = true, which nodes get and pods may select.
    pub requirements: Requirements,
    /// Keys that only exist for planning and are left out of a NodeClaim's requirements (registered, initialized).
    pub planning_only: Vec<KeyId>,
    /// Taints that stay.
    pub taints: Vec<Taint>,
    /// Taints that something else removes before the node is initialized; not planned against.
    pub startup_taints: Vec<Taint>,
    /// `spec.limits`, minus what the pool's nodes and claims already use. Negative when exceeded.
    pub remaining: Vec<LimitRemaining>,
    /// What it can launch.
    pub catalogue: Arc<Catalogue>,
    /// Room for pods that machines of a type turned out to have, where it was less than what was computed: the amounts
    /// that are listed count in place of the computed ones. By type.
    pub observed_room: Vec<(TypeId, Vec<(ResourceId, i64)>)>,
}

impl NodePool {
    /// Whether the pool's own requirements let a machine be launched from an offering. An offering that does not define
    /// a label agrees: the machine gets it from the pool.
    pub fn allows(&self, offering: &Offering, names: &Interner) -> bool {
        self.requirements.iter().all(|wanted| {
            let offered = offering.requirements.get(wanted.key);
            offered.is_none_or(|offered| offered.values.intersects(&wanted.values, names))
        })
    }
}

/// What is left of one entry of `spec.limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRemaining {
    /// Which limit.
    pub limit: Limit,
    /// As in the object, in the resource's unit.
    pub total: i64,
    /// Limit minus use; may be negative.
    pub remaining: i64,
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// The number of nodes.
    Nodes,
    /// The summed capacity of a resource.
    Resource(ResourceId),
}

/// A node, or a NodeClaim whose node is not there yet.
#[derive(Debug, Clone)]
pub struct Node {
    /// The Node object's name, once there is one.
    pub name: Option<NodeName>,
    /// The NodeClaim's name, for managed nodes.
    pub node_claim: Option<NodeClaimName>,
    /// The NodePool that made it.
    pub node_pool: Option<NodePoolName>,
    /// How far it has come.
    pub state: NodeState,
    /// Why no pod may be planned onto it, if so (deleting, cordoned, disrupted).
    pub excluded: Option<Excluded>,
    /// What is known of its labels. For a registered node each label is one value and every other key is absent; for a
    /// launching claim keys may have several values or be unknown.
    pub labels: NodeLabels,
    /// Taints that a pod must tolerate. Startup taints, known ephemeral taints and our own held taint are left out
    /// until the node is initialized, since they will go.
    pub taints: Vec<Taint>,
    /// The node's allocatable; for a claim that has not launched, what it was planned to carry.
    pub allocatable: ResourceVec,
    /// CSI drivers that limit how many of their volumes can be attached, with the limit.
    pub attach_limits: Vec<(Arc<str>, u32)>,
    /// Pods bound to it that have not ended.
    pub pods: RunningPods,
    /// Whether drivers may still have to publish what is expected of it. False for nodes that nobody expects anything
    /// of, and once they had time enough.
    pub awaits_devices: bool,
}

impl Node {
    /// The Node's name or, before there is a Node, the NodeClaim's.
    pub fn display_name(&self) -> &str {
        match (&self.name, &self.node_claim) {
            (Some(name), _) => name.as_ref(),
            (None, Some(claim)) => claim.as_ref(),
            (None, None) => "",
        }
    }
}

/// Labels of an existing node.
#[derive(Debug, Clone)]
pub enum NodeLabels {
    /// A Node object's labels.
    Known(Labels),
    /// A NodeClaim's requirements: what the machine's labels will satisfy. A key that is not there is unknown.
    Promised(Requirements),
}

/// How far a node has come. The order is the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// Not ours, or initialized.
    Initialized,
    /// Registered, not initialized.
    Registered,
    /// Launched, no Node yet.
    Launched,
    /// The NodeClaim exists, the machine does not.
    Launching,
}

/// Why an existing node takes no new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excluded {
    /// Its Node or NodeClaim is being deleted.
    Deleting,
    /// `spec.unschedulable`.
    Cordoned,
    /// Not ready and initialized.
    NotReady,
    /// A pod runs there that cannot be read, so nobody knows what is free.
    HoldsUnreadablePod,
}

/// A pod that wants a place.
#[derive(Debug, Clone)]
pub struct PendingPod {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Where an earlier plan put it, if that claim still exists; tried first.
    pub planned_on: Option<NodeClaimName>,
    /// What devices depend on in the pod, if it may want any ([`dra_types::Pod::may_want_devices`]).
    pub devices: Option<Arc<dra_types::Pod>>,
    /// What has to come first, as a sentence; then no place is looked for.
    pub waits_for: Option<Arc<str>>,
    /// Labels of the node that it leaves and of those that it is planned onto. Rules over the domains of these labels
    /// count it where it is, and are kept already.
    pub stays_within: Option<Arc<Requirements>>,
}
