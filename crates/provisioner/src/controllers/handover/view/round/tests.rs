use std::cell::RefCell;

use model::pod::{HostPort, PodAffinity, Protocol, VolumeRef};
use model::{NamespacedName, Requirement, Requirements, Timestamp, Toleration};
use serde_json::{Value, json};

use super::super::tests as stores;
use super::*;
use crate::world::store::{ClusterStore, Revision};

/// A store and what was planned in it: two usable machines of 4 CPU for two pods of 2 CPU each, and nothing else.
struct Stage {
    store: ClusterStore,
    assignments: Assignments,
}

fn held_for(claim: &str) -> Value {
    json!([{"key": "dovetail.sh/held", "value": claim, "effect": "NoSchedule"}])
}

impl Stage {
    fn new() -> Self {
        Self::with(&held_for("b"), true)
    }

    /// With those taints on the second machine.
    fn with(taints: &Value, is_ready: bool) -> Self {
        let stage = Self { store: ClusterStore::new(), assignments: Assignments::default() };
        stores::add_machine(&stage.store, "a", "a", &held_for("a"), true);
        stores::add_machine(&stage.store, "b", "b", taints, is_ready);
        for machine in ["a", "b"] {
            for index in 0..2 {
                stage.plan(machine, asking(&format!("{machine}{index}"), 2000));
            }
        }
        stage
    }

    fn add(&self, pod: Pod) {
        let revision = stores::revision(&pod.uid);
        self.store.apply(pod, revision);
    }

    fn plan(&self, machine: &str, pod: Pod) {
        self.assignments.extend(&machine.into(), [(pod.uid.clone(), None)]);
        self.add(pod);
    }

    /// Changes all pods of the machines' class.
    fn change(&self, change: impl Fn(&mut Pod)) {
        for machine in ["a", "b"] {
            for index in 0..2 {
                let mut pod = asking(&format!("{machine}{index}"), 2000);
                change(&mut pod);
                self.replace(pod);
            }
        }
    }

    fn replace(&self, pod: Pod) {
        let revision = Revision { uid: pod.uid.clone(), resource_version: 0 };
        self.store.apply(pod, revision);
    }

    fn shape(&self, change: impl Fn(&mut PodShape)) {
        let mut shape = PodShape::clone(&asking("any", 2000).shape);
        change(&mut shape);
        let shape = Arc::new(shape);
        self.change(|pod| pod.shape = Arc::clone(&shape));
    }

    /// The machines that need no patches.
    fn unpatched(&self, mode: HandOverMode) -> Vec<String> {
        let nodes: Vec<NodeName> = ["a", "b"].map(NodeName::from).into();
        let view = build(&self.store.read(), &self.assignments, NameSet::default(), &nodes, mode);
        view.iter().filter(|(_, machine)| machine.needs_no_patches).map(|(name, _)| name.to_string()).collect()
    }
}

thread_local! {
    /// As in a cluster, shapes that are equal are one object.
    static SHAPES: RefCell<BTreeMap<i64, Arc<PodShape>>> = RefCell::default();
}

fn asking(name: &str, milli_cpu: i64) -> Pod {
    let fresh = || {
        let mut shape = PodShape::default();
        shape.requests.set(ResourceId::CPU, milli_cpu);
        Arc::new(shape)
    };
    let shape = SHAPES.with_borrow_mut(|shapes| Arc::clone(shapes.entry(milli_cpu).or_insert_with(fresh)));
    Pod { shape, ..stores::waiting(name) }
}

fn bound(node: &str, pod: Pod) -> Pod {
    Pod { node_name: Some(node.into()), ..pod }
}

fn away_from_all() -> PodAffinity {
    PodAffinity { required: vec![stores::near_all()], preferred: Vec::new() }
}

fn check(what: &str, change: impl Fn(&Stage), expected: &[&str]) {
    let stage = Stage::new();
    change(&stage);
    assert_eq!(stage.unpatched(HandOverMode::Tolerate), expected, "{what}");
}

#[test]
fn pods_of_one_class_need_no_patches_where_tolerations_are_the_way() {
    check("nothing", |_| {}, &["a", "b"]);
    for mode in [HandOverMode::Nominate, HandOverMode::Off] {
        assert_eq!(Stage::new().unpatched(mode), [""; 0], "{mode:?}");
    }
}

