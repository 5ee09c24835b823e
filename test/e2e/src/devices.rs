//! What drivers published and what claims were given, read from a cluster, beside the planner's allocator on the same
//! objects: what it would give there, in the same words.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use dra_sched::explain::Explanation;
use dra_sched::{ClaimClassId, ClusterLedger, Inventory, InventoryBuilder, Verdict, allocate};
use dra_types::{
    Allocation, AttributeValue, Compat, Device, DeviceClass, DeviceId, DeviceTaintRule, Gates as DraGates,
    KubernetesMinor, NodeFacts, NodeSelector, PodGroup, ResourceClaim, ResourceClaimSpec, ResourceSlice,
};
use k8s_openapi::api::core::v1::Node;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use model::Budget;
use serde_json::Value;

use crate::Gates;

/// Steps of the allocator for one pod.
const STEPS: u64 = 1_000_000;

/// What a claim was given, but for which of equal devices: the shapes, and who can use them.
pub type Given = (Vec<String>, Option<Arc<NodeSelector>>);

/// Whether devices that differ in nothing but numbers are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// They differ.
    Count,
    /// They are the same: an index says only which one it is.
    AreIgnored,
}

/// A claim, and the class of claims that it is to the allocator.
#[derive(Debug)]
pub struct Claim {
    /// As the API server has it.
    pub object: ResourceClaim,
    /// To allocate another of its class.
    pub class: ClaimClassId,
    /// When it was written last, to compare.
    pub version: u64,
}

/// One reading.
pub struct Devices {
    /// Everything that was published, and all classes.
    pub inventory: Inventory,
    /// The slices in it.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// The claims of the namespaces, as the API server lists them.
    pub claims: Vec<Claim>,
    nodes: BTreeMap<String, NodeFacts>,
    objects: Objects,
}

/// What an inventory is built from.
struct Objects {
    compat: Compat,
    classes: Vec<Arc<DeviceClass>>,
    taint_rules: Vec<Arc<DeviceTaintRule>>,
    /// With the version in which each was written last.
    slices: Vec<(u64, Arc<ResourceSlice>)>,
    /// Of the claims, by name.
    specs: Vec<(Arc<str>, Arc<ResourceClaimSpec>)>,
}

impl Objects {
    /// With the slices that were there by a version, and the class of each claim, which is the same for all versions.
    fn inventory(&self, version: u64) -> (Inventory, Vec<ClaimClassId>) {
        let mut builder = InventoryBuilder::new(self.compat);
        self.classes.iter().for_each(|class| builder.class(Arc::clone(class)));
        self.taint_rules.iter().for_each(|rule| builder.taint_rule(Arc::clone(rule)));
        let published = self.slices.iter().filter(|(written, _)| *written <= version);
        published.for_each(|(_, slice)| builder.slice(Arc::clone(slice)));
        let classes = self.specs.iter().map(|(name, spec)| builder.claim_class(name, spec, None)).collect();
        (builder.build(), classes)
    }
}

impl Devices {
    /// Reads a cluster with these gates, and the claims of these namespaces.
    ///
    /// # Errors
    /// Those of the API server, and an object that cannot be read.
    pub async fn read(client: &Client, gates: Gates, namespaces: &[&str]) -> Result<Self> {
        let mut objects = Objects {
            compat: compat(client, gates).await?,
            classes: Vec::new(),
            taint_rules: Vec::new(),
            slices: Vec::new(),
            specs: Vec::new(),
        };
        for class in list(client, "DeviceClass", "deviceclasses").await? {
            objects.classes.push(Arc::new(DeviceClass::from_json(&class)?));
        }
        for rule in list_of(client, &TAINT_RULES).await? {
            objects.taint_rules.push(Arc::new(DeviceTaintRule::from_json(&rule)?));
        }
        for slice in list(client, "ResourceSlice", "resourceslices").await? {
            objects.slices.push((version_of(&slice), Arc::new(ResourceSlice::from_json(&slice)?)));
        }
        let mut read = Vec::new();
        for json in list(client, "ResourceClaim", "resourceclaims").await? {
            let object = ResourceClaim::from_json(&json)?;
            if namespaces.contains(&&*object.meta.name.namespace) {
                objects.specs.push((Arc::clone(&object.meta.name.name), Arc::new(object.spec.clone())));
                read.push((version_of(&json), object));
            }
        }
        let (inventory, classes) = objects.inventory(u64::MAX);
        let with_classes = read.into_iter().zip(classes);
        let claims = with_classes.map(|((version, object), class)| Claim { object, class, version }).collect();
        let slices = objects.slices.iter().map(|(_, slice)| Arc::clone(slice)).collect();
        let nodes: Vec<Node> = Api::all(client.clone()).list(&Default::default()).await?.items;
        let nodes = nodes.iter().map(|node| (node.name_any(), facts(node))).collect();
        Ok(Self { inventory, slices, claims, nodes, objects })
    }

    /// What a claim was given.
    #[must_use]
    pub fn given(&self, allocation: &Allocation, numbers: Numbers) -> Given {
        let shape = |id: &DeviceId| {
            let of_pool = |it: &&Arc<ResourceSlice>| it.driver == id.driver && it.pool.name == id.pool;
            let mut devices = self.slices.iter().filter(of_pool).flat_map(|slice| &slice.devices);
            let device = devices.find(|device| device.name == id.device);
            device.map_or_else(|| format!("{id} (gone)"), |device| format!("{}/{}", id.driver, shape(device, numbers)))
        };
        let mut shapes: Vec<String> = allocation.results.iter().map(|result| shape(&result.device)).collect();
        shapes.sort();
        (shapes, allocation.node_selector.clone())
    }

