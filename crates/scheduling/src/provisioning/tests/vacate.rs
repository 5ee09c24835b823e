//! Nodes without the pods that run there, and back.

use model::Answer;
use serde_json::json;

use super::devices::GPU;
use super::fixture::{Fixture, exactly, gib};
use crate::simulation::compile::attachments;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::Charging;
use crate::snapshot::NodeId;

const HOST: &str = api::labels::HOSTNAME;
const ZONE: &str = api::labels::ZONE;
const DRIVER: &str = "csi.example.com";

/// Pods that wait, each kept off the first node by one of the pods that run there. The second node is in another zone.
const KEPT_OFF: [&str; 6] = ["large", "port", "web", "lonely", "spread", "volume"];

fn fixture() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 8, 32).offering("zb", "on-demand", 10).attaches(DRIVER, 2);
    f.pool("p");
    for claim in ["theirs", "both", "volume"] {
        f.waiting_claim(claim, DRIVER);
    }
    f.node("n0").label(ZONE, "za").allocatable(4000, gib(16)).attach_limit(DRIVER, 2);
    f.pod("daemon").requests(100, gib(1)).daemon().port("0.0.0.0", 81, model::pod::Protocol::Tcp).runs();
    f.pod("big").requests(3000, gib(1)).runs();
    f.pod("http").port("0.0.0.0", 80, model::pod::Protocol::Tcp).runs();
    f.pod("shy").away_from(ZONE, "web").runs();
    f.pod("near").label("app", "crowd").runs();
    f.pod("counted").label("app", "spread").runs();
    f.pod("stored").claim("theirs").claim("both").runs();
    f.node("n1").label(ZONE, "zb").allocatable(4000, gib(16)).attach_limit(DRIVER, 2);
    f.pod("large").requests(2000, gib(1));
    f.pod("port").port("0.0.0.0", 80, model::pod::Protocol::Tcp);
    f.pod("web").label("app", "web");
    f.pod("lonely").away_from(HOST, "crowd");
    f.pod("spread").label("app", "spread").spread(ZONE, 1, "spread");
    f.pod("volume").claim("volume");
    f.pod("shares").claim("both");
    f.pod("shares-2").claim("both");
    f.pod("daemon-port").port("0.0.0.0", 81, model::pod::Protocol::Tcp);
    f
}

/// With volumes as a resource.
fn request() -> Request<'static> {
    attachments::as_resources(&Request::of(&fixture().snapshot())).expect("volumes are limited")
}

pub(super) fn class_of(problem: &Problem<'_>, pod: &str) -> ClassId {
    let is_it = |&member: &crate::snapshot::PodId| *problem.snapshot.pods[member].pod.name.name == *pod;
    problem.classes.ids().find(|&class| problem.classes[class].members.iter().any(is_it)).expect("it waits")
}

fn node(problem: &Problem<'_>, name: &str) -> NodeId {
    problem.snapshot.nodes.ids().find(|&id| problem.snapshot.nodes[id].display_name() == name).expect("it is there")
}