#[test]
fn pods_whose_nodeclaim_is_being_created_are_planned_for() {
    let stage = Stage::new();
    let more = asking("more", 2000);
    let uid = more.uid.clone();
    stage.add(more);
    assert_eq!(stage.unpatched(HandOverMode::Tolerate), [""; 0], "nobody planned for it");
    let promise = stage.assignments.promise([vec![uid]]);
    assert_eq!(stage.unpatched(HandOverMode::Tolerate), ["a", "b"]);
    drop(promise);
    assert_eq!(stage.unpatched(HandOverMode::Tolerate), [""; 0], "it could not be created");
}

#[test]
fn a_machine_is_known_before_its_claim_names_its_node() {
    let stage = Stage::new();
    for machine in ["a", "b"] {
        let mut claim = stores::node_claim(machine, machine, &json!([]));
        claim.status.as_mut().unwrap().node_name = String::new();
        stage.store.apply(claim, Revision { uid: machine.into(), resource_version: 0 });
    }
    assert_eq!(stage.unpatched(HandOverMode::Tolerate), ["a", "b"]);
}

#[test]
fn pods_that_others_could_divert_are_patched() {
    check("one more pod of the class", |it| it.add(asking("more", 2000)), &[]);
    check("a pod of another class that fits", |it| it.add(asking("other", 100)), &[]);
    check("one that does not", |it| it.add(asking("other", 5000)), &["a", "b"]);
    check(
        "a gated one that fits",
        |it| it.add(Pod { scheduling: SchedulingState::Gated, ..asking("other", 100) }),
        &[],
    );
    check(
        "one that is on its way out",
        |it| it.add(Pod { deletion_timestamp: Some(Timestamp::default()), ..asking("other", 100) }),
        &[],
    );
    check("one that is bound elsewhere", |it| it.add(bound("m", asking("other", 100))), &["a", "b"]);
    check(
        "a DaemonSet's, for which there is room",
        |it| it.add(Pod { is_daemon: true, ..asking("other", 0) }),
        &["a", "b"],
    );
    check(
        "a pod of the class is gone, so that more could come to its machine",
        |it| it.store.delete::<Pod>(&NamespacedName::new("default", "b1"), &"uid-b1".into()),
        &["a"],
    );
    check(
        "both of a machine are",
        |it| {
            for name in ["b0", "b1"] {
                it.store.delete::<Pod>(&NamespacedName::new("default", name), &format!("uid-{name}").into());
            }
        },
        &["a"],
    );
}

#[test]
fn a_pod_with_rules_that_depend_on_the_order_is_patched() {
    let port = HostPort { ip: HostPort::ANY_IP, port: 80, protocol: Protocol::Tcp };
    check(
        "a spread",
        |it| it.shape(|shape| shape.topology_spread = vec![stores::evenly_by(model::Id::from_index(0))]),
        &[],
    );
    check("affinity", |it| it.shape(|shape| shape.pod_affinity = away_from_all()), &[]);
    check("anti-affinity", |it| it.shape(|shape| shape.pod_anti_affinity = away_from_all()), &[]);
    check("a port", |it| it.shape(|shape| shape.host_ports = vec![port]), &[]);
    check(
        "a volume",
        |it| it.shape(|shape| shape.volumes = vec![VolumeRef::Claim(NamespacedName::new("default", "v"))]),
        &[],
    );
    check("a toleration of everything", |it| it.shape(|shape| shape.tolerations = vec![Toleration::EVERYTHING]), &[]);
    check("another scheduler", |it| it.change(|pod| pod.scheduler_name = "batch".into()), &[]);
    check("a nomination", |it| it.replace(Pod { nominated_node_name: Some("m".into()), ..asking("a0", 2000) }), &[]);
    for (uid, expected) in [("b", &[][..]), ("a", &["b"]), ("gone", &["a", "b"])] {
        let pod = Pod { may_enter: vec![uid.into()], ..asking("a0", 2000) };
        check(&format!("the toleration of machine {uid}"), |it| it.replace(pod.clone()), expected);
    }
    check("a priority that differs", |it| it.replace(Pod { priority: 1, ..asking("a0", 2000) }), &[]);
    check("a stage", |it| it.assignments.set_stages([("uid-a0".into(), 1)]), &[]);
}

#[test]
fn a_pod_that_rules_of_others_count_is_patched() {
    let ruled = |change: fn(&mut PodShape)| {
        let mut shape = PodShape::clone(&asking("ruled", 5000).shape);
        change(&mut shape);
        Pod { shape: Arc::new(shape), ..asking("ruled", 5000) }
    };
    let spread = || ruled(|shape| shape.topology_spread = vec![stores::evenly_by(model::Id::from_index(0))]);
    let lonely = || ruled(|shape| shape.pod_anti_affinity = away_from_all());
    let close = || ruled(|shape| shape.pod_affinity = away_from_all());
    check("a spread", |it| it.add(spread()), &[]);
    check("affinity", |it| it.add(close()), &[]);
    check("anti-affinity", |it| it.add(lonely()), &[]);
    check("the anti-affinity of a bound pod", |it| it.add(bound("m", lonely())), &[]);
    check("the affinity of a bound pod", |it| it.add(bound("m", close())), &["a", "b"]);
}

