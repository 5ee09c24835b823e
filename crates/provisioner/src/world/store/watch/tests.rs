use std::collections::BTreeSet;

use decode::api_resources::Resource;
use kube::client::Body;
use parking_lot::Mutex;
use tower::service_fn;

use super::*;
use crate::runtime::clock::{Clock, WallClock};

/// As API servers answer `/version`.
const VERSION: &str = r#"{"major":"1","minor":"37","gitVersion":"v1.37.0","gitCommit":"","gitTreeState":"","buildDate":"",
    "goVersion":"","compiler":"","platform":""}"#;

/// Where the API server is asked for a resource, in each of its versions.
fn paths(resource: &Resource) -> Vec<String> {
    let path = |version: &&str| match resource.group {
        "" => format!("/api/{version}/{}", resource.plural),
        group => format!("/apis/{group}/{version}/{}", resource.plural),
    };
    resource.versions.iter().map(path).collect()
}

/// An API server that tells its version and serves nothing else, and what of its API it was asked for.
fn server() -> (Client, Arc<Mutex<BTreeSet<String>>>) {
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let noting = Arc::clone(&asked);
    let service = service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let (code, body) = match path.as_str() {
            "/version" => (200, VERSION),
            _ => (404, r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#),
        };
        if path.starts_with("/api") {
            noting.lock().insert(path);
        }
        let answer = http::Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()));
        std::future::ready(answer)
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_is_the_table_of_resources_with_all_their_versions() {
    let (client, asked) = server();
    let metrics = Arc::new(Metrics::new());
    let clock: Arc<dyn Clock> = Arc::new(WallClock);
    let watches = Watches {
        client,
        feed: Arc::new(Feed::new(Arc::new(ClusterStore::new()))),
        recorder: Recorder::new(clock, Arc::clone(&metrics)).0,
        metrics,
        buffers: true,
        pod_selectors: true,
        labels: Arc::default(),
        beats: Arc::default(),
        supervision: Supervision::default(),
        stop: CancellationToken::new(),
    };
    let _watching = watches.start(&[]);
    // By then each has asked, and most have asked again.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let of_table: BTreeSet<String> = api_resources::ALL.iter().flat_map(|resource| paths(resource)).collect();
    assert_eq!(*asked.lock(), of_table);
}

/// `kinds!` takes the names from the table, so that a kind which is not in it does not compile.
#[test]
fn every_resource_of_the_table_fills_a_kind_of_the_store() {
    let further = TemplateKind::ALL.map(|kind| kind.resource().kind).into_iter();
    let further = further.chain(SelectorKind::OF_SCHEDULER.map(|kind| kind.resource().kind));
    let filled: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).chain(further).collect();
    let of_table: BTreeSet<&str> = api_resources::ALL.iter().map(|resource| resource.kind).collect();
    let of_provider = BTreeSet::from([Kind::NodeClass.as_str()]);
    assert_eq!(filled, of_table.union(&of_provider).copied().collect());
}
