//! What is known of the machines of ours beyond what placing pods takes: what each was bought for, what its NodeClaim
//! says of itself, what its pods cost to move and what forbids to, and how many nodes each NodePool lets go.
//!
//! Whoever only provisions makes a snapshot without it. `cluster` builds it: no PodDisruptionBudget and no cron text
//! comes here, only what they mean at the snapshot's moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use dra_types::Compat;
use model::{DurationMs, InstanceTypeName, NodePoolName, Pod, PriceNanoUsdPerHour, ResourceVec, Timestamp, Uid};

use super::eviction::{EvictionCost, Forbidden};
use super::expiration::ExpirationPolicy;
use super::{NodeId, PendingPod, PodsToPlace, PoolId, Snapshot};
use crate::catalogue::OfferingId;
use crate::devices::{DaemonPod, DeviceObjects, Devices, NominatedPod, PodsBefore, SnapshotParts};

/// The machines of ours.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// One for each NodeClaim, in the order of their ids.
    pub nodes: Vec<FleetNode>,
    /// What each NodePool says of disruption, by name; a NodePool that could not be read is not among them.
    pub pools: BTreeMap<NodePoolName, FleetPool>,
    /// What devices of pods that move are compiled from; `None` if claims are left to others.
    pub devices: Option<DeviceSources>,
}

/// A NodeClaim with its Node, once there is one.
#[derive(Debug, Clone)]
pub struct FleetNode {
    /// In the snapshot.
    pub node: NodeId,
    /// What it was bought as.
    pub machine: Machine,
    /// What limits of its NodePool count of it.
    pub capacity: ResourceVec,
    /// What its NodeClaim says.
    pub claim: ClaimFacts,
    /// That it is broken and should be replaced.
    pub unhealthy: Option<Unhealthy>,
    /// What is being done with it already.
    pub under_way: Option<UnderWay>,
    /// Whether the Node's annotation `karpenter.sh/do-not-disrupt` is `true`.
    pub is_protected: bool,
    /// Its pods that have not ended, by name.
    pub pods: Vec<FleetPod>,
}

/// What a machine was bought as, by the labels of its Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The instance type.
    pub instance_type: Option<InstanceTypeName>,
    /// The zone.
    pub zone: Option<Arc<str>>,
    /// Spot, on-demand or reserved, as the label says it.
    pub capacity_type: Option<Arc<str>>,
    /// The offering of its NodePool that it is, and the price; `None` if the catalogue has none such any more.
    pub offering: Option<(PoolId, OfferingId, PriceNanoUsdPerHour)>,
}

impl Machine {
    /// What it costs, as far as that is known.
    pub fn price(&self) -> Option<PriceNanoUsdPerHour> {
        self.offering.map(|(_, _, price)| price)
    }
}

/// What a NodeClaim says that disruption goes by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimFacts {
    /// Since when condition `Consolidatable` is true.
    pub consolidatable: Option<Timestamp>,
    /// Since when condition `Drifted` is true, and its reason.
    pub drifted: Option<Drift>,
    /// `status.lastPodEventTime`; the time of initialization if there is none.
    pub last_pod_event: Option<Timestamp>,
    /// `spec.terminationGracePeriod`.
    pub termination_grace_period: Option<DurationMs>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// What a machine has drifted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The condition's reason: `NodePoolDrifted`, `RequirementsDrifted`, `InstanceTypeNotFound`, or the provider's own.
    pub cause: Arc<str>,
    /// Since when.
    pub since: Timestamp,
}

/// That a machine is broken by the repair policies of its provider, and should be replaced for that (Karpenter 1.15,
/// `pkg/controllers/disruption/repair.go`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhealthy {
    /// The condition by which it is broken: `Ready=False (KubeletNotReady)`.
    pub condition: Arc<str>,
    /// Since when it should be replaced: the condition is not tolerated any longer.
    pub since: Timestamp,
    /// The higher, the earlier its turn.
    pub score: DurationMs,
    /// How long its drain may take, by the policies; `None` leaves that to the NodeClaim.
    pub drain_bound: Option<DurationMs>,
    /// What keeps it from being replaced for that.
    pub hold: Option<RepairHold>,
}

/// What keeps a broken machine from being replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairHold {
    /// Its Node has the annotation `karpenter.sh/do-not-repair`.
    DoNotRepair,
    /// So many nodes of its NodePool are unhealthy that the cause is probably not in the machines.
    TooMany {
        /// How many.
        unhealthy: usize,
        /// Of so many.
        nodes: usize,
    },
}

