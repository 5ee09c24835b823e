use std::sync::Arc;

use model::pod::{PodResourceClaimSource, UnusableTerm, VolumeRef};
use model::{Interner, LabelSelector, Labels, ResourceId, ResourceVec};
use serde_json::{Value, json};

use super::*;

/// A Pod `n/p` with this PodSpec in YAML and a container if it has none.
fn object(spec: &str) -> Value {
    let mut spec: Value = serde_saphyr::from_str(spec).expect("fixtures are YAML");
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "web", "tier": "front"}}, "spec": spec})
}

fn decoded(object: &Value) -> (Result<Pod, ObjectError>, Interner) {
    let mut interner = Interner::new();
    let pod = pod(object, &mut Context::new(&mut interner));
    (pod, interner)
}

fn shape_of(spec: &str) -> (Arc<PodShape>, Interner) {
    let (pod, interner) = decoded(&object(spec));
    (pod.unwrap_or_else(|error| panic!("{error}")).shape, interner)
}

#[track_caller]
fn check_requests(spec: &str, expected: &str) {
    let (shape, interner) = shape_of(spec);
    assert_eq!(shape.requests.display(&interner).to_string(), expected, "for {spec}");
}

#[track_caller]
fn check_error(spec: &str, expected: &str) {
    let (pod, _) = decoded(&object(spec));
    assert_eq!(pod.map(|_| ()).unwrap_err().to_string(), expected, "for {spec}");
}

#[test]
fn containers_are_summed_and_the_pod_counts_as_one() {
    check_requests(
        "containers: [{resources: {requests: {cpu: 100m, memory: 1Gi}}}, {resources: {requests: {cpu: '1', nvidia.com/gpu: 2}}}]",
        "cpu: 1100m, memory: 1Gi, nvidia.com/gpu: 2, pods: 1",
    );
    check_requests("{}", "pods: 1");
}

#[test]
fn a_limit_without_a_request_is_a_request() {
    check_requests(
        "containers: [{resources: {limits: {cpu: 2, memory: 1Gi}, requests: {memory: 512Mi}}}]",
        "cpu: 2, memory: 512Mi, pods: 1",
    );
}

#[test]
fn fractions_are_rounded_up_once_per_amount_and_once_in_the_end() {
    // Half a milli-CPU is stored as one; half a byte stays half until the sum is taken.
    check_requests(
        "containers: [{resources: {requests: {cpu: 500u, memory: '0.5'}}}, {resources: {requests: {cpu: 500u, memory: '0.5'}}}]",
        "cpu: 2m, memory: 1, pods: 1",
    );
    check_requests("containers: [{resources: {requests: {memory: 100m}}}]", "memory: 1, pods: 1");
}

#[test]
fn init_containers_need_their_maximum_on_top_of_restartable_ones_before_them() {
    check_requests(
        r"
        initContainers:
        - {name: a, resources: {requests: {cpu: 4}}}
        - {name: s1, restartPolicy: Always, resources: {requests: {cpu: 1}}}
        - {name: b, resources: {requests: {cpu: 2}}}
        - {name: s2, restartPolicy: Always, resources: {requests: {cpu: 1, memory: 1Gi}}}
        containers: [{resources: {requests: {cpu: 1}}}]
        ",
        // a alone: 4; b with s1: 3; running: 1 + 1 + 1.
        "cpu: 4, memory: 1Gi, pods: 1",
    );
    check_requests(
        "{initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 3}}}], containers: [{resources: {requests: {cpu: 2}}}]}",
        "cpu: 5, pods: 1",
    );
}

