use std::fmt::Write as _;

use api::labels::ProviderLabels;
use dra_types::{Compat, Gates, KubernetesMinor};

use super::{Cluster, PendingRule};
use crate::offline::{self, Settings};
use decode::manifests;

const CLASS: &str = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}}\n";

fn template(name: &str, request: &str) -> String {
    format!(
        "---\n{{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {{name: {name}, namespace: ml}}, \
         spec: {{spec: {{devices: {{requests: [{{name: r, {request}}}]}}}}}}}}\n"
    )
}

fn quota(hard: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: q, namespace: ml}}, spec: {{hard: {{{hard}}}}}}}\n"
    )
}

fn pods(namespace: &str, template: &str, count: usize) -> String {
    let mut text = String::new();
    for index in 0..count {
        let _ = writeln!(
            text,
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{index}, namespace: {namespace}, uid: {namespace}-{index}, \
             creationTimestamp: '2026-01-01T00:00:0{}Z'}}, spec: {{containers: [{{name: c}}], \
             resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}]}}}}",
            9 - index
        );
    }
    text
}

/// A claim that was made for the pod of that index.
fn claim(index: usize) -> String {
    format!(
        "---\n{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: made-{index}, namespace: ml, \
         annotations: {{resource.kubernetes.io/pod-claim-name: d}}, \
         ownerReferences: [{{apiVersion: v1, kind: Pod, name: p{index}, uid: ml-{index}, controller: true}}]}}, \
         spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu, count: 2}}}}]}}}}}}\n"
    )
}

/// The pods that wait for a quota, and why the first does.
fn waiting(text: &str) -> (Vec<String>, String) {
    waiting_in(text, |_| ())
}

/// [`waiting`] of a cluster that is changed after it was read.
fn waiting_in(text: &str, change: impl FnOnce(&mut Cluster)) -> (Vec<String>, String) {
    let labels = ProviderLabels::default();
    let parsed = manifests::parse("in.yaml", text);
    let mut offline = offline::read(parsed.manifests, parsed.errors, &Settings::new(&[], &labels, &[]));
    assert!(offline.problems.is_empty(), "{:?}", offline.problems);
    change(&mut offline.cluster);
    let (snapshot, _) = crate::snapshot(offline.cluster, offline.interner, &labels);
    let waiting = snapshot.pods.iter().filter(|pending| pending.waits_for.is_some());
    let names = waiting.clone().map(|pending| pending.pod.name.to_string()).collect();
    (names, waiting.clone().filter_map(|pending| pending.waits_for.as_deref()).next().unwrap_or_default().to_owned())
}

#[test]
fn pods_whose_claims_a_quota_forbids_wait_and_the_oldest_come_first() {
    let two = template("two", "exactly: {deviceClassName: gpu, count: 2}");
    let input = CLASS.to_owned() + &two + &pods("ml", "two", 5);
    let devices = "gpu.deviceclass.resource.k8s.io/devices";
    assert_eq!(waiting(&input).0, Vec::<String>::new());
    // Of five pods the two that came last have claims already, and these use four devices.
    let made = claim(0) + &claim(1);
    let (names, why) = waiting(&(input.clone() + &made + &quota(&format!("{devices}: '6'"))));
    assert_eq!(names, ["ml/p2", "ml/p3"]);
    assert_eq!(
        why,
        "ResourceQuota ml/q limits devices of class gpu: used 6, hard 6, and its ResourceClaim would take 2"
    );
    let (names, why) = waiting(&(input + &made + &quota("count/resourceclaims.resource.k8s.io: '4'")));
    assert_eq!(names, ["ml/p2"]);
    assert_eq!(why, "ResourceQuota ml/q limits ResourceClaims: used 4, hard 4, and its ResourceClaim would take 1");
    let other = CLASS.to_owned() + &two.replace("ml", "other") + &pods("other", "two", 5);
    assert_eq!(waiting(&(other + &quota(&format!("{devices}: '0'")))).0, Vec::<String>::new());
}

