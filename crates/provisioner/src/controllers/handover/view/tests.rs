use api::conditions::node_claim::DEVICES_PUBLISHED;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::LabelSelector;
use model::pod::{PodAffinityTerm, TopologySpreadConstraint, WhenUnsatisfiable};
use serde_json::{Value, json};

use super::super::engine::Attracts;
use super::*;
use crate::world::store::{ClusterStore, Revision};
use crate::world::test_pods::pod;

const ZONE: &str = "topology.kubernetes.io/zone";

/// A store with one node that carries those taints, and the claim `c` that it belongs to.
fn store(taints: Value, ready: bool) -> ClusterStore {
    let store = ClusterStore::new();
    add_machine(&store, "c", "n", &taints, ready);
    store
}

pub(in crate::controllers::handover) fn add_machine(
    store: &ClusterStore,
    claim: &str,
    node: &str,
    taints: &Value,
    ready: bool,
) {
    add_machine_in("a", store, claim, node, taints, ready);
}

fn add_machine_in(zone: &str, store: &ClusterStore, claim: &str, node: &str, taints: &Value, ready: bool) {
    store.show_node(json!({
        "metadata": {"name": node, "labels": {"karpenter.sh/registered": "true", ZONE: zone}},
        "spec": {"providerID": format!("p://{node}"), "taints": taints},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    }));
    store.apply(node_claim(claim, node, &json!([])), revision(claim));
}

pub(super) fn node_claim(name: &str, node: &str, conditions: &Value) -> api::NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "uid": name},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"providerID": format!("p://{node}"), "nodeName": node, "conditions": conditions},
    }))
    .unwrap()
}

pub(in crate::controllers::handover) fn revision(uid: &str) -> Revision {
    Revision::of(&ObjectMeta {
        uid: Some(uid.to_owned()),
        resource_version: Some("1".to_owned()),
        ..ObjectMeta::default()
    })
}

pub(in crate::controllers::handover) fn waiting(name: &str) -> Pod {
    Pod { phase: model::pod::PodPhase::Pending, ..pod(name) }
}

fn seen(store: &ClusterStore, pods: Vec<Pod>, mode: HandOverMode) -> Machine {
    let assignments = Assignments::default();
    assignments.assign(&"c".into(), pods.iter().filter(|pod| !pod.is_daemon).map(|pod| pod.uid.clone()));
    for pod in pods {
        let revision = revision(&pod.uid);
        store.apply(pod, revision);
    }
    let state = store.read();
    build(&state, &assignments, NameSet::default(), [&"n".into()], mode).remove("n").unwrap()
}

pub(in crate::controllers::handover) fn held() -> Value {
    json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}])
}

#[test]
fn a_machine_is_usable_when_its_pods_tolerate_all_that_is_not_ours() {
    let startup = json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}, {"key": "x", "effect": "NoSchedule"}]);
    let soft = json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]);
    let mut tolerant = waiting("tolerant");
    tolerant.shape = Arc::new(PodShape { tolerations: vec![model::Toleration::EVERYTHING], ..PodShape::default() });
    let cases = [
        (held(), true, waiting("a"), true),
        (held(), false, waiting("a"), false),
        (startup.clone(), true, waiting("a"), false),
        (startup, true, tolerant, true),
        (soft, true, waiting("a"), true),
    ];
    for (taints, ready, pod, expected) in cases {
        let machine = seen(&store(taints.clone(), ready), vec![pod], HandOverMode::Tolerate);
        assert_eq!((machine.held, machine.usable), (true, expected), "{taints} {ready}");
        assert!(!machine.needs_entry);
    }
}

#[test]
fn each_planned_pod_is_nominated_only_if_it_is_ours_to_nominate() {
    let node = NodeName::from("n");
    let mut gated = waiting("gated");
    gated.scheduling = SchedulingState::Gated;
    let mut of_other_scheduler = waiting("of-other-scheduler");
    of_other_scheduler.scheduler_name = "other".into();
    let mut preemptor = waiting("preemptor");
    preemptor.nominated_node_name = Some("elsewhere".into());
    let mut nominated = waiting("nominated");
    nominated.nominated_node_name = Some(node.clone());
    let mut bound = waiting("bound");
    bound.node_name = Some("elsewhere".into());
    let mut leaving = waiting("leaving");
    leaving.deletion_timestamp = Some(model::Timestamp::default());
    let cases = [
        (waiting("plain"), PodState::Waiting),
        (gated, PodState::HandsOff),
        (of_other_scheduler, PodState::Waiting),
        (preemptor, PodState::HandsOff),
        (nominated, PodState::Nominated),
        (bound, PodState::Settled),
        (leaving, PodState::Settled),
    ];
    for (pod, expected) in cases {
        assert_eq!(pod_state(&pod, &node), expected, "{}", pod.name);
    }
}

