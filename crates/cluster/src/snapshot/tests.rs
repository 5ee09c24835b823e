use std::fmt::Write as _;

use dra_types::{Compat, KubernetesMinor};
use expect_test::{Expect, expect};
use model::ResourceId;
use scheduling::snapshot::NodeLabels;
use serde_json::{Value, json};

use super::*;

/// A pod that runs on a node.
pub(super) fn bound_pod(name: &str, node: &str) -> Arc<Pod> {
    let object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"nodeName": node, "containers": []},
    });
    Arc::new(decode::pod(&object, &mut Context::new(&mut Interner::new())).unwrap())
}

/// The cluster that a YAML stream describes.
pub(super) fn cluster(yaml: &str) -> (Cluster, Arc<Interner>) {
    let mut interner = Interner::new();
    let mut cluster = Cluster::default();
    let parsed = decode::manifests::parse("fixture", yaml);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    for manifest in parsed.manifests {
        let context = &mut Context::new(&mut interner);
        let object = &manifest.object;
        match manifest.kind.as_str() {
            "Pod" => cluster.pods.push(Arc::new(decode::pod(object, context).unwrap())),
            "Node" => cluster.nodes.push(Arc::new(decode::node(object, context).unwrap())),
            "DaemonSet" => {
                let set = decode::daemon_set(object, context).unwrap();
                let resources = TemplateResources::of_daemon_set(object).unwrap();
                cluster.template_resources.insert(set.uid.clone(), Arc::new(resources));
                cluster.daemon_sets.push(Arc::new(set));
            }
            "LimitRange" => cluster.limit_ranges.push(Arc::new(decode::limit_range(object).unwrap())),
            "NodeClaim" => cluster.node_claims.push(Arc::new(decode::node_claim_object(object).unwrap())),
            "PodDisruptionBudget" => {
                cluster.pod_disruption_budgets.push(Arc::new(decode::pod_disruption_budget(object, context).unwrap()))
            }
            "NodePool" => cluster.node_pools.push(LaunchableNodePool {
                object: Arc::new(decode::node_pool_object(object).unwrap()),
                usable: Ok(()),
                catalogue: Arc::default(),
            }),
            other => panic!("no fixture for {other}"),
        }
    }
    (cluster, Arc::new(interner))
}

/// Nodes, what is left of limits, and pending pods, a line each.
#[track_caller]
fn check(yaml: &str, expected: Expect) {
    let (cluster, interner) = cluster(yaml);
    let (snapshot, errors) = snapshot(cluster, interner, &ProviderLabels::default());
    let names = &*snapshot.interner;
    let mut text = String::new();
    for node in snapshot.nodes.iter() {
        let labels = match &node.labels {
            NodeLabels::Known(labels) => format!("has {}", labels.display(names)),
            NodeLabels::Promised(requirements) => format!("will have {}", requirements.display(names)),
        };
        let taints: Vec<_> = node.taints.iter().map(|taint| taint.display(names).to_string()).collect();
        let pods: Vec<_> = node.pods.iter().map(|pod| pod.name.to_string()).collect();
        let _ = writeln!(text, "{} {:?} {:?}", node.display_name(), node.state, node.excluded);
        let _ = writeln!(text, "  {labels}");
        let _ = writeln!(text, "  taints [{}] pods [{}]", taints.join(" "), pods.join(" "));
        let _ = writeln!(text, "  allocatable {}", node.allocatable.display(names));
    }
    for pool in snapshot.node_pools.iter() {
        let _ = writeln!(text, "pool {} weight {} {:?}", pool.name, pool.weight, pool.usable);
        let _ = writeln!(text, "  {}", pool.requirements.display(names));
        for limit in &pool.remaining {
            let _ = writeln!(text, "  limit {} of {} left", limit.remaining, limit.total);
        }
    }
    let mut pending: Vec<_> = snapshot.pods.iter().map(|pending| pending.pod.name.to_string()).collect();
    pending.sort();
    let _ = writeln!(text, "pending {}", pending.join(" "));
    for error in errors {
        let _ = writeln!(text, "{error}");
    }
    expected.assert_eq(&text);
}

const POOL: &str = r"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec:
  weight: 7
  limits: {cpu: 10, nodes: 5}
  template:
    metadata: {labels: {team: a}}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: c}
      requirements: [{key: beta.kubernetes.io/arch, operator: In, values: [amd64]}]
