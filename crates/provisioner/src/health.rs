//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::http_server::{Tls, listen};
use crate::metrics::{Format, Metrics};
use crate::metrics_access::Reviewer;
use crate::store::ClusterStore;

/// What the endpoints answer from.
#[derive(Debug, Clone)]
pub struct Endpoints {
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Who may see it; `None` for everybody.
    pub reviewer: Option<Arc<Reviewer>>,
    /// Ready once this is synced; that needs NodePools and NodeClaims to be served, since they are watched.
    pub store: Arc<ClusterStore>,
}

/// Where to serve.
#[derive(Debug)]
pub struct Ports {
    /// Of probes.
    pub probes: u16,
    /// Of metrics.
    pub metrics: u16,
    /// The certificate to serve metrics with; `None` for plain text.
    pub metrics_tls: Option<Tls>,
}

/// Serves probes on one port and metrics on the other until `stop` is cancelled. Port 0 takes a free one. Gives back the
/// addresses once both listen.
///
/// # Errors
/// If a port cannot be listened on.
pub async fn serve(
    endpoints: Endpoints,
    ports: Ports,
    stop: CancellationToken,
) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let probes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .with_state(endpoints.clone());
    let metrics = Router::new().route("/metrics", get(show_metrics)).with_state(endpoints);
    let probes = listen("health-probe-port", ports.probes, probes, None, stop.clone()).await?;
    let metrics = listen("metrics-port", ports.metrics, metrics, ports.metrics_tls, stop).await?;
    info!(%probes, %metrics, "serving probes and metrics");
    Ok((probes, metrics))
}

async fn readyz(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    if endpoints.store.is_synced() {
        return (StatusCode::OK, "ok".to_owned());
    }
    let missing: Vec<&str> = endpoints.store.read().unsynced().map(|kind| kind.as_str()).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("not listed yet: {}", missing.join(", ")))
}

async fn show_metrics(State(endpoints): State<Endpoints>, headers: HeaderMap) -> Response {
    if let Some(reviewer) = &endpoints.reviewer
        && let Some(refusal) = reviewer.refusal(&headers).await
    {
        return refusal;
    }
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    match endpoints.metrics.render_as(format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
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

    fn endpoints() -> Endpoints {
        Endpoints { metrics: Arc::new(Metrics::new()), reviewer: None, store: Arc::new(ClusterStore::new()) }
    }

    async fn ask(endpoints: &Endpoints) -> (StatusCode, String) {
        let router = Router::new().route("/readyz", get(readyz)).with_state(endpoints.clone());
        let answer = router.oneshot(Request::get("/readyz").body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_means_that_every_kind_was_listed_and_says_which_is_missing() {
        let endpoints = endpoints();
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::NodeClaim) {
            endpoints.store.mark_synced(kind);
        }
        let (status, body) = ask(&endpoints).await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "not listed yet: NodeClaim"));
        endpoints.store.mark_synced(Kind::NodeClaim);
        assert_eq!(ask(&endpoints).await.0, StatusCode::OK);
    }
    #[tokio::test]
    async fn metrics_come_in_the_format_that_is_asked_for() {
        let endpoints = endpoints();
        for (accept, content_type, is_open) in [
            (None, "text/plain; version=0.0.4; charset=utf-8", false),
            (Some("application/openmetrics-text"), "application/openmetrics-text; version=1.0.0; charset=utf-8", true),
        ] {
            let router = Router::new().route("/metrics", get(show_metrics)).with_state(endpoints.clone());
            let request = Request::get("/metrics");
            let request = accept.into_iter().fold(request, |request, accept| request.header(header::ACCEPT, accept));
            let answer = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.headers()[header::CONTENT_TYPE], content_type);
            let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            assert_eq!(body.ends_with(b"# EOF\n"), is_open);
        }
    }
}
