//! The objects of the input, and what the overlays among them make of the instance types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context;
use api::admission::{Admission, Operation};
use api::{NodeOverlay, NodePool};
use cloudprovider::InstanceType;
use cluster::offline::{NodeClassTypes, Types, UnknownField, unknown_fields};
use decode::manifests::Manifest;
use dra_types::{DeviceClass, ResourceSlice};
use model::{NodeOverlayName, NodePoolName};
use overlay::{Evaluation, Overlay, Pool};
use serde_json::Value;

use crate::cli::input::Documents;
use crate::cli::machine_types::{self, MachineTypes, MachineTypesArgs};
use crate::providers::Plugin;

/// What was read.
#[derive(Debug, Default)]
pub(in crate::cli) struct Objects {
    pub(super) provider: Plugin,
    pub(super) types: Types,
    /// What node classes of the input make of them, where they change anything.
    pub(super) of_node_classes: Option<NodeClassTypes>,
    pub(super) overlays: Vec<GivenOverlay>,
    pub(in crate::cli) pools: Vec<NodePool>,
    pub(super) slices: Vec<ResourceSlice>,
    /// Names and labels.
    pub(super) nodes: Vec<(String, BTreeMap<String, String>)>,
    pub(super) classes: Vec<DeviceClass>,
    /// What could not be used, in words.
    pub(in crate::cli) problems: Vec<String>,
}

/// A NodeOverlay that the API server would take.
#[derive(Debug)]
pub(super) struct GivenOverlay {
    pub(super) object: NodeOverlay,
    /// Fields that it has and that nobody knows.
    pub(super) unknown_fields: Vec<UnknownField>,
}

impl Objects {
    /// Sorts documents by kind, other kinds have no part, and reads the instance types of a file or the built-in ones.
    pub(in crate::cli) fn new(documents: Documents, machines: &MachineTypesArgs) -> anyhow::Result<Self> {
        let admission = Admission::new(&api::crd::crds()).context("the built-in CRDs cannot be used")?;
        let MachineTypes { types, of_node_classes, left_out } = machines.read(&documents.manifests)?;
        let mut objects = Self { types, of_node_classes, provider: machines.provider.plugin, ..Self::default() };
        objects.problems.extend(left_out.iter().map(ToString::to_string));
        objects.problems.extend(documents.errors.iter().map(ToString::to_string));
        for manifest in &documents.manifests {
            if let Err(problem) = objects.add(manifest, &admission) {
                objects.problems.push(format!("{}: {}: {problem}", manifest.origin, manifest.object_ref()));
            }
        }
        Ok(objects)
    }

    /// What a NodePool can launch. One whose node class cannot be used launches nothing.
    fn types_of(&self, pool: &NodePool) -> &[Arc<InstanceType>] {
        let class = &pool.spec.template.spec.node_class_ref;
        match self.of_node_classes.as_ref().and_then(|classes| classes.of(class)) {
            Some(Ok(types)) => types,
            Some(Err(_)) => &[],
            None => &self.types,
        }
    }

    fn add(&mut self, manifest: &Manifest, admission: &Admission) -> Result<(), String> {
        let object = &manifest.object;
        match (manifest.group.as_str(), manifest.kind.as_str()) {
            (api::groups::KARPENTER, "NodeOverlay") => {
                let admitted = admit(admission, object)?;
                let unknown_fields = unknown_fields(object, &admitted);
                let object = serde_json::from_value(admitted).map_err(|error| error.to_string())?;
                self.overlays.push(GivenOverlay { object, unknown_fields });
            }
            (api::groups::KARPENTER, "NodePool") => {
                let admitted = admit(admission, object)?;
                self.pools.push(serde_json::from_value(admitted).map_err(|error| error.to_string())?);
            }
            ("resource.k8s.io", "ResourceSlice") => {
                self.slices.push(ResourceSlice::from_json(object).map_err(|error| error.to_string())?);
            }
            ("resource.k8s.io", "DeviceClass") => {
                self.classes.push(DeviceClass::from_json(object).map_err(|error| error.to_string())?);
            }
            ("", "Node") => {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
                let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
                self.nodes.push((name, labels.filter_map(text).collect()));
            }
            _ => {
                let classes = self.of_node_classes.as_ref();
                if let Some(Err(why)) = classes.and_then(|classes| classes.of_object(manifest)) {
                    return Err(why.to_string());
                }
            }
        }
        Ok(())
    }
}