";

#[test]
fn a_pool_folds_its_labels_into_requirements() {
    check(
        POOL,
        expect![[r#"
        pool p weight 7 Ok(())
          karpenter.kwok.sh/kwoknodeclass In [c], karpenter.sh/initialized In [true], karpenter.sh/nodepool In [p], karpenter.sh/registered In [true], kubernetes.io/arch In [amd64], team In [a]
          limit 10000 of 10000 left
          limit 5 of 5 left
        pending 
    "#]],
    );
}

/// A NodeClaim of pool p in a certain state, with its node if it has one.
fn machine(name: &str, status: &Value, node: Option<&str>) -> String {
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"},
            "requirements": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}],
            "taints": [{"key": "own", "value": "x", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
            "resources": {"requests": {"cpu": "1", "pods": "3"}},
        },
        "status": status,
    });
    let node = node.map(|state| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-of-{name}"), "labels": {state: "true", "topology.kubernetes.io/zone": "a"}},
            "spec": {"providerID": format!("id-{name}"), "taints": [
                {"key": "own", "value": "x", "effect": "NoSchedule"},
                {"key": "boot", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "dovetail.sh/held", "effect": "NoSchedule"},
            ]},
            "status": {"capacity": {"cpu": "4", "pods": "110"}, "allocatable": {"cpu": "3", "pods": "100"},
                       "conditions": [{"type": "Ready", "status": "False"}]},
        })
    });
    let documents: Vec<_> = [Some(claim), node].into_iter().flatten().map(|object| object.to_string()).collect();
    documents.join("\n---\n")
}

fn launched(name: &str) -> Value {
    json!({"providerID": format!("id-{name}"), "capacity": {"cpu": "4", "example.com/gpu": "2", "pods": "110"},
           "allocatable": {"cpu": "3500m", "example.com/gpu": "2", "pods": "110"}})
}

