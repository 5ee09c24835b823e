//! What NodePools say of disruption, and how many of their nodes count.

use super::*;
use scheduling::snapshot::expiration::ExpirationPolicy;
use scheduling::snapshot::fleet::{ConsolidationPolicy, FleetPool, Replicas};

use crate::static_pools::{Count, node_limit};

/// Nodes of one NodePool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    nodes: u32,
    going: u32,
    unready: u32,
}

impl Counts {
    /// Counts a Node of ours as Karpenter does (`BuildDisruptionBudgetMapping`): once initialized, or while it is
    /// rebooting, until the provider was asked to end its machine.
    pub(crate) fn add(&mut self, state: NodeState, claim: &NodeClaim, under_way: Option<&UnderWay>, is_ready: bool) {
        let is_counted = state == NodeState::Initialized || under_way == Some(&UnderWay::Reboot);
        if !is_counted || true_condition(claim, conditions::INSTANCE_TERMINATING).is_some() {
            return;
        }
        // One that takes the place of others is under way, and nothing is taken away with it.
        let is_going = under_way.is_some() && !Note::is_replacement(claim);
        self.nodes += 1;
        self.going += u32::from(is_going);
        self.unready += u32::from(!is_going && !is_ready);
    }

    /// Those that a budget's number is less by.
    pub(crate) fn disrupted(self) -> u32 {
        self.going.saturating_add(self.unready)
    }
}

/// How NodeClaims stand to the number of nodes that a static NodePool keeps. A limit that cannot be read lets none be
/// launched; whoever launches tells it.
pub(super) fn replicas<'c>(object: &NodePool, claims: impl IntoIterator<Item = &'c NodeClaim>) -> Option<Replicas> {
    let wanted = object.spec.replicas?;
    let Count { active, pending_disruption, deleting } = Count::of(claims);
    let node_limit = node_limit(object).unwrap_or(Some(0));
    Some(Replicas { wanted, active, pending_disruption, deleting, node_limit })
}

/// What a NodePool says; of how many nodes it keeps, that it does.
pub(crate) fn pool(object: &NodePool, counts: Counts, now: Timestamp, errors: &mut Vec<ObjectError>) -> FleetPool {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let disruption = &object.spec.disruption;
    let Counts { nodes, going, unready } = counts;
    let consolidate_after = disruption.consolidate_after.parse().unwrap_or_else(|why| {
        errors.push(error("NodePool", name, "spec.disruption.consolidateAfter", why.to_string()));
        None
    });
    let policy = match &disruption.consolidation_policy {
        Some(api::disruption::ConsolidationPolicy::WhenEmpty) => ConsolidationPolicy::WhenEmpty,
        Some(api::disruption::ConsolidationPolicy::Balanced) => ConsolidationPolicy::Balanced,
        Some(api::disruption::ConsolidationPolicy::WhenEmptyOrUnderutilized) | None => {
            ConsolidationPolicy::WhenEmptyOrUnderutilized
        }
        Some(api::disruption::ConsolidationPolicy::Unknown(policy)) => {
            let why = format!("unknown policy {policy:?}");
            errors.push(error("NodePool", name, "spec.disruption.consolidationPolicy", why));
            ConsolidationPolicy::WhenEmpty
        }
    };
    let expiration = expiration::policy(object).unwrap_or_else(|problem| {
        errors.push(ObjectError { object: object_ref("NodePool", name), problem });
        Some(ExpirationPolicy::Graceful)
    });
    let budgets::Read { budgets, faults } = budgets::read(disruption.budgets.as_deref(), nodes, now);
    let field = |index: usize| format!("spec.disruption.budgets[{index}]");
    errors.extend(faults.iter().map(|fault| error("NodePool", name, &field(fault.index), fault.problem.to_string())));
    FleetPool {
        policy,
        consolidate_after: consolidate_after.map(milliseconds),
        expiration,
        replicas: replicas(object, []),
        nodes,
        going,
        unready,
        budgets,
        faults,
    }
}
