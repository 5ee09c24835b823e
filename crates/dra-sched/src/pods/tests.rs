//! Tables: which claims a pod needs, how its extended resources become a claim, what devices cost of the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::NamespacedName;
use serde_json::{Value, json};

use super::{
    Claims, ExtendedResources, Served, WantedClaim, check_node_resources, check_pod_limits, claims, total_demand,
};
use crate::packing::{ClaimShare, NodeDemand};
use dra_types::compat::{Compat, Gate, Gates, KubernetesMinor};
use dra_types::{ClaimTemplate, DeviceClass, Pod, PodGroup, RequestKind, ResourceClaim};

fn all(kubernetes: KubernetesMinor) -> Compat {
    Compat::with_gates(kubernetes, Gates::all(kubernetes))
}

fn pod(spec: Value, status: Value) -> Pod {
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "u"});
    Pod::from_json(&json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// Name, kind (`init`, `sidecar`, `main`), resources with amounts.
type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

fn containers(rows: &[Row<'_>]) -> Value {
    let mut spec = json!({"initContainers": [], "containers": []});
    for (name, kind, requests) in rows {
        let requests: BTreeMap<&str, &str> = requests.iter().copied().collect();
        let mut container = json!({"name": name, "resources": {"requests": requests}});
        if *kind == "sidecar" {
            container["restartPolicy"] = "Always".into();
        }
        let list = if *kind == "main" { "containers" } else { "initContainers" };
        spec[list].as_array_mut().unwrap().push(container);
    }
    spec
}

fn class(name: &str, resource: Option<&str>, created: &str) -> DeviceClass {
    DeviceClass::from_json(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource},
    }))
    .unwrap()
}

const OLD: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "2026-02-01T00:00:00Z";
const GPU: &str = "example.com/gpu";

/// `request=class×count` of each request, then `container→request` of each mapping.
fn served(kubernetes: KubernetesMinor, spec: Value, allocatable: &[(&str, &str)]) -> Vec<String> {
    let classes = [class("gpu", Some(GPU), OLD), class("nic", None, OLD)];
    let extended = ExtendedResources::new(&classes, &all(kubernetes));
    let allocatable = allocatable.iter().map(|(name, amount)| (Arc::from(*name), amount.parse().unwrap())).collect();
    match extended.serve(&pod(spec, json!({})), &allocatable) {
        Served::Elsewhere => Vec::new(),
        Served::Missing(resource) => vec![format!("missing {resource}")],
        Served::Stranded(resource) => vec![format!("stranded by {resource}")],
        Served::Claim(claim) => {
            let request = |request: &dra_types::DeviceRequest| match &request.kind {
                RequestKind::Exactly(exact) => {
                    let dra_types::AllocationMode::ExactCount(count) = exact.allocation_mode else { panic!() };
                    format!("{}={}x{count}", request.name, exact.device_class_name)
                }
                other => panic!("{other:?}"),
            };
            let mapping = |mapping: &super::ExtendedMapping| format!("{}->{}", mapping.container, mapping.request);
            claim.spec.requests.iter().map(request).chain(claim.mappings.iter().map(mapping)).collect()
        }
    }
}

#[test]
fn explicit_and_implicit_names_become_requests_named_after_container_and_resource() {
    let implicit = "deviceclass.resource.kubernetes.io/nic";
    let spec = containers(&[("a", "main", &[("cpu", "1"), (GPU, "2"), (implicit, "1")]), ("b", "main", &[(GPU, "1")])]);
    assert_eq!(
        served(KubernetesMinor::V1_36, spec, &[("cpu", "8")]),
        [
            "container-0-request-1=nicx1",
            "container-0-request-2=gpux2",
            "container-1-request-0=gpux1",
            "a->container-0-request-1",
            "a->container-0-request-2",
            "b->container-1-request-0",
        ]
    );
}

