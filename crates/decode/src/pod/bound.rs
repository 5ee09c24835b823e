//! Pods on nodes that cannot be read strictly.
//!
//! A pod that waits is refused for a field that nobody understands: it may decide where it goes. One that runs holds
//! room whatever its fields say, so what planning does not need of it is left out, part by part:
//!
//! * Tolerations, node affinity, pod affinity, spread constraints and the like decide where the pod itself may go, and
//!   it has gone there. Should it have to leave its node it wants a place again; so what was left out is named as
//!   unsupported, and then it is refused by name.
//! * Required anti-affinity keeps others away. A term that cannot be read keeps all pods of all namespaces out of its
//!   topology domain, or off its host if not even that can be told.
//! * Requests cannot be done without. A pod of which they cannot be read is [unreadable](model::Pod::unreadable): its
//!   node counts as full.
//!
//! An object is repaired by its errors: each names a field, and the rule for that field removes or replaces it.

use model::{Pod, Unsupported};
use serde_json::{Value, json};

use super::decode;
use crate::context::Context;
use crate::error::{ObjectError, Problem};
use crate::metadata::decode_object;

/// Repairs of one object. One that needs more counts as unreadable.
const MOST_REPAIRS: usize = 32;
const ANTI_AFFINITY: &str = "spec.affinity.podAntiAffinity";
const REQUIRED_TERMS: &str = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// Lists of which an item that cannot be read is left out.
const LISTS: [&str; 5] = [
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.resourceClaims",
    "spec.volumes",
    "metadata.ownerReferences",
];

/// Fields that are left out as a whole.
const FIELDS: [&str; 16] = [
    "spec.affinity.nodeAffinity",
    "spec.affinity.podAffinity",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.resourceClaims",
    "spec.volumes",
    "spec.nodeSelector",
    "spec.preemptionPolicy",
    "spec.schedulingGroup",
    "spec.terminationGracePeriodSeconds",
    "spec.priority",
    "spec.schedulerName",
    "metadata.annotations",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "status.startTime",
];

/// Whether somebody runs the pod.
pub(super) fn is_bound(object: &Value) -> bool {
    object.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty())
}

/// Reads a bound pod that was refused with `error`, as far as it can be read.
pub(super) fn read(object: &Value, error: ObjectError, context: &mut Context<'_>) -> Result<Pod, ObjectError> {
    let first = error.problem.clone();
    let mut repaired = object.clone();
    let mut left_out = Vec::new();
    let mut problem = error.problem;
    while left_out.len() < MOST_REPAIRS && repair(&mut repaired, &problem) {
        left_out.push(Unsupported::new(problem.to_string()));
        match decode_object(&repaired, "Pod", |root| decode(root, context)) {
            Ok(pod) => return Ok(with_left_out(pod, left_out)),
            Err(next) => problem = next.problem,
        }
    }
    let mut without_requests = repaired;
    drop_requests(&mut without_requests);
    let attempts = [without_requests, bare(object)];
    let mut pods = attempts.iter().filter_map(|it| decode_object(it, "Pod", |root| decode(root, context)).ok());
    let Some(pod) = pods.next() else { return Err(ObjectError { problem: first, ..error }) };
    drop(pods);
    left_out.push(Unsupported::new(problem.to_string()));
    Ok(Pod { unreadable: Some(problem.to_string().into()), ..with_left_out(pod, left_out) })
}

fn with_left_out(pod: Pod, mut left_out: Vec<Unsupported>) -> Pod {
    let mut shape = (*pod.shape).clone();
    shape.unsupported.append(&mut left_out);
    shape.unsupported.sort();
    shape.unsupported.dedup();
    Pod { shape: shape.into(), ..pod }
}

/// Makes the object readable where it was not; false if it may not be.
fn repair(object: &mut Value, problem: &Problem) -> bool {
    let field = problem.field.as_str();
    if field == "status.phase" {
        return replace(object, "/status", "phase", json!("Unknown"));
    }
    if field.starts_with(ANTI_AFFINITY) {
        return repair_anti_affinity(object, field);
    }
    if let Some(list) = LISTS.iter().find(|list| field.starts_with(**list))
        && let Some(index) = index_after(field, list)
    {
        return remove_item(object, &pointer_to(list), index);
    }
    if let Some(whole) = FIELDS.iter().find(|whole| is_within(field, whole)) {
        return remove_field(object, whole);
    }
    // Beside what is known of affinity there is something new.
    if field == "spec.affinity" {
        return keep_fields(object, "/spec/affinity", &["nodeAffinity", "podAffinity", "podAntiAffinity"]);
    }
    repair_port(object, field)
}

