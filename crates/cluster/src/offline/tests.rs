use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;

fn read_text(text: &str, settings: &Settings<'_>) -> Offline {
    let parsed = decode::manifests::parse("in.yaml", text);
    read(parsed.manifests, parsed.errors, settings)
}

fn settings() -> Settings<'static> {
    static LABELS: std::sync::OnceLock<ProviderLabels> = std::sync::OnceLock::new();
    Settings {
        expand_workloads: true,
        default_node_pool: None,
        instance_types: &[],
        node_class_types: None,
        labels: LABELS.get_or_init(ProviderLabels::default),
        node_classes: &[("karpenter.kwok.sh", "KWOKNodeClass")],
        provider_crds: &[],
        release: Release::default(),
        scheduler_config: None,
        repair_policies: None,
    }
}

#[track_caller]
fn check(text: &str, expected: Expect) {
    let offline = read_text(text, &settings());
    let names = &*offline.interner;
    let mut printed = String::new();
    for pod in &offline.cluster.pods {
        let shape = &pod.shape;
        let _ = write!(printed, "pod {} [{}]", pod.name, shape.requests.display(names));
        for (what, text) in [
            ("priority", (pod.priority != 0).then(|| pod.priority.to_string())),
            ("on", (!shape.node_selector.is_empty()).then(|| shape.node_selector.display(names).to_string())),
            ("volumes", (!shape.volumes.is_empty()).then(|| format!("{:?}", shape.volumes))),
            ("owner", pod.owner.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name))),
        ] {
            if let Some(text) = text {
                let _ = write!(printed, " {what} {text}");
            }
        }
        printed.push('\n');
    }
    for (pod, why) in &offline.not_planned {
        let _ = writeln!(printed, "not planned {pod} {}: {why}", why.code());
    }
    for problem in &offline.problems {
        let _ = writeln!(printed, "problem {problem}");
    }
    for note in &offline.notes {
        let _ = writeln!(printed, "note {note}");
    }
    let _ = writeln!(printed, "not used {:?}", offline.not_used);
    expected.assert_eq(&printed);
}

/// A workload of this kind with more fields in its spec and in its template's spec.
fn workload(kind: &str, name: &str, spec: &str, pod_spec: &str) -> String {
    let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!(
        "---\napiVersion: {group}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  template: {{spec: {{containers: [{{name: c}}]{pod_spec}}}}}\n{spec}\n"
    )
}

