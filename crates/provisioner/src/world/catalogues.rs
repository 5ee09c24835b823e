//! What each NodePool can launch, compiled for the planner.
//!
//! The provider is asked before every plan (it caches); its answer is compiled only when the answer's generation is
//! new. A NodePool whose instance types cannot be told is not planned with; the others go on. It gets an event, and so
//! does one whose own requirements leave nothing to launch: the pods' reasons tell the same, but to other people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{NodePool, conditions, events};
use cloudprovider::{InstanceTypes, NodeClassReadiness};
use cluster::node_pool::{readiness, ready_condition};
use cluster::snapshot::LaunchableNodePool;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use model::{NodePoolName, Uid};
use parking_lot::Mutex;
use scheduling::catalogue::Catalogue;
use tracing::warn;

use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::context::Context;
use crate::world::overlays::Outcome;
use crate::world::store::Stored;

/// Longest that a plan waits for a provider.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Compiled instance types by NodePool.
#[derive(Debug, Default)]
pub(crate) struct Catalogues {
    compiled: Mutex<BTreeMap<NodePoolName, Compiled>>,
}

/// What the provider says of a NodePool.
#[derive(Debug)]
pub struct Answer {
    /// The NodePool.
    pub pool: Arc<NodePool>,
    /// Its instance types, or why they cannot be told.
    pub types: Result<InstanceTypes, String>,
}

/// Every NodePool of the provider's node classes with what the provider says it can launch now. Ordered by name.
pub(crate) async fn answers(context: &Context) -> Vec<Answer> {
    let pools: Vec<Arc<NodePool>> = {
        let state = context.store.read();
        state.node_pools.values().filter(|pool| is_managed(pool, context)).cloned().collect()
    };
    let asking: FuturesOrdered<_> = pools.into_iter().map(|pool| answer(pool, context)).collect();
    asking.collect().await
}

async fn answer(pool: Arc<NodePool>, context: &Context) -> Answer {
    let types = match tokio::time::timeout(TIMEOUT, context.cloud.instance_types(&pool)).await {
        Ok(Ok(types)) => Ok(types),
        Ok(Err(error)) => Err(format!("instance types cannot be listed: {error}")),
        Err(_) => Err(format!("the provider did not tell the instance types within {TIMEOUT:?}")),
    };
    Answer { pool, types }
}

/// What a NodePool can launch now, as overlays leave it; `None` if that cannot be told.
pub(crate) async fn launchable(context: &Context, node_pool: &str) -> Option<InstanceTypes> {
    let answers = answers(context).await;
    let outcome = context.overlays.evaluate(
        &context.node_overlays(),
        &answers,
        &context.cloud.config().labels,
        context.clock.now(),
    );
    if let Some(corrected) = outcome.corrected.get(node_pool) {
        return Some(corrected.types.clone());
    }
    let is_it = |answer: &Answer| answer.pool.metadata.name.as_deref() == Some(node_pool);
    answers.into_iter().find(is_it)?.types.ok()
}

#[derive(Debug, Clone)]
struct Compiled {
    /// Of the provider's answer.
    generation: u64,
    /// Of the store's names.
    epoch: u64,
    catalogue: Arc<Catalogue>,
    /// Of the NodePool that it was last looked at for, and what was found.
    looked_at: Option<(Uid, i64, Option<Arc<str>>)>,
}

impl Catalogues {
    /// Every NodePool of the provider's node classes, with what it can launch now. Ordered by name. And what overlays
    /// have changed of it.
    pub(crate) async fn resolve(&self, context: &Context) -> (Vec<LaunchableNodePool>, Arc<Outcome>) {
        let mut answers = answers(context).await;
        let is_known = |name: &str| answers.iter().any(|answer| answer.pool.metadata.name.as_deref() == Some(name));
        self.compiled.lock().retain(|name, _| is_known(name));
        let outcome = context.overlays.evaluate(
            &context.node_overlays(),
            &answers,
            &context.cloud.config().labels,
            context.clock.now(),
        );
        for Answer { pool, types } in &mut answers {
            if let (Ok(types), Some(corrected)) = (types, outcome.corrected.get(&pool.key())) {
                *types = corrected.types.clone();
            }
        }
        let resolving: FuturesOrdered<_> =
            answers.into_iter().map(|answer| self.resolve_one(answer, context)).collect();
        (resolving.collect().await, outcome)
    }

    async fn resolve_one(&self, Answer { pool, types }: Answer, context: &Context) -> LaunchableNodePool {
        let answer = types.map(|types| self.compile(&pool, &types, context));
        let (catalogue, resolved) = match answer {
            Ok(catalogue) if catalogue.types.is_empty() => {
                let why = "the provider has no instance types";
                tell(&pool, why, context);
                (catalogue, Err(why.into()))
            }
            Ok(catalogue) => {
                if let Some(why) = self.nothing_to_launch(&pool, &catalogue, context) {
                    tell(&pool, &why, context);
                }
                (catalogue, Ok(()))
            }
            Err(why) => {
                warn!(node_pool = pool.metadata.name, error = why, "skipping nodepool");
                tell(&pool, &why, context);
                (Arc::default(), Err(Arc::from(why)))
            }
        };
        let ready = if context.options.dry_run { dry_readiness(&pool, context).await } else { readiness(&pool) };
        LaunchableNodePool { usable: ready.and(resolved), object: pool, catalogue }
    }

