use std::sync::atomic::{AtomicUsize, Ordering};

use model::Uid;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::test_objects::{controlled_by, read_node};
use super::*;

/// Applies an object as a watch would.
fn apply(store: &ClusterStore, object: Value) -> bool {
    match object["kind"].as_str().unwrap() {
        "Pod" => store.apply_json(object, decode::pod),
        "Node" => store.apply_json(object, read_node),
        "NodeClaim" => store.apply_json(object, |claim, _| decode::node_claim_object(claim)),
        other => unreachable!("no test applies a {other}"),
    }
}

fn pod(name: &str, revision: u64, node: Option<&str>, owner: Option<&str>) -> Value {
    let owners = owner.map(|name| controlled_by("DaemonSet", name));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": revision.to_string(),
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", revision % 60), "ownerReferences": owners},
        "spec": {"containers": [{"name": "a", "image": "a"}], "nodeName": node},
        "status": {"phase": "Pending"},
    })
}

fn node(name: &str, revision: u64, provider_id: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": revision.to_string()},
        "spec": {"providerID": provider_id},
        "status": {"capacity": {"cpu": "4"}},
    })
}

fn claim(name: &str, revision: u64, provider_id: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": revision.to_string(),
            "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
        "status": {"providerID": provider_id},
    })
}

fn name(name: &str) -> model::NamespacedName {
    model::NamespacedName::new("default", name)
}

fn pods_on(state: &State, node: &str) -> Vec<String> {
    state.pods_on_node(node).map(|pod| pod.name.name.to_string()).collect()
}

#[test]
fn what_is_stored_is_known_until_something_newer_comes() {
    let store = ClusterStore::new();
    let has = |uid: &str, resource_version| {
        store.has::<model::Pod>(&name("a"), &Revision { uid: uid.into(), resource_version })
    };
    assert!(!has("uid-a", 1));
    apply(&store, pod("a", 5, None, None));
    let known = [("uid-a", 4), ("uid-a", 5), ("uid-a", 6), ("uid-a", 0), ("uid-b", 4)].map(|(uid, it)| has(uid, it));
    assert_eq!(known, [true, true, false, false, false]);
}

#[test]
fn pods_are_found_by_their_node_from_binding_to_deletion() {
    let store = ClusterStore::new();
    apply(&store, pod("b", 1, None, None));
    assert_eq!(store.read().unbound_pods().count(), 1);
    apply(&store, pod("b", 2, Some("n1"), None));
    apply(&store, pod("a", 3, Some("n1"), None));
    apply(&store, pod("c", 4, Some("n2"), None));
    {
        let state = store.read();
        assert_eq!(pods_on(&state, "n1"), ["a", "b"]);
        assert_eq!(pods_on(&state, "n2"), ["c"]);
        assert_eq!(state.unbound_pods().count(), 0);
        assert_eq!(state.pod_by_uid(&"uid-c".into()).unwrap().name, name("c"));
    }
    store.delete::<model::Pod>(&name("a"), &"uid-a".into());
    assert_eq!(pods_on(&store.read(), "n1"), ["b"]);
    assert!(store.read().pod_by_uid(&"uid-a".into()).is_none());
}

#[test]
fn a_pod_is_found_as_it_is_now_by_its_uid_and_among_those_that_wait() {
    let store = ClusterStore::new();
    apply(&store, pod("b", 1, None, None));
    apply(&store, pod("a", 2, None, None));
    let earlier = store.snapshot();
    let mut nominated = pod("b", 3, None, None);
    nominated["status"]["nominatedNodeName"] = json!("n1");
    apply(&store, nominated);
    let waiting = |state: &State| -> Vec<(String, bool)> {
        state.unbound_pods().map(|pod| (pod.name.name.to_string(), pod.nominated_node_name.is_some())).collect()
    };
    let expected = |b_is_nominated| [("a".to_owned(), false), ("b".to_owned(), b_is_nominated)];
    assert_eq!(waiting(&store.read()), expected(true));
    assert_eq!(waiting(&earlier), expected(false), "a snapshot stays as it was");
    assert!(store.read().pod_by_uid(&"uid-b".into()).unwrap().nominated_node_name.is_some());
    let mut successor = pod("b", 4, Some("n1"), None);
    successor["metadata"]["uid"] = json!("another");
    apply(&store, successor);
    assert_eq!(waiting(&store.read()), expected(false)[..1]);
    assert_eq!(store.read().unbound_pods_count(), 1);
    assert!(store.read().pod_by_uid(&"uid-b".into()).is_none());
    assert_eq!(store.read().pod_by_uid(&"another".into()).unwrap().name, name("b"));
    store.delete::<model::Pod>(&name("a"), &"uid-a".into());
    assert_eq!(store.read().unbound_pods_count(), 0);
}

