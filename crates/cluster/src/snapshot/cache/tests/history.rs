//! Random histories of a cluster, and the store that sees them.

use std::collections::BTreeMap;

use api::labels::ProviderLabels;
use cloudprovider::InstanceType;
use model::Uid;
use proptest::prelude::*;
use scheduling::Snapshot;
use serde_json::{Value, json};

use super::super::*;
use crate::snapshot::{BoundPods, Cluster, LaunchableNodePool, snapshot, snapshot_with};
use decode::Context;
use decode::limit_range::TemplateResources;

/// What happens to a cluster. Numbers name objects.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// The Node comes, or becomes another one: with so much CPU, ready or not, being deleted or not.
    Node {
        node: u8,
        cpu: u8,
        ready: bool,
        going: bool,
    },
    NodeGone(u8),
    /// The NodeClaim comes, or gets so far: with a requirement whose value is a new name, perhaps. From 6 on it cannot
    /// be read.
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
    /// The pod has devices that cost so much of its node; 0 takes them away.
    Devices {
        pod: u8,
        cost: u8,
    },
    /// The DaemonSet comes, or its template becomes another one.
    DaemonSet(u8),
    DaemonSetGone,
    /// What containers ask for that say nothing; 0: there is no LimitRange.
    LimitRange(u8),
    /// What the NodePool may have at most.
    Limit(u8),
    /// The store reads a name that nothing in the cluster has.
    Name(u8),
    /// The store is built anew: its names get other ids.
    Rebuild,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Bound(u8),
    Nominated(u8),
    Waiting,
}

const NODES: u8 = 4;
const PODS: u8 = 12;

/// Pods of this kind and the next one are the DaemonSet's, of its first template and of its second.
const DAEMON: u8 = 3;

pub(super) fn change() -> impl Strategy<Value = Change> {
    let node = 0..NODES;
    let place = prop_oneof![
        4 => node.clone().prop_map(Place::Bound),
        1 => node.clone().prop_map(Place::Nominated),
        1 => Just(Place::Waiting),
    ];
    prop_oneof![
        6 => (node.clone(), 1..4_u8, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(node, cpu, ready, going)| Change::Node { node, cpu, ready, going }),
        2 => node.clone().prop_map(Change::NodeGone),
        6 => (node.clone(), 0..4_u8, 0..7_u8).prop_map(|(claim, progress, value)| Change::Claim { claim, progress, value }),
        2 => node.prop_map(Change::ClaimGone),
        12 => (0..PODS, place, 0..DAEMON + 2, 0..4_u8)
            .prop_map(|(pod, place, kind, phase)| Change::Pod { pod, place, kind, phase }),
        2 => (0..PODS).prop_map(Change::PodGone),
        1 => (0..PODS, 0..3_u8).prop_map(|(pod, cost)| Change::Devices { pod, cost }),
        1 => (1..3_u8).prop_map(Change::DaemonSet),
        1 => Just(Change::DaemonSetGone),
        1 => (0..3_u8).prop_map(Change::LimitRange),
        1 => (1..20_u8).prop_map(Change::Limit),
        2 => any::<u8>().prop_map(Change::Name),
        1 => Just(Change::Rebuild),
    ]
}

/// The controller's store, as far as snapshots need it: what it was told, and that as it decoded it.
#[derive(Default)]
pub(super) struct Store {
    told: BTreeMap<String, Change>,
    interner: Arc<Interner>,
    nodes: BTreeMap<u8, Arc<model::Node>>,
    claims: BTreeMap<u8, Arc<NodeClaim>>,
    pods: BTreeMap<u8, Arc<Pod>>,
    bound: BoundPods,
    devices: BTreeMap<Uid, Arc<dra_types::Pod>>,
    daemon_set: Option<(Arc<model::workload::DaemonSet>, Arc<TemplateResources>)>,
    limit_range: Option<Arc<decode::limit_range::LimitRange>>,
    node_pool: Option<LaunchableNodePool>,
}

impl Store {
    /// With a NodePool.
    pub(super) fn new() -> Self {
        let mut store = Self::default();
        store.apply(&Change::Limit(10));
        store
    }