#[test]
fn alternatives_count_by_the_most_of_each_class() {
    let either = template(
        "either",
        "firstAvailable: [{name: a, deviceClassName: gpu, count: 1}, {name: b, deviceClassName: gpu, count: 3}]",
    );
    let input = CLASS.to_owned() + &either + &pods("ml", "either", 1);
    let quota = |hard: i64| quota(&format!("gpu.deviceclass.resource.k8s.io/devices: '{hard}'"));
    assert_eq!(waiting(&(input.clone() + &quota(2))).0, ["ml/p0"]);
    assert_eq!(waiting(&(input + &quota(3))).0, Vec::<String>::new());
}

#[test]
fn a_quota_of_zero_lets_no_claim_be_made_and_limits_extended_resources_too() {
    let class = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {extendedResourceName: \
                 example.com/gpu}}\n";
    let one = template("one", "exactly: {deviceClassName: gpu, count: 1}");
    let input = class.to_owned() + &one + &pods("ml", "one", 1);
    for (hard, what) in [
        ("count/resourceclaims.resource.k8s.io", "ResourceClaims"),
        ("gpu.deviceclass.resource.k8s.io/devices", "devices of class gpu"),
        ("requests.example.com/gpu", "devices that count as example.com/gpu"),
        (
            "requests.deviceclass.resource.kubernetes.io/gpu",
            "devices that count as deviceclass.resource.kubernetes.io/gpu",
        ),
    ] {
        let (names, why) = waiting(&(input.clone() + &quota(&format!("{hard}: '0'"))));
        let expected = format!("ResourceQuota ml/q limits {what}: used 0, hard 0, and its ResourceClaim would take 1");
        assert_eq!((names, why), (vec!["ml/p0".to_owned()], expected));
        let enough = waiting(&(input.clone() + &quota(&format!("{hard}: '1'"))));
        assert_eq!(enough.0, Vec::<String>::new(), "{hard}");
    }
    // The claim for extended resources, which the scheduler makes.
    let asks = "---\n{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: ml, uid: x}, spec: {containers: [{name: c, \
                resources: {limits: {example.com/gpu: '2'}}}]}}\n";
    let devices = "gpu.deviceclass.resource.k8s.io/devices";
    let (names, why) = waiting(&(class.to_owned() + asks + &quota(&format!("{devices}: '1'"))));
    let expected = "ResourceQuota ml/q limits devices of class gpu: used 0, hard 1, and its ResourceClaim would take 2";
    assert_eq!((names, why), (vec!["ml/x".to_owned()], expected.to_owned()));
    // What it has made counts once, before the pod's status names it too.
    let made = "---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x-1, namespace: ml, annotations: \
                {resource.kubernetes.io/extended-resource-claim: 'true'}, ownerReferences: [{apiVersion: v1, kind: Pod, name: x, \
                uid: x, controller: true}]}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]}}}\n";
    let waiting_for =
        |hard: usize| waiting(&(class.to_owned() + asks + made + &quota(&format!("{devices}: '{hard}'")))).0;
    assert_eq!(waiting_for(2), Vec::<String>::new());
    // Where a device plugin has them, no claim is made.
    let plugin =
        "---\n{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {allocatable: {example.com/gpu: '8'}}}\n";
    let input = class.to_owned() + asks + plugin + &quota(&format!("{devices}: '1'"));
    assert_eq!(waiting(&input).0, Vec::<String>::new());
}

/// A class that serves an extended resource, and pods that ask for so many of it each, the oldest first.
fn extended(resource: &str, requests: &[usize]) -> String {
    let mut text =
        "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {extendedResourceName: \
                    example.com/gpu}}\n"
            .to_owned();
    for (index, count) in requests.iter().enumerate() {
        let _ = writeln!(
            text,
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: x{index}, namespace: ml, uid: x{index}, creationTimestamp: \
             '2026-01-01T00:00:0{index}Z'}}, spec: {{containers: [{{name: c, resources: {{limits: {{{resource}: \
             '{count}'}}}}}}]}}}}"
        );
    }
    text
}

