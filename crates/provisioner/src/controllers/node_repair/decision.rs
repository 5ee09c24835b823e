//! Which machines are rebooted now, and what keeps the others that should be from it; by the rules of Karpenter before
//! 1.15 which are replaced. A pure function of the store, the provider's policies and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::conditions::node_claim::INITIALIZED;
use api::{NodeClaim, NodePool, annotations};
use cloudprovider::{NodeClassKind, RepairAction, RepairPolicies};
use cluster::node_repair::{self, Diagnosis, Health, Repair};
use cluster::pool_budget::{Machines, begun};
use k8s_openapi::api::core::v1::Node;
use model::{DurationMs, NamespacedName, NodeClaimName, NodeName, NodePoolName, Timestamp};
use scheduling::snapshot::eviction::{Budgets, DeletionCosts, EvictionCost, Forbidden};
use scheduling::snapshot::fleet::RepairHold;
use scheduling::snapshot::pending::will_be_replaced;

use crate::world::claim;
use crate::world::node_facts;
use crate::world::store::{NodeRecord, State};
use crate::world::termination;

/// By which rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Karpenter 1.15's. Machines that are to be replaced are left to disruption.
    Current,
    /// Those of Karpenter before 1.15 (`--legacy-node-repair`), which knows no reboots.
    Legacy,
}

/// What a decision is made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// By which rules.
    pub rules: Rules,
    /// The provider's.
    pub policies: &'a RepairPolicies,
    /// The kinds of node classes whose NodeClaims are ours.
    pub kinds: &'a [NodeClassKind],
    /// NodeClaims whose machines pods wait for.
    pub awaited: &'a BTreeSet<NodeClaimName>,
    /// Who writes deletion costs of pods.
    pub deletion_costs: DeletionCosts,
    /// When.
    pub now: Timestamp,
}

/// A broken machine.
#[derive(Debug, Clone)]
pub(crate) struct Case<'p> {
    /// Its NodeClaim.
    pub claim: Arc<NodeClaim>,
    /// Its Node.
    pub node: Arc<Node>,
    /// Its NodePool, if it has one.
    pub pool: Option<Arc<NodePool>>,
    /// What its policies say.
    pub repair: Repair<'p>,
    /// How long its drain may take: the shorter of what policies and NodeClaim say.
    pub drain_bound: Option<DurationMs>,
    /// What it costs to evict its pods.
    cost: EvictionCost,
}

/// Why a broken machine is not repaired now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Its annotation `karpenter.sh/do-not-repair`.
    DoNotRepair,
    /// It came from no NodePool that is there: nobody would launch another in its place.
    NoNodePool,
    /// This pod may not be evicted, and nothing bounds the drain.
    Pod(NamespacedName, Forbidden),
    /// Too many machines that share a NodePool are unhealthy, or of the whole cluster.
    TooMany {
        /// How many.
        unhealthy: usize,
        /// Of so many.
        nodes: usize,
    },
    /// The NodePool's budgets let none go now. In its own words, or what is wrong with them.
    Budget(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoNotRepair => write!(f, "annotation {} is \"true\"", annotations::DO_NOT_REPAIR),
            Self::NoNodePool => f.write_str("it belongs to no NodePool that could replace it"),
            Self::Pod(pod, Forbidden::DoNotDisrupt(_)) => write!(
                f,
                "pod {pod} has annotation {}, and neither the repair policy nor the NodeClaim has a \
                 terminationGracePeriod",
                annotations::DO_NOT_DISRUPT
            ),
            Self::Pod(pod, Forbidden::Budget(budget)) => write!(
                f,
                "PodDisruptionBudget {budget} forbids to evict pod {pod}, and neither the repair policy nor the NodeClaim \
                 has a terminationGracePeriod"
            ),
            Self::Pod(pod, Forbidden::SeveralBudgets(budgets)) => write!(
                f,
                "PodDisruptionBudgets {} all select pod {pod}, and neither the repair policy nor the NodeClaim has a \
                 terminationGracePeriod",
                budgets.join(", ")
            ),
            Self::TooMany { unhealthy, nodes } => {
                write!(f, "{unhealthy} of {nodes} nodes are unhealthy, more than 20%")
            }
            Self::Budget(text) => write!(f, "disruption budget {text} lets no more nodes go for reason Unhealthy"),
        }
    }
}