#[test]
fn a_machine_is_one_entry_however_far_it_has_come() {
    let yaml = [
        POOL.to_owned(),
        machine("launching", &json!({}), None),
        machine("launched", &launched("launched"), None),
        machine("booting", &launched("booting"), Some("kind-of")),
        machine("registered", &launched("registered"), Some("karpenter.sh/registered")),
        machine("initialized", &launched("initialized"), Some("karpenter.sh/initialized")),
    ];
    check(
        &yaml.join("\n---\n"),
        expect![[r#"
            node-of-booting Launched None
              will have karpenter.sh/nodepool In [p], topology.kubernetes.io/zone In [a b]
              taints [own=x:NoSchedule] pods []
              allocatable cpu: 3, example.com/gpu: 2, pods: 100
            node-of-registered Registered None
              has karpenter.sh/registered=true,topology.kubernetes.io/zone=a
              taints [own=x:NoSchedule] pods []
              allocatable cpu: 3, example.com/gpu: 2, pods: 100
            node-of-initialized Initialized Some(NotReady)
              has karpenter.sh/initialized=true,topology.kubernetes.io/zone=a
              taints [own=x:NoSchedule boot:NoSchedule node.kubernetes.io/not-ready:NoSchedule] pods []
              allocatable cpu: 3, pods: 100
            launched Launched None
              will have karpenter.sh/nodepool In [p], topology.kubernetes.io/zone In [a b]
              taints [own=x:NoSchedule] pods []
              allocatable cpu: 3500m, example.com/gpu: 2, pods: 110
            launching Launching None
              will have karpenter.sh/nodepool In [p], topology.kubernetes.io/zone In [a b]
              taints [own=x:NoSchedule] pods []
              allocatable cpu: 1, pods: 3
            pool p weight 7 Ok(())
              karpenter.kwok.sh/kwoknodeclass In [c], karpenter.sh/initialized In [true], karpenter.sh/nodepool In [p], karpenter.sh/registered In [true], kubernetes.io/arch In [amd64], team In [a]
              limit -7000 of 10000 left
              limit 0 of 5 left
            pending 
        "#]],
    );
}

#[test]
fn a_machine_that_is_being_rebooted_is_as_it_will_be_when_it_comes_back() {
    let mut status = launched("m");
    status["conditions"] = json!([{"type": "Rebooting", "status": "True", "reason": "RebootRequested", "message": "", "lastTransitionTime": "2026-11-21T09:00:00Z"}]);
    let node = |status: &Value| {
        let objects = machine("m", status, Some("karpenter.sh/initialized"));
        let (claim, node) = objects.split_once("\n---\n").unwrap();
        let mut node: Value = serde_json::from_str(node).unwrap();
        let fence = json!({"key": "karpenter.sh/rebooting", "effect": "NoSchedule"});
        node["spec"]["taints"].as_array_mut().unwrap().push(fence);
        let (cluster, names) = cluster(&format!("{claim}\n---\n{node}"));
        let (snapshot, _) = snapshot(cluster, names, &ProviderLabels::default());
        let node = snapshot.nodes.iter().next().unwrap();
        let taints: Vec<&str> = node.taints.iter().map(|taint| snapshot.interner.key_name(taint.key)).collect();
        format!("{:?} {}", node.excluded, taints.join(" "))
    };
    assert_eq!(node(&status), "None own");
    status["conditions"][0]["status"] = "False".into();
    assert!(node(&status).starts_with("Some(NotReady)") && node(&status).contains("karpenter.sh/rebooting"));
}

#[test]
fn machines_that_go_take_no_pods_and_count_against_no_limit() {
    let mut going = machine("m", &launched("m"), Some("karpenter.sh/initialized"));
    going = going.replace("\"metadata\":{", "\"metadata\":{\"deletionTimestamp\":\"2026-11-21T09:00:00Z\",");
    check(
        &format!("{POOL}\n---\n{going}"),
        expect![[r#"
            node-of-m Initialized Some(Deleting)
              has karpenter.sh/initialized=true,topology.kubernetes.io/zone=a
              taints [own=x:NoSchedule boot:NoSchedule node.kubernetes.io/not-ready:NoSchedule] pods []
              allocatable cpu: 3, pods: 100
            pool p weight 7 Ok(())
              karpenter.kwok.sh/kwoknodeclass In [c], karpenter.sh/initialized In [true], karpenter.sh/nodepool In [p], karpenter.sh/registered In [true], kubernetes.io/arch In [amd64], team In [a]
              limit 10000 of 10000 left
              limit 5 of 5 left
            pending 
        "#]],
    );
}

#[test]
fn pods_wait_that_the_scheduler_gave_up_on_or_that_must_leave() {
    check(
        r"
{apiVersion: v1, kind: Node, metadata: {name: old, deletionTimestamp: '2026-11-21T09:00:00Z'}}
---
{apiVersion: v1, kind: Node, metadata: {name: new}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b, namespace: ns}, spec: {maxUnavailable: 0%, selector: {matchLabels: {held: 'yes'}}}}
---
apiVersion: v1
kind: List
items:
- &base {apiVersion: v1, kind: Pod, metadata: {name: waits, namespace: ns}, spec: &spec {containers: [{name: c}]}, status: &given-up {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}}
- {<<: *base, metadata: {name: not-tried, namespace: ns}, status: {}}
- {<<: *base, metadata: {name: of-web, namespace: ns, ownerReferences: &web [{kind: ReplicaSet, name: web, uid: web, controller: true}]}}
- {<<: *base, metadata: {name: of-web-not-tried, namespace: ns, ownerReferences: *web}, status: {}}
- {<<: *base, metadata: {name: of-web-gated, namespace: ns, ownerReferences: *web}, status: {conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}}
- {<<: *base, metadata: {name: of-web-with-other-labels, namespace: ns, labels: {own: x}, ownerReferences: *web}, status: {}}
- {<<: *base, metadata: {name: of-db-not-tried, namespace: ns, ownerReferences: [{kind: ReplicaSet, name: db, uid: db, controller: true}]}, status: {}}
- {<<: *base, metadata: {name: nominated, namespace: ns}, status: {<<: *given-up, nominatedNodeName: new}}
- {<<: *base, metadata: {name: going, namespace: ns, deletionTimestamp: '2026-11-21T09:00:00Z'}}
- {<<: *base, metadata: {name: others, namespace: ns}, spec: {<<: *spec, schedulerName: volcano}}
- {<<: *base, metadata: {name: daemon, namespace: ns, ownerReferences: [{kind: DaemonSet, name: d, controller: true}]}}
- {<<: *base, metadata: {name: must-leave, namespace: ns}, spec: &on-old {<<: *spec, nodeName: old}}
- {<<: *base, metadata: {name: held, namespace: ns, labels: {held: 'yes'}}, spec: *on-old}
- {<<: *base, metadata: {name: not-to-disturb, namespace: ns, annotations: {karpenter.sh/do-not-disrupt: 'true'}}, spec: *on-old}
- {<<: *base, metadata: {name: ended, namespace: ns}, spec: *on-old, status: {phase: Succeeded}}
- {<<: *base, metadata: {name: of-stateful-set, namespace: ns, deletionTimestamp: '2026-11-21T09:00:00Z', ownerReferences: [{kind: StatefulSet, name: s, controller: true}]}, spec: *on-old}
",
        expect![[r#"
            old Initialized Some(Deleting)
              has 
              taints [] pods [ns/held ns/must-leave ns/not-to-disturb ns/of-stateful-set]
              allocatable 
            new Initialized None
              has 
              taints [] pods [ns/nominated]
              allocatable 
            pending ns/must-leave ns/of-stateful-set ns/of-web ns/of-web-not-tried ns/others ns/waits
        "#]],
    );
}

#[test]
fn what_the_devices_of_a_bound_pod_cost_counts_among_its_requests() {
    let status = json!({"nodeAllocatableResourceClaimStatuses": [
        {"resourceClaimName": "c", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "2500m"}]}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, "status": status});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let (mut cluster, interner) = cluster(&format!("{node}\n---\n{pod}"));
    let read = dra_types::Pod::from_json(&pod).unwrap();
    cluster.devices.pods.insert(read.meta.uid.clone(), Arc::new(read));
    let (snapshot, errors) = snapshot(cluster, interner, &ProviderLabels::default());
    assert!(errors.is_empty());
    let requests: Vec<i64> =
        snapshot.nodes.iter().flat_map(|node| &node.pods).map(|pod| pod.shape.requests.get(ResourceId::CPU)).collect();
    assert_eq!(requests, [3500]);
}

#[test]
fn a_pod_that_is_being_resized_counts_by_container_before_1_37_and_by_sums_from_then_on() {
    let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let said = |name: &str, cpu: &str| json!({"name": name, "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}});
    // One grows and one shrinks; what a device costs is in force and not among what is set aside by container.
    let costs = json!([{"resourceClaimName": "c", "mapping": [{"name": "cpu", "quantity": "4"}]}]);
    let statuses = json!([said("grows", "1"), said("shrinks", "2")]);
    for (release, costs, expected) in [
        (KubernetesMinor::V1_36, json!([]), 5000),
        (KubernetesMinor::V1_37, json!([]), 4000),
        (KubernetesMinor::V1_36, costs.clone(), 9000),
        (KubernetesMinor::V1_37, costs, 8000),
    ] {
        let status = json!({"containerStatuses": statuses, "nodeAllocatableResourceClaimStatuses": costs});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [container("grows", "3"), container("shrinks", "1")]},
            "status": status});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        let (mut cluster, interner) = cluster(&format!("{node}\n---\n{pod}"));
        cluster.devices.compat = Compat::new(release);
        let read = dra_types::Pod::from_json(&pod).unwrap();
        cluster.devices.pods.insert(read.meta.uid.clone(), Arc::new(read));
        let (snapshot, errors) = snapshot(cluster, interner, &ProviderLabels::default());
        assert!(errors.is_empty());
        let pods = snapshot.nodes.iter().flat_map(|node| &node.pods);
        let requests: Vec<i64> = pods.map(|pod| pod.shape.requests.get(ResourceId::CPU)).collect();
        assert_eq!(requests, [expected], "{release}");
    }
}

#[test]
fn a_claim_that_cannot_be_read_is_left_out_and_named() {
    let broken = machine("broken", &json!({}), None).replace("\"cpu\":\"1\"", "\"cpu\":\"-1\"");
    let fine = machine("fine", &json!({}), None);
    check(
        &format!("{broken}\n---\n{fine}"),
        expect![[r#"
        fine Launching None
          will have karpenter.sh/nodepool In [p], topology.kubernetes.io/zone In [a b]
          taints [own=x:NoSchedule] pods []
          allocatable cpu: 1, pods: 3
        pending 
        NodeClaim broken: spec.resources.requests[cpu]: quantity "-1" is negative
    "#]],
    );
}

/// Whether a pod that asks for `arch` under that key may be planned onto the machine.
fn accepts(node: &scheduling::snapshot::Node, key: &str, names: &Interner) -> bool {
    let (key, amd64) = (names.find_key(key).unwrap(), names.find_value("amd64").unwrap());
    match &node.labels {
        NodeLabels::Known(labels) => labels.get(key) == Some(amd64),
        NodeLabels::Promised(promised) => {
            promised.get(key).is_some_and(|known| known.values == model::ValueSet::one(amd64))
        }
    }
}

#[test]
fn an_old_label_key_counts_on_machines_to_come_and_on_nodes_only_if_they_have_it() {
    let with_arch = |text: String| {
        text.replace("\"metadata\":{\"labels\":{", "\"metadata\":{\"labels\":{\"kubernetes.io/arch\":\"amd64\",")
    };
    let yaml = [
        r"{apiVersion: v1, kind: Node, metadata: {name: foreign, labels: {kubernetes.io/arch: amd64}}}".to_owned(),
        r"{apiVersion: v1, kind: Node, metadata: {name: old, labels: {beta.kubernetes.io/arch: amd64}}}".to_owned(),
        with_arch(machine("launched", &launched("launched"), None)),
        with_arch(machine("registered", &launched("registered"), Some("karpenter.sh/registered"))),
        with_arch(machine("initialized", &launched("initialized"), Some("karpenter.sh/initialized"))),
    ];
    let (cluster, interner) = cluster(&yaml.join("\n---\n"));
    let (snapshot, _) = snapshot(cluster, interner, &ProviderLabels::default());
    let names = &*snapshot.interner;
    let found: Vec<_> = snapshot
        .nodes
        .iter()
        .map(|node| {
            (
                node.display_name().to_owned(),
                accepts(node, "kubernetes.io/arch", names),
                accepts(node, "beta.kubernetes.io/arch", names),
            )
        })
        .collect();
    let expected = [
        ("foreign", true, false),
        ("old", false, true),
        ("node-of-registered", true, true),
        ("node-of-initialized", true, false),
        ("launched", true, true),
    ];
    assert_eq!(found, expected.map(|(name, new, old)| (name.to_owned(), new, old)));
}

#[test]
fn a_node_pool_that_cannot_be_resolved_stays_and_says_why() {
    let pool = POOL.replace("cpu: 10", "cpu: -1");
    let (cluster, interner) = cluster(&pool);
    let (snapshot, errors) = snapshot(cluster, interner, &ProviderLabels::default());
    assert_eq!(errors.len(), 1);
    let why: Vec<_> = snapshot.node_pools.iter().map(|pool| pool.usable.clone().unwrap_err()).collect();
    assert_eq!(why, [Arc::from("is refused: spec.limits[cpu]: quantity \"-1\" is negative")]);
}

#[test]
fn pods_with_resource_claims_are_left_out_only_if_the_user_wants_it() {
    let (mut cluster, interner) = cluster(
        r"
apiVersion: v1
kind: Pod
metadata: {name: claims, namespace: ns, uid: a}
spec: {resourceClaims: [{name: gpu, resourceClaimName: c}], containers: [{name: c}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: ns, uid: b}
spec: {containers: [{name: c}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
",
    );
    let mut interner = Interner::clone(&interner);
    let daemons = json!({"metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": {"spec": {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}], "containers": [{"name": "c"}]}}}});
    cluster.daemon_sets.push(Arc::new(decode::daemon_set(&daemons, &mut Context::new(&mut interner)).unwrap()));
    let interner = Arc::new(interner);
    for (ignore, pods, daemon_sets) in [(false, 2, 1), (true, 1, 0)] {
        cluster.options.ignore_dra_requests = ignore;
        let (snapshot, errors) = snapshot(cluster.clone(), interner.clone(), &ProviderLabels::default());
        assert_eq!(errors, []);
        assert_eq!((snapshot.pods.len(), snapshot.daemon_sets.len()), (pods, daemon_sets));
    }
}

#[test]
fn daemons_have_the_priority_that_admission_will_give_to_their_pods() {
    let mut interner = Interner::new();
    let mut cluster = Cluster::default();
    for (name, mut spec) in [
        ("by-class", json!({"priorityClassName": "high"})),
        ("by-default", json!({})),
        ("by-number", json!({"priority": 3, "priorityClassName": "high"})),
        ("lost", json!({"priorityClassName": "lost"})),
    ] {
        spec["containers"] = json!([{"name": "c"}]);
        let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"template": {"spec": spec}}});
        cluster.daemon_sets.push(Arc::new(decode::daemon_set(&object, &mut Context::new(&mut interner)).unwrap()));
    }
    for object in [
        json!({"metadata": {"name": "high"}, "value": 1000}),
        json!({"metadata": {"name": "usual"}, "value": 5, "globalDefault": true}),
    ] {
        cluster.priority_classes.insert(decode::priority_class(&object).unwrap());
    }
    let (snapshot, errors) = snapshot(cluster, Arc::new(interner), &ProviderLabels::default());
    assert_eq!(errors, []);
    let priorities: Vec<_> = snapshot.daemon_sets.iter().map(|set| set.template.priority).collect();
    assert_eq!(priorities, [Some(1000), Some(5), Some(3), None]);
}

#[test]
fn a_node_pool_that_leaves_nothing_to_launch_says_why() {
    let types = cloudprovider_kwok::catalogue::default_instance_types();
    let mut interner = Interner::new();
    let (catalogue, _) = crate::catalogue(&types, &mut Context::new(&mut interner));
    let mut why = |requirement: Value, min_values| {
        let pool = json!({"metadata": {"name": "p"}, "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [requirement]}}}});
        let pool = decode::node_pool_object(&pool).unwrap();
        let context = &mut Context::new(&mut interner);
        crate::node_pool::nothing_to_launch(&pool, &catalogue, min_values, context)
    };
    let strict = scheduling::snapshot::MinValuesPolicy::Strict;
    let arch = "kubernetes.io/arch";
    assert_eq!(why(json!({"key": arch, "operator": "In", "values": ["arm64"]}), strict), None);
    assert_eq!(
        why(json!({"key": arch, "operator": "In", "values": ["s390x"]}), strict).as_deref(),
        Some("the requirements exclude all 144 instance types of the provider")
    );
    let three = json!({"key": arch, "operator": "Exists", "minValues": 3});
    assert_eq!(
        why(three.clone(), strict).as_deref(),
        Some("minValues of kubernetes.io/arch wants 3 values, the instance types that the requirements allow have 2")
    );
    assert_eq!(why(three, scheduling::snapshot::MinValuesPolicy::BestEffort), None);
}

#[test]
fn pods_of_schedulers_that_are_not_planned_for_are_left_out() {
    let text = "
{apiVersion: v1, kind: Pod, metadata: {name: ours}, spec: {containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: batch}, spec: {schedulerName: batch, containers: [{name: c}]}}
";
    let labels = ProviderLabels::default();
    let names = |schedulers: scheduling::snapshot::SchedulerNames| {
        let parsed = decode::manifests::parse("in.yaml", text);
        let settings = crate::offline::Settings::new(&[], &labels, &[]);
        let mut offline = crate::offline::read(parsed.manifests, parsed.errors, &settings);
        offline.cluster.options.scheduler_names = schedulers;
        let (snapshot, _) = snapshot(offline.cluster, offline.interner, &labels);
        snapshot.pods.iter().map(|pending| pending.pod.name.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(scheduling::snapshot::SchedulerNames::All), ["ours", "batch"]);
    assert_eq!(names(scheduling::snapshot::SchedulerNames::Only(["batch".into()].into())), ["batch"]);
}

/// A DaemonSet without requests, of the second template, and a node of a NodePool and one of nobody.
const AGENT: &str = r"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: system, uid: agent, annotations: {deprecated.daemonset.template.generation: '2'}}
spec: {template: {spec: {containers: [{name: c, resources: {requests: {memory: 1Ki}}}]}}}
---
apiVersion: v1
kind: Node
metadata: {name: ours, labels: {karpenter.sh/nodepool: p}}
---
apiVersion: v1
kind: Node
metadata: {name: foreign}
";
const DEFAULTS: &str = r"
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: system}
spec: {limits: [{type: Container, defaultRequest: {cpu: 300m, memory: 5Ki}}]}
";

/// A pod of the DaemonSet: made at that second from that template, on a node if there is one.
fn agent(second: u32, generation: u32, cpu: &str, node: Option<&str>) -> String {
    let node = node.map(|node| format!("nodeName: {node}, ")).unwrap_or_default();
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: agent-{second}
  namespace: system
  uid: agent-{second}
  creationTimestamp: '2026-01-01T00:00:{second:02}Z'
  labels: {{pod-template-generation: '{generation}'}}
  ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: agent, controller: true}}]
spec: {{{node}containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}
"
    )
}

/// CPU and memory that the next pod of the DaemonSet is planned to ask for.
fn agents_requests(others: &[&str]) -> (i64, i64) {
    let documents: Vec<&str> = [AGENT].into_iter().chain(others.iter().copied()).collect();
    let (cluster, interner) = cluster(&documents.join("---"));
    let (snapshot, errors) = snapshot(cluster, interner, &ProviderLabels::default());
    assert!(errors.is_empty(), "{errors:?}");
    let [set] = snapshot.daemon_sets.as_slice() else { panic!("{:?}", snapshot.daemon_sets) };
    let requests = &set.template.shape.requests;
    assert_eq!(requests.get(ResourceId::PODS), 1);
    (requests.get(ResourceId::CPU), requests.get(ResourceId::MEMORY))
}

#[test]
fn a_daemon_that_runs_nowhere_asks_for_its_template_with_the_defaults_of_limit_ranges() {
    assert_eq!(agents_requests(&[]), (0, 1024));
    assert_eq!(agents_requests(&[DEFAULTS]), (300, 1024));
    assert_eq!(agents_requests(&[&DEFAULTS.replace("namespace: system", "namespace: other")]), (0, 1024));
}

#[test]
fn what_a_daemon_that_runs_asks_for_is_what_the_next_one_will() {
    assert_eq!(agents_requests(&[DEFAULTS, &agent(1, 2, "700m", Some("ours"))]), (700, 0));
    let (early, late) = (agent(1, 2, "700m", Some("ours")), agent(2, 2, "800m", Some("ours")));
    assert_eq!(agents_requests(&[&late, &early]).0, 800, "the newest");
    assert_eq!(agents_requests(&[&early, &agent(2, 2, "800m", Some("foreign"))]).0, 700, "on a machine of a NodePool");
    assert_eq!(agents_requests(&[&agent(2, 2, "800m", Some("foreign"))]).0, 800, "or else on any node");
    assert_eq!(
        agents_requests(&[&early, &agent(2, 2, "900m", None)]).0,
        900,
        "one that waits for its node is admitted"
    );
}

#[test]
fn a_daemon_of_an_earlier_template_says_nothing_of_the_next_one() {
    assert_eq!(agents_requests(&[DEFAULTS, &agent(9, 1, "700m", Some("ours"))]), (300, 1024));
    let stranger = agent(9, 2, "700m", Some("ours")).replace("uid: agent,", "uid: another,");
    assert_eq!(agents_requests(&[&stranger]), (0, 1024), "a DaemonSet of that name that is gone");
}

#[test]
fn pods_with_claims_end_soon_if_their_time_is_over_before_a_machine_could_be_there() {
    let mut text = "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n".to_owned();
    for (name, deadline, claims) in [
        ("soon", Some("2026-01-01T01:01:00Z"), true),
        ("late", Some("2026-01-01T01:10:00Z"), true),
        ("stuck", Some("2026-01-01T00:50:00Z"), true),
        ("without-claims", Some("2026-01-01T01:01:00Z"), false),
        ("stays", None, true),
    ] {
        let mut metadata = json!({"name": name, "namespace": "ns", "uid": name});
        if let Some(deadline) = deadline {
            metadata["deletionTimestamp"] = deadline.into();
        }
        let entry = json!({"name": "gpu", "resourceClaimName": "gpu"});
        let claims: Vec<Value> = claims.then_some(entry).into_iter().collect();
        let spec = json!({"nodeName": "node-a", "containers": [{"name": "c"}], "resourceClaims": claims});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let _ = write!(text, "---\n{pod}\n");
    }
    let (cluster, interner) = cluster(&text);
    let cluster = Cluster { now: Timestamp::parse("2026-01-01T01:00:00Z").unwrap(), ..cluster };
    let (snapshot, errors) = snapshot(cluster.clone(), interner, &ProviderLabels::default());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(ending::ending(&cluster, &snapshot.nodes), [Uid::from("soon")]);
}
