//! Reading: versions agree, unknown fields are kept by path, problems name their field.

use serde_json::{Value, json};

use super::*;

fn slice(spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec})
}

fn claim(version: &str, requests: Value) -> Value {
    json!({
        "apiVersion": format!("resource.k8s.io/{version}"),
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {"requests": requests}},
    })
}

fn field_of<T: std::fmt::Debug>(read: Result<T, FieldError>) -> String {
    read.unwrap_err().field.to_string()
}

#[test]
fn a_slice_of_v1beta1_reads_as_one_of_v1() {
    let device = json!({"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "4Gi"}}});
    let mut flat = device.clone();
    flat["name"] = json!("gpu-0");
    let spec = |device: Value| json!({"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n", "devices": [device]});
    let v1 = slice(spec(flat));
    let mut beta = slice(spec(json!({"name": "gpu-0", "basic": device})));
    beta["apiVersion"] = json!("resource.k8s.io/v1beta1");
    let v1 = ResourceSlice::from_json(&v1).unwrap();
    assert_eq!(ResourceSlice::from_json(&beta).unwrap(), v1);
    assert_eq!(v1.devices.len(), 1);
    assert!(v1.unsupported.is_empty());
}

#[test]
fn a_flat_request_of_v1beta1_reads_as_exactly() {
    let body = json!({"deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": "true"}}]});
    let mut flat = body.clone();
    flat["name"] = json!("r");
    let v1 = ResourceClaim::from_json(&claim("v1", json!([{"name": "r", "exactly": body}]))).unwrap();
    let beta1 = ResourceClaim::from_json(&claim("v1beta1", json!([flat]))).unwrap();
    assert_eq!(beta1, v1);
    let RequestKind::Exactly(request) = &v1.spec.requests[0].kind else { panic!("{v1:?}") };
    assert_eq!(request.allocation_mode, AllocationMode::ExactCount(2));
}

#[test]
fn defaults_of_the_server_are_filled_in() {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": [{"key": "k"}]}}]);
    let claim = ResourceClaim::from_json(&claim("v1", requests)).unwrap();
    let RequestKind::Exactly(request) = &claim.spec.requests[0].kind else { panic!("{claim:?}") };
    assert_eq!(request.allocation_mode, AllocationMode::ExactCount(1));
    assert_eq!(request.tolerations[0].operator, TolerationOperator::Equal);
    assert_eq!(request.tolerations[0].effect, None);
}

#[test]
fn an_unknown_field_of_a_spec_is_unsupported_by_its_path() {
    let mut object = slice(json!({
        "driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "allNodes": true,
        "devices": [{"name": "a"}, {"name": "b", "consumesCounters": [{"counterSet": "s", "counters": {"x": {"value": 1, "valueFrom": {}}}}]}],
    }));
    object["metadata"]["novelty"] = json!(1);
    let slice = ResourceSlice::from_json(&object).unwrap();
    let unsupported: Vec<_> = slice.unsupported.iter().map(|it| &*it.construct).collect();
    assert_eq!(unsupported, ["spec.devices[1].consumesCounters[0].counters[x].valueFrom"]);
    assert_eq!(slice.unknown_fields.iter().map(|it| &**it).collect::<Vec<_>>(), ["metadata.novelty"]);
}