/// A claim made at that minute for the extended resources of a pod.
fn claim_for(pod: &str, name: &str, minute: usize) -> String {
    format!(
        "---\n{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}, namespace: ml, \
         creationTimestamp: '2026-01-02T00:0{minute}:00Z', annotations: {{resource.kubernetes.io/extended-resource-claim: \
         'true'}}, ownerReferences: [{{apiVersion: v1, kind: Pod, name: {pod}, uid: {pod}, controller: true}}]}}, spec: \
         {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu, count: 2}}}}]}}}}}}\n"
    )
}

#[test]
fn what_a_pod_asks_for_is_not_counted_again_with_the_claim_that_serves_it() {
    let (explicit, implicit) = ("example.com/gpu", "deviceclass.resource.kubernetes.io/gpu");
    let limits =
        |resource: &str, why: &str| Some(format!("ResourceQuota ml/q limits devices that count as {resource}: {why}"));
    let cases = [
        // The status counts the pod, or nobody has counted it yet.
        (explicit, explicit, 2, Some(2), None),
        (explicit, explicit, 2, Some(0), None),
        (explicit, explicit, 2, None, None),
        (implicit, implicit, 2, Some(2), None),
        // A pod that is in the status was let in before the limit was lowered.
        (explicit, explicit, 1, Some(2), None),
        // One that nobody has counted would not be created.
        (explicit, explicit, 1, None, limits(explicit, "used 0, hard 1, and the pod asks for 2")),
        (explicit, explicit, 3, Some(2), None),
        // Under the other name of the class only the claim counts.
        (explicit, implicit, 2, None, None),
        (explicit, implicit, 1, None, limits(implicit, "used 0, hard 1, and its ResourceClaim would take 2")),
        (implicit, explicit, 3, Some(2), limits(explicit, "used 2, hard 3, and its ResourceClaim would take 2")),
    ];
    for (asked, limited, hard, used, expected) in cases {
        let mut quota = quota(&format!("requests.{limited}: '{hard}'"));
        if let Some(used) = used {
            let status = format!("hard: {{requests.{limited}: '{hard}'}}, used: {{requests.{limited}: '{used}'}}");
            quota = quota.replace("}}}\n", &format!("}}}}, status: {{{status}}}}}\n"));
        }
        let (names, why) = waiting(&(extended(asked, &[2]) + &quota));
        let found = (!names.is_empty()).then_some(why);
        assert_eq!(found, expected, "{asked} with {limited}: {hard}, {used:?}");
    }
}

#[test]
fn pods_that_nobody_has_counted_are_let_in_by_age_as_far_as_the_quota_goes() {
    let quota = |hard: i64| quota(&format!("requests.example.com/gpu: '{hard}'"));
    let (names, why) = waiting(&(extended("example.com/gpu", &[2, 2, 1]) + &quota(3)));
    assert_eq!(names, ["ml/x1"]);
    assert_eq!(
        why,
        "ResourceQuota ml/q limits devices that count as example.com/gpu: used 2, hard 3, and the pod asks for 2"
    );
    // A pod that runs counts before them, one that has ended does not.
    let bound = |status: &str| {
        extended("example.com/gpu", &[2, 2]).replacen(
            "spec: {containers",
            &format!("status: {{phase: {status}}}, spec: {{nodeName: node-1, containers"),
            1,
        )
    };
    let claim = claim_for("x0", "a", 0);
    assert_eq!(waiting(&(bound("Running") + &claim + &quota(3))).0, ["ml/x1"]);
    assert_eq!(waiting(&(bound("Running") + &claim + &quota(4))).0, [""; 0]);
    assert_eq!(waiting(&(bound("Succeeded") + &quota(2))).0, [""; 0]);
    // What a claim has beyond the pod counts for others, and a claim of a template counts whole.
    let one = template("one", "exactly: {deviceClassName: gpu, count: 1}") + &pods("ml", "one", 1);
    let (names, why) = waiting(&(bound("Running") + &claim + &one + &quota(4)));
    assert_eq!(names, ["ml/p0"]);
    assert!(why.ends_with("used 4, hard 4, and its ResourceClaim would take 1"), "{why}");
}

