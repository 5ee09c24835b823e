//! The claims that kube-scheduler allocated, against the planner's allocator on what was published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use dra_sched::types::{
    Allocation, AttributeValue, Device, DeviceClass, DeviceId, DeviceTaintRule, NodeSelector, ResourceClaim,
    ResourceSlice,
};
use dra_sched::{
    ClaimClassId, ClusterLedger, Compat, Gates as DraGates, Inventory, InventoryBuilder, KubernetesMinor, NodeFacts,
    Verdict,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use model::Budget;
use serde_json::Value;

use crate::Gates;
use crate::cluster::{Corner, node_of};
use crate::fidelity::CLASS;

/// Steps of the allocator for one pod.
const STEPS: u64 = 1_000_000;

/// Most classes all of whose orders are tried.
const MAX_CLASSES: usize = 5;

/// How the claims came out.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) claims: usize,
    pub(super) in_another_order: usize,
    pub(super) wrong: Vec<String>,
}

/// What a claim was given, but for which of equal devices: the shapes, and who can use them.
type Given = (Vec<String>, Option<NodeSelector>);

/// What the claims of a class were given on a node.
type ByPlace = BTreeMap<(String, String), Vec<Given>>;

/// A bound pod and the claims that were allocated with it.
struct Bound {
    class: String,
    node: String,
    /// Indices of claims, in the order of allocation.
    claims: Vec<usize>,
    /// When the last of them was written.
    version: u64,
}

struct Cluster {
    inventory: Inventory,
    slices: Vec<Arc<ResourceSlice>>,
    claims: Vec<(ResourceClaim, ClaimClassId)>,
    nodes: BTreeMap<String, NodeFacts>,
    bound: Vec<Bound>,
}

pub(super) async fn judge(corner: &Corner, gates: Gates) -> Result<Judged> {
    let pods = corner.pods().await?;
    let mut judged = Judged::default();
    let cluster = Cluster::read(corner, &pods, gates, &mut judged.wrong).await?;
    judged.claims = cluster.bound.iter().map(|bound| bound.claims.len()).sum();
    let actual = cluster.actual();
    let as_they_came: Vec<&Bound> = cluster.bound.iter().collect();
    if cluster.replay(&as_they_came).as_ref() == Ok(&actual) {
        return Ok(judged);
    }
    let classes: BTreeSet<&str> = cluster.bound.iter().map(|bound| bound.class.as_str()).collect();
    let is_as_given = |order: &Vec<&str>| {
        let mut bound: Vec<&Bound> = cluster.bound.iter().collect();
        bound.sort_by_key(|bound| order.iter().position(|class| *class == bound.class));
        cluster.replay(&bound).as_ref() == Ok(&actual)
    };
    if classes.len() <= MAX_CLASSES && orders(&classes.into_iter().collect::<Vec<_>>()).iter().any(is_as_given) {
        judged.in_another_order = judged.claims;
        return Ok(judged);
    }
    judged.wrong.push(match cluster.replay(&as_they_came) {
        Ok(expected) => {
            let differs = |(place, given): (&(String, String), &Vec<Given>)| {
                let expected = expected.get(place);
                (expected != Some(given)).then(|| format!("{place:?}: {given:?}, expected {expected:?}"))
            };
            let differences: Vec<String> = actual.iter().filter_map(differs).collect();
            format!("claims of (node, class) are not as planned: {}", differences.join("; "))
        }
        Err(why) => format!("the planner's allocator does not give what the scheduler gave: {why}"),
    });
    Ok(judged)
}

fn orders<'c>(classes: &[&'c str]) -> Vec<Vec<&'c str>> {
    let mut orders: Vec<Vec<&str>> = vec![Vec::new()];
    for class in classes {
        let longer = |order: &Vec<&'c str>| {
            let order = order.clone();
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, class);
                longer
            })
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

impl Cluster {
    async fn read(corner: &Corner, pods: &[Pod], gates: Gates, wrong: &mut Vec<String>) -> Result<Self> {
        let client = &corner.client;
        let version = client.apiserver_version().await?;
        let minor = version.minor.trim_end_matches('+').parse().ok().and_then(KubernetesMinor::from_minor);
        let minor = minor.context("this release of Kubernetes is not known")?;
        let gates = match gates {
            Gates::Default => DraGates::defaults(minor),
            Gates::All => DraGates::all(minor),
        };
        let mut builder = InventoryBuilder::new(Compat::with_gates(minor, gates));
        for class in list(corner, "v1", "DeviceClass", "deviceclasses").await? {
            builder.class(Arc::new(DeviceClass::from_json(&class)?));
        }
        for rule in list(corner, "v1beta2", "DeviceTaintRule", "devicetaintrules").await.unwrap_or_default() {
            builder.taint_rule(Arc::new(DeviceTaintRule::from_json(&rule)?));
        }
        let mut slices = Vec::new();
        for slice in list(corner, "v1", "ResourceSlice", "resourceslices").await? {
            slices.push(Arc::new(ResourceSlice::from_json(&slice)?));
        }
        slices.iter().for_each(|slice| builder.slice(Arc::clone(slice)));
        let mut claims = Vec::new();
        let mut versions = Vec::new();
        for object in list(corner, "v1", "ResourceClaim", "resourceclaims").await? {
            let claim = ResourceClaim::from_json(&object)?;
            if *claim.meta.name.namespace != *corner.name {
                continue;
            }
            let class = builder.claim_class(&claim.meta.name.name, &Arc::new(claim.spec.clone()), None);
            let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
            versions.push(version.unwrap_or(0_u64));
            claims.push((claim, class));
        }
        let mut bound = Vec::new();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        for pod in pods {
            let (Some(node), Some(class)) = (node_of(pod), pod.labels().get(CLASS)) else { continue };
            let mut mine = Vec::new();
            for name in claim_names(pod) {
                let Some(index) = claims.iter().position(|(claim, _)| *claim.meta.name.name == *name) else {
                    wrong.push(format!("{}: its claim {name} does not exist", pod.name_any()));
                    continue;
                };
                if claims.get(index).is_some_and(|(claim, _)| claim.allocation.is_none()) {
                    wrong.push(format!("{}: its claim {name} is not allocated", pod.name_any()));
                } else if taken.insert(index) {
                    mine.push(index);
                }
            }
            let version = mine.iter().filter_map(|index| versions.get(*index)).max().copied().unwrap_or(0);
            bound.push(Bound { class: class.clone(), node: node.to_owned(), claims: mine, version });
        }
        bound.sort_by_key(|bound| bound.version);
        let nodes: Vec<Node> = Api::all(client.clone()).list(&Default::default()).await?.items;
        let facts = |node: &Node| {
            let labels = node.labels().iter();
            NodeFacts {
                name: Some(node.name_any().as_str().into()),
                labels: labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
                ..NodeFacts::default()
            }
        };
        let nodes = nodes.iter().map(|node| (node.name_any(), facts(node))).collect();
        Ok(Self { inventory: builder.build(), slices, claims, nodes, bound })
    }