#[test]
fn resources_of_the_whole_pod_replace_the_sum_where_they_may_be_given() {
    check_requests(
        "{resources: {requests: {cpu: 3, example.com/x: 9}}, containers: [{resources: {requests: {cpu: 5, memory: 1Gi}}}], overhead: {cpu: 250m}}",
        "cpu: 3250m, memory: 1Gi, pods: 1",
    );
    // A limit of the whole is a request, unless the containers ask for something.
    check_requests(
        "{resources: {limits: {cpu: 3, memory: 2Gi}}, containers: [{resources: {requests: {memory: 1Gi}}}]}",
        "cpu: 3, memory: 1Gi, pods: 1",
    );
    // Huge pages of the whole are those of the containers, if they say nothing else.
    check_requests(
        "{resources: {requests: {cpu: 3}}, containers: [{resources: {limits: {hugepages-2Mi: 4Mi}}}]}",
        "cpu: 3, hugepages-2Mi: 4194304, pods: 1",
    );
}

#[test]
fn devices_and_requests_read_the_same_of_a_pod_as_a_whole() {
    for (whole, containers) in [
        ("limits: {cpu: '20'}", "{requests: {cpu: 1}}"),
        ("limits: {cpu: '20', memory: 3Gi}", "{limits: {memory: 1Gi}}"),
        ("limits: {memory: 3Gi}", "{requests: {cpu: 1500m}}"),
        ("limits: {cpu: 3}", "{limits: {hugepages-2Mi: 4Mi}}"),
        ("requests: {cpu: 3, memory: 1Gi}, limits: {cpu: 4, memory: 1Gi}", "{}"),
    ] {
        let object = object(&format!("{{resources: {{{whole}}}, containers: [{{name: c, resources: {containers}}}]}}"));
        let (pod, mut interner) = decoded(&object);
        let mut expected = ResourceVec::new();
        expected.set(ResourceId::PODS, 1);
        let mut of_devices = dra_types::Pod::from_json(&object).unwrap();
        of_devices.fill_in(dra_types::KubernetesMinor::V1_36);
        for (name, amount) in &of_devices.pod_requests {
            crate::resource_list::set(&mut expected, name, amount, &mut interner).unwrap();
        }
        assert_eq!(pod.unwrap().shape.requests, expected, "{whole} {containers}");
    }
}

#[test]
fn a_resize_counts_with_the_largest_of_asked_allocated_and_in_force() {
    let with_status = |conditions: Value| {
        let mut pod = object("containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi}}}]");
        pod["status"] = json!({
            "conditions": conditions,
            "containerStatuses": [{
                "name": "c",
                "allocatedResources": {"cpu": "1", "memory": "3Gi"},
                "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}},
            }],
        });
        let (pod, interner) = decoded(&pod);
        pod.unwrap().shape.requests.display(&interner).to_string()
    };
    assert_eq!(with_status(json!([])), "cpu: 2, memory: 3Gi, pods: 1");
    let infeasible = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
    assert_eq!(with_status(infeasible), "cpu: 1, memory: 3Gi, pods: 1");
}

