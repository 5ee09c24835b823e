//! An object of any kind is read, or refused by an error that begins with its kind; what a snapshot keeps of it reads
//! alike.

use cluster::snapshot_file::{KINDS, prune};
use decode::capacity_buffer::{self, TemplateKind};
use decode::pod_selectors::SelectorKind;
use decode::{Context, ObjectError, devices};
use model::Interner;
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    let Some(kind) = object["kind"].as_str() else { return };
    let Some(whole) = read(&object, kind) else { return };
    if let Err(error) = &whole {
        assert!(error.to_string().starts_with(kind), "{error}");
    }
    let Some(kept) = KINDS.iter().find(|it| it.kind == kind) else { return };
    // Of a bound pod what no API server would have is left out, and a snapshot may drop it before anybody sees it.
    if kind == "Pod" && read(&unbound(&object), kind).is_none_or(|read| read.is_err()) {
        return;
    }
    if whole.is_ok() {
        let of_plans = read(&without_reports(&object, kind), kind).and_then(Result::ok);
        let pruned = read(&prune(&object, kept), kind).and_then(Result::ok);
        assert_eq!(pruned, of_plans, "what a snapshot keeps reads differently");
    }
}

/// The object without what tells of it and decides no plan: a snapshot need not hold it.
fn without_reports(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in
            ["deletionGracePeriodSeconds", "finalizers", "generation", "managedFields", "resourceVersion", "selfLink"]
        {
            metadata.remove(field);
        }
    }
    if let ("CapacityBuffer" | "NodeOverlay", Some(fields)) = (kind, object.as_object_mut()) {
        fields.remove("status");
    }
    object
}

fn unbound(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("nodeName");
    }
    pod
}

/// What was read, printed without the fields that nobody knows.
macro_rules! known {
    ($read:expr) => {
        print($read.map(|mut read| {
            read.unknown_fields.clear();
            read
        }))
    };
}

/// What an object is read as, printed. Ids are given out in the order of reading, so equal objects print alike. Fields
/// that are dropped decide nothing, so a snapshot need not tell of them. `None` for a kind that nobody reads.
fn read(object: &Value, kind: &str) -> Option<Result<String, ObjectError>> {
    let mut interner = Interner::new();
    let context = &mut Context::new(&mut interner);
    Some(match kind {
        "Pod" => print(decode::pod(object, context)),
        "Node" => print(decode::node(object, context)),
        "Namespace" => print(decode::namespace(object, context)),
        "CSINode" => print(decode::csi_node(object)),
        "DaemonSet" => print(decode::daemon_set(object, context)),
        "PersistentVolume" => print(decode::persistent_volume(object, context)),
        "PersistentVolumeClaim" => print(decode::persistent_volume_claim(object)),
        "StorageClass" => print(decode::storage_class(object, context)),
        "PodDisruptionBudget" => print(decode::pod_disruption_budget(object, context)),
        "LimitRange" => print(decode::limit_range(object)),
        "ResourceQuota" => print(decode::resource_quota(object)),
        "PriorityClass" => print(decode::priority_class(object)),
        "PodGroup" => print(decode::pod_group(object, context)),
        "NodePool" => print(decode::node_pool_object(object)),
        "NodeClaim" => print(decode::node_claim_object(object)),
        "CapacityBuffer" => print(decode::capacity_buffer_object(object)),
        "NodeOverlay" => print(decode::node_overlay_object(object)),
        "DeviceClass" => known!(devices::device_class(object, devices::Admitted::ByServer)),
        "ResourceSlice" => known!(devices::resource_slice(object, devices::Admitted::ByServer)),
        "ResourceClaim" => known!(devices::resource_claim(object, devices::Admitted::ByServer)),
        "ResourceClaimTemplate" => {
            known!(devices::resource_claim_template(object, devices::Admitted::ByServer))
        }
        "DeviceTaintRule" => known!(devices::device_taint_rule(object, devices::Admitted::ByServer)),
        other => {
            let template = TemplateKind::ALL.into_iter().find(|kind| kind.as_str() == other);
            if let Some(kind) = template {
                return Some(print(capacity_buffer::buffer_template(object, kind, context)));
            }
            let kind = SelectorKind::OF_SCHEDULER.into_iter().find(|kind| kind.as_str() == other)?;
            print(decode::pod_selectors::pod_selector(object, kind, context))
        }
    })
}

fn print<T: std::fmt::Debug>(read: Result<T, ObjectError>) -> Result<String, ObjectError> {
    read.map(|value| format!("{value:?}"))
}