#[test]
fn nodes_and_claims_are_found_by_the_machine_they_are() {
    let store = ClusterStore::new();
    apply(&store, node("n1", 1, None));
    apply(&store, claim("default-1", 2, ""));
    assert_eq!(store.read().nodes_of_machine("kwok://m").count(), 0);
    apply(&store, claim("default-1", 3, "kwok://m"));
    apply(&store, node("n1", 4, Some("kwok://m")));
    apply(&store, node("n2", 5, Some("kwok://m")));
    let state = store.read();
    assert_eq!(
        state.nodes_of_machine("kwok://m").map(|node| node.model.name.as_str()).collect::<Vec<_>>(),
        ["n1", "n2"]
    );
    assert_eq!(state.node_claims_of_machine("kwok://m").count(), 1);
    assert_eq!(state.node_claims_of_pool("default").count(), 1);
    assert_eq!(state.node_claims_of_pool("other").count(), 0);
}

#[test]
fn the_newest_pod_of_a_daemon_set_is_the_one_created_last() {
    let store = ClusterStore::new();
    apply(&store, pod("d-1", 5, None, Some("agent")));
    apply(&store, pod("d-2", 9, None, Some("agent")));
    apply(&store, pod("d-3", 7, None, Some("agent")));
    apply(&store, pod("e-1", 10, None, Some("other")));
    let newest =
        |store: &ClusterStore| store.read().newest_pod_of_daemon_set(&name("agent")).map(|pod| pod.name.clone());
    assert_eq!(newest(&store), Some(name("d-2")));
    store.delete::<model::Pod>(&name("d-2"), &"uid-d-2".into());
    assert_eq!(newest(&store), Some(name("d-3")));
}

#[test]
fn an_older_revision_never_replaces_a_newer_one() {
    let store = ClusterStore::new();
    assert!(apply(&store, pod("a", 10, Some("n1"), None)));
    assert!(!apply(&store, pod("a", 9, None, None)));
    assert!(!apply(&store, pod("a", 10, None, None)));
    assert_eq!(pods_on(&store.read(), "n1"), ["a"]);
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let store = ClusterStore::new();
    apply(&store, claim("default-1", 5, "kwok://m"));
    store.delete::<api::NodeClaim>(&"default-1".into(), &"uid-default-1".into());
    assert!(!apply(&store, claim("default-1", 6, "kwok://m")));
    assert!(store.read().node_claims.is_empty());
}

#[test]
fn the_deletion_of_an_earlier_object_of_that_name_leaves_its_successor() {
    let store = ClusterStore::new();
    apply(&store, pod("a", 5, None, None));
    store.delete::<model::Pod>(&name("a"), &Uid::from("an earlier uid"));
    assert!(store.read().pods.contains(&name("a")));
}

#[test]
fn an_object_that_cannot_be_read_hides_a_pod_but_not_a_machine() {
    let store = ClusterStore::new();
    apply(&store, pod("a", 1, None, None));
    apply(&store, claim("default-1", 2, "kwok://m"));
    store.reject::<model::Pod>(&name("a"), "bad".into());
    store.reject::<api::NodeClaim>(&"default-1".into(), "bad".into());
    assert!(store.read().pods.is_empty());
    assert!(store.read().node_claims.contains("default-1"));
    assert_eq!(store.read().undecodable.len(), 2);
    apply(&store, pod("a", 3, None, None));
    apply(&store, claim("default-1", 4, "kwok://m"));
    assert!(store.read().undecodable.is_empty());
}

#[test]
fn a_snapshot_stays_as_it_was_taken() {
    let store = ClusterStore::new();
    apply(&store, pod("a", 1, None, None));
    let before = store.snapshot();
    apply(&store, pod("a", 2, Some("n1"), None));
    apply(&store, pod("b", 3, None, None));
    assert_eq!(before.pods.len(), 1);
    assert_eq!(pods_on(&before, "n1"), Vec::<String>::new());
    assert_eq!(store.snapshot().pods.len(), 2);
}

#[test]
fn a_change_is_told_with_what_was_before_and_what_is_after() {
    let store = ClusterStore::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::new(AtomicUsize::new(0));
    {
        let (told, calls) = (Arc::clone(&told), Arc::clone(&calls));
        store.on::<model::Pod>(move |delta, state| {
            let node = |pod: Option<&Arc<model::Pod>>| pod.map(|pod| pod.node_name.as_ref().map(ToString::to_string));
            told.lock().push((node(delta.before), node(delta.after), state.pods.len()));
        });
        store.on_any_of(&Kind::ALL, move |_, _| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
    }
    apply(&store, pod("a", 1, None, None));
    apply(&store, pod("a", 2, Some("n1"), None));
    apply(&store, pod("a", 1, None, None));
    apply(&store, node("n1", 3, None));
    store.forget::<model::Pod>(&name("a"));
    store.forget::<model::Pod>(&name("a"));
    let n1 = Some(Some("n1".to_owned()));
    assert_eq!(*told.lock(), [(None, Some(None), 1), (Some(None), n1.clone(), 1), (n1, None, 0)]);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn the_store_is_synced_once_every_kind_was_listed_launching_machines_or_not() {
    let store = Arc::new(ClusterStore::new());
    apply(&store, claim("default-1", 1, ""));
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.wait_until_synced().await }
    });
    for kind in Kind::ALL {
        assert!(!store.is_synced(), "synced before {kind} was listed");
        store.mark_synced(kind);
    }
    waiting.await.unwrap();
    assert!(store.is_synced());
}

