//! The claims of the examples as kube-scheduler allocated them, held against the plan.
//!
//! A claim is allocated *as planned* if its pods are on the machine that they were planned on, or pods of one workload
//! have exchanged machines; if its devices are of the drivers and shapes that the planner's allocator gives such a claim on
//! that machine; and if it can be used from the nodes that the planner's allocator says. A shape is what a device is but
//! for its number.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::NodeClaim;
use dra_sched::types::{Allocation, AttributeValue, Device, DeviceClass, DeviceId, ResourceClaim, ResourceSlice};
use dra_sched::{ClusterLedger, Compat, InventoryBuilder, KubernetesMinor, NodeFacts, Verdict};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use model::Budget;
use serde_json::Value;

/// Steps of the allocator for one claim; the examples' take some dozen.
const STEPS: u64 = 1_000_000;

/// A claim of an example.
pub struct Row {
    pub name: String,
    /// How many pods of each workload use it.
    pub pods: BTreeMap<String, usize>,
    pub node: String,
    /// Its devices, as `driver/device`.
    pub devices: Vec<String>,
    /// Why it is not as planned.
    pub differs: Option<String>,
}

/// What the judgement needs of the cluster.
pub struct Devices {
    classes: Vec<Arc<DeviceClass>>,
    slices: Vec<Arc<ResourceSlice>>,
    claims: Vec<ResourceClaim>,
    nodes: Vec<Node>,
    node_claims: Vec<NodeClaim>,
    pods: Vec<Pod>,
    compat: Compat,
}

impl Devices {
    /// Reads the cluster, and the claims and pods of these namespaces.
    pub async fn read(client: &Client, namespaces: &[String]) -> Result<Self> {
        let version = client.apiserver_version().await?;
        let minor = version.minor.trim_end_matches('+').parse().ok().and_then(KubernetesMinor::from_minor);
        let slices = objects(client, "ResourceSlice", "resourceslices").await?;
        let classes = objects(client, "DeviceClass", "deviceclasses").await?;
        let mut claims = Vec::new();
        for object in objects(client, "ResourceClaim", "resourceclaims").await? {
            let claim = ResourceClaim::from_json(&object)?;
            if namespaces.iter().any(|namespace| *namespace == *claim.meta.name.namespace) {
                claims.push(claim);
            }
        }
        let mut pods = Vec::new();
        for namespace in namespaces {
            pods.extend(Api::<Pod>::namespaced(client.clone(), namespace).list(&Default::default()).await?);
        }
        Ok(Self {
            classes: classes.iter().map(|it| Ok(Arc::new(DeviceClass::from_json(it)?))).collect::<Result<_>>()?,
            slices: slices.iter().map(|it| Ok(Arc::new(ResourceSlice::from_json(it)?))).collect::<Result<_>>()?,
            claims,
            nodes: Api::all(client.clone()).list(&Default::default()).await?.items,
            node_claims: Api::all(client.clone()).list(&Default::default()).await?.items,
            pods,
            compat: Compat::new(minor.context("this release of Kubernetes is not known")?),
        })
    }

    /// Every claim, by namespace and name.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.claims.iter().map(|claim| self.row(claim)).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// Devices that a machine's drivers have published, by driver.
    pub fn published(&self, node: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for slice in self.slices.iter().filter(|slice| slice.pool.name.as_str().split('/').next() == Some(node)) {
            *counts.entry(slice.driver.to_string()).or_default() += slice.devices.len();
        }
        counts
    }

    fn row(&self, claim: &ResourceClaim) -> Row {
        let users: Vec<&Pod> = self.pods.iter().filter(|pod| uses(claim, pod)).collect();
        let node = users.first().and_then(|pod| node_of(pod)).unwrap_or_default();
        let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
        Row {
            name: claim.meta.name.to_string(),
            pods: users.iter().fold(BTreeMap::new(), |mut counts, pod| {
                *counts.entry(workload(pod).1.cloned().unwrap_or_default()).or_default() += 1;
                counts
            }),
            node: node.to_owned(),
            devices: results.map(|it| format!("{}/{}", it.device.driver, it.device.device)).collect(),
            differs: self.difference(claim, &users, node),
        }
    }

    fn difference(&self, claim: &ResourceClaim, users: &[&Pod], node: &str) -> Option<String> {
        let Some(allocation) = &claim.allocation else { return Some("is not allocated".to_owned()) };
        if users.is_empty() {
            return Some("no pod uses it".to_owned());
        }
        if let Some(pod) = users.iter().find(|pod| !self.is_where_planned(pod)) {
            let machine = node_of(pod).unwrap_or("no node");
            return Some(format!("pod {} is on {machine}, where none of its workload was planned", pod.name_any()));
        }
        let Some(expected) = self.expected(claim, node) else {
            return Some("the planner's allocator would not give it devices there".to_owned());
        };
        if self.shapes(allocation) != self.shapes(&expected) {
            return Some(format!("expected {}", self.shapes(&expected).join(", ")));
        }
        (allocation.node_selector != expected.node_selector).then(|| "can be used from other nodes".to_owned())
    }

