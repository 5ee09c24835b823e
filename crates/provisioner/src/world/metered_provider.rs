//! A cloud provider whose calls are counted and timed, under the names that Karpenter's decorator uses.

use std::sync::Arc;

use api::{NodeClaim, NodeClassReference, NodePool};
use async_trait::async_trait;
use cloudprovider::{
    CloudProvider, CreateRequest, DriftReason, Error, Instance, InstanceTypes, NodeClassKind, NodeClassReadiness,
    ProviderConfig, RepairPolicy,
};
use model::{ProviderId, Uid};
use tokio::time::Instant;

use crate::runtime::leader_election::Fence;
use crate::runtime::metrics::{CallErrorLabels, CallLabels, Metrics, seconds};
use crate::runtime::queue::current_controller;
use crate::world::claim;
use crate::world::store::ClusterStore;

/// A provider with a stopwatch, which makes and ends machines only while we lead.
pub(crate) struct MeteredProvider {
    inner: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
    /// Knows whose machine a failed call was about.
    store: Arc<ClusterStore>,
    fence: Fence,
}

/// What a call is about, as far as it says whose NodePool that is.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    NodePool(&'a str),
    Machine(&'a ProviderId),
    Token(&'a Uid),
    /// All machines.
    All,
}

impl MeteredProvider {
    /// Measures `inner`.
    pub(crate) fn new(
        inner: Arc<dyn CloudProvider>,
        metrics: Arc<Metrics>,
        store: Arc<ClusterStore>,
        fence: Fence,
    ) -> Self {
        Self { inner, metrics, store, fence }
    }

    fn check_leading(&self) -> Result<(), Error> {
        self.fence.check().map_err(|refused| Error::Transient(refused.to_string()))
    }

    fn observe<T>(&self, method: &str, subject: Subject<'_>, started: Instant, result: &Result<T, Error>) {
        let (controller, method, provider) =
            (current_controller().to_owned(), method.to_owned(), self.inner.name().to_owned());
        if let Err(error) = result {
            let labels = CallErrorLabels {
                controller: controller.clone(),
                method: method.clone(),
                provider: provider.clone(),
                error: error_name(error).to_owned(),
                nodepool: self.node_pool(subject),
            };
            self.metrics.cloudprovider_errors.get_or_create(&labels).inc();
        }
        let labels = CallLabels { controller, method, provider };
        self.metrics.cloudprovider_duration_seconds.get_or_create(&labels).observe(seconds(started.elapsed()));
    }

    /// The NodePool that a call is about; empty where there is none or it is not known.
    fn node_pool(&self, subject: Subject<'_>) -> String {
        let state = self.store.read();
        let node_pool = match subject {
            Subject::NodePool(name) => name,
            Subject::Machine(id) => state.node_claims_of_machine(id).next().map_or("", |it| claim::node_pool(it)),
            Subject::Token(token) => {
                let mut claims = state.node_claims.values();
                claims.find(|it| claim::uid(it) == *token).map_or("", |it| claim::node_pool(it))
            }
            Subject::All => "",
        };
        node_pool.to_owned()
    }
}

/// Karpenter's names for its error types, where it has such a type.
fn error_name(error: &Error) -> &'static str {
    match error {
        Error::NotFound(_) => "NodeClaimNotFoundError",
        Error::InsufficientCapacity { .. } => "InsufficientCapacityError",
        Error::NodeClassNotReady(_) => "NodeClassNotReadyError",
        Error::CreateFailed { .. } => "CreateError",
        Error::RebootNotImplemented(_) => "NodeRebootNotImplementedError",
        Error::RebootFailed(_) => "NodeRebootError",
        Error::InstanceTypesNotEvaluated(_) => "UnevaluatedNodePoolError",
        Error::Transient(_) => "unknown",
    }
}

macro_rules! metered {
    ($self:ident, $method:literal, $subject:expr, $call:expr) => {{
        let started = Instant::now();
        let result = $call.await;
        $self.observe($method, $subject, started, &result);
        result
    }};
}

#[async_trait]
impl CloudProvider for MeteredProvider {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn config(&self) -> &ProviderConfig {
        self.inner.config()
    }

    fn node_class_kinds(&self) -> &[NodeClassKind] {
        self.inner.node_class_kinds()
    }

    async fn node_class_readiness(&self, node_class: &NodeClassReference) -> Result<NodeClassReadiness, Error> {
        self.inner.node_class_readiness(node_class).await
    }

    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        self.check_leading()?;
        metered!(self, "Create", Subject::NodePool(claim::node_pool(request.claim)), self.inner.create(request))
    }

    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        self.check_leading()?;
        metered!(self, "Delete", Subject::Machine(provider_id), self.inner.delete(provider_id))
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        metered!(self, "Get", Subject::Machine(provider_id), self.inner.get(provider_id))
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        metered!(self, "List", Subject::All, self.inner.list())
    }

    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        metered!(self, "Get", Subject::Token(token), self.inner.find(token))
    }

    async fn instance_types(&self, node_pool: &NodePool) -> Result<InstanceTypes, Error> {
        metered!(
            self,
            "GetInstanceTypes",
            Subject::NodePool(node_pool.metadata.name.as_deref().unwrap_or_default()),
            self.inner.instance_types(node_pool)
        )
    }

    async fn drifted(&self, node_claim: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        metered!(self, "IsDrifted", Subject::NodePool(claim::node_pool(node_claim)), self.inner.drifted(node_claim))
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }

    async fn reboot(&self, node_claim: &NodeClaim, operation_id: &str) -> Result<(), Error> {
        self.check_leading()?;
        metered!(
            self,
            "Reboot",
            Subject::NodePool(claim::node_pool(node_claim)),
            self.inner.reboot(node_claim, operation_id)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cloudprovider_kwok::{KwokCloudProvider, Options as KwokOptions};
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn no_machine_is_ended_by_one_who_does_not_lead() {
        let asked = Arc::new(AtomicUsize::new(0));
        let server = tower::service_fn({
            let asked = Arc::clone(&asked);
            move |_: Request<Body>| {
                asked.fetch_add(1, Ordering::Relaxed);
                async {
                    Response::builder().status(404).body(Body::from(br#"{"status":"Failure","code":404}"#.to_vec()))
                }
            }
        });
        let kwok = KwokCloudProvider::new(Client::new(server, "default"), KwokOptions::new("default"));
        let fence = Fence::closed();
        let (metrics, store) = (Arc::new(Metrics::new()), Arc::new(ClusterStore::new()));
        let provider = MeteredProvider::new(Arc::new(kwok), metrics, store, fence.clone());
        let machine = ProviderId::from("kwok://a");
        let refused = provider.delete(&machine).await.unwrap_err();
        assert_eq!(refused.to_string(), "not sent: this process does not lead (any more)");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        fence.open();
        let _ = provider.delete(&machine).await;
        assert!(asked.load(Ordering::Relaxed) > 0);
    }
}
