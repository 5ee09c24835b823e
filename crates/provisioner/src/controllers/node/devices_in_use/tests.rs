use dra_types::ResourceSlice;
use model::volume::CsiNodeDriver;
use serde_json::{Value, json};

use super::super::drain::{self, Claims};
use super::*;
use crate::world::store::test_objects::{controlled_by, merge};
use crate::world::store::{ClusterStore, CsiNode, Revision};

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Node `n` with a slice of each of the drivers.
fn store(drivers: &[&str]) -> ClusterStore {
    let store = ClusterStore::new();
    for driver in drivers {
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("n-{driver}"), "uid": *driver},
            "spec": {"driver": driver, "nodeName": "n", "devices": [],
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
        });
        store.apply(ResourceSlice::from_json(&slice).unwrap(), revision(driver));
    }
    store
}

fn revision(uid: &str) -> Revision {
    Revision { uid: uid.into(), resource_version: 1 }
}

/// A running pod of node `n` with these fields of its spec, and its name for its uid.
fn add_pod(store: &ClusterStore, name: &str, spec: Value) {
    add(store, json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec}));
}

/// A running pod of node `n` that is so.
fn add(store: &ClusterStore, change: Value) {
    let mut pod =
        json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
    merge(&mut pod, change);
    store.show_pod(pod);
}

/// A DaemonSet's pod that mounts these directories of the kubelet.
fn add_daemon(store: &ClusterStore, name: &str, directories: &[&str]) {
    let volume = |directory: &&str| json!({"name": "v", "hostPath": {"path": format!("/var/lib/kubelet/{directory}")}});
    let owner = controlled_by("DaemonSet", name);
    let metadata = json!({"namespace": "drivers", "name": name, "ownerReferences": owner});
    let volumes: Vec<Value> = directories.iter().map(volume).collect();
    add(store, json!({"metadata": metadata, "spec": {"volumes": volumes}}));
}

fn a_pod(name: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": name})
}

/// A claim with a device of the driver from node `n`'s pool, and these consumers.
fn add_claim(store: &ClusterStore, name: &str, driver: &str, consumers: &[Value]) {
    add_claim_of(store, name, &json!({"driver": driver, "pool": "n"}), consumers);
}

fn add_claim_of(store: &ClusterStore, name: &str, result: &Value, consumers: &[Value]) {
    let mut result = result.clone();
    result["request"] = json!("r");
    result["device"] = json!("d0");
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": name, "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers},
    });
    store.apply(ResourceClaim::from_json(&claim).unwrap(), revision(name));
}

/// Whom a drain of node `n` waits for before each driver's pod leaves: `pod: claim, consumer`.
fn waits(store: &ClusterStore) -> Vec<String> {
    let state = store.snapshot();
    let in_use = DevicesInUse::on(&state, &"n".into(), NOW);
    let pods = state.pods_on_node("n");
    pods.filter_map(|pod| {
        let first = in_use.needing(pod).next()?;
        Some(format!("{}: {}, {}", pod.name.name, first.claim.name, first.consumer_name))
    })
    .collect()
}

/// Who is asked to leave first.
fn first(store: &ClusterStore) -> Vec<String> {
    let state = store.snapshot();
    let in_use = DevicesInUse::on(&state, &"n".into(), NOW);
    let pods = state.pods_on_node("n").map(AsRef::as_ref);
    let drain = drain::decide(pods, &in_use, None, &state.interner, NOW);
    drain.next.iter().map(|pod| pod.name.name.to_string()).collect()
}