#[test]
fn an_unknown_field_of_a_v1_device_in_v1beta1_is_not_taken_for_the_devices_own() {
    let mut object = slice(json!({"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "a", "attributes": {}}]}));
    object["apiVersion"] = json!("resource.k8s.io/v1beta1");
    let slice = ResourceSlice::from_json(&object).unwrap();
    assert_eq!(&*slice.unsupported[0].construct, "spec.devices[0].attributes");
}

#[test]
fn a_slice_is_not_for_all_nodes_only_in_the_version_that_cannot_tell_that_from_unset() {
    let read = |version: &str| {
        let mut object = slice(json!({"driver": "d", "pool": {"name": "p"}, "nodeName": "n", "allNodes": false}));
        object["apiVersion"] = format!("resource.k8s.io/{version}").into();
        ResourceSlice::from_json(&object).map(|slice| slice.node_scope)
    };
    assert_eq!(read("v1beta1"), Ok(Some(NodeScope::Node("n".into()))));
    for version in ["v1beta2", "v1"] {
        assert_eq!(field_of(read(version)), "spec.allNodes", "{version}");
    }
}

#[test]
fn problems_name_their_field() {
    let device =
        |device: Value| slice(json!({"driver": "d", "pool": {"name": "p"}, "allNodes": true, "devices": [device]}));
    for (object, field) in [
        (device(json!("gpu")), "spec.devices[0]"),
        (device(json!({"name": "a", "attributes": {"model": "x"}})), "spec.devices[0].attributes[model]"),
        (device(json!({"name": "a", "attributes": {"n": {"int": 1.5}}})), "spec.devices[0].attributes[n].int"),
        (device(json!({"name": "a", "attributes": {"n": {"int": 1, "bool": true}}})), "spec.devices[0].attributes[n]"),
        (device(json!({"name": "a", "capacity": {"m": {"value": "1Zi"}}})), "spec.devices[0].capacity[m].value"),
        (device(json!({"name": "a", "capacity": {"m": {"value": "1e99"}}})), "spec.devices[0].capacity[m].value"),
        (
            device(json!({"name": "a", "taints": [{"key": "k", "timeAdded": "now"}]})),
            "spec.devices[0].taints[0].timeAdded",
        ),
        (slice(json!({"allNodes": true, "nodeName": "n"})), "spec"),
        (json!({"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1alpha4"}), "apiVersion"),
        (json!({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1"}), "kind"),
        (json!(null), "kind"),
    ] {
        assert_eq!(field_of(ResourceSlice::from_json(&object)), field, "{object}");
    }
    let constraints = json!({"matchAttribute": ["a/b"]});
    let mut object = claim("v1", json!([]));
    object["spec"]["devices"]["constraints"] = json!([constraints]);
    assert_eq!(field_of(ResourceClaim::from_json(&object)), "spec.devices.constraints[0].matchAttribute");
}

#[test]
fn the_allocation_of_a_claim_is_read() {
    let mut object = claim("v1", json!([]));
    object["status"] = json!({
        "allocation": {
            "devices": {"results": [{
                "request": "r/sub", "driver": "d", "pool": "p", "device": "a", "shareID": "x",
                "consumedCapacity": {"memory": "1Gi"}, "adminAccess": true,
            }]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "1"}],
        "devices": [{"driver": "d", "pool": "p", "device": "a", "conditions": [{"type": "Ready", "status": "True"}]}],
    });
    let claim = ResourceClaim::from_json(&object).unwrap();
    let allocation = claim.allocation.unwrap();
    let result = &allocation.results[0];
    assert_eq!(result.request.split(), ("r", Some("sub")));
    assert_eq!(result.device.to_string(), "d/p/a");
    assert!(result.admin_access);
    let selector = allocation.node_selector.unwrap();
    assert_eq!(selector.terms[0].match_fields[0].operator, NodeSelectorOperator::In);
    assert_eq!(&*claim.reserved_for[0].resource, "pods");
    assert_eq!(claim.device_status[0].conditions[0].1, ConditionStatus::True);
}

#[test]
fn a_rule_of_every_version_is_read_and_old_selectors_are_unsupported() {
    for version in ["v1", "v1beta2", "v1alpha3"] {
        let object = json!({
            "apiVersion": format!("resource.k8s.io/{version}"), "kind": "DeviceTaintRule", "metadata": {"name": "r"},
            "spec": {"deviceSelector": {"driver": "d", "deviceClassName": "c"}, "taint": {"key": "k", "effect": "NoExecute"}},
        });
        let rule = DeviceTaintRule::from_json(&object).unwrap();
        assert_eq!(rule.taint.effect, TaintEffect::NoExecute);
        let selector = rule.selector.unwrap();
        assert!(selector.matches(&"d".into(), &"p".into(), &"a".into()));
        assert!(!selector.matches(&"e".into(), &"p".into(), &"a".into()));
        assert_eq!(&*rule.unsupported[0].construct, "spec.deviceSelector.deviceClassName");
    }
}

#[test]
fn a_rule_without_selector_selects_nothing_and_an_empty_one_everything() {
    let rule = |spec: Value| {
        DeviceTaintRule::from_json(
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "spec": spec}),
        )
        .unwrap()
    };
    assert_eq!(rule(json!({"taint": {"key": "k"}})).selector, None);
    let everything = rule(json!({"taint": {"key": "k"}, "deviceSelector": {}})).selector.unwrap();
    assert!(everything.matches(&"d".into(), &"p".into(), &"a".into()));
}

#[test]
fn a_rule_that_taints_devices_is_held_to_the_servers_rules() {
    let rule = |spec: Value| {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec,
        });
        broken(validate::device_taint_rule(&DeviceTaintRule::from_json(&object).unwrap())).join("; ")
    };
    let of_taint = |taint: Value| rule(json!({"taint": taint}));
    let of_selector =
        |selector: Value| rule(json!({"deviceSelector": selector, "taint": {"key": "k", "effect": "None"}}));
    let cases = [
        (of_taint(json!({"key": "example.com/k", "value": "v", "effect": "NoExecute"})), ""),
        (of_taint(json!({"key": "a b", "effect": "None"})), "spec.taint.key: \"a b\" is not the key of a label"),
        (of_taint(json!({"effect": "None"})), "spec.taint.key: \"\" is not the key of a label"),
        (
            of_taint(json!({"key": "k", "value": "x y z", "effect": "None"})),
            "spec.taint.value: \"x y z\" is not the value of a label",
        ),
        (
            of_taint(json!({"key": "k", "effect": "NoSchedulee"})),
            "spec.taint.effect: \"NoSchedulee\" is not one of None, NoSchedule, NoExecute",
        ),
        (of_taint(json!({"key": "k"})), "spec.taint.effect: is required"),
        (of_selector(json!({})), ""),
        (of_selector(json!({"driver": "D.example.com", "pool": "a.b/c", "device": "gpu-0"})), ""),
        (
            of_selector(json!({"driver": "X Y"})),
            "spec.deviceSelector.driver: \"x y\" is not a lowercase RFC 1123 subdomain",
        ),
        (of_selector(json!({"driver": ""})), "spec.deviceSelector.driver: is required"),
        (of_selector(json!({"pool": "a//b"})), "spec.deviceSelector.pool: is required"),
        (
            of_selector(json!({"device": "GPU"})),
            "spec.deviceSelector.device: \"GPU\" is not a lowercase RFC 1123 label",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    let named = |name: &str| {
        DeviceTaintRule::from_json(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name},
            "spec": {"taint": {"key": "k", "effect": "None"}},
        }))
    };
    assert_eq!(
        broken(validate::device_taint_rule(&named("A").unwrap())),
        ["metadata.name: \"A\" is not a lowercase RFC 1123 subdomain"]
    );
}

#[test]
fn a_toleration_without_key_or_effect_covers_all_and_an_unknown_operator_none() {
    let taint = DeviceTaint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule, time_added: None };
    let toleration =
        |operator| DeviceToleration { key: None, operator, value: "".into(), effect: None, toleration_seconds: None };
    assert!(toleration(TolerationOperator::Exists).tolerates(&taint));
    assert!(!toleration(TolerationOperator::Equal).tolerates(&taint));
    assert!(!toleration(TolerationOperator::Other("In".into())).tolerates(&taint));
    let other_effect =
        DeviceToleration { effect: Some(TaintEffect::NoExecute), ..toleration(TolerationOperator::Exists) };
    assert!(!other_effect.tolerates(&taint));
}