#[test]
fn workloads_become_their_pods() {
    let text = [
        workload("Deployment", "web", "  replicas: 2", ""),
        workload("ReplicaSet", "one", "", ""),
        workload("Job", "many", "  parallelism: 3\n  completions: 2", ""),
        workload("Job", "open", "  parallelism: 2", ""),
        workload("Job", "paused", "  suspend: true", ""),
        workload("StatefulSet", "none", "  replicas: 0", ""),
        workload(
            "StatefulSet",
            "db",
            "  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]",
            ", volumes: [{name: data, emptyDir: {}}]",
        ),
        "---\n{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}}".to_owned(),
    ];
    check(
        &text.join(""),
        expect![[r#"
        pod default/web-0 [pods: 1] owner Deployment/web
        pod default/web-1 [pods: 1] owner Deployment/web
        pod default/one-0 [pods: 1] owner ReplicaSet/one
        pod default/many-0 [pods: 1] owner Job/many
        pod default/many-1 [pods: 1] owner Job/many
        pod default/open-0 [pods: 1] owner Job/open
        pod default/open-1 [pods: 1] owner Job/open
        pod default/db-0 [pods: 1] volumes [Ephemeral { volume: "data", storage_class: Some("fast") }] owner StatefulSet/db
        not used {"CronJob": 1}
    "#]],
    );
}

#[test]
fn what_another_object_stands_for_is_not_expanded_again_and_names_stay_apart() {
    let text = [
        workload("Deployment", "web", "", ""),
        workload("ReplicaSet", "web-5f", "", "").replace(
            "{name: web-5f}",
            "{name: web-5f, ownerReferences: [{kind: Deployment, name: web, controller: true}]}",
        ),
        workload("StatefulSet", "web", "", ""),
    ];
    check(
        &text.join(""),
        expect![[r#"
        pod default/web-0 [pods: 1] owner Deployment/web
        pod default/web-statefulset-0 [pods: 1] owner StatefulSet/web
        not used {"ReplicaSet": 1}
    "#]],
    );
}

#[test]
fn without_the_flag_workloads_are_counted_and_said() {
    let text = workload("Deployment", "web", "", "") + &workload("Job", "j", "", "");
    let offline = read_text(&text, &Settings { expand_workloads: false, ..settings() });
    assert!(offline.cluster.pods.is_empty());
    assert_eq!(offline.not_used, BTreeMap::from([("Deployment".to_owned(), 1), ("Job".to_owned(), 1)]));
    assert_eq!(offline.notes, [OfflineNote::NotExpanded(2)]);
}

#[test]
fn a_workload_that_cannot_be_read_leaves_its_pods_without_a_place() {
    let text = [
        workload("Deployment", "bad", "  replicas: 2", ", nodeSelector: {a: 1}"),
        workload("Deployment", "huge", "  replicas: 2000000000", ""),
        "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: empty}}\n".to_owned(),
        workload("Deployment", "fine", "", ""),
    ];
    check(
        &text.join(""),
        expect![[r#"
        pod default/fine-0 [pods: 1] owner Deployment/fine
        not planned default/bad-0 InvalidObject: spec.template.spec.nodeSelector[a]: is a number, not a string
        not planned default/bad-1 InvalidObject: spec.template.spec.nodeSelector[a]: is a number, not a string
        not planned default/empty InvalidObject: spec.template.spec: is missing
        not planned default/huge InvalidObject: spec.replicas: 2000000000 is not between 0 and 100000
        problem in.yaml, document 1: Deployment default/bad: spec.template.spec.nodeSelector[a]: is a number, not a string
        problem in.yaml, document 2: Deployment default/huge: spec.replicas: 2000000000 is not between 0 and 100000
        problem in.yaml, document 3: Deployment default/empty: spec.template.spec: is missing
        not used {}
    "#]],
    );
}

#[test]
fn priority_and_runtime_classes_are_applied_as_admission_would() {
    check(
        r"
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 5, globalDefault: true}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
overhead: {podFixed: {cpu: 250m}}
scheduling: {nodeSelector: {runtime: gvisor}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priorityClassName: high, runtimeClassName: gvisor, nodeSelector: {x: 'y'}, containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {priorityClassName: lost, runtimeClassName: lost, containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: d}, spec: {priorityClassName: system-node-critical, containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: e}, spec: {schedulerName: other, containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: f}, spec: {schedulingGates: [{name: g}], containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: g-}, spec: {containers: [{name: c}]}}
",
        expect![[r#"
            pod default/a [cpu: 250m, pods: 1] priority 1000 on runtime In [gvisor], x In [y]
            pod default/b [pods: 1] priority 5
            pod default/c [pods: 1]
            pod default/d [pods: 1] priority 2000001000
            pod default/e [pods: 1] priority 5
            pod default/f [pods: 1] priority 5
            pod default/g-9 [pods: 1] priority 5
            not planned default/f SchedulingGated: is held back by its schedulingGates
            note PriorityClass lost is not in the input; priority 0 is assumed
            note RuntimeClass lost is not in the input; its overhead and node selector are left out
            not used {}
        "#]],
    );
}

#[test]
fn bound_pods_count_on_nodes_that_are_there_and_are_left_out_elsewhere() {
    check(
        r"
{apiVersion: v1, kind: Node, metadata: {name: here}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: here, containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {nodeName: away, containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {containers: [{name: c}]}, status: {phase: Succeeded}}
",
        expect![[r#"
            pod default/a [pods: 1]
            note 1 pods are bound to nodes that are not in the input and were left out
            not used {"Pod": 2}
        "#]],
    );
}

#[test]
fn an_object_given_twice_counts_once_as_it_was_last() {
    let text = workload("Deployment", "web", "  replicas: 5", "") + &workload("Deployment", "web", "  replicas: 1", "");
    check(
        &text,
        expect![[r#"
        pod default/web-0 [pods: 1] owner Deployment/web
        note Deployment default/web is given more than once; the last one counts
        not used {}
    "#]],
    );
}

#[test]
fn many_objects_given_twice_are_told_in_one_line() {
    let text: String = (0..6).map(|index| workload("Job", &format!("j{}", index % 3), "  suspend: true", "")).collect();
    check(
        &text,
        expect![[r#"
            note 3 objects are given more than once; the last one counts; -v lists them
            not used {}
        "#]],
    );
}

/// The claim of an earlier pod of the name is bound where its volume is.
#[test]
fn pods_of_a_stateful_set_have_the_claims_that_are_there_already() {
    let claims = "  replicas: 2\n  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]";
    let made =
        "---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-1}, spec: {volumeName: pv}}\n";
    check(
        &(workload("StatefulSet", "db", claims, "") + made),
        expect![[r#"
            pod default/db-0 [pods: 1] volumes [Ephemeral { volume: "data", storage_class: Some("fast") }] owner StatefulSet/db
            pod default/db-1 [pods: 1] volumes [Claim(NamespacedName { namespace: "default", name: "data-db-1" })] owner StatefulSet/db
            not used {}
        "#]],
    );
}

#[test]
fn names_that_would_fake_lines_of_the_output_are_refused() {
    let text = r#"{apiVersion: v1, kind: Pod, metadata: {name: "a\n1 pod: all is well"}, spec: {containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, labels: {"x\e[2J": y}}, spec: {containers: [{name: c}]}}
"#;
    let offline = read_text(text, &settings());
    let problems: Vec<_> = offline.problems.iter().map(ToString::to_string).collect();
    assert!(offline.cluster.pods.is_empty(), "{:?}", offline.cluster.pods);
    assert!(problems[0].ends_with("metadata.name: has a control character"), "{problems:?}");
    assert!(problems[1].ends_with("metadata.labels: has a control character"), "{problems:?}");
}

#[test]
fn node_pools_are_held_to_their_crd_and_the_others_go_on() {
    let pool = |name: &str, more: &str, requirement: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template: {{spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}}, requirements: [{requirement}]}}}}\n{more}\n"
        )
    };
    let text = [
        pool("bad-operator", "", "{key: a, operator: Near, values: [x]}"),
        pool("bad-limit", "  limits: {cpu: -5}", ""),
        pool("bad-weight", "  weight: 1000", ""),
        pool("fine", "", "{key: a, operator: Exists}"),
        "---\n{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {name: o}, spec: {requirements: [], price: x}}".to_owned(),
    ];
    let offline = read_text(&text.join(""), &settings());
    let pools: Vec<_> =
        offline.cluster.node_pools.iter().map(|pool| pool.object.metadata.name.clone().unwrap()).collect();
    let (snapshot, errors) = crate::snapshot(offline.cluster.clone(), offline.interner.clone(), settings().labels);
    let mut printed: String = offline.problems.iter().map(|problem| format!("{problem}\n")).collect();
    errors.iter().for_each(|error| printed += &format!("{error}\n"));
    offline.notes.iter().for_each(|note| printed += &format!("{note}\n"));
    let usable: Vec<_> = snapshot.node_pools.iter().map(|pool| pool.name.to_string()).collect();
    printed += &format!("read {pools:?} usable {usable:?}\n");
    expect![[r#"
        in.yaml, document 1: NodePool bad-operator: spec.template.spec.requirements[0].operator: Unsupported value: "Near": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"; some validation rules were not checked because the object was invalid; correct the existing errors to complete validation
        in.yaml, document 3: NodePool bad-weight: spec.weight: Invalid value: 1000: spec.weight in body should be less than or equal to 100
        in.yaml, document 5: NodeOverlay o: spec.price: Invalid value: "x": spec.price in body should match '^\d+(\.\d+)?$'
        NodePool bad-limit: spec.limits[cpu]: quantity "-5" is negative
        NodePool bad-limit launches through EC2NodeClass.karpenter.k8s.aws; planned with the instance types given here, not with those of that cloud
        NodePool fine launches through EC2NodeClass.karpenter.k8s.aws; planned with the instance types given here, not with those of that cloud
        read ["bad-operator", "bad-limit", "bad-weight", "fine"] usable ["bad-operator", "bad-limit", "bad-weight", "fine"]
    "#]]
    .assert_eq(&printed);
}

fn node_pool(name: &str, template: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec: {{template: {template}}}\n"
    )
}

const CLASS: &str = "nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: d}";

#[test]
fn a_node_pool_that_the_controller_would_refuse_is_refused_for_the_same_reason() {
    let restricted = format!("{{metadata: {{labels: {{karpenter.sh/own: a}}}}, spec: {{{CLASS}, requirements: []}}}}");
    let twice = format!(
        "{{spec: {{{CLASS}, requirements: [], taints: [{{key: a, effect: NoSchedule}}], startupTaints: [{{key: a, effect: NoSchedule}}]}}}}"
    );
    let pools: Vec<NodePool> = [node_pool("labels", &restricted), node_pool("taints", &twice)]
        .iter()
        .map(|text| decode::node_pool_object(&decode::manifests::parse("p", text).manifests[0].object).unwrap())
        .collect();
    let text = node_pool("labels", &restricted) + &node_pool("taints", &twice);
    let offline = read_text(&text, &settings());
    let problems: Vec<_> = offline.problems.iter().map(ToString::to_string).collect();
    // The schema finds the first before validation does; what is left to validation reads as in the condition.
    assert_eq!(problems.len(), 2, "{problems:?}");
    let findings = api::validation::node_pool(&pools[1], settings().labels);
    assert_eq!(problems[1], format!("in.yaml, document 2: NodePool taints: {}", findings.message()));
    assert!(problems[0].contains("NodePool labels: spec.template.metadata.labels"), "{problems:?}");
    assert!(!api::validation::node_pool(&pools[0], settings().labels).is_valid());
}

#[test]
fn a_label_that_the_provider_reserves_is_refused() {
    let labels =
        ProviderLabels { restricted_domains: ["karpenter.kwok.sh".to_owned()].into(), ..ProviderLabels::default() };
    let requirement =
        format!("{{spec: {{{CLASS}, requirements: [{{key: karpenter.kwok.sh/own, operator: Exists}}]}}}}");
    let text = node_pool("mine", &requirement);
    assert!(read_text(&text, &settings()).problems.is_empty());
    let offline = read_text(&text, &Settings { labels: &labels, ..settings() });
    let problem = offline.problems[0].to_string();
    assert!(
        problem.starts_with(
            "in.yaml, document 1: NodePool mine: spec.template.spec.requirements[0]: key \"karpenter.kwok.sh/own\" is restricted"
        ),
        "{problem}"
    );
}

#[test]
fn the_built_in_node_pool_does_not_stand_in_for_one_that_is_refused() {
    let built_in = decode::node_pool_object(
        &decode::manifests::parse("b", &node_pool("built-in", &format!("{{spec: {{{CLASS}, requirements: []}}}}")))
            .manifests[0]
            .object,
    )
    .unwrap();
    let settings = Settings { default_node_pool: Some(&built_in), ..settings() };
    let near = format!("{{spec: {{{CLASS}, requirements: [{{key: a, operator: Near, values: [x]}}]}}}}");
    let twice = format!(
        "{{spec: {{{CLASS}, requirements: [], taints: [{{key: a, effect: NoSchedule}}], startupTaints: [{{key: a, effect: NoSchedule}}]}}}}"
    );
    for refused in [near, twice] {
        let offline = read_text(&node_pool("mine", &refused), &settings);
        let pools: Vec<_> = offline
            .cluster
            .node_pools
            .iter()
            .map(|pool| (pool.object.metadata.name.clone().unwrap(), pool.usable.clone().unwrap_err()))
            .collect();
        assert_eq!(pools.len(), 1);
        assert!(pools[0].0 == "mine" && pools[0].1.starts_with("is refused: spec.template.spec."), "{pools:?}");
        assert!(!offline.notes.iter().any(|note| matches!(note, OfflineNote::DefaultNodePool(_))), "{refused}");
    }
    let offline = read_text("", &settings);
    assert!(offline.notes.iter().any(|note| matches!(note, OfflineNote::DefaultNodePool(_))));
}

#[test]
fn overlays_correct_what_node_pools_can_launch_and_one_in_conflict_is_told() {
    let quantity = |text: &str| model::Quantity::parse(text).unwrap();
    let instance_type = InstanceType {
        name: "m".into(),
        requirements: [("size".to_owned(), ["big".to_owned()].into())].into(),
        offerings: vec![cloudprovider::Offering {
            zone: "a".to_owned(),
            capacity_type: cloudprovider::CapacityType::OnDemand,
            labels: BTreeMap::new(),
            reservation: None,
            price: model::PriceNanoUsdPerHour(2_000_000_000),
            available: true,
            capacity_override: None,
            overhead_override: None,
        }],
        capacity: [("cpu".to_owned(), quantity("4"))].into(),
        overhead: Default::default(),
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    };
    let instance_types = [Arc::new(instance_type)];
    let settings = Settings { instance_types: &instance_types, ..settings() };
    let overlay = |name: &str, spec: &str| {
        format!(
            "---\n{{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {{name: {name}}}, spec: {spec}}}\n"
        )
    };
    let text = [
        node_pool("plain", &format!("{{spec: {{{CLASS}, requirements: []}}}}")),
        node_pool("team", &format!("{{metadata: {{labels: {{team: ml}}}}, spec: {{{CLASS}, requirements: []}}}}")),
        overlay("team", "{requirements: [{key: team, operator: In, values: [ml]}], capacity: {example.com/x: 3}}"),
        overlay("b", "{requirements: [{key: size, operator: In, values: [big]}], priceAdjustment: -50%}"),
        overlay("a", "{requirements: [], price: '7'}"),
        overlay("no-such-amount", "{requirements: [], capacity: {example.com/x: '-1'}}"),
    ];
    let offline = read_text(&text.join(""), &settings);
    let mut printed: String = offline.problems.iter().map(|problem| format!("{problem}\n")).collect();
    for pool in &offline.cluster.node_pools {
        let name = pool.object.metadata.name.as_deref().unwrap();
        for offering in &pool.catalogue.offerings {
            let _ =
                writeln!(printed, "{name}: {}, [{}]", offering.price, offering.allocatable.display(&offline.interner));
        }
    }
    let _ = writeln!(printed, "not used {:?}", offline.not_used);
    expect![[r#"
        in.yaml, document 6: NodeOverlay no-such-amount: spec.capacity.example.com/x: must not be negative
        in.yaml, document 5: NodeOverlay a: spec: conflict with another overlay: nodeoverlay/b of equal weight also sets the price of instance type m in nodepool/plain
        plain: $1.00/h, [cpu: 4]
        team: $1.00/h, [cpu: 4, example.com/x: 3]
        not used {}
    "#]].assert_eq(&printed);
}

#[test]
fn limit_ranges_complete_pods_and_workloads_of_their_namespace_but_not_those_of_a_cluster() {
    let range = "---\n{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [
        {type: Container, defaultRequest: {cpu: 300m}}]}}\n";
    let pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}\n";
    let text = [workload("Deployment", "web", "", ""), pod.to_owned(), range.to_owned()].concat();
    let requests = |text: &str| {
        let offline = read_text(text, &settings());
        assert!(offline.problems.is_empty(), "{:?}", offline.problems);
        let requests = offline.cluster.pods.iter().map(|pod| pod.shape.requests.get(model::ResourceId::CPU));
        (requests.collect::<Vec<_>>(), offline.cluster.limit_ranges.len())
    };
    assert_eq!(requests(&text), (vec![300, 300], 1));
    assert_eq!(requests(&text.replace("{name: l}", "{name: l, namespace: other}")), (vec![0, 0], 1));
    let header = "---\n{apiVersion: snapshot.dovetail.sh/v1, kind: SnapshotHeader, schemaVersion: 1, time: '2026-01-01T00:00:00Z', dovetailVersion: '0'}\n";
    assert_eq!(requests(&format!("{header}{pod}{range}")), (vec![0], 1), "it was admitted without");
}

#[test]
fn objects_of_a_providers_group_are_held_to_the_crds_that_it_brings() {
    let class = |spec: &str, kind: &str| {
        format!("apiVersion: karpenter.kwok.sh/v1alpha1\nkind: {kind}\nmetadata: {{name: c}}\nspec: {spec}\n")
    };
    let crds = (cloudprovider_kwok::DECLARATION.crds)();
    let problems = |text: &str, provider_crds| {
        let offline = read_text(text, &Settings { provider_crds, ..settings() });
        let problems: Vec<_> = offline.problems.iter().map(ToString::to_string).collect();
        (problems.join("\n"), offline.not_used)
    };
    let (told, not_used) = problems(&class("{nodeRegistrationDelay: 30s}", "KWOKNodeClass"), &crds);
    assert_eq!((told.as_str(), not_used), ("", [("KWOKNodeClass".to_owned(), 1)].into()));
    let (told, _) = problems(&class("{nodeRegistrationDelay: soon}", "KWOKNodeClass"), &crds);
    assert!(told.contains("spec.nodeRegistrationDelay"), "{told}");
    let (told, _) = problems(&class("{}", "Other"), &crds);
    assert!(told.contains("Other"), "{told}");
    let (told, not_used) = problems(&class("{nodeRegistrationDelay: soon}", "KWOKNodeClass"), &[]);
    assert_eq!((told.as_str(), not_used.len()), ("", 1), "nobody knows the kind");
}

#[test]
fn access_as_administrator_needs_the_label_of_the_namespace() {
    let claim = |kind: &str, namespace: &str, spec: &str| {
        format!(
            "---\napiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: c, namespace: {namespace}}}\nspec: \
             {spec}\n"
        )
    };
    let devices = "{devices: {requests: [{name: r, exactly: {deviceClassName: gpu, adminAccess: true}}]}}";
    let namespace = |name: &str, value: &str| {
        format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: \
             {{resource.kubernetes.io/admin-access: \"{value}\"}}}}\n"
        )
    };
    let text = [
        claim("ResourceClaim", "may", devices),
        claim("ResourceClaim", "may-not", devices),
        claim("ResourceClaimTemplate", "none", &format!("{{spec: {devices}}}")),
        // Namespaces are read first, wherever they stand.
        namespace("may", "true"),
        namespace("may-not", "false"),
    ];
    let offline = read_text(&text.concat(), &settings());
    let problems: String = offline.problems.iter().map(|problem| format!("{problem}\n")).collect();
    expect![[r#"
        in.yaml, document 2: ResourceClaim may-not/c: spec.devices.requests[0].exactly.adminAccess: is only allowed in a Namespace with the label resource.kubernetes.io/admin-access: "true"; there is none for "may-not" here
        in.yaml, document 3: ResourceClaimTemplate none/c: spec.spec.devices.requests[0].exactly.adminAccess: is only allowed in a Namespace with the label resource.kubernetes.io/admin-access: "true"; there is none for "none" here
    "#]]
    .assert_eq(&problems);
    assert_eq!(offline.cluster.devices.objects.claims.len(), 1);
}

#[test]
fn a_pod_whose_claim_is_in_the_input_and_cannot_be_used_says_so_and_why() {
    let pod = |name: &str, source: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c}}], \
             resourceClaims: [{{name: d, {source}}}]}}\n"
        )
    };
    let devices = "{devices: {requests: [{name: r, exactly: {deviceClassName: gpu, adminAccess: true}}]}}";
    let object = |kind: &str, spec: &str| {
        format!("---\napiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: adm}}\nspec: {spec}\n")
    };
    let text = [
        object("ResourceClaim", devices),
        object("ResourceClaimTemplate", &format!("{{spec: {devices}}}")),
        pod("claims", "resourceClaimName: adm"),
        pod("makes", "resourceClaimTemplateName: adm"),
        pod("other", "resourceClaimTemplateName: nowhere"),
    ];
    let offline = read_text(&text.concat(), &settings());
    let (snapshot, _) = crate::snapshot(offline.cluster, offline.interner, &Default::default());
    let waits = |pod: &scheduling::snapshot::PendingPod| format!("{}: {:?}\n", pod.pod.name, pod.waits_for);
    expect![[r#"
        default/claims: Some("ResourceClaim default/adm is in the input, but cannot be used: spec.devices.requests[0].exactly.adminAccess: is only allowed in a Namespace with the label resource.kubernetes.io/admin-access: \"true\"; there is none for \"default\" here")
        default/makes: Some("ResourceClaimTemplate default/adm is in the input, but cannot be used: spec.spec.devices.requests[0].exactly.adminAccess: is only allowed in a Namespace with the label resource.kubernetes.io/admin-access: \"true\"; there is none for \"default\" here")
        default/other: None
    "#]]
    .assert_eq(&snapshot.pods.iter().map(waits).collect::<String>());
}

#[test]
fn what_the_server_would_refuse_of_a_pods_claims_is_refused_with_its_field() {
    let pods = [
        ("twice", "[{name: a, resourceClaimName: x}, {name: a, resourceClaimName: z}]"),
        ("neither", "[{name: a}]"),
        ("name", "[{name: a, resourceClaimTemplateName: Not_A_Name}]"),
        ("fine", "[{name: a, resourceClaimName: x}]"),
    ];
    let pod = |(name, claims): (&str, &str)| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{resourceClaims: {claims}, containers: \
             [{{name: main, resources: {{claims: [{{name: a}}]}}}}]}}\n"
        )
    };
    let text: String = pods.into_iter().map(pod).collect();
    let job = workload("Job", "job", "", ", resourceClaims: [{name: a, source: {resourceClaimName: x}}]");
    check(
        &(text + &job),
        expect![[r#"
            pod default/fine [pods: 1]
            not planned default/job-0 InvalidObject: spec.template.spec.resourceClaims[0]: unknown field "source"
            not planned default/name InvalidObject: spec.resourceClaims[0].resourceClaimTemplateName: "Not_A_Name" is not a lowercase RFC 1123 subdomain
            not planned default/neither InvalidObject: spec.resourceClaims[0]: one of resourceClaimName and resourceClaimTemplateName must be set
            not planned default/twice InvalidObject: spec.resourceClaims[1]: "a" appears more than once
            problem in.yaml, document 1: Pod default/twice: spec.resourceClaims[1]: "a" appears more than once
            problem in.yaml, document 2: Pod default/neither: spec.resourceClaims[0]: one of resourceClaimName and resourceClaimTemplateName must be set
            problem in.yaml, document 3: Pod default/name: spec.resourceClaims[0].resourceClaimTemplateName: "Not_A_Name" is not a lowercase RFC 1123 subdomain
            problem in.yaml, document 5: Job default/job: spec.template.spec.resourceClaims[0]: unknown field "source"
            not used {}
        "#]],
    );
}

#[test]
fn a_misspelt_field_of_an_overlay_is_noted_with_the_one_that_was_meant() {
    let overlay = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: o}\nspec: {requirements: [], \
                   price: \"1\", resourceSliceTemplates: [], weights: 3}\n";
    let offline = read_text(overlay, &settings());
    let notes: String = offline.notes.iter().map(|note| format!("{note}\n")).collect();
    expect![[r#"
        nodeoverlay/o: spec.resourceSliceTemplates: is not a known field, and is dropped (did you mean spec.dynamicResources.resourceSliceTemplates?)
        nodeoverlay/o: spec.weights: is not a known field, and is dropped (did you mean weight?)
    "#]]
    .assert_eq(&notes);
}
