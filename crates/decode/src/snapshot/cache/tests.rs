//! A snapshot that is made with what is left of the last one is the one that is made without.

use std::collections::BTreeMap;

use api::labels::ProviderLabels;
use proptest::prelude::*;
use scheduling::Snapshot;
use serde_json::{Value, json};

use super::*;
use crate::context::Context;
use crate::snapshot::{BoundPods, Cluster, snapshot, snapshot_with};

/// What happens to a cluster. Numbers name objects.
#[derive(Debug, Clone)]
enum Change {
    /// The Node comes, or becomes another one: with so much CPU, ready or not, being deleted or not.
    Node {
        node: u8,
        cpu: u8,
        ready: bool,
        going: bool,
    },
    NodeGone(u8),
    /// The NodeClaim comes, or gets so far: with a requirement whose value is a new name, perhaps.
    Claim {
        claim: u8,
        progress: u8,
        value: u8,
    },
    ClaimGone(u8),
    /// The pod comes, or becomes another one: bound, nominated or waiting, of one of some kinds, perhaps ended.
    Pod {
        pod: u8,
        place: Place,
        kind: u8,
        phase: u8,
    },
    PodGone(u8),
    /// The store reads a name that nothing in the cluster has.
    Name(u8),
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Bound(u8),
    Nominated(u8),
    Waiting,
}

const NODES: u8 = 4;

fn change() -> impl Strategy<Value = Change> {
    let node = 0..NODES;
    let place = prop_oneof![
        4 => node.clone().prop_map(Place::Bound),
        1 => node.clone().prop_map(Place::Nominated),
        1 => Just(Place::Waiting),
    ];
    prop_oneof![
        3 => (node.clone(), 1..4_u8, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(node, cpu, ready, going)| Change::Node { node, cpu, ready, going }),
        1 => node.clone().prop_map(Change::NodeGone),
        3 => (node.clone(), 0..4_u8, 0..6_u8).prop_map(|(claim, progress, value)| Change::Claim { claim, progress, value }),
        1 => node.prop_map(Change::ClaimGone),
        6 => (0..12_u8, place, 0..3_u8, 0..4_u8)
            .prop_map(|(pod, place, kind, phase)| Change::Pod { pod, place, kind, phase }),
        1 => (0..12_u8).prop_map(Change::PodGone),
        1 => any::<u8>().prop_map(Change::Name),
    ]
}

/// The controller's store, as far as snapshots need it.
#[derive(Default)]
struct Store {
    interner: Arc<Interner>,
    nodes: BTreeMap<u8, Arc<model::Node>>,
    claims: BTreeMap<u8, Arc<NodeClaim>>,
    pods: BTreeMap<u8, Arc<Pod>>,
    bound: BoundPods,
}

impl Store {
    fn apply(&mut self, change: &Change) {
        let context = &mut Context::new(Arc::make_mut(&mut self.interner));
        match *change {
            Change::Node { node, cpu, ready, going } => {
                let object = crate::node(&node_object(node, cpu, ready, going), context).unwrap();
                self.nodes.insert(node, Arc::new(object));
            }
            Change::NodeGone(node) => drop(self.nodes.remove(&node)),
            Change::Claim { claim, progress, value } => {
                let object = crate::node_claim_object(&claim_object(claim, progress, value)).unwrap();
                self.claims.insert(claim, Arc::new(object));
            }
            Change::ClaimGone(claim) => drop(self.claims.remove(&claim)),
            Change::Pod { pod, place, kind, phase } => {
                let object = Arc::new(crate::pod(&pod_object(pod, place, kind, phase), context).unwrap());
                if let Some(before) = self.pods.insert(pod, Arc::clone(&object)) {
                    self.bound.remove(&before);
                }
                self.bound.insert(&object);
            }
            Change::PodGone(pod) => {
                if let Some(before) = self.pods.remove(&pod) {
                    self.bound.remove(&before);
                }
            }
            Change::Name(name) => drop(context.interner.value(&format!("name-{name}"))),
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            nodes: self.nodes.values().cloned().collect(),
            node_claims: self.claims.values().cloned().collect(),
            pods: self.pods.values().filter(|pod| pod.node_name.is_none()).cloned().collect(),
            bound: self.bound.clone(),
            ..Cluster::default()
        }
    }

    fn fresh(&self) -> Snapshot {
        snapshot(self.cluster(), Arc::clone(&self.interner), &ProviderLabels::default()).0
    }

    fn cached(&self, cache: &mut Cache) -> Snapshot {
        snapshot_with(self.cluster(), Arc::clone(&self.interner), &ProviderLabels::default(), cache).0
    }

