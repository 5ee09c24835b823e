use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::world::store::ClusterStore;
use crate::world::store::test_objects::controlled_by;
use crate::world::successors::Successors;

/// A cluster in which nodes in zones drain, and a machine with twenty CPUs stays: `m` in zone a.
struct Cluster(ClusterStore);

impl Cluster {
    fn new() -> Self {
        let cluster = Self(ClusterStore::new());
        cluster.0.show_node_claim(json!({"metadata": {"name": "m"}, "status": {"providerID": "id-m"}}));
        cluster.node("m", "za");
        cluster
    }

    fn node(&self, name: &str, zone: &str) {
        self.0.show_node(json!({
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"providerID": format!("id-{name}")},
            "status": {"allocatable": {"cpu": "20"}},
        }));
    }

    /// A pod of the controller; spread over zones, if its name ends so.
    fn pod(&self, name: &str, owner: &str, cpu: &str, node: Option<&str>) -> Arc<Pod> {
        let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]);
        self.0.show_pod(json!({
            "metadata": {"name": name, "ownerReferences": controlled_by("ReplicaSet", owner)},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                "topologySpreadConstraints": if owner.ends_with("spread") { spread } else { json!([]) }},
        }));
        Arc::clone(self.0.read().pod_by_uid(&name.into()).unwrap())
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(1_000 + seconds)
}

/// The names of the pods that stay for others.
fn staying<'p>(successors: &Successors, cluster: &Cluster, pods: &'p [Arc<Pod>], now: Timestamp) -> Vec<&'p str> {
    let state = cluster.0.snapshot();
    let stays = |pod: &&Arc<Pod>| successors.waits_for_others(pod, &state, now);
    pods.iter().filter(stays).map(|pod| &*pod.name.name).collect()
}

/// Each to the machine `m`.
fn moves(pods: &[Arc<Pod>]) -> Vec<(Arc<Pod>, NodeClaimName)> {
    pods.iter().map(|pod| (Arc::clone(pod), "m".into())).collect()
}

#[test]
fn a_successor_that_is_spread_takes_a_place_where_fewest_are_and_the_others_keep_theirs() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    for (name, zone) in [("full", "za"), ("sparse", "zb"), ("spare", "zc")] {
        cluster.0.show_node_claim(json!({"metadata": {"name": name}, "status": {"providerID": format!("id-{name}")}}));
        cluster.node(name, zone);
    }
    let pod = |name: &str, node: Option<&str>| cluster.pod(name, "spread", "1", node);
    let there = [("a", "full"), ("b", "full"), ("c", "full"), ("d", "sparse"), ("e", "spare"), ("f", "spare")];
    let there = there.map(|(name, node)| pod(name, Some(node)));
    let places = [("a", "full"), ("b", "sparse"), ("c", "spare")];
    let moves = places.iter().zip(&there).map(|((_, place), pod)| (Arc::clone(pod), (*place).into()));
    successors.expect("x", moves, at(0));
    let next = |name: &str| successors.take(&pod(name, None), &cluster.0.snapshot(), at(1));
    // Three, one and two are there, of whom nobody has left.
    assert_eq!(next("first"), Some("sparse".into()));
    // Who is to come counts, so there are two in each of the other zones.
    assert_eq!(next("second"), Some("spare".into()));
    assert_eq!(next("third"), Some("full".into()));
    assert_eq!(next("fourth"), None);
}

const NOBODY: [&str; 0] = [];

#[test]
fn small_pods_stay_until_large_ones_of_any_machine_have_found_their_places_or_for_a_while() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    let sizes = [("large", "4"), ("middle", "2200m"), ("as-middle", "2500m"), ("small", "100m")];
    let pods = sizes.map(|(name, cpu)| cluster.pod(name, name, cpu, None));
    let staying = |seconds: i64| staying(&successors, &cluster, &pods[1..], at(seconds));
    assert_eq!(staying(0), NOBODY, "none of them moves");
    successors.begin("d", moves(&pods[..1]), at(0));
    successors.expect("c", moves(&pods[1..]), at(0));
    // The machine of the largest is not even being deleted yet.
    assert_eq!(staying(1), ["middle", "as-middle", "small"]);
    successors.expect("d", [], at(1));
    assert_eq!(staying(2), ["middle", "as-middle", "small"]);
    assert!(!successors.waits_for_others(&pods[0], &cluster.0.snapshot(), at(2)));
    // Its successor has come, and is bound only after a while.
    let successor = cluster.pod("new", "large", "4", None);
    assert!(successors.take(&successor, &State::default(), at(3)).is_some());
    assert_eq!(staying(4), ["middle", "as-middle", "small"]);
    successors.has_come(&successor.uid);
    assert_eq!(staying(5), ["small"]);
    // Nothing comes of the others: they may not be evicted.
    assert_eq!(staying(24), ["small"]);
    assert_eq!(staying(25), NOBODY);
}

#[test]
fn who_has_come_and_is_not_bound_keeps_others_for_a_moment_only() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    let pods = [cluster.pod("large", "large", "4", None), cluster.pod("small", "small", "1", None)];
    successors.expect("c", moves(&pods), at(0));
    assert!(successors.take(&cluster.pod("new", "large", "4", None), &State::default(), at(1)).is_some());
    let staying = |seconds: i64| staying(&successors, &cluster, &pods[1..], at(seconds));
    assert_eq!(staying(3), ["small"]);
    assert_eq!(staying(4), NOBODY);
}

