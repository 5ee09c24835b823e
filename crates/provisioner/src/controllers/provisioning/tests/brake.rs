//! Which machines were launched in vain.

use api::annotations::LAUNCHED_FOR;

use super::*;
use crate::controllers::provisioning::brake::launched_for::Launched;
use crate::controllers::provisioning::brake::{InVain, judge};
use crate::controllers::provisioning::pod_class::PodClass;
use crate::world::store::test_objects::condition;

/// A cluster in which a pod waits for which the machine `m` was launched.
struct Setup {
    store: ClusterStore,
    assignments: Assignments,
}

impl Setup {
    fn new() -> Self {
        let setup = Self { store: store([pod("waits", |_| {})]), assignments: Assignments::default() };
        setup.claim(|_| {});
        setup
    }

    fn claim(&self, change: impl FnOnce(&mut Value)) {
        let class = {
            let state = self.store.read();
            let waits = state.unbound_pods().next().unwrap();
            PodClass::of(waits, &state.interner)
        };
        let mut claim = json!({
            "metadata": {"name": "m", "labels": {labels::NODEPOOL: "general"},
                "annotations": {LAUNCHED_FOR: format!("{class}:2")}},
            "status": {"providerID": "id-m", "conditions": [condition("Initialized", "True", "2026-01-01T00:00:20Z")]},
        });
        change(&mut claim);
        self.store.show_node_claim(claim);
    }

    fn node(self, cpu: &str, change: impl FnOnce(&mut Value)) -> Self {
        let mut node = json!({
            "metadata": {"name": "node", "labels": {labels::INSTANCE_TYPE: "t-2", labels::NODEPOOL: "general"}},
            "spec": {"providerID": "id-m"}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
        });
        change(&mut node);
        self.store.show_node(node);
        self
    }

    fn runs(self, name: &str, cpu: &str, change: impl FnOnce(&mut Value)) -> Self {
        let pod = pod(name, |pod| {
            pod["spec"]["nodeName"] = json!("node");
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
            change(pod);
        });
        self.store.show_pod(pod);
        self
    }

    fn in_vain(&self) -> Vec<InVain> {
        let snapshot = snapshot_of(&self.store, &pool_object(node_pool()), &self.assignments);
        let plan = scheduling::provisioning::plan(&snapshot);
        assert_eq!(plan.machines.len(), 1, "another machine is wanted");
        judge::in_vain(&snapshot, &plan, &Launched::all(&self.store.read(), &snapshot))
    }

    fn is_in_vain(&self) -> bool {
        !self.in_vain().is_empty()
    }
}

#[test]
fn a_machine_that_could_not_hold_its_pod_was_launched_in_vain_and_says_what_it_has() {
    let told = Setup::new().node("1", |_| {}).in_vain();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((told.before, told.at), (2, Timestamp::parse("2026-01-01T00:00:20Z").unwrap()));
    assert_eq!((told.node_pool.as_str(), told.instance_type.as_deref()), ("general", Some("t-2")));
    assert!(told.room.contains(&("cpu".to_owned(), 1000)), "{:?}", told.room);
    let expected =
        "machine node was launched for pods such as default/waits and took none in: beside daemons it has cpu: 1";
    assert!(told.message.starts_with(expected), "{}", told.message);
    let taint = json!([{"key": "surprise", "effect": "NoSchedule"}]);
    let told = Setup::new().node("2", |node| node["spec"]["taints"] = taint).in_vain();
    assert!(told[0].message.ends_with("took none in: it has the taint surprise:NoSchedule"), "{}", told[0].message);
    assert!(Setup::new().node("2", |_| {}).runs("daemon", "1", of_daemon_set).is_in_vain());
    let mirror = |pod: &mut Value| pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    assert!(Setup::new().node("2", |_| {}).runs("static", "1", mirror).is_in_vain());
}

#[test]
fn a_machine_that_took_in_others_or_a_pod_of_the_class_was_not_launched_in_vain() {
    assert!(!Setup::new().node("2", |_| {}).runs("other", "1", |_| {}).is_in_vain());
    assert!(!Setup::new().node("2", |_| {}).runs("sibling", "1500m", |_| {}).is_in_vain());
    // The one that was pushed out by a daemon is on its way out.
    let leaves = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    let pushed_out = Setup::new().node("2", |_| {}).runs("sibling", "1500m", leaves);
    assert!(pushed_out.runs("daemon", "1", of_daemon_set).is_in_vain());
}

#[test]
fn a_machine_is_judged_once_it_has_come_and_while_it_is_to_stay() {
    let setup = Setup::new().node("1", |_| {});
    setup.claim(|claim| claim["status"]["conditions"][0]["status"] = json!("Unknown"));
    assert!(!setup.is_in_vain());
    setup.claim(|claim| claim["status"]["conditions"][0]["type"] = json!("Registered"));
    assert!(setup.is_in_vain(), "it will be as small when it is initialized");
    let going = |node: &mut Value| node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    assert!(!Setup::new().node("1", going).is_in_vain());
    let setup = Setup::new().node("1", |_| {});
    setup.claim(|claim| claim["metadata"]["annotations"] = json!({LAUNCHED_FOR: "0000000000000001"}));
    assert!(!setup.is_in_vain(), "it was launched for others");
}

#[test]
fn an_empty_machine_was_launched_in_vain_if_the_planner_cannot_put_its_own_pod_there() {
    // Its port is taken by a daemon, which resources do not show.
    let port = json!([{"containerPort": 80, "hostPort": 80}]);
    let with_port = |pod: &mut Value| pod["spec"]["containers"][0]["ports"] = port.clone();
    let setup = Setup { store: store([pod("waits", with_port)]), assignments: Assignments::default() };
    setup.claim(|_| {});
    let setup = setup.node("4", |_| {}).runs("daemon", "1", |pod| {
        of_daemon_set(pod);
        with_port(pod);
    });
    assert!(!setup.is_in_vain(), "nothing says that the pod was tried there");
    setup.assignments.assign(&"m".into(), [Uid::from("uid-waits")]);
    assert!(setup.is_in_vain());
    setup.claim(|claim| claim["status"]["conditions"][0]["type"] = json!("Registered"));
    assert!(!setup.is_in_vain(), "what it has to offer may not be known yet");
    setup.claim(|_| {});
    assert!(!setup.runs("other", "1", |_| {}).is_in_vain(), "it took in others");
}