#[test]
fn a_machine_waits_for_successors_and_opens_for_none_of_its_pods_before_all_have_come() {
    let store = store(json!([{"key": "dovetail.sh/held", "value": "c", "effect": "NoSchedule"}]), true);
    let assignments = Assignments::default();
    assignments.assign(&"c".into(), [waiting("a").uid]);
    store.apply(waiting("a"), revision(&waiting("a").uid));
    let seen = |closed: &[&str]| {
        let closed = closed.iter().map(|name| NodeClaimName::from(*name)).collect();
        build(&store.read(), &assignments, closed, [&"n".into()], HandOverMode::Tolerate).remove("n").unwrap()
    };
    let facts = |machine: &Machine| (machine.waits_for_successors, machine.lets_pods_in(), machine.needs_no_patches);
    assert_eq!(facts(&seen(&["other"])), (false, true, true));
    assert_eq!(facts(&seen(&["c", "other"])), (true, false, false));
}

fn driver(tolerations: Vec<model::Toleration>) -> DaemonSet {
    DaemonSet {
        name: model::NamespacedName::new("default", "driver"),
        uid: "driver".into(),
        template: model::workload::PodTemplate {
            labels: model::Labels::default(),
            priority: None,
            priority_class: None,
            shape: Arc::new(PodShape { tolerations, ..PodShape::default() }),
        },
        template_generation: None,
    }
}

#[test]
fn no_daemon_has_to_come_first_for_a_taint_that_planned_pods_tolerate() {
    // While a kubelet starts there is such a taint, which the API server makes every pod tolerate for a while.
    let not_ready = "node.kubernetes.io/not-ready";
    let taints =
        json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}, {"key": not_ready, "effect": "NoExecute"}]);
    for (is_tolerated, expected) in [(true, false), (false, true)] {
        let store = store(taints.clone(), false);
        let key = store.read().interner.find_key(not_ready);
        let tolerates = model::Toleration { key, ..model::Toleration::EVERYTHING };
        store.apply(driver(vec![tolerates]), revision("driver"));
        let mut pod = waiting("a");
        let tolerations = is_tolerated.then_some(tolerates).into_iter().collect();
        pod.shape = Arc::new(PodShape { tolerations, ..PodShape::default() });
        let machine = seen(&store, vec![pod], HandOverMode::Tolerate);
        assert_eq!((machine.usable, machine.needs_entry), (false, expected));
    }
}

#[test]
fn a_daemon_set_that_only_our_taint_keeps_out_needs_entry() {
    let taints = json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]);
    for (tolerated, expected) in [(vec!["gpu"], true), (vec![], false), (vec!["gpu", "dovetail.sh/held"], false)] {
        let store = store(taints.clone(), true);
        let tolerations = {
            let state = store.read();
            let key =
                |name: &&str| model::Toleration { key: state.interner.find_key(name), ..model::Toleration::EVERYTHING };
            tolerated.iter().map(key).collect()
        };
        let daemon_set = driver(tolerations);
        store.apply(daemon_set, revision("driver"));
        let machine = seen(&store, vec![waiting("a")], HandOverMode::Tolerate);
        assert_eq!((machine.needs_entry, machine.guarded), (expected, !expected), "{tolerated:?}");

        let mut driver = waiting("driver");
        driver.is_daemon = true;
        driver.node_name = Some("n".into());
        driver.owner = Some(model::pod::Owner {
            api_version: "apps/v1".into(),
            kind: "DaemonSet".into(),
            name: "driver".into(),
            uid: "driver".into(),
            controller: true,
        });
        let machine = seen(&store, vec![waiting("a"), driver], HandOverMode::Tolerate);
        assert_eq!((machine.needs_entry, machine.guarded), (false, true), "it is there");
    }
}