    fn learn(&mut self, from: &Snapshot) {
        let base = Arc::clone(&self.interner);
        Arc::make_mut(&mut self.interner).learn(&from.interner, &base);
    }
}

fn node_object(node: u8, cpu: u8, ready: bool, going: bool) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n-{node}"), "labels": {"kubernetes.io/hostname": format!("n-{node}"), "size": format!("{cpu}")}},
        "spec": {"providerID": format!("id-{node}")},
        "status": {"allocatable": {"cpu": cpu.to_string(), "pods": "110"}, "capacity": {"cpu": cpu.to_string(), "pods": "110"},
                   "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    });
    if going {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    object
}

/// Launched, registered and initialized, one after the other. A new name is in its requirements from 3 on.
fn claim_object(claim: u8, progress: u8, value: u8) -> Value {
    let zone = if value < 3 { format!("zone-{value}") } else { format!("new-{claim}-{value}") };
    let conditions: Vec<Value> = ["Launched", "Registered", "Initialized"]
        .iter()
        .take(progress.into())
        .map(|kind| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": format!("c-{claim}"), "labels": {"karpenter.sh/nodepool": "p"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"},
            "requirements": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}],
            "resources": {"requests": {"cpu": "1", "pods": "3"}},
        },
        "status": {"providerID": if progress > 0 { format!("id-{claim}") } else { String::new() }, "conditions": conditions,
                   "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}},
    })
}

fn pod_object(pod: u8, place: Place, kind: u8, phase: u8) -> Value {
    let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{pod}"), "namespace": "default", "uid": format!("uid-{pod}"), "labels": {"app": format!("a-{kind}")}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": format!("{}m", 100 * (u32::from(kind) + 1))}}}]},
        "status": {"phase": "Pending", "conditions": waits},
    });
    match place {
        Place::Bound(node) => {
            object["spec"]["nodeName"] = format!("n-{node}").into();
            object["status"] = json!({"phase": if phase == 0 { "Succeeded" } else { "Running" }});
        }
        Place::Nominated(node) => object["status"]["nominatedNodeName"] = format!("n-{node}").into(),
        Place::Waiting => {}
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_remembered_of_the_last_snapshot_changes_no_byte_of_the_next(
        rounds in prop::collection::vec((prop::collection::vec(change(), 0..6), any::<bool>()), 1..12)
    ) {
        let (mut store, mut cache) = (Store::default(), Cache::default());
        for (changes, learns) in rounds {
            changes.iter().for_each(|change| store.apply(change));
            let (cached, fresh) = (store.cached(&mut cache), store.fresh());
            prop_assert_eq!(format!("{cached:?}"), format!("{fresh:?}"));
            if learns {
                store.learn(&cached);
            }
        }
    }
}

/// A cluster of nodes with a pod and a NodeClaim each, and what its second snapshot shares with its first after `change`.
#[track_caller]
fn check_shared(change: &[Change], expected: &[bool]) {
    let (mut store, mut cache) = (Store::default(), Cache::default());
    for node in 0..3 {
        store.apply(&Change::Node { node, cpu: 2, ready: true, going: false });
        store.apply(&Change::Claim { claim: node, progress: 3, value: 0 });
        store.apply(&Change::Pod { pod: node, place: Place::Bound(node), kind: 0, phase: 1 });
    }
    // Names that the store does not know yet keep the first from being remembered.
    let first = store.cached(&mut cache);
    store.learn(&first);
    let before = store.cached(&mut cache);
    change.iter().for_each(|change| store.apply(change));
    let after = store.cached(&mut cache);
    let shared: Vec<bool> = before.nodes.iter().zip(&after.nodes).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(shared, expected);
}

#[test]
fn only_nodes_that_something_happened_to_are_made_anew() {
    check_shared(&[], &[true, true, true]);
    check_shared(&[Change::Pod { pod: 7, place: Place::Bound(1), kind: 1, phase: 1 }], &[true, false, true]);
    check_shared(&[Change::PodGone(2)], &[true, true, false]);
    check_shared(&[Change::Node { node: 0, cpu: 3, ready: true, going: false }], &[false, true, true]);
    check_shared(&[Change::Claim { claim: 1, progress: 3, value: 1 }], &[true, false, true]);
    check_shared(&[Change::Pod { pod: 8, place: Place::Nominated(2), kind: 1, phase: 1 }], &[true, true, false]);
    check_shared(&[Change::Pod { pod: 8, place: Place::Waiting, kind: 1, phase: 1 }], &[true, true, true]);
}
