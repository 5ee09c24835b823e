use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value;

use super::*;
use crate::Options;
use crate::fake_api::{Calls, client, refused};
use crate::record::tests::record;

/// A loop whose calls are answered by `answer`, and the time.
fn registration(
    answer: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Registration, Calls, Arc<AtomicI64>) {
    let (client, calls) = client(answer);
    let now = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&now);
    let clock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
    let provider = KwokCloudProvider::with_clock(client, Options::new("ns"), clock);
    (Registration { is_synced: true, has_looked_back: true, ..Registration::new(provider) }, calls, now)
}

fn named(name: &str, register_at: i64) -> Record {
    Record { node_name: name.into(), register_at: Timestamp(register_at), ..record() }
}

fn apply(registration: &mut Registration, record: &Record) {
    registration.observe(watcher::Event::Apply(record.to_config_map("ns")));
}

/// Accepts everything: a Node for Nodes, a ConfigMap for ConfigMaps.
fn accepted(call: &str) -> Option<(u16, Value)> {
    let kind = if call.contains("/configmaps") { "ConfigMap" } else { "Node" };
    Some((200, json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "x", "uid": "u"}})))
}

#[tokio::test]
async fn a_node_is_made_when_its_time_has_come_and_once() {
    let (mut registration, calls, now) = registration(accepted);
    apply(&mut registration, &named("a", 5_000));
    assert_eq!(registration.wait(), Duration::from_secs(5));
    registration.pass().await;
    assert_eq!(calls.taken(), [] as [&str; 0]);
    now.store(5_000, Ordering::SeqCst);
    registration.pass().await;
    let expected = ["POST /api/v1/nodes", "PUT /api/v1/namespaces/ns/configmaps/kwok-instance-a"];
    assert_eq!(calls.taken(), expected);
    registration.pass().await;
    assert_eq!(calls.taken(), [] as [&str; 0]);
    assert_eq!(registration.wait(), IDLE_PERIOD);
}

#[tokio::test]
async fn a_node_that_cannot_be_made_is_tried_later_and_later_and_does_not_hold_up_others() {
    let (mut registration, calls, now) = registration(|call| match call {
        "POST /api/v1/nodes" => refused(500, "InternalError"),
        call => accepted(call),
    });
    apply(&mut registration, &named("a", 0));
    registration.pass().await;
    assert_eq!(calls.taken(), ["POST /api/v1/nodes"]);
    for delay in [1_000_u64, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
        assert_eq!(registration.wait(), Duration::from_millis(delay));
        registration.pass().await;
        assert_eq!(calls.taken(), [] as [&str; 0], "too early");
        now.fetch_add(i64::try_from(delay).unwrap(), Ordering::SeqCst);
        registration.pass().await;
        assert_eq!(calls.taken(), ["POST /api/v1/nodes"]);
    }
    apply(&mut registration, &named("b", 0));
    registration.pass().await;
    assert_eq!(calls.taken(), ["POST /api/v1/nodes"], "b is tried at once although a waits");
}

#[tokio::test]
async fn a_node_is_taken_back_if_the_machines_end_was_asked_for_meanwhile() {
    let terminating = Record { state: State::Terminating, ..named("a", 0) }.to_config_map("ns");
    let (mut registration, calls, _) = registration(move |call| match call.split(' ').next() {
        Some("PUT") => refused(409, "Conflict"),
        Some("GET") => Some((200, serde_json::to_value(&terminating).unwrap())),
        _ => accepted(call),
    });
    apply(&mut registration, &named("a", 0));
    registration.pass().await;
    let expected = [
        "POST /api/v1/nodes",
        "PUT /api/v1/namespaces/ns/configmaps/kwok-instance-a",
        "GET /api/v1/namespaces/ns/configmaps/kwok-instance-a",
        "DELETE /api/v1/nodes/a",
    ];
    assert_eq!(calls.taken(), expected);
}

#[tokio::test]
async fn somebody_elses_node_of_the_same_name_is_left_alone() {
    let (mut registration, calls, _) = registration(|call| match call {
        "POST /api/v1/nodes" => refused(409, "AlreadyExists"),
        call => accepted(call),
    });
    apply(&mut registration, &named("a", 0));
    registration.pass().await;
    assert_eq!(calls.taken(), ["POST /api/v1/nodes", "GET /api/v1/nodes/a"]);
}

#[tokio::test]
async fn a_machine_that_vanished_while_the_watch_was_broken_is_noticed_by_the_next_list() {
    let (mut registration, calls, _) = registration(|_| refused(404, "NotFound"));
    for name in ["a", "b"] {
        apply(&mut registration, &Record { state: State::Running, ..named(name, 0) });
    }
    registration.observe(watcher::Event::Init);
    let b = Record { state: State::Running, ..named("b", 0) };
    registration.observe(watcher::Event::InitApply(b.to_config_map("ns")));
    registration.observe(watcher::Event::InitDone);
    registration.pass().await;
    assert_eq!(calls.taken(), ["GET /api/v1/nodes/a"]);
}

#[tokio::test]
async fn an_orphan_that_cannot_be_dealt_with_does_not_keep_machines_from_coming_up() {
    let (mut registration, calls, now) = registration(|call| match call {
        "GET /api/v1/nodes/gone" => refused(500, "InternalError"),
        call => accepted(call),
    });
    registration.orphans.insert("gone".into());
    apply(&mut registration, &named("a", 0));
    registration.pass().await;
    let expected =
        ["GET /api/v1/nodes/gone", "POST /api/v1/nodes", "PUT /api/v1/namespaces/ns/configmaps/kwok-instance-a"];
    assert_eq!(calls.taken(), expected);
    registration.pass().await;
    assert_eq!(calls.taken(), [] as [&str; 0], "it waits");
    now.store(1_000, Ordering::SeqCst);
    registration.pass().await;
    assert_eq!(calls.taken(), ["GET /api/v1/nodes/gone"]);
}