#[test]
fn a_node_with_a_device_plugin_serves_the_resource_itself() {
    let spec = containers(&[("a", "main", &[(GPU, "2")])]);
    assert!(served(KubernetesMinor::V1_36, spec.clone(), &[(GPU, "4")]).is_empty());
    assert_eq!(served(KubernetesMinor::V1_36, spec, &[(GPU, "0")]).len(), 2, "a plugin that has nothing");
    let unknown = containers(&[("a", "main", &[("other.example.com/x", "1"), (GPU, "1")])]);
    assert_eq!(served(KubernetesMinor::V1_36, unknown, &[]), ["missing other.example.com/x"]);
    let of_kubernetes = containers(&[("a", "main", &[("kubernetes.io/batteries", "1"), ("pods", "1")])]);
    assert!(served(KubernetesMinor::V1_36, of_kubernetes, &[]).is_empty());
}

#[test]
fn from_1_36_on_a_pod_with_claims_is_never_bound_where_a_plugin_has_what_a_class_could_serve() {
    let mut spec = containers(&[("a", "main", &[(GPU, "2")])]);
    spec["resourceClaims"] = json!([{"name": "c", "resourceClaimName": "c"}]);
    assert!(served(KubernetesMinor::V1_35, spec.clone(), &[(GPU, "4")]).is_empty());
    for release in [KubernetesMinor::V1_36, KubernetesMinor::V1_37] {
        assert_eq!(served(release, spec.clone(), &[(GPU, "4")]), ["stranded by example.com/gpu"], "{release}");
    }
    spec["containers"][0]["resources"]["requests"]["deviceclass.resource.kubernetes.io/nic"] = "1".into();
    assert_eq!(served(KubernetesMinor::V1_36, spec, &[(GPU, "4")]).len(), 2, "there is something to write");
}

#[test]
fn a_limit_alone_is_a_request() {
    let spec = json!({"containers": [{"name": "a", "resources": {"limits": {GPU: "3"}}}]});
    assert_eq!(served(KubernetesMinor::V1_36, spec, &[])[0], "container-0-request-0=gpux3");
}

#[test]
fn init_containers_use_what_later_containers_have_and_the_largest_lack_is_asked_for() {
    let rows: [Row<'_>; 5] = [
        ("i0", "init", &[(GPU, "3")]),
        ("s1", "sidecar", &[(GPU, "1")]),
        ("i2", "init", &[(GPU, "5")]),
        ("i3", "init", &[(GPU, "2")]),
        ("m4", "main", &[(GPU, "2")]),
    ];
    // i0 may use s1 and m4 (3), i2 only m4 and lacks 3, i3 lacks nothing.
    assert_eq!(
        served(KubernetesMinor::V1_36, containers(&rows), &[]),
        [
            "container-1-request-0=gpux1",
            "container-2-request-0=gpux3",
            "container-4-request-0=gpux2",
            "s1->container-1-request-0",
            "m4->container-4-request-0",
            "i0->container-1-request-0",
            "i0->container-4-request-0",
            "i2->container-4-request-0",
            "i2->container-2-request-0",
            "i3->container-4-request-0",
        ]
    );
    // 1.34 asks for each container by itself.
    let each = served(KubernetesMinor::V1_34, containers(&rows), &[]);
    assert_eq!(each.iter().filter(|line| line.contains('=')).count(), 5);
}

#[test]
fn of_init_containers_that_lack_something_only_the_first_with_the_most_asks() {
    let rows: [Row<'_>; 3] =
        [("i0", "init", &[(GPU, "2")]), ("i1", "init", &[(GPU, "4")]), ("i2", "init", &[(GPU, "4")])];
    assert_eq!(
        served(KubernetesMinor::V1_36, containers(&rows), &[]),
        [
            "container-1-request-0=gpux4",
            "i0->container-1-request-0",
            "i1->container-1-request-0",
            "i2->container-1-request-0",
        ]
    );
}

#[test]
fn of_classes_with_one_name_the_newest_serves_it_and_then_the_first_by_name() {
    let compat = all(KubernetesMinor::V1_36);
    let of = |classes: &[DeviceClass]| {
        ExtendedResources::new(classes, &compat).class(GPU).map(|class| class.as_str().to_owned())
    };
    assert_eq!(of(&[class("b", Some(GPU), NEW), class("a", Some(GPU), OLD)]).as_deref(), Some("b"));
    assert_eq!(of(&[class("b", Some(GPU), OLD), class("a", Some(GPU), OLD)]).as_deref(), Some("a"));
    let off = Compat::with_gates(KubernetesMinor::V1_36, Gates::NONE);
    assert_eq!(ExtendedResources::new(&[class("a", Some(GPU), OLD)], &off).class(GPU), None);
}

fn template(name: &str) -> Arc<ClaimTemplate> {
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "ns"}, "spec": {"spec": {"devices": {"requests": []}}},
    });
    Arc::new(ClaimTemplate::from_json(&object).unwrap())
}

