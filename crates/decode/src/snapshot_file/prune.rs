//! Which fields of which kinds go into a snapshot.

use serde_json::{Map, Value};

use crate::pod::is_spec_field;

/// A kind that a snapshot holds.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotKind {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// The resource's name in paths of the API.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
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

/// Beginnings of the keys of annotations that are kept; others may hold anything, such as a whole manifest.
const ANNOTATIONS: [&str; 7] = [
    "controller.kubernetes.io/pod-deletion-cost",
    "deprecated.daemonset.template.generation",
    "dovetail.sh/",
    "karpenter.sh/",
    "pv.kubernetes.io/bind-completed",
    "resource.kubernetes.io/pod-claim-name",
    "storageclass.kubernetes.io/is-default-class",
];

/// The annotation of a mirror pod; its value is a hash.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The group of objects that describe devices and claims.
const DEVICE_GROUP: &str = "resource.k8s.io/";

/// Every kind of a snapshot, in the order in which they are written.
pub const KINDS: [SnapshotKind; 28] = [
    kind("v1", "Namespace", "namespaces", &[]),
    namespaced("v1", "LimitRange", "limitranges", &["spec"]),
    kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", &["globalDefault", "preemptionPolicy", "value"]),
    kind(
        "storage.k8s.io/v1",
        "StorageClass",
        "storageclasses",
        &["allowedTopologies", "provisioner", "volumeBindingMode"],
    ),
    kind(
        "v1",
        "PersistentVolume",
        "persistentvolumes",
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
    namespaced(
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        &["spec.accessModes", "spec.storageClassName", "spec.volumeName", "status.phase"],
    ),
    kind("storage.k8s.io/v1", "CSINode", "csinodes", &["spec.drivers[].allocatable", "spec.drivers[].name"]),
    namespaced(
        "v1",
        "ResourceQuota",
        "resourcequotas",
        &["spec.hard", "spec.scopeSelector", "spec.scopes", "status.hard", "status.used"],
    ),
    kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", &["spec"]),
    kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", &["spec"]),
    namespaced(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "resourceclaims",
        &[
            "spec",
            "status.allocation.allocationTimestamp",
            "status.allocation.devices.results",
            "status.allocation.nodeSelector",
            "status.reservedFor",
        ],
    ),
    namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", &["spec"]),
    kind("resource.k8s.io/v1beta2", "DeviceTaintRule", "devicetaintrules", &["spec"]),
    kind("karpenter.sh/v1", "NodePool", "nodepools", &["spec", "status"]),
    kind("karpenter.sh/v1alpha1", "NodeOverlay", "nodeoverlays", &["spec"]),
    kind("karpenter.sh/v1", "NodeClaim", "nodeclaims", &["spec", "status"]),
    kind(
        "v1",
        "Node",
        "nodes",
        &[
            "spec.providerID",
            "spec.taints",
            "spec.unschedulable",
            "status.allocatable",
            "status.capacity",
            "status.conditions[].lastTransitionTime",
            "status.conditions[].status",
            "status.conditions[].type",
        ],
    ),
    namespaced("apps/v1", "DaemonSet", "daemonsets", &["spec.template.metadata.labels"]),
    namespaced(
        "scheduling.k8s.io/v1alpha2",
        "PodGroup",
        "podgroups",
        &[
            "spec.parentCompositePodGroupName",
            "spec.resourceClaims",
            "spec.schedulingConstraints",
            "spec.schedulingPolicy",
            "status.resourceClaimStatuses",
        ],
    ),
    namespaced(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        &[
            "spec.maxUnavailable",
            "spec.minAvailable",
            "spec.selector",
            "spec.unhealthyPodEvictionPolicy",
            "status.disruptionsAllowed",
        ],
    ),
    namespaced("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "capacitybuffers", &["spec"]),
    namespaced("v1", "PodTemplate", "podtemplates", &["template.metadata.labels"]),
    namespaced("apps/v1", "Deployment", "deployments", &["spec.replicas", "spec.template.metadata.labels"]),
    namespaced(
        "apps/v1",
        "ReplicaSet",
        "replicasets",
        &["spec.replicas", "spec.selector", "spec.template.metadata.labels"],
    ),
    namespaced(
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        &["spec.replicas", "spec.selector", "spec.template.metadata.labels"],
    ),
    namespaced("v1", "Service", "services", &["spec.selector"]),
    namespaced("v1", "ReplicationController", "replicationcontrollers", &["spec.selector"]),
    namespaced(
        "v1",
        "Pod",
        "pods",
        &[
            "status.allocatedResources",
            "status.conditions[].reason",
            "status.conditions[].status",
            "status.conditions[].type",
            "status.containerStatuses[].allocatedResources",
            "status.containerStatuses[].name",
            "status.containerStatuses[].resources",
            "status.initContainerStatuses[].allocatedResources",
            "status.initContainerStatuses[].name",
            "status.initContainerStatuses[].resources",
            "status.extendedResourceClaimStatus",
            "status.nodeAllocatableResourceClaimStatuses",
            "status.nominatedNodeName",
            "status.phase",
            "status.resourceClaimStatuses",
            "status.resources",
            "status.startTime",
        ],
    ),
];

/// Fields of a PodSpec that are kept whole.
const POD_SPEC: [&str; 18] = [
    "affinity",
    "hostNetwork",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
];

/// Fields of containers that are kept.
const CONTAINER: [&str; 4] = ["name", "ports", "resources", "restartPolicy"];

/// Whether planning reads the annotation of that name.
pub fn is_read_of_annotations(key: &str) -> bool {
    key == MIRROR || ANNOTATIONS.iter().any(|start| key.starts_with(start))
}

/// Whether planning reads this field of containers.
pub fn is_read_of_containers(field: &str) -> bool {
    CONTAINER.contains(&field)
}

/// Whether planning reads what is in this field of a PodSpec; `None` of a field that is not known, of which it reads that it
/// is there.
pub fn is_read_of_pod_specs(field: &str) -> Option<bool> {
    let is_read = matches!(field, "containers" | "initContainers" | "volumes") || POD_SPEC.contains(&field);
    (is_read || is_spec_field(field)).then_some(is_read)
}

/// Whether planning reads this field of a pod's status.
pub fn is_read_of_pod_statuses(field: &str) -> bool {
    matches!(
        field,
        "allocatedResources"
            | "conditions"
            | "containerStatuses"
            | "extendedResourceClaimStatus"
            | "initContainerStatuses"
            | "nodeAllocatableResourceClaimStatuses"
            | "nominatedNodeName"
            | "phase"
            | "resourceClaimStatuses"
            | "resources"
            | "startTime"
    )
}

/// Whether planning reads what is in this field of a volume; of any other it reads that it is there.
pub fn is_read_of_volumes(field: &str) -> bool {
    matches!(field, "name" | "persistentVolumeClaim" | "ephemeral")
}

const fn kind(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    fields: &'static [&'static str],
) -> SnapshotKind {
    SnapshotKind { api_version, kind, plural, is_namespaced: false, fields }
}

const fn namespaced(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    fields: &'static [&'static str],
) -> SnapshotKind {
    SnapshotKind { api_version, kind, plural, is_namespaced: true, fields }
}

