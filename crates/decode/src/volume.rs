//! Storage objects: the parts that restrict where pods go.

use std::sync::Arc;

use api::labels;
use model::pod::NodeSelectorTerm;
use model::volume::{AccessMode, ClaimPhase, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBindingMode};
use model::{NamespacedName, Requirement, Requirements, ValueSet};
use serde_json::Value;

use crate::context::Context;
use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::metadata::{Metadata, decode_object};
use crate::selector::node_selector;

/// Set by the volume binder once claim and volume know each other.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Marks the StorageClass of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Between the zones of a volume that is in several.
const ZONE_SEPARATOR: &str = "__";

/// Kinds of disks that were part of Kubernetes, the field with the disk's name, and the drivers that serve them now.
const MIGRATED: [(&str, &str, &str); 4] = [
    ("awsElasticBlockStore", "volumeID", "ebs.csi.aws.com"),
    ("azureDisk", "diskURI", "disk.csi.azure.com"),
    ("cinder", "volumeID", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pdName", "pd.csi.storage.gke.io"),
];

/// Reads a PersistentVolumeClaim.
pub fn persistent_volume_claim(object: &Value) -> Result<PersistentVolumeClaim, ObjectError> {
    decode_object(object, "PersistentVolumeClaim", |root| {
        let metadata = root.field("metadata")?;
        let annotations = metadata.field("annotations")?;
        let (spec, status) = (root.field("spec")?, root.field("status")?);
        let (phase, modes) = (status.field("phase")?, spec.field("accessModes")?);
        let Metadata { name, uid, deletion_timestamp, .. } = Metadata::decode(&metadata)?;
        Ok(PersistentVolumeClaim {
            name,
            uid,
            volume_name: non_empty(&spec.field("volumeName")?)?,
            storage_class: spec.field("storageClassName")?.str()?.map(Arc::from),
            phase: match phase.str_or_empty()? {
                "" | "Pending" => ClaimPhase::Pending,
                "Bound" => ClaimPhase::Bound,
                "Lost" => ClaimPhase::Lost,
                _ => return Err(phase.unknown("claim phase")),
            },
            access_modes: modes.items()?.map(|mode| access_mode(&mode)).collect::<Result<_, _>>()?,
            bind_completed: !annotations.field(BIND_COMPLETED)?.is_absent() || phase.is_absent(),
            is_being_deleted: deletion_timestamp.is_some(),
        })
    })
}

fn access_mode(mode: &Field<'_, '_>) -> Result<AccessMode, Problem> {
    match mode.str_or_empty()? {
        "ReadWriteOnce" => Ok(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Ok(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Ok(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Ok(AccessMode::ReadWriteOncePod),
        _ => Err(mode.unknown("access mode")),
    }
}

/// Reads a PersistentVolume. Zone and region labels restrict it like its node affinity, as in kube-scheduler.
pub fn persistent_volume(object: &Value, context: &mut Context<'_>) -> Result<PersistentVolume, ObjectError> {
    decode_object(object, "PersistentVolume", |root| {
        let metadata = root.field("metadata")?;
        let spec = root.field("spec")?;
        let affinity = spec.field("nodeAffinity")?;
        let mut node_affinity = node_selector(&affinity.field("required")?, context)?;
        let zones = zones(&metadata.field("labels")?, context)?;
        if !zones.is_empty() {
            if node_affinity.is_empty() {
                node_affinity.push(NodeSelectorTerm::default());
            }
            for term in &mut node_affinity {
                term.expressions.intersect(&zones, context.interner);
            }
        }
        let (csi_driver, csi_volume_handle) = disk(&spec)?;
        let claim = spec.field("claimRef")?;
        let claim_name = claim.field("name")?.str_or_empty()?;
        Ok(PersistentVolume {
            name: Metadata::decode(&metadata)?.name.name,
            node_affinity,
            csi_driver,
            csi_volume_handle,
            storage_class: non_empty(&spec.field("storageClassName")?)?,
            claim: (!claim_name.is_empty())
                .then_some(NamespacedName::new(claim.field("namespace")?.str_or_empty()?, claim_name)),
        })
    })
}

fn zones(labels_of_volume: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Requirements, Problem> {
    let mut zones = Requirements::new();
    for (key, value) in labels_of_volume.string_map()? {
        if [labels::ZONE, labels::REGION].contains(&context.normalize(key)) {
            let key = context.key(key);
            let values: Vec<_> = value.split(ZONE_SEPARATOR).map(|zone| context.interner.value(zone)).collect();
            zones.insert_intersect(Requirement::new(key, ValueSet::among(values)), context.interner);
        }
    }
    Ok(zones)
}

type Disk = (Option<Arc<str>>, Option<Arc<str>>);

fn disk(spec: &Field<'_, '_>) -> Result<Disk, Problem> {
    let csi = spec.field("csi")?;
    if !csi.is_absent() {
        return Ok((non_empty(&csi.field("driver")?)?, non_empty(&csi.field("volumeHandle")?)?));
    }
    for (source, handle, driver) in MIGRATED {
        let disk = spec.field(source)?;
        if !disk.is_absent() {
            return Ok((Some(driver.into()), non_empty(&disk.field(handle)?)?));
        }
    }
    Ok((None, None))
}

/// Reads a StorageClass.
pub fn storage_class(object: &Value, context: &mut Context<'_>) -> Result<StorageClass, ObjectError> {
    decode_object(object, "StorageClass", |root| {
        let metadata = root.field("metadata")?;
        let annotations = metadata.field("annotations")?;
        let mode = root.field("volumeBindingMode")?;
        let mut allowed_topologies = Vec::new();
        for term in root.field("allowedTopologies")?.items()? {
            allowed_topologies.push(topology_term(&term, context)?);
        }
        Ok(StorageClass {
            name: Metadata::decode(&metadata)?.name.name,
            provisioner: Arc::from(root.field("provisioner")?.required_str()?),
            binding_mode: match mode.str_or_empty()? {
                "" | "Immediate" => VolumeBindingMode::Immediate,
                "WaitForFirstConsumer" => VolumeBindingMode::WaitForFirstConsumer,
                _ => return Err(mode.unknown("volume binding mode")),
            },
            allowed_topologies,
            is_default: annotations.field(DEFAULT_CLASS)?.str()? == Some("true"),
        })
    })
}

fn topology_term(term: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Requirements, Problem> {
    let mut requirements = Requirements::new();
    for expression in term.field("matchLabelExpressions")?.items()? {
        let key = context.key(expression.field("key")?.required_str()?);
        let values = expression.field("values")?;
        let values: Vec<_> = values.strings()?.into_iter().map(|value| context.interner.value(value)).collect();
        requirements.insert_intersect(Requirement::new(key, ValueSet::among(values)), context.interner);
    }
    Ok(requirements)
}

fn non_empty(field: &Field<'_, '_>) -> Result<Option<Arc<str>>, Problem> {
    Ok(field.str()?.filter(|text| !text.is_empty()).map(Arc::from))
}

#[cfg(test)]
mod tests;
