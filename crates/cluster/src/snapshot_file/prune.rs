//! Which fields of which kinds go into a snapshot.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use decode::api_resources::{self, Resource};
use decode::reads::{self, Fields, Reads, is_read_of_annotations};

/// A kind that a snapshot holds.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotKind {
    /// `apiVersion`: of the versions of the kind the one that is asked for.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// The resource's name in paths of the API.
    pub plural: &'static str,
    /// The fields that are kept: `a.b` is a field, `a[].b` a field of each item. `a` keeps all of `a`.
    fields: &'static [&'static str],
}

const METADATA: [&str; 9] = [
    "metadata.annotations",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.generateName",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.ownerReferences",
    "metadata.uid",
];

/// The group of objects that describe devices and claims.
const DEVICE_GROUP: &str = "resource.k8s.io/";

/// Every kind of a snapshot, in the order in which they are written.
pub const KINDS: [SnapshotKind; 28] = [
    kind("v1", &api_resources::NAMESPACE, &[]),
    kind("v1", &api_resources::LIMIT_RANGE, &["spec"]),
    kind("scheduling.k8s.io/v1", &api_resources::PRIORITY_CLASS, &["globalDefault", "preemptionPolicy", "value"]),
    kind(
        "storage.k8s.io/v1",
        &api_resources::STORAGE_CLASS,
        &["allowedTopologies", "provisioner", "volumeBindingMode"],
    ),
    kind(
        "v1",
        &api_resources::PERSISTENT_VOLUME,
        &[
            "spec.awsElasticBlockStore.volumeID",
            "spec.azureDisk.diskURI",
            "spec.cinder.volumeID",
            "spec.claimRef.name",
            "spec.claimRef.namespace",
            "spec.csi.driver",
            "spec.csi.volumeHandle",
            "spec.gcePersistentDisk.pdName",
            "spec.nodeAffinity",
            "spec.storageClassName",
        ],
    ),
    kind(
        "v1",
        &api_resources::PERSISTENT_VOLUME_CLAIM,
        &["spec.accessModes", "spec.storageClassName", "spec.volumeName", "status.phase"],
    ),
    kind("storage.k8s.io/v1", &api_resources::CSI_NODE, &["spec.drivers[].allocatable", "spec.drivers[].name"]),
    kind(
        "v1",
        &api_resources::RESOURCE_QUOTA,
        &["spec.hard", "spec.scopeSelector", "spec.scopes", "status.hard", "status.used"],
    ),
    kind("resource.k8s.io/v1", &api_resources::DEVICE_CLASS, &["spec"]),
    kind("resource.k8s.io/v1", &api_resources::RESOURCE_SLICE, &["spec"]),
    kind(
        "resource.k8s.io/v1",
        &api_resources::RESOURCE_CLAIM,
        &[
            "spec",
            "status.allocation.allocationTimestamp",
            "status.allocation.devices.results",
            "status.allocation.nodeSelector",
            "status.reservedFor",
        ],
    ),
    kind("resource.k8s.io/v1", &api_resources::RESOURCE_CLAIM_TEMPLATE, &["spec"]),
    kind("resource.k8s.io/v1beta2", &api_resources::DEVICE_TAINT_RULE, &["spec"]),
    kind("karpenter.sh/v1", &api_resources::NODE_POOL, &["spec", "status"]),
    kind("karpenter.sh/v1alpha1", &api_resources::NODE_OVERLAY, &["spec"]),
    kind("karpenter.sh/v1", &api_resources::NODE_CLAIM, &["spec", "status"]),
    kind(
        "v1",
        &api_resources::NODE,
        &[
            "spec.providerID",
            "spec.taints",
            "spec.unschedulable",
            "status.allocatable",
            "status.capacity",
            "status.conditions[].lastTransitionTime",
            "status.conditions[].reason",
            "status.conditions[].status",
            "status.conditions[].type",
        ],
    ),
    kind("apps/v1", &api_resources::DAEMON_SET, &["spec.template.metadata.labels"]),
    kind(
        "scheduling.k8s.io/v1alpha2",
        &api_resources::POD_GROUP,
        &[
            "spec.parentCompositePodGroupName",
            "spec.resourceClaims",
            "spec.schedulingConstraints",
            "spec.schedulingPolicy",
            "status.resourceClaimStatuses",
        ],
    ),
    kind(
        "policy/v1",
        &api_resources::POD_DISRUPTION_BUDGET,
        &[
            "spec.maxUnavailable",
            "spec.minAvailable",
            "spec.selector",
            "spec.unhealthyPodEvictionPolicy",
            "status.disruptionsAllowed",
        ],
    ),
    kind("autoscaling.x-k8s.io/v1beta1", &api_resources::CAPACITY_BUFFER, &["spec"]),
    kind("v1", &api_resources::POD_TEMPLATE, &["template.metadata.labels"]),
    kind("apps/v1", &api_resources::DEPLOYMENT, &["spec.replicas", "spec.template.metadata.labels"]),
    kind("apps/v1", &api_resources::REPLICA_SET, &["spec.replicas", "spec.selector", "spec.template.metadata.labels"]),
    kind("apps/v1", &api_resources::STATEFUL_SET, &["spec.replicas", "spec.selector", "spec.template.metadata.labels"]),
    kind("v1", &api_resources::SERVICE, &["spec.selector"]),
    kind("v1", &api_resources::REPLICATION_CONTROLLER, &["spec.selector"]),
    kind("v1", &api_resources::POD, &[]),
];

