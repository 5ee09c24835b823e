use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(&format!("2026-01-01T{text}Z")).unwrap()
}

/// A NodeClaim whose reboot was asked for at one o'clock.
fn rebooting(reason: &str, annotations: &Value) -> NodeClaim {
    let condition = |type_: &str, status: &str, reason: &str, since: &str| {
        let since = format!("2026-01-01T{since}Z");
        json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": since})
    };
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "a", "uid": "u", "annotations": annotations},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"conditions": [
            condition("Rebooting", "True", reason, "01:00:00"),
            condition("Initialized", "Unknown", "Rebooting", "01:10:00"),
        ]},
    }))
    .unwrap()
}

fn node(boot_id: &str, ready: &str, is_fenced: bool) -> Node {
    let fence = json!([{"key": "karpenter.sh/rebooting", "effect": "NoSchedule"}]);
    let info = json!({
        "architecture": "", "bootID": boot_id, "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
        "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
    });
    serde_json::from_value(json!({
        "metadata": {"name": "n"}, "spec": {"taints": if is_fenced { fence } else { json!([]) }},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": info},
    }))
    .unwrap()
}

const BOUND: &str = "karpenter.sh/reboot-termination-grace-period";
const BEFORE: &str = "karpenter.sh/reboot-pre-boot-id";
const ISSUED_AT: &str = "dovetail.sh/reboot-issued-at";

#[test]
fn what_is_left_of_a_reboot_that_is_over_is_taken_away_and_what_the_next_one_needs_is_not() {
    for (status, annotations, is_deleting, expected) in [
        ("False", json!({ BEFORE: "x", BOUND: "1m" }), false, Step::Tidy),
        ("False", json!({ ISSUED_AT: "x" }), false, Step::Tidy),
        ("False", json!({ ISSUED_AT: "x" }), true, Step::Nothing),
        ("False", json!({ BOUND: "1m" }), false, Step::Nothing),
        ("True", json!({ BEFORE: "x" }), false, Step::AwaitNode(at("01:05:00"))),
    ] {
        let mut claim = rebooting("RebootRequested", &annotations);
        claim.status.as_mut().unwrap().conditions[0].status = status.to_owned();
        let deleted_at = serde_json::from_value(json!("2026-01-01T01:00:00Z")).unwrap();
        claim.metadata.deletion_timestamp = is_deleting.then_some(deleted_at);
        assert_eq!(decide(&claim, None, 0, at("01:00:00")), expected, "{status} {annotations} {is_deleting}");
    }
}

#[test]
fn pods_are_kept_away_then_drained_for_the_bound_and_never_forced() {
    let of = |annotations: Value, remaining: usize, now: &str| {
        let claim = rebooting("RebootRequested", &annotations);
        decide(&claim, Some(&node("a", "True", true)), remaining, at(now))
    };
    let minute = || json!({ BOUND: "1m" });
    let open = node("a", "True", false);
    assert_eq!(decide(&rebooting("RebootRequested", &minute()), Some(&open), 1, at("01:00:00")), Step::Fence);
    assert_eq!(of(minute(), 1, "01:00:59"), Step::Drain(Some(at("01:01:00"))));
    assert_eq!(of(minute(), 1, "01:01:00"), Step::NoteBoot("a".into()), "the pod rides the reboot");
    assert_eq!(of(minute(), 0, "01:00:04"), Step::Settle(at("01:00:05")));
    assert_eq!(of(minute(), 0, "01:00:05"), Step::NoteBoot("a".into()));
    assert_eq!(of(json!({}), 1, "09:00:00"), Step::Drain(None), "without a bound for ever");
    assert_eq!(of(json!({ BOUND: "0s" }), 1, "01:00:04"), Step::Settle(at("01:00:05")), "no drain");
    assert_eq!(of(json!({ BOUND: "1s" }), 1, "01:00:04"), Step::Drain(Some(at("01:00:05"))), "five seconds at least");
}

#[test]
fn what_cannot_be_read_reboots_nothing() {
    let of = |bound: &str| {
        let claim = rebooting("RebootRequested", &json!({ BOUND: bound }));
        match decide(&claim, Some(&node("a", "True", false)), 0, at("01:00:00")) {
            Step::Refuse(problem) => problem,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of("-1m"), format!("annotation {BOUND}: \"-1m\" is negative"));
    assert!(of("soon").contains("\"soon\""));
}

#[test]
fn the_provider_is_asked_by_one_id_for_five_minutes() {
    let of = |boot_id: &str, now: &str| {
        let claim = rebooting("RebootRequested", &json!({ BEFORE: "a", ISSUED_AT: "2026-01-01T01:02:00Z" }));
        decide(&claim, Some(&node(boot_id, "True", true)), 0, at(now))
    };
    let id = Step::Issue("u-1767229200000000000-a".to_owned());
    assert_eq!((of("a", "01:02:00"), of("a", "01:06:59")), (id.clone(), id));
    assert!(matches!(of("a", "01:07:00"), Step::Fail(Failure::Provider, _)));
    assert_eq!(of("b", "01:30:00"), Step::NoteIssued, "accepted, and not written down");
}

#[test]
fn a_machine_has_twenty_minutes_to_come_back_and_is_open_before_it_is_ready() {
    let of = |node: &Node, now: &str| {
        let claim = rebooting("RebootIssued", &json!({ BEFORE: "a", ISSUED_AT: "2026-01-01T01:10:00Z" }));
        decide(&claim, Some(node), 3, at(now))
    };
    let back_by = at("01:30:00");
    assert_eq!(of(&node("a", "True", true), "01:29:59"), Step::AwaitBoot(back_by), "ready as it was before");
    assert_eq!(of(&node("b", "Unknown", true), "01:29:59"), Step::LiftFence);
    assert_eq!(of(&node("b", "Unknown", false), "01:29:59"), Step::AwaitReady(back_by));
    assert_eq!(of(&node("b", "True", false), "09:00:00"), Step::Succeed, "late is not too late");
    for late in [node("a", "True", true), node("b", "False", false)] {
        assert!(matches!(of(&late, "01:30:00"), Step::Fail(Failure::Recovery, _)));
    }
}

#[test]
fn a_reboot_that_karpenter_began_is_timed_by_the_initialized_condition() {
    let claim = rebooting("RebootIssued", &json!({ BEFORE: "a" }));
    let here = node("a", "True", true);
    assert_eq!(decide(&claim, Some(&here), 0, at("01:29:59")), Step::AwaitBoot(at("01:30:00")));
}

#[test]
fn a_node_that_is_gone_is_waited_for() {
    let requested = rebooting("RebootRequested", &json!({}));
    assert_eq!(decide(&requested, None, 0, at("01:04:59")), Step::AwaitNode(at("01:05:00")));
    assert!(matches!(decide(&requested, None, 0, at("01:05:00")), Step::Fail(Failure::Recovery, _)));
    let issued = rebooting("RebootIssued", &json!({ BEFORE: "a" }));
    assert_eq!(decide(&issued, None, 0, at("01:29:59")), Step::AwaitNode(at("01:30:00")));
}

#[test]
fn nothing_is_done_where_no_reboot_is_asked_for_or_the_machine_goes() {
    let here = node("a", "True", true);
    let mut over = rebooting("RebootSucceeded", &json!({}));
    over.status.as_mut().unwrap().conditions[0].status = "False".to_owned();
    assert_eq!(decide(&over, Some(&here), 0, at("01:00:00")), Step::Nothing);
    let mut going = rebooting("RebootRequested", &json!({}));
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(decide(&going, Some(&here), 0, at("01:00:00")), Step::Nothing);
}
