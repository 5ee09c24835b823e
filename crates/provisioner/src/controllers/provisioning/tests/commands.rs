//! Pods of machines that commands of disruption take away.

use super::*;
use crate::world::leaving::OfCommands;
use crate::world::store::Revision;
use crate::world::store::test_objects::condition;
use crate::world::successors::Succession;

const NOTE: &str =
    r#"{"id":"1","reason":"Drifted","nodeClaims":["old"],"replacements":1,"deadline":"2026-01-01T00:10:00Z"}"#;

/// A machine for one pod, and its Node unless it is still coming.
pub(super) fn machine(store: &ClusterStore, name: &str, (has_note, has_node): (bool, bool), planned: &str) {
    let condition = |kind: &str| condition(kind, "True", "2026-01-01T00:00:20Z");
    let mut notes = json!({annotations::PLANNED_PODS: planned});
    if has_note {
        notes[annotations::DISRUPTION_COMMAND] = NOTE.into();
    }
    let mut conditions = vec![condition("Launched")];
    if has_node {
        conditions.extend([condition("Initialized"), condition("DisruptionReason")]);
    }
    let room = json!({"cpu": "2", "memory": "8Gi", "pods": "10"});
    store.show_node_claim(json!({
        "metadata": {"name": name, "annotations": notes, "labels": {labels::NODEPOOL: "general"}},
        "spec": {"resources": {"requests": room}},
        "status": {"providerID": name, "conditions": conditions, "capacity": room, "allocatable": room},
    }));
    if has_node {
        store.show_node(json!({
            "metadata": {"name": format!("node-{name}"), "labels": {labels::NODEPOOL: "general"}},
            "spec": {"providerID": name}, "status": {"allocatable": room},
        }));
    }
}

pub(super) fn runs_on_old(name: &str) -> Value {
    pod(name, |pod| {
        pod["spec"]["nodeName"] = "node-old".into();
        pod["status"] = json!({"phase": "Running"});
    })
}

/// Where each pod goes: `NodeClaim: pods`.
fn places(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let names = |pods: &[scheduling::snapshot::PodId]| {
        pods.iter().map(|&pod| snapshot.pods[pod].pod.name.name.to_string()).collect::<Vec<_>>().join(" ")
    };
    let on_nodes = plan.existing.iter().map(|placement| {
        let claim = snapshot.nodes[placement.node].node_claim.as_deref().unwrap_or("none");
        format!("{claim}: {}", names(&placement.pods))
    });
    let machines = plan.machines.iter().map(|machine| format!("launch: {}", names(&machine.pods)));
    on_nodes.chain(machines).collect()
}

pub(super) fn planned_with(store: &ClusterStore, succession: &Succession) -> (Snapshot, Plan) {
    let before = snapshot::Before { planned: &Default::default(), succession, left_out: Default::default() };
    let snapshot = snapshot_with(store, &pool_object(node_pool()), before);
    let plan = scheduling::provisioning::plan(&snapshot);
    assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    (snapshot, plan)
}

fn planned_places(store: &ClusterStore, succession: &Succession) -> Vec<String> {
    let (snapshot, plan) = planned_with(store, succession);
    places(&snapshot, &plan)
}

#[test]
fn a_pod_that_waits_does_not_get_the_room_that_a_command_has_launched_for_another() {
    let store = store([runs_on_old("runs"), pod("a-waits", |_| {})]);
    let nothing = Succession::default();
    machine(&store, "old", (true, true), "uid-runs");
    // Of no command: its room is anybody's.
    machine(&store, "new", (false, false), "uid-runs");
    assert_eq!(planned_places(&store, &nothing), ["new: a-waits"]);
    store.forget::<NodeClaim>(&"new".into());
    machine(&store, "new", (true, false), "uid-runs");
    assert_eq!(planned_places(&store, &nothing), ["new: runs", "launch: a-waits"]);
    let (snapshot, plan) = planned_with(&store, &nothing);
    let of_commands = OfCommands::now(&store.read(), &nothing);
    assert!(round::only_of_commands(&snapshot, &plan, &of_commands).is_empty(), "the new machine is for who waits");
}

#[test]
fn nothing_is_launched_for_pods_whose_command_has_launched_what_they_need() {
    let store = store([runs_on_old("runs"), runs_on_old("runs-too")]);
    machine(&store, "old", (true, true), "");
    machine(&store, "new", (true, false), "uid-runs");
    let nothing = Succession::default();
    let (snapshot, plan) = planned_with(&store, &nothing);
    assert_eq!(places(&snapshot, &plan), ["new: runs", "launch: runs-too"], "which had a place on some node");
    let of_commands = OfCommands::now(&store.read(), &nothing);
    assert_eq!(round::only_of_commands(&snapshot, &plan, &of_commands).len(), 1);
}

#[test]
fn a_pod_that_lost_its_place_makes_no_machine_larger_while_it_runs() {
    let store = store([runs_on_old("runs"), runs_on_old("without-place"), pod("a-waits", |_| {})]);
    machine(&store, "old", (true, true), "");
    let mut old = NodeClaim::clone(store.read().node_claims.get("old").unwrap());
    old.metadata.resource_version = Some("2".into());
    old.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:30Z".into()).unwrap();
    let revision = Revision::of(&old.metadata);
    store.apply(old, revision);
    let mut succession = Succession::default();
    succession.places.insert("uid-runs".into(), "there".into());
    let (snapshot, plan) = planned_with(&store, &succession);
    assert_eq!(places(&snapshot, &plan), ["launch: a-waits runs", "launch: without-place"]);
    let of_commands = OfCommands::now(&store.read(), &succession);
    assert_eq!(
        round::of_commands_beside_others(&snapshot, &plan, &of_commands),
        BTreeSet::from(["uid-runs".into()]),
        "its command has launched nothing for the other"
    );
}

#[test]
fn the_place_of_a_pod_that_is_gone_is_kept_until_its_successor_comes() {
    let store = store([runs_on_old("runs"), pod("a-waits", |_| {})]);
    machine(&store, "there", (false, true), "");
    let gone = Arc::clone(store.read().pod_by_uid(&"uid-runs".into()).unwrap());
    store.forget::<model::Pod>(&gone.name);
    assert_eq!(planned_places(&store, &Succession::default()), ["there: a-waits"]);
    let succession = Succession { kept: vec![(gone, "there".into())], ..Succession::default() };
    assert_eq!(planned_places(&store, &succession), ["launch: a-waits"]);
}