/// The fields of a pod's status.
static POD_STATUS: LazyLock<Vec<String>> =
    LazyLock::new(|| reads::POD_STATUS.paths().map(|path| format!("status.{path}")).collect());

const fn kind(api_version: &'static str, of: &'static Resource, fields: &'static [&'static str]) -> SnapshotKind {
    SnapshotKind { api_version, kind: of.kind, plural: of.plural, fields }
}

/// The part of an object of this kind that planning reads.
///
/// Fields of a PodSpec, and of an object that describes devices, that this program does not know stay, without their
/// contents: an object that has one is refused, and must be refused again when the file is read.
pub fn prune(object: &Value, kind: &SnapshotKind) -> Value {
    let mut pruned = Map::new();
    pruned.insert("apiVersion".to_owned(), Value::from(kind.api_version));
    pruned.insert("kind".to_owned(), Value::from(kind.kind));
    let mut pruned = Value::Object(pruned);
    for path in METADATA.iter().chain(kind.fields) {
        copy(object, &mut pruned, path);
    }
    if let Some(Value::Object(annotations)) = pruned.pointer_mut("/metadata/annotations") {
        annotations.retain(|key, _| is_read_of_annotations(key));
    }
    if kind.api_version.starts_with(DEVICE_GROUP) {
        keep_unknown(object, &mut pruned, kind.kind);
    }
    match kind.kind {
        "Pod" => {
            for path in POD_STATUS.iter() {
                copy(object, &mut pruned, path);
            }
            set_spec(&mut pruned, "/spec", object.get("spec"));
        }
        "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet" => {
            set_spec(&mut pruned, "/spec/template/spec", object.pointer("/spec/template/spec"));
        }
        "PodTemplate" => set_spec(&mut pruned, "/template/spec", object.pointer("/template/spec")),
        "DeviceClass" => drop_config(&mut pruned, "/spec"),
        "ResourceClaim" => drop_config(&mut pruned, "/spec/devices"),
        "ResourceClaimTemplate" => drop_config(&mut pruned, "/spec/spec/devices"),
        _ => {}
    }
    pruned
}

/// Unknown fields of the object itself stay, and those of a claim's status, without what is in them.
fn keep_unknown(object: &Value, pruned: &mut Value, kind: &str) {
    // A rule tells in its status what it has done; of the others only a claim has one.
    let has_status = matches!(kind, "DeviceTaintRule" | "ResourceClaim");
    let known: &[&str] = if has_status {
        &["apiVersion", "kind", "metadata", "spec", "status"]
    } else {
        &["apiVersion", "kind", "metadata", "spec"]
    };
    keep_unknown_at(object, pruned, &[], known);
    if kind == "ResourceClaim" {
        keep_unknown_at(object, pruned, &["status"], &["allocation", "devices", "reservedFor"]);
        let of_allocation = ["allocationTimestamp", "devices", "nodeSelector"];
        keep_unknown_at(object, pruned, &["status", "allocation"], &of_allocation);
        keep_unknown_at(object, pruned, &["status", "allocation", "devices"], &["config", "results"]);
    }
}

