//! Clients of the API server.
//!
//! kube's client has no rate limit, so the controllers' client gets one as a layer: a bucket that refills at `qps` and
//! holds `burst`. Leader election uses a client without it. Both count what they send (`requests.rs`). No request waits
//! for ever (`transport.rs`, `deadlines.rs`).

mod deadlines;
mod fenced;
mod requests;
mod transport;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tower::{Layer, Service};

pub use self::deadlines::TimedOut;
use self::deadlines::Timeouts;
use self::requests::CountRequests;
use self::transport::Transport;
use crate::options::Options;
use crate::runtime::leader_election::Fence;
use crate::runtime::metrics::Metrics;

/// What requests call their sender.
const AGENT: &str = concat!("dovetail/", env!("CARGO_PKG_VERSION"));

/// Finds the cluster: the kubeconfig, or the pod's own service account.
///
/// # Errors
/// If there is neither.
pub async fn config() -> anyhow::Result<Config> {
    use anyhow::Context as _;
    // kube leaves the choice of a provider to the process. Another caller may have made it; any choice will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::infer().await.context("no kubeconfig and not in a cluster")?;
    // The API server notes it in its audit log, and its name as the manager of the fields that we write.
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    if config.accept_invalid_certs {
        // Else kube reads all that the system has, which nobody looks at then.
        config.root_cert.get_or_insert_default();
    }
    Ok(config)
}

/// A client without a rate limit, for programs that are not a controller.
///
/// # Errors
/// If the configuration cannot be used.
pub fn unlimited(config: Config) -> anyhow::Result<Client> {
    Ok(builder(config, &Timeouts::default(), Fence::opened())?.build())
}

/// The clients of a controller. All count their requests.
#[derive(Clone)]
pub struct Clients {
    /// Writes only while we lead, and keeps to the options' rate.
    pub limited: Client,
    /// Writes only while we lead.
    pub urgent: Client,
    /// Writes only while we lead, keeps to the options' rate, and takes a refusal (429) for the answer.
    pub evictions: Client,
    /// For events, which a replica that does not lead has too. It keeps to the options' rate.
    pub events: Client,
    /// For the Lease, with connections of its own.
    pub lease: Client,
}

impl Clients {
    /// All of them, with one rate for those that keep to it.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn new(config: &Config, options: &Options, metrics: &Metrics, fence: &Fence) -> anyhow::Result<Self> {
        let rate = RateLimit::new(options.kube_client_qps, options.kube_client_burst);
        let count = CountRequests::new(metrics);
        let behind = |fence: Fence| builder(config.clone(), &Timeouts::new(metrics), fence);
        let mut without_retries = config.clone();
        without_retries.default_retry = false;
        let evictions = builder(without_retries, &Timeouts::new(metrics), fence.clone())?;
        Ok(Self {
            evictions: evictions.with_layer(&rate).with_layer(&count).build(),
            limited: behind(fence.clone())?.with_layer(&rate).with_layer(&count).build(),
            urgent: behind(fence.clone())?.with_layer(&count).build(),
            events: behind(Fence::opened())?.with_layer(&rate).with_layer(&count).build(),
            lease: behind(Fence::opened())?.with_layer(&count).build(),
        })
    }
}

fn builder(config: Config, timeouts: &Timeouts, fence: Fence) -> anyhow::Result<ClientBuilder<Transport>> {
    if config.proxy_url.is_some() {
        // Says which feature of kube is missing.
        ClientBuilder::try_from(config.clone())?;
    }
    let transport = transport::transport(&config, timeouts, fence)?;
    Ok(ClientBuilder::new(transport, config.default_namespace))
}

/// Delays requests so that no more than a rate of them goes out.
#[derive(Debug, Clone)]
pub struct RateLimit {
    limiter: Arc<DefaultDirectRateLimiter>,
}

impl RateLimit {
    /// `qps` in the long run, `burst` at once; zero counts as one.
    pub fn new(qps: u32, burst: u32) -> Self {
        let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(qps)).allow_burst(at_least_one(burst));
        Self { limiter: Arc::new(RateLimiter::direct(quota)) }
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, limiter: Arc::clone(&self.limiter) }
    }
}

/// A service behind a [`RateLimit`].
#[derive(Debug, Clone)]
pub struct RateLimited<S> {
    inner: S,
    limiter: Arc<DefaultDirectRateLimiter>,
}

impl<S, R> Service<R> for RateLimited<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The future sends nothing before it is first polled.
        let answer = self.inner.call(request);
        let limiter = Arc::clone(&self.limiter);
        Box::pin(async move {
            limiter.until_ready().await;
            answer.await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::{Duration, Instant};

    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn requests_beyond_the_burst_are_spread_over_time() {
        let service = RateLimit::new(100, 5).layer(service_fn(|n: u32| async move { Ok::<_, Infallible>(n) }));
        let start = Instant::now();
        let mut answered_at = Vec::new();
        for n in 0..15 {
            assert_eq!(service.clone().oneshot(n).await, Ok(n));
            answered_at.push(start.elapsed());
        }
        // Five at once, then one in ten milliseconds: the last is the tenth that had to wait.
        assert!(answered_at[14] >= Duration::from_millis(95), "{answered_at:?}");
    }
}