/// What comes of a look at all machines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decisions<'p> {
    /// Machines that are repaired now, in this order.
    pub repairs: Vec<Case<'p>>,
    /// Broken machines that are not.
    pub blocked: Vec<(Case<'p>, Obstacle)>,
}

/// Looks at all machines.
pub(crate) fn decide<'p>(state: &State, question: Question<'p>) -> Decisions<'p> {
    let mut cases: Vec<Case<'p>> = Vec::new();
    for record in state.nodes.values() {
        cases.extend(case(state, record, question));
    }
    let mut decisions = Decisions::default();
    if cases.is_empty() {
        return decisions;
    }
    let name = |case: &Case<'_>| case.node.metadata.name.clone();
    cases.sort_by(|a, b| {
        let by_score = b.repair.score.cmp(&a.repair.score);
        by_score.then_with(|| a.cost.cmp(&b.cost)).then_with(|| name(a).cmp(&name(b)))
    });
    let mut look = Look::new(state, question);
    for case in cases {
        match look.obstacle(&case) {
            Some(obstacle) => decisions.blocked.push((case, obstacle)),
            None => decisions.repairs.push(case),
        }
    }
    decisions
}

/// The machine of a Node, if it is broken and nothing has been begun with it.
fn case<'p>(state: &State, record: &NodeRecord, question: Question<'p>) -> Option<Case<'p>> {
    let node = &record.object;
    if !node_repair::is_unhealthy(node, question.policies) || !node_facts::is_registered(node) {
        return None;
    }
    let mut claims = state.node_claims_of_machine(node_facts::provider_id(node)?);
    let (claim, None) = (claims.next()?, claims.next()) else { return None };
    if !claim::is_managed(claim, question.kinds) || begun(claim, node).is_some() {
        return None;
    }
    let Diagnosis::Broken(mut repair) = node_repair::diagnose(node, Some(claim), question.policies, question.now)
    else {
        return None;
    };
    match question.rules {
        Rules::Legacy if repair.because.policy.action == RepairAction::RebootNode => return None,
        // It knows no drain: all pods go by force.
        Rules::Legacy => repair.drain_bound = Some(DurationMs::ZERO),
        Rules::Current if repair.action == RepairAction::ReplaceNode => return None,
        Rules::Current => {
            if claim::is(claim, INITIALIZED) && is_awaited(state, &record.model.name, claim, question.awaited) {
                return None;
            }
        }
    }
    let pool = state.node_pools.get(claim::node_pool(claim)).cloned();
    if question.rules == Rules::Current && pool.as_ref().is_some_and(|pool| has_surplus(state, pool)) {
        return None;
    }
    let pods = state.pods_on_node(&record.model.name).filter(|pod| will_be_replaced(pod));
    Some(Case {
        cost: EvictionCost::of_node(pods.map(|pod| EvictionCost::of(pod, question.deletion_costs))),
        drain_bound: termination::drain_bound(repair.drain_bound, claim),
        claim: Arc::clone(claim),
        node: Arc::clone(node),
        pool,
        repair,
    })
}

/// Whether pods are on their way to the machine.
fn is_awaited(state: &State, node: &NodeName, claim: &NodeClaim, awaited: &BTreeSet<NodeClaimName>) -> bool {
    let is_nominated = |pod: &model::Pod| pod.nominated_node_name.as_ref() == Some(node);
    awaited.contains(claim::name(claim)) || state.nominated_pods().any(|pod| is_nominated(pod))
}

