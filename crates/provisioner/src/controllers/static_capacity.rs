//! Static NodePools: as many machines as `spec.replicas` says, whether pods need them or not.
//!
//! Nothing is remembered that a restart would lose: the NodeClaims in the API server are counted, and what is missing
//! is created, what is too many deleted. What the watches show only says whether it is worth to ask. Before anything is
//! done, NodePool and NodeClaims are read from the API server itself, so neither a watch that lags nor the death of the
//! process leads to a second machine in one's place. A request that is not answered may be carried out late; until it
//! can be no more, nothing is launched for its NodePool.
//!
//! What is a pure function is in a module of its own: [`decision`] how many, [`order`] which, [`pace`] when again.
//!
//! Differs: `static-one-controller`. Karpenter has two, `static.provisioning` and `static.deprovisioning`.
//!
//! Left out: drift of static NodePools, which `controllers/disruption` looks after.
//!
//! Failpoints, in order: `provision.before-create`, `provision.after-create`; `static-capacity.before-delete`,
//! `static-capacity.after-delete`.

use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, NodePool, annotations, events, labels};
use cluster::node_pool::readiness;
use cluster::static_pools::{Count, Standing, node_limit};
use futures::{StreamExt, stream};
use kube::api::{Api, ListParams};
use model::{DurationMs, NodeClaimName, NodePoolName, Pod};
use tracing::{error, info};

use crate::runtime::failpoints;
use crate::runtime::metrics::CreatedLabels;
use crate::runtime::patch::{Lock, lean};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::new_node_claim::{self, Unanswered};
use crate::world::plan_options::deletion_costs;
use crate::world::static_node_claim;
use crate::world::store::{Revision, State, Stored};

use decision::Step;
use order::{Because, Machine};
use pace::Paces;

pub(crate) mod decision;
pub(crate) mod order;
pub(crate) mod pace;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "static.capacity";
/// After this long a NodePool is looked at though nothing has changed that we know of.
const RESYNC: Duration = Duration::from_secs(60);
/// How often a NodePool at its limit is looked at.
const AT_LIMIT: Duration = Duration::from_secs(30);
/// Changes of NodeClaims are collected for this long.
const COLLECT: Duration = Duration::from_millis(200);
/// NodeClaims that one look creates or deletes at most; the next look follows at once.
const MOST_AT_ONCE: usize = 256;
/// NodeClaims being created or deleted at the same time.
const PARALLEL: usize = 64;
/// How long the API server may take over a request that it does not answer: its own time-out, and some.
const UNANSWERED: DurationMs = DurationMs::from_seconds(90);

/// Keeps static NodePools at their replicas until the context is stopped.
pub(crate) async fn run(context: Context) {
    if !context.options.feature_gates.static_capacity {
        return context.stop.cancelled().await;
    }
    let (queue, paces) = (Arc::new(WorkQueue::new()), Arc::new(Paces::default()));
    subscribe(&context, &queue, &paces);
    context.store.wait_until_synced().await;
    for name in context.store.read().node_pools.keys() {
        queue.add(name.clone());
    }
    let owner = context.owner(NAME);
    queue::run(owner, queue, queue::Config::default(), move |name| {
        let controller = StaticCapacity { context: context.clone(), paces: Arc::clone(&paces) };
        async move { controller.reconcile(&name).await }
    })
    .await;
}

fn subscribe(context: &Context, queue: &Arc<WorkQueue<NodePoolName>>, paces: &Arc<Paces>) {
    let changed = Arc::clone(queue);
    context.store.on::<NodePool>(move |delta, _| {
        let matters = delta.changed(|pool| {
            (pool.metadata.uid.clone(), pool.metadata.generation, readiness(pool).is_ok(), is_going(pool))
        });
        if matters {
            changed.add(delta.key.clone());
        }
    });
    let (changed, paces, clock) = (Arc::clone(queue), Arc::clone(paces), Arc::clone(&context.clock));
    context.store.on::<NodeClaim>(move |delta, _| {
        let Some(pool) = delta.latest().map(|it| NodePoolName::from(claim::node_pool(it))) else { return };
        match (delta.before, delta.after) {
            (Some(before), Some(after)) if claim::is_deleting(after) && !claim::is_deleting(before) => {
                if !claim::is_launched(after) {
                    paces.failed(&pool, delta.key, clock.now());
                }
            }
            (_, Some(after)) if claim::is_launched(after) && delta.changed(claim::is_launched) => {
                paces.launched(&pool);
            }
            (_, None) => paces.forget_claim(delta.key),
            (_, Some(_)) => {}
        }
        if delta.changed(Standing::of) {
            changed.add_after(pool, COLLECT);
        }
    });
}