fn claim(name: &str, metadata: &Value, status: &Value) -> Arc<ResourceClaim> {
    let mut object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
        "spec": {"devices": {"requests": []}}, "status": status,
    });
    object["metadata"]["name"] = name.into();
    object["metadata"]["namespace"] = "ns".into();
    Arc::new(ResourceClaim::from_json(&object).unwrap())
}

fn group(claims: &Value, status: &Value) -> Arc<PodGroup> {
    let object =
        json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"resourceClaims": claims}, "status": status});
    Arc::new(PodGroup::from_json(&object).unwrap())
}

/// What the pod's entries stand for, or what is wrong.
fn wanted(
    compat: Compat,
    pod: &Pod,
    existing: &[Arc<ResourceClaim>],
    groups: &[Arc<PodGroup>],
) -> Result<Vec<String>, String> {
    let by_claim = existing.iter().map(|claim| (claim.meta.name.clone(), Arc::clone(claim))).collect();
    let templates = [(NamespacedName::new("ns", "t"), template("t"))].into();
    let groups = groups.iter().map(|group| (group.meta.name.clone(), Arc::clone(group))).collect();
    let objects = Claims { claims: &by_claim, templates: &templates, groups: &groups };
    let show = |wanted: WantedClaim| match wanted {
        WantedClaim::Existing { entry, claim, reservation } => {
            format!(
                "{entry}: {}{}",
                claim.name,
                if reservation.is_consumer(compat.kubernetes) { " reserved" } else { "" }
            )
        }
        WantedClaim::Fresh { entry, template } => format!("{entry}: new from {}", template.name),
        WantedClaim::OfGroup { entry, group, template } => {
            format!("{entry}: new for group {} from {}", group.name, template.name)
        }
    };
    claims(pod, &objects, &compat)
        .map(|wanted| wanted.into_iter().map(show).collect())
        .map_err(|fault| fault.to_string())
}

fn owner() -> Value {
    json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "made"}})
}

#[test]
fn entries_stand_for_claims_that_exist_were_made_or_will_be() {
    let spec = json!({"resourceClaims": [
        {"name": "shared", "resourceClaimName": "c"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
        {"name": "new", "resourceClaimTemplateName": "t"},
    ]});
    let pod = pod(spec, json!({"resourceClaimStatuses": [{"name": "none"}]}));
    let consumer = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]});
    let existing = [claim("c", &json!({}), &consumer), claim("p-made-x", &owner(), &json!({}))];
    let expected = ["shared: c reserved", "made: p-made-x", "new: new from t"].map(str::to_owned).to_vec();
    assert_eq!(wanted(all(KubernetesMinor::V1_37), &pod, &existing, &[]), Ok(expected));
}

