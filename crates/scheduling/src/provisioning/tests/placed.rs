//! What is said of a pod that has a place: which rule decided, and where the other places fell.

use serde_json::json;

use super::{
    devices::{GPU, gpus},
    fixture::{Fixture, exactly, gib},
};
use crate::{
    plan::Plan,
    provisioning::{plan, why_placed},
    snapshot::{PodId, Snapshot},
};

const ZONE: &str = api::labels::ZONE;

fn id_of(snapshot: &Snapshot, pod: &str) -> PodId {
    let is_meant = |id: &PodId| &*snapshot.pods[*id].pod.name.name == pod;
    snapshot.pods.ids().find(is_meant).unwrap()
}

fn why_in(snapshot: &Snapshot, plan: &Plan, pod: &str) -> Vec<String> {
    why_placed(snapshot, plan, id_of(snapshot, pod)).unwrap().messages(&snapshot.interner)
}

fn why(f: &Fixture, pod: &str) -> Vec<String> {
    let snapshot = f.snapshot();
    why_in(&snapshot, &plan(&snapshot), pod)
}

/// Small machines in zone a, large ones in zone b.
fn two_zones() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 16).offering("a", "on-demand", 10);
    f.instance_type("large", 8, 64).offering("b", "on-demand", 40);
    f
}

#[test]
fn the_only_free_room_is_named_with_what_excludes_the_other_nodes() {
    let mut f = two_zones();
    f.pool("p");
    f.node("full").allocatable(1000, gib(1)).label(ZONE, "a");
    f.node("other-zone").allocatable(8000, gib(32)).label(ZONE, "b");
    f.node("roomy").allocatable(8000, gib(32)).label(ZONE, "a");
    f.node("tainted").allocatable(8000, gib(32)).label(ZONE, "a").taint("team", "x");
    f.pod("web").requests(2000, gib(1)).select(ZONE, "a");
    assert_eq!(
        why(&f, "web"),
        [
            "the only free room that holds it",
            "3 other nodes: 1 excluded by taint team=x:NoSchedule, 1 excluded by topology.kubernetes.io/zone In [a], \
             1 without enough room (cpu 2 wanted, the most is 1)"
        ]
    );
}

#[test]
fn of_several_nodes_with_room_the_first_is_said_to_be_the_first() {
    let mut f = two_zones();
    f.pool("p");
    for name in ["c", "a", "b"] {
        f.node(name).allocatable(8000, gib(32));
    }
    f.pod("web").requests(2000, gib(1));
    assert_eq!(
        why(&f, "web"),
        ["the first node that holds it: those in use come first, then by name", "2 other nodes: 2 would hold it too"]
    );
}

#[test]
fn room_that_other_pods_of_the_plan_take_is_no_room() {
    let mut f = two_zones();
    f.pool("p");
    f.node("a").allocatable(4000, gib(8));
    f.node("b").allocatable(2000, gib(8));
    f.pod("big").requests(4000, gib(1));
    f.pod("little").requests(1500, gib(1));
    let told =
        ["the only free room that holds it", "1 other node: 1 without enough room (cpu 1500m wanted, the most is 0)"];
    assert_eq!(why(&f, "little"), told);
}

#[test]
fn a_rule_between_pods_is_named_as_what_closes_a_node() {
    let mut f = two_zones();
    f.pool("p");
    f.node("a").allocatable(8000, gib(32));
    f.pod("one").requests(100, gib(1)).label("app", "db").runs();
    f.node("b").allocatable(8000, gib(32));
    f.pod("two").requests(100, gib(1)).label("app", "db").away_from(api::labels::HOSTNAME, "db");
    assert_eq!(
        why(&f, "two"),
        [
            "the only free room that holds it",
            "1 other node: 1 excluded by required pod anti-affinity over kubernetes.io/hostname (pods with app In [db])"
        ]
    );
}

#[test]
fn the_cheapest_machine_is_told_with_the_rules_that_exclude_cheaper_ones() {
    let mut f = two_zones();
    f.instance_type("tiny", 1, 4).offering("a", "on-demand", 5).offering("b", "on-demand", 4);
    f.pool("p");
    f.pod("web").requests(2000, gib(1)).select(ZONE, "b");
    assert_eq!(
        why(&f, "web"),
        [
            "the cheapest machine that its rules leave",
            "3 offerings: 2 excluded by topology.kubernetes.io/zone In [b], 1 without enough room (cpu 2 wanted, the most is 1) \
             (of those that are cheaper or of a NodePool that comes first)"
        ]
    );
}

#[test]
fn the_cheapest_machine_of_all_needs_no_rule() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("web").requests(2000, gib(1));
    assert_eq!(why(&f, "web"), ["the cheapest machine there is"]);
}

