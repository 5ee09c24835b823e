use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(&format!("2026-01-01T{text}Z")).unwrap()
}

fn policy(condition_type: &str, regex: &str, toleration_s: i64, action: RepairAction) -> RepairPolicy {
    RepairPolicy {
        condition_type: condition_type.to_owned(),
        condition_status: ConditionStatus::False,
        reason_regex: regex.to_owned(),
        toleration: DurationMs::from_seconds(toleration_s),
        termination_grace_period: None,
        priority: 0,
        action,
    }
}

fn replace(condition_type: &str, regex: &str) -> RepairPolicy {
    policy(condition_type, regex, 600, RepairAction::ReplaceNode)
}

fn set(policies: &[RepairPolicy]) -> RepairPolicies {
    RepairPolicies::new(policies).unwrap()
}

/// A Node of midnight with conditions of that type, reason and hour that are false.
fn node(conditions: &[(&str, &str, &str)]) -> Node {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, reason, since)| {
            let since = format!("2026-01-01T{since}Z");
            json!({"type": type_, "status": "False", "reason": reason, "lastTransitionTime": since})
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn claim(annotations: &Value, conditions: &Value) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a", "annotations": annotations},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, since: &str) -> Value {
    let since = format!("2026-01-01T{since}Z");
    json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": since})
}

#[test]
fn a_condition_counts_once_it_has_lasted_for_the_toleration() {
    let policies = set(&[replace("Ready", "")]);
    let of = |node: &Node, now: &str| match diagnose(node, None, &policies, at(now)) {
        Diagnosis::Healthy => "healthy".to_owned(),
        Diagnosis::Tolerated(until) => until.to_string(),
        Diagnosis::Broken(repair) => repair.condition(),
    };
    let broken = node(&[("Ready", "KubeletDown", "01:00:00")]);
    assert_eq!(of(&broken, "01:09:59"), "2026-01-01T01:10:00Z");
    assert_eq!(of(&broken, "01:10:00"), "Ready=False (KubeletDown)");
    // A time before the Node itself is not believed.
    let backdated: Node = {
        let mut node = node(&[("Ready", "", "00:30:00")]);
        node.metadata.creation_timestamp = serde_json::from_value(json!("2026-01-01T02:00:00Z")).unwrap();
        node
    };
    assert_eq!(of(&backdated, "02:09:59"), "2026-01-01T02:10:00Z");
    assert_eq!(of(&backdated, "02:10:00"), "Ready=False (no reason)");
    assert_eq!(of(&node(&[("Disk", "X", "00:00:00")]), "09:00:00"), "healthy");
}

#[test]
fn after_a_reboot_the_toleration_begins_anew() {
    let policies = set(&[replace("Ready", "")]);
    let broken = node(&[("Ready", "Down", "01:00:00")]);
    let rebooted = |status: &str| claim(&json!({}), &json!([condition("Rebooting", status, "03:00:00")]));
    let until = |claim: &NodeClaim| diagnose(&broken, Some(claim), &policies, at("03:05:00"));
    assert_eq!(until(&rebooted("False")), Diagnosis::Tolerated(at("03:10:00")));
    assert!(matches!(until(&rebooted("True")), Diagnosis::Broken(_)));
}

#[test]
fn findings_merge_into_the_most_disruptive_action_and_the_shortest_drain() {
    let seconds = DurationMs::from_seconds;
    let reboot = RepairPolicy {
        termination_grace_period: Some(seconds(60)),
        priority: 90,
        ..policy("Gpu", "Xid", 0, RepairAction::RebootNode)
    };
    let slow = RepairPolicy { termination_grace_period: Some(seconds(300)), ..replace("Ready", "") };
    let policies = set(&[slow, reboot]);
    let both = node(&[("Ready", "Down", "01:00:00"), ("Gpu", "Xid79", "01:00:00")]);
    let repair = |now: &str| match diagnose(&both, None, &policies, at(now)) {
        Diagnosis::Broken(repair) => repair,
        other => panic!("{other:?}"),
    };
    // Only the reboot's toleration is over.
    let first = repair("01:00:30");
    assert_eq!((first.action, first.drain_bound), (RepairAction::RebootNode, Some(seconds(60))));
    assert_eq!(first.score, seconds(30 * 60 + 30), "one rank, and half a minute");
    let later = repair("01:10:00");
    assert_eq!((later.action, later.drain_bound), (RepairAction::ReplaceNode, Some(seconds(60))));
    assert_eq!(later.condition(), "Ready=False (Down)");
    assert_eq!(later.score, seconds(30 * 60 + 600), "the highest of the scores");
}

