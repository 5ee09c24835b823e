use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T02:00:00Z";

fn condition(type_: &str, reason: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T01:00:00Z"})
}

fn draft(conditions: &[Value]) -> Draft {
    let claim: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "a", "uid": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    Draft::new(Arc::new(claim), Timestamp::parse(NOW).unwrap())
}

fn pool(consolidate_after: &str, requirements: &Value) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "disruption": {"consolidateAfter": consolidate_after},
            "template": {"spec": {
                "requirements": requirements, "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
            }},
        },
    }))
    .unwrap()
}

/// Reason and message of a condition that is true.
fn found(draft: &Draft, type_: &str) -> Option<(String, String)> {
    let found = crate::runtime::conditions::find(claim::conditions(&draft.wanted), type_)?;
    assert_eq!(found.status, "True");
    Some((found.reason.clone(), found.message.clone()))
}

#[test]
fn consolidatable_comes_with_time_and_goes_when_it_no_longer_holds() {
    let initialized = condition("Initialized", "Initialized");
    let both = [initialized.clone(), condition("Consolidatable", "Consolidatable")];
    let ten_minutes = Action::RequeueAfter(Duration::from_mins(10));
    let cases = [
        ("30s", &[initialized][..], true, Action::Done),
        ("30s", &both[..], true, Action::Done),
        ("70m", &both[..], false, ten_minutes),
        ("Never", &both[..], false, Action::Done),
        ("30s", &both[1..], false, Action::Done),
        // Nobody knows, so nothing changes.
        ("soon", &both[..], true, Action::Done),
    ];
    for (after, conditions, expected, action) in cases {
        let mut draft = draft(conditions);
        assert_eq!(judge_consolidatable(&mut draft, &pool(after, &json!([]))), action, "{after}");
        let reason = found(&draft, CONSOLIDATABLE).map(|(reason, _)| reason);
        assert_eq!(reason.as_deref(), expected.then_some("Consolidatable"), "{after} {conditions:?}");
    }
}

#[test]
fn what_is_as_it_was_is_not_written() {
    let quiet = [condition("Initialized", "Initialized"), condition("Consolidatable", "Consolidatable")];
    let mut still_quiet = draft(&quiet);
    assert_eq!(judge_consolidatable(&mut still_quiet, &pool("30s", &json!([]))), Action::Done);
    assert_eq!(still_quiet.wanted, *still_quiet.read);
    let mut unlaunched = draft(&[]);
    judge_consolidatable(&mut unlaunched, &pool("0s", &json!([])));
    judge_drift(&mut unlaunched, &pool("0s", &json!([])), &ProviderLabels::default(), |_| unreachable!("not launched"));
    assert_eq!(unlaunched.wanted, *unlaunched.read, "its conditions are not begun here");
}

#[test]
fn drift_is_what_the_objects_say_then_what_the_cloud_says() {
    let launched = condition("Launched", "Launched");
    let drifted = [launched.clone(), condition("Drifted", "Earlier")];
    let launched = [launched];
    let none = json!([]);
    let unmet = json!([{"key": "team", "operator": "Exists"}]);
    let nonsense = json!([{"key": "team", "operator": "Gt", "values": ["x"]}]);
    let provider = |reason: &str| Asked::Drifted(Cause::Provider { reason: reason.to_owned() });
    let asked = Action::RequeueAfter(Duration::from_secs(7));
    let cases = [
        ("objects", &launched[..], &unmet, Asked::NotDrifted, Some("RequirementsDrifted"), Action::Done),
        (
            "objects before the cloud",
            &launched[..],
            &unmet,
            provider("AMIDrift"),
            Some("RequirementsDrifted"),
            Action::Done,
        ),
        ("the cloud", &launched[..], &none, provider("AMIDrift"), Some("AMIDrift"), asked),
        ("a reason in free words", &launched[..], &none, provider("its image is old"), Some("Drifted"), asked),
        ("another reason than before", &drifted[..], &none, provider("AMIDrift"), Some("AMIDrift"), asked),
        ("nothing", &launched[..], &none, Asked::NotDrifted, None, asked),
        ("no longer", &drifted[..], &none, Asked::NotDrifted, None, asked),
        ("not asked yet", &drifted[..], &none, Asked::NotYet, Some("Earlier"), asked),
        ("a pool without sense", &drifted[..], &nonsense, Asked::NotDrifted, Some("Earlier"), Action::Done),
        ("not launched", &drifted[1..], &none, provider("AMIDrift"), None, Action::Done),
    ];
    for (what, conditions, requirements, of_cloud, expected, action) in cases {
        let mut draft = draft(conditions);
        let pool = pool("0s", requirements);
        let of_cloud = |_: &NodeClaim| (of_cloud, Duration::from_secs(7));
        assert_eq!(judge_drift(&mut draft, &pool, &ProviderLabels::default(), of_cloud), action, "{what}");
        assert_eq!(found(&draft, DRIFTED).map(|(reason, _)| reason).as_deref(), expected, "{what}");
    }
}

#[test]
fn the_message_says_what_the_reason_does_not_and_the_time_of_the_first_drift_stays() {
    let mut draft = draft(&[condition("Launched", "Launched"), condition("Drifted", "Earlier")]);
    let cause = Cause::Provider { reason: "its image is old".to_owned() };
    set_drifted(&mut draft, &cause);
    assert_eq!(found(&draft, DRIFTED).unwrap().1, "the provider says its image is old");
    let since = |claim: &NodeClaim| {
        crate::runtime::conditions::find(claim::conditions(claim), DRIFTED).unwrap().last_transition_time.clone()
    };
    assert_eq!(since(&draft.wanted), since(&draft.read));
}
