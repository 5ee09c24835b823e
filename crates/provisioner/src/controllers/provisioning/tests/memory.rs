//! What is remembered of the last snapshot when the store is built anew.

use super::*;
use crate::world::snapshot::Memory;
use crate::world::store::{Revision, State};

fn built(state: &State, memory: &mut Memory) -> Snapshot {
    let settings = snapshot::Settings {
        whom: snapshot::For::Provisioning,
        now: Timestamp::parse("2026-01-01T00:01:00Z").unwrap(),
        options: scheduling::snapshot::Options::default(),
        scheduler_config: &SchedulerConfig::default(),
        labels: &ProviderLabels::default(),
        held_devices: &HeldDevices::new(DurationMs::ZERO),
        repair: None,
    };
    let before =
        snapshot::Before { planned: &Default::default(), succession: &Default::default(), left_out: BTreeSet::new() };
    let (snapshot, errors) = snapshot::build(state, Vec::new(), before, settings, memory);
    assert_eq!(errors, []);
    snapshot
}

/// A store that has come to know names in that order, with a NodeClaim that has no Node yet.
fn knows(names: &[&str], epoch: u64, claim: &NodeClaim) -> State {
    let store = ClusterStore::new();
    store.apply(claim.clone(), Revision::of(&claim.metadata));
    store.intern(|interner| names.iter().map(|name| interner.value(name)).max());
    let mut state = store.snapshot();
    state.epoch = epoch;
    state
}

#[test]
fn ids_of_a_store_that_was_built_anew_are_not_those_that_are_remembered() {
    let claim: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c", "uid": "c"},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": labels::ZONE, "operator": "In", "values": ["a", "b"]}],
        },
    }))
    .unwrap();
    let zones =
        |snapshot: &Snapshot| format!("{:?}", snapshot.nodes.iter().map(|node| &node.labels).collect::<Vec<_>>());
    let memory = &mut Memory::default();
    let mut before = knows(&["a", "b", "c"], 0, &claim);
    let first = built(&before, memory);
    let base = Arc::clone(&before.interner);
    Arc::make_mut(&mut before.interner).learn(&first.interner, &base);
    let remembered = built(&before, memory);
    // The claim is the same object: what is read of it does not hold ids.
    let mut after = knows(&["c", "b", "a"], 1, &claim);
    after.node_claims = before.node_claims.clone();
    let (with, without) = (built(&after, memory), built(&after, &mut Memory::default()));
    assert_eq!(zones(&with), zones(&without));
    assert_ne!(zones(&with), zones(&remembered), "the ids are others, so this test tells them apart");
}
