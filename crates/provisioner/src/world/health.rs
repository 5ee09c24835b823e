//! `/healthz`, `/readyz` and `/metrics`.
//!
//! `/healthz` fails when a loop hangs: a new process may help. `/readyz` fails while a kind was never listed, or
//! nothing was heard on a watch for [`BROKEN_AFTER`]: what we know of the cluster is old, and a new process would know
//! no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::runtime::beats::Beats;
use crate::runtime::http_server::{Tls, listen};
use crate::runtime::metrics::{Format, Metrics};
use crate::runtime::metrics_access::Reviewer;
use crate::world::store::ClusterStore;

/// A watch is broken on which nothing was heard for so long. The API server says something at least twice as often.
const BROKEN_AFTER: Duration = Duration::from_secs(75);

/// What the endpoints answer from.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Who may see it; `None` for everybody.
    pub reviewer: Option<Arc<Reviewer>>,
    /// Ready once this is synced; that needs NodePools and NodeClaims to be served, since they are watched.
    pub store: Arc<ClusterStore>,
    /// Which loops hang, and which watches are silent.
    pub beats: Arc<Beats>,
}

/// Where to serve.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Of probes.
    pub probes: u16,
    /// Of metrics.
    pub metrics: u16,
    /// The certificate to serve metrics with; `None` for plain text.
    pub metrics_tls: Option<Tls>,
}

/// Serves probes on one port and metrics on the other until `stop` is cancelled. Port 0 takes a free one. Gives back
/// the addresses once both listen.
///
/// # Errors
/// If a port cannot be listened on.
pub(crate) async fn serve(
    endpoints: Endpoints,
    ports: Ports,
    stop: CancellationToken,
) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let probes =
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(endpoints.clone());
    let metrics = Router::new().route("/metrics", get(show_metrics)).with_state(endpoints);
    let probes = listen("health-probe-port", ports.probes, probes, None, stop.clone()).await?;
    let metrics = listen("metrics-port", ports.metrics, metrics, ports.metrics_tls, stop).await?;
    info!(%probes, %metrics, "serving probes and metrics");
    Ok((probes, metrics))
}

async fn healthz(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    let hanging: Vec<String> = endpoints.beats.hanging().iter().map(ToString::to_string).collect();
    if hanging.is_empty() {
        return (StatusCode::OK, "ok".to_owned());
    }
    (StatusCode::INTERNAL_SERVER_ERROR, format!("no sign of life: {}", hanging.join(", ")))
}

async fn readyz(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    if !endpoints.store.is_synced() {
        let missing: Vec<&str> = endpoints.store.read().unsynced().map(|kind| kind.as_str()).collect();
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not listed yet: {}", missing.join(", ")));
    }
    let watches = endpoints.beats.watches();
    let broken: Vec<String> =
        watches.iter().filter(|it| it.silent_for > BROKEN_AFTER).map(ToString::to_string).collect();
    if broken.is_empty() {
        return (StatusCode::OK, "ok".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("nothing heard on a watch: {}", broken.join(", ")))
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
    use crate::world::store::Kind;

    fn endpoints() -> Endpoints {
        Endpoints {
            metrics: Arc::new(Metrics::new()),
            reviewer: None,
            store: Arc::new(ClusterStore::new()),
            beats: Arc::default(),
        }
    }

    async fn ask(endpoints: &Endpoints) -> (StatusCode, String) {
        ask_for("/readyz", endpoints).await
    }

    async fn ask_for(path: &str, endpoints: &Endpoints) -> (StatusCode, String) {
        let router = Router::new().route("/readyz", get(readyz)).route("/healthz", get(healthz));
        let router = router.with_state(endpoints.clone());
        let answer = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn not_ready_while_nothing_is_heard_on_a_watch_and_healthy_all_the_same() {
        let endpoints = endpoints();
        Kind::ALL.into_iter().for_each(|kind| endpoints.store.mark_synced(kind));
        let (pods, nodes) = (endpoints.beats.line("v1/pods"), endpoints.beats.line("v1/nodes"));
        tokio::time::advance(Duration::from_secs(75)).await;
        nodes.heard();
        assert_eq!(ask(&endpoints).await.0, StatusCode::OK);
        tokio::time::advance(Duration::from_secs(1)).await;
        let (status, body) = ask(&endpoints).await;
        assert_eq!((status.as_u16(), body.as_str()), (503, "nothing heard on a watch: v1/pods for 76 s"));
        assert_eq!(ask_for("/healthz", &endpoints).await.0, StatusCode::OK);
        pods.heard();
        assert_eq!(ask(&endpoints).await.0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn unhealthy_while_a_loop_hangs_and_says_which() {
        let endpoints = endpoints();
        let beat = endpoints.beats.beat("provisioner", Duration::from_secs(300));
        beat.busy();
        assert_eq!(ask_for("/healthz", &endpoints).await.0, StatusCode::OK);
        tokio::time::advance(Duration::from_secs(301)).await;
        let (status, body) = ask_for("/healthz", &endpoints).await;
        assert_eq!((status.as_u16(), body.as_str()), (500, "no sign of life: provisioner for 301 s"));
        beat.idle();
        assert_eq!(ask_for("/healthz", &endpoints).await.0, StatusCode::OK);
    }
}