/// Whether a static NodePool has more machines than it wants: it takes the broken one away itself.
fn has_surplus(state: &State, pool: &NodePool) -> bool {
    let Some(replicas) = pool.spec.replicas else { return false };
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let staying = state.node_claims_of_pool(name).filter(|claim| !claim::is_deleting(claim)).count();
    i64::try_from(staying).unwrap_or(i64::MAX) > replicas
}

/// What is counted while machines are decided about, one after the other.
struct Look<'s, 'p> {
    state: &'s State,
    question: Question<'p>,
    budgets: Budgets<'s>,
    health: Health<'s>,
    /// How many more machines of a NodePool may be repaired.
    left: BTreeMap<NodePoolName, Result<Option<(u32, String)>, String>>,
}

impl<'s, 'p> Look<'s, 'p> {
    fn new(state: &'s State, question: Question<'p>) -> Self {
        let health = Health::new(state.nodes.values().map(|record| &*record.object), question.policies);
        let budgets = Budgets::new(state.pod_disruption_budgets.values().map(AsRef::as_ref));
        Self { state, question, budgets, health, left: BTreeMap::new() }
    }

    /// What keeps a machine from being repaired now. If nothing does, its part of the budget is taken.
    fn obstacle(&mut self, case: &Case<'_>) -> Option<Obstacle> {
        if self.question.rules == Rules::Legacy {
            return self.too_many(claim::node_pool(&case.claim));
        }
        if node_repair::is_vetoed(&case.node) {
            return Some(Obstacle::DoNotRepair);
        }
        let Some(pool) = case.pool.as_deref() else { return Some(Obstacle::NoNodePool) };
        let of_pods = self.pod_in_the_way(case);
        let obstacle = of_pods.or_else(|| self.too_many(pool.metadata.name.as_deref().unwrap_or_default()));
        obstacle.or_else(|| self.budget(case, pool))
    }

    fn too_many(&self, pool: &str) -> Option<Obstacle> {
        match self.health.hold(pool)? {
            RepairHold::TooMany { unhealthy, nodes } => Some(Obstacle::TooMany { unhealthy, nodes }),
            RepairHold::DoNotRepair => Some(Obstacle::DoNotRepair),
        }
    }

    fn pod_in_the_way(&self, case: &Case<'_>) -> Option<Obstacle> {
        if case.drain_bound.is_some() {
            return None;
        }
        let pods = self.state.pods_on_node(case.node.metadata.name.as_deref()?);
        let mut forbidden = pods.filter_map(|pod| {
            let forbidden = self.budgets.forbid(pod, self.question.now, &self.state.interner)?;
            Some(Obstacle::Pod(pod.name.clone(), forbidden))
        });
        forbidden.next()
    }

    /// A machine that has never been initialized is no part of what budgets count.
    fn budget(&mut self, case: &Case<'_>, pool: &NodePool) -> Option<Obstacle> {
        if !claim::is(&case.claim, INITIALIZED) {
            return None;
        }
        let name = NodePoolName::from(pool.metadata.name.as_deref().unwrap_or_default());
        let (state, now) = (self.state, self.question.now);
        match self.left.entry(name).or_insert_with(|| left(state, pool, now)) {
            Ok(Some((0, text))) => Some(Obstacle::Budget(text.clone())),
            Ok(Some((left, _))) => {
                *left -= 1;
                None
            }
            Ok(None) => None,
            Err(problem) => Some(Obstacle::Budget(problem.clone())),
        }
    }
}

/// How many machines of a NodePool may be repaired.
fn left(state: &State, pool: &NodePool, now: Timestamp) -> Result<Option<(u32, String)>, String> {
    let mut machines = Machines::default();
    for claim in state.node_claims_of_pool(pool.metadata.name.as_deref().unwrap_or_default()) {
        let mut nodes = state.nodes_of_machine(claim::provider_id(claim).unwrap_or_default());
        if let Some(node) = nodes.next() {
            machines.add(claim, &node.object);
        }
    }
    machines.allowed(pool, now).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests;