#[test]
fn what_keeps_a_pod_from_being_scheduled_is_named() {
    let compat = all(KubernetesMinor::V1_37);
    let named = |claim: &str| pod(json!({"resourceClaims": [{"name": "r", "resourceClaimName": claim}]}), json!({}));
    let generated = pod(
        json!({"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}),
        json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}]}),
    );
    let missing_template = pod(json!({"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "x"}]}), json!({}));
    let consumers: Vec<Value> =
        (0..256).map(|index| json!({"resource": "pods", "name": format!("o{index}"), "uid": "o"})).collect();
    let full = claim("full", &json!({}), &json!({"reservedFor": consumers}));
    let deleting = claim("gone", &json!({"deletionTimestamp": OLD}), &json!({}));
    let existing = [claim("c", &json!({}), &json!({})), full, deleting];
    for (pod, expected) in [
        (named("x"), "resource claim ns/x does not exist"),
        (named("gone"), "resource claim ns/gone is being deleted"),
        (
            named("full"),
            "resource claim ns/full has 256 consumers with the pods planned for it, the most that are allowed: reserve it \
             for a PodGroup, which counts as one (gate DRAWorkloadResourceClaims)",
        ),
        (generated, "resource claim ns/c was made for another pod"),
        (missing_template, "resource claim template ns/x does not exist"),
    ] {
        assert_eq!(wanted(compat, &pod, &existing, &[]), Err(expected.to_owned()));
    }
}

#[test]
fn an_entry_that_the_group_has_too_is_one_claim_for_all_its_pods() {
    let entry = json!({"name": "r", "resourceClaimTemplateName": "t"});
    let other = json!({"name": "own", "resourceClaimTemplateName": "t"});
    let pod = pod(json!({"resourceClaims": [entry, other], "schedulingGroup": {"podGroupName": "g"}}), json!({}));
    let on = all(KubernetesMinor::V1_37);
    let new = group(&json!([entry, {"name": "own", "resourceClaimTemplateName": "else"}]), &json!({}));
    let expected = ["r: new for group g from t", "own: new from t"].map(str::to_owned).to_vec();
    assert_eq!(wanted(on, &pod, &[], &[new]), Ok(expected));

    let status = json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "g-r-x"}]});
    let made = group(&json!([entry]), &status);
    let consumer = json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "x"});
    let existing = [claim("g-r-x", &json!({}), &json!({"reservedFor": [consumer]}))];
    let expected = ["r: g-r-x reserved", "own: new from t"].map(str::to_owned).to_vec();
    assert_eq!(wanted(on, &pod, &existing, &[made]), Ok(expected));

    assert_eq!(wanted(on, &pod, &[], &[]), Err("pod group ns/g does not exist".to_owned()));
    let off = Compat::with_gates(KubernetesMinor::V1_37, on.gates.with(Gate::WorkloadResourceClaims, false));
    let each = ["r: new from t", "own: new from t"].map(str::to_owned).to_vec();
    assert_eq!(wanted(off, &pod, &[], &[]), Ok(each));
}

fn nano(rows: &[(&str, i128)]) -> NodeDemand {
    NodeDemand(rows.iter().map(|(name, units)| (Arc::from(*name), units * 1_000_000_000)).collect())
}

#[test]
fn what_devices_cost_comes_on_top_unless_the_pod_says_what_it_takes_as_a_whole() {
    let rows: [Row<'_>; 3] = [
        ("i", "init", &[("cpu", "5")]),
        ("s", "sidecar", &[("cpu", "1")]),
        ("m", "main", &[("cpu", "2"), ("memory", "1")]),
    ];
    let mut spec = containers(&rows);
    spec["overhead"] = json!({"cpu": "1"});
    let devices = nano(&[("cpu", 3), ("memory", 7)]);
    assert_eq!(total_demand(&pod(spec.clone(), json!({})), &devices), nano(&[("cpu", 9), ("memory", 8)]));
    spec["resources"] = json!({"requests": {"cpu": "20"}});
    assert_eq!(total_demand(&pod(spec, json!({})), &devices), nano(&[("cpu", 21), ("memory", 8)]));
}

