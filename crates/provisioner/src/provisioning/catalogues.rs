//! What each NodePool can launch, compiled for the planner.
//!
//! The provider is asked before every plan (it caches); its answer is compiled only when the answer's generation is new.
//! A NodePool whose instance types cannot be told is not planned with, and its NodePool gets an event; the others go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{NodePool, conditions, events};
use cloudprovider::NodeClassReadiness;
use decode::snapshot::LaunchableNodePool;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::NodePoolName;
use parking_lot::Mutex;
use scheduling::catalogue::Catalogue;
use tracing::warn;

use crate::context::Context;
use crate::recorder::{Event, Severity, reference};

/// Longest that a plan waits for a provider.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Compiled instance types by NodePool.
#[derive(Debug, Default)]
pub struct Catalogues {
    compiled: Mutex<BTreeMap<NodePoolName, Compiled>>,
}

#[derive(Debug, Clone)]
struct Compiled {
    /// Of the provider's answer.
    generation: u64,
    /// Of the store's names.
    epoch: u64,
    catalogue: Arc<Catalogue>,
}

impl Catalogues {
    /// Every NodePool of the provider's node classes, with what it can launch now. Ordered by name.
    pub async fn resolve(&self, context: &Context) -> Vec<LaunchableNodePool> {
        let pools: Vec<Arc<NodePool>> = {
            let state = context.store.read();
            state.node_pools.values().filter(|pool| is_managed(pool, context)).cloned().collect()
        };
        self.compiled.lock().retain(|name, _| pools.iter().any(|pool| pool.metadata.name.as_deref() == Some(name)));
        let resolving: FuturesOrdered<_> = pools.into_iter().map(|pool| self.resolve_one(pool, context)).collect();
        resolving.collect().await
    }

    async fn resolve_one(&self, pool: Arc<NodePool>, context: &Context) -> LaunchableNodePool {
        let answer = match tokio::time::timeout(TIMEOUT, context.cloud.instance_types(&pool)).await {
            Ok(Ok(types)) => Ok(self.compile(&pool, &types, context)),
            Ok(Err(error)) => Err(format!("instance types cannot be told: {error}")),
            Err(_) => Err(format!("the provider did not tell the instance types within {TIMEOUT:?}")),
        };
        let (catalogue, resolved) = match answer {
            Ok(catalogue) if catalogue.types.is_empty() => {
                (catalogue, Err("the provider has no instance types".into()))
            }
            Ok(catalogue) => (catalogue, Ok(())),
            Err(why) => {
                warn!(nodepool = pool.metadata.name, why, "skipping nodepool");
                context.recorder.publish(Event::new(
                    reference(&*pool),
                    Severity::Warning,
                    events::NO_COMPATIBLE_INSTANCE_TYPES,
                    why.clone(),
                ));
                (Arc::default(), Err(Arc::from(why)))
            }
        };
        let ready = if context.options.dry_run { dry_readiness(&pool, context).await } else { readiness(&pool) };
        LaunchableNodePool { usable: ready.and(resolved), object: pool, catalogue }
    }

    fn compile(&self, pool: &NodePool, types: &cloudprovider::InstanceTypes, context: &Context) -> Arc<Catalogue> {
        let name = NodePoolName::from(pool.metadata.name.as_deref().unwrap_or_default());
        let epoch = context.store.read().epoch;
        let is_current = |known: &Compiled| known.generation == types.generation && known.epoch == epoch;
        if let Some(known) = self.compiled.lock().get(&name).filter(|known| is_current(known)) {
            return Arc::clone(&known.catalogue);
        }
        // Pools that got the same answer share one catalogue.
        let shared = self.compiled.lock().values().find(|known| is_current(known)).cloned();
        let compiled = shared.unwrap_or_else(|| {
            let ((catalogue, errors), epoch) = context.store.intern(|interner| {
                let mut context = decode::Context::with_labels(interner, &context.cloud.config().labels);
                decode::catalogue(types.types.iter().map(AsRef::as_ref), &mut context)
            });
            for error in errors {
                warn!(nodepool = %name, %error, "leaving an instance type out");
            }
            Compiled { generation: types.generation, epoch, catalogue: Arc::new(catalogue) }
        });
        let catalogue = Arc::clone(&compiled.catalogue);
        self.compiled.lock().insert(name, compiled);
        catalogue
    }
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

fn ready_condition(pool: &NodePool) -> Option<&Condition> {
    pool.status.iter().flat_map(|status| &status.conditions).find(|it| it.type_ == conditions::READY)
}

/// Whether the NodePool's condition `Ready` is true; if not, what it says.
pub fn readiness(pool: &NodePool) -> Result<(), Arc<str>> {
    match ready_condition(pool) {
        Some(ready) if ready.status == conditions::TRUE => Ok(()),
        Some(ready) => Err(format!("is not ready: {} {}", ready.reason, ready.message).trim_end().into()),
        None => Err("is not ready: it has not been looked into yet".into()),
    }
}