    /// Whether a pod is on a machine that was launched for it, or for others of its workload of which no more are there
    /// than were planned.
    fn is_where_planned(&self, pod: &Pod) -> bool {
        let Some(node) = node_of(pod) else { return false };
        let is_of_node = |it: &&NodeClaim| it.status.as_ref().is_some_and(|status| status.node_name == node);
        let Some(node_claim) = self.node_claims.iter().find(is_of_node) else { return false };
        let planned = node_claim.annotations().get(api::annotations::PLANNED_PODS);
        let planned: Vec<&str> = planned.into_iter().flat_map(|uids| uids.split(',')).collect();
        let is_planned = |pod: &Pod| pod.metadata.uid.as_deref().is_some_and(|uid| planned.contains(&uid));
        let alike = || self.pods.iter().filter(|other| workload(other) == workload(pod));
        let expected = alike().filter(|other| is_planned(other)).count();
        let there = alike().filter(|other| node_of(other) == Some(node)).count();
        is_planned(pod) || there <= expected
    }

    /// What the planner's allocator gives a claim on a node that is free.
    fn expected(&self, claim: &ResourceClaim, node: &str) -> Option<Allocation> {
        let mut builder = InventoryBuilder::new(self.compat);
        self.classes.iter().for_each(|class| builder.class(Arc::clone(class)));
        self.slices.iter().for_each(|slice| builder.slice(Arc::clone(slice)));
        let class = builder.claim_class(&claim.meta.name.name, &Arc::new(claim.spec.clone()), None);
        let inventory = builder.build();
        let labels = self.nodes.iter().find(|it| it.name_any() == node)?.labels();
        let facts = NodeFacts {
            name: Some(node.into()),
            labels: labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
            ..NodeFacts::default()
        };
        let ledger = ClusterLedger::new(&inventory);
        match inventory.allocate(&facts, &[class], &ledger, &mut Budget::new(STEPS)) {
            Verdict::Allocated { allocations, .. } => allocations.into_iter().next(),
            Verdict::Refused(_) | Verdict::OutOfBudget(_) => None,
        }
    }

    fn shapes(&self, allocation: &Allocation) -> Vec<String> {
        let shape = |id: &DeviceId| {
            let of_pool = |it: &&Arc<ResourceSlice>| it.driver == id.driver && it.pool.name == id.pool;
            let mut devices = self.slices.iter().filter(of_pool).flat_map(|slice| &slice.devices);
            let device = devices.find(|device| device.name == id.device);
            device.map_or_else(|| format!("{id} (gone)"), |device| format!("{}/{}", id.driver, shape(device)))
        };
        let mut shapes: Vec<String> = allocation.results.iter().map(|result| shape(&result.device)).collect();
        shapes.sort();
        shapes
    }
}

/// What a device is: without numbers, and without what only its machine has.
fn shape(device: &Device) -> String {
    let attributes = device.attributes.iter().filter_map(|(name, value)| match value {
        AttributeValue::Int(_) => None,
        _ if name.domain() == Some("resource.kubernetes.io") => None,
        value => Some(format!("{name}={value}")),
    });
    let capacity = device.capacity.iter().map(|(name, it)| format!("{name}={}", it.value));
    let described: Vec<String> = attributes.chain(capacity).collect();
    format!("{} {}", device.name.as_str().replace(|it: char| it.is_ascii_digit(), "#"), described.join(" "))
}

fn uses(claim: &ResourceClaim, pod: &Pod) -> bool {
    pod.namespace().as_deref() == Some(&*claim.meta.name.namespace)
        && claim.reserved_for.iter().any(|user| Some(user.uid.as_str()) == pod.metadata.uid.as_deref())
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn workload(pod: &Pod) -> (Option<String>, Option<&String>) {
    (pod.namespace(), pod.labels().get("app"))
}

async fn objects(client: &Client, kind: &str, plural: &str) -> Result<Vec<Value>> {
    let resource = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let list = Api::<DynamicObject>::all_with(client.clone(), &resource).list(&Default::default()).await?;
    let complete = |object: DynamicObject| {
        let mut object = serde_json::to_value(object)?;
        object["apiVersion"] = resource.api_version.as_str().into();
        object["kind"] = kind.into();
        Ok(object)
    };
    list.items.into_iter().map(complete).collect()
}
