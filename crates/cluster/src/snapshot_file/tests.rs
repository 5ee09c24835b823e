use std::sync::Arc;

use expect_test::expect;
use scheduling::Plan;
use serde_json::Value;

use super::*;
use crate::offline::{self, Offline, Settings};
use decode::manifests::Manifest;

/// What a cluster's API server might answer, secrets included.
const CLUSTER: &str = r"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general, managedFields: [{manager: m}]}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: team, operator: In, values: [red, blue]}]
status: {conditions: [{type: Ready, status: 'True', reason: Ready, message: '', lastTransitionTime: '2026-11-21T09:00:00Z'}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b, topology.kubernetes.io/zone: test-zone-a}}
spec: {providerID: 'kwok://node-b'}
status: {allocatable: {cpu: 2, memory: 4Gi, pods: 10}, conditions: [{type: Ready, status: 'True'}], images: [{names: [secret-image]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: shop, uid: uid-runs, labels: {app: till}}
spec: {nodeName: node-b, containers: [{name: c, image: secret-image, env: [{name: PASSWORD, value: secret-password}], resources: {requests: {cpu: 1500m}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: shop, uid: uid-waits, annotations: {kubectl.kubernetes.io/last-applied-configuration: secret-password}}
spec:
  nodeSelector: {team: red}
  containers: [{name: c, args: [secret-argument], command: [secret-command], resources: {requests: {cpu: 1, memory: 1Gi}}}]
  volumes: [{name: v, secret: {secretName: secret-name}}, {name: h, hostPath: {path: /secret-path}}]
  futureField: {secret: secret-password}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: long}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits-too, namespace: shop, uid: uid-waits-too}
spec: {nodeSelector: {team: red}, containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
---
apiVersion: v1
kind: Pod
metadata: {name: fits, namespace: audit, uid: uid-fits}
spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
";

fn instance_types() -> Vec<Arc<InstanceType>> {
    cloudprovider_kwok::catalogue::default_instance_types().into_iter().map(Arc::new).collect()
}

/// What a snapshot keeps of these objects.
fn pruned(text: &str) -> Vec<Value> {
    let parsed = decode::manifests::parse("cluster", text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let kept = parsed.manifests.iter().map(|manifest| {
        let kind = KINDS.iter().find(|kind| kind.kind == manifest.kind).unwrap();
        prune(&manifest.object, kind)
    });
    kept.collect()
}

/// The lines that a snapshot of the cluster has.
fn lines() -> Vec<Value> {
    let header = Header {
        schema_version: SCHEMA_VERSION,
        time: Timestamp::parse("2026-11-21T09:30:00Z").unwrap(),
        dovetail_version: "0".to_owned(),
        server_version: "v1.36.3".to_owned(),
        seed: 0,
        options: HeaderOptions { search_steps: 7777, ..HeaderOptions::default() },
        feature_gates: BTreeMap::new(),
        kubernetes_feature_gates: BTreeMap::from([
            ("DRADeviceTaints".to_owned(), false),
            ("DRAListTypeAttributes".to_owned(), true),
            ("OfALaterProgram".to_owned(), true),
        ]),
        scheduler_config: SchedulerConfig::default(),
        names_hidden: false,
    };
    let mut lines = vec![header.to_line()];
    lines.extend(pruned(CLUSTER));
    let mut types = instance_types();
    // Out of stock, which the file must say.
    for offering in &mut Arc::make_mut(&mut types[0]).offerings {
        offering.available = false;
    }
    lines.extend(instance_type_lines([("general", types.as_slice())]));
    lines
}

fn read(lines: &[Value]) -> Offline {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let parsed = decode::manifests::parse("snapshot", &text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    read_manifests(parsed.manifests)
}

fn read_manifests(manifests: Vec<Manifest>) -> Offline {
    let labels = Default::default();
    let settings = Settings::new(&[], &labels, &[]);
    let offline = offline::read(manifests, Vec::new(), &settings);
    assert!(offline.problems.is_empty(), "{:?}", offline.problems);
    offline
}

/// Which pods go where, by name, and what it costs.
fn plan(offline: &Offline) -> String {
    let (snapshot, errors) = crate::snapshot(offline.cluster.clone(), offline.interner.clone(), &Default::default());
    assert!(errors.is_empty(), "{errors:?}");
    let plan: Plan = scheduling::provisioning::plan(&snapshot);
    let pods = |pods: &[scheduling::snapshot::PodId]| {
        pods.iter().map(|&pod| snapshot.pods[pod].pod.name.to_string()).collect::<Vec<_>>().join(" ")
    };
    let mut text = String::new();
    for machine in plan.machines.iter() {
        let pool = &snapshot.node_pools[machine.node_pool];
        let name = &pool.catalogue.types[machine.launch.instance_type].name;
        text += &format!("{} {name} {}: {}\n", pool.name, machine.launch.price, pods(&machine.pods));
    }
    for placement in &plan.existing {
        text += &format!("{}: {}\n", snapshot.nodes[placement.node].display_name(), pods(&placement.pods));
    }
    for refusal in &plan.refusals {
        let reasons: Vec<_> = refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
        text += &format!("{}: {}\n", snapshot.pods[refusal.pod].pod.name, reasons.join("; "));
    }
    text
}

#[test]
fn a_snapshot_gives_the_plan_of_the_objects_it_was_made_of() {
    let whole: Vec<Value> =
        decode::manifests::parse("cluster", CLUSTER).manifests.into_iter().map(|it| it.object).collect();
    let lines = lines();
    // The same objects unpruned, between the same header and instance types.
    let (pruned, types) = lines.split_at(1 + whole.len());
    let unpruned: Vec<_> = pruned[..1].iter().chain(&whole).chain(types).cloned().collect();
    let of_file = plan(&read(&lines));
    assert_eq!(of_file, plan(&read(&unpruned)));
    expect![[r#"
        general c-2x-amd64-linux $0.038006477/h: shop/waits-too
        node-b: audit/fits
        shop/waits: spec.futureField is not planned for yet
    "#]]
    .assert_eq(&of_file);
}

#[test]
fn header_time_and_options_come_back() {
    let offline = read(&lines());
    let header = offline.header.unwrap();
    assert_eq!((header.server_version.as_str(), header.seed), ("v1.36.3", 0));
    assert_eq!(offline.cluster.now.to_string(), "2026-11-21T09:30:00Z");
    assert_eq!(offline.cluster.options.search_steps, 7777);
}

#[test]
fn offerings_that_have_run_out_are_in_the_file() {
    let offline = read(&lines());
    let catalogue = &offline.cluster.node_pools[0].catalogue;
    assert_eq!(catalogue.types.len(), 144);
    assert_eq!(catalogue.offerings.iter().filter(|offering| !offering.available).count(), 8);
}

#[test]
fn types_that_pools_share_are_written_once() {
    let types = instance_types();
    let one: Vec<_> = instance_type_lines([("a", &types[..2]), ("b", &types[1..3])]).collect();
    assert_eq!(one.len(), 3);
    assert_eq!(one[1]["nodePools"], serde_json::json!(["a", "b"]));
}

#[test]
fn what_containers_are_told_is_never_written() {
    let text: String = lines().iter().map(ToString::to_string).collect();
    assert!(!text.contains("secret-"), "{text}");
    assert!(!text.contains("managedFields"));
}

#[test]
fn hidden_names_change_nothing_but_the_names() {
    let open = plan(&read(&lines()));
    let mut hidden = lines();
    let of_provider = instance_types().iter().flat_map(|it| it.requirements.keys().cloned()).collect();
    hide_names(&mut hidden, &of_provider);
    let text: String = hidden.iter().map(ToString::to_string).collect();
    for name in ["shop", "waits", "audit", "node-b", "till", "general", "\"red\""] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    for word in ["test-zone-a", "amd64", "c-2x-amd64-linux", "KWOKNodeClass"] {
        assert!(text.contains(word), "{word} is not in the file");
    }
    let hidden = plan(&read(&hidden));
    let without_names = |plan: &str| -> Vec<usize> { plan.lines().map(|line| line.split(' ').count()).collect() };
    assert_eq!(without_names(&open), without_names(&hidden));
    assert!(hidden.contains("c-2x-amd64-linux $0.038006477/h"));
}

#[test]
fn devices_are_planned_with_the_gates_that_the_file_tells() {
    let compat = read(&lines()).cluster.devices.compat;
    let defaults = Gates::defaults(KubernetesMinor::V1_36);
    let told = defaults.with(Gate::DeviceTaints, false).with(Gate::ListTypeAttributes, true);
    assert_eq!(compat, Compat::with_gates(KubernetesMinor::V1_36, told));

    let mut old = lines();
    old[0].as_object_mut().unwrap().remove("kubernetesFeatureGates");
    assert_eq!(read(&old).cluster.devices.compat, Compat::new(KubernetesMinor::V1_36));

    let by_name = Header::gates_by_name(&compat);
    assert_eq!(by_name.get("DRADeviceTaints"), Some(&false));
    assert_eq!(by_name.get("DRAListTypeAttributes"), Some(&true));
    assert_eq!(by_name.get("DRADerivedAttributes"), None, "1.36 does not know it");
}

#[test]
fn a_format_that_is_not_known_is_refused_by_its_version() {
    let mut lines = lines();
    lines[0]["schemaVersion"] = 99.into();
    let text: String = lines[..1].iter().map(ToString::to_string).collect();
    let parsed = decode::manifests::parse("snapshot", &text);
    let labels = Default::default();
    let settings = Settings::new(&[], &labels, &[]);
    let offline = offline::read(parsed.manifests, parsed.errors, &settings);
    let problems: Vec<_> = offline.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "snapshot, document 1: SnapshotHeader without a name: schemaVersion: version 99 of the format is not known, only 1"
        ]
    );
}

/// A pod with two claims, one of them shared with a pod that runs, and what its node publishes.
const DEVICES: &str = r#"
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: fast-gpu}, spec: {config: [{opaque: {driver: d.example.com, parameters: {key: secret-parameter}}}], selectors: [{cel: {expression: 'device.driver == "d.example.com"'}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: slice-of-b}
spec:
  driver: d.example.com
  nodeName: node-b
  pool: {name: pool-of-b, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-one, attributes: {model: {string: x}}}, {name: gpu-two, attributes: {model: {string: x}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: own-one, namespace: shop}
spec:
  spec:
    devices:
      requests: [{name: first, firstAvailable: [{name: sub, deviceClassName: fast-gpu}]}]
      constraints: [{requests: [first], matchAttribute: d.example.com/model}]
      config: [{requests: [first], opaque: {driver: d.example.com, parameters: {key: secret-parameter}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: made-of-it
  namespace: shop
  uid: uid-made
  annotations: {resource.kubernetes.io/pod-claim-name: own}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: claims, uid: uid-claims, controller: true}]
spec:
  devices:
    requests: [{name: first, firstAvailable: [{name: sub, deviceClassName: fast-gpu}]}]
    constraints: [{requests: [first], matchAttribute: d.example.com/model}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared-one, namespace: shop, uid: uid-shared}
spec: {devices: {requests: [{name: first, exactly: {deviceClassName: fast-gpu}}]}}
status:
  reservedFor: [{resource: pods, name: runs, uid: uid-runs}]
  allocation:
    devices: {results: [{request: first, driver: d.example.com, pool: pool-of-b, device: gpu-two}]}
    nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [node-b]}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: claims, namespace: shop, uid: uid-claims}
spec:
  containers: [{name: c, resources: {requests: {cpu: 100m}, claims: [{name: own}, {name: shared}]}}]
  resourceClaims: [{name: own, resourceClaimTemplateName: own-one}, {name: shared, resourceClaimName: shared-one}]
status:
  conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]
  resourceClaimStatuses: [{name: own, resourceClaimName: made-of-it}]
"#;

#[test]
fn claims_are_planned_from_a_file_and_under_hidden_names_as_in_the_cluster() {
    let mut all = lines();
    all.extend(pruned(DEVICES));
    let text: String = all.iter().map(ToString::to_string).collect();
    assert!(!text.contains("secret-"), "{text}");
    let open = plan(&read(&all));
    assert!(open.contains("node-b: shop/claims\n"), "{open}");
    hide_names(&mut all, &BTreeSet::new());
    let text: String = all.iter().map(ToString::to_string).collect();
    for name in ["shop", "fast-gpu", "own-one", "made-of-it", "shared-one", "gpu-two", "pool-of-b", "slice-of-b"] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let hidden = plan(&read(&all));
    let without_names = |plan: &str| -> Vec<usize> { plan.lines().map(|line| line.split(' ').count()).collect() };
    assert_eq!(without_names(&hidden), without_names(&open), "{hidden}");
}

/// What the kubelet was told that devices cost of the node, in the words of each release.
const DEVICE_COSTS: [&str; 3] = [
    "nodeAllocatableResourceClaimStatuses: [{resourceClaimName: made, resources: {cpu: 2}}]",
    "nodeAllocatableResourceClaimStatuses: [{resourceClaimName: made, containers: [main-one], \
     mapping: [{name: cpu, quantity: 1}], overhead: [{name: cpu, perContainer: 1}]}]",
    "additionalNodeAllocatableResources: [{resourceClaimName: made, containers: [main-one], \
     mapping: [{name: cpu, quantity: 1}], overhead: [{name: cpu, perContainer: 1}]}]",
];

#[test]
fn what_devices_cost_of_the_node_comes_back_from_a_file_and_under_hidden_names() {
    for costs in DEVICE_COSTS {
        let mut kept = pruned(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: shop, uid: u}}, spec: {{nodeName: node-b, \
             containers: [{{name: main-one}}], resourceClaims: [{{name: d, resourceClaimName: made}}]}}, status: {{{costs}}}}}"
        ));
        let of_file = |kept: &[Value]| dra_types::Pod::from_json(&kept[0]).unwrap().device_costs;
        let expected = BTreeMap::from([(Arc::from("cpu"), 2_000_000_000)]);
        assert_eq!(of_file(&kept), expected, "{costs}");
        hide_names(&mut kept, &BTreeSet::new());
        assert_eq!(of_file(&kept), expected, "{costs}");
        assert!(!kept[0].to_string().contains("main-one"), "{}", kept[0]);
    }
}

#[test]
fn a_claim_made_for_extended_resources_still_says_so_in_a_file() {
    // The pod's status does not name the claim yet; without the annotation it would be the claim of nobody.
    let kept = pruned(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: shop, uid: uid-c, annotations: \
         {resource.kubernetes.io/extended-resource-claim: 'true', example.com/note: secret-note}, ownerReferences: \
         [{apiVersion: v1, kind: Pod, name: p, uid: u, controller: true}]}\nspec: {devices: {requests: \
         [{name: r, exactly: {deviceClassName: gpu}}]}}\n",
    );
    let mut all = lines();
    all.extend(kept);
    assert!(all.iter().all(|line| !line.to_string().contains("secret-note")));
    let cluster = read(&all).cluster;
    let claims = &cluster.devices.objects.claims;
    let served: Vec<_> =
        claims.values().filter_map(|claim| dra_sched::pods::served_extended_resources(claim)).collect();
    assert_eq!(served, [&model::Uid::from("u")]);
}

