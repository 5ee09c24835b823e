//! What people see: who gets which devices, and why others get none.

use decode::manifests;
use dra_types::{Compat, Gate, Gates, KubernetesMinor};
use expect_test::{Expect, expect};

use super::objects::Objects;
use super::report::{Outcome, Report};
use super::table;
use crate::cli::input::Documents;

const CLUSTER: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {cpu: "8", memory: 16Gi}}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: "8", memory: 16Gi}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  extendedResourceName: example.com/gpu
  selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic}
spec: {selectors: [{cel: {expression: 'device.driver == "nic.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpu}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: gpu-0, attributes: {model: {string: a100}, "example.com/root": {string: r0}}}
  - {name: gpu-1, attributes: {model: {string: h100}, "example.com/root": {string: r1}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-nic}
spec:
  driver: nic.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: nic-0, attributes: {"example.com/root": {string: r2}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n2-gpu}
spec:
  driver: gpu.example.com
  nodeName: n2
  pool: {name: n2, generation: 1, resourceSliceCount: 2}
  devices:
  - {name: gpu-0, attributes: {model: {string: a100}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
"#;

/// A pod with a claim from a template.
fn pod(name: &str, template: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  {more}\n  resourceClaims: [{{name: dev, \
         resourceClaimTemplateName: {template}}}]\n  containers: [{{name: main, resources: {{claims: [{{name: dev}}]}}}}]\n"
    )
}

fn template(name: &str, devices: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {name}, namespace: default}}\n\
         spec: {{spec: {{devices: {devices}}}}}\n"
    )
}

struct Options<'a> {
    node: Option<&'a str>,
    each_alone: bool,
    compat: Compat,
}

fn options() -> Options<'static> {
    Options { node: None, each_alone: false, compat: Compat::new(KubernetesMinor::V1_37) }
}

fn objects(text: &str, options: &Options<'_>) -> Objects {
    let parsed = manifests::parse("test", text);
    let documents = Documents { manifests: parsed.manifests, errors: parsed.errors };
    let mut objects = Objects::read(documents, true, &options.compat);
    objects.keep_node(options.node).unwrap();
    objects
}

fn report(more: &str, options: &Options<'_>) -> Report {
    let objects = objects(&format!("{CLUSTER}{more}"), options);
    assert_eq!(objects.problems, Vec::<String>::new());
    Report::new(&objects, &options.compat, options.each_alone, 100_000)
}

fn check(more: &str, options: &Options<'_>, expected: &Expect) {
    expected.assert_eq(&table::render(&report(more, options)));
}

#[test]
fn pods_are_served_by_priority_and_then_as_written_each_with_what_is_left() {
    let pods = [pod("a", "one", ""), pod("b", "one", ""), pod("c", "one", "priority: 10")].concat();
    check(
        &pods,
        &options(),
        &expect![[r#"
            Devices
              POD         NODE   CLAIM   REQUEST   DEVICES
              default/c   n1     dev     gpu       gpu.example.com/n1/gpu-0
              default/a   n1     dev     gpu       gpu.example.com/n1/gpu-1

            No devices
              default/b
                n1: too few devices
                  claim made from default/one, request gpu: 1 wanted, 0 of 3 devices usable
                    2 are allocated
                      gpu-0 by pod default/c (claim dev)
                      gpu-1 by pod default/a (claim dev)
                    1 does not match selector #0 of the class: device.driver == "gpu.example.com"
                      driver is "nic.example.com"
                  would fit if 1 device for request gpu is given back
                n2: too few devices
                  claim made from default/one, request gpu: 1 wanted, 0 of 0 devices usable
                  pool gpu.example.com/n2 is incomplete: 1 of 2 slices of generation 1
                  would fit if the driver publishes the missing slices of pool gpu.example.com/n2

            3 pods: 2 with their devices, 1 without
        "#]],
    );
}

#[test]
fn a_refusal_names_the_pods_own_claim_where_others_want_the_same() {
    let same = template("same", "{requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}");
    let pods = [pod("a", "one", ""), pod("b", "one", ""), pod("c", "same", "")].concat() + &same;
    let report = report(&pods, &options());
    let Outcome::Refused { nodes } = &report.pods[2].outcome else { panic!("{:?}", report.pods[2]) };
    assert_eq!(nodes[0].why.requests[0].claim, "made from default/same");
    assert!(
        nodes[0].why.message.starts_with("claim made from default/same, request gpu: "),
        "{}",
        nodes[0].why.message
    );
}

#[test]
fn each_alone_sees_all_devices() {
    let pods = [pod("a", "one", ""), pod("b", "one", ""), pod("c", "one", "")].concat();
    let report = report(&pods, &Options { each_alone: true, ..options() });
    assert!(report.all_allocated());
    for pod in &report.pods {
        let Outcome::Allocated { claims, .. } = &pod.outcome else { panic!("{pod:?}") };
        assert_eq!(claims[0].devices[0].device, "gpu-0");
    }
}

#[test]
fn a_selector_shows_what_it_met_and_a_constraint_the_values_in_play() {
    let selector = template(
        "picky",
        r#"{requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2, selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "h100"'}}]}}]}"#,
    );
    let aligned = template(
        "aligned",
        "{requests: [{name: gpu, exactly: {deviceClassName: gpu}}, {name: nic, exactly: {deviceClassName: nic}}], \
         constraints: [{matchAttribute: example.com/root}]}",
    );
    let pods = [selector, aligned, pod("picky", "picky", ""), pod("aligned", "aligned", "")].concat();
    check(
        &pods,
        &Options { node: Some("n1"), ..options() },
        &expect![[r#"
            No devices
              default/picky
                n1: too few devices
                  claim made from default/picky, request gpu: 2 wanted, 1 of 3 devices usable
                    1 does not match selector #0 of the class: device.driver == "gpu.example.com"
                      driver is "nic.example.com"
                    1 does not match selector #0: device.attributes["gpu.example.com"].model == "h100"
                      model is "a100"
                  would fit if request gpu wants 1 or fewer
                            or request gpu does without its selector device.attributes["gpu.example.com"].model == "h100"
              default/aligned
                n1: no value is shared by as many devices as wanted
                  claim made from default/aligned, request gpu: 1 wanted, 2 of 3 devices usable
                    1 does not match selector #0 of the class: device.driver == "gpu.example.com"
                      driver is "nic.example.com"
                  claim made from default/aligned, request nic: 1 wanted, 1 of 3 devices usable
                    2 do not match selector #0 of the class: device.driver == "nic.example.com"
                      driver is "gpu.example.com"
                  matchAttribute example.com/root, request gpu: "r0" on 1 device, "r1" on 1 device
                  matchAttribute example.com/root, request nic: "r2" on 1 device
                  would fit if devices shared example.com/root, but gpu has "r0", "r1"; nic has "r2"

            2 pods: 2 without
        "#]],
    );
}

#[test]
fn taints_and_missing_objects_are_named() {
    let rule = "---\napiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: bad}\nspec:\n  \
                deviceSelector: {driver: gpu.example.com, pool: n1}\n  taint: {key: broken, value: \"yes\", effect: NoSchedule}\n";
    let pods = [rule.to_owned(), pod("a", "one", ""), pod("lost", "absent", "")].concat();
    check(
        &pods,
        &Options { node: Some("n1"), ..options() },
        &expect![[r#"
            No devices
              default/a
                n1: too few devices
                  claim made from default/one, request gpu: 1 wanted, 0 of 3 devices usable
                    2 have taint broken=yes:NoSchedule
                    1 does not match selector #0 of the class: device.driver == "gpu.example.com"
                      driver is "nic.example.com"
                  would fit if request gpu tolerates broken=yes:NoSchedule
              default/lost
                resource claim template default/absent does not exist

            2 pods: 2 without
        "#]],
    );
}

#[test]
fn pods_that_lose_their_device_are_served_again() {
    let rule = "---\napiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: bad}\nspec:\n  \
                deviceSelector: {driver: gpu.example.com, pool: n1, device: gpu-0}\n  taint: {key: broken, effect: NoExecute}\n";
    let claim = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: runs-dev, namespace: default, \
                 ownerReferences: [{apiVersion: v1, kind: Pod, name: runs, uid: u, controller: true}]}\nspec: {devices: \
                 {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}\nstatus:\n  reservedFor: [{resource: pods, name: \
                 runs, uid: u}]\n  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: n1, device: \
                 gpu-0}]}}\n";
    let runs = pod("runs", "one", "nodeName: n1");
    check(
        &[rule, claim, &runs].concat(),
        &options(),
        &expect![[r#"
        Devices
          POD                      NODE   CLAIM   REQUEST   DEVICES
          default/runs (evicted)   n1     dev     gpu       gpu.example.com/n1/gpu-1

        1 pod: 1 with their devices
    "#]],
    );
}

#[test]
fn extended_resources_are_a_claim_where_no_device_plugin_has_them() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: plain}\nspec:\n  containers: [{name: main, resources: {limits: \
               {example.com/gpu: 2}}}]\n";
    check(
        pod,
        &options(),
        &expect![[r#"
        Devices
          POD             NODE   CLAIM                  REQUEST                 DEVICES
          default/plain   n1     <extended-resources>   container-0-request-0   gpu.example.com/n1/gpu-0, gpu-1

        1 pod: 1 with their devices
    "#]],
    );
}

#[test]
fn a_claim_has_256_consumers_and_pods_that_get_it_here_count() {
    let consumers: Vec<String> =
        (0..255).map(|index| format!("{{resource: pods, name: o{index}, uid: u{index}}}")).collect();
    let claim = format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: shared, namespace: default}}\nspec: \
         {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu}}}}]}}}}\nstatus:\n  reservedFor: [{}]\n  \
         allocation: {{devices: {{results: [{{request: gpu, driver: gpu.example.com, pool: n1, device: gpu-0}}]}}}}\n",
        consumers.join(", ")
    );
    let sharing = |name: &str, selector: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  {selector}\n  resourceClaims: [{{name: \
             dev, resourceClaimName: shared}}]\n  containers: [{{name: main, resources: {{claims: [{{name: dev}}]}}}}]\n"
        )
    };
    let report = report(&[claim, sharing("a", ""), sharing("b", "")].concat(), &options());
    let [first, second] = &*report.pods else { panic!("{report:?}") };
    assert!(matches!(first.outcome, Outcome::Allocated { .. }), "{first:?}");
    let Outcome::Refused { nodes } = &second.outcome else { panic!("{second:?}") };
    for node in nodes {
        assert_eq!(node.why.code, "TooManyConsumers");
        assert!(node.why.message.starts_with("claim default/shared has 256 consumers"), "{node:?}");
    }
    assert!(!nodes.is_empty());
}