#[test]
fn what_is_not_drained_yet_keeps_smaller_pods_for_a_moment_only() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    let pods = [cluster.pod("large", "large", "4", None), cluster.pod("small", "small", "1", None)];
    successors.expect("c", moves(&pods), at(0));
    let staying = |seconds: i64| staying(&successors, &cluster, &pods[1..], at(seconds));
    assert_eq!(staying(0), ["small"]);
    assert_eq!(staying(4), ["small"]);
    assert_eq!(staying(5), NOBODY);
    assert_eq!(staying(6), NOBODY, "who may go may go");
}

#[test]
fn a_clock_that_is_set_back_lets_nobody_wait_longer() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    let pods: Vec<_> =
        (0..10).map(|n| cluster.pod(&format!("p{n}"), &format!("p{n}"), &(1 << n).to_string(), None)).collect();
    successors.expect("c", moves(&pods), at(3_600));
    let smallest = |seconds: i64| successors.waits_for_others(&pods[0], &cluster.0.snapshot(), at(seconds));
    assert!(smallest(3_600) && smallest(0));
    // All others are asked only now and then, and may go; none of them ever does.
    for seconds in (10..120).step_by(10) {
        staying(&successors, &cluster, &pods[1..], at(seconds));
    }
    assert!(!smallest(120));
}

#[test]
fn pods_of_one_zone_go_together_and_those_of_others_when_all_are_back() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    for (node, zone) in [("a1", "za"), ("a2", "za"), ("b1", "zb"), ("c1", "zc")] {
        cluster.node(node, zone);
    }
    let on = |name: &str, owner: &str, node: &str| cluster.pod(name, owner, "1", Some(node));
    let pods = [
        on("1", "web-spread", "a1"),
        on("2", "web-spread", "b1"),
        on("3", "web-spread", "a2"),
        on("4", "web-spread", "c1"),
        on("5", "db-spread", "b1"),
        on("6", "alone", "a1"),
        on("7", "alone", "b1"),
    ];
    successors.expect("c", moves(&pods), at(0));
    let waiting = |seconds: i64| staying(&successors, &cluster, &pods, at(seconds));
    assert_eq!(waiting(0), ["2", "4"]);
    let back = [&pods[0], &pods[2]].map(|pod| come_back(&successors, &cluster, pod, at(1)));
    assert_eq!(waiting(2), ["2", "4"], "both are to be bound");
    successors.has_come(&back[0]);
    assert_eq!(waiting(3), ["2", "4"], "one is to be bound");
    successors.has_come(&back[1]);
    assert_eq!(waiting(4), ["4"]);
    // It may not be evicted.
    assert_eq!(waiting(23), ["4"]);
    assert_eq!(waiting(24), NOBODY);
}

#[test]
fn small_pods_stay_while_large_ones_go_zone_by_zone() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    cluster.node("a1", "za");
    cluster.node("b1", "zb");
    let pods = [
        cluster.pod("large-a", "large-spread", "4", Some("a1")),
        cluster.pod("large-b", "large-spread", "4", Some("b1")),
        cluster.pod("small", "small", "1", Some("b1")),
    ];
    successors.expect("c", moves(&pods), at(0));
    let waiting = |seconds: i64| staying(&successors, &cluster, &pods, at(seconds));
    assert_eq!(waiting(0), ["large-b", "small"]);
    let back = come_back(&successors, &cluster, &pods[0], at(10));
    assert_eq!(waiting(12), ["large-b", "small"]);
    successors.has_come(&back);
    assert_eq!(waiting(13), ["small"]);
    let back = come_back(&successors, &cluster, &pods[1], at(20));
    assert_eq!(waiting(22), ["small"]);
    successors.has_come(&back);
    assert_eq!(waiting(23), NOBODY);
}

#[test]
fn a_workload_that_was_scaled_down_keeps_its_other_zones_no_longer_than_others() {
    let (successors, cluster) = (Successors::default(), Cluster::new());
    cluster.node("a1", "za");
    cluster.node("b1", "zb");
    let pods = ["a1", "b1"].map(|node| cluster.pod(node, "web-spread", "1", Some(node)));
    successors.expect("c", moves(&pods), at(0));
    let waiting = |seconds: i64| staying(&successors, &cluster, &pods, at(seconds));
    assert_eq!(waiting(0), ["b1"]);
    successors.leaves(&pods[0], Some(at(5)));
    cluster.0.forget::<Pod>(&pods[0].name);
    assert_eq!(waiting(19), ["b1"]);
    assert_eq!(waiting(20), NOBODY);
}

/// The pod goes, and its successor comes. Says which that is.
fn come_back(successors: &Successors, cluster: &Cluster, pod: &Pod, now: Timestamp) -> Uid {
    successors.leaves(pod, Some(now));
    cluster.0.forget::<Pod>(&pod.name);
    let owner = pod.owner.as_ref().unwrap().uid.as_str();
    let cpu = format!("{}m", pod.shape.requests.get(model::ResourceId::CPU));
    let successor = cluster.pod(&format!("{}-again", pod.name.name), owner, &cpu, None);
    assert!(successors.take(&successor, &State::default(), now).is_some());
    successor.uid.clone()
}
