use cloudprovider_kwok::catalogue::default_instance_types;
use serde_json::{Value, json};

use crate::offline::{self, OfflineNote, Settings};

const NODE_CLASSES: [(&str, &str); 1] = [("karpenter.kwok.sh", "KWOKNodeClass")];

/// An overlay that describes GPUs on four instance types, and names a DaemonSet.
fn overlay(daemon_set: &Value) -> Value {
    let device = json!({"name": "gpu-{index}", "replicas": 2});
    json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "gpus"},
        "spec": {
            "requirements": [
                {"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["m"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"]},
            ],
            "dynamicResources": {
                "resourceSliceTemplates": [
                    {"metadata": {"name": "t"}, "spec": {"driver": "gpu.example.com", "devices": [device]}}],
                "drivers": [{"name": "gpu.example.com", "daemonSet": daemon_set}],
            },
        },
    })
}

/// NodePool `p` for Linux.
fn node_pool(taints: &Value, architectures: &[&str]) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
        "spec": {"template": {
            "metadata": {"labels": {"team": "ml"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "n"},
                "taints": taints,
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": architectures},
                ],
            },
        }},
    })
}

/// A DaemonSet whose pods have label `app` with its name.
fn daemon_set(name: &str, pod_spec: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c"}]});
    spec.as_object_mut().unwrap().extend(pod_spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "gpu"},
        "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
}

/// What is told of drivers.
#[track_caller]
fn told(objects: &[Value]) -> Vec<String> {
    let types: Vec<_> = default_instance_types().into_iter().map(Into::into).collect();
    let labels = cloudprovider_kwok::provider_labels(&types);
    let settings = Settings::new(&types, &labels, &NODE_CLASSES);
    let text = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let parsed = decode::manifests::parse("in.json", &text);
    let offline = offline::read(parsed.manifests, parsed.errors, &settings);
    assert!(offline.problems.is_empty(), "{:?}", offline.problems);
    let is_of_drivers = |note: &&OfflineNote| matches!(note, OfflineNote::NoDriverPods(_));
    offline.notes.iter().filter(is_of_drivers).map(ToString::to_string).collect()
}

const FIELD: &str = "nodeoverlay/gpus: spec.dynamicResources.drivers[gpu.example.com].daemonSet: ";

#[test]
fn a_daemon_set_that_cannot_run_on_the_machines_is_told_with_the_reason() {
    let nothing = json!({});
    let tolerates = |key: &str| json!({"tolerations": [{"key": key, "operator": "Exists"}]});
    let affinity = |operator: &str, values: Value| {
        let term = json!({"matchExpressions": [{"key": "team", "operator": operator, "values": values}]});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
        json!({"affinity": {"nodeAffinity": required}})
    };
    let taints = json!([{"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}]);
    let no_taint = json!([]);
    let off = "no pod of daemonset/gpu/driver can run on machines of instance type m-8x-amd64-linux of nodepool/p: it ";
    let cases: [(&Value, Value, String); 9] = [
        (&no_taint, nothing.clone(), String::new()),
        (&taints, tolerates("example.com/gpu"), String::new()),
        (
            &taints,
            nothing,
            format!("{off}does not tolerate taint example.com/gpu=yes:NoSchedule; nor on those of 1 more type"),
        ),
        (&no_taint, affinity("In", json!(["ml", "web"])), String::new()),
        (
            &no_taint,
            affinity("In", json!(["web"])),
            format!("{off}selects team In [web], and the machines have In [ml]; nor on those of 1 more type"),
        ),
        (
            &no_taint,
            json!({"nodeSelector": {"example.com/has-gpu": "true"}}),
            format!(
                "{off}selects example.com/has-gpu In [true], a label that the machines do not have; nor on those of 1 more \
                 type"
            ),
        ),
        // The other architecture has its driver.
        (
            &no_taint,
            json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}),
            format!("{off}selects kubernetes.io/arch In [arm64], and the machines have In [amd64]"),
        ),
        (
            &no_taint,
            json!({"nodeSelector": {"kubernetes.io/hostname": "worker-1"}}),
            format!("{off}selects nodes by their names; nor on those of 1 more type"),
        ),
        // One zone is enough.
        (&no_taint, json!({"nodeSelector": {"topology.kubernetes.io/zone": "test-zone-a"}}), String::new()),
    ];
    for (taints, pod_spec, expected) in cases {
        let named = overlay(&json!({"namespace": "gpu", "name": "driver"}));
        let objects = [named, node_pool(taints, &["amd64", "arm64"]), daemon_set("driver", &pod_spec)];
        let expected: Vec<String> = if expected.is_empty() { Vec::new() } else { vec![format!("{FIELD}{expected}")] };
        assert_eq!(told(&objects), expected, "{pod_spec}");
    }
}

#[test]
fn machines_that_the_node_pool_does_not_launch_have_no_part() {
    let of_arm = daemon_set("driver", &json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}));
    let named = overlay(&json!({"name": "driver"}));
    assert_eq!(told(&[named, node_pool(&json!([]), &["arm64"]), of_arm]), Vec::<String>::new());
}

#[test]
fn several_daemon_sets_can_serve_a_driver_together() {
    let of = |arch: &str| {
        let mut set = daemon_set(arch, &json!({"nodeSelector": {"kubernetes.io/arch": arch}}));
        set["spec"]["template"]["metadata"]["labels"]["app"] = json!("driver");
        set
    };
    let named = overlay(&json!({"matchLabels": {"app": "driver"}}));
    let pool = node_pool(&json!([]), &["amd64", "arm64"]);
    assert_eq!(told(&[named.clone(), pool.clone(), of("amd64"), of("arm64")]), Vec::<String>::new());
    let expected = format!(
        "{FIELD}no pod of daemonset/gpu/amd64 can run on machines of instance type m-8x-arm64-linux of nodepool/p: it \
         selects kubernetes.io/arch In [amd64], and the machines have In [arm64]"
    );
    assert_eq!(told(&[named, pool, of("amd64")]), [expected]);
}

#[test]
fn a_daemon_set_that_is_not_there_is_told_by_what_the_overlay_names() {
    let pool = node_pool(&json!([]), &["amd64"]);
    let other = daemon_set("other", &json!({}));
    let cases = [
        (json!({"namespace": "gpu", "name": "driver"}), "there is no daemonset/gpu/driver"),
        (json!({"name": "driver"}), "there is no DaemonSet driver in any namespace"),
        (json!({"namespace": "elsewhere", "name": "other"}), "there is no daemonset/elsewhere/other"),
        (json!({"matchLabels": {"app": "driver", "a": ""}}), "there is no DaemonSet whose pods have a=,app=driver"),
        (
            json!({"namespace": "elsewhere", "matchLabels": {"app": "other"}}),
            "there is no DaemonSet whose pods have app=other in namespace elsewhere",
        ),
    ];
    for (named, expected) in cases {
        let objects = [overlay(&named), pool.clone(), other.clone()];
        assert_eq!(told(&objects), [format!("{FIELD}{expected}")]);
        assert_eq!(told(&objects[..2]), Vec::<String>::new(), "manifests without any DaemonSet are not the cluster");
    }
}