    /// What the planner's allocator gives claims of a pod on a node, beside what the ledger holds.
    ///
    /// # Errors
    /// Why it gives nothing.
    pub fn allocate(
        &self,
        node: &str,
        classes: &[ClaimClassId],
        ledger: &ClusterLedger,
    ) -> Result<Vec<Allocation>, String> {
        self.allocate_from(&self.inventory, node, classes, ledger)
    }

    /// What there was after each slice was written, the latest first.
    #[must_use]
    pub fn history(&self) -> Vec<(u64, Inventory)> {
        let mut versions: Vec<u64> = self.objects.slices.iter().map(|(written, _)| *written).collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        versions.dedup();
        versions.into_iter().map(|version| (version, self.objects.inventory(version).0)).collect()
    }

    /// What claims of a pod on a node would have been given then, beside others.
    ///
    /// # Errors
    /// Why it gives nothing.
    pub fn allocate_then(
        &self,
        then: &Inventory,
        node: &str,
        classes: &[ClaimClassId],
        held: &[&Allocation],
    ) -> Result<Vec<Allocation>, String> {
        let mut ledger = ClusterLedger::new(then);
        held.iter().for_each(|allocation| ledger.hold(then, allocation));
        self.allocate_from(then, node, classes, &ledger)
    }

    fn allocate_from(
        &self,
        inventory: &Inventory,
        node: &str,
        classes: &[ClaimClassId],
        ledger: &ClusterLedger,
    ) -> Result<Vec<Allocation>, String> {
        let facts = self.nodes.get(node).ok_or_else(|| format!("node {node} is gone"))?;
        match allocate(inventory, facts, classes, ledger, &mut Budget::new(STEPS)) {
            Verdict::Allocated { allocations, .. } => Ok(allocations),
            // With what stands in the way of each device: whether others have it, or it is not there.
            Verdict::Refused(refusal) => {
                Err(format!("on {node}: {}", Explanation::of(inventory, &refusal, &|_| None).message))
            }
            Verdict::OutOfBudget(_) => Err(format!("on {node}: out of budget")),
        }
    }
}

/// In which version an object was written.
fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// How a cluster with these gates allocates.
async fn compat(client: &Client, gates: Gates) -> Result<Compat> {
    let version = client.apiserver_version().await?;
    let minor = version.minor.trim_end_matches('+').parse().ok().and_then(KubernetesMinor::from_minor);
    let minor = minor.context("this release of Kubernetes is not known")?;
    Ok(Compat::with_gates(
        minor,
        match gates {
            Gates::Default => DraGates::defaults(minor),
            Gates::All => DraGates::all(minor),
        },
    ))
}

fn facts(node: &Node) -> NodeFacts {
    let labels = node.labels().iter();
    NodeFacts {
        name: Some(node.name_any().as_str().into()),
        labels: labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
        ..NodeFacts::default()
    }
}

/// What a device is: its name without numbers, and all but what only its machine has.
fn shape(device: &Device, numbers: Numbers) -> String {
    let attributes = device.attributes.iter().filter_map(|(name, value)| match value {
        AttributeValue::String(_) if name.domain() == Some("resource.kubernetes.io") => None,
        AttributeValue::Int(_) if numbers == Numbers::AreIgnored => None,
        value => Some(format!("{name}={value}")),
    });
    let capacity = device.capacity.iter().map(|(name, it)| format!("{name}={}", it.value));
    let described: Vec<String> = attributes.chain(capacity).collect();
    format!("{} {}", device.name.as_str().replace(|it: char| it.is_ascii_digit(), "#"), described.join(" "))
}

/// The PodGroups of a namespace; none if the API server does not serve them.
///
/// # Errors
/// Those of the API server, and an object that cannot be read.
pub async fn pod_groups(client: &Client, namespace: &str) -> Result<Vec<PodGroup>> {
    let groups = list_of(client, &POD_GROUPS).await?;
    let groups = groups.iter().map(PodGroup::from_json).collect::<Result<Vec<_>, _>>()?;
    Ok(groups.into_iter().filter(|group| *group.meta.name.namespace == *namespace).collect())
}

/// A kind and the versions that releases have it in, the newest first.
struct Kind {
    group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
}

const TAINT_RULES: Kind = Kind {
    group: "resource.k8s.io",
    versions: &["v1", "v1beta2"],
    kind: "DeviceTaintRule",
    plural: "devicetaintrules",
};

const POD_GROUPS: Kind =
    Kind { group: "scheduling.k8s.io", versions: &["v1beta1", "v1alpha2"], kind: "PodGroup", plural: "podgroups" };

/// All objects of a kind of `resource.k8s.io/v1`; none if the API server does not serve it.
async fn list(client: &Client, kind: &'static str, plural: &'static str) -> Result<Vec<Value>> {
    list_of(client, &Kind { group: "resource.k8s.io", versions: &["v1"], kind, plural }).await
}

/// All objects of a kind, in the first version that the API server serves; none if it serves none.
async fn list_of(client: &Client, kind: &Kind) -> Result<Vec<Value>> {
    for version in kind.versions {
        let resource = ApiResource {
            group: kind.group.to_owned(),
            version: (*version).to_owned(),
            api_version: format!("{}/{version}", kind.group),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        };
        let all = match Api::<DynamicObject>::all_with(client.clone(), &resource).list(&Default::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            all => all.with_context(|| format!("list {}", kind.plural))?,
        };
        let complete = |object: DynamicObject| {
            let mut object = serde_json::to_value(object)?;
            object["apiVersion"] = resource.api_version.as_str().into();
            object["kind"] = kind.kind.into();
            Ok(object)
        };
        return all.items.into_iter().map(complete).collect();
    }
    Ok(Vec::new())
}