#[test]
fn a_pod_may_enter_the_machine_whose_taint_it_tolerates() {
    for (value, may_enter) in [(json!("c"), true), (json!("other"), false), (json!(null), false)] {
        let taints = json!([{"key": "dovetail.sh/held", "value": value, "effect": "NoSchedule"}]);
        let mut pod = waiting("a");
        pod.may_enter = vec!["c".into()];
        let machine = seen(&store(taints, true), vec![pod], HandOverMode::Tolerate);
        assert_eq!(machine.tolerable, !value.is_null());
        assert_eq!(machine.pods[0].may_enter, may_enter, "{value}");
    }
}

/// Required affinity to all pods of the namespace `default`.
pub(super) fn near_all() -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: model::Id::from_index(0),
        selector: LabelSelector::EVERYTHING,
        namespaces: vec!["default".into()],
        namespace_selector: LabelSelector::Nothing,
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

/// A spread of all pods of the namespace `default` that must be kept.
pub(super) fn evenly_by(topology_key: KeyId) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key,
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: LabelSelector::EVERYTHING,
        namespace: "default".into(),
        min_domains: None,
        node_affinity_policy: NodeInclusionPolicy::Honor,
        node_taints_policy: NodeInclusionPolicy::Ignore,
        match_label_keys: Vec::new(),
        source: model::pod::SpreadSource::Pod,
    }
}

fn spread_by_zone(store: &ClusterStore, pod: Pod) -> Pod {
    let zone = store.read().interner.find_key(ZONE).unwrap();
    Pod { shape: Arc::new(PodShape { topology_spread: vec![evenly_by(zone)], ..PodShape::default() }), ..pod }
}

/// Whether a plain pod of stage 1 that waits for the machine `c` comes after that one of `stage`, which waits for
/// `claim`.
fn comes_after(store: &ClusterStore, spread: Pod, stage: u32, claim: &str) -> bool {
    let counted = waiting("counted");
    let assignments = Assignments::default();
    assignments.set_stages([(spread.uid.clone(), stage), (counted.uid.clone(), 1)]);
    assignments.assign(&claim.into(), [spread.uid.clone()]);
    assignments.assign(&"c".into(), [counted.uid.clone()]);
    for pod in [spread, counted] {
        let revision = revision(&pod.uid);
        store.apply(pod, revision);
    }
    build(&store.read(), &assignments, NameSet::default(), [&"n".into()], HandOverMode::Tolerate)["n"].pods[0]
        .after_others
}

#[test]
fn a_pod_comes_after_those_that_the_plan_does_not_place_before_it_only_if_they_come_into_its_domain() {
    // Where the machine of the waiting pod is and whether it has a node, the pod's stage, and whether the other one, in
    // zone a and of stage 1, comes after it.
    for (zone, has_node, stage, expected) in [
        (Some("a"), true, 1, true),
        (Some("a"), false, 1, true),
        (Some("b"), true, 1, false),
        (Some("b"), false, 1, false),
        (Some("b"), true, 0, true),
        (None, false, 1, true),
    ] {
        let store = store(held(), true);
        // Somebody has to know of zone b.
        add_machine_in("b", &store, "known", "known", &json!([]), true);
        if let Some(zone) = zone.filter(|_| has_node) {
            add_machine_in(zone, &store, "other", "m", &held(), true);
        } else {
            let mut claim = node_claim("other", "m", &json!([]));
            let label = zone.map(|zone| (ZONE.to_owned(), zone.to_owned()));
            claim.metadata.labels = Some(label.into_iter().collect());
            store.apply(claim, revision("other"));
        }
        let spread = spread_by_zone(&store, Pod { priority: 1, ..waiting("spread") });
        assert_eq!(comes_after(&store, spread, stage, "other"), expected, "{zone:?} {has_node} {stage}");
    }
}

#[test]
fn pods_that_count_each_other_in_their_spread_and_keep_nominations_crowd_each_other_out() {
    let polite = Pod { preemption_policy: PreemptionPolicy::Never, ..waiting("a") };
    let elsewhere = |pod: Pod| {
        let mut shape = PodShape::clone(&pod.shape);
        shape.topology_spread[0].namespace = "elsewhere".into();
        Pod { shape: Arc::new(shape), ..pod }
    };
    let store = store(held(), true);
    for (pod, expected) in [
        (spread_by_zone(&store, polite.clone()), true),
        (spread_by_zone(&store, waiting("a")), false),
        (elsewhere(spread_by_zone(&store, polite.clone())), false),
        (polite, false),
    ] {
        assert_eq!(crowds_out_alike(&pod, &store.read().interner), expected);
    }
}

