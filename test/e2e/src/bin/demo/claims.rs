//! The claims of the examples as kube-scheduler allocated them, held against the plan.
//!
//! A claim is allocated *as planned* if its pods are on the machine that they were planned on, or pods of one workload
//! have exchanged machines; if its devices are of the drivers and shapes that the planner's allocator gives such a
//! claim on that machine, beside the claims that came before it; and if it can be used from the nodes that the
//! planner's allocator says. A shape is what a device is but for its number.

use std::collections::BTreeMap;

use anyhow::Result;
use api::NodeClaim;
use dra_sched::ClusterLedger;
use dra_types::{Allocation, ResourceClaim};
use e2e::Gates;
use e2e::cluster::node_of;
use e2e::devices::{Claim, Devices, Numbers};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};

/// A claim of an example.
pub(crate) struct Row {
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
pub(crate) struct Claims {
    devices: Devices,
    node_claims: Vec<NodeClaim>,
    pods: Vec<Pod>,
}

impl Claims {
    /// Reads the cluster, and the claims and pods of these namespaces.
    pub(crate) async fn read(client: &Client, namespaces: &[&str]) -> Result<Self> {
        let mut pods = Vec::new();
        for namespace in namespaces {
            pods.extend(Api::<Pod>::namespaced(client.clone(), namespace).list(&Default::default()).await?);
        }
        Ok(Self {
            devices: Devices::read(client, Gates::Default, namespaces).await?,
            node_claims: Api::all(client.clone()).list(&Default::default()).await?.items,
            pods,
        })
    }

    /// Every claim, by namespace and name.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows = self.in_order();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// Claim after claim, each beside those before it: in the order in which they were written, but for those that
    /// are as planned only after a later one. A claim is written again for each pod that shares it.
    fn in_order(&self) -> Vec<Row> {
        let mut left: Vec<&Claim> = self.devices.claims.iter().collect();
        left.sort_by_key(|claim| claim.version);
        let mut ledger = ClusterLedger::new(&self.devices.inventory);
        let mut rows = Vec::new();
        while let Some(&first) = left.first() {
            let mut tried = left.iter().map(|claim| self.row(claim, &ledger)).enumerate();
            let as_planned = tried.find(|(_, row)| row.differs.is_none());
            let (next, row) = as_planned.unwrap_or_else(|| (0, self.row(first, &ledger)));
            rows.push(row);
            if let Some(allocation) = &left.remove(next).object.allocation {
                ledger.hold(&self.devices.inventory, allocation);
            }
        }
        rows
    }

    /// Devices that a machine's drivers have published, by driver.
    pub(crate) fn published(&self, node: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for slice in self.devices.slices.iter().filter(|slice| slice.pool.name.as_str().split('/').next() == Some(node))
        {
            *counts.entry(slice.driver.to_string()).or_default() += slice.devices.len();
        }
        counts
    }

    fn row(&self, given: &Claim, before: &ClusterLedger) -> Row {
        let claim = &given.object;
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
            differs: self.difference(given, &users, node, before),
        }
    }

    fn difference(&self, claim: &Claim, users: &[&Pod], node: &str, before: &ClusterLedger) -> Option<String> {
        let Some(allocation) = &claim.object.allocation else { return Some("is not allocated".to_owned()) };
        if users.is_empty() {
            return Some("no pod uses it".to_owned());
        }
        if let Some(pod) = users.iter().find(|pod| !self.is_where_planned(pod)) {
            let machine = node_of(pod).unwrap_or("no node");
            return Some(format!("pod {} is on {machine}, where none of its workload was planned", pod.name_any()));
        }
        let Some(expected) = self.expected(claim, node, before) else {
            return Some("the planner's allocator would not give it devices there".to_owned());
        };
        let given = |allocation| self.devices.given(allocation, Numbers::AreIgnored);
        let ((shapes, nodes), (expected, expected_nodes)) = (given(allocation), given(&expected));
        if shapes != expected {
            return Some(format!("expected {}", expected.join(", ")));
        }
        (nodes != expected_nodes).then(|| "can be used from other nodes".to_owned())
    }

    /// Whether a pod is on a machine that was launched for it, or for others of its workload of which no more are there
    /// than were planned.
    fn is_where_planned(&self, pod: &Pod) -> bool {
        let Some(node) = node_of(pod) else { return false };
        let is_of_node = |it: &&NodeClaim| it.status.as_ref().is_some_and(|status| status.node_name == node);
        let Some(node_claim) = self.node_claims.iter().find(is_of_node) else { return false };
        let planned = node_claim.annotations().get(api::annotations::PLANNED_PODS);
        let planned: Vec<&str> = planned.into_iter().flat_map(|uids| e2e::fleet::planned_uids(uids)).collect();
        let is_planned = |pod: &Pod| pod.metadata.uid.as_deref().is_some_and(|uid| planned.contains(&uid));
        let alike = || self.pods.iter().filter(|other| workload(other) == workload(pod));
        let expected = alike().filter(|other| is_planned(other)).count();
        let there = alike().filter(|other| node_of(other) == Some(node)).count();
        is_planned(pod) || there <= expected
    }

    /// What the planner's allocator gives a claim on a node, beside others.
    fn expected(&self, claim: &Claim, node: &str, before: &ClusterLedger) -> Option<Allocation> {
        self.devices.allocate(node, &[claim.class], before).ok()?.into_iter().next()
    }
}

fn uses(claim: &ResourceClaim, pod: &Pod) -> bool {
    pod.namespace().as_deref() == Some(&*claim.meta.name.namespace)
        && claim.reserved_for.iter().any(|user| Some(user.uid.as_str()) == pod.metadata.uid.as_deref())
}

fn workload(pod: &Pod) -> (Option<String>, Option<&String>) {
    (pod.namespace(), pod.labels().get("app"))
}