#[test]
fn pods_that_another_node_would_take_are_patched() {
    let tainted = json!([{"key": "x", "effect": "NoSchedule"}]);
    check("an open node with room", |it| stores::add_machine(&it.store, "c", "c", &json!([]), true), &[]);
    check("one that they do not tolerate", |it| stores::add_machine(&it.store, "c", "c", &tainted, true), &["a", "b"]);
    check("one that is closed", |it| stores::add_machine(&it.store, "c", "c", &held_for("c"), true), &["a", "b"]);
    check(
        "a full one",
        |it| {
            stores::add_machine(&it.store, "c", "c", &json!([]), true);
            it.add(bound("c", asking("full", 3000)));
        },
        &["a", "b"],
    );
    check(
        "one with pods that they would preempt",
        |it| {
            stores::add_machine(&it.store, "c", "c", &json!([]), true);
            it.add(Pod { priority: -1, ..bound("c", asking("full", 3000)) });
        },
        &[],
    );
}

#[test]
fn an_open_machine_that_its_own_pods_fill_leaves_the_others_unpatched() {
    for (what, stage, expected) in [
        ("it is open", Stage::with(&json!([]), true), &["a"][..]),
        ("it is not ready", Stage::with(&held_for("b"), false), &["a"]),
    ] {
        assert_eq!(stage.unpatched(HandOverMode::Tolerate), expected, "{what}");
    }
}

#[test]
fn what_daemon_sets_take_is_not_given_to_pods() {
    let daemon_set = |milli_cpu: i64| DaemonSet {
        name: NamespacedName::new("default", "agent"),
        uid: "agent".into(),
        template: model::workload::PodTemplate {
            labels: Labels::default(),
            priority: None,
            priority_class: None,
            shape: Arc::clone(&asking("agent", milli_cpu).shape),
        },
        template_generation: None,
    };
    let with = |milli_cpu: i64, elsewhere: bool| {
        move |it: &Stage| {
            let mut daemon_set = daemon_set(milli_cpu);
            if elsewhere {
                let mut shape = PodShape::clone(&daemon_set.template.shape);
                shape.node_selector = it.store.intern(no_such_node).0;
                daemon_set.template.shape = Arc::new(shape);
            }
            it.store.apply(daemon_set, stores::revision("agent"));
        }
    };
    check("none", with(0, false), &["a", "b"]);
    check("some", with(100, false), &[]);
    check("some, of other nodes", with(100, true), &["a", "b"]);
}

fn no_such_node(names: &mut Interner) -> Requirements {
    let nowhere = Requirement::parse("zone", model::Operator::In, ["nowhere"], names).unwrap();
    Requirements::from_requirements([nowhere], names)
}

#[test]
fn a_taint_of_the_pool_keeps_others_away_and_one_of_the_start_does_not() {
    for (of_pool, expected) in [(true, &["a", "b"][..]), (false, &[])] {
        let taint = json!({"key": "team", "effect": "NoSchedule"});
        let stage = Stage { store: ClusterStore::new(), assignments: Assignments::default() };
        for machine in ["a", "b"] {
            let held = held_for(machine)[0].clone();
            stores::add_machine(&stage.store, machine, machine, &json!([held, taint]), true);
            let mut claim = stores::node_claim(machine, machine, &json!([]));
            if of_pool {
                claim.spec.taints = serde_json::from_value(json!([taint])).unwrap();
            }
            stage.store.apply(claim, Revision { uid: machine.into(), resource_version: 0 });
        }
        let key = stage.store.read().interner.find_key("team");
        let mut shape = PodShape::clone(&asking("any", 2000).shape);
        shape.tolerations = vec![Toleration { key, ..Toleration::EVERYTHING }];
        let shape = Arc::new(shape);
        for (machine, name) in [("a", "a0"), ("a", "a1"), ("b", "b0"), ("b", "b1")] {
            stage.plan(machine, Pod { shape: Arc::clone(&shape), ..stores::waiting(name) });
        }
        stage.add(asking("stranger", 100));
        assert_eq!(stage.unpatched(HandOverMode::Tolerate), expected, "{of_pool}");
    }
}