#[test]
fn what_the_kubelet_says_is_kept_as_sums_where_it_differs_from_what_is_asked() {
    let said = |name: &str, allocated: Value, in_force: Value| json!({"name": name, "allocatedResources": allocated, "resources": {"requests": in_force}});
    let (two, one) = (json!({"cpu": "2"}), json!({"cpu": "1"}));
    let infeasible = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
    let both = [said("a", two.clone(), one.clone()), said("b", one.clone(), one)];
    for (status, whole, expected) in [
        (json!({}), json!({}), None),
        (
            json!({"containerStatuses": [said("a", two.clone(), two.clone()), said("b", two.clone(), two)]}),
            json!({}),
            None,
        ),
        (json!({"containerStatuses": both}), json!({}), Some("Some(4100) 3100 2100 false")),
        // Of a container without a status what it asks for counts, unless that cannot be given.
        (json!({"containerStatuses": both[..1]}), json!({}), Some("Some(4100) 4100 3100 false")),
        (json!({"containerStatuses": both[..1], "conditions": infeasible}), json!({}), Some("None 2100 1100 false")),
        // The pod as a whole.
        (
            json!({"containerStatuses": both, "allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "7"}}}),
            json!({}),
            Some("Some(4100) 6100 7100 true"),
        ),
        // What is asked for the whole pod takes the place of all sums.
        (json!({"containerStatuses": both}), json!({"requests": {"cpu": "9"}}), None),
        (
            json!({"allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "10"}}}),
            json!({"requests": {"cpu": "9"}}),
            None,
        ),
    ] {
        let mut pod = object("overhead: {cpu: 100m}");
        let containers = ["a", "b"].map(|name| json!({"name": name, "resources": {"requests": {"cpu": "2"}}}));
        pod["spec"]["containers"] = json!(containers);
        pod["spec"]["resources"] = whole;
        pod["status"] = status;
        let (read, _) = decoded(&pod);
        let cpu = |vec: &ResourceVec| vec.get(ResourceId::CPU);
        let shown = read.unwrap().resizing.map(|sums| {
            let (asked, allocated, in_force) =
                (sums.asked.as_ref().map(cpu), cpu(&sums.allocated), cpu(&sums.in_force));
            format!("{asked:?} {allocated} {in_force} {}", sums.allocated_has_devices)
        });
        assert_eq!(shown.as_deref(), expected, "{pod}");
    }
}

#[test]
fn bad_amounts_are_named_with_object_field_and_reason() {
    check_error(
        "containers: [{resources: {requests: {cpu: '-1'}}}]",
        "Pod n/p: spec.containers[0].resources.requests[cpu]: quantity \"-1\" is negative",
    );
    check_error(
        "containers: [{resources: {limits: {memory: 1Kii}}}]",
        "Pod n/p: spec.containers[0].resources.limits[memory]: quantity \"1Kii\" has unknown suffix \"Kii\"",
    );
    check_error(
        "containers: [{resources: {requests: {memory: 8E}}}]",
        "Pod n/p: spec: total of memory is out of range",
    );
    check_error(
        "containers: [{resources: {requests: {cpu: '1e999999999'}}}]",
        "Pod n/p: spec.containers[0].resources.requests[cpu]: quantity \"1e999999999\" has an exponent beyond ±100",
    );
    check_error(
        "containers: [{resources: {requests: {cpu: [1]}}}]",
        "Pod n/p: spec.containers[0].resources.requests[cpu]: is a list, not a quantity",
    );
    check_error("containers: []", "Pod n/p: spec.containers: is missing");
}

#[test]
fn node_selector_and_affinity_are_about_the_very_labels_that_they_name() {
    let (shape, interner) = shape_of(
        r"
        nodeSelector: {beta.kubernetes.io/arch: arm64, failure-domain.beta.kubernetes.io/zone: a}
        affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
          {matchExpressions: [{key: beta.kubernetes.io/os, operator: In, values: [linux]}, {key: cpu, operator: Gt, values: ['3']}]}]}}}
        ",
    );
    assert_eq!(
        shape.node_selector.display(&interner).to_string(),
        "beta.kubernetes.io/arch In [arm64], failure-domain.beta.kubernetes.io/zone In [a]"
    );
    let [term] = shape.required_node_affinity.as_slice() else { panic!("one term") };
    assert_eq!(term.expressions.display(&interner).to_string(), "beta.kubernetes.io/os In [linux], cpu >=4");
}

#[test]
fn terms_that_match_nothing_are_kept_and_say_why() {
    let terms = |terms: &str| {
        let spec = format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"
        );
        shape_of(&spec).0.required_node_affinity.iter().map(|term| term.unusable.clone()).collect::<Vec<_>>()
    };
    assert_eq!(terms("[]"), [Some(UnusableTerm::Empty)]);
    assert_eq!(
        terms("[{}, {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]"),
        [Some(UnusableTerm::Empty), None]
    );
    let invalid = terms(
        "[{matchExpressions: [{key: a, operator: Gt, values: [x]}]}, {matchExpressions: [{key: a, operator: Exists}]}]",
    );
    assert!(matches!(invalid.as_slice(), [Some(UnusableTerm::Invalid(_)), None]));
}