/// Puts a term in the place of one that cannot be read that keeps everybody away.
fn repair_anti_affinity(object: &mut Value, field: &str) -> bool {
    let everybody = |key: &str| json!({"topologyKey": key, "labelSelector": {}, "namespaceSelector": {}});
    let list = format!("{ANTI_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution");
    if let Some(index) = index_after(field, &list) {
        let Some(term) = object.pointer_mut(&format!("{REQUIRED_TERMS}/{index}")) else { return false };
        let key = term.get("topologyKey").and_then(Value::as_str).filter(|key| !key.is_empty());
        *term = everybody(key.unwrap_or(api::labels::HOSTNAME));
        return true;
    }
    // Preferences keep nobody away. Anything else may.
    let terms = object.pointer(REQUIRED_TERMS).filter(|_| !is_within(field, &list)).and_then(Value::as_array);
    let mut terms = terms.cloned().unwrap_or_default();
    if !field.starts_with(&format!("{ANTI_AFFINITY}.preferred")) {
        terms.push(everybody(api::labels::HOSTNAME));
    }
    let known = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    replace(object, "/spec/affinity", "podAntiAffinity", known)
}

/// Leaves out a port with a protocol or address that is not known: it is none that others could want.
fn repair_port(object: &mut Value, field: &str) -> bool {
    for list in ["containers", "initContainers"] {
        let Some(container) = index_after(field, &format!("spec.{list}")) else { continue };
        let ports = format!("spec.{list}[{container}].ports");
        let Some(port) = index_after(field, &ports) else { continue };
        return remove_item(object, &format!("/spec/{list}/{container}/ports"), port);
    }
    false
}

/// Takes away all that says what the pod asks for.
fn drop_requests(object: &mut Value) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        for field in ["initContainers", "resources", "overhead"] {
            spec.remove(field);
        }
        spec.insert("containers".to_owned(), json!([{"name": "unreadable"}]));
    }
    if let Some(Value::Object(status)) = object.get_mut("status") {
        for field in ["containerStatuses", "initContainerStatuses", "resources", "allocatedResources"] {
            status.remove(field);
        }
    }
}

/// What is left of a pod of which nothing else can be read.
fn bare(object: &Value) -> Value {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    json!({
        "metadata": {
            "name": text("/metadata/name"),
            "namespace": text("/metadata/namespace"),
            "uid": text("/metadata/uid"),
        },
        "spec": {"nodeName": text("/spec/nodeName"), "containers": [{"name": "unreadable"}]},
    })
}

fn pointer_to(field: &str) -> String {
    format!("/{}", field.replace('.', "/"))
}