#[test]
fn a_machine_that_pods_share_is_told_so() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("web").requests(500, gib(1));
    f.pod("db").requests(500, gib(40));
    assert_eq!(
        why(&f, "web"),
        [
            "the cheapest machine that holds it together with the other pod on it",
            "1 offering: 1 would hold it by itself (of those that are cheaper or of a NodePool that comes first)"
        ]
    );
    assert_eq!(
        why(&f, "db"),
        [
            "the cheapest machine that its rules leave",
            "1 offering: 1 without enough room (memory 40Gi wanted, the most is 16Gi) (of those that are cheaper or of a NodePool \
             that comes first)"
        ]
    );
}

#[test]
fn a_node_pool_that_comes_first_and_one_that_comes_later_are_told() {
    let mut f = two_zones();
    f.pool("first").weight(10).taint("team", "x");
    f.pool("second").weight(5).require(ZONE, "In", &["b"]);
    f.pool("third");
    f.pod("web").requests(2000, gib(1));
    assert_eq!(
        why(&f, "web"),
        [
            "the cheapest machine that its rules leave",
            "4 offerings: 1 of NodePools that come later, 2 excluded by taint team=x:NoSchedule, 1 excluded by what \
             NodePools require (of those that are cheaper or of a NodePool that comes first)"
        ]
    );
}

#[test]
fn limits_and_availability_exclude_cheaper_machines() {
    let mut f = Fixture::new();
    f.instance_type("gone", 4, 16).offering("a", "on-demand", 5).unavailable();
    f.instance_type("dense", 16, 16).offering("a", "on-demand", 8);
    f.instance_type("small", 4, 16).offering("a", "on-demand", 10);
    f.pool("p").limit("cpu", 100_000, 8_000);
    f.pod("web").requests(2000, gib(1));
    assert_eq!(
        why(&f, "web"),
        [
            "the cheapest machine that its rules leave",
            "2 offerings: 1 not available now, 1 over limits.cpu (of those that are cheaper or of a NodePool that comes \
             first)"
        ]
    );
}

#[test]
fn spread_closes_the_other_machines_of_the_plan() {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("a", "on-demand", 10).offering("b", "on-demand", 11);
    f.pool("p");
    for name in ["x", "y"] {
        f.pod(name).requests(1000, gib(1)).label("app", "db").spread(ZONE, 1, "db");
    }
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let of_b = plan.machines.iter().find(|machine| machine.launch.price.0 == 11).unwrap();
    let pod = snapshot.pods[of_b.pods[0]].pod.name.name.to_string();
    assert_eq!(
        why_in(&snapshot, &plan, &pod),
        [
            "the cheapest machine that its rules leave",
            "1 other machine: 1 excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1) (of this plan)",
            "1 offering: 1 excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1) (of those that \
             are cheaper or of a NodePool that comes first)"
        ]
    );
}

#[test]
fn a_pod_that_was_planned_before_stays_and_says_so() {
    let mut f = two_zones();
    f.pool("p");
    f.node("a").allocatable(8000, gib(32));
    f.node("n").claim("p-1").allocatable(8000, gib(32));
    f.pod("web").requests(100, gib(1)).planned_on("p-1");
    assert_eq!(
        why(&f, "web"),
        ["an earlier plan put it there, and the machine is on its way", "1 other node: 1 would hold it too"]
    );
}

#[test]
fn a_volume_that_a_node_cannot_attach_is_the_reason() {
    let mut f = two_zones();
    f.pool("p");
    f.node("full").allocatable(8000, gib(32)).attach_limit("csi", 1);
    f.waiting_claim("there", "csi");
    f.pod("there").claim("there").runs();
    f.node("more").allocatable(8000, gib(32)).attach_limit("csi", 2);
    f.waiting_claim("mine", "csi");
    f.pod("web").requests(100, gib(1)).claim("mine");
    assert_eq!(
        why(&f, "web"),
        [
            "the only free room that holds it",
            "1 other node: 1 without enough room (attachable-volumes-csi-csi 1 wanted, the most is 0)"
        ]
    );
}

#[test]
fn a_pod_without_a_place_has_no_such_reason() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("huge").requests(100_000, gib(1));
    let snapshot = f.snapshot();
    assert_eq!(why_placed(&snapshot, &plan(&snapshot), id_of(&snapshot, "huge")), None);
}

#[test]
fn cheaper_machines_that_never_have_the_devices_are_told_as_such() {
    let mut f = gpus();
    f.claim_template("four", &json!({"requests": [exactly("r", GPU, 4)]}));
    f.claim_template("one", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("a").requests(1000, gib(1)).claims_from("four");
    assert_eq!(
        why(&f, "a"),
        [
            "the cheapest machine that its rules leave",
            "2 offerings: 2 without the devices it claims (of those that are cheaper or of a NodePool that comes first)"
        ]
    );
    f.pod("b").requests(1000, gib(1)).claims_from("one");
    assert_eq!(
        why(&f, "b")[..],
        [
            "the cheapest machine that holds it together with the other pod on it",
            "2 offerings: 1 without the devices it claims, 1 would fit if its devices are there (of those that are \
             cheaper or of a NodePool that comes first)"
        ]
    );
}