#[test]
fn a_claim_that_nobody_uses_is_allocated_anew_where_its_node_takes_no_pod() {
    let of = |node: &str, consumers: &str| {
        let here = format!("{{matchFields: [{{key: metadata.name, operator: In, values: [{node}]}}]}}");
        let result = format!("{{request: gpu, driver: gpu.example.com, pool: {node}, device: gpu-1}}");
        let claim = format!(
            "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: held, namespace: default}}\n\
             spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu}}}}]}}}}\n\
             status: {{reservedFor: [{consumers}], allocation: {{devices: {{results: [{result}]}}, \
             nodeSelector: {{nodeSelectorTerms: [{here}]}}}}}}\n"
        );
        let pod = pod("a", "held", "").replace("resourceClaimTemplateName", "resourceClaimName");
        let report = report(&format!("{claim}{pod}"), &options());
        match &report.pods[0].outcome {
            Outcome::Allocated { node, claims, .. } => format!("{node}/{}", claims[0].devices[0].device),
            _ => "nothing".to_owned(),
        }
    };
    let consumer = |name: &str| format!("{{resource: pods, name: {name}, uid: u}}");
    assert_eq!(of("gone", ""), "n1/gpu-0");
    assert_eq!(of("gone", &consumer("a")), "n1/gpu-0");
    assert_eq!(of("gone", &consumer("b")), "nothing");
    assert_eq!(of("gone", &[consumer("a"), consumer("b")].join(", ")), "nothing");
    assert_eq!(of("n1", ""), "n1/gpu-1");
}

