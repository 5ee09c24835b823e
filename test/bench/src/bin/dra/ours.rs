//! Puts the questions to our engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dra_sched::{ClaimClassId, ClusterLedger, Inventory, InventoryBuilder, Verdict, allocate};
use dra_types::{Compat, DeviceClass, DeviceId, KubernetesMinor, NodeFacts, ResourceClaim, ResourceSlice};
use model::Budget;
use serde_json::Value;

/// The lists of a question and the kinds of their objects.
pub(crate) const LISTS: [(&str, &str); 4] =
    [("classes", "DeviceClass"), ("slices", "ResourceSlice"), ("pods", "Pod"), ("nodes", "Node")];

pub(crate) const STEPS: u64 = 10_000_000;

/// Objects that were read.
#[derive(Default)]
pub(crate) struct Objects {
    pub classes: Vec<Arc<DeviceClass>>,
    pub slices: Vec<Arc<ResourceSlice>>,
    /// Of each pod.
    pub pods: Vec<Vec<Arc<ResourceClaim>>>,
    /// Allocated from the start.
    pub claims: Vec<Arc<ResourceClaim>>,
    pub nodes: Vec<NodeFacts>,
    pub taken: Vec<DeviceId>,
}

/// Objects made ready.
pub(crate) struct Prepared {
    pub inventory: Inventory,
    pub ledger: ClusterLedger,
    pub pods: Vec<Vec<ClaimClassId>>,
}

/// An object of `resource.k8s.io/v1`.
pub(crate) fn object(kind: &str, object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "resource.k8s.io/v1".into();
    object["kind"] = kind.into();
    object
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn claim(value: &Value) -> Result<Arc<ResourceClaim>> {
    Ok(Arc::new(ResourceClaim::from_json(&object("ResourceClaim", value))?))
}

impl Objects {
    /// Reads a question.
    pub(crate) fn read(question: &Value) -> Result<Self> {
        let mut objects = Self::default();
        for (list_name, kind) in LISTS {
            list(&question[list_name]).try_for_each(|object| objects.add(kind, object))?;
        }
        let taken = |id: &Value| {
            let part = |index: usize| id[index].as_str().context("a device is [driver, pool, device]");
            Ok(DeviceId { driver: part(0)?.into(), pool: part(1)?.into(), device: part(2)?.into() })
        };
        objects.taken = list(&question["allocatedDevices"]).map(taken).collect::<Result<_>>()?;
        Ok(objects)
    }

    /// Reads one object more; a pod is the list of its claims, and other claims are allocated from the start.
    pub(crate) fn add(&mut self, kind: &str, value: &Value) -> Result<()> {
        match kind {
            "DeviceClass" => self.classes.push(Arc::new(DeviceClass::from_json(&object(kind, value))?)),
            "ResourceSlice" => self.slices.push(Arc::new(ResourceSlice::from_json(&object(kind, value))?)),
            "ResourceClaim" => self.claims.push(claim(value)?),
            "Pod" => self.pods.push(list(value).map(claim).collect::<Result<_>>()?),
            "Node" => self.nodes.push(node(value)),
            other => bail!("{other} is not read here"),
        }
        Ok(())
    }

    /// A builder with everything in it, and the claims of each pod.
    pub(crate) fn builder(&self) -> (InventoryBuilder, Vec<Vec<ClaimClassId>>) {
        let mut builder = InventoryBuilder::new(Compat::new(KubernetesMinor::V1_37));
        self.classes.iter().for_each(|class| builder.class(Arc::clone(class)));
        self.slices.iter().for_each(|slice| builder.slice(Arc::clone(slice)));
        for claim in &self.claims {
            builder.claim(Arc::clone(claim));
        }
        let mut class = |claim: &Arc<ResourceClaim>| {
            builder.claim_class(&claim.meta.name.to_string(), &Arc::new(claim.spec.clone()), None)
        };
        let pods = self.pods.iter().map(|pod| pod.iter().map(&mut class).collect()).collect();
        (builder, pods)
    }

    /// Everything up to the first allocation.
    pub(crate) fn prepare(&self) -> Prepared {
        let (builder, pods) = self.builder();
        let inventory = builder.build();
        let mut ledger = ClusterLedger::new(&inventory);
        self.taken.iter().for_each(|device| ledger.hold_device(&inventory, device));
        Prepared { inventory, ledger, pods }
    }
}

impl Prepared {
    /// The verdict on a pod on a node, and the steps.
    pub(crate) fn allocate(&self, pod: usize, node: &NodeFacts) -> (Verdict, u64) {
        let mut budget = Budget::new(STEPS);
        let claims = self.pods.get(pod).map_or(&[][..], Vec::as_slice);
        let verdict = allocate(&self.inventory, node, claims, &self.ledger, &mut budget);
        (verdict, STEPS - budget.remaining())
    }
}

fn node(node: &Value) -> NodeFacts {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<Arc<str>, Arc<str>> =
        labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into())).collect();
    NodeFacts { name: node["metadata"]["name"].as_str().map(Into::into), labels, ..NodeFacts::default() }
}