#[test]
fn the_stages_of_planned_pods_stay_and_their_uids_are_hidden_as_the_pods_are() {
    let of = |uid: &str| serde_json::json!({"kind": "Pod", "metadata": {"uid": uid}});
    let planned = serde_json::json!({"dovetail.sh/planned-pods": "uid-a,uid-b:2"});
    let mut all =
        [of("uid-a"), of("uid-b"), serde_json::json!({"kind": "NodeClaim", "metadata": {"annotations": planned}})];
    hide_names(&mut all, &BTreeSet::new());
    let uid = |index: usize| all[index]["metadata"]["uid"].as_str().unwrap_or_default();
    assert_eq!((uid(0), uid(1)), ("n0", "n1"));
    assert_eq!(all[2]["metadata"]["annotations"]["dovetail.sh/planned-pods"], "n0,n1:2");
}

#[test]
fn the_note_of_a_command_is_read_as_before_with_the_names_of_its_nodeclaims_hidden() {
    let note = |value: &str| {
        let annotations = serde_json::json!({"dovetail.sh/disruption-command": value});
        serde_json::json!({"kind": "NodeClaim", "metadata": {"name": "b-1", "annotations": annotations}})
    };
    let written = r#"{"id":"7f","reason":"Unhealthy","nodeClaims":["a-1","b-1"],"replacements":0,"deadline":"2026-11-25T21:10:00Z","drainBounds":{"b-1":"45s"}}"#;
    let mut all = [note(written), note("a-1 and b-1 go")];
    hide_names(&mut all, &BTreeSet::new());
    let value = |index: usize| all[index]["metadata"]["annotations"]["dovetail.sh/disruption-command"].as_str();
    let hidden = crate::node_claim::command::Note::decode(value(0).unwrap()).unwrap();
    assert_eq!(hidden.going, ["n0", "n1"].map(model::NodeClaimName::from).into());
    assert_eq!(hidden.drain_bounds, [("n1".into(), DurationMs::from_seconds(45))].into());
    assert_eq!(all[0]["metadata"]["name"], "n1");
    assert_eq!(value(1), Some(""), "what is no note may hold any name");
}