/// Why a machine is no candidate for anything: somebody has begun with it. Each counts against its NodePool's budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnderWay {
    /// Its NodeClaim or Node is being deleted.
    Deletion,
    /// A disruption command has it; why, by its condition `DisruptionReason`, if it says so.
    Command(Option<Arc<str>>),
    /// Its Node has the taint `karpenter.sh/disrupted`, and nothing says whose.
    Taint,
    /// It is being rebooted.
    Reboot,
}

/// A pod of a node.
#[derive(Debug, Clone)]
pub struct FleetPod {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Whether it has to be placed elsewhere if the node goes.
    pub moves: Moves,
    /// What its eviction costs.
    pub cost: EvictionCost,
    /// What forbids to evict it now.
    pub forbidden: Option<Forbidden>,
}

/// Whether a pod has to be placed elsewhere if its node goes.
#[derive(Debug, Clone)]
pub enum Moves {
    /// No: it ends with its node (DaemonSets' and static pods), or it is leaving already.
    No,
    /// Yes, as this pod.
    As(PendingPod),
    /// Yes, and no place is looked for: pods like it are left to others, for that reason.
    LeftToOthers(Arc<str>),
}

/// What a NodePool says of disruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPool {
    /// Which nodes consolidation may take.
    pub policy: ConsolidationPolicy,
    /// How long after the last pod came or left; `None` is `Never`.
    pub consolidate_after: Option<DurationMs>,
    /// What becomes of its machines that are past their time, if it says so itself.
    pub expiration: Option<ExpirationPolicy>,
    /// The number of nodes that it keeps, if that is fixed: it is a static one.
    pub replicas: Option<Replicas>,
    /// Nodes that percentages are of: initialized or rebooting, and the provider was not asked to end them.
    pub nodes: u32,
    /// How many of these are being disrupted, for whatever reason.
    pub going: u32,
    /// How many of the others are not ready. They count as disrupted for every reason but [`Reason::Unhealthy`].
    pub unready: u32,
    /// The budgets that are active.
    pub budgets: Vec<Budget>,
    /// Budgets that cannot be read. As long as there is one, none is disrupted.
    pub faults: Vec<BudgetFault>,
}

/// A fixed number of nodes, and how NodeClaims stand to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replicas {
    /// `spec.replicas`.
    pub wanted: i64,
    /// NodeClaims that are to stay.
    pub active: i64,
    /// NodeClaims of which commands launch the replacements, and which these delete.
    pub pending_disruption: i64,
    /// NodeClaims that are being deleted. Their machines are there until they are gone.
    pub deleting: i64,
    /// `limits.nodes`.
    pub node_limit: Option<i64>,
}

/// What keeps a machine of a static NodePool from being replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicasHold {
    /// There are more than are wanted, and these go first.
    Surplus,
    /// One more would exceed this limit.
    NodeLimit(i64),
    /// It could be launched from reservations only, and these are full.
    ReservationsFull,
}

impl Replicas {
    /// What keeps one more machine from being replaced, beside so many others that nobody has begun with.
    pub fn hold(&self, others: i64) -> Option<ReplicasHold> {
        let staying = self.active + self.pending_disruption;
        let is_full = |limit: &i64| staying + self.deleting + others >= *limit;
        match self.node_limit.filter(is_full) {
            _ if staying > self.wanted => Some(ReplicasHold::Surplus),
            Some(limit) => Some(ReplicasHold::NodeLimit(limit)),
            None => None,
        }
    }
}

/// `spec.disruption.consolidationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConsolidationPolicy {
    /// Only nodes without pods that would have to move.
    WhenEmpty,
    /// Any that can be removed or replaced by something cheaper.
    #[default]
    WhenEmptyOrUnderutilized,
    /// As the one before, where the saving outweighs the disruption.
    Balanced,
}

/// Why a node is disrupted voluntarily.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its pods fit on less.
    Underutilized,
    /// It has no pods that would have to move.
    Empty,
    /// It is not what its NodePool or node class asks for any more.
    Drifted,
    /// It is older than its NodePool wants (`expireAfter`), and is replaced the graceful way.
    Expired,
    /// It is broken.
    Unhealthy,
}

impl Reason {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Underutilized, Self::Empty, Self::Drifted, Self::Expired, Self::Unhealthy];

    /// Whether it holds no machine up for good that its pods may not be evicted, if something bounds the drain: they
    /// leave by force in the end (Karpenter's class "eventual").
    pub fn is_eventual(self) -> bool {
        match self {
            Self::Drifted | Self::Expired | Self::Unhealthy => true,
            Self::Underutilized | Self::Empty => false,
        }
    }

    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
            Self::Unhealthy => "Unhealthy",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An active entry of `spec.disruption.budgets`, as a number of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Its position in the list.
    pub index: usize,
    /// The reasons that it is for; `None` for all.
    pub reasons: Option<BTreeSet<Reason>>,
    /// So many nodes may be disrupted at once.
    pub allowed: u32,
    /// What it says: `10%`, and its schedule if it has one.
    pub text: Arc<str>,
    /// When it ends, if it has a schedule.
    pub until: Option<Timestamp>,
}

