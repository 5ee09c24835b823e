//! From which nodes ReplicaSets should delete their pods first when they are scaled down: first from nodes that are
//! being removed, then from nodes that could be removed soon. Then fewer pods have to be evicted (Karpenter 1.15's
//! `pkg/controllers/pod/deletioncost`).
//!
//! 1. Nodes that are being removed come first, however many there are.
//! 2. Then come those that have drifted or are past their time, then those that consolidation could remove, each as
//!    many as the budgets of their NodePool let go now: the highest price for each eviction first.
//! 3. No other node has a rank.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::budgets::Allowances;
use super::candidates::{Candidates, Context};
use crate::snapshot::fleet::{FleetNode, FleetPod, Reason, UnderWay};
use crate::snapshot::{NodeId, Snapshot};

/// Pods of this namespace do not keep a node from having a rank.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// Kinds of controllers whose pods do not either: they are replaced by others.
const REPLACING_CONTROLLERS: [&str; 3] = ["ReplicaSet", "Job", "DaemonSet"];

/// When pods should leave a node, compared with other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionRank {
    /// Before all others: the node is being removed.
    BeingRemoved,
    /// From -n, the first of n nodes, to -1.
    At(i32),
    /// Like pods of which nothing is said.
    Unranked,
}

impl DeletionRank {
    /// The value of `controller.kubernetes.io/pod-deletion-cost` for the pods of the node; `None` is no annotation.
    pub fn cost(self) -> Option<i32> {
        match self {
            Self::BeingRemoved => Some(i32::MIN),
            Self::At(rank) => Some(rank),
            Self::Unranked => None,
        }
    }
}

/// The rank of each machine of a snapshot with a fleet: nodes that are being removed by name, then the others by rank,
/// then those without rank by name. A snapshot without a fleet has none.
pub fn deletion_order(snapshot: &Snapshot) -> Vec<(NodeId, DeletionRank)> {
    let Some(fleet) = snapshot.fleet.as_deref() else { return Vec::new() };
    let context = Context::new(snapshot, fleet);
    let candidates = Candidates::new(&context);
    let mut machines: Vec<&FleetNode> = fleet.nodes.iter().collect();
    machines.sort_by_key(|machine| context.display_name(machine.node));
    let (removed, others): (Vec<_>, Vec<_>) = machines.into_iter().partition(|machine| is_being_removed(machine));
    let mut by_saving: Vec<Saving<'_>> = others.iter().map(|machine| Saving::of(machine)).collect();
    // Stable: equal savings stay in the order of names.
    by_saving.sort_by(Saving::compare);
    let mut ranked: Vec<NodeId> = Vec::new();
    for reason in [Reason::Drifted, Reason::Underutilized] {
        // Each reason has all of its budget: which of the two will use it is not known yet.
        let mut allowances = Allowances::new(fleet);
        let of_reason = by_saving.iter().map(|saving| saving.machine);
        for machine in of_reason.filter(|machine| could_go(&context, &candidates, machine, reason)) {
            let Some((pool, _)) = context.pool_of(machine) else { continue };
            if allowances.take(pool, reason).is_ok() {
                ranked.push(machine.node);
            }
        }
    }
    let first = i32::try_from(ranked.len()).unwrap_or(i32::MAX).saturating_neg();
    let is_ranked: BTreeSet<NodeId> = ranked.iter().copied().collect();
    let unranked = others.iter().map(|machine| machine.node).filter(|node| !is_ranked.contains(node));
    let removed = removed.iter().map(|machine| (machine.node, DeletionRank::BeingRemoved));
    let at = ranked.iter().zip(first..).map(|(node, rank)| (*node, DeletionRank::At(rank)));
    removed.chain(at).chain(unranked.map(|node| (node, DeletionRank::Unranked))).collect()
}

fn is_being_removed(machine: &FleetNode) -> bool {
    match machine.under_way {
        Some(UnderWay::Deletion | UnderWay::Command(Some(_)) | UnderWay::Taint) => true,
        // A replacement, and a machine that will be back.
        Some(UnderWay::Command(None) | UnderWay::Reboot) | None => false,
    }
}

/// Whether disruption for that reason could remove a machine if its pods were fewer.
fn could_go(context: &Context<'_>, candidates: &Candidates, machine: &FleetNode, reason: Reason) -> bool {
    let is_outdated = context.outdated(machine).is_some();
    let is_meant = match reason {
        Reason::Drifted | Reason::Expired | Reason::Unhealthy => is_outdated,
        Reason::Underutilized | Reason::Empty => {
            !is_outdated && context.pool_of(machine).is_some_and(|(_, pool)| pool.consolidate_after.is_some())
        }
    };
    is_meant
        && machine.machine.price().is_some()
        && candidates.block(machine, reason).is_none()
        && !machine.pods.iter().any(keeps_node)
}

/// Whether a pod is so much bound to its node that others leaving would not empty the node.
fn keeps_node(pod: &FleetPod) -> bool {
    let pod = &pod.pod;
    let controller = pod.owner.as_ref().filter(|owner| owner.controller);
    let is_replaced = controller.is_some_and(|owner| REPLACING_CONTROLLERS.contains(&&*owner.kind));
    &*pod.name.namespace != SYSTEM_NAMESPACE && !pod.is_mirror && !is_replaced
}

/// What removing a machine saves for what its evictions cost.
struct Saving<'f> {
    machine: &'f FleetNode,
    price: Option<i128>,
    /// At least 1.
    cost: i128,
}

impl<'f> Saving<'f> {
    fn of(machine: &'f FleetNode) -> Self {
        let price = machine.machine.price().map(|price| i128::from(price.0));
        Self { machine, price, cost: i128::from(machine.eviction_cost().0) }
    }

    /// The highest price for each eviction first, unknown prices last.
    fn compare(a: &Self, b: &Self) -> Ordering {
        match (a.price, b.price) {
            (Some(of_a), Some(of_b)) => (of_b * a.cost).cmp(&(of_a * b.cost)),
            (of_a, of_b) => of_b.is_some().cmp(&of_a.is_some()),
        }
    }
}