    /// Whether the ids of names are others from now on.
    pub(super) fn apply(&mut self, change: &Change) -> bool {
        let Some(object) = named(change) else {
            if matches!(change, Change::Rebuild) {
                self.rebuild();
                return true;
            }
            self.decode(change);
            return false;
        };
        self.told.insert(object, change.clone());
        self.decode(change);
        false
    }

    /// All objects decoded again, the last first, as a store that has just been started would have read them in another
    /// order. NodeClaims are kept as they are read, so they are the same objects.
    fn rebuild(&mut self) {
        let before = std::mem::take(self);
        for change in before.told.values().rev() {
            self.decode(change);
        }
        (self.told, self.claims) = (before.told, before.claims);
    }

    fn decode(&mut self, change: &Change) {
        let context = &mut Context::new(Arc::make_mut(&mut self.interner));
        match *change {
            Change::Node { node, cpu, ready, going } => {
                let object = decode::node(&node_object(node, cpu, ready, going), context).unwrap();
                self.nodes.insert(node, Arc::new(object));
            }
            Change::NodeGone(node) => drop(self.nodes.remove(&node)),
            Change::Claim { claim, progress, value } => {
                let object = decode::node_claim_object(&claim_object(claim, progress, value)).unwrap();
                self.claims.insert(claim, Arc::new(object));
            }
            Change::ClaimGone(claim) => drop(self.claims.remove(&claim)),
            Change::Pod { pod, place, kind, phase } => {
                let object = Arc::new(decode::pod(&pod_object(pod, place, kind, phase), context).unwrap());
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
            Change::Devices { pod, cost } => {
                let devices = dra_types::Pod::from_json(&devices_object(pod, cost)).unwrap();
                self.devices.insert(uid(pod).as_str().into(), Arc::new(devices));
            }
            Change::DaemonSet(generation) => {
                let object = daemon_set_object(generation);
                let resources = TemplateResources::of_daemon_set(&object).unwrap();
                self.daemon_set = Some((Arc::new(decode::daemon_set(&object, context).unwrap()), Arc::new(resources)));
            }
            Change::DaemonSetGone => self.daemon_set = None,
            Change::LimitRange(cpu) => {
                let object = json!({"metadata": {"name": "l", "namespace": "default"},
                    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": format!("{}m", 50 * u32::from(cpu))}}]}});
                self.limit_range = (cpu > 0).then(|| Arc::new(decode::limit_range(&object).unwrap()));
            }
            Change::Limit(cpu) => {
                let (catalogue, errors) = crate::catalogue(&[instance_type()], context);
                assert!(errors.is_empty(), "{errors:?}");
                self.node_pool = Some(LaunchableNodePool {
                    object: Arc::new(decode::node_pool_object(&node_pool_object(cpu)).unwrap()),
                    usable: Ok(()),
                    catalogue: Arc::new(catalogue),
                });
            }
            Change::Name(name) => drop(context.interner.value(&format!("name-{name}"))),
            Change::Rebuild => {}
        }
    }

    fn cluster(&self) -> Cluster {
        let mut cluster = Cluster {
            nodes: self.nodes.values().cloned().collect(),
            node_claims: self.claims.values().cloned().collect(),
            node_pools: self.node_pools(),
            pods: self.pods.values().filter(|pod| pod.node_name.is_none()).cloned().collect(),
            bound: self.bound.clone(),
            daemon_sets: self.daemon_set.iter().map(|(set, _)| Arc::clone(set)).collect(),
            template_resources: self.daemon_set.iter().map(|(set, it)| (set.uid.clone(), Arc::clone(it))).collect(),
            limit_ranges: self.limit_range.iter().cloned().collect(),
            ..Cluster::default()
        };
        cluster.devices.pods = self.devices.clone();
        cluster
    }

    fn node_pools(&self) -> Vec<LaunchableNodePool> {
        self.node_pool.iter().cloned().collect()
    }

    pub(super) fn fresh(&self) -> (Snapshot, Vec<decode::ObjectError>) {
        snapshot(self.cluster(), Arc::clone(&self.interner), &ProviderLabels::default())
    }

    pub(super) fn cached(&self, cache: &mut Cache) -> (Snapshot, Vec<decode::ObjectError>) {
        snapshot_with(self.cluster(), Arc::clone(&self.interner), &ProviderLabels::default(), cache)
    }

    /// What the snapshot had to name becomes known.
    pub(super) fn learn(&mut self, from: &Snapshot) {
        let base = Arc::clone(&self.interner);
        Arc::make_mut(&mut self.interner).learn(&from.interner, &base);
    }
}

/// The object that a change is about; none if it is about none.
fn named(change: &Change) -> Option<String> {
    Some(match change {
        Change::Node { node, .. } | Change::NodeGone(node) => format!("node {node}"),
        Change::Claim { claim, .. } | Change::ClaimGone(claim) => format!("claim {claim}"),
        Change::Pod { pod, .. } | Change::PodGone(pod) => format!("pod {pod}"),
        Change::Devices { pod, .. } => format!("devices {pod}"),
        Change::DaemonSet(_) | Change::DaemonSetGone => "daemon set".to_owned(),
        Change::LimitRange(_) => "limit range".to_owned(),
        Change::Limit(_) => "node pool".to_owned(),
        Change::Name(_) | Change::Rebuild => return None,
    })
}

fn uid(pod: u8) -> String {
    format!("uid-{pod}")
}

fn node_object(node: u8, cpu: u8, ready: bool, going: bool) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n-{node}"), "labels": {
            "kubernetes.io/hostname": format!("n-{node}"), "size": format!("{cpu}"),
            "topology.kubernetes.io/zone": format!("zone-{}", node % 2),
        }},
        "spec": {"providerID": format!("id-{node}")},
        "status": {"allocatable": {"cpu": cpu.to_string(), "pods": "110"}, "capacity": {"cpu": cpu.to_string(), "pods": "110"},
                   "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    });
    if going {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    object
}

/// Launched, registered and initialized, one after the other. A new name is in its requirements from 3 on, and from 6
/// on what it asks for is no quantity.
fn claim_object(claim: u8, progress: u8, value: u8) -> Value {
    let zone = if value < 3 { format!("zone-{value}") } else { format!("new-{claim}-{value}") };
    let cpu = if value < 6 { "1" } else { "many" };
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
            "resources": {"requests": {"cpu": cpu, "pods": "3"}},
        },
        "status": {"providerID": if progress > 0 { format!("id-{claim}") } else { String::new() }, "conditions": conditions,
                   "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}},
    })
}