/// A Service and a ReplicaSet that select the pods that wait.
const SELECTORS: &str = r"
{apiVersion: v1, kind: Service, metadata: {name: checkout, namespace: shop}, spec: {selector: {app: basket}, clusterIP: 10.0.0.7, ports: [{port: 80}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: basket-7, namespace: shop}
spec: {selector: {matchLabels: {app: basket, pod-template-hash: ab7}}, template: {metadata: {labels: {app: basket}}, spec: {containers: [{name: c, image: secret-image}]}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: basket-7-x
  namespace: shop
  uid: uid-basket
  labels: {app: basket, pod-template-hash: ab7}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: basket-7, uid: uid-set, controller: true}]
spec: {nodeSelector: {team: red}, containers: [{name: c, resources: {requests: {cpu: 1}}}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
";

#[test]
fn what_selects_pods_still_does_under_hidden_names() {
    let mut all = lines();
    all[0]["schedulerConfig"] = serde_json::json!({"podTopologySpread": {"defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}});
    all.extend(pruned(SELECTORS));
    let text: String = all.iter().map(ToString::to_string).collect();
    assert!(!text.contains("10.0.0.7") && !text.contains("secret-"), "{text}");
    hide_names(&mut all, &BTreeSet::new());
    let text: String = all.iter().map(ToString::to_string).collect();
    for name in ["shop", "checkout", "basket", "ab7"] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let offline = read(&all);
    let (snapshot, _) = crate::snapshot(offline.cluster, offline.interner, &Default::default());
    let spread = snapshot.pods.iter().flat_map(|pending| {
        let selected = |spread: &model::pod::TopologySpreadConstraint| {
            assert!(spread.selector.matches(&pending.pod.labels, &snapshot.interner), "it selects its own pod");
            let model::LabelSelector::Matching(requirements) = &spread.selector else { panic!("no selector") };
            requirements.len()
        };
        pending.pod.shape.topology_spread.iter().map(selected).collect::<Vec<_>>()
    });
    assert_eq!(spread.collect::<Vec<_>>(), [2], "one pod is selected, by two labels");
}

/// A pod that wants to be where one of another namespace is, which it knows by that namespace's label.
const NAMESPACES: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}, spec: {finalizers: [kubernetes]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: vault, labels: {kubernetes.io/metadata.name: vault, tier: store}}}
---
apiVersion: v1
kind: Pod
metadata: {name: ledger, namespace: vault, uid: uid-ledger, labels: {app: ledger}}
spec: {nodeSelector: {team: red}, containers: [{name: c, resources: {requests: {cpu: 1}}}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
---
apiVersion: v1
kind: Pod
metadata: {name: till, namespace: shop, uid: uid-till, labels: {app: till}}
spec:
  nodeSelector: {team: red}
  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
    {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: ledger}}, namespaceSelector: {matchLabels: {tier: store}}}]}}
  containers: [{name: c, resources: {requests: {cpu: 1}}}]
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
";

#[test]
fn a_namespace_selector_means_the_same_namespaces_in_a_file_and_under_hidden_names() {
    let mut all = lines();
    all.extend(pruned(NAMESPACES));
    let open = plan(&read(&all));
    let together = |line: &str| line.contains("shop/till") && line.contains("vault/ledger");
    assert!(open.lines().any(together), "{open}");
    hide_names(&mut all, &BTreeSet::new());
    let text: String = all.iter().map(ToString::to_string).collect();
    for name in ["shop", "vault", "ledger", "store"] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let hidden = plan(&read(&all));
    let without_names = |plan: &str| -> Vec<usize> { plan.lines().map(|line| line.split(' ').count()).collect() };
    assert_eq!(without_names(&hidden), without_names(&open), "{hidden}");
}