#[test]
fn a_driver_is_known_by_its_plugin_directory_else_it_may_be_every_driver_of_the_node() {
    let cases: [(&str, &[&str], bool); 8] = [
        ("named after the driver", &["plugins_registry", "plugins/gpu.example.com"], true),
        ("named after another driver of the node", &["plugins_registry", "plugins/nic.example.com"], false),
        ("named after a CSI driver of the node", &["plugins_registry", "plugins/csi.example.com"], false),
        ("named in its own way", &["plugins_registry", "plugins/gpu-plugin"], true),
        ("all plugins", &["plugins_registry", "plugins"], true),
        ("no name", &["plugins_registry"], true),
        ("nothing to register", &["plugins/gpu.example.com", "pods"], false),
        ("no volume", &[], false),
    ];
    for (what, directories, expected) in cases {
        let store = store(&["gpu.example.com", "nic.example.com"]);
        let csi = CsiNodeDriver { name: "csi.example.com".into(), attachable_volumes: None };
        store.apply(CsiNode { name: "n".into(), drivers: vec![csi] }, revision("csi"));
        add_pod(&store, "train", json!({}));
        add_daemon(&store, "daemon", directories);
        add_claim(&store, "gpu", "gpu.example.com", &[a_pod("train")]);
        let expected: &[&str] = if expected { &["daemon: gpu, pod ns/train"] } else { &[] };
        assert_eq!(waits(&store), expected, "{what}");
    }
}

#[test]
fn only_consumers_that_the_drain_waits_for_count() {
    let tolerates = json!({"tolerations": [{"operator": "Exists"}]});
    let elsewhere = json!({"nodeName": "other"});
    let gpu = |pool: &str| json!({"driver": "gpu.example.com", "pool": pool});
    let skips = |operation: &str| json!({"driver": "gpu.example.com", "pool": "n", "skipNodeOperations": ["NodePrepareResources", operation]});
    let group = json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"});
    let member = json!({"schedulingGroup": {"podGroupName": "gang"}});
    let stranger = json!({"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"});
    let (nothing, here) = (json!({}), Some("pod ns/p"));
    let cases = [
        ("a pod of the node", nothing.clone(), gpu("n"), a_pod("p"), here),
        ("a device that is not the node's alone", nothing.clone(), gpu("net"), a_pod("p"), here),
        ("a pod that stays", tolerates, gpu("n"), a_pod("p"), None),
        ("a pod of another node", elsewhere, gpu("net"), a_pod("p"), None),
        ("a pod that is not bound", json!({"nodeName": null}), gpu("n"), a_pod("p"), None),
        ("a pod that is gone", nothing.clone(), gpu("n"), a_pod("gone"), Some("pod ns/gone")),
        ("a pod that is gone from somewhere", nothing.clone(), gpu("net"), a_pod("gone"), None),
        ("a member of a group", member, gpu("n"), group.clone(), here),
        ("a group without members here", nothing.clone(), gpu("n"), group, None),
        ("somebody unknown", nothing.clone(), gpu("n"), stranger, Some("jobs.example.com ns/j")),
        ("nothing to give back", nothing.clone(), skips("NodeUnprepareResources"), a_pod("p"), None),
        ("nothing to do at all", nothing.clone(), skips("*"), a_pod("p"), None),
        ("another operation to skip", nothing, skips("NodeWatchResources"), a_pod("p"), here),
    ];
    for (what, pod, result, consumer, expected) in cases {
        let store = store(&["gpu.example.com"]);
        add_pod(&store, "p", pod);
        add_daemon(&store, "driver", &["plugins_registry"]);
        add_claim_of(&store, "gpu", &result, &[consumer]);
        let expected: Vec<String> = expected.map(|consumer| format!("driver: gpu, {consumer}")).into_iter().collect();
        assert_eq!(waits(&store), expected, "{what}");
    }
}

#[test]
fn a_claim_that_nobody_uses_or_that_has_no_device_keeps_nobody() {
    let store = store(&["gpu.example.com"]);
    add_pod(&store, "p", json!({}));
    add_daemon(&store, "driver", &["plugins_registry"]);
    add_claim(&store, "unused", "gpu.example.com", &[]);
    let unallocated = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": "unallocated", "uid": "unallocated"}, "spec": {"devices": {}},
    });
    store.apply(ResourceClaim::from_json(&unallocated).unwrap(), revision("unallocated"));
    assert_eq!(waits(&store), Vec::<String>::new());
    assert_eq!(first(&store), ["p"]);
}