#[test]
fn selectors_that_no_api_server_takes_are_errors() {
    let required = |term: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}"
        )
    };
    let at = "Pod n/p: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
    check_error(
        &required("{matchExpressions: [{key: a, operator: Near, values: [x]}]}"),
        &format!("{at}.matchExpressions[0].operator: unknown operator \"Near\""),
    );
    check_error(
        &required("{matchExpressions: [{key: a, operator: Gte, values: ['1']}]}"),
        &format!("{at}.matchExpressions[0].operator: unknown operator \"Gte\""),
    );
    check_error(
        &required("{matchExpressions: [{key: a, operator: In}]}"),
        &format!("{at}.matchExpressions[0]: key \"a\": operator In needs at least one value"),
    );
    check_error(
        &required("{matchFields: [{key: metadata.uid, operator: In, values: [x]}]}"),
        &format!("{at}.matchFields[0].key: unknown node field \"metadata.uid\""),
    );
    check_error(&required("{matchWords: [x]}"), &format!("{at}: unknown field \"matchWords\""));
    check_error(
        "nodeSelector: {a: 'not a value'}",
        "Pod n/p: spec.nodeSelector[a]: \"not a value\" is not a label value",
    );
    check_error("nodeSelector: [a]", "Pod n/p: spec.nodeSelector: is a list, not an object");
}

#[test]
fn tolerations_of_all_keys_must_say_exists() {
    let (shape, interner) = shape_of("tolerations: [{operator: Exists}, {key: a, value: b, effect: NoSchedule}]");
    assert_eq!(shape.tolerations[0], model::Toleration::EVERYTHING);
    assert_eq!(interner.key_name(shape.tolerations[1].key.unwrap()), "a");
    check_error(
        "tolerations: [{value: x}]",
        "Pod n/p: spec.tolerations[0].operator: must be Exists where key is empty, which means all keys",
    );
    check_error(
        "tolerations: [{key: a, effect: Never}]",
        "Pod n/p: spec.tolerations[0].effect: unknown taint effect \"Never\"",
    );
}

#[test]
fn pod_affinity_defaults_to_its_own_namespace_and_merges_match_label_keys() {
    let (shape, mut interner) = shape_of(
        r"
        affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
          {topologyKey: failure-domain.beta.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [tier], mismatchLabelKeys: [app]},
          {topologyKey: x, namespaces: [b, a, b], namespaceSelector: {}}]}}
        ",
    );
    let [merged, elsewhere] = shape.pod_anti_affinity.required.as_slice() else { panic!("two terms") };
    assert_eq!(interner.key_name(merged.topology_key), "failure-domain.beta.kubernetes.io/zone");
    assert_eq!(merged.namespaces, [Arc::from("n")]);
    // app must be web and must not be web: nothing, as at the API server.
    let labels = Labels::intern([("app", "web"), ("tier", "front")], &mut interner);
    assert!(!merged.selector.matches(&labels, &interner));
    assert_eq!(elsewhere.namespaces, [Arc::from("a"), Arc::from("b")]);
    assert_eq!(elsewhere.namespace_selector, LabelSelector::EVERYTHING);
    assert_eq!(elsewhere.selector, LabelSelector::Nothing);
}

#[test]
fn spread_constraints_get_kubernetes_defaults() {
    let (shape, _) = shape_of(
        "topologySpreadConstraints: [{maxSkew: 2, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]",
    );
    let constraint = &shape.topology_spread[0];
    assert_eq!((constraint.max_skew, constraint.min_domains), (2, None));
    assert_eq!(constraint.node_affinity_policy, model::pod::NodeInclusionPolicy::Honor);
    assert_eq!(constraint.node_taints_policy, model::pod::NodeInclusionPolicy::Ignore);
    check_error(
        "topologySpreadConstraints: [{maxSkew: 0, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]",
        "Pod n/p: spec.topologySpreadConstraints[0].maxSkew: 0 is not between 1 and 2147483647",
    );
    check_error(
        "topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: Maybe}]",
        "Pod n/p: spec.topologySpreadConstraints[0].whenUnsatisfiable: unknown action \"Maybe\"",
    );
}

