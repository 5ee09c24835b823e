//! What is in the cluster now: pods, machines, prices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Result;
use api::NodeClaim;
use e2e::install;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// One reading.
pub struct Fleet {
    pods: Vec<Pod>,
    claims: Vec<NodeClaim>,
    nodes: Vec<Node>,
    instances: Vec<ConfigMap>,
}

/// One machine, as the table shows it.
pub struct Machine {
    pub name: String,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub price_nano_usd_per_hour: i64,
    /// Pods by workload.
    pub pods: BTreeMap<String, usize>,
    /// CPU that its pods ask for and that it has, in milli-CPU.
    pub cpu_milli: (i64, i64),
    pub why: String,
}

impl Fleet {
    pub async fn read(client: &Client, namespace: &str, node_pool: &str) -> Result<Self> {
        let of_pool = ListParams::default().labels(&format!("{}={node_pool}", api::labels::NODEPOOL));
        let records = ListParams::default().labels("app.kubernetes.io/component=kwok-instance");
        Ok(Self {
            pods: Api::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items,
            claims: Api::all(client.clone()).list(&of_pool).await?.items,
            nodes: Api::all(client.clone()).list(&of_pool).await?.items,
            instances: Api::namespaced(client.clone(), install::NAMESPACE).list(&records).await?.items,
        })
    }

    pub fn claims(&self) -> usize {
        self.claims.len()
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub fn instances(&self) -> usize {
        self.instances.len()
    }

    /// The pods of Deployments that have a node.
    pub fn bound(&self) -> usize {
        self.workload_pods().filter(|pod| node_of(pod).is_some()).count()
    }

    /// Whether exactly so many pods of Deployments exist and all are bound.
    pub fn is_settled(&self, wanted: usize) -> bool {
        self.workload_pods().count() == wanted && self.bound() == wanted
    }

    pub fn ready_nodes(&self) -> usize {
        let initialized = |node: &&Node| node.labels().contains_key(api::labels::INITIALIZED);
        self.nodes.iter().filter(initialized).count()
    }

    pub fn machine_names(&self) -> BTreeSet<String> {
        self.claims.iter().map(ResourceExt::name_any).collect()
    }

    /// Dearest first, then by name.
    pub fn machines(&self) -> Vec<Machine> {
        let mut machines: Vec<_> = self.claims.iter().map(|claim| self.machine(claim)).collect();
        machines.sort_by(|a, b| {
            b.price_nano_usd_per_hour.cmp(&a.price_nano_usd_per_hour).then_with(|| a.name.cmp(&b.name))
        });
        machines
    }

    pub fn price_nano_usd_per_hour(&self) -> i64 {
        self.machines().iter().map(|machine| machine.price_nano_usd_per_hour).sum()
    }

    /// What happened to the pods that `before` did not have.
    pub fn since(&self, before: &Self) -> String {
        let old_pods: BTreeSet<_> = before.pods.iter().filter_map(ResourceExt::uid).collect();
        let old_nodes: BTreeSet<_> = before.nodes.iter().map(ResourceExt::name_any).collect();
        let new = self.workload_pods().filter(|pod| pod.uid().is_some_and(|uid| !old_pods.contains(&uid)));
        let (in_free_room, on_new): (Vec<_>, Vec<_>) =
            new.filter_map(node_of).partition(|node| old_nodes.contains(*node));
        format!(
            "{} new pods went into free room, {} onto {} new machines",
            in_free_room.len(),
            on_new.len(),
            self.claims.len().saturating_sub(before.claims.len())
        )
    }

    pub fn summary(&self, wanted: usize) -> Summary {
        Summary {
            bound: self.bound(),
            wanted,
            machines: self.claims.len(),
            price_nano_usd_per_hour: self.price_nano_usd_per_hour(),
        }
    }

    /// Pods but those of DaemonSets, which are there because the machines are.
    fn workload_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| {
            pod.metadata.deletion_timestamp.is_none()
                && !pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet")
        })
    }

    fn machine(&self, claim: &NodeClaim) -> Machine {
        let name = claim.name_any();
        let node_name = claim.status.as_ref().map(|status| status.node_name.as_str()).unwrap_or_default();
        let label = |key: &str| claim.labels().get(key).cloned().unwrap_or_default();
        let on_it = || self.pods.iter().filter(|pod| node_of(pod) == Some(node_name));
        let pods = on_it().fold(BTreeMap::new(), |mut counts, pod| {
            *counts.entry(workload(pod)).or_default() += 1;
            counts
        });
        let allocatable = self.nodes.iter().find(|node| node.name_any() == node_name).map_or(0, allocatable_cpu_milli);
        Machine {
            price_nano_usd_per_hour: self.price_of(&name),
            cpu_milli: (on_it().map(requested_cpu_milli).sum(), allocatable),
            instance_type: label(api::labels::INSTANCE_TYPE),
            zone: label(api::labels::ZONE),
            capacity_type: label(api::labels::CAPACITY_TYPE),
            pods,
            why: why(claim),
            name,
        }
    }

    /// What the provider's record says; nothing once it is gone.
    fn price_of(&self, claim: &str) -> i64 {
        let field = |record: &ConfigMap, key: &str| record.data.as_ref().and_then(|data| data.get(key).cloned());
        let record = self.instances.iter().find(|record| field(record, "nodeClaim").as_deref() == Some(claim));
        record.and_then(|record| field(record, "priceNanoUsdPerHour")?.parse().ok()).unwrap_or(0)
    }
}

/// The last line.
pub struct Summary {
    bound: usize,
    wanted: usize,
    machines: usize,
    price_nano_usd_per_hour: i64,
}

impl Summary {
    pub fn is_complete(&self) -> bool {
        self.bound == self.wanted
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bound, wanted, machines, price_nano_usd_per_hour } = self;
        write!(
            f,
            "demo: {bound} of {wanted} pods bound on {machines} machines, ${}/h",
            dollars(*price_nano_usd_per_hour)
        )
    }
}

/// Dollars with four decimal places, rounded down.
pub fn dollars(nano_usd: i64) -> String {
    format!("{}.{:04}", nano_usd / 1_000_000_000, nano_usd % 1_000_000_000 / 100_000)
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn workload(pod: &Pod) -> String {
    pod.labels().get("app").cloned().unwrap_or_else(|| pod.name_any())
}

/// The planner kept every type that the pods allow, cheapest first, and the provider took the cheapest that it had.
fn why(claim: &NodeClaim) -> String {
    let types = claim.spec.requirements.iter().find(|requirement| requirement.key == api::labels::INSTANCE_TYPE);
    let types = types.map_or(0, |requirement| requirement.values.len());
    let requests = claim.spec.resources.requests.iter();
    let asked =
        |name: &str| requests.clone().find(|(key, _)| key.as_str() == name).map(|(_, amount)| amount.to_string());
    format!(
        "cheapest of {types} types with {} CPU, {} memory",
        asked("cpu").unwrap_or_default(),
        asked("memory").unwrap_or_default()
    )
}

fn requested_cpu_milli(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    requests.map(|quantity| milli(&quantity.0)).sum()
}

fn allocatable_cpu_milli(node: &Node) -> i64 {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    allocatable.and_then(|resources| resources.get("cpu")).map_or(0, |quantity| milli(&quantity.0))
}

/// CPU as the examples and the provider write it: `500m` or `2`.
fn milli(quantity: &str) -> i64 {
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => quantity.parse::<i64>().unwrap_or(0) * 1000,
    }
}