#[test]
fn of_equal_actions_priority_then_time_then_name_decide() {
    let with = |name: &str, regex: &str, priority| RepairPolicy { priority, ..replace(name, regex) };
    let because = |policies: &[RepairPolicy], conditions: &[(&str, &str, &str)]| {
        let policies = set(policies);
        match diagnose(&node(conditions), None, &policies, at("09:00:00")) {
            Diagnosis::Broken(repair) => repair.because.policy.condition_type.clone(),
            other => panic!("{other:?}"),
        }
    };
    let both = [("A", "r", "02:00:00"), ("B", "r", "01:00:00")];
    assert_eq!(because(&[with("A", "", 5), with("B", "r", 1)], &both), "A", "priority");
    assert_eq!(because(&[with("A", "", 5), with("B", "r", 5)], &both), "B", "earlier");
    let same = [("B", "r", "01:00:00"), ("A", "r", "01:00:00")];
    assert_eq!(because(&[with("A", "", 5), with("B", "r", 5)], &same), "A", "name");
}

#[test]
fn a_fifth_of_a_pool_rounded_up_may_be_unhealthy() {
    for (nodes, most) in [(1, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20)] {
        let hold = |unhealthy| Health { by_pool: BTreeMap::from([("a", (nodes, unhealthy))]) }.hold("a");
        assert_eq!(hold(most), None, "{most} of {nodes}");
        let unhealthy = most + 1;
        assert_eq!(hold(unhealthy), Some(RepairHold::TooMany { unhealthy, nodes }));
    }
}

#[test]
fn unhealthy_is_what_policies_name_at_any_time_and_for_any_reason() {
    let policies = set(&[replace("Ready", ""), replace("Gpu", "^Xid")]);
    assert!(is_unhealthy(&node(&[("Gpu", "other", "00:00:00")]), &policies));
    assert!(!is_unhealthy(&node(&[("Disk", "Xid", "00:00:00")]), &policies));
}

#[test]
fn reboots_are_remembered_for_a_day_and_those_that_never_began_are_not() {
    let now = at("12:00:00");
    let of = |text: &str, conditions: &Value| -> Vec<String> {
        let claim = claim(&json!({ "dovetail.sh/reboots": text }), conditions);
        reboots(&claim, now).iter().map(Timestamp::to_string).collect()
    };
    let ended = json!([condition("Rebooting", "False", "11:00:00")]);
    let two = "2026-01-01T10:00:00Z,2026-01-01T08:00:00.5Z";
    assert_eq!(of(two, &ended), ["2026-01-01T08:00:00.5Z", "2026-01-01T10:00:00Z"]);
    assert_eq!(of("2025-12-31T12:00:00Z,2026-01-01T10:00:00Z", &ended), ["2026-01-01T10:00:00Z"], "a day ago");
    assert_eq!(of("2026-01-01T10:00:00Z,2026-01-01T11:30:00Z", &ended), ["2026-01-01T10:00:00Z"], "never begun");
    assert_eq!(of("2026-01-01T10:00:00Z", &json!([])), [""; 0], "never begun");
    // Written and begun within one second.
    let begun = json!([condition("Rebooting", "True", "11:00:00")]);
    assert_eq!(of("2026-01-01T11:00:00.9Z", &begun), ["2026-01-01T11:00:00.9Z"]);
    assert_eq!(of("yesterday,,2026-01-01T10:00:00Z", &ended), ["2026-01-01T10:00:00Z"]);
    let next = reboots_with(&claim(&json!({ "dovetail.sh/reboots": two }), &ended), now);
    assert_eq!(next, "2026-01-01T10:00:00Z,2026-01-01T12:00:00Z", "no more than matter");
}

