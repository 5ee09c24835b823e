use std::sync::Arc;

use api::labels::ProviderLabels;
use api::{NodeClaim, NodePool};
use cloudprovider::InstanceType;
use model::Timestamp;
use serde_json::{Value, json};

use super::consolidatable::{self, Consolidatable};
use super::{drift, expiration};
use crate::node_pool_hash;

const CREATED: &str = "2026-01-01T00:00:00Z";

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn merged(mut object: Value, changes: Value) -> Value {
    match (object.as_object_mut(), changes) {
        (Some(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                let known = fields.remove(&key).unwrap_or(Value::Null);
                fields.insert(key, merged(known, change));
            }
            object
        }
        (_, changes) => changes,
    }
}

fn pool(changes: Value) -> NodePool {
    let plain = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
        }}},
    });
    serde_json::from_value(merged(plain, changes)).unwrap()
}

fn condition(type_: &str, status: &str, since: &str) -> Value {
    json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": since})
}

fn claim(changes: Value) -> NodeClaim {
    let plain = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "default-a", "creationTimestamp": CREATED},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
    });
    serde_json::from_value(merged(plain, changes)).unwrap()
}

fn initialized(status: &str) -> Value {
    json!({"conditions": [condition("Initialized", status, "2026-01-01T00:01:00Z")]})
}

#[test]
fn a_machine_is_consolidatable_once_it_was_quiet_for_long_enough() {
    let after = |text: &str| json!({"spec": {"disruption": {"consolidateAfter": text}}});
    let with_event = |time: &str| merged(initialized("True"), json!({"lastPodEventTime": time}));
    let ready_at = |time: &str| Consolidatable::At(at(time));
    let cases = [
        (
            "no pod ever came",
            after("30s"),
            initialized("True"),
            "2026-01-01T00:01:29Z",
            ready_at("2026-01-01T00:01:30Z"),
        ),
        ("the time is over", after("30s"), initialized("True"), "2026-01-01T00:01:30Z", Consolidatable::Yes),
        (
            "a pod came later",
            after("30s"),
            with_event("2026-01-01T00:01:20Z"),
            "2026-01-01T00:01:30Z",
            ready_at("2026-01-01T00:01:50Z"),
        ),
        // A pod that came before the machine was initialized has been there for as long.
        (
            "a pod came before",
            after("30s"),
            with_event("2026-01-01T00:00:50Z"),
            "2026-01-01T00:01:20Z",
            Consolidatable::Yes,
        ),
        (
            "no time is asked for",
            after("0s"),
            with_event("2026-01-01T00:02:00Z"),
            "2026-01-01T00:02:00Z",
            Consolidatable::Yes,
        ),
        ("never", after("Never"), initialized("True"), "2027-01-01T00:00:00Z", Consolidatable::No),
        ("not initialized", after("0s"), initialized("Unknown"), "2027-01-01T00:00:00Z", Consolidatable::No),
        ("nothing is known", after("0s"), json!({}), "2027-01-01T00:00:00Z", Consolidatable::No),
        ("replicas", json!({"spec": {"replicas": 2}}), initialized("True"), "2027-01-01T00:00:00Z", Consolidatable::No),
        (
            "longer than time goes on",
            after("2000000h"),
            initialized("True"),
            "2027-01-01T00:00:00Z",
            ready_at("2254-02-28T08:01:00Z"),
        ),
    ];
    for (what, of_pool, status, now, expected) in cases {
        let decided = consolidatable::decide(&pool(of_pool), &claim(json!({"status": status})), at(now));
        assert_eq!(decided, Ok(expected), "{what}");
    }
    let problem = consolidatable::decide(&pool(after("soon")), &claim(json!({})), at(CREATED)).unwrap_err();
    assert!(problem.to_string().starts_with("spec.disruption.consolidateAfter: \"soon\""), "{problem}");
}

#[test]
fn a_claim_expires_by_its_own_age() {
    let expires = |changes: Value| expiration::expires_at(&claim(changes));
    assert_eq!(expires(json!({"spec": {"expireAfter": "30s"}})), Ok(Some(at("2026-01-01T00:00:30Z"))));
    assert_eq!(expires(json!({})), Ok(Some(at("2026-01-31T00:00:00Z"))), "the API's default is 720 hours");
    assert_eq!(expires(json!({"spec": {"expireAfter": "Never"}})), Ok(None));
    assert_eq!(expires(json!({"metadata": {"creationTimestamp": null}})), Ok(None), "nobody knows how old it is");
    let problem = expires(json!({"spec": {"expireAfter": "old"}})).unwrap_err();
    assert!(problem.to_string().starts_with("spec.expireAfter: \"old\""), "{problem}");
}