#[test]
fn a_store_built_anew_forgets_unused_names_and_tells_only_what_differs() {
    let store = ClusterStore::new();
    for index in 0..1000 {
        let mut pod = pod("a", index + 1, None, None);
        pod["metadata"]["labels"] = json!({"job": format!("job-{index}")});
        apply(&store, pod);
    }
    apply(&store, pod("gone", 1001, None, None));
    apply(&store, node("n1", 1002, None));
    // Created by ourselves a moment ago; the new lists do not have it yet.
    apply(&store, claim("default-1", 1003, ""));
    let told = Arc::new(Mutex::new(Vec::new()));
    {
        let told = Arc::clone(&told);
        let pods = Arc::clone(&told);
        store.on::<model::Pod>(move |delta, state| {
            pods.lock().push(((delta.key.to_string(), delta.after.is_some()), state.epoch));
        });
        let others: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pod).collect();
        store.on_any_of(&others, move |kind, state| told.lock().push(((kind.to_string(), true), state.epoch)));
    }
    let beside = ClusterStore::new();
    apply(&beside, pod("a", 1000, None, None));
    apply(&beside, node("n1", 1002, None));
    apply(&beside, pod("new", 1004, Some("n1"), None));
    let names_before = store.read().interner.value_count();
    store.replace(beside.snapshot());
    assert!(names_before > 1000 && store.read().interner.value_count() < 100);
    assert_eq!(*told.lock(), [(("default/new".to_owned(), true), 1), (("default/gone".to_owned(), false), 1)]);
    assert!(store.read().node_claims.contains("default-1"), "what we wrote ourselves is carried over");
    assert_eq!(store.read().node_claims_of_pool("default").count(), 1);
    assert_eq!(pods_on(&store.read(), "n1"), ["new"]);
}

#[test]
fn a_deletion_seen_by_either_store_holds_after_the_change() {
    let store = ClusterStore::new();
    apply(&store, claim("default-1", 5, ""));
    store.delete::<api::NodeClaim>(&"default-1".into(), &"uid-default-1".into());
    let beside = ClusterStore::new();
    store.replace(beside.snapshot());
    assert!(!apply(&store, claim("default-1", 6, "")));
}

#[test]
fn what_devices_read_of_a_pod_is_forgotten_with_the_pod() {
    let store = ClusterStore::new();
    let mut object = pod("a", 1, None, None);
    object["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
    let devices = |object: &Value| decode::devices::pod_devices(object).unwrap();
    store.note_devices(&"uid-a".into(), devices(&object));
    apply(&store, object);
    apply(&store, pod("b", 2, None, None));
    assert_eq!(store.read().device_pods.keys().map(Uid::as_str).collect::<Vec<_>>(), ["uid-a"]);
    store.delete::<model::Pod>(&name("b"), &"uid-b".into());
    assert_eq!(store.read().device_pods.len(), 1);
    store.delete::<model::Pod>(&name("a"), &"uid-a".into());
    assert!(store.read().device_pods.is_empty());
}

#[test]
fn what_devices_read_of_a_daemon_set_is_forgotten_with_it() {
    let store = ClusterStore::new();
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "default", "name": "monitor", "uid": "d"},
        "spec": {"template": {"spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]}}},
    });
    let devices = decode::devices::daemon_set_devices(&object).unwrap();
    assert_eq!(devices.as_ref().map(|pod| pod.claims.len()), Some(1));
    store.note_devices(&"d".into(), devices);
    store.apply_json(object, decode::daemon_set);
    assert_eq!(store.read().device_pods.len(), 1);
    store.delete::<model::workload::DaemonSet>(&name("monitor"), &"d".into());
    assert!(store.read().device_pods.is_empty());
}

#[test]
fn a_panic_in_the_middle_of_a_change_is_told_whoever_made_it() {
    use futures::FutureExt;

    let supervision = Supervision::default();
    let store = ClusterStore::supervised(supervision.clone());
    apply(&store, pod("a", 1, None, None));
    store.on::<model::Pod>(|delta, _| assert!(delta.after.is_some(), "a defect"));
    apply(&store, pod("b", 2, None, None));
    assert!(supervision.failed().now_or_never().is_none());
    let gone = || store.delete::<model::Pod>(&name("a"), &Uid::from("uid-a"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(gone)).is_err());
    let failure = supervision.failed().now_or_never();
    assert_eq!(failure.as_deref(), Some("a change of the store panicked and is half done"));
}
