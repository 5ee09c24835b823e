//! Counts requests to the API server, by verb and resource in the words of RBAC.
//!
//! The paths are our own, so there are few of them, and none is made of what users write.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::{Layer, Service};

use crate::runtime::metrics::{Metrics, RequestLabels};

/// Counts what passes it.
#[derive(Debug, Clone)]
pub(super) struct CountRequests {
    counters: Family<RequestLabels, Counter>,
}

impl CountRequests {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self { counters: metrics.api_requests.clone() }
    }
}

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counters: self.counters.clone() }
    }
}

/// A service whose requests are counted when they are answered.
#[derive(Debug, Clone)]
pub(super) struct Counted<S> {
    inner: S,
    counters: Family<RequestLabels, Counter>,
}

impl<S, B, A> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (verb, resource) = verb_and_resource(request.method(), request.uri());
        let counters = self.counters.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or(0, |response| response.status().as_u16()).to_string();
            counters.get_or_create(&RequestLabels { verb: verb.to_owned(), resource, code }).inc();
            answer
        })
    }
}

/// `patch`, `nodes/status`. A path that is no resource's stands for itself.
pub(super) fn verb_and_resource(method: &Method, uri: &Uri) -> (&'static str, String) {
    let path = uri.path().trim_matches('/');
    let segments: Vec<&str> = path.split('/').collect();
    let within_version = match segments.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let (resource, name, subresource) = match within_version {
        // A namespace's own subresources are `status` and `finalize`, and no resources of these names are in
        // namespaces.
        ["namespaces", _, resource, rest @ ..] if !matches!(*resource, "status" | "finalize") => {
            (*resource, rest.first(), rest.get(1))
        }
        [resource, rest @ ..] => (*resource, rest.first(), rest.get(1)),
        [] => (path, None, None),
    };
    let is_watch = || uri.query().is_some_and(|query| query.split('&').any(|it| it == "watch=true" || it == "watch=1"));
    let verb = match (method, name) {
        (&Method::GET, _) if is_watch() => "watch",
        (&Method::GET, None) if !within_version.is_empty() => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => "other",
    };
    let resource = match subresource {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceExt, service_fn};

    use super::*;

    #[test]
    fn requests_are_named_as_rbac_names_them() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/nodes", "list", "nodes"),
            ("GET", "/api/v1/nodes?watch=true&resourceVersion=7", "watch", "nodes"),
            ("GET", "/api/v1/nodes/a?", "get", "nodes"),
            ("PATCH", "/api/v1/nodes/a/status?fieldManager=x", "patch", "nodes/status"),
            ("POST", "/api/v1/namespaces/a/pods/b/eviction", "create", "pods/eviction"),
            ("GET", "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims", "list", "resourceclaims"),
            ("DELETE", "/apis/karpenter.sh/v1/nodeclaims/a", "delete", "nodeclaims"),
            ("DELETE", "/apis/resource.k8s.io/v1/resourceslices?labelSelector=x", "deletecollection", "resourceslices"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter", "update", "leases"),
            ("GET", "/api/v1/namespaces", "list", "namespaces"),
            ("GET", "/api/v1/namespaces/a", "get", "namespaces"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update", "namespaces/finalize"),
            ("GET", "/version", "get", "version"),
            ("GET", "/apis/karpenter.sh/v1", "get", "apis/karpenter.sh/v1"),
        ] {
            let named = verb_and_resource(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(named, (verb, resource.to_owned()), "{method} {uri}");
        }
    }

    #[tokio::test]
    async fn answers_and_their_absence_are_counted() {
        let metrics = Metrics::new();
        let answer = |request: Request<()>| async move {
            match request.uri().path() {
                "/api/v1/pods/gone" => Response::builder().status(404).body(()),
                "/api/v1/pods/lost" => Err(http::Error::from(http::StatusCode::from_u16(0).unwrap_err())),
                _ => Response::builder().body(()),
            }
        };
        let service = CountRequests::new(&metrics).layer(service_fn(answer));
        for (name, is_answered) in [("here", true), ("here", true), ("gone", true), ("lost", false)] {
            let request = Request::get(format!("/api/v1/pods/{name}")).body(()).unwrap();
            assert_eq!(service.clone().oneshot(request).await.is_ok(), is_answered, "{name}");
        }
        let count = |code: &str| {
            let labels = RequestLabels { verb: "get".into(), resource: "pods".into(), code: code.into() };
            metrics.api_requests.get_or_create(&labels).get()
        };
        assert_eq!([count("200"), count("404"), count("0")], [2, 1, 1]);
    }

    #[tokio::test]
    async fn a_counted_service_passes_answers_on() {
        let echo =
            service_fn(|request: Request<u8>| async move { Ok::<_, Infallible>(Response::new(request.into_body())) });
        let service = CountRequests::new(&Metrics::new()).layer(echo);
        let request = Request::get("/version").body(7).unwrap();
        assert_eq!(service.oneshot(request).await.map(Response::into_body), Ok(7));
    }
}