    /// Why the NodePool's own requirements leave nothing, if they do. Looked at once for each state of pool and
    /// catalogue.
    fn nothing_to_launch(&self, pool: &NodePool, catalogue: &Catalogue, context: &Context) -> Option<Arc<str>> {
        let name = NodePoolName::from(pool.metadata.name.as_deref().unwrap_or_default());
        let uid = Uid::from(pool.metadata.uid.as_deref().unwrap_or_default());
        let generation = pool.metadata.generation.unwrap_or_default();
        let known = self.compiled.lock().get(&name).and_then(|compiled| compiled.looked_at.clone());
        if let Some((_, _, found)) = known.filter(|(of, at, _)| (of, *at) == (&uid, generation)) {
            return found;
        }
        let min_values = context.options.min_values_policy;
        let (found, _) = context.store.intern(|interner| {
            let mut names = decode::Context::with_labels(interner, &context.cloud.config().labels);
            cluster::node_pool::nothing_to_launch(pool, catalogue, min_values, &mut names)
        });
        let found = found.map(Arc::from);
        if let Some(compiled) = self.compiled.lock().get_mut(&name) {
            compiled.looked_at = Some((uid, generation, found.clone()));
        }
        found
    }

    fn compile(&self, pool: &NodePool, types: &InstanceTypes, context: &Context) -> Arc<Catalogue> {
        let name = NodePoolName::from(pool.metadata.name.as_deref().unwrap_or_default());
        let epoch = context.store.read().epoch;
        let is_current = |known: &Compiled| known.generation == types.generation && known.epoch == epoch;
        if let Some(known) = self.compiled.lock().get(&name).filter(|known| is_current(known)) {
            return Arc::clone(&known.catalogue);
        }
        // Pools that got the same answer share one catalogue.
        let shared = self.compiled.lock().values().find(|known| is_current(known)).cloned();
        let shared = shared.map(|known| Compiled { looked_at: None, ..known });
        let reserved = context.options.feature_gates.reserved_capacity;
        let compiled = shared.unwrap_or_else(|| {
            let ((catalogue, errors), epoch) = context.store.intern(|interner| {
                let mut context = decode::Context::with_labels(interner, &context.cloud.config().labels);
                if reserved {
                    cluster::catalogue(types.types.iter().map(AsRef::as_ref), &mut context)
                } else {
                    let types: Vec<_> = types.types.iter().map(|it| cluster::without_reserved(it)).collect();
                    cluster::catalogue(types.iter().map(AsRef::as_ref), &mut context)
                }
            });
            for error in errors {
                warn!(node_pool = %name, %error, "skipping an instance type");
            }
            Compiled { generation: types.generation, epoch, catalogue: Arc::new(catalogue), looked_at: None }
        });
        let catalogue = Arc::clone(&compiled.catalogue);
        self.compiled.lock().insert(name, compiled);
        catalogue
    }
}

fn tell(pool: &NodePool, why: &str, context: &Context) {
    let event = Event::new(reference(pool), Severity::Warning, events::NO_COMPATIBLE_INSTANCE_TYPES, why);
    context.recorder.publish(event);
}

/// Whether the NodePool's node class is one of the provider's.
fn is_managed(pool: &NodePool, context: &Context) -> bool {
    let class = &pool.spec.template.spec.node_class_ref;
    context.cloud.node_class_kinds().iter().any(|kind| kind.group == class.group && kind.kind == class.kind)
}

/// What condition `Ready` would say, where nobody has written one yet: a dry run writes nothing itself.
async fn dry_readiness(pool: &NodePool, context: &Context) -> Result<(), Arc<str>> {
    let is_decided = ready_condition(pool).is_some_and(|ready| ready.status != conditions::UNKNOWN);
    if is_decided {
        return readiness(pool);
    }
    match context.cloud.node_class_readiness(&pool.spec.template.spec.node_class_ref).await {
        Ok(NodeClassReadiness::Ready) => Ok(()),
        Ok(NodeClassReadiness::NotReady { reason, message }) => Err(format!("is not ready: {reason} {message}").into()),
        Ok(NodeClassReadiness::Terminating) => Err("is not ready: its node class is being deleted".into()),
        Ok(NodeClassReadiness::NotFound) => Err("is not ready: its node class does not exist".into()),
        Err(error) => Err(format!("is not ready: its node class cannot be read: {error}").into()),
    }
}