#[test]
fn a_pod_comes_after_those_of_an_earlier_stage_or_higher_priority_that_count_it_in_their_spread() {
    let (hard, soft) = (WhenUnsatisfiable::DoNotSchedule, WhenUnsatisfiable::ScheduleAnyway);
    // What the waiting pod asks for, its priority, stage, whether it is bound, whether the other one, of stage 1, comes
    // after it, and whether it has to be near to the other one.
    let cases = [
        (hard, "default", None, 1, 1, false, true, false),
        (hard, "default", None, 1, 1, false, false, true),
        (hard, "default", None, 1, 0, false, true, true),
        (hard, "default", None, 0, 1, false, false, false),
        (hard, "default", Some(2), 0, 1, false, true, false),
        (hard, "default", Some(1), 0, 1, false, false, false),
        (hard, "default", Some(2), -1, 1, false, false, false),
        (hard, "default", None, 1, 1, true, false, false),
        (hard, "elsewhere", None, 1, 1, false, false, false),
        (soft, "default", None, 1, 1, false, false, false),
        (hard, "default", None, -1, 0, false, true, false),
        (hard, "default", None, -1, 0, true, false, false),
        (hard, "elsewhere", None, -1, 0, false, false, false),
        (hard, "default", Some(2), 1, 2, false, false, false),
    ];
    for (when_unsatisfiable, namespace, min_domains, priority, stage, is_bound, expected, is_near) in cases {
        let store = store(held(), true);
        let mut spread = waiting("spread");
        spread.priority = priority;
        spread.node_name = is_bound.then(|| "m".into());
        spread.shape = Arc::new(PodShape {
            topology_spread: vec![TopologySpreadConstraint {
                when_unsatisfiable,
                namespace: namespace.into(),
                min_domains,
                ..evenly_by(model::Id::from_index(0))
            }],
            pod_affinity: model::pod::PodAffinity {
                required: is_near.then(near_all).into_iter().collect(),
                preferred: Vec::new(),
            },
            ..PodShape::default()
        });
        assert_eq!(
            comes_after(&store, spread, stage, "elsewhere"),
            expected,
            "{when_unsatisfiable:?} {namespace} {min_domains:?} {priority} {stage} {is_bound} {is_near}"
        );
    }
}

#[test]
fn a_machine_attracts_the_pods_of_another_that_fit_into_what_its_own_have_left() {
    let milli_cpu = |name: &str, amount| {
        let mut shape = PodShape::default();
        shape.requests.set(ResourceId::CPU, amount);
        Pod { shape: Arc::new(shape), ..waiting(name) }
    };
    let (preempts, never) = (PreemptionPolicy::PreemptLowerPriority, PreemptionPolicy::Never);
    let cases = [
        (3000, 0, 1000, 0, preempts, Attracts::Others),
        (3001, 0, 1000, 0, preempts, Attracts::Nobody),
        // The room of a pod of lower priority is room too.
        (3001, -10, 1000, 0, preempts, Attracts::Others),
        (3001, -10, 1000, 0, never, Attracts::Nobody),
        (3001, -10, 4001, 0, preempts, Attracts::Nobody),
    ];
    for (own, own_priority, others, priority, preemption_policy, expected) in cases {
        let store = store(held(), true);
        let mut bound = milli_cpu("own", own);
        bound.node_name = Some("n".into());
        bound.priority = own_priority;
        let other = Pod { priority, preemption_policy, ..milli_cpu("other", others) };
        let assignments = Assignments::default();
        assignments.assign(&"elsewhere".into(), [other.uid.clone()]);
        for pod in [bound, other] {
            let revision = revision(&pod.uid);
            store.apply(pod, revision);
        }
        let attracts = || {
            build(&store.read(), &assignments, NameSet::default(), [&"n".into()], HandOverMode::Tolerate)["n"].attracts
        };
        assert_eq!(
            attracts(),
            expected,
            "{own}m of 4 CPU are used, {others}m of priority {priority} wait, {preemption_policy:?}"
        );
        let still_waiting = milli_cpu("late", 1);
        assignments.assign(&"c".into(), [still_waiting.uid.clone()]);
        let revision = revision(&still_waiting.uid);
        store.apply(still_waiting, revision);
        assert_eq!(attracts(), Attracts::Nobody, "its own pods come first");
    }
}