#[test]
fn an_unknown_field_is_named_with_the_one_that_was_meant() {
    let cpu = json!({"direct": {}, "overhead": {"perPod": "1", "perPodReference": "1"}});
    let device = json!({"name": "d", "atributes": {}, "colour": "red", "nodeAllocatableResources": {"cpu": cpu}});
    let read = ResourceSlice::from_json(&slice(json!({"driver": "d", "devices": [device]}))).unwrap();
    let found: Vec<String> = read.unsupported.iter().map(|field| field.construct.to_string()).collect();
    assert_eq!(
        found,
        [
            "spec.devices[0].atributes (did you mean attributes?)",
            "spec.devices[0].colour",
            "spec.devices[0].nodeAllocatableResources[cpu].direct (did you mean mapping?)",
            "spec.devices[0].nodeAllocatableResources[cpu].overhead.perPodReference (did you mean perPod?)",
        ]
    );
    let device = json!({"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "k", "direct": {}}}, "capacity": {"k": {"value": "1"}}});
    let read = ResourceSlice::from_json(&slice(json!({"driver": "d", "devices": [device]}))).unwrap();
    assert_eq!(
        &*read.unsupported[0].construct,
        "spec.devices[0].nodeAllocatableResourceMappings[cpu].direct (did you mean mapping of nodeAllocatableResources?)"
    );
}

#[test]
fn where_nothing_known_is_set_the_error_names_what_was_meant() {
    for (device, expected) in [
        (
            json!({"nodeAllocatableResources": {"cpu": {"overhead": {"perPodReference": "1"}}}}),
            "spec.devices[0].nodeAllocatableResources[cpu].overhead: perPod or perContainer must be set (did you mean \
             perPod by perPodReference?)",
        ),
        (
            json!({"nodeAllocatableResources": {"cpu": {"direct": {}}}}),
            "spec.devices[0].nodeAllocatableResources[cpu]: mapping or overhead must be set (did you mean mapping by \
             direct?)",
        ),
        (
            json!({"nodeAllocatableResourceMappings": {"cpu": {"direct": {}}}}),
            "spec.devices[0].nodeAllocatableResourceMappings[cpu]: allocationMultiplier or capacityKey must be set (did \
             you mean mapping of nodeAllocatableResources by direct?)",
        ),
        (
            json!({"nodeAllocatableResources": {"cpu": {"overhead": {"colour": "1"}}}}),
            "spec.devices[0].nodeAllocatableResources[cpu].overhead: perPod or perContainer must be set",
        ),
    ] {
        let mut device = device;
        device["name"] = json!("d");
        let refused = ResourceSlice::from_json(&slice(json!({"driver": "d", "devices": [device]}))).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
}

/// `cpu 1, memory 2Gi`.
fn amounts(amounts: &Resources) -> String {
    amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_pod_as_a_whole_asks_for_what_the_server_fills_in() {
    let container = |resources: Value| json!({"name": "c", "resources": resources});
    let cases = [
        (json!({}), json!({"requests": {"cpu": "1"}}), "", ""),
        (json!({"limits": {"cpu": "20"}}), json!({"requests": {"cpu": "1"}}), "cpu 1", "cpu 20"),
        (json!({"limits": {"cpu": "20"}}), json!({"limits": {"cpu": "2"}}), "cpu 2", "cpu 20"),
        (json!({"limits": {"cpu": "20"}}), json!({}), "cpu 20", "cpu 20"),
        (
            json!({"limits": {"cpu": "20"}, "requests": {"cpu": "3"}}),
            json!({"requests": {"cpu": "1"}}),
            "cpu 3",
            "cpu 20",
        ),
        // A limit of one resource makes the containers' sum of the other a request of the whole.
        (
            json!({"limits": {"cpu": "20"}}),
            json!({"requests": {"memory": "1Gi", "example.com/gpu": "1"}}),
            "cpu 20, memory 1Gi",
            "cpu 20",
        ),
        // Without a limit nothing is filled in.
        (json!({"requests": {"cpu": "3"}}), json!({"requests": {"memory": "1Gi"}}), "cpu 3", ""),
        (
            json!({"requests": {"cpu": "3"}}),
            json!({"limits": {"hugepages-2Mi": "4Mi"}}),
            "cpu 3, hugepages-2Mi 4Mi",
            "hugepages-2Mi 4Mi",
        ),
        (
            json!({"requests": {"hugepages-2Mi": "8Mi"}}),
            json!({"limits": {"hugepages-2Mi": "4Mi"}}),
            "hugepages-2Mi 8Mi",
            "",
        ),
        // The server refuses it; nothing of it becomes a request.
        (json!({"limits": {"example.com/gpu": "1"}}), json!({}), "", "example.com/gpu 1"),
    ];
    for (whole, of_container, requests, limits) in cases {
        let spec = json!({"resources": whole, "containers": [container(of_container)]});
        let mut pod = Pod::from_json(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        pod.fill_in(KubernetesMinor::V1_36);
        assert_eq!((amounts(&pod.pod_requests), amounts(&pod.pod_limits)), (requests.into(), limits.into()), "{spec}");
    }
}

#[test]
fn from_1_37_on_requests_are_filled_in_without_limits_too_and_limits_where_every_container_has_one() {
    let cases = [
        // The containers' sum of what the whole does not name.
        (json!({"requests": {"memory": "2Gi"}}), vec![json!({"requests": {"cpu": "1"}})], "cpu 1, memory 2Gi", ""),
        (
            json!({"requests": {"cpu": "3"}}),
            vec![json!({"limits": {"cpu": "1"}}), json!({"limits": {"cpu": "1"}})],
            "cpu 3",
            "cpu 3",
        ),
        (
            json!({"requests": {"cpu": "1"}}),
            vec![json!({"limits": {"cpu": "1"}}), json!({"limits": {"cpu": "1"}})],
            "cpu 1",
            "cpu 2",
        ),
        (json!({"requests": {"cpu": "3"}}), vec![json!({"limits": {"cpu": "1"}}), json!({})], "cpu 3", ""),
        (json!({"limits": {"cpu": "20"}}), vec![json!({"requests": {"cpu": "1"}})], "cpu 1", "cpu 20"),
        (json!({}), vec![json!({"limits": {"cpu": "1"}})], "", ""),
    ];
    for (whole, containers, requests, limits) in cases {
        let containers: Vec<Value> = containers.into_iter().map(|of| json!({"name": "c", "resources": of})).collect();
        let spec = json!({"resources": whole, "containers": containers});
        let mut pod = Pod::from_json(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        pod.fill_in(KubernetesMinor::V1_37);
        let told = (amounts(&pod.pod_requests), amounts(&pod.pod_limits));
        assert_eq!(told, (requests.to_owned(), limits.to_owned()), "{spec}");
    }
}

#[test]
fn what_containers_need_while_they_start_counts_for_the_pod_as_a_whole() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let spec = json!({
        "resources": {"limits": {"cpu": "20"}},
        "initContainers": [
            {"name": "a", "resources": cpu("4")},
            {"name": "s1", "restartPolicy": "Always", "resources": cpu("1")},
            {"name": "b", "resources": cpu("4500m")},
        ],
        "containers": [{"name": "c", "resources": cpu("1")}],
    });
    let mut pod = Pod::from_json(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
    pod.fill_in(KubernetesMinor::V1_36);
    assert_eq!(pod.pod_requests.get("cpu").map(ToString::to_string).as_deref(), Some("5500m"));
}

/// All rules that an object breaks, one a line.
fn broken(outcome: Result<(), Vec<FieldError>>) -> Vec<String> {
    outcome.err().into_iter().flatten().map(|error| error.to_string()).collect()
}

#[test]
fn what_a_pod_says_of_claims_is_held_to_the_servers_rules() {
    let pod = |claims: Value, used: Value| {
        let init = json!([{"name": "init", "resources": {"claims": [{"name": "a"}]}}]);
        let containers = json!([{"name": "main"}, {"name": "other", "resources": {"claims": used}}]);
        let spec = json!({"resourceClaims": claims, "initContainers": init, "containers": containers});
        Pod::from_json(&json!({"metadata": {"name": "p"}, "spec": spec}))
    };
    let entry = |name: &str, claim: &str| json!({"name": name, "resourceClaimName": claim});
    let used = json!([{"name": "a"}]);
    let check = |claims: Value, used: &Value| broken(validate::pod(&pod(claims, used.clone()).unwrap()));
    assert_eq!(check(json!([entry("a", "x")]), &used), [""; 0]);
    assert_eq!(
        check(json!([entry("a", "x"), entry("a", "y")]), &used),
        ["spec.resourceClaims[1]: \"a\" appears more than once"]
    );
    assert_eq!(
        check(json!([entry("a", "X"), entry("B", "y"), entry("", "y")]), &used),
        [
            "spec.resourceClaims[0].resourceClaimName: \"X\" is not a lowercase RFC 1123 subdomain",
            "spec.resourceClaims[1].name: \"B\" is not a lowercase RFC 1123 label",
            "spec.resourceClaims[2].name: is required",
        ]
    );
    assert_eq!(
        check(json!([entry("a", "x")]), &json!([{"name": "b"}, {"name": ""}])),
        [
            "spec.containers[1].resources.claims[0].name: \"b\" is not the name of an entry of spec.resourceClaims",
            "spec.containers[1].resources.claims[1].name: is required",
        ]
    );
    for neither_or_both in [
        json!({"name": "a"}),
        json!({"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}),
        json!({"name": "a", "source": {"resourceClaimName": "x"}}),
    ] {
        assert_eq!(field_of(pod(json!([neither_or_both]), used.clone())), "spec.resourceClaims[0]");
    }
}

#[test]
fn a_container_names_a_claim_once_as_a_whole_or_by_different_requests() {
    let used = |claims: Value| {
        let spec = json!({"containers": [{"name": "main", "resources": {"claims": claims}}]});
        Pod::from_json(&json!({"metadata": {"name": "p"}, "spec": spec})).map(|pod| pod.containers[0].claims.len())
    };
    let [whole, r, s] = ["", "r", "s"].map(|request| json!({"name": "a", "request": request}));
    assert_eq!(used(json!([r, s])), Ok(1));
    assert_eq!(used(json!([r, {"name": "b"}])), Ok(2));
    for twice in [[&whole, &whole], [&whole, &r], [&r, &whole], [&r, &r]] {
        assert_eq!(field_of(used(json!(twice))), "spec.containers[0].resources.claims[1]", "{twice:?}");
    }
    let field = "spec.containers[0].resources.claims[0].request";
    assert_eq!(field_of(used(json!([{"name": "a", "request": "R"}]))), field);
}

/// Every selector compiles, and derived attributes that are numbers, which are their costs.
struct AnyText {
    derives: bool,
}

impl validate::Compiler for AnyText {
    fn selector(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn derives_attributes(&self) -> bool {
        self.derives
    }

    fn derived_attribute(&self, text: &str) -> Result<u64, String> {
        text.parse().map_err(|_| "does not compile".to_owned())
    }
}

#[test]
fn derived_attributes_are_used_by_constraints_and_cheap_together() {
    let (name, at) = ("x.test/a", "spec.devices.requests[0].exactly.derivedAttributes");
    let check = |derives: bool, attributes: &Value, covered: Value| {
        let request = |name: &str, attributes: &Value| json!({"name": name, "exactly": {"deviceClassName": "c", "derivedAttributes": attributes}});
        let alternative = json!({"name": "s", "deviceClassName": "c", "derivedAttributes": attributes});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {
                "requests": [request("r", attributes), request("other", &json!([])),
                    {"name": "either", "firstAvailable": [alternative]}],
                "constraints": [{"matchAttribute": name, "requests": covered}],
            }},
        });
        broken(validate::claim(&ResourceClaim::from_json(&claim).unwrap(), &AnyText { derives }))
    };
    let derived = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let cheap = json!([derived(name, "1")]);
    for covered in [json!([]), json!(["r", "either"]), json!(["r", "either/s"])] {
        assert_eq!(check(true, &cheap, covered), [""; 0]);
    }
    let unused = check(true, &cheap, json!(["r"]));
    let of_alternative = "spec.devices.requests[2].firstAvailable[0].derivedAttributes[0].name: is not in a constraint";
    assert!(unused.len() == 1 && unused[0].starts_with(of_alternative), "{unused:?}");
    for (attributes, field) in [
        (json!([derived(name, "1"), derived(name, "1")]), format!("{at}[1]: ")),
        (json!([derived("", "1")]), format!("{at}[0].name: ")),
        (json!([derived("a", "1")]), format!("{at}[0].name: ")),
        (json!([derived("x.test/b", "1")]), format!("{at}[0].name: ")),
        (json!([derived(name, "")]), format!("{at}[0].expression: ")),
        (json!([derived(name, "what")]), format!("{at}[0].expression: ")),
        (json!([derived(name, "1000001")]), format!("{at}[0].expression: ")),
        // Of the request and its neighbour together.
        (json!([derived(name, "500001")]), "spec.devices: ".to_owned()),
        (json!(vec![derived(name, "1"); 33]), format!("{at}: ")),
    ] {
        let found = check(true, &attributes, json!([]));
        assert!(found.iter().any(|error| error.starts_with(&field)), "{attributes}: {found:?}");
        assert_eq!(check(false, &attributes, json!([])), [""; 0], "they are dropped");
    }
    assert_eq!(check(true, &json!([derived(name, "500000")]), json!([])), [""; 0]);
}

#[test]
fn what_a_claim_asks_for_is_held_to_the_servers_rules() {
    let check = |part: &str, value: Value| {
        let mut claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        });
        *claim.pointer_mut("/spec/devices").unwrap().pointer_mut(part).unwrap() = value;
        broken(validate::claim(&ResourceClaim::from_json(&claim).unwrap(), &AnyText { derives: true })).join("; ")
    };
    let tolerates =
        |toleration: Value| check("/requests/0/exactly", json!({"deviceClassName": "c", "tolerations": [toleration]}));
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let with = |field: &str, value: Value| check("", json!({"requests": [request], field: [value]}));
    let config = |parameters: Value| with("config", json!({"opaque": {"driver": "Gpu", "parameters": parameters}}));
    for right in [
        tolerates(json!({"operator": "Exists"})),
        tolerates(json!({"value": "b", "effect": "NoSchedule", "tolerationSeconds": 1})),
        config(json!({"a": [1]})),
        with("constraints", json!({"matchAttribute": "a.b/c", "requests": ["r"]})),
        with("constraints", json!({"matchAttribute": "a.b/c", "distinctAttribute": "a.b/d"})),
    ] {
        assert_eq!(right, "");
    }
    let of_toleration = "spec.devices.requests[0].exactly.tolerations[0]";
    let of_parameters = "spec.devices.config[0].opaque.parameters";
    for (wrong, expected) in [
        (tolerates(json!({"key": "a b"})), format!("{of_toleration}.key: \"a b\" is not the key of a label")),
        (tolerates(json!({"value": "b c"})), format!("{of_toleration}.value: \"b c\" is not the value of a label")),
        (
            tolerates(json!({"operator": "Exists", "value": "b"})),
            format!("{of_toleration}.value: must be empty with operator Exists"),
        ),
        (
            tolerates(json!({"operator": "Like"})),
            format!("{of_toleration}.operator: \"Like\" is not one of Equal, Exists"),
        ),
        (
            tolerates(json!({"effect": "Never"})),
            format!("{of_toleration}.effect: \"Never\" is not one of None, NoSchedule, NoExecute"),
        ),
        (config(json!(null)), format!("{of_parameters}: is required")),
        (config(json!("text")), format!("{of_parameters}: must be a JSON object")),
        (config(json!({"a": "x".repeat(10_240)})), format!("{of_parameters}: is longer than 10240 bytes")),
        (
            with("constraints", json!({"matchAttribute": "a.b/c", "requests": ["r", "r"]})),
            "spec.devices.constraints[0].requests[1]: \"r\" appears more than once".to_owned(),
        ),
    ] {
        assert_eq!(wrong, expected);
    }
}

#[test]
fn an_extended_resource_of_a_class_has_a_name_outside_of_kubernetes() {
    for (name, is_valid) in [
        ("example.com/gpu", true),
        ("example.com/GPU_1.a", true),
        ("gpu", false),
        ("node.kubernetes.io/gpu", false),
        ("requests.example.com/gpu", false),
        ("Example.com/gpu", false),
        ("example.com/", false),
        ("example.com/-gpu", false),
        ("example.com/a/b", false),
    ] {
        let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"},
            "spec": {"extendedResourceName": name}});
        let class = DeviceClass::from_json(&class).unwrap();
        let broken = broken(validate::class(&class, &AnyText { derives: true }));
        assert_eq!(broken.is_empty(), is_valid, "{name}: {broken:?}");
        assert!(broken.iter().all(|error| error.starts_with("spec.extendedResourceName: ")), "{broken:?}");
    }
}