impl Budget {
    /// Whether it is for that reason. The API has none for machines that are past their time; they are replaced as
    /// those are that have drifted, and at the pace of these.
    pub fn is_for(&self, reason: Reason) -> bool {
        let spelled = if reason == Reason::Expired { Reason::Drifted } else { reason };
        self.reasons.as_ref().is_none_or(|reasons| reasons.contains(&spelled))
    }
}

/// An entry of `spec.disruption.budgets` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetFault {
    /// Its position in the list.
    pub index: usize,
    /// What is wrong with it, with the field.
    pub problem: Arc<str>,
}

/// What [`Devices`] are compiled from besides the snapshot.
#[derive(Debug, Clone)]
pub struct DeviceSources {
    /// The objects.
    pub objects: Arc<DeviceObjects>,
    /// Whose allocator is imitated.
    pub compat: Compat,
    /// DaemonSets whose pods may want devices.
    pub daemon_sets: Vec<DaemonPod>,
    /// Pods that the scheduler is about to bind.
    pub nominated: Vec<NominatedPod>,
    /// Pods that end before a machine could be there.
    pub ending: Vec<Uid>,
}

impl DeviceSources {
    /// Compiles them for the pods of a snapshot; `None` if none of them wants a device.
    pub fn compile(&self, snapshot: &Snapshot) -> Option<Devices> {
        let parts = SnapshotParts {
            pools: &snapshot.node_pools,
            nodes: &snapshot.nodes,
            pods: PodsToPlace { pods: &snapshot.pods, buffers: &snapshot.buffers },
            before: PodsBefore { daemon_sets: &self.daemon_sets, nominated: &self.nominated, ending: &self.ending },
            names: &snapshot.interner,
        };
        Devices::new(Arc::clone(&self.objects), self.compat, parts)
    }
}

impl FleetPool {
    /// Whether it keeps a fixed number of nodes (`replicas`).
    pub fn is_static(&self) -> bool {
        self.replicas.is_some()
    }

    /// The strictest of the active budgets for a reason; `None` if nothing limits it.
    pub fn strictest(&self, reason: Reason) -> Option<&Budget> {
        let of_reason = self.budgets.iter().filter(|budget| budget.is_for(reason));
        of_reason.min_by_key(|budget| (budget.allowed, budget.index))
    }
}

impl FleetNode {
    /// The pods that have to be placed elsewhere if it goes.
    pub fn movers(&self) -> impl Iterator<Item = &FleetPod> {
        self.pods.iter().filter(|pod| !matches!(pod.moves, Moves::No))
    }

    /// Those of them that are planned for.
    pub fn moving(&self) -> impl Iterator<Item = &PendingPod> {
        self.pods.iter().filter_map(|pod| match &pod.moves {
            Moves::As(pending) => Some(pending),
            Moves::No | Moves::LeftToOthers(_) => None,
        })
    }

    /// Pods that have to be placed elsewhere and are planned for, to be changed before anybody plans.
    pub fn moving_mut(&mut self) -> impl Iterator<Item = &mut PendingPod> {
        self.pods.iter_mut().filter_map(|pod| match &mut pod.moves {
            Moves::As(pending) => Some(pending),
            Moves::No | Moves::LeftToOthers(_) => None,
        })
    }

    /// Whether no pod would have to be placed elsewhere.
    ///
    /// Differs: `empty-nodes`. Karpenter takes a node for empty whose pods all cost nothing to evict, and deletes it
    /// without looking for places for them.
    pub fn is_empty(&self) -> bool {
        self.movers().next().is_none()
    }

    /// How long its drain may take if it goes for that reason: the shorter of what repair policies and its NodeClaim
    /// say. `None`: until its pods have left.
    pub fn drain_bound(&self, reason: Reason) -> Option<DurationMs> {
        let of_policies = self.unhealthy.as_ref().filter(|_| reason == Reason::Unhealthy);
        let of_policies = of_policies.and_then(|unhealthy| unhealthy.drain_bound);
        [of_policies, self.claim.termination_grace_period].into_iter().flatten().min()
    }

    /// Whether it may go for that reason although pods may not be evicted: they leave by force in the end.
    pub fn ends_by_force(&self, reason: Reason) -> bool {
        reason.is_eventual() && self.drain_bound(reason).is_some()
    }

    /// What it costs to evict its pods.
    pub fn eviction_cost(&self) -> EvictionCost {
        EvictionCost::of_node(self.movers().map(|pod| pod.cost))
    }
}