#[test]
fn host_ports_come_from_containers_that_go_on_running() {
    let ports = |spec: &str| shape_of(spec).0.host_ports.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        ports(
            r"
            containers: [{ports: [{containerPort: 1}, {containerPort: 2, hostPort: 80}, {hostPort: 53, protocol: UDP, hostIP: 10.0.0.1}]}]
            initContainers: [{ports: [{hostPort: 7}]}, {restartPolicy: Always, ports: [{hostPort: 81}]}]
            "
        ),
        ["80/TCP", "81/TCP", "10.0.0.1 53/UDP"]
    );
    assert_eq!(ports("{hostNetwork: true, containers: [{ports: [{containerPort: 8080}]}]}"), ["8080/TCP"]);
    check_error(
        "containers: [{ports: [{hostPort: 70000}]}]",
        "Pod n/p: spec.containers[0].ports[0].hostPort: 70000 is not between 0 and 65535",
    );
}

#[test]
fn volumes_that_restrict_the_place_are_kept_and_unknown_ones_are_named() {
    let (shape, _) = shape_of(
        r"
        volumes:
        - {name: a, persistentVolumeClaim: {claimName: data}}
        - {name: b, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast}}}}
        - {name: c, emptyDir: {}}
        - {name: d, gcePersistentDisk: {pdName: x}}
        - {name: e, quantumDisk: {}}
        ",
    );
    assert_eq!(
        shape.volumes,
        [
            VolumeRef::Claim(NamespacedName::new("n", "data")),
            VolumeRef::Ephemeral { volume: "b".into(), storage_class: Some("fast".into()) },
        ]
    );
    let unsupported: Vec<_> = shape.unsupported.iter().map(|it| &*it.construct).collect();
    assert_eq!(unsupported, ["a volume of kind gcePersistentDisk", "a volume of kind quantumDisk"]);
}

#[test]
fn a_field_of_the_spec_that_nobody_knows_makes_the_pod_unsupported_and_not_unreadable() {
    let (shape, _) = shape_of("{nodeSelectors: {a: b}, schedulingMoon: full}");
    let unsupported: Vec<_> = shape.unsupported.iter().map(|it| &*it.construct).collect();
    assert_eq!(unsupported, ["spec.nodeSelectors", "spec.schedulingMoon"]);
}

#[test]
fn claims_come_with_their_source_and_with_generated_names() {
    let mut pod =
        object("resourceClaims: [{name: gpu, resourceClaimTemplateName: t}, {name: nic, resourceClaimName: shared}]");
    pod["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7"}]});
    let pod = decoded(&pod).0.unwrap();
    let sources: Vec<_> = pod.shape.resource_claims.iter().map(|claim| claim.source.clone()).collect();
    assert_eq!(
        sources,
        [
            PodResourceClaimSource::Template(NamespacedName::new("n", "t")),
            PodResourceClaimSource::Claim(NamespacedName::new("n", "shared")),
        ]
    );
    let names: Vec<_> =
        pod.resource_claim_names.iter().map(|(entry, claim)| (entry.as_str(), claim.as_str())).collect();
    assert_eq!(names, [("nic", "shared"), ("gpu", "p-gpu-x7")]);
    check_error(
        "resourceClaims: [{name: gpu}]",
        "Pod n/p: spec.resourceClaims[0]: one of resourceClaimName and resourceClaimTemplateName must be set",
    );
}

