//! Each rule is seen to be broken.

use serde_json::{Value, json};

use super::super::scenario::{DisruptionScenario, Nodes};
use super::*;

fn seen(nodes: Nodes) -> Seen {
    Seen::new(vec![Budget { nodes, reasons: &[] }])
}

fn note(going: &[&str], replacements: usize) -> String {
    json!({ "id": "c", "reason": "Underutilized", "nodeClaims": going, "replacements": replacements,
        "deadline": "2026-01-01T00:00:00Z" })
    .to_string()
}

/// A machine on the node of its name.
fn claim(name: &str, change: impl FnOnce(&mut Value)) -> NodeClaim {
    let mut claim = json!({
        "metadata": { "name": name, "annotations": {} },
        "spec": { "requirements": [], "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
        "status": { "nodeName": name, "providerID": name, "conditions": [
            { "type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
    });
    change(&mut claim);
    serde_json::from_value(claim).unwrap()
}

fn noted(name: &str, note: &str) -> NodeClaim {
    claim(name, |claim| claim["metadata"]["annotations"][NOTE] = json!(note))
}

fn deleted(name: &str, note: Option<&str>) -> NodeClaim {
    claim(name, |claim| {
        claim["metadata"]["annotations"] = note.map_or(json!({}), |note| json!({ NOTE: note }));
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    })
}

fn pod(name: &str, node: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "uid": name, "labels": { "app": "web" }, "annotations": {} },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn faults(seen: Seen) -> Vec<String> {
    seen.outcome.faults
}

#[test]
fn more_machines_may_not_go_at_a_time_than_the_budget_allows() {
    for (nodes, expected) in [
        (Nodes::Count(2), None),
        (Nodes::Percent(67), None),
        (Nodes::Count(1), Some("b goes for being Underutilized as 2. of 3, and 1 may")),
        (Nodes::Percent(33), Some("b goes for being Underutilized as 2. of 3, and 1 may")),
    ] {
        let mut seen = seen(nodes);
        ["a", "b", "c"].iter().for_each(|name| seen.claim(claim(name, |_| {}), true));
        let command = note(&["a", "b"], 0);
        ["a", "b"].iter().for_each(|name| seen.claim(noted(name, &command), true));
        assert_eq!(faults(seen), expected.into_iter().collect::<Vec<_>>(), "{nodes:?}");
    }
}

#[test]
fn a_machine_that_the_provider_was_asked_to_end_does_not_count_any_more() {
    for (is_terminating, expected) in
        [(true, None), (false, Some("b goes for being Underutilized as 2. of 2, and 1 may"))]
    {
        let mut seen = seen(Nodes::Count(1));
        ["a", "b"].iter().for_each(|name| seen.claim(claim(name, |_| {}), true));
        let command = note(&["a"], 0);
        seen.claim(noted("a", &command), true);
        let mut going = deleted("a", Some(&command));
        let conditions = &mut going.status.as_mut().unwrap().conditions;
        let mut terminating = conditions.first().unwrap().clone();
        terminating.type_ = INSTANCE_TERMINATING.to_owned();
        conditions.extend(is_terminating.then_some(terminating));
        seen.claim(going, true);
        seen.claim(noted("b", &note(&["b"], 0)), true);
        assert_eq!(faults(seen), expected.into_iter().collect::<Vec<_>>(), "{is_terminating}");
    }
}

#[test]
fn a_machine_may_not_go_that_has_a_protected_pod() {
    for (is_protected, since, faulty) in [(true, GRACE, true), (false, GRACE, false), (true, Duration::ZERO, false)] {
        let mut seen = seen(Nodes::Percent(100));
        seen.claim(claim("a", |_| {}), true);
        let pod = pod("p", "a", |pod| {
            if is_protected {
                pod["metadata"]["annotations"][DO_NOT_DISRUPT] = json!("true");
            }
        });
        seen.pod(&pod, true);
        if let Some((_, bound)) = seen.pods.get_mut("p").and_then(|pod| pod.node.as_mut()) {
            *bound = bound.checked_sub(since).unwrap();
        }
        seen.claim(noted("a", &note(&["a"], 0)), true);
        assert_eq!(!faults(seen).is_empty(), faulty, "{is_protected} {since:?}");
    }
}

#[test]
fn a_machine_goes_by_a_command_and_after_its_replacements() {
    let command = note(&["a"], 1);
    let mut unready = noted("r", &command);
    unready.status.as_mut().unwrap().conditions.clear();
    for (replacement, note, expected) in [
        (Some(noted("r", &command)), Some(&command), None),
        (Some(unready), Some(&command), Some("a is deleted when 0 of its 1 replacements are initialized")),
        (None, Some(&command), Some("a is deleted when 0 of its 1 replacements are initialized")),
        (None, None, Some("a is deleted without a command")),
    ] {
        let mut seen = seen(Nodes::Percent(100));
        seen.claim(claim("a", |_| {}), true);
        if let Some(note) = note {
            seen.claim(noted("a", note), true);
        }
        replacement.into_iter().for_each(|replacement| seen.claim(replacement, true));
        seen.claim(deleted("a", note.map(String::as_str)), true);
        assert_eq!(faults(seen), expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_pod_disruption_budget_holds_once_all_pods_have_run() {
    let scenario = (0..).map(DisruptionScenario::random).find(|scenario| {
        let apps = scenario.begin().apps;
        apps.values().any(|app| app.max_unavailable == Some(1) && app.replicas > 2)
    });
    let scenario = scenario.unwrap();
    let mut state = scenario.begin();
    state.apps.retain(|_, app| app.max_unavailable == Some(1) && app.replicas > 2);
    let (name, app) = state.apps.first_key_value().unwrap();
    for (cpu, there, faults) in
        [(app.cpu(), app.replicas, 1), ("7".to_owned(), app.replicas, 0), (app.cpu(), app.replicas + 1, 0)]
    {
        let of_app = |index: u32, is_ready: bool| {
            pod(&format!("p{index}"), "a", |pod| {
                pod["metadata"]["labels"]["app"] = json!(name);
                pod["spec"]["containers"] = json!([{ "name": "c", "resources": { "requests": { "cpu": cpu } } }]);
                if !is_ready {
                    pod["status"] = json!({});
                }
            })
        };
        let mut seen = seen(Nodes::Percent(100));
        (0..there).for_each(|index| seen.pod(&of_app(index, true), true));
        seen.apps.clone_from(&state.apps);
        seen.pod(&of_app(0, true), true);
        seen.pod(&of_app(0, false), true);
        assert!(seen.outcome.faults.is_empty(), "{:?}", seen.outcome.faults);
        for index in [1, 2] {
            seen.pod(&of_app(index, true), false);
            assert_eq!(seen.outcome.faults.len(), faults, "p{index} of {there}: {:?}", seen.outcome.faults);
        }
    }
}

#[test]
fn a_fleet_is_at_rest_when_its_pods_run_and_nothing_goes() {
    let mut seen = seen(Nodes::Percent(100));
    seen.last_change = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    let observer = |seen: Seen| Observer { seen: Arc::new(Mutex::new(seen)), _watching: JoinSet::new() };
    seen.claims.insert("a".to_owned(), claim("a", |_| {}));
    let rested = observer(seen);
    rested.is_at_rest(Duration::from_secs(30)).unwrap();
    assert!(rested.is_at_rest(Duration::from_secs(90)).is_err(), "not for that long");
    lock(&rested.seen).claims.insert("b".to_owned(), noted("b", &note(&["b"], 0)));
    assert!(rested.is_at_rest(Duration::ZERO).is_err());
    lock(&rested.seen).claims.remove("b");
    lock(&rested.seen).pod(&pod("p", "a", |_| {}), true);
    assert!(rested.is_at_rest(Duration::ZERO).is_err(), "a pod of no Deployment");
}