#[test]
fn a_drivers_pod_is_needed_while_others_use_its_devices_and_not_for_its_own() {
    let store = store(&["gpu.example.com", "nic.example.com"]);
    add_daemon(&store, "gpu", &["plugins_registry", "plugins/gpu.example.com"]);
    add_daemon(&store, "nic", &["plugins_registry", "plugins/nic.example.com"]);
    add_claim(&store, "own", "gpu.example.com", &[a_pod("gpu")]);
    assert_eq!(first(&store), ["gpu", "nic"]);
    add_claim(&store, "of-gpu", "nic.example.com", &[a_pod("gpu")]);
    assert_eq!(first(&store), ["gpu"], "the other driver's pod uses a device of it");
    add_pod(&store, "train", json!({"priority": 2_000_001_000}));
    add_claim(&store, "training", "gpu.example.com", &[a_pod("train")]);
    assert_eq!(first(&store), ["train"], "it keeps a pod that keeps a pod");
}

#[test]
fn drivers_that_use_each_others_devices_do_not_wait_for_each_other() {
    let store = store(&["gpu.example.com", "nic.example.com"]);
    for (driver, other) in [("gpu", "nic"), ("nic", "gpu")] {
        add_daemon(&store, driver, &["plugins_registry", &format!("plugins/{driver}.example.com")]);
        add_claim(&store, &format!("of-{driver}"), &format!("{other}.example.com"), &[a_pod(driver)]);
    }
    assert_eq!(first(&store), ["gpu", "nic"]);
    add_pod(&store, "train", json!({}));
    add_claim(&store, "training", "gpu.example.com", &[a_pod("train")]);
    assert_eq!(first(&store), ["train"]);
}

#[test]
fn a_kept_pod_keeps_no_tier_busy_and_takes_its_own_turn_later() {
    let store = store(&["gpu.example.com"]);
    add_daemon(&store, "driver", &["plugins_registry"]);
    add_daemon(&store, "logs", &["pods"]);
    add_pod(&store, "critical", json!({"priority": 2_000_000_000}));
    add_claim(&store, "gpu", "gpu.example.com", &[a_pod("critical")]);
    assert_eq!(first(&store), ["logs"], "its own tier goes on without it");
    store.delete::<Pod>(&NamespacedName::new("drivers", "logs"), &"logs".into());
    assert_eq!(first(&store), ["critical"], "and so do those after it");
    store.delete::<Pod>(&NamespacedName::new("ns", "critical"), &"critical".into());
    assert_eq!(first(&store), Vec::<String>::new(), "the claim is still reserved");
    store.delete::<ResourceClaim>(&NamespacedName::new("ns", "gpu"), &"gpu".into());
    assert_eq!(first(&store), ["driver"]);
}

#[test]
fn shortly_before_the_deadline_a_drivers_pod_goes_whatever_needs_it() {
    let store = store(&["gpu.example.com"]);
    add_daemon(&store, "driver", &["plugins_registry"]);
    add_pod(&store, "train", json!({}));
    add_claim(&store, "gpu", "gpu.example.com", &[a_pod("train")]);
    let state = store.snapshot();
    let in_use = DevicesInUse::on(&state, &"n".into(), NOW);
    for (left_s, expected, is_awaited) in [
        (600, vec!["train"], true),
        // The consumer is forced by now, and has the driver for as long as there is time.
        (29, vec!["train"], true),
        (5, vec!["train"], true),
        (4, vec!["driver", "train"], false),
        (-1, vec!["driver", "train"], false),
    ] {
        let deadline = NOW.saturating_add(model::DurationMs::from_seconds(left_s));
        let pods = state.pods_on_node("n").map(AsRef::as_ref);
        let drain = drain::decide(pods, &in_use, Some(deadline), &state.interner, NOW);
        let next: Vec<&str> = drain.next.iter().map(|pod| &*pod.name.name).collect();
        assert_eq!((next, drain.remaining), (expected, 2), "{left_s} s before the deadline");
        match drain.claims {
            Claims::Awaited(pod, reason) | Claims::GivenUp(pod, reason) => {
                assert_eq!(pod.name.to_string(), "drivers/driver");
                assert_eq!(reason.to_string(), "ResourceClaim ns/gpu is in use by pod ns/train");
            }
            Claims::Released => panic!("nothing is released {left_s} s before the deadline"),
        }
        assert_eq!(matches!(drain.claims, Claims::Awaited(..)), is_awaited, "{left_s} s before the deadline");
    }
}