fn rules() -> ProviderLabels {
    ProviderLabels { reservation_id: Some("cloud/reservation".to_owned()), ..ProviderLabels::default() }
}

/// A NodeClaim that was made from that NodePool and carries these labels.
fn made_from(pool: &NodePool, labels: Value) -> NodeClaim {
    let hash = node_pool_hash::hash(pool).unwrap();
    claim(json!({"metadata": {
        "labels": labels,
        "annotations": {"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3"},
    }}))
}

fn reason(pool: &NodePool, claim: &NodeClaim) -> Option<String> {
    drift::of_objects(pool, claim, &rules()).unwrap().map(|cause| cause.reason().to_owned())
}

#[test]
fn a_claim_of_another_template_has_drifted_and_requirements_are_no_part_of_it() {
    let before = pool(json!({}));
    let made = made_from(&before, json!({}));
    let template = |changes: Value| pool(json!({"spec": {"template": changes}}));
    for (what, changes) in [
        ("labels", json!({"metadata": {"labels": {"team": "a"}}})),
        ("annotations", json!({"metadata": {"annotations": {"a": "b"}}})),
        ("taints", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})),
        ("startupTaints", json!({"spec": {"startupTaints": [{"key": "k", "effect": "NoSchedule"}]}})),
        ("class", json!({"spec": {"nodeClassRef": {"name": "other"}}})),
        ("expiry", json!({"spec": {"expireAfter": "1h"}})),
        ("period", json!({"spec": {"terminationGracePeriod": "1h"}})),
    ] {
        assert_eq!(reason(&template(changes), &made).as_deref(), Some("NodePoolDrifted"), "{what}");
    }
    let same = [json!({}), json!({"spec": {"taints": []}}), json!({"spec": {"expireAfter": "43200m"}})];
    for changes in same {
        assert_eq!(reason(&template(changes.clone()), &made), None, "{changes}");
    }
    let elsewhere =
        pool(json!({"spec": {"weight": 7, "limits": {"cpu": "1"}, "disruption": {"consolidateAfter": "1h"}}}));
    assert_eq!(reason(&elsewhere, &made), None);
}

#[test]
fn a_hash_of_another_version_or_none_at_all_says_nothing() {
    let changed = pool(json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}));
    let mut made = made_from(&pool(json!({})), json!({}));
    assert_eq!(reason(&changed, &made).as_deref(), Some("NodePoolDrifted"));
    let annotations = made.metadata.annotations.as_mut().unwrap();
    annotations.insert("karpenter.sh/nodepool-hash-version".to_owned(), "v2".to_owned());
    assert_eq!(reason(&changed, &made), None);
    made.metadata.annotations = None;
    assert_eq!(reason(&changed, &made), None);
}

#[test]
fn labels_that_do_not_meet_a_requirement_are_drift_and_named() {
    let labels = json!({"team": "a", "rank": "5", "beta.kubernetes.io/arch": "arm64"});
    let cases = [
        (json!({"key": "team", "operator": "In", "values": ["a", "b"]}), None),
        (json!({"key": "team", "operator": "In", "values": ["b"]}), Some("label team=a does not meet")),
        (json!({"key": "team", "operator": "NotIn", "values": ["a"]}), Some("label team=a does not meet")),
        (json!({"key": "team", "operator": "DoesNotExist"}), Some("label team=a does not meet")),
        (json!({"key": "rank", "operator": "Gt", "values": ["4"]}), None),
        (json!({"key": "rank", "operator": "Lte", "values": ["4"]}), Some("label rank=5 does not meet")),
        (json!({"key": "none", "operator": "Exists"}), Some("without a label none")),
        (json!({"key": "none", "operator": "In", "values": ["a"]}), Some("without a label none")),
        (json!({"key": "none", "operator": "NotIn", "values": ["a"]}), None),
        (json!({"key": "none", "operator": "DoesNotExist"}), None),
        (json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}), None),
        (json!({"key": "kubernetes.io/arch", "operator": "Exists", "minValues": 2}), None),
    ];
    for (requirement, expected) in cases {
        let pool = pool(json!({"spec": {"template": {"spec": {"requirements": [requirement]}}}}));
        let cause = drift::of_objects(&pool, &made_from(&pool, labels.clone()), &rules()).unwrap();
        assert!(cause.iter().all(|cause| cause.reason() == "RequirementsDrifted"), "{cause:?}");
        let message = cause.map(|cause| cause.to_string());
        let is_expected = match (&message, expected) {
            (Some(message), Some(expected)) => message.starts_with(expected),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        assert!(is_expected, "{requirement}: {message:?}");
    }
    let nonsense = json!([{"key": "a", "operator": "Gt", "values": ["x"]}]);
    let pool = pool(json!({"spec": {"template": {"spec": {"requirements": nonsense}}}}));
    let problem = drift::of_objects(&pool, &claim(json!({})), &rules()).unwrap_err();
    assert!(problem.to_string().starts_with("spec.template.spec.requirements[0]"), "{problem}");
}