#[test]
fn of_several_claims_for_a_pods_extended_resources_one_is_not_counted_again() {
    let devices = |claims: &str, hard: i64| {
        let quota = quota(&format!("requests.example.com/gpu: '{hard}'"));
        waiting(&(extended("example.com/gpu", &[2, 1]) + claims + &quota)).0
    };
    let (older, newer) = (claim_for("x0", "b", 1), claim_for("x0", "a", 2));
    assert_eq!(devices(&older, 3), [""; 0]);
    assert_eq!(devices(&(older.clone() + &newer), 5), [""; 0]);
    assert_eq!(devices(&(older + &newer), 4), ["ml/x1"]);
    // Of a pod that is gone the claim counts.
    assert_eq!(devices(&claim_for("gone", "c", 1), 4), ["ml/x1"]);
    assert_eq!(devices(&claim_for("gone", "c", 1), 5), [""; 0]);
}

#[test]
fn every_class_has_an_extended_resource_of_its_own() {
    let two = template("two", "exactly: {deviceClassName: gpu, count: 2}");
    let input = CLASS.to_owned() + &two + &pods("ml", "two", 1);
    let quota = |hard: i64| quota(&format!("requests.deviceclass.resource.kubernetes.io/gpu: '{hard}'"));
    assert_eq!(waiting(&(input.clone() + &quota(1))).0, ["ml/p0"]);
    assert_eq!(waiting(&(input + &quota(2))).0, [""; 0]);
}

#[test]
fn a_claim_that_a_group_shares_counts_once_and_all_its_pods_wait_for_it() {
    let two = template("two", "exactly: {deviceClassName: gpu, count: 2}");
    let group = "---\n{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: g, namespace: ml}, spec: \
                 {schedulingPolicy: {basic: {}}, resourceClaims: [{name: d, resourceClaimTemplateName: two}]}}\n";
    let mut input = CLASS.to_owned() + &two + group;
    for index in 0..3 {
        let _ = writeln!(
            input,
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{index}, namespace: ml, uid: ml-{index}}}, spec: \
             {{schedulingGroup: {{podGroupName: g}}, containers: [{{name: c}}], \
             resourceClaims: [{{name: d, resourceClaimTemplateName: two}}]}}}}"
        );
    }
    let quota = |hard: i64| quota(&format!("gpu.deviceclass.resource.k8s.io/devices: '{hard}'"));
    let compat = Compat::with_gates(KubernetesMinor::NEWEST, Gates::all(KubernetesMinor::NEWEST));
    let waiting = |text: &str| waiting_in(text, |cluster| cluster.devices.compat = compat).0;
    assert_eq!(waiting(&(input.clone() + &quota(2))), Vec::<String>::new());
    assert_eq!(waiting(&(input + &quota(1))), ["ml/p0", "ml/p1", "ml/p2"]);
}

#[test]
fn in_a_cluster_a_pod_waits_until_its_claim_was_made() {
    let two = template("two", "exactly: {deviceClassName: gpu, count: 2}");
    let unschedulable = ", status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}}";
    let pods = pods("ml", "two", 2).replace("}]}}\n", &format!("}}]}}{unschedulable}\n"));
    let input = CLASS.to_owned() + &two + &pods + &claim(0);
    let live = |cluster: &mut Cluster| cluster.pending = PendingRule::Unschedulable;
    let (names, why) = waiting_in(&input, live);
    assert_eq!(names, ["ml/p1"]);
    assert_eq!(why, "its ResourceClaim for \"d\" has not been made yet");
}