/// Nodes `a` and so on of NodePool `p`; the first have these conditions, since one o'clock, and annotations.
fn sources(nodes: usize, broken: &[(&str, Value)]) -> RepairSources {
    let reboot = policy("Stuck", ".*", 60, RepairAction::RebootNode);
    let bounded = RepairPolicy { termination_grace_period: Some(DurationMs::from_seconds(30)), ..replace("Ready", "") };
    let nodes = ('a'..).take(nodes).enumerate().map(|(index, name)| {
        let (type_, annotations) = broken.get(index).cloned().unwrap_or(("Fine", json!({})));
        let mut node = node(&[(type_, "R", "01:00:00")]);
        node.metadata.name = Some(name.to_string());
        node.metadata.labels = Some([("karpenter.sh/nodepool".to_owned(), "p".to_owned())].into());
        node.metadata.annotations = serde_json::from_value(annotations).unwrap();
        Arc::new(node)
    });
    RepairSources { nodes: nodes.collect(), policies: Arc::new(set(&[bounded, reboot])) }
}

#[test]
fn what_is_to_be_replaced_is_told_with_what_keeps_it() {
    let veto = json!({"karpenter.sh/do-not-repair": "true"});
    let (none, some) = (json!({}), json!({"karpenter.sh/do-not-disrupt": "true"}));
    let twice = json!({"dovetail.sh/reboots": "2026-01-01T02:00:00Z,2026-01-01T03:00:00Z"});
    let rested = claim(&twice, &json!([condition("Rebooting", "False", "04:00:00")]));
    let untouched = claim(&json!({}), &json!([]));
    let too_many = Some(RepairHold::TooMany { unhealthy: 2, nodes: 5 });
    let ready = "Ready=False (R)";
    let escalated = "Stuck=False (R), and reboots have not helped";
    // How many Nodes, how they are broken, the NodeClaim: how the first is broken, since when, and what keeps it.
    let cases = [
        (5, vec![("Ready", none.clone())], &untouched, Some((ready, "01:10:00", None))),
        (5, vec![("Ready", some)], &untouched, Some((ready, "01:10:00", None))),
        (5, vec![("Ready", veto.clone())], &untouched, Some((ready, "01:10:00", Some(RepairHold::DoNotRepair)))),
        (5, vec![("Ready", none.clone()), ("Stuck", none.clone())], &untouched, Some((ready, "01:10:00", too_many))),
        (6, vec![("Ready", none.clone()), ("Stuck", veto)], &untouched, Some((ready, "01:10:00", None))),
        (5, vec![("Stuck", none.clone())], &untouched, None),
        (5, vec![("Stuck", none)], &rested, Some((escalated, "04:01:00", None))),
        (5, vec![], &untouched, None),
    ];
    for (nodes, broken, claim, expected) in cases {
        let sources = sources(nodes, &broken);
        let found = Repairs::new(&sources, at("05:00:00")).replaced("a", claim);
        let told = found.as_ref().map(|it| (&*it.condition, it.since, it.hold));
        assert_eq!(told, expected.map(|(condition, since, hold)| (condition, at(since), hold)), "{broken:?}");
        let bound = found.and_then(|it| it.drain_bound);
        assert_eq!(bound.is_some(), expected.is_some_and(|(condition, ..)| condition == ready), "{broken:?}");
    }
}

#[test]
fn nodes_of_no_nodepool_count_for_the_whole_cluster_only() {
    let mut sources = sources(4, &[("Ready", json!({})), ("Ready", json!({}))]);
    for node in &mut sources.nodes[2..] {
        Arc::make_mut(node).metadata.labels = None;
    }
    let health = Health::new(sources.nodes.iter().map(AsRef::as_ref), &sources.policies);
    assert_eq!(health.hold("p"), Some(RepairHold::TooMany { unhealthy: 2, nodes: 2 }));
    assert_eq!(health.hold(""), Some(RepairHold::TooMany { unhealthy: 2, nodes: 4 }));
    assert_eq!(health.hold("q"), None);
}