fn is_going(pool: &NodePool) -> bool {
    pool.metadata.deletion_timestamp.is_some()
}

struct StaticCapacity {
    context: Context,
    paces: Arc<Paces>,
}

/// A static NodePool and its NodeClaims at one moment.
struct Fleet {
    pool: Arc<NodePool>,
    claims: Vec<Arc<NodeClaim>>,
}

impl Fleet {
    fn step(&self, context: &Context) -> anyhow::Result<Step> {
        // Deleted with all it has, or not ours.
        let kinds = context.cloud.node_class_kinds();
        let class = &self.pool.spec.template.spec.node_class_ref;
        let is_managed = kinds.iter().any(|kind| kind.group == class.group && kind.kind == class.kind);
        let Some(replicas) = self.pool.spec.replicas.filter(|_| is_managed && !is_going(&self.pool)) else {
            return Ok(Step::Enough);
        };
        let count = Count::of(self.claims.iter().map(AsRef::as_ref));
        Ok(match decision::decide(count, replicas, node_limit(&self.pool).map_err(anyhow::Error::msg)?) {
            // Its readiness brings it back.
            Step::Launch(_) | Step::LimitReached if readiness(&self.pool).is_err() => Step::Enough,
            step => step,
        })
    }

    fn active(&self) -> impl Iterator<Item = &NodeClaim> {
        self.claims.iter().map(AsRef::as_ref).filter(|claim| Standing::of(claim) == Standing::Active)
    }
}

impl StaticCapacity {
    async fn reconcile(&self, name: &NodePoolName) -> anyhow::Result<Action> {
        let Some(seen) = self.seen(name) else {
            self.paces.forget(name);
            return Ok(Action::Done);
        };
        if seen.pool.spec.replicas.is_none() {
            return Ok(Action::Done);
        }
        if seen.step(&self.context)? == Step::Enough {
            return Ok(Action::RequeueAfter(RESYNC));
        }
        let Some(fleet) = self.read(name).await? else { return Ok(Action::Done) };
        match fleet.step(&self.context)? {
            Step::Enough => Ok(Action::RequeueAfter(RESYNC)),
            Step::LimitReached => {
                self.tell_limit(&fleet);
                Ok(Action::RequeueAfter(AT_LIMIT))
            }
            Step::Launch(number) => self.launch(&fleet, name, number).await,
            Step::Deprovision(number) => self.deprovision(&fleet, number).await,
        }
    }

    /// What the watches have shown.
    fn seen(&self, name: &NodePoolName) -> Option<Fleet> {
        let state = self.context.store.read();
        let pool = Arc::clone(state.node_pools.get(name)?);
        Some(Fleet { pool, claims: state.node_claims_of_pool(name).cloned().collect() })
    }

    /// What the API server has. The store is told, so that all who ask it see the same from now on.
    async fn read(&self, name: &NodePoolName) -> anyhow::Result<Option<Fleet>> {
        let pools: Api<NodePool> = Api::all(self.context.client.clone());
        let Some(pool) = pools.get_opt(name).await? else { return Ok(None) };
        let claims: Api<NodeClaim> = Api::all(self.context.client.clone());
        let of_pool = ListParams::default().labels(&format!("{}={name}", labels::NODEPOOL));
        let claims = claims.list(&of_pool).await?.items.into_iter().map(|it| self.keep(it));
        Ok(Some(Fleet { pool: Arc::new(pool), claims: claims.collect() }))
    }

    fn keep(&self, node_claim: NodeClaim) -> Arc<NodeClaim> {
        let node_claim = Arc::new(lean(node_claim));
        self.context.store.apply_shared(Arc::clone(&node_claim), Revision::of(&node_claim.metadata));
        node_claim
    }

    fn tell_limit(&self, fleet: &Fleet) {
        let count = Count::of(fleet.claims.iter().map(AsRef::as_ref));
        let message = format!(
            "NodePool wants {} nodes and has {}, and limits.nodes allows no more ({} are being deleted)",
            fleet.pool.spec.replicas.unwrap_or_default(),
            count.active + count.pending_disruption,
            count.deleting
        );
        info!(node_pool = fleet.pool.metadata.name, reason = message, "nodepool node limit reached");
        let event = Event::new(reference(&*fleet.pool), Severity::Warning, events::NODE_LIMIT_REACHED, message);
        self.context.recorder.publish(event);
    }

