//! A server that answers as an API server does which has this cluster and nothing else happens in it: lists in pages,
//! watches that stay quiet until they time out, and a place for the Lease.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::objects::{Objects, Size};

/// The resource version of everything: nothing changes.
const VERSION: &str = "2000000";

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// What was sent of pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub pods: usize,
    pub pages: usize,
    pub bytes: u64,
}

/// The running server.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: AbortHandle,
}

struct Shared {
    objects: Objects,
    /// What was written, by its path.
    written: Mutex<BTreeMap<String, Value>>,
    pods: AtomicUsize,
    pages: AtomicUsize,
    bytes: AtomicU64,
}

impl Server {
    /// Starts one that has a cluster of this size.
    pub(crate) async fn start(size: Size) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            objects: Objects::new(size),
            written: Mutex::default(),
            pods: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        });
        let of_task = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            // They end with this task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&of_task);
                let answering = service_fn(move |request| answer(Arc::clone(&shared), request));
                connections.spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answering),
                );
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { shared, address, accepting: accepting.abort_handle() })
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "here", "user": {}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        });
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// How long a pod's JSON is.
    pub(crate) fn pod_bytes(&self) -> usize {
        self.shared.objects.pod(0).len()
    }

    /// What was sent of pods so far.
    pub(crate) fn sent(&self) -> Sent {
        Sent {
            pods: self.shared.pods.load(Ordering::Relaxed),
            pages: self.shared.pages.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    if request.method() != Method::GET {
        let body = request.into_body().collect().await?.to_bytes();
        return Ok(shared.write(path, serde_json::from_slice(&body).unwrap_or_default()));
    }
    let query = request.uri().query().unwrap_or_default();
    let parameter = |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| parameter(name).and_then(|text| text.parse::<usize>().ok());
    if parameter("watch").is_some() {
        return Ok(quiet(number("timeoutSeconds").unwrap_or(300)));
    }
    Ok(match path.as_str() {
        "/version" => {
            let version = json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc", "platform": "linux/amd64",
            });
            whole(StatusCode::OK, version.to_string())
        }
        // Whoever greets an API server wants to know whether Karpenter's CRDs are there.
        "/apis" => whole(StatusCode::OK, groups().to_string()),
        "/metrics" => whole(StatusCode::OK, String::new()),
        _ => match shared.list_of(&path) {
            // Whoever selects by labels looks for what he has made, and nobody has made anything.
            Some((kind, _)) if parameter("labelSelector").is_some() => page(shared, kind, 0..0, 0),
            Some((kind, all)) => {
                let from = number("continue").unwrap_or(0).min(all);
                let to = number("limit").map_or(all, |limit| from + limit.max(1)).min(all);
                page(shared, kind, from..to, all)
            }
            None => shared.written(&path),
        },
    })
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pod,
    Node,
    Namespace,
    /// Of which there are none.
    Other,
}

impl Shared {
    /// Which list a path names, and how many objects are in it.
    fn list_of(&self, path: &str) -> Option<(Kind, usize)> {
        let is_object = |segments: &[&str]| match segments {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => !matches!(rest, ["namespaces", _, _] | [_]),
            _ => true,
        };
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        if is_object(&segments) {
            return None;
        }
        Some(match path {
            "/api/v1/pods" => (Kind::Pod, self.objects.size.pods),
            "/api/v1/nodes" => (Kind::Node, self.objects.size.nodes),
            "/api/v1/namespaces" => (Kind::Namespace, self.objects.namespaces()),
            _ => (Kind::Other, 0),
        })
    }

    fn object(&self, kind: Kind, index: usize) -> String {
        match kind {
            Kind::Pod => {
                let pod = self.objects.pod(index);
                self.pods.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(pod.len() as u64, Ordering::Relaxed);
                pod
            }
            Kind::Node => self.objects.node(index),
            Kind::Namespace => self.objects.namespace(index),
            Kind::Other => String::new(),
        }
    }

    /// Keeps an object, by its own path.
    fn write(&self, path: String, mut object: Value) -> Response<Body> {
        if let Value::Object(metadata) = &mut object["metadata"] {
            metadata.insert("resourceVersion".to_owned(), VERSION.into());
            metadata.entry("uid").or_insert_with(|| "00000009-5d3c-4f0e-9a41-000000000000".into());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = if path.ends_with(&format!("/{name}")) { path } else { format!("{path}/{name}") };
        let text = object.to_string();
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(path, object);
        whole(StatusCode::OK, text)
    }

    fn written(&self, path: &str) -> Response<Body> {
        match self.written.lock().unwrap_or_else(PoisonError::into_inner).get(path) {
            Some(object) => whole(StatusCode::OK, object.to_string()),
            None => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
                    "message": format!("{path} is not there"),
                });
                whole(StatusCode::NOT_FOUND, status.to_string())
            }
        }
    }
}

fn groups() -> Value {
    let group = |name: &str, versions: &[&str]| {
        let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
    };
    let groups = [
        group("karpenter.sh", &["v1", "v1alpha1"]),
        group("karpenter.kwok.sh", &["v1alpha1"]),
        group("resource.k8s.io", &["v1"]),
        group("apps", &["v1"]),
    ];
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn whole(status: StatusCode, text: String) -> Response<Body> {
    let mut response = streamed(stream::iter([text]).boxed());
    *response.status_mut() = status;
    response
}

fn streamed(texts: BoxStream<'static, String>) -> Response<Body> {
    Response::new(StreamBody::new(texts.map(|text| Ok(Frame::data(Bytes::from(text)))).boxed()))
}

/// A watch on which nothing happens.
fn quiet(seconds: usize) -> Response<Body> {
    streamed(stream::once(tokio::time::sleep(Duration::from_secs(seconds as u64))).map(|()| String::new()).boxed())
}

/// A part of a list, made as it is sent.
fn page(shared: Arc<Shared>, kind: Kind, part: Range<usize>, all: usize) -> Response<Body> {
    if matches!(kind, Kind::Pod) {
        shared.pages.fetch_add(1, Ordering::Relaxed);
    }
    let mut metadata = json!({ "resourceVersion": VERSION });
    if part.end < all {
        metadata["continue"] = part.end.to_string().into();
        metadata["remainingItemCount"] = (all - part.end).into();
    }
    let first = part.start;
    let head = format!(r#"{{"kind":"{kind:?}List","apiVersion":"v1","metadata":{metadata},"items":["#);
    let items = stream::iter(part).map(move |index| {
        let separator = if index == first { "" } else { "," };
        format!("{separator}{}", shared.object(kind, index))
    });
    streamed(stream::iter([head]).chain(items).chain(stream::iter(["]}\n".to_owned()])).boxed())
}