/// Pods of kind 1 are spread over zones, those of kind 2 keep apart.
fn pod_object(pod: u8, place: Place, kind: u8, phase: u8) -> Value {
    let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let labels = json!({"app": format!("a-{kind}")});
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{pod}"), "namespace": "default", "uid": uid(pod), "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": format!("{}m", 100 * (u32::from(kind) + 1))}}}]},
        "status": {"phase": "Pending", "conditions": waits},
    });
    match kind {
        1 => {
            object["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": labels}}]);
        }
        2 => {
            object["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]);
        }
        DAEMON.. => {
            object["metadata"]["labels"]["pod-template-generation"] = (kind - DAEMON + 1).to_string().into();
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "uid-d", "controller": true}]);
        }
        0 => {}
    }
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

fn devices_object(pod: u8, cost: u8) -> Value {
    let mut object = json!({"metadata": {"name": format!("pod-{pod}"), "namespace": "default", "uid": uid(pod)},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    if cost > 0 {
        let resources = json!({"cpu": format!("{}m", 100 * u32::from(cost))});
        object["status"]["nodeAllocatableResourceClaimStatuses"] =
            json!([{"resourceClaimName": "c", "containers": ["c"], "resources": resources}]);
    }
    object
}

fn daemon_set_object(generation: u8) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "default", "uid": "uid-d",
            "annotations": {"deprecated.daemonset.template.generation": generation.to_string()}},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}},
    })
}

fn node_pool_object(cpu: u8) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p", "uid": "p"},
        "spec": {"limits": {"cpu": cpu.to_string()}, "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"}, "requirements": []}}},
    })
}

fn instance_type() -> InstanceType {
    let offering = |zone: &str| json!({"zone": zone, "capacityType": "on-demand", "price": 100, "available": true});
    let object = json!({"name": "t", "requirements": {}, "capacity": {"cpu": "2", "pods": "10"}, "overhead": {},
        "offerings": [offering("zone-0"), offering("zone-1")]});
    serde_json::from_value(object).unwrap()
}
