//! What is in the cluster now: pods, machines, prices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::cluster::instances;
use anyhow::Result;
use api::NodeClaim;
use cloudprovider_aws::memory::Cloud;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// Who knows the machines and what they cost.
#[derive(Debug, Clone)]
pub enum Provider {
    /// The kwok provider, by its records in the cluster.
    Kwok,
    /// EC2 in memory.
    Ec2(Cloud),
}

/// A machine as its provider knows it.
#[derive(Debug)]
struct Instance {
    /// The NodeClaim that it is of; `None` before that says so.
    claim: Option<String>,
    price_nano_usd_per_hour: i64,
}

impl Provider {
    async fn instances(&self, client: &Client, claims: &[NodeClaim]) -> Result<Vec<Instance>> {
        match self {
            Self::Kwok => Ok(instances(client).await?.iter().map(Instance::of_record).collect()),
            Self::Ec2(cloud) => {
                let named = claims.iter().filter_map(|claim| {
                    let (_, machine) = claim.status.as_ref()?.provider_id.rsplit_once('/')?;
                    Some((machine, claim.name_any()))
                });
                let named: BTreeMap<&str, String> = named.collect();
                let instance = |machine: cloudprovider_aws::service::ec2::Machine| Instance {
                    claim: named.get(machine.id.as_str()).cloned(),
                    price_nano_usd_per_hour: cloud.price(&machine).map_or(0, |price| price.0),
                };
                Ok(cloud.alive().into_iter().map(instance).collect())
            }
        }
    }
}

impl Instance {
    fn of_record(record: &ConfigMap) -> Self {
        let field = |key: &str| record.data.as_ref().and_then(|data| data.get(key).cloned());
        let price = field("priceNanoUsdPerHour").and_then(|price| price.parse().ok());
        Self { claim: field("nodeClaim"), price_nano_usd_per_hour: price.unwrap_or(0) }
    }
}

/// One reading.
#[derive(Debug)]
pub struct Fleet {
    pods: Vec<Pod>,
    claims: Vec<NodeClaim>,
    nodes: Vec<Node>,
    instances: Vec<Instance>,
}

/// One machine, as the table shows it.
#[derive(Debug)]
#[expect(missing_docs, reason = "a table's columns")]
pub struct Machine {
    pub name: String,
    /// Its Node's name; empty before it registers.
    pub node: String,
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
    /// Reads all of it, with machines of the kwok provider.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn read(client: &Client, namespace: &str, node_pool: &str) -> Result<Self> {
        Self::of_provider(&Provider::Kwok, client, namespace, node_pool).await
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn of_provider(provider: &Provider, client: &Client, namespace: &str, node_pool: &str) -> Result<Self> {
        let of_pool = ListParams::default().labels(&format!("{}={node_pool}", api::labels::NODEPOOL));
        let claims = Api::all(client.clone()).list(&of_pool).await?.items;
        Ok(Self {
            pods: Api::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items,
            instances: provider.instances(client, &claims).await?,
            claims,
            nodes: Api::all(client.clone()).list(&of_pool).await?.items,
        })
    }

    /// How many NodeClaims there are.
    #[must_use]
    pub fn claims(&self) -> usize {
        self.claims.len()
    }