    /// What the scheduler gave.
    fn actual(&self) -> ByPlace {
        let mut given = ByPlace::new();
        for bound in &self.bound {
            for (claim, _) in bound.claims.iter().filter_map(|index| self.claims.get(*index)) {
                let allocation = claim.allocation.as_ref();
                let place = (bound.node.clone(), bound.class.clone());
                given.entry(place).or_default().extend(allocation.map(|allocation| self.given(allocation)));
            }
        }
        sorted(given)
    }

    /// What the planner's allocator gives pods that come in this order, on the nodes that they are on.
    fn replay(&self, order: &[&Bound]) -> Result<ByPlace, String> {
        let mut ledger = ClusterLedger::new(&self.inventory);
        let mut given = ByPlace::new();
        for bound in order.iter().filter(|bound| !bound.claims.is_empty()) {
            let facts = self.nodes.get(&bound.node).ok_or_else(|| format!("node {} is gone", bound.node))?;
            let of_pod = bound.claims.iter().filter_map(|index| self.claims.get(*index));
            let classes: Vec<ClaimClassId> = of_pod.map(|(_, class)| *class).collect();
            match self.inventory.allocate(facts, &classes, &ledger, &mut Budget::new(STEPS)) {
                Verdict::Allocated { allocations, .. } => {
                    for allocation in &allocations {
                        ledger.hold(&self.inventory, allocation);
                    }
                    let place = (bound.node.clone(), bound.class.clone());
                    given.entry(place).or_default().extend(allocations.iter().map(|it| self.given(it)));
                }
                Verdict::Refused(refusal) => {
                    return Err(format!("class {} on {}: {refusal}", bound.class, bound.node));
                }
                Verdict::OutOfBudget(_) => {
                    return Err(format!("class {} on {}: out of budget", bound.class, bound.node));
                }
            }
        }
        Ok(sorted(given))
    }

    fn given(&self, allocation: &Allocation) -> Given {
        let shape = |id: &DeviceId| {
            let of_pool = |it: &&Arc<ResourceSlice>| it.driver == id.driver && it.pool.name == id.pool;
            let mut devices = self.slices.iter().filter(of_pool).flat_map(|slice| &slice.devices);
            let device = devices.find(|device| device.name == id.device);
            device.map_or_else(|| format!("{id} (gone)"), |device| format!("{} {}", id.driver, shape(device)))
        };
        let mut shapes: Vec<String> = allocation.results.iter().map(|result| shape(&result.device)).collect();
        shapes.sort();
        (shapes, allocation.node_selector.clone())
    }
}

fn sorted(mut given: ByPlace) -> ByPlace {
    given.values_mut().for_each(|of_place| of_place.sort_by_key(|given| format!("{given:?}")));
    given
}

/// What a device is, without what only its machine has.
fn shape(device: &Device) -> String {
    let attributes = device.attributes.iter().filter_map(|(name, value)| match value {
        AttributeValue::String(_) if name.domain() == Some("resource.kubernetes.io") => None,
        value => Some(format!("{name}={value}")),
    });
    let capacity = device.capacity.iter().map(|(name, it)| format!("{name}={}", it.value));
    attributes.chain(capacity).collect::<Vec<_>>().join(" ")
}

/// The claims of a pod as its status names them, that for extended resources last.
fn claim_names(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let status = pod.status.as_ref();
    let made = |entry: &str| {
        let mut statuses = status?.resource_claim_statuses.iter().flatten();
        statuses.find(|it| it.name == entry)?.resource_claim_name.clone()
    };
    let named = spec.filter_map(|entry| entry.resource_claim_name.clone().or_else(|| made(&entry.name)));
    let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    named.chain(extended.map(|it| it.resource_claim_name.clone())).collect()
}

async fn list(corner: &Corner, version: &str, kind: &str, plural: &str) -> Result<Vec<Value>> {
    let resource = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: version.to_owned(),
        api_version: format!("resource.k8s.io/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let all = Api::<DynamicObject>::all_with(corner.client.clone(), &resource).list(&Default::default()).await?;
    let complete = |object: DynamicObject| {
        let mut object = serde_json::to_value(object)?;
        object["apiVersion"] = resource.api_version.as_str().into();
        object["kind"] = kind.into();
        Ok(object)
    };
    all.items.into_iter().map(complete).collect()
}
