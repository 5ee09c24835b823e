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

use crate::metrics::{CallErrorLabels, CallLabels, Metrics, seconds};
use crate::queue::current_controller;

/// A provider with a stopwatch.
pub struct MeteredProvider {
    inner: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
}

impl MeteredProvider {
    /// Measures `inner`.
    pub fn new(inner: Arc<dyn CloudProvider>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }

    fn observe<T>(&self, method: &str, started: Instant, result: &Result<T, Error>) {
        let (controller, method, provider) =
            (current_controller().to_owned(), method.to_owned(), self.inner.name().to_owned());
        if let Err(error) = result {
            let labels = CallErrorLabels {
                controller: controller.clone(),
                method: method.clone(),
                provider: provider.clone(),
                error: error_name(error).to_owned(),
            };
            self.metrics.cloudprovider_errors.get_or_create(&labels).inc();
        }
        let labels = CallLabels { controller, method, provider };
        self.metrics.cloudprovider_duration_seconds.get_or_create(&labels).observe(seconds(started.elapsed()));
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
        Error::Transient(_) => "",
    }
}

macro_rules! metered {
    ($self:ident, $method:literal, $call:expr) => {{
        let started = Instant::now();
        let result = $call.await;
        $self.observe($method, started, &result);
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
        metered!(self, "Create", self.inner.create(request))
    }

    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        metered!(self, "Delete", self.inner.delete(provider_id))
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        metered!(self, "Get", self.inner.get(provider_id))
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        metered!(self, "List", self.inner.list())
    }

    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        metered!(self, "Get", self.inner.find(token))
    }

    async fn instance_types(&self, node_pool: &NodePool) -> Result<InstanceTypes, Error> {
        metered!(self, "GetInstanceTypes", self.inner.instance_types(node_pool))
    }

    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        metered!(self, "IsDrifted", self.inner.drifted(claim))
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }

    async fn reboot(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), Error> {
        metered!(self, "Reboot", self.inner.reboot(claim, operation_id))
    }
}