    /// How many Nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many machines the provider knows.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.instances.len()
    }

    /// The pods of Deployments that have a node.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.workload_pods().filter(|pod| node_of(pod).is_some()).count()
    }

    /// Whether exactly so many pods of Deployments exist and all are bound.
    #[must_use]
    pub fn is_settled(&self, wanted: usize) -> bool {
        self.workload_pods().count() == wanted && self.bound() == wanted
    }

    /// The Nodes that are initialized.
    #[must_use]
    pub fn ready_nodes(&self) -> usize {
        let initialized = |node: &&Node| node.labels().contains_key(api::labels::INITIALIZED);
        self.nodes.iter().filter(initialized).count()
    }

    /// The names of the NodeClaims.
    #[must_use]
    pub fn machine_names(&self) -> BTreeSet<String> {
        self.claims.iter().map(ResourceExt::name_any).collect()
    }

    /// The uids of all pods.
    #[must_use]
    pub fn pod_uids(&self) -> BTreeSet<String> {
        self.pods.iter().filter_map(ResourceExt::uid).collect()
    }

    /// Dearest first, then by name.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        let mut machines: Vec<_> = self.claims.iter().map(|claim| self.machine(claim)).collect();
        machines.sort_by(|a, b| {
            b.price_nano_usd_per_hour.cmp(&a.price_nano_usd_per_hour).then_with(|| a.name.cmp(&b.name))
        });
        machines
    }

    /// What all machines cost.
    #[must_use]
    pub fn price_nano_usd_per_hour(&self) -> i64 {
        self.machines().iter().map(|machine| machine.price_nano_usd_per_hour).sum()
    }

    /// What happened to the pods that `before` did not have.
    #[must_use]
    pub fn since(&self, before: &Self) -> String {
        let old_pods = before.pod_uids();
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

    /// Compares where pods are with where they were planned.
    #[must_use]
    pub fn as_planned(&self) -> AsPlanned {
        let workload_of: BTreeMap<&str, String> =
            self.workload_pods().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, workload(pod)))).collect();
        let by_workload = |uids: &BTreeSet<&str>| -> BTreeMap<String, usize> {
            let names = uids.iter().filter_map(|uid| workload_of.get(uid).cloned());
            names.fold(BTreeMap::new(), |mut counts, name| {
                *counts.entry(name).or_default() += 1;
                counts
            })
        };
        let mut of_node: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pod in self.workload_pods() {
            if let (Some(node), Some(uid)) = (node_of(pod), pod.metadata.uid.as_deref()) {
                of_node.entry(node).or_default().insert(uid);
            }
        }
        let mut result = AsPlanned::default();
        for claim in &self.claims {
            let node = claim.status.as_ref().map(|status| status.node_name.as_str()).unwrap_or_default();
            let bound = of_node.remove(node).unwrap_or_default();
            let planned = claim.annotations().get(api::annotations::PLANNED_PODS);
            let planned: BTreeSet<&str> = planned.into_iter().flat_map(|pods| planned_uids(pods)).collect();
            let exact = planned.intersection(&bound).count();
            let found = by_workload(&bound);
            let alike = by_workload(&planned)
                .into_iter()
                .map(|(name, count)| found.get(&name).copied().unwrap_or(0).min(count))
                .sum::<usize>();
            result.exact += exact;
            result.exchanged += alike.saturating_sub(exact);
            result.empty += usize::from(bound.is_empty());
        }
        result
    }

    /// How far it is.
    #[must_use]
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
            node: node_name.to_owned(),
            name,
        }
    }

    /// What the provider says; nothing once the machine is gone.
    fn price_of(&self, claim: &str) -> i64 {
        let instance = self.instances.iter().find(|instance| instance.claim.as_deref() == Some(claim));
        instance.map_or(0, |instance| instance.price_nano_usd_per_hour)
    }
}

/// How the bound pods compare with what each NodeClaim was created for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AsPlanned {
    /// Pods on the machine that was created for them.
    pub exact: usize,
    /// Pods on another, where one of their workload was planned.
    pub exchanged: usize,
    /// Machines without pods of workloads.
    pub empty: usize,
}

/// The last line.
#[derive(Debug)]
pub struct Summary {
    bound: usize,
    wanted: usize,
    machines: usize,
    price_nano_usd_per_hour: i64,
}

impl Summary {
    /// Whether every pod is bound.
    #[must_use]
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
#[must_use]
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

/// The pods that a NodeClaim's [`PLANNED_PODS`](api::annotations::PLANNED_PODS) names.
pub fn planned_uids(annotation: &str) -> impl Iterator<Item = &str> {
    api::annotations::planned_pods(annotation).map(|(uid, _)| uid)
}