/// Devices under the name of a resource are nothing that a node has; who asks for them otherwise does not fit.
#[test]
fn a_machine_attracts_pods_whose_resource_is_served_by_devices() {
    for (wants_devices, expected) in [(true, Attracts::Others), (false, Attracts::Nobody)] {
        let store = store(held(), true);
        let object = json!({
            "metadata": {"namespace": "default", "name": "other", "uid": "other", "resourceVersion": "1"},
            "spec": {"containers": [{"name": "a", "resources": {"limits": {"example.com/gpu": "1"}}}]},
        });
        let devices = decode::devices::pod_devices(&object).unwrap().filter(|_| wants_devices);
        store.note_devices(&waiting("other").uid, devices);
        let gpu = store.intern(|names| names.resource("example.com/gpu")).0;
        let mut shape = PodShape::default();
        shape.requests.set(gpu, 1);
        let pod = Pod { shape: Arc::new(shape), ..waiting("other") };
        let assignments = Assignments::default();
        assignments.assign(&"elsewhere".into(), [pod.uid.clone()]);
        let revision = revision(&pod.uid);
        store.apply(pod, revision);
        let view = build(&store.read(), &assignments, NameSet::default(), [&"n".into()], HandOverMode::Tolerate);
        assert_eq!(view["n"].attracts, expected, "{wants_devices}");
    }
}

/// Whoever could not enter its own machine although it may has to go elsewhere in the end.
#[test]
fn it_is_known_which_of_the_pods_that_a_machine_attracts_may_enter_their_own() {
    let (let_in, let_in_elsewhere) = (vec![Uid::from("other")], vec![Uid::from("another")]);
    for (taints, may_enter, expected) in [
        (held(), Vec::new(), Attracts::Others),
        (held(), let_in_elsewhere, Attracts::Others),
        (held(), let_in, Attracts::LetIn),
        (json!([]), Vec::new(), Attracts::LetIn),
    ] {
        let store = store(held(), true);
        add_machine(&store, "other", "m", &taints, true);
        let assignments = Assignments::default();
        let pod = Pod { may_enter, ..waiting("late") };
        assignments.assign(&"other".into(), [pod.uid.clone()]);
        let revision = revision(&pod.uid);
        store.apply(pod, revision);
        let view = build(&store.read(), &assignments, NameSet::default(), [&"n".into()], HandOverMode::Tolerate);
        assert_eq!(view["n"].attracts, expected, "{taints}");
    }
}

#[test]
fn pods_are_late_whose_machine_is_open_and_none_that_wait_for_devices_or_their_group() {
    let store = ClusterStore::new();
    let assignments = Assignments::default();
    add_machine(&store, "c-open", "open", &json!([]), true);
    add_machine(&store, "c-held", "held", &held(), true);
    let group = model::pod::SchedulingGroup { pod_group: model::NamespacedName::new("default", "g") };
    let grouped = PodShape { scheduling_group: Some(group), ..PodShape::default() };
    let grouped = Pod { shape: Arc::new(grouped), ..waiting("grouped") };
    let elsewhere = Pod { nominated_node_name: Some("held".into()), ..waiting("elsewhere") };
    for (claim, pods) in [
        ("c-open", vec![waiting("late"), elsewhere, claimer(100), grouped]),
        ("c-held", vec![waiting("in-time")]),
        ("c-coming", vec![waiting("early")]),
    ] {
        assignments.assign(&claim.into(), pods.iter().map(|pod| pod.uid.clone()));
        for pod in pods {
            let revision = revision(&pod.uid);
            store.apply(pod, revision);
        }
    }
    let late = late(&store.read(), &assignments);
    let late: Vec<_> = late.iter().map(|(node, pod)| (&**node, &*pod.name.name, pod.state)).collect();
    assert_eq!(late, [("open", "late", PodState::Waiting), ("open", "elsewhere", PodState::HandsOff)]);
}

#[test]
fn switching_hand_over_off_opens_what_is_held() {
    let machine = seen(&store(held(), false), vec![], HandOverMode::Off);
    assert!(machine.held && machine.needs_entry);
}