/// The fields of what is at a path, but for the known ones, without what is in them.
fn keep_unknown_at(object: &Value, pruned: &mut Value, path: &[&str], known: &[&str]) {
    let found = path.iter().try_fold(object, |value, field| value.get(field)).and_then(Value::as_object);
    let mut unknown =
        found.into_iter().flatten().map(|(field, _)| field).filter(|it| !known.contains(&it.as_str())).peekable();
    if unknown.peek().is_none() {
        return;
    }
    let mut at = pruned;
    for field in path {
        let Value::Object(fields) = at else { return };
        at = fields.entry(*field).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Value::Object(fields) = at {
        fields.extend(unknown.map(|field| (field.clone(), Value::Bool(true))));
    }
}

/// What drivers are told, which decides nothing about the place and may be anything.
fn drop_config(pruned: &mut Value, pointer: &str) {
    if let Some(Value::Object(fields)) = pruned.pointer_mut(pointer) {
        fields.remove("config");
    }
}

fn set_spec(pruned: &mut Value, pointer: &str, spec: Option<&Value>) {
    let Some(spec) = spec.and_then(Value::as_object) else { return };
    let mut target = pruned;
    for step in pointer.split('/').skip(1) {
        let Value::Object(fields) = target else { return };
        target = fields.entry(step).or_insert_with(|| Value::Object(Map::new()));
    }
    *target = pod_spec(spec);
}

fn pod_spec(spec: &Map<String, Value>) -> Value {
    let mut kept = Map::new();
    for (field, value) in spec {
        let value = match reads::POD_SPEC.of(field) {
            Reads::Nothing => continue,
            // A field that is null is not there.
            Reads::Presence if value.is_null() => continue,
            Reads::Presence => Value::Bool(true),
            Reads::Whole => value.clone(),
            Reads::Each(fields) if field == "volumes" => each(value, |item| volume(item, fields)),
            Reads::Each(fields) => each(value, |item| only(item, fields)),
        };
        kept.insert(field.clone(), value);
    }
    Value::Object(kept)
}

/// A volume's name, its kind, and what of a claim decides the place.
fn volume(volume: &Map<String, Value>, fields: &Fields) -> Value {
    let mut kept = Map::new();
    for (field, value) in volume.iter().filter(|(_, value)| !value.is_null()) {
        let value = match field.as_str() {
            "ephemeral" => {
                let mut ephemeral = Value::Object(Map::new());
                copy(value, &mut ephemeral, "volumeClaimTemplate.spec.storageClassName");
                ephemeral
            }
            // Its path says something to drains only, and may hold names.
            "hostPath" => Value::Object(Map::new()),
            field => match fields.of(field) {
                Reads::Whole | Reads::Each(_) => value.clone(),
                Reads::Presence => Value::Object(Map::new()),
                Reads::Nothing => continue,
            },
        };
        kept.insert(field.clone(), value);
    }
    Value::Object(kept)
}

fn only(object: &Map<String, Value>, fields: &Fields) -> Value {
    Value::Object(
        object
            .iter()
            .filter(|(field, _)| matches!(fields.of(field), Reads::Whole))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect(),
    )
}

fn each(list: &Value, keep: impl Fn(&Map<String, Value>) -> Value) -> Value {
    match list {
        Value::Array(items) => items.iter().map(|item| item.as_object().map_or(Value::Null, &keep)).collect(),
        _ => Value::Null,
    }
}

/// Copies the field at `path` from one object to another that may hold other fields at the same places.
fn copy(from: &Value, to: &mut Value, path: &str) {
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    let (field, is_list) = step.strip_suffix("[]").map_or((step, false), |field| (field, true));
    let Some(source) = from.get(field).filter(|value| !value.is_null()) else { return };
    let Value::Object(to) = to else { return };
    match (rest, is_list) {
        (None, _) => {
            to.insert(field.to_owned(), source.clone());
        }
        (Some(rest), false) => copy(source, to.entry(field).or_insert_with(|| Value::Object(Map::new())), rest),
        (Some(rest), true) => {
            let Value::Array(items) = source else { return };
            let empty = || Value::Array(vec![Value::Object(Map::new()); items.len()]);
            if let Value::Array(kept) = to.entry(field).or_insert_with(empty) {
                for (item, kept) in items.iter().zip(kept) {
                    copy(item, kept, rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_asked_for_in_one_of_its_versions_and_only_attachments_are_left_out() {
        for resource in api_resources::ALL {
            let Some(kind) = KINDS.iter().find(|kind| kind.plural == resource.plural) else {
                // Attachments only hold back the end of a node.
                assert_eq!(*resource, &api_resources::VOLUME_ATTACHMENT);
                continue;
            };
            let (group, version) = kind.api_version.rsplit_once('/').unwrap_or(("", kind.api_version));
            assert_eq!((group, kind.kind), (resource.group, resource.kind));
            assert!(resource.versions.contains(&version), "{}", kind.api_version);
        }
        assert_eq!(KINDS.len() + 1, api_resources::ALL.len());
    }
}