#[test]
fn pods_of_a_group_share_its_claim() {
    let group = "---\napiVersion: scheduling.k8s.io/v1alpha2\nkind: PodGroup\nmetadata: {name: g, namespace: default}\nspec: \
                 {resourceClaims: [{name: dev, resourceClaimTemplateName: one}]}\n";
    let in_group = "schedulingGroup: {podGroupName: g}";
    let pods = [group.to_owned(), pod("a", "one", in_group), pod("b", "one", in_group)].concat();
    let all =
        Options { compat: Compat::with_gates(KubernetesMinor::V1_37, Gates::all(KubernetesMinor::V1_37)), ..options() };
    check(
        &pods,
        &all,
        &expect![[r#"
        Devices
          POD         NODE   CLAIM            REQUEST   DEVICES
          default/a   n1     g-dev            gpu       gpu.example.com/n1/gpu-0
          default/b   n1     g-dev (shared)   gpu       gpu.example.com/n1/gpu-0

        2 pods: 2 with their devices
    "#]],
    );
}

#[test]
fn what_devices_cost_of_the_node_is_told_and_refused_where_it_is_too_much() {
    let slice = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: cpus}\nspec:\n  driver: \
                 cpu.example.com\n  nodeName: n1\n  pool: {name: cpus, generation: 1, resourceSliceCount: 1}\n  devices: [{name: \
                 core-0, nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: \"5\"}}}}, {name: core-1, \
                 nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: \"5\"}}}}]\n---\napiVersion: \
                 resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: cpu}\nspec: {selectors: [{cel: {expression: \
                 'device.driver == \"cpu.example.com\"'}}]}\n";
    let cores = template("cores", "{requests: [{name: cpu, exactly: {deviceClassName: cpu}}]}");
    let pods = [slice.to_owned(), cores, pod("a", "cores", ""), pod("b", "cores", "")].concat();
    let gates = Gates::defaults(KubernetesMinor::V1_37).with(Gate::NodeAllocatableResources, true);
    let on = Compat::with_gates(KubernetesMinor::V1_37, gates);
    check(
        &pods,
        &Options { node: Some("n1"), compat: on, ..options() },
        &expect![[r#"
            Devices
              POD         NODE   CLAIM   REQUEST   DEVICES
              default/a   n1     dev     cpu       cpu.example.com/cpus/core-0
                                                   cost the node 5 cpu (5 for dev, 1 device)

            No devices
              default/b
                n1: with what the devices cost the pod takes 5 cpu, and 3 are free

            2 pods: 1 with their devices, 1 without
        "#]],
    );
}

#[test]
fn bad_objects_are_problems_and_stop_no_other() {
    let bad = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: bad}\nspec: {driver: d, nodeName: n1, \
               pool: {name: p, generation: 1, resourceSliceCount: 0}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: \
               {resourceClaims: [{name: r}]}\n";
    let objects = objects(&format!("{CLUSTER}{bad}{}", pod("a", "one", "")), &options());
    assert_eq!(objects.problems.len(), 2, "{:?}", objects.problems);
    assert!(objects.problems[0].contains("ResourceSlice bad: spec.pool.resourceSliceCount"), "{:?}", objects.problems);
    assert!(objects.problems[1].contains("Pod default/x: spec.resourceClaims[0]"), "{:?}", objects.problems);
    assert!(Report::new(&objects, &options().compat, false, 1000).all_allocated());
}

#[test]
fn a_node_that_nothing_speaks_of_is_a_fault() {
    let parsed = manifests::parse("test", CLUSTER);
    let documents = Documents { manifests: parsed.manifests, errors: parsed.errors };
    let mut objects = Objects::read(documents, false, &options().compat);
    let error = objects.keep_node(Some("n3")).unwrap_err();
    assert_eq!(error.to_string(), "there is no Node n3 in the input, and no ResourceSlice of one");
}

#[test]
fn out_of_steps_is_undecided() {
    let objects = objects(&format!("{CLUSTER}{}", pod("a", "one", "")), &Options { node: Some("n1"), ..options() });
    let report = Report::new(&objects, &options().compat, false, 0);
    assert!(matches!(report.pods[0].outcome, Outcome::Undecided { .. }), "{report:?}");
}

#[test]
fn the_json_form_is_an_interface() {
    let value = serde_json::to_value(report(&pod("a", "one", ""), &options())).unwrap();
    assert_eq!(value["schemaVersion"], 1);
    assert_eq!(value["kubernetes"], "1.37");
    let answer = &value["pods"][0];
    assert_eq!((answer["outcome"].as_str(), answer["node"].as_str()), (Some("Allocated"), Some("n1")));
    let device = &answer["claims"][0]["devices"][0];
    assert_eq!(device["device"], "gpu-0");
    let many = template("many", "{requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 3}}]}");
    let value = serde_json::to_value(report(&format!("{many}{}", pod("b", "many", "")), &options())).unwrap();
    let node = &value["pods"][0]["nodes"][0];
    assert_eq!((node["code"].as_str(), node["requests"][0]["usable"].as_u64()), (Some("TooFewDevices"), Some(2)));
}