/// Whether `field` is `whole` or a part of it.
fn is_within(field: &str, whole: &str) -> bool {
    field.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The index in `field` right after `list`.
fn index_after(field: &str, list: &str) -> Option<usize> {
    let (index, _) = field.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
    index.parse().ok()
}

fn remove_item(object: &mut Value, list: &str, index: usize) -> bool {
    match object.pointer_mut(list) {
        Some(Value::Array(items)) if index < items.len() => {
            items.remove(index);
            true
        }
        Some(_) | None => false,
    }
}

fn remove_field(object: &mut Value, field: &str) -> bool {
    let Some((parent, name)) = field.rsplit_once('.') else { return false };
    let parent = object.pointer_mut(&pointer_to(parent)).and_then(Value::as_object_mut);
    parent.is_some_and(|parent| parent.remove(name).is_some())
}

fn keep_fields(object: &mut Value, pointer: &str, known: &[&str]) -> bool {
    let Some(Value::Object(fields)) = object.pointer_mut(pointer) else { return false };
    let count = fields.len();
    fields.retain(|field, _| known.contains(&field.as_str()));
    fields.len() < count
}

fn replace(object: &mut Value, pointer: &str, field: &str, value: Value) -> bool {
    let Some(Value::Object(fields)) = object.pointer_mut(pointer) else { return false };
    if fields.get(field) == Some(&value) {
        return false;
    }
    fields.insert(field.to_owned(), value);
    true
}

#[cfg(test)]
mod tests {
    use model::{Interner, LabelSelector, ResourceId};

    use super::*;

    /// A pod on a node with these fields in place of its own.
    fn on_node(changes: &[(&str, Value)]) -> Value {
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": "a", "uid": "u", "labels": {"app": "a"}},
            "spec": {
                "nodeName": "n", "affinity": {},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
            },
            "status": {"phase": "Running"},
        });
        for (pointer, value) in changes {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        pod
    }

    fn read(object: &Value) -> (Pod, Interner) {
        let mut names = Interner::new();
        let pod = crate::pod(object, &mut Context::new(&mut names)).unwrap();
        (pod, names)
    }

    fn named(pod: &Pod) -> Vec<String> {
        pod.shape.unsupported.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_planning_does_not_need_of_a_bound_pod_does_not_make_its_requests_disappear() {
        let new_term = json!([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "new": 1}]);
        let cases = [
            ("/spec/tolerations", json!([{"operator": "Exists", "new": 1}]), "spec.tolerations[0]"),
            ("/spec/tolerations", json!("all"), "spec.tolerations"),
            ("/spec/affinity/nodeAffinity", json!({"new": 1}), "spec.affinity.nodeAffinity"),
            ("/spec/affinity/podAffinity", json!({"new": 1}), "spec.affinity.podAffinity"),
            ("/spec/affinity/machineAffinity", json!({}), "spec.affinity"),
            ("/spec/topologySpreadConstraints", new_term, "spec.topologySpreadConstraints[0]"),
            ("/spec/nodeSelector", json!({"a": "not a value!"}), "spec.nodeSelector[a]"),
            ("/spec/preemptionPolicy", json!("Sometimes"), "spec.preemptionPolicy"),
            ("/spec/resourceClaims", json!([{"name": "a"}]), "spec.resourceClaims[0]"),
            ("/status/phase", json!("Resting"), "status.phase"),
            ("/metadata/creationTimestamp", json!("yesterday"), "metadata.creationTimestamp"),
        ];
        for (pointer, value, field) in cases {
            let (pod, _) = read(&on_node(&[(pointer, value)]));
            assert_eq!(pod.shape.requests.get(ResourceId::CPU), 2000, "{pointer}");
            assert_eq!((pod.unreadable.as_deref(), pod.phase.is_terminal()), (None, false), "{pointer}");
            // If it has to leave its node, it is refused by that name.
            assert!(named(&pod).iter().any(|it| it.starts_with(field)), "{pointer}: {:?}", named(&pod));
        }
    }

    #[test]
    fn of_a_list_only_the_item_that_cannot_be_read_is_left_out() {
        let tolerations =
            json!([{"key": "a", "operator": "New"}, {"key": "b", "operator": "Exists"}, {"key": "", "x": 1}]);
        let port = |protocol: &str| json!({"hostPort": 80, "protocol": protocol});
        let containers =
            json!([{"name": "c", "ports": [port("QUIC"), port("UDP")], "resources": {"requests": {"cpu": "1"}}}]);
        let (pod, names) = read(&on_node(&[("/spec/tolerations", tolerations), ("/spec/containers", containers)]));
        let [toleration] = pod.shape.tolerations.as_slice() else { panic!("{:?}", pod.shape.tolerations) };
        assert_eq!(toleration.key.map(|key| names.key_name(key)), Some("b"));
        assert_eq!((pod.shape.host_ports.len(), named(&pod).len()), (1, 3));
    }

    #[test]
    fn an_anti_affinity_that_cannot_be_read_keeps_everybody_away() {
        let required = |terms: Value| {
            let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
            read(&on_node(&[("/spec/affinity/podAntiAffinity", affinity)]))
        };
        let good = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}});
        let (pod, names) = required(json!([good, {"topologyKey": "rack", "new": 1, "labelSelector": {}}]));
        let [first, second] = pod.shape.pod_anti_affinity.required.as_slice() else { panic!("{pod:?}") };
        assert_eq!(names.key_name(first.topology_key), "zone");
        assert_ne!(first.selector, LabelSelector::Matching(Default::default()));
        assert_eq!(names.key_name(second.topology_key), "rack");
        let everything = LabelSelector::Matching(Default::default());
        assert_eq!((&second.selector, &second.namespace_selector), (&everything, &everything));
        for terms in [json!([{"new": 1}]), json!("all"), json!({"a": 1})] {
            let (pod, names) = required(terms);
            let [only] = pod.shape.pod_anti_affinity.required.as_slice() else { panic!("{pod:?}") };
            assert_eq!((names.key_name(only.topology_key), &only.selector), (api::labels::HOSTNAME, &everything));
        }
        let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "new": 1}]});
        let (pod, _) = read(&on_node(&[("/spec/affinity/podAntiAffinity", preferred)]));
        assert!(pod.shape.pod_anti_affinity.required.is_empty(), "a preference keeps nobody away");
    }

    #[test]
    fn a_bound_pod_without_readable_requests_is_there_and_says_why_it_is_unreadable() {
        let much = json!([{"name": "c", "resources": {"requests": {"cpu": "much"}}}]);
        let (pod, _) =
            read(&on_node(&[("/spec/containers", much), ("/spec/tolerations", json!([{"operator": "Exists"}]))]));
        assert!(pod.unreadable.as_deref().unwrap().starts_with("spec.containers[0].resources.requests[cpu]"));
        assert_eq!((pod.node_name.as_deref(), &*pod.uid), (Some("n"), "u"));
        assert_eq!(pod.shape.tolerations.len(), 1, "what a drain reads of it is kept");
        let (pod, _) = read(&on_node(&[("/metadata/labels", json!(7)), ("/spec/containers", json!([]))]));
        assert!(pod.unreadable.is_some());
    }

    #[test]
    fn a_pod_that_waits_is_refused_for_the_same_and_one_without_a_name_is_none() {
        let mut names = Interner::new();
        let context = &mut Context::new(&mut names);
        let mut waits = on_node(&[("/spec/tolerations", json!([{"operator": "Exists", "new": 1}]))]);
        waits["spec"]["nodeName"] = Value::Null;
        assert!(crate::pod(&waits, context).is_err());
        assert!(crate::pod(&on_node(&[("/metadata/name", json!(""))]), context).is_err());
    }
}
