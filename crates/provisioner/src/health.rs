//! `/healthz`, `/readyz` and `/metrics`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::metrics::Metrics;
use crate::store::ClusterStore;

/// The content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the endpoints answer from.
#[derive(Debug, Clone)]
pub struct Endpoints {
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Ready once this is synced; that needs NodePools and NodeClaims to be served, since they are watched.
    pub store: Arc<ClusterStore>,
}

/// Serves probes on one port and metrics on the other until `stop` is cancelled. Port 0 takes a free one. Gives back the
/// addresses once both listen.
///
/// # Errors
/// If a port cannot be listened on.
pub async fn serve(
    endpoints: Endpoints,
    probe_port: u16,
    metrics_port: u16,
    stop: CancellationToken,
) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let probes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .with_state(endpoints.clone());
    let metrics = Router::new().route("/metrics", get(show_metrics)).with_state(endpoints);
    let probes = listen("health-probe-port", probe_port, probes, stop.clone()).await?;
    let metrics = listen("metrics-port", metrics_port, metrics, stop).await?;
    info!(%probes, %metrics, "serving probes and metrics");
    Ok((probes, metrics))
}

async fn listen(flag: &str, port: u16, router: Router, stop: CancellationToken) -> anyhow::Result<SocketAddr> {
    // On Linux the first takes IPv4 as well; without IPv6 there is the second.
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    };
    let listener = listener.with_context(|| format!("--{flag}: cannot listen on {port}"))?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        // Accept errors are retried inside; there is nothing else that can end it.
        let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    });
    Ok(address)
}

async fn readyz(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    if endpoints.store.is_synced() {
        return (StatusCode::OK, "ok".to_owned());
    }
    let missing: Vec<&str> = endpoints.store.read().unsynced().map(|kind| kind.as_str()).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("not listed yet: {}", missing.join(", ")))
}

async fn show_metrics(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    match endpoints.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::store::Kind;

    async fn ask(endpoints: &Endpoints) -> (StatusCode, String) {
        let router = Router::new().route("/readyz", get(readyz)).with_state(endpoints.clone());
        let answer = router.oneshot(Request::get("/readyz").body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_means_that_every_kind_was_listed_and_says_which_is_missing() {
        let endpoints = Endpoints { metrics: Arc::new(Metrics::new()), store: Arc::new(ClusterStore::new()) };
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::NodeClaim) {
            endpoints.store.mark_synced(kind);
        }
        let (status, body) = ask(&endpoints).await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "not listed yet: NodeClaim"));
        endpoints.store.mark_synced(Kind::NodeClaim);
        assert_eq!(ask(&endpoints).await.0, StatusCode::OK);
    }
}
