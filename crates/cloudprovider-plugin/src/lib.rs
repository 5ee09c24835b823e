//! What makes a running provider from what it declares.
//!
//! A provider's crate has one value that implements [`ProviderPlugin`], and the binary's table of providers lists it.
//! The trait is not in `cloudprovider`, because that crate is part of the core and may not know kube's client.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider::events::Events;
use cloudprovider::options::OptionValues;
use cloudprovider::{CloudProvider, Declaration, InstanceType};
use futures::future::BoxFuture;
use kube::Client;
use model::Timestamp;

pub use prometheus_client::registry::Registry;

/// A provider as the binary knows it before anything runs.
#[async_trait]
pub trait ProviderPlugin: fmt::Debug + Send + Sync {
    /// What the provider says of itself.
    fn declaration(&self) -> &'static Declaration;

    /// Makes the provider. Nothing is launched and no loop runs yet.
    ///
    /// # Errors
    /// If an option names something that cannot be used, or the cloud cannot be reached at all.
    async fn build(&self, setup: Setup<'_>) -> Result<Provider, BuildError>;
}

/// What a provider is made with.
pub struct Setup<'a> {
    /// A client of the cluster's API server.
    pub client: Client,
    /// Tells the time of day.
    pub clock: Clock,
    /// The namespace of this process, for objects that the provider keeps in the cluster.
    pub namespace: String,
    /// The values of the options that the provider declares.
    pub options: &'a OptionValues,
    /// Whether capacity reservations are used, the gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Where the provider registers what it shows of itself. Names are whole: nothing is put before them.
    pub metrics: &'a mut Registry,
    /// Takes what the provider tells of objects.
    pub events: Arc<dyn Events>,
    /// What can be launched, where the caller knows it better than the provider and its options.
    pub instance_types: Option<Vec<InstanceType>>,
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("namespace", &self.namespace)
            .field("options", self.options)
            .finish_non_exhaustive()
    }
}

/// Tells the time of day.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A loop of a provider: runs until the future that it is given is over, and never ends before.
pub type Background = Box<dyn FnOnce(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Send>;

/// A provider that can be called.
pub struct Provider {
    /// The provider itself.
    pub cloud: Arc<dyn CloudProvider>,
    /// Its loop, if it has one. Only the leader runs it.
    pub background: Option<Background>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_background = self.background.is_some();
        f.debug_struct("Provider").field("name", &self.cloud.name()).field("has_background", &has_background).finish()
    }
}

/// A provider that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct BuildError {
    what: String,
    source: Box<dyn Error + Send + Sync>,
}

impl BuildError {
    /// What could not be used, such as a flag with its value, and why.
    pub fn new(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}