#[test]
fn a_pod_that_says_what_it_takes_must_cover_its_devices_and_the_node_must_have_it() {
    let mut spec = containers(&[("m", "main", &[("cpu", "2")])]);
    let free = nano(&[("cpu", 8), ("memory", 0)]);
    let check = |spec: &Value, devices: &NodeDemand| {
        check_node_resources(&pod(spec.clone(), json!({})), devices, &free).map_err(|fault| fault.to_string())
    };
    assert_eq!(check(&spec, &nano(&[("cpu", 6)])), Ok(()));
    let short = "with what the devices cost the pod takes 9 cpu, and 8 are free";
    assert_eq!(check(&spec, &nano(&[("cpu", 7)])), Err(short.to_owned()));
    spec["resources"] = json!({"requests": {"cpu": "4"}});
    assert_eq!(check(&spec, &nano(&[("cpu", 2)])), Ok(()));
    let uncovered = "the pod asks for 4 cpu as a whole, but its containers and devices take 5";
    assert_eq!(check(&spec, &nano(&[("cpu", 3)])), Err(uncovered.to_owned()));
    assert_eq!(check(&spec, &nano(&[])), Ok(()), "without such devices it is the packer's business");
}

#[test]
fn limits_of_the_pod_as_a_whole_cover_each_container_with_its_devices_and_all_huge_pages() {
    let container = |name: &str, limits: Value, claims: &[&str]| {
        let claims: Vec<Value> = claims.iter().map(|name| json!({"name": name})).collect();
        json!({"name": name, "resources": {"limits": limits, "claims": claims}})
    };
    let check = |whole: Value, containers: Value, devices: &[(&str, i128)]| {
        let spec = json!({"containers": containers, "resources": {"limits": whole}});
        let shares = [ClaimShare { place: 0, of_container: nano(devices), ..ClaimShare::default() }];
        let fault = check_pod_limits(&pod(spec, json!({})), &nano(devices), &shares, &["c".into()]);
        fault.map_err(|fault| fault.to_string())
    };
    let main = |limit: &str, claims: &[&str]| json!([container("main", json!({"cpu": limit}), claims)]);
    assert_eq!(check(json!({"cpu": "6"}), main("2", &["c"]), &[("cpu", 4)]), Ok(()));
    let short = "the pod limits itself to 5 cpu as a whole, but container main and devices may take 6";
    assert_eq!(check(json!({"cpu": "5"}), main("2", &["c"]), &[("cpu", 4)]), Err(short.to_owned()));
    assert_eq!(check(json!({"cpu": "5"}), main("2", &[]), &[("cpu", 4)]), Ok(()), "it does not use the claim");
    let unlimited = json!([container("main", json!({}), &["c"])]);
    assert_eq!(check(json!({"cpu": "1"}), unlimited, &[("cpu", 4)]), Ok(()), "it has no limit");
    assert_eq!(check(json!({"memory": "1"}), main("2", &["c"]), &[("cpu", 4)]), Ok(()), "the pod has none of cpu");

    let pages = |amount: &str| json!([container("main", json!({"hugepages-2Mi": amount}), &[])]);
    let devices = [("hugepages-2Mi", 2)];
    assert_eq!(check(json!({"hugepages-2Mi": "5"}), pages("3"), &devices), Ok(()));
    let short = "the pod limits itself to 4 hugepages-2Mi as a whole, but its containers and devices may take 5";
    assert_eq!(check(json!({"hugepages-2Mi": "4"}), pages("3"), &devices), Err(short.to_owned()));
}

#[test]
fn a_pod_whose_group_holds_a_claim_is_among_its_consumers_from_1_37_on() {
    let entry = json!({"name": "r", "resourceClaimTemplateName": "t"});
    let pod = pod(json!({"resourceClaims": [entry], "schedulingGroup": {"podGroupName": "g"}}), json!({}));
    let status = json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "g-r-x"}]});
    let consumer = json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "x"});
    let existing = [claim("g-r-x", &json!({}), &json!({"reservedFor": [consumer]}))];
    for (release, expected) in [(KubernetesMinor::V1_36, "r: g-r-x"), (KubernetesMinor::V1_37, "r: g-r-x reserved")] {
        let made = group(&json!([entry]), &status);
        assert_eq!(wanted(all(release), &pod, &existing, &[made]), Ok(vec![expected.to_owned()]), "{release}");
    }
}