    async fn launch(&self, fleet: &Fleet, name: &NodePoolName, number: i64) -> anyhow::Result<Action> {
        if let Some(left) = self.paces.wait(name, self.context.clock.now()) {
            return Ok(Action::RequeueAfter(Duration::from_millis(u64::try_from(left.0).unwrap_or_default())));
        }
        let config = self.context.cloud.config();
        let claim =
            static_node_claim::node_claim(&fleet.pool, &config.labels, config.default_termination_grace_period)?;
        let number = usize::try_from(number).unwrap_or(usize::MAX).min(MOST_AT_ONCE);
        info!(node_pool = %name, replicas = fleet.pool.spec.replicas, node_claim_count = number, "launching static capacity");
        let creations: Vec<_> = (0..number).map(|_| self.create(name, claim.clone())).collect();
        let created: Vec<anyhow::Result<()>> = stream::iter(creations).buffer_unordered(PARALLEL).collect().await;
        if created.iter().any(|it| it.as_ref().is_err_and(|failure| failure.is::<Unanswered>())) {
            self.paces.hold(name, self.context.clock.now().saturating_add(UNANSWERED));
        }
        created.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        // There may be more to do than one look does.
        Ok(Action::RequeueAfter(COLLECT))
    }

    async fn create(&self, pool: &NodePoolName, claim: NodeClaim) -> anyhow::Result<()> {
        let created = new_node_claim::create(&self.context, claim).await.inspect_err(|failure| {
            error!(node_pool = %pool, error = format!("{failure:#}"), "could not create nodeclaim");
        })?;
        failpoints::hit("provision.after-create");
        let created = self.keep(created);
        info!(node_pool = %pool, node_claim = claim::name(&created), "created nodeclaim");
        let labels = CreatedLabels {
            nodepool: pool.to_string(),
            reason: "provisioned".to_owned(),
            min_values_relaxed: annotations::FALSE.to_owned(),
        };
        self.context.metrics.nodeclaims_created.get_or_create(&labels).inc();
        Ok(())
    }

    async fn deprovision(&self, fleet: &Fleet, number: i64) -> anyhow::Result<Action> {
        let number = usize::try_from(number).unwrap_or(usize::MAX).min(MOST_AT_ONCE);
        let going = {
            let state = self.context.store.read();
            let machines = fleet.active().map(|claim| Machine { claim, pods: pods_of(&state, claim) }).collect();
            let expire_after = &fleet.pool.spec.template.spec.expire_after;
            let costs = deletion_costs(&self.context.options);
            order::first_to_go(machines, number, expire_after, (costs, self.context.clock.now()))
        };
        let count = going.len();
        info!(
            node_pool = fleet.pool.metadata.name,
            replicas = fleet.pool.spec.replicas,
            node_claim_count = count,
            "removing static capacity"
        );
        let deletions: Vec<_> =
            going.into_iter().map(|(claim, because)| self.delete(&fleet.pool, claim, because)).collect();
        let deleted: Vec<anyhow::Result<()>> = stream::iter(deletions).buffer_unordered(PARALLEL).collect().await;
        deleted.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        Ok(Action::RequeueAfter(COLLECT))
    }

    /// Deletes a NodeClaim if it is still what was looked at.
    async fn delete(&self, pool: &NodePool, node_claim: &NodeClaim, because: Because) -> anyhow::Result<()> {
        let name: NodeClaimName = node_claim.key();
        failpoints::hit("static-capacity.before-delete");
        self.paces.expect_deletion(&name);
        match claim::delete(&self.context.client, node_claim, Lock::Revision).await {
            Ok(going) => {
                failpoints::hit("static-capacity.after-delete");
                if let Some(going) = going {
                    self.keep(going);
                }
            }
            Err(failure) => {
                self.paces.forget_claim(&name);
                return Err(failure.into());
            }
        }
        info!(node_claim = %name, reason = %because, "deleted surplus nodeclaim");
        let replicas = pool.spec.replicas.unwrap_or_default();
        let pool = pool.metadata.name.as_deref().unwrap_or_default();
        let message = format!("NodePool {pool} has more than {replicas} nodes; this one is removed because {because}");
        let event = Event::new(reference(node_claim), Severity::Normal, events::SURPLUS_NODE, message);
        self.context.recorder.publish(event);
        Ok(())
    }
}

/// The pods that are bound to the Node of a NodeClaim.
fn pods_of<'a>(state: &'a State, node_claim: &NodeClaim) -> Vec<&'a Pod> {
    let nodes = claim::provider_id(node_claim).into_iter().flat_map(|id| state.nodes_of_machine(id));
    nodes.flat_map(|node| state.pods_on_node(&node.model.name)).map(AsRef::as_ref).collect()
}