/// The part of an object of this kind that planning reads.
///
/// Fields of a PodSpec, and of an object that describes devices, that this program does not know stay, without their contents:
/// an object that has one is refused, and must be refused again when the file is read.
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
        "Pod" => set_spec(&mut pruned, "/spec", object.get("spec")),
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
        let value = match field.as_str() {
            "containers" | "initContainers" => each(value, |item| only(item, &CONTAINER)),
            "volumes" => each(value, volume),
            field => match is_read_of_pod_specs(field) {
                Some(true) => value.clone(),
                Some(false) => continue,
                None => Value::Bool(true),
            },
        };
        kept.insert(field.clone(), value);
    }
    Value::Object(kept)
}

/// A volume's name, its kind, and what of a claim decides the place.
fn volume(volume: &Map<String, Value>) -> Value {
    let mut kept = Map::new();
    for (field, value) in volume.iter().filter(|(_, value)| !value.is_null()) {
        let value = match field.as_str() {
            "ephemeral" => {
                let mut ephemeral = Value::Object(Map::new());
                copy(value, &mut ephemeral, "volumeClaimTemplate.spec.storageClassName");
                ephemeral
            }
            read if is_read_of_volumes(read) => value.clone(),
            _ => Value::Object(Map::new()),
        };
        kept.insert(field.clone(), value);
    }
    Value::Object(kept)
}

fn only(object: &Map<String, Value>, fields: &[&str]) -> Value {
    Value::Object(
        object
            .iter()
            .filter(|(field, _)| fields.contains(&field.as_str()))
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
