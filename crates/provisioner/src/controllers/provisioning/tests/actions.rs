//! Actions against a cluster that has gone on.

use std::sync::Arc;

use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use scheduling::plan::action::Action;
use scheduling::snapshot::NodeId;

use super::super::commit::{Committed, delete, ready};
use super::*;
use crate::runtime::beats::Beat;
use crate::world::preconditions::Present;
use crate::world::store::NodeRecord;

fn on_node(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    pod(name, |pod| {
        pod["spec"]["nodeName"] = json!("n");
        pod["status"] = json!({"phase": "Running"});
        change(pod);
    })
}

fn show_node(store: &ClusterStore, revision: &str, change: impl FnOnce(&mut Value)) {
    let mut node = json!({
        "metadata": {"name": "n", "resourceVersion": revision,
            "labels": {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
        "spec": {"providerID": "p://n"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    change(&mut node);
    store.show_node(node);
}

fn show_claim(store: &ClusterStore, resource_version: &str) {
    store.show_node_claim(json!({
        "metadata": {"name": "c", "uid": "uid-c", "resourceVersion": resource_version,
            "labels": {"karpenter.sh/nodepool": "general"}},
        "status": {"providerID": "p://n", "nodeName": "n"},
    }));
}

/// A node of ours on which a pod runs, one pod that waits, and a plan that creates a machine and deletes the node.
fn create_and_delete() -> (ClusterStore, Snapshot, Plan, Arc<NodePool>) {
    let store =
        store([on_node("runs", |_| {}), pod("waits", |pod| pod["spec"]["nodeSelector"] = json!({"team": "web"}))]);
    show_node(&store, "5", |_| {});
    show_claim(&store, "7");
    let (snapshot, mut plan, pool) = planned(&store);
    assert_eq!((plan.machines.len(), snapshot.nodes.len()), (1, 1), "{plan:#?}");
    plan.actions.push(Action::delete(vec![the_node(&snapshot)]));
    (store, snapshot, plan, pool)
}

fn the_node(snapshot: &Snapshot) -> NodeId {
    let (id, node) = snapshot.nodes.iter_enumerated().next().unwrap();
    assert_eq!((node.name.as_deref(), node.node_claim.as_deref()), (Some("n"), Some("c")));
    id
}

/// How many NodeClaims are created, the names of those that are deleted, and why actions are dropped.
fn outcome(
    store: &ClusterStore,
    snapshot: &Snapshot,
    plan: &Plan,
    pool: &Arc<NodePool>,
) -> (usize, Vec<Arc<NodeClaim>>, Vec<String>) {
    let state = store.snapshot();
    let pools = snapshot.node_pools.ids().map(|id| (id, Ok(Arc::clone(pool)))).collect();
    let now = Timestamp::parse("2026-01-01T00:02:00Z").unwrap();
    let present = Present { snapshot, plan, state: &state, pools: &pools, now };
    let ready = ready(&present, &BTreeSet::new());
    (ready.creates.len(), ready.deletes, ready.stale.iter().map(|(_, why)| why.to_string()).collect())
}

#[test]
fn a_node_is_deleted_only_while_its_pods_are_those_that_have_a_place_elsewhere() {
    type Change = fn(&ClusterStore);
    let cases: [(Change, Option<&str>); 10] = [
        (|_| {}, None),
        (|store| store.forget::<model::Pod>(&model::NamespacedName::new("default", "runs")), None),
        (|store| store.show_pod(on_node("new", |_| {})), Some("pod default/new has come to n")),
        (|store| store.show_pod(on_node("new", |pod| pod["status"]["phase"] = json!("Succeeded"))), None),
        (|store| store.show_pod(on_node("new", of_daemon_set)), None),
        (
            |store| {
                store.show_pod(on_node("runs", |pod| {
                    pod["metadata"]["resourceVersion"] = json!("2");
                    pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
                }));
            },
            Some("pod default/runs may not leave n"),
        ),
        (
            |store| show_node(store, "6", |node| node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z")),
            Some("n is being deleted"),
        ),
        (|store| store.forget::<NodeRecord>(&"n".into()), Some("n has no nodeclaim of ours any more")),
        (|store| store.forget::<NodeClaim>(&"c".into()), Some("n has no nodeclaim of ours any more")),
        (|store| show_claim(store, "8"), None),
    ];
    for (index, (change, expected)) in cases.into_iter().enumerate() {
        let (store, snapshot, plan, pool) = create_and_delete();
        change(&store);
        let (created, deleted, stale) = outcome(&store, &snapshot, &plan, &pool);
        assert_eq!(created, 1, "case {index}: the other action goes on");
        assert_eq!(stale, expected.into_iter().collect::<Vec<_>>(), "case {index}");
        assert_eq!(deleted.len(), usize::from(expected.is_none()), "case {index}");
    }
}

#[test]
fn a_machine_that_got_its_node_and_a_pod_since_the_snapshot_is_kept() {
    let store = store([pod("waits", |_| {})]);
    show_claim(&store, "7");
    let (snapshot, mut plan, pool) = planned(&store);
    let (id, node) = snapshot.nodes.iter_enumerated().next().unwrap();
    assert_eq!((node.name.as_deref(), node.node_claim.as_deref()), (None, Some("c")));
    plan.actions = vec![Action::delete(vec![id])];
    assert_eq!(outcome(&store, &snapshot, &plan, &pool).1.len(), 1);
    show_node(&store, "5", |_| {});
    assert_eq!(outcome(&store, &snapshot, &plan, &pool).1.len(), 1, "an empty node");
    store.show_pod(on_node("new", |_| {}));
    assert_eq!(outcome(&store, &snapshot, &plan, &pool).2, ["pod default/new has come to c"]);
}

#[test]
fn an_action_that_creates_is_dropped_without_the_one_that_deletes() {
    let (store, snapshot, plan, pool) = create_and_delete();
    store.forget::<model::Pod>(&model::NamespacedName::new("default", "waits"));
    let (created, deleted, stale) = outcome(&store, &snapshot, &plan, &pool);
    assert_eq!((created, deleted.len()), (0, 1));
    assert_eq!(stale, ["none of its pods waits any more"]);
}

#[tokio::test]
async fn a_nodeclaim_is_deleted_as_it_was_looked_at_and_the_store_knows_at_once() {
    for (status, stale, failed) in [(200, 0, 0), (409, 1, 0), (403, 0, 1)] {
        let (store, snapshot, plan, pool) = create_and_delete();
        let (_, deletes, _) = outcome(&store, &snapshot, &plan, &pool);
        let (client, asked) = server(status);
        let mut committed = Committed::default();
        delete::all(&client, &store, &Beat::unobserved(), deletes, &mut committed).await;
        assert_eq!((committed.stale, committed.failed), (stale, failed), "{status}");
        let asked = asked.lock();
        let [(method, path, body)] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!((method.as_str(), path.as_str()), ("DELETE", "/apis/karpenter.sh/v1/nodeclaims/c"));
        assert_eq!(body["preconditions"], json!({"uid": "uid-c", "resourceVersion": "7"}));
        let (_, _, again) = outcome(&store, &snapshot, &plan, &pool);
        assert_eq!(again.contains(&"n is being deleted".to_owned()), status == 200, "{again:?}");
    }
}

type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// An API server that answers so, and what it was asked.
fn server(status: u16) -> (Client, Asked) {
    let asked = Asked::default();
    let server = tower::service_fn({
        let asked = Arc::clone(&asked);
        move |request: http::Request<Body>| {
            let asked = Arc::clone(&asked);
            async move {
                let (parts, body) = request.into_parts();
                let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                asked.lock().push((parts.method.to_string(), parts.uri.path().to_owned(), body));
                let answer = match status {
                    200 => json!({
                        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                        "metadata": {"name": "c", "uid": "uid-c", "resourceVersion": "8",
                            "deletionTimestamp": "2026-01-01T00:02:00Z"},
                        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                        "status": {"providerID": "p://n", "nodeName": "n"},
                    }),
                    code => {
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "", "reason": "",
                        "code": code})
                    }
                };
                http::Response::builder().status(status).body(Body::from(serde_json::to_vec(&answer).unwrap()))
            }
        }
    });
    (Client::new(server, "default"), asked)
}
