//! A plan is data: actions with what they rely on, machines with their pods, placements on what exists, refusals with
//! reasons. It refers to the snapshot by ids, names are looked up where an action or a person needs them. The shell
//! carries the actions out; the CLI prints the plan.
//!
//! Order: actions as their machines; machines by NodePool preference, then as opened; existing nodes by name; pods by
//! name; refusals by pod name.

pub mod action;
pub mod device_cost;
pub mod placement;
pub(crate) mod rank;
pub mod reason;
pub(crate) mod virtual_pods;

use std::sync::Arc;

use cloudprovider::CapacityType;
use model::{IdVec, KeyId, PriceNanoUsdPerHour, Requirements, ResourceVec, ValueId, define_id};

use crate::catalogue::{OfferingId, TypeId};
use crate::plan::action::Action;
use crate::plan::device_cost::PodDeviceCosts;
use crate::plan::reason::{Note, Reason};
use crate::snapshot::{NodeId, PodId, PoolId};

pub use virtual_pods::with_virtual_pods;

define_id! {
    /// A machine of one [`Plan`].
    pub struct MachineId;
}

/// What to do about one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// What is to be done, each by itself.
    pub actions: Vec<Action>,
    /// The machines that actions create: each is in one of them.
    pub machines: IdVec<MachineId, Machine>,
    /// Pods that fit on nodes or claims that exist; nothing to create for them.
    pub existing: Vec<ExistingPlacement>,
    /// Pods that have to be bound after others where not every order will do: those of each stage after all before, and
    /// after the pods that are in none. Mostly none; by name.
    pub later: Vec<Vec<PodId>>,
    /// Pods without a place. Pods refused alike share their reasons.
    pub refusals: Vec<Refusal>,
    /// Things a person should know that refuse nothing, once per class of pods.
    pub notes: Vec<Note>,
    /// Sum of the machines' launch prices.
    pub price: PriceNanoUsdPerHour,
    /// What the machines cost as nodes, whatever they are: `Options::node_price` for each.
    pub node_costs: PriceNanoUsdPerHour,
    /// What it costs that claims of different kinds were kept apart because the scheduler could come to them in an
    /// order in which they would not all get their devices; `None` if no claims were.
    pub kept_apart: Option<PriceNanoUsdPerHour>,
    /// No plan for the pods that are placed costs less, `price` and `node_costs` together: a lower bound, by linear
    /// relaxation.
    pub lower_bound: PriceNanoUsdPerHour,
    /// Steps of the contended-room search that were used.
    pub search_steps: u64,
    /// Steps that the allocation of devices took in all, for every order that was tried.
    pub device_steps: u64,
    /// Where the room of each buffer is, in the order of [`crate::Snapshot::buffers`]. Their pods are not among the
    /// others.
    pub buffers: Vec<BufferRoom>,
}

impl Plan {
    /// What the machines cost, as nodes too, in nano-dollars per hour.
    pub(crate) fn cost(&self) -> i128 {
        i128::from(self.price.0) + i128::from(self.node_costs.0)
    }

    /// The stages of pods that are to be bound after others, counted from 1; see [`Plan::later`].
    pub fn stages(&self) -> impl Iterator<Item = (PodId, u32)> + '_ {
        (1..).zip(&self.later).flat_map(|(stage, pods)| pods.iter().map(move |&pod| (pod, stage)))
    }
}

/// Where the room is that a buffer keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BufferRoom {
    /// On nodes and NodeClaims that exist, with the number of pods.
    pub on_nodes: Vec<(NodeId, u32)>,
    /// On machines of the plan, with the number of pods.
    pub on_machines: Vec<(MachineId, u32)>,
    /// So many pods have no place.
    pub missing: u32,
    /// Why, if any has none.
    pub reasons: Arc<[Reason]>,
}

impl BufferRoom {
    /// How many pods would find room on nodes that exist.
    pub fn on_existing(&self) -> u32 {
        self.on_nodes.iter().map(|(_, pods)| pods).sum()
    }

    /// How many pods need new machines.
    pub fn on_new(&self) -> u32 {
        self.on_machines.iter().map(|(_, pods)| pods).sum()
    }
}

/// One NodeClaim that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its NodePool.
    pub node_pool: PoolId,
    /// Index among the plan's machines of the same pool, from 0: the `<pool>-<index>` of reports.
    pub index_in_pool: usize,
    /// Types that hold all its pods, cheapest first, at most `Options::max_instance_types`.
    pub instance_types: Vec<TypeId>,
    /// The offering a launch takes if nothing is out of stock: the cheapest.
    pub launch: Launch,
    /// What the NodeClaim's `spec.requirements` will say, except the instance types: the pool's requirements narrowed
    /// by the pods', well-known keys narrowed to what the remaining offerings have.
    pub requirements: Requirements,
    /// Labels that nobody but the NodeClaim gives: those which its requirements mention and no instance type decides,
    /// with one value each, by key name.
    pub labels: Vec<(KeyId, Arc<str>)>,
    /// Requests of the pods plus the least that daemons and the pods' devices take among the remaining types.
    pub requests: ResourceVec,
    /// Pods planned onto it, by name; none for a machine that only holds room of buffers.
    pub pods: Vec<PodId>,
    /// How many devices of which driver these get if the launch offering is taken, by driver name.
    pub devices: Vec<(Arc<str>, u32)>,
    /// The pods whose devices cost something of the launch offering's machine, by name.
    pub device_costs: Vec<PodDeviceCosts>,
    /// Whether minValues had to be relaxed (policy BestEffort).
    pub min_values_relaxed: bool,
    /// Why this type, for people.
    pub choice: Choice,
}

/// What a launch is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// In the pool's catalogue.
    pub offering: OfferingId,
    /// In the pool's catalogue.
    pub instance_type: TypeId,
    /// Value of the zone label.
    pub zone: ValueId,
    /// Spot, on-demand or reserved.
    pub capacity_type: CapacityType,
    /// Its price.
    pub price: PriceNanoUsdPerHour,
}

/// Why the launch offering was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Offerings that would hold the same pods.
    pub offerings: usize,
    /// The cheapest offering of another instance type that would hold the same pods.
    pub next_best: Option<(TypeId, PriceNanoUsdPerHour)>,
}

/// Pods planned onto a node or claim that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingPlacement {
    /// Where.
    pub node: NodeId,
    /// By name.
    pub pods: Vec<PodId>,
    /// The drivers whose devices they are given, by name, on a machine that has still to publish some of its own: it
    /// waits for them. None on others.
    pub drivers: Vec<Arc<str>>,
    /// The pods whose devices cost something of it, by name.
    pub device_costs: Vec<PodDeviceCosts>,
}

/// A pod without a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which pod.
    pub pod: PodId,
    /// Proven, or not decided within the budget.
    pub verdict: Verdict,
    /// Why, in a fixed order: existing nodes, then NodePools in the order they were tried.
    pub reasons: Arc<[Reason]>,
}

/// What a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No plan that keeps the pods placed so far has room for it.
    DoesNotFit,
    /// The construct is known and not planned for yet; the pod is never placed wrongly.
    Unsupported,
    /// It waits for another object, and kube-scheduler with it.
    Waits,
    /// It must not be on a machine of any NodePool (`karpenter.sh/nodepool DoesNotExist`), and no other node has room.
    OptedOut,
    /// The search for room ended before it could tell.
    OutOfBudget,
}
