use std::time::Duration;

use model::pod::PodPhase;
use serde_json::{Value, json};

use super::*;
use crate::runtime::clock::MockClock;
use crate::world::store::{ClusterStore, Revision};
use crate::world::test_pods::pod;

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(second)
}

fn on(node: &str) -> Pod {
    Pod { node_name: Some(node.into()), ..pod("p") }
}

/// What happens, the pod before and after, and the nodes of which it is an event.
type Case<'a> = (&'a str, Option<&'a Pod>, Option<&'a Pod>, &'a [&'a str]);

#[test]
fn pods_that_come_end_or_begin_to_go_are_events_and_others_are_not() {
    let waiting = pod("p");
    let there = on("n");
    let going = Pod { deletion_timestamp: Some(at(9)), ..on("n") };
    let ended = Pod { phase: PodPhase::Succeeded, ..on("n") };
    let ended_going = Pod { phase: PodPhase::Failed, ..going.clone() };
    let daemon = Pod { is_daemon: true, ..on("n") };
    let successor = Pod { uid: "other".into(), ..on("m") };
    let older = Pod { started_at: Some(at(1)), ..on("n") };
    let cases: [Case<'_>; 17] = [
        ("bound", Some(&waiting), Some(&there), &["n"]),
        ("made and bound between two looks", None, Some(&there), &["n"]),
        ("made", None, Some(&waiting), &[]),
        ("never bound", Some(&waiting), None, &[]),
        ("something else", Some(&there), Some(&older), &[]),
        ("begins to go", Some(&there), Some(&going), &["n"]),
        ("ends", Some(&there), Some(&ended), &["n"]),
        ("ends on its way out", Some(&going), Some(&ended_going), &["n"]),
        ("begins to go when it has ended", Some(&ended), Some(&ended_going), &[]),
        ("goes at once", Some(&there), None, &["n"]),
        ("goes as was told", Some(&going), None, &[]),
        ("goes after its end", Some(&ended), None, &[]),
        ("another pod of that name elsewhere", Some(&there), Some(&successor), &["n", "m"]),
        ("another after it was to go", Some(&going), Some(&successor), &["m"]),
        ("a daemon comes", None, Some(&daemon), &[]),
        ("a daemon goes", Some(&daemon), None, &[]),
        ("nothing", None, None, &[]),
    ];
    for (what, before, after, expected) in cases {
        let nodes: Vec<&str> = nodes_of_event(before, after).map(|node| &**node).collect();
        assert_eq!(nodes, expected, "{what}");
    }
}

#[test]
fn an_event_is_written_ten_seconds_after_the_last_one_at_the_earliest() {
    let now = at(1000);
    let cases = [
        (None, 1000, true),
        (Some(990), 1000, true),
        (Some(991), 1000, false),
        (Some(1000), 1000, false),
        // It was noted before the one that is written.
        (Some(1000), 980, false),
        // A clock was wrong.
        (Some(1001), 1000, true),
    ];
    for (last, event, expected) in cases {
        assert_eq!(is_to_be_written(last.map(at), at(event), now), expected, "{last:?} {event}");
    }
}

fn node_claim(name: &str, status: Value) -> NodeClaim {
    let mut status = status;
    status["providerID"] = format!("id-{name}").into();
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "uid": name},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": status,
    }))
    .unwrap()
}

fn event(text: &str) -> Value {
    json!({"lastPodEventTime": text})
}

fn show_node(store: &ClusterStore, name: &str) {
    store.show_node(json!({"metadata": {"name": name}, "spec": {"providerID": format!("id-{name}")}}));
}

fn revision(uid: &str) -> Revision {
    Revision { uid: uid.into(), resource_version: 0 }
}

#[test]
fn what_was_made_after_the_last_event_was_bound_while_nobody_looked() {
    let initialized = json!({"conditions": [{
        "type": "Initialized", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "1970-01-01T00:01:40Z",
    }]});
    let store = ClusterStore::new();
    let claims = [
        ("missed", event("1970-01-01T00:01:40Z"), 200, Some(200)),
        ("known", event("1970-01-01T00:05:00Z"), 200, None),
        ("first", initialized.clone(), 200, Some(200)),
        ("before-it-was-initialized", initialized, 90, None),
        ("not-initialized", json!({}), 200, None),
    ];
    for (name, status, _, _) in &claims {
        store.apply(node_claim(name, status.clone()), revision(name));
        show_node(&store, name);
    }
    for (name, _, made, _) in &claims {
        for (is_daemon, created_at, suffix) in [(false, *made, "pod"), (true, 900, "daemon")] {
            let pod = Pod { created_at: at(created_at), is_daemon, ..pod(&format!("{name}-{suffix}")) };
            let pod = Pod { node_name: Some((*name).into()), ..pod };
            let uid = pod.uid.to_string();
            store.apply(pod, revision(&uid));
        }
    }
    let (events, now) = (PodEvents::default(), at(1000));
    events.catch_up(&store.read(), now);
    for (name, _, _, expected) in claims {
        let node_claim = store.read().node_claims.get(name).cloned().unwrap();
        assert_eq!(events.to_write(&name.into(), &node_claim, now), expected.map(at), "{name}");
    }
}

#[test]
fn a_time_that_has_yet_to_come_is_mended() {
    let (events, now) = (PodEvents::default(), Timestamp::parse("2026-01-01T00:00:00Z").unwrap());
    let name = NodeClaimName::from("a");
    let to_write = |time: &str| events.to_write(&name, &node_claim("a", event(time)), now);
    assert_eq!(to_write("2027-01-01T00:00:00Z"), Some(now));
    assert_eq!(to_write("2026-01-01T00:00:09Z"), None, "two clocks may differ a little");
    assert_eq!(to_write("2025-01-01T00:00:00Z"), None);
}

#[test]
fn what_is_noted_while_an_earlier_event_is_written_stays() {
    let events = PodEvents::default();
    let (name, claim) = (NodeClaimName::from("a"), node_claim("a", json!({})));
    events.note(&name, at(10));
    let written = events.to_write(&name, &claim, at(10));
    assert_eq!(written, Some(at(10)));
    events.note(&name, at(25));
    events.settle(&name, written);
    assert_eq!(events.to_write(&name, &claim, at(25)), Some(at(25)));
    events.settle(&name, Some(at(25)));
    assert_eq!(events.to_write(&name, &claim, at(25)), None);
}

#[test]
fn a_thousand_pods_are_one_event() {
    let store = Arc::new(ClusterStore::new());
    store.apply(node_claim("n", json!({})), revision("n"));
    show_node(&store, "n");
    let clock = Arc::new(MockClock::at(at(100)));
    let (queue, events) = (Arc::new(WorkQueue::new()), Arc::new(PodEvents::default()));
    subscribe(&store, clock.clone(), &queue, &events);
    let bind = |name: &str| {
        store.apply(Pod { node_name: Some("n".into()), ..pod(name) }, revision(name));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _guard = runtime.enter();
    (0..1000).for_each(|index| bind(&format!("p{index}")));
    assert_eq!(queue.len(), 1);
    let name = NodeClaimName::from("n");
    assert_eq!(events.to_write(&name, &node_claim("n", json!({})), at(100)), Some(at(100)));
    events.settle(&name, Some(at(100)));
    store.apply(node_claim("n", event("1970-01-01T00:01:40Z")), revision("n"));
    for (wait, is_noted) in [(9, false), (1, true)] {
        clock.advance(Duration::from_secs(wait));
        bind(&format!("after-{wait}"));
        assert_eq!(events.0.lock().contains_key(&name), is_noted);
    }
}