fn claimer(milli_cpu: i64) -> Pod {
    let mut shape = PodShape::default();
    shape.requests.set(ResourceId::CPU, milli_cpu);
    shape.resource_claims.push(model::pod::PodResourceClaim {
        name: "gpu".into(),
        source: model::pod::PodResourceClaimSource::Claim(model::NamespacedName::new("default", "c")),
    });
    Pod { shape: Arc::new(shape), ..waiting("claimer") }
}

#[test]
fn pods_with_claims_are_nominated_only_where_cpu_is_tight() {
    for (milli_cpu, expected) in [(2500, true), (1000, false)] {
        let machine = seen(&store(held(), true), vec![claimer(milli_cpu)], HandOverMode::Tolerate);
        assert_eq!(machine.nominate, expected, "{milli_cpu}m of 4 CPU");
    }
}

#[test]
fn a_machine_whose_drivers_were_given_up_is_not_held_for_pods_with_claims() {
    for (status, expected) in [("Unknown", vec!["claimer", "other"]), ("False", vec!["other"])] {
        let store = store(held(), true);
        let conditions = json!([{
            "type": DEVICES_PUBLISHED, "status": status, "reason": "a", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let newer =
            ObjectMeta { uid: Some("c".to_owned()), resource_version: Some("2".to_owned()), ..ObjectMeta::default() };
        store.apply(node_claim("c", "n", &conditions), Revision::of(&newer));
        let machine = seen(&store, vec![claimer(1000), waiting("other")], HandOverMode::Tolerate);
        let names: Vec<&str> = machine.pods.iter().map(|pod| &*pod.name.name).collect();
        assert_eq!(names, expected, "{status}");
    }
}

/// A spread that counts only nodes that its pod tolerates does not see the pods of a held machine.
#[test]
fn pods_look_into_machines_that_count_for_them_and_have_no_place_but_that_of_one_like_them() {
    let honor = NodeInclusionPolicy::Honor;
    let (ignore, four, three) = (NodeInclusionPolicy::Ignore, 4000, 3000);
    // What the pod that is bound here asks for, another that is planned here and waits, and the pod of another machine;
    // whether these are alike, and whether the last may enter its own machine; the policy; whether it looks on.
    for (bound, planned, other, alike, let_in, policy, expected) in [
        (four, 0, 1000, true, true, honor, true),
        (four, 0, 1000, true, false, honor, false),
        (three, 0, 1000, true, true, honor, false),
        (three, 1000, 1000, true, true, honor, true),
        (three, 1000, 1000, false, true, honor, false),
        (four, 0, 1000, true, true, ignore, false),
    ] {
        let held_for = |claim: &str| json!([{"key": "dovetail.sh/held", "value": claim, "effect": "NoSchedule"}]);
        let store = store(held_for("c"), true);
        add_machine(&store, "other", "m", &held_for("other"), true);
        let asking = |name: &str, milli_cpu: i64| {
            let pod = spread_by_zone(&store, waiting(name));
            let mut shape = PodShape::clone(&pod.shape);
            shape.requests.set(ResourceId::CPU, milli_cpu);
            shape.topology_spread.iter_mut().for_each(|spread| spread.node_taints_policy = policy);
            Pod { shape: Arc::new(shape), ..pod }
        };
        let here = Pod { node_name: Some("n".into()), ..asking("here", bound) };
        let may_enter = if let_in { vec![Uid::from("other")] } else { Vec::new() };
        let mut pods = vec![here, Pod { may_enter, ..asking("other", other) }];
        let assignments = Assignments::default();
        assignments.assign(&"other".into(), [waiting("other").uid]);
        if planned > 0 {
            let priority = if alike { 0 } else { -1 };
            pods.push(Pod { priority, ..asking("planned", planned) });
            assignments.assign(&"c".into(), [waiting("planned").uid]);
        }
        for pod in pods {
            let revision = revision(&pod.uid);
            store.apply(pod, revision);
        }
        let view = build(&store.read(), &assignments, NameSet::default(), [&"n".into()], HandOverMode::Tolerate);
        let onlookers: Vec<&str> = view["n"].onlookers.iter().map(|pod| &*pod.name.name).collect();
        let expected: &[&str] = if expected { &["other"] } else { &[] };
        assert_eq!(onlookers, expected, "{bound} {planned} {other} {alike} {let_in} {policy:?}");
    }
}