/// Which of the pods a node takes.
fn taken<'n>(packing: &Packing<'_>, on: NodeId, pods: &[&'n str]) -> Vec<&'n str> {
    let fits = |pod: &&str| packing.copies_on_node(on, class_of(packing.problem, pod), 1).so_far() == 1;
    pods.iter().copied().filter(fits).collect()
}

#[test]
fn a_vacated_node_takes_what_its_pods_kept_out_and_daemons_stay() {
    let request = request();
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    let n0 = node(&problem, "n0");
    let none: [&str; 0] = [];
    assert_eq!(taken(&packing, n0, &KEPT_OFF), none);
    let mark = packing.mark();
    assert!(packing.vacate(n0));
    assert_eq!(taken(&packing, n0, &KEPT_OFF), KEPT_OFF);
    assert_eq!(taken(&packing, n0, &["daemon-port"]), none);
    let large = class_of(&problem, "large");
    let free = packing.state.room[n0].get(model::ResourceId::CPU);
    assert_eq!((free, packing.next_node(0, large).map(|(_, node)| node)), (3900, Some(n0)));
    assert_eq!(taken(&packing.emptied(), n0, &KEPT_OFF), KEPT_OFF, "a search begins without them");
    packing.rollback(mark);
    assert_eq!(taken(&packing, n0, &KEPT_OFF), none);
    assert_ne!(packing.next_node(0, large).map(|(_, node)| node), Some(n0));
}

#[test]
fn a_vacated_node_has_no_shared_volume_attached_any_more() {
    let request = request();
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    let (n0, shares) = (node(&problem, "n0"), class_of(&problem, "shares"));
    assert_eq!(taken(&packing, n0, &["shares", "volume"]), ["shares"], "it is attached already");
    assert!(packing.vacate(n0));
    packing.place_on_node(n0, shares, 1);
    packing.place_on_node(n0, class_of(&problem, "volume"), 1);
    assert_eq!(packing.copies_on_node(n0, shares, 1), Answer::finished(1));
    let resource = request.snapshot.interner.find_resource(&crate::snapshot::attach_resource(DRIVER)).unwrap();
    assert_eq!(packing.state.room[n0].get(resource), 0, "both have been attached");
}

#[test]
fn vacating_placing_elsewhere_and_rolling_back_changes_nothing() {
    let request = request();
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    let (n0, n1) = (node(&problem, "n0"), node(&problem, "n1"));
    packing.place_on_node(n1, class_of(&problem, "web"), 1);
    let before = packing.state.contents();
    let mark = packing.mark();
    assert!(packing.vacate(n0));
    let vacated = packing.state.contents();
    assert_ne!(before, vacated);
    let inner = packing.mark();
    for pod in ["large", "port", "spread", "volume"] {
        packing.place_on_node(n1, class_of(&problem, pod), 1);
    }
    packing.place_on_node(n0, class_of(&problem, "shares"), 1);
    let (pool, table) = problem.pools.iter_enumerated().next().unwrap();
    let lonely = class_of(&problem, "lonely");
    packing.open_bin(pool, lonely, &table.by_class[lonely][0], 1);
    assert_ne!(packing.state.contents(), vacated);
    packing.rollback(inner);
    assert_eq!(packing.state.contents(), vacated);
    packing.rollback(mark);
    assert_eq!(packing.state.contents(), before);
}

#[test]
fn a_node_is_vacated_once_and_only_if_the_plan_has_nothing_there() {
    let request = request();
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    let (n0, n1) = (node(&problem, "n0"), node(&problem, "n1"));
    packing.place_on_node(n1, class_of(&problem, "large"), 1);
    assert!(packing.vacate(n0));
    let before = packing.state.contents();
    assert!(!packing.vacate(n0) && !packing.vacate(n1));
    assert_eq!(packing.state.contents(), before);
}

/// Two nodes with two devices each. Claims of pods on the first have one of them, and pods wait that want devices.
fn with_devices() -> Fixture {
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("t", 4, 16).offering("zb", "on-demand", 10);
    f.pool("p");
    let one = json!({"requests": [exactly("r", GPU, 1)]});
    f.claim_template("one", &one);
    f.claim_template("two", &json!({"requests": [exactly("r", GPU, 2)]}));
    for node in ["n1", "n0"] {
        f.node(node).allocatable(4000, gib(16));
        f.slice(node, GPU, ("nodeName", node.into()), 2);
    }
    f.pod("leaver").requests(1000, gib(1)).claims("held").runs();
    f.pod("pair").requests(1000, gib(1)).claims_from("two");
    f.pod("single").requests(1000, gib(1)).claims_from("one");
    f.pod("moves").requests(1000, gib(1)).claims("held");
    f
}

/// A claim that has a device of a pool for these consumers.
fn allocated(f: &mut Fixture, name: &str, pool: &str, reserved_for: &[(&str, &str)]) {
    let consumers: Vec<_> =
        reserved_for.iter().map(|(kind, of)| json!({"resource": kind, "name": of, "uid": of})).collect();
    let result = json!({"request": "r", "driver": GPU, "pool": pool, "device": "d0"});
    let mut allocation = json!({"devices": {"results": [result]}});
    if pool == "n0" {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [pool]});
        allocation["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    }
    let status = json!({"allocation": allocation, "reservedFor": consumers});
    f.resource_claim(name, &json!({"requests": [exactly("r", GPU, 1)]}), &status);
}

#[test]
fn devices_of_pods_that_leave_are_free_until_they_are_back() {
    let mut f = with_devices();
    allocated(&mut f, "held", "n0", &[("pods", "leaver")]);
    let snapshot = f.snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    packing.state.settle_start();
    let (n0, n1) = (node(&problem, "n0"), node(&problem, "n1"));
    let none: [&str; 0] = [];
    assert_eq!(taken(&packing, n0, &["pair", "single", "moves"]), ["single", "moves"]);
    assert_eq!(taken(&packing, n1, &["moves"]), none, "its claim ties it to the first node");
    let before = packing.state.contents();
    let mark = packing.mark();
    assert!(packing.vacate(n0));
    let vacated = packing.state.contents();
    assert!(vacated != before);
    assert_eq!(taken(&packing, n0, &["pair", "single", "moves"]), ["pair", "single", "moves"]);
    assert_eq!(taken(&packing.emptied(), n0, &["pair"]), ["pair"], "a search begins with them free");
    let inner = packing.mark();
    packing.place_on_node(n0, class_of(&problem, "pair"), 1);
    assert_eq!(taken(&packing, n0, &["single", "moves"]), none);
    assert_eq!(taken(&packing, n1, &["moves"]), ["moves"], "the claim is allocated anew");
    packing.place_on_node(n1, class_of(&problem, "moves"), 1);
    assert_eq!(taken(&packing, n1, &["pair", "single"]), ["single"]);
    packing.rollback(inner);
    assert!(packing.state.contents() == vacated);
    let inner = packing.mark();
    packing.place_on_node(n0, class_of(&problem, "single"), 1);
    assert_eq!(taken(&packing, n0, &["moves"]), ["moves"], "in either order both get a device");
    packing.rollback(inner);
    packing.rollback(mark);
    assert!(packing.state.contents() == before);
    assert_eq!(taken(&packing, n0, &["pair", "single", "moves"]), ["single", "moves"]);
    assert_eq!(taken(&packing, n1, &["moves"]), none);
}

#[test]
fn a_claim_stays_allocated_that_others_may_use_or_whose_device_is_not_the_nodes_own() {
    let free_after = |pool: &str, reserved_for: &[(&str, &str)]| {
        let mut f = with_devices();
        f.slice("everywhere", GPU, ("allNodes", true.into()), 1);
        allocated(&mut f, "held", pool, reserved_for);
        let snapshot = f.snapshot();
        let request = Request::of(&snapshot);
        let problem = Problem::new(&request);
        let run = PlanRun::new(&problem);
        let mut packing = Packing::new(&problem, &run, Charging::Least);
        let before = packing.state.devices.clone();
        assert!(packing.vacate(node(&problem, "n0")));
        packing.state.devices != before
    };
    assert!(free_after("n0", &[("pods", "leaver")]));
    assert!(!free_after("n0", &[("pods", "leaver"), ("pods", "stays elsewhere")]));
    assert!(!free_after("n0", &[("podgroups", "leaver")]));
    assert!(!free_after("n0", &[]), "nobody takes an allocation back that was reserved for nobody yet");
    assert!(!free_after("everywhere", &[("pods", "leaver")]));
}
