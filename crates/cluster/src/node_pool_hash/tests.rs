use serde_json::{Value, json};

use super::*;

/// Each line: the hash that Karpenter gives a NodePool with that template, a tab, the template.
const VECTORS: &str = include_str!("vectors.tsv");

fn node_pool(template: Value) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": template},
    }))
    .unwrap()
}

fn vectors() -> impl Iterator<Item = (&'static str, NodePool)> {
    VECTORS.lines().map(|line| {
        let (hash, template) = line.split_once('\t').unwrap();
        (hash, node_pool(serde_json::from_str(template).unwrap()))
    })
}

#[test]
fn every_template_is_recognised_by_karpenters_hash_of_it() {
    assert!(VECTORS.lines().count() > 20);
    for (expected, node_pool) in vectors() {
        assert!(matches(&node_pool, expected).unwrap(), "{:?}", node_pool.spec.template);
    }
}

#[test]
fn templates_without_empty_collections_hash_to_karpenters_number() {
    for (line, (expected, node_pool)) in VECTORS.lines().zip(vectors()) {
        let spells_empty = ["\"labels\":{}", "\"annotations\":{}", "\"taints\":[]", "\"startupTaints\":[]"]
            .iter()
            .any(|empty| line.contains(empty));
        if !spells_empty {
            assert_eq!(hash(&node_pool).unwrap(), expected, "{line}");
        }
    }
}

#[test]
fn another_templates_hash_is_not_recognised() {
    let all: Vec<_> = vectors().collect();
    let (first_hash, _) = all[0];
    let strangers = all.iter().filter(|(hash, _)| *hash != first_hash).count();
    let refused = all.iter().filter(|(_, pool)| !matches(pool, first_hash).unwrap()).count();
    // The templates that only spell emptiness differently are the first one; they are three.
    assert_eq!(refused, strangers - 3);
    assert!(!matches(&all[0].1, "not a number").unwrap());
}

fn with_annotations(mut node_pool: NodePool, entries: &[(&str, &str)]) -> NodePool {
    node_pool.metadata.annotations = Some(owned(entries));
    node_pool
}

fn owned(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn plain_pool() -> NodePool {
    node_pool(json!({"spec": {
        "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "720h",
    }}))
}

#[test]
fn an_empty_list_that_karpenter_hashed_is_no_reason_to_write() {
    let (hash, pool) = vectors().find(|(_, pool)| pool.metadata.name.is_some()).unwrap();
    let pool =
        with_annotations(pool, &[(annotations::NODEPOOL_HASH, hash), (annotations::NODEPOOL_HASH_VERSION, "v3")]);
    assert_eq!(decide(&pool, []).unwrap(), Stamps::default());
}

#[test]
fn a_new_version_stamps_claims_anew_unless_they_drifted() {
    let pool = with_annotations(
        plain_pool(),
        &[(annotations::NODEPOOL_HASH, "1"), (annotations::NODEPOOL_HASH_VERSION, "v2")],
    );
    let hash = hash(&pool).unwrap();
    let (old, new) = (
        owned(&[(annotations::NODEPOOL_HASH, "1"), (annotations::NODEPOOL_HASH_VERSION, "v2")]),
        owned(&[(annotations::NODEPOOL_HASH, "2"), (annotations::NODEPOOL_HASH_VERSION, "v3")]),
    );
    let claims = [
        StampedClaim { name: "old", annotations: &old, drifted: false },
        StampedClaim { name: "old-drifted", annotations: &old, drifted: true },
        StampedClaim { name: "new", annotations: &new, drifted: false },
    ];
    let stamps = decide(&pool, claims).unwrap();
    assert_eq!(stamps.node_pool, Some(Stamp { hash: Some(hash.clone()), version: "v3" }));
    assert_eq!(
        stamps.claims,
        [
            ("old".to_owned(), Stamp { hash: Some(hash), version: "v3" }),
            ("old-drifted".to_owned(), Stamp { hash: None, version: "v3" }),
        ]
    );
}

#[test]
fn a_claim_of_an_earlier_version_that_is_seen_after_its_pool_is_stamped_as_well() {
    let hash = hash(&plain_pool()).unwrap();
    let pool = with_annotations(
        plain_pool(),
        &[(annotations::NODEPOOL_HASH, &hash), (annotations::NODEPOOL_HASH_VERSION, "v3")],
    );
    let old = owned(&[(annotations::NODEPOOL_HASH, "1"), (annotations::NODEPOOL_HASH_VERSION, "v2")]);
    let own = owned(&[]);
    let claims = [
        StampedClaim { name: "old", annotations: &old, drifted: false },
        // A person's own was never stamped.
        StampedClaim { name: "own", annotations: &own, drifted: false },
    ];
    let stamps = decide(&pool, claims).unwrap();
    assert_eq!(stamps.node_pool, None);
    assert_eq!(stamps.claims, [("old".to_owned(), Stamp { hash: Some(hash), version: "v3" })]);
}

#[test]
fn a_changed_template_changes_the_pools_hash_and_no_claims() {
    let pool = with_annotations(
        plain_pool(),
        &[(annotations::NODEPOOL_HASH, "1"), (annotations::NODEPOOL_HASH_VERSION, "v3")],
    );
    let other = owned(&[(annotations::NODEPOOL_HASH, "1"), (annotations::NODEPOOL_HASH_VERSION, "v3")]);
    let claims = [StampedClaim { name: "a", annotations: &other, drifted: false }];
    let stamps = decide(&pool, claims).unwrap();
    assert_eq!(stamps.node_pool.unwrap().hash, Some(hash(&pool).unwrap()));
    assert!(stamps.claims.is_empty());
}

#[test]
fn a_duration_that_is_none_is_an_error_that_names_it() {
    let pool = node_pool(json!({"spec": {
        "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "soon",
    }}));
    assert!(hash(&pool).unwrap_err().to_string().contains("soon"));
}
