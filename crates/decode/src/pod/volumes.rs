//! Volumes that can restrict where a pod goes, and device claims.

use std::sync::Arc;

use model::pod::{PodResourceClaim, PodResourceClaimSource, VolumeRef};
use model::{NamespacedName, ResourceClaimName, Unsupported};
use serde_json::Value;

use super::non_empty;
use crate::error::Problem;
use crate::field::Field;

/// Volumes that any node can provide, or that are found by the network from any node.
const EVERYWHERE: [&str; 22] = [
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "scaleIO",
    "secret",
    "storageos",
];

/// Reads `spec.volumes`. Disks written into the pod itself and kinds of volumes that are not known are unsupported:
/// kube-scheduler keeps pods with the same disk apart.
pub(super) fn decode(
    list: &Field<'_, '_>,
    namespace: &str,
    unsupported: &mut Vec<Unsupported>,
) -> Result<Vec<VolumeRef>, Problem> {
    let mut volumes = Vec::new();
    for volume in list.items()? {
        let Some(Value::Object(sources)) = volume.value() else { continue };
        for source in sources.iter().filter(|(_, value)| !value.is_null()).map(|(source, _)| source.as_str()) {
            match source {
                "name" => {}
                "persistentVolumeClaim" => {
                    let claim = volume.field("persistentVolumeClaim")?;
                    let name = claim.field("claimName")?.required_str()?;
                    volumes.push(VolumeRef::Claim(NamespacedName::new(namespace, name)));
                }
                "ephemeral" => {
                    let template = volume.field("ephemeral")?;
                    let template = template.field("volumeClaimTemplate")?;
                    let spec = template.field("spec")?;
                    volumes.push(VolumeRef::Ephemeral {
                        volume: Arc::from(volume.field("name")?.str_or_empty()?),
                        storage_class: spec.field("storageClassName")?.str()?.map(Arc::from),
                    });
                }
                known if EVERYWHERE.contains(&known) => {}
                _ => unsupported.push(Unsupported::new(format!("a volume of kind {source}"))),
            }
        }
    }
    unsupported.sort();
    unsupported.dedup();
    Ok(volumes)
}

/// Reads `spec.resourceClaims`.
pub(super) fn resource_claims(list: &Field<'_, '_>, namespace: &str) -> Result<Vec<PodResourceClaim>, Problem> {
    let claim = |entry: Field<'_, '_>| {
        entry.only(&["name", "resourceClaimName", "resourceClaimTemplateName"])?;
        let claim = non_empty(&entry.field("resourceClaimName")?)?;
        let template = non_empty(&entry.field("resourceClaimTemplateName")?)?;
        let source = match (claim, template) {
            (Some(claim), None) => PodResourceClaimSource::Claim(NamespacedName::new(namespace, claim)),
            (None, Some(template)) => PodResourceClaimSource::Template(NamespacedName::new(namespace, template)),
            (None, None) => {
                return Err(entry.invalid("one of resourceClaimName and resourceClaimTemplateName must be set"));
            }
            (Some(_), Some(_)) => {
                return Err(entry.invalid("names both a claim and a template, exactly one is allowed"));
            }
        };
        Ok(PodResourceClaim { name: ResourceClaimName::from(entry.field("name")?.required_str()?), source })
    };
    list.items()?.map(claim).collect()
}