#[test]
fn the_template_comes_before_its_requirements() {
    let made = made_from(&pool(json!({})), json!({}));
    let changed = pool(json!({"spec": {"template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"requirements": [{"key": "a", "operator": "Exists"}]},
    }}}));
    assert_eq!(reason(&changed, &made).as_deref(), Some("NodePoolDrifted"));
}

#[test]
fn only_launched_claims_can_drift() {
    let with = |status: &str| claim(json!({"status": {"conditions": [condition("Launched", status, CREATED)]}}));
    assert!(drift::is_possible(&with("True")));
    assert!(!drift::is_possible(&with("Unknown")) && !drift::is_possible(&claim(json!({}))));
}

/// Type `m` in zones `a` and `b`, on demand in both, spot in `a` only and sold out, reserved in `a`.
fn types() -> Vec<Arc<InstanceType>> {
    let offering = |zone: &str, capacity_type: &str, available: bool| json!({"zone": zone, "capacityType": capacity_type, "price": 1, "available": available});
    let reserved = merged(
        offering("a", "reserved", true),
        json!({"reservation": {"id": "r1", "remaining": 0}, "labels": {"cloud/reservation": "r1"}}),
    );
    let type_ = |name: &str, offerings: Value| {
        let value = json!({"name": name, "requirements": {}, "offerings": offerings, "capacity": {}, "overhead": {}});
        Arc::new(serde_json::from_value::<InstanceType>(value).unwrap())
    };
    let of_m = json!([
        offering("a", "on-demand", true),
        offering("a", "spot", false),
        offering("b", "on-demand", true),
        reserved
    ]);
    vec![type_("l", json!([])), type_("m", of_m)]
}

#[test]
fn a_type_that_is_not_listed_where_the_machine_is_has_gone_after_an_hour() {
    let labels = |instance_type: &str, zone: &str, capacity_type: &str| {
        json!({
            "node.kubernetes.io/instance-type": instance_type, "topology.kubernetes.io/zone": zone,
            "karpenter.sh/capacity-type": capacity_type,
        })
    };
    let in_reservation = |id: &str, zone: &str| merged(labels("m", zone, "reserved"), json!({"cloud/reservation": id}));
    let cases = [
        (labels("m", "a", "on-demand"), false, "it is listed"),
        (labels("m", "a", "spot"), false, "one that has run out counts"),
        (labels("m", "b", "spot"), true, "no such offering"),
        (labels("m", "c", "on-demand"), true, "no such zone"),
        (labels("l", "a", "on-demand"), true, "no offering at all"),
        (labels("k", "a", "on-demand"), true, "no such type"),
        (json!({}), true, "no type"),
        (in_reservation("r1", "a"), false, "its own reservation, full as it is"),
        (in_reservation("r2", "a"), false, "a reservation that has ended leaves the machine on demand"),
        (in_reservation("r2", "b"), false, "there too"),
        (in_reservation("r2", "c"), true, "not where there is none on demand"),
    ];
    for (labels, is_gone, what) in cases {
        let claim = claim(json!({"metadata": {"labels": labels}}));
        let cause = |now: &str| drift::of_instance_type(&claim, &types(), &rules(), at(now));
        let reason = cause("2026-01-01T01:00:00Z").map(|cause| cause.reason().to_owned());
        assert_eq!(reason.as_deref(), is_gone.then_some("InstanceTypeNotFound"), "{what}");
        assert_eq!(cause("2026-01-01T00:59:59Z"), None, "{what}, but it is too young");
    }
}