#[test]
fn what_the_scheduler_said_is_read_from_gates_binding_and_condition() {
    let state = |spec: &str, conditions: Value| {
        let mut pod = object(spec);
        pod["status"] = json!({ "conditions": conditions });
        decoded(&pod).0.unwrap().scheduling
    };
    let unschedulable = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    assert_eq!(state("{}", json!([])), SchedulingState::NotTried);
    assert_eq!(state("{}", unschedulable.clone()), SchedulingState::Unschedulable);
    let error = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}]);
    assert_eq!(state("schedulingGroup: {podGroupName: a}", error.clone()), SchedulingState::Unschedulable);
    assert_eq!(state("{}", error), SchedulingState::NotTried);
    assert_eq!(state("schedulingGates: [{name: g}]", unschedulable.clone()), SchedulingState::Gated);
    assert_eq!(state("nodeName: x", unschedulable), SchedulingState::Scheduled);
}

#[test]
fn owners_annotations_and_defaults_of_a_pod() {
    let mut object = object("{}");
    object["metadata"]["ownerReferences"] =
        json!([{"kind": "Other", "name": "o"}, {"kind": "DaemonSet", "name": "d", "controller": true}]);
    object["metadata"]["annotations"] =
        json!({"karpenter.sh/do-not-disrupt": "1h30m", "controller.kubernetes.io/pod-deletion-cost": "-5"});
    let pod = decoded(&object).0.unwrap();
    assert!(pod.is_daemon && !pod.is_mirror);
    assert_eq!(pod.do_not_disrupt, DoNotDisrupt::For(DurationMs::from_seconds(5400)));
    assert_eq!((pod.deletion_cost, pod.priority, &*pod.scheduler_name), (Some(-5), 0, "default-scheduler"));
    object["metadata"]["annotations"] =
        json!({"karpenter.sh/do-not-disrupt": "-1h", "kubernetes.io/config.mirror": "x"});
    let pod = decoded(&object).0.unwrap();
    assert!(pod.is_mirror);
    // What is no 32-bit integer says nothing.
    for (own, of_kubernetes, expected) in [
        ("7", "-5", (Some(7), Some(-5))),
        ("0", "2147483648", (Some(0), None)),
        ("1.5", "-2147483648", (None, Some(i32::MIN))),
    ] {
        object["metadata"]["annotations"] =
            json!({"karpenter.sh/disruption-cost": own, "controller.kubernetes.io/pod-deletion-cost": of_kubernetes});
        let pod = decoded(&object).0.unwrap();
        assert_eq!((pod.disruption_cost, pod.deletion_cost), expected, "{own} {of_kubernetes}");
    }
    for (text, expected) in [
        ("true", DoNotDisrupt::Always),
        ("false", DoNotDisrupt::Never),
        ("-1h", DoNotDisrupt::Invalid),
        ("yes", DoNotDisrupt::Invalid),
    ] {
        object["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": text});
        assert_eq!(decoded(&object).0.unwrap().do_not_disrupt, expected, "{text}");
    }
}

#[test]
fn a_pod_is_unready_once_its_kubelet_says_so() {
    for (conditions, expected) in [
        (json!([]), false),
        (json!([{"type": "Ready", "status": "True"}]), false),
        (json!([{"type": "Ready", "status": "Unknown"}]), false),
        (json!([{"type": "PodScheduled", "status": "False"}, {"type": "Ready", "status": "False"}]), true),
    ] {
        let mut object = object("nodeName: x");
        object["status"]["conditions"] = conditions.clone();
        assert_eq!(decoded(&object).0.unwrap().is_unready, expected, "{conditions}");
    }
}

#[test]
fn a_huge_list_is_refused_by_name() {
    let tolerations = vec![json!({"operator": "Exists"}); 20_000];
    let mut pod = object("{}");
    pod["spec"]["tolerations"] = Value::Array(tolerations);
    let error = decoded(&pod).0.unwrap_err();
    assert_eq!(error.to_string(), "Pod n/p: spec.tolerations: has 20000 entries, more than 10000");
}
