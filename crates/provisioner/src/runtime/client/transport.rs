//! Connections to the API server that cannot hang unnoticed.
//!
//! kube's own stack has no deadline for an answer, keeps idle connections for 90 seconds and sends no keep-alives.
//! Behind a NAT or a load balancer that forgets idle connections the next request on one of them waits for ever. So
//! here:
//!
//! * TCP keep-alives find a peer that is gone, and keep the mapping of a connection from being forgotten;
//! * a connection that was idle for longer than [`POOL_IDLE`] is not used again: what is taken from the pool has
//!   answered within the last moments;
//! * each attempt has a deadline (`deadlines`), which closes its connection when it passes.
//!
//! HTTP/1.1, as in kube: a watch is a connection of its own, and one that goes silent takes no other call with it.

use std::time::Duration;

use futures::FutureExt;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use tower::retry::Retry;
use tower::timeout::Timeout;
use tower::util::{BoxCloneService, option_layer};
use tower::{BoxError, Layer, ServiceExt};

use super::deadlines::{AnswerDeadline, Bounded, Deadlines, Timeouts};
use super::fenced::Fenced;
use crate::runtime::leader_election::Fence;

/// Longest that TCP and TLS may take to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection that was idle for longer is closed.
const POOL_IDLE: Duration = Duration::from_secs(3);
/// When a silent connection is asked for a sign of life first, how often then, and how many signs may be missing.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_RETRIES: u32 = 3;
#[cfg(target_os = "linux")]
/// Longest that the peer's TCP may take to acknowledge what was sent.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// What clients are built on: it knows the server and how to speak to it.
pub(super) type Transport =
    BoxCloneService<http::Request<Body>, http::Response<Bounded<hyper::body::Incoming>>, BoxError>;

/// Connections of their own to the configured server, which send writes while the fence is open.
///
/// # Errors
/// If the configuration cannot be used.
pub(super) fn transport(config: &Config, timeouts: &Timeouts, fence: Fence) -> kube::Result<Transport> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(KEEP_ALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEP_ALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let connector = Timeout::new(tls, CONNECT).map_future(FutureExt::boxed);
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .build(connector);
    let fenced = Fenced { inner: config.base_uri_layer().layer(connections), fence };
    let answered = AnswerDeadline { inner: fenced, timeouts: timeouts.clone() };
    let authorized = option_layer(config.auth_layer()?).layer(config.extra_headers_layer()?.layer(answered));
    let timeouts = timeouts.clone();
    if !config.default_retry {
        return Ok(BoxCloneService::new(Deadlines { inner: authorized, timeouts }));
    }
    let retried = Retry::new(RetryPolicy::server_retry(), authorized);
    Ok(BoxCloneService::new(Deadlines { inner: retried, timeouts }))
}
