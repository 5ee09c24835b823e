use cloudprovider::CapacityType;
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_767_225_600 + 3600);
const KINDS: [NodeClassKind; 1] = [NodeClassKind { group: "g", version: "v1", kind: "K", plural: "ks" }];

fn claim(name: &str, launched: &str) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"providerID": format!("p://{name}"), "conditions": [
            {"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": launched},
        ]},
    }))
    .unwrap()
}

fn node(name: &str, ready: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"],
            "labels": {"g/k": "n"},
        },
        "spec": {"providerID": format!("p://{name}")},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

fn instance(name: &str, token: Option<&str>, age_s: i64) -> Instance {
    Instance {
        provider_id: format!("p://{name}").into(),
        token: token.map(Into::into),
        claim_name: Some(name.into()),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        image_id: None,
        capacity: BTreeMap::new(),
        allocatable: BTreeMap::new(),
        instance_type: "t".into(),
        zone: "z".to_owned(),
        capacity_type: CapacityType::OnDemand,
        created_at: NOW.saturating_sub(DurationMs::from_seconds(age_s)),
        state: InstanceState::Running,
    }
}

fn suspects(claims: &[NodeClaim], nodes: &[Node], listed: &[Instance]) -> Suspects {
    let none = BTreeSet::new();
    let (claims, nodes): (Vec<_>, Vec<_>) = (claims.iter().collect(), nodes.iter().collect());
    let cluster = Cluster { claims: &claims, undecodable_claims: &none, nodes: &nodes, node_classes: &KINDS };
    decide(cluster, listed, NOW)
}

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

#[test]
fn nothing_is_suspected_where_all_match() {
    let listed = [instance("a", Some("uid-a"), 3600)];
    assert_eq!(suspects(&[claim("a", LONG_AGO)], &[node("a", "True")], &listed), Suspects::default());
}

#[test]
fn a_claim_without_machine_is_suspected_unless_its_node_lives_or_its_launch_is_new() {
    let cases = [
        (claim("a", LONG_AGO), vec![], true),
        (claim("a", LONG_AGO), vec![node("a", "Unknown")], true),
        (claim("a", LONG_AGO), vec![node("a", "True")], false),
        (claim("a", "2026-01-01T00:59:40Z"), vec![], false),
    ];
    for (claim, nodes, expected) in cases {
        assert_eq!(!suspects(&[claim], &nodes, &[]).claims.is_empty(), expected, "{nodes:?}");
    }
    let mut deleting = claim("a", LONG_AGO);
    deleting.metadata.deletion_timestamp = deleting.metadata.creation_timestamp.clone();
    let mut foreign = claim("b", LONG_AGO);
    foreign.spec.node_class_ref.kind = "Other".to_owned();
    assert!(suspects(&[deleting, foreign], &[], &[]).claims.is_empty());
}

#[test]
fn a_machine_without_claim_is_suspected_if_it_is_ours_and_not_new() {
    let listed = [
        instance("orphan", Some("uid-gone"), 3600),
        instance("new", Some("uid-gone"), 29),
        instance("foreign", None, 3600),
        instance("a", Some("uid-a"), 3600),
    ];
    assert_eq!(suspects(&[claim("a", LONG_AGO)], &[], &listed).machines, [ProviderId::from("p://orphan")]);
}

#[test]
fn a_machine_is_kept_while_its_claim_cannot_be_decoded() {
    let undecodable = BTreeSet::from(["orphan".to_owned()]);
    let cluster = Cluster { claims: &[], undecodable_claims: &undecodable, nodes: &[], node_classes: &KINDS };
    assert_eq!(decide(cluster, &[instance("orphan", Some("uid-gone"), 3600)], NOW), Suspects::default());
}

#[test]
fn a_node_without_claim_and_machine_is_a_phantom_if_it_is_ours_and_not_ready() {
    let mut foreign = node("foreign", "False");
    foreign.metadata.finalizers = None;
    let nodes = [node("lost", "Unknown"), node("alive", "True"), node("listed", "False"), foreign];
    let listed = [instance("listed", None, 3600)];
    assert_eq!(suspects(&[], &nodes, &listed).nodes, [NodeName::from("lost")]);
    assert!(suspects(&[claim("lost", LONG_AGO)], &nodes[..1], &[]).nodes.is_empty());
}

#[tokio::test]
async fn a_stray_that_cannot_be_collected_keeps_no_other_from_being() {
    let (beats, collected) = (crate::runtime::beats::Beats::default(), parking_lot::Mutex::new(Vec::new()));
    let beat = beats.beat(NAME, RHYTHM.bound);
    let stray = |name: &'static str| {
        let collected = &collected;
        let collecting = async move {
            anyhow::ensure!(name != "protected", "termination protection");
            collected.lock().push(name);
            Ok(())
        };
        (name.to_owned(), collecting.boxed())
    };
    collect_each(vec![stray("a"), stray("protected"), stray("b")], &beat).await;
    assert_eq!(*collected.lock(), ["a", "b"]);
}

#[tokio::test]
async fn a_machine_without_a_claims_name_is_claimed_while_any_claim_has_its_uid() {
    let asked = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let server = tower::service_fn({
        let asked = std::sync::Arc::clone(&asked);
        move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            asked.lock().push(request.uri().path().to_owned());
            async move {
                let item = |uid: &str| serde_json::json!({"metadata": {"name": uid, "uid": uid}});
                let (items, token) = match query.contains("continue=more") {
                    false => ([item("uid-a"), item("uid-b")], Some("more")),
                    true => ([item("uid-c"), item("uid-d")], None),
                };
                let list = serde_json::json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": "1", "continue": token}, "items": items});
                http::Response::builder().body(kube::client::Body::from(serde_json::to_vec(&list).unwrap()))
            }
        }
    });
    let client = Client::new(server, "default");
    for (token, claimed) in [("uid-b", true), ("uid-c", true), ("uid-gone", false)] {
        let nameless = Instance { claim_name: None, ..instance("m", Some(token), 3600) };
        assert_eq!(is_claimed(&client, &nameless).await.unwrap(), claimed, "{token}");
    }
    assert!(asked.lock().iter().all(|path| path == "/apis/karpenter.sh/v1/nodeclaims"), "{asked:?}");
}