fn admit(admission: &Admission, object: &Value) -> Result<Value, String> {
    admission.admit(object, Operation::Restore).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    })
}

/// NodePools with what the overlays make of their instance types.
#[derive(Debug)]
pub(in crate::cli) struct World {
    /// Names, in the order of the evaluation's.
    pools: Vec<NodePoolName>,
    node_pools: Vec<NodePool>,
    pub(super) evaluation: Evaluation,
    /// The overlays that are in effect or were rejected for what others say.
    pub(super) overlays: Vec<Overlay>,
    /// Why overlays are not in effect, in words.
    pub(in crate::cli) rejected: Vec<String>,
    /// Overlays that would correct no instance type if they were the only ones.
    pub(super) of_no_effect: BTreeSet<NodeOverlayName>,
}

impl World {
    /// Evaluates the overlays against NodePools of the input, else a built-in one.
    pub(in crate::cli) fn new(objects: &Objects) -> anyhow::Result<Self> {
        let provider = objects.provider.declaration();
        let labels = (provider.labels)(&objects.types);
        let pools = match &*objects.pools {
            [] => vec![machine_types::default_node_pool(provider)?],
            given => given.to_vec(),
        };
        let (mut overlays, mut rejected) = (Vec::new(), Vec::new());
        for given in &objects.overlays {
            let name = given.object.metadata.name.as_deref().unwrap_or_default();
            match Overlay::new(&given.object, &labels) {
                Ok(overlay) => overlays.push(overlay),
                Err(invalid) => rejected.push(format!("nodeoverlay/{name}: {invalid}")),
            }
        }
        let names: Vec<NodePoolName> =
            pools.iter().map(|pool| pool.metadata.name.as_deref().unwrap_or_default().into()).collect();
        let given = given(&names, &pools, objects);
        let evaluation = overlay::evaluate(&overlays, &given);
        rejected.extend(evaluation.rejected.iter().map(|(name, why)| format!("nodeoverlay/{name}: {why}")));
        let corrects_nothing = |overlay: &&Overlay| {
            let alone = overlay::evaluate(std::slice::from_ref(*overlay), &given);
            alone.rejected.is_empty() && alone.pools.iter().all(|pool| pool.is_unchanged())
        };
        let of_no_effect = overlays.iter().filter(corrects_nothing).map(|overlay| overlay.name.clone()).collect();
        Ok(Self { pools: names, node_pools: pools, evaluation, overlays, rejected, of_no_effect })
    }

    /// What comes of the instance types if an overlay is the only one.
    pub(super) fn alone(&self, overlay: &Overlay, objects: &Objects) -> Evaluation {
        overlay::evaluate(std::slice::from_ref(overlay), &given(&self.pools, &self.node_pools, objects))
    }

    /// What the provider says that a NodePool can launch, by the NodePool's place.
    pub(super) fn provider_types<'o>(&self, place: usize, objects: &'o Objects) -> &'o [Arc<InstanceType>] {
        self.node_pools.get(place).map_or(&[], |pool| objects.types_of(pool))
    }

    /// Each NodePool with its name and its instance types as the overlays leave them.
    pub(in crate::cli) fn pools(&self) -> impl Iterator<Item = (&str, &[Arc<InstanceType>])> {
        let pools = self.pools.iter().zip(&self.evaluation.pools);
        pools.map(|(name, corrected)| (name.as_str(), corrected.types.as_slice()))
    }
}

/// The NodePools as overlays see them.
fn given<'a>(names: &'a [NodePoolName], pools: &'a [NodePool], objects: &'a Objects) -> Vec<Pool<'a>> {
    let of_pool = |(name, pool): (&'a NodePoolName, &'a NodePool)| Pool {
        name,
        template_labels: &pool.spec.template.metadata.labels,
        types: objects.types_of(pool),
    };
    names.iter().zip(pools).map(of_pool).collect()
}
