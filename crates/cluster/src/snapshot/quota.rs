//! ResourceClaims that nobody will make because a ResourceQuota forbids them.
//!
//! kube-controller-manager makes a claim for each template that a pod names. Where a quota of the namespace is used up,
//! it cannot, and kube-scheduler does not look at the pod. A machine for such a pod would stay empty. Here the claims
//! that are to be made are counted against the quotas in the order of the pods' ages; those of pods that come too late
//! wait.
//!
//! Left out: claims that PodGroups share, which are made once for all their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::pods::{Claims, WantedClaim, claims};
use dra_types::{Allocation, AllocationMode, ExactRequest, RequestKind, ResourceClaimSpec};
use model::quota::QuotaResource;
use model::{NamespacedName, Pod, Uid};

use super::Cluster;

/// What is left of an entry of a quota.
struct Left {
    quota: NamespacedName,
    resource: QuotaResource,
    hard: i64,
    left: i64,
}

/// Of these pods the ones whose claims a quota forbids, with a sentence about it.
pub(super) fn forbidden<'p>(cluster: &Cluster, pods: impl Iterator<Item = &'p Pod>) -> BTreeMap<Uid, Arc<str>> {
    let mut quotas = quotas(cluster);
    let mut forbidden = BTreeMap::new();
    if quotas.is_empty() {
        return forbidden;
    }
    let mut by_age: Vec<&Pod> = pods.filter(|pod| quotas.contains_key(&pod.name.namespace)).collect();
    by_age.sort_by_key(|pod| (pod.created_at, &pod.name));
    let objects = &cluster.devices.objects;
    let known = Claims { claims: &objects.claims, templates: &objects.claim_templates, groups: &objects.pod_groups };
    for pod in by_age {
        let Some(devices) = cluster.devices.pods.get(&pod.uid) else { continue };
        // What else is wrong with the pod's claims is told where they are planned.
        let Ok(wanted) = claims(devices, &known, &cluster.devices.compat) else { continue };
        let Some(quotas) = quotas.get_mut(&pod.name.namespace) else { continue };
        for claim in wanted {
            let template = match claim {
                WantedClaim::Fresh { template, .. } => objects.claim_templates.get(&template),
                WantedClaim::Existing { .. } | WantedClaim::OfGroup { .. } => None,
            };
            let Some(template) = template else { continue };
            if let Err(why) = take(quotas, &usage(&template.spec)) {
                forbidden.insert(pod.uid.clone(), why);
                break;
            }
        }
    }
    forbidden
}

/// What is left of each quota, by namespace. The status of a quota follows what there is with a delay, so the claims
/// are counted too.
fn quotas(cluster: &Cluster) -> BTreeMap<Arc<str>, Vec<Left>> {
    let mut quotas: BTreeMap<Arc<str>, Vec<Left>> = BTreeMap::new();
    for quota in &cluster.resource_quotas {
        for limit in &quota.limits {
            let namespace = &quota.name.namespace;
            let made = cluster.devices.objects.claims.values().filter(|claim| claim.meta.name.namespace == *namespace);
            let counted: i64 = made.map(|claim| count(&usage(&claim.spec), &limit.resource)).sum();
            quotas.entry(Arc::clone(namespace)).or_default().push(Left {
                quota: quota.name.clone(),
                resource: limit.resource.clone(),
                hard: limit.hard,
                left: limit.hard.saturating_sub(limit.used.unwrap_or(0).max(counted)),
            });
        }
    }
    quotas
}

/// Takes what a claim uses of all quotas, or of none if one has not enough left.
fn take(quotas: &mut [Left], usage: &BTreeMap<QuotaResource, i64>) -> Result<(), Arc<str>> {
    if let Some(full) = quotas.iter().find(|quota| count(usage, &quota.resource) > quota.left.max(0)) {
        let Left { quota, resource, hard, left } = full;
        let (wanted, left) = (count(usage, resource), (*left).max(0));
        let what = match resource {
            QuotaResource::Claims => "ResourceClaims".to_owned(),
            QuotaResource::Devices(class) => format!("devices of class {class}"),
        };
        return Err(format!(
            "ResourceQuota {quota} allows {hard} {what} and has {left} left, its ResourceClaim would take {wanted}"
        )
        .into());
    }
    for quota in quotas {
        quota.left = quota.left.saturating_sub(count(usage, &quota.resource));
    }
    Ok(())
}

fn count(usage: &BTreeMap<QuotaResource, i64>, resource: &QuotaResource) -> i64 {
    usage.get(resource).copied().unwrap_or(0)
}

/// What quotas count of a claim: of alternatives the most of each class.
fn usage(spec: &ResourceClaimSpec) -> BTreeMap<QuotaResource, i64> {
    let mut usage = BTreeMap::from([(QuotaResource::Claims, 1)]);
    for request in &spec.requests {
        let alternatives: Vec<&ExactRequest> = match &request.kind {
            RequestKind::Exactly(exactly) => vec![exactly],
            RequestKind::FirstAvailable(alternatives) => alternatives.iter().map(|(_, request)| request).collect(),
            RequestKind::Neither => Vec::new(),
        };
        let mut most: BTreeMap<QuotaResource, i64> = BTreeMap::new();
        for alternative in alternatives {
            let class = QuotaResource::Devices(Arc::from(alternative.device_class_name.as_str()));
            let devices = match alternative.allocation_mode {
                AllocationMode::ExactCount(count) => count,
                AllocationMode::All => i64::try_from(Allocation::MAX_RESULTS).unwrap_or(i64::MAX),
                AllocationMode::Other(_) => 0,
            };
            let known = most.entry(class).or_default();
            *known = devices.max(*known);
        }
        for (class, devices) in most {
            let sum = usage.entry(class).or_default();
            *sum = devices.saturating_add(*sum);
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use api::labels::ProviderLabels;

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
        let labels = ProviderLabels::default();
        let parsed = manifests::parse("in.yaml", text);
        let offline = offline::read(parsed.manifests, parsed.errors, &Settings::new(&[], &labels, &[]));
        assert!(offline.problems.is_empty(), "{:?}", offline.problems);
        let (snapshot, _) = crate::snapshot(offline.cluster, offline.interner, &labels);
        let waiting = snapshot.pods.iter().filter(|pending| pending.waits_for.is_some());
        let names = waiting.clone().map(|pending| pending.pod.name.to_string()).collect();
        (
            names,
            waiting.clone().filter_map(|pending| pending.waits_for.as_deref()).next().unwrap_or_default().to_owned(),
        )
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
            "ResourceQuota ml/q allows 6 devices of class gpu and has 0 left, its ResourceClaim would take 2"
        );
        let (names, why) = waiting(&(input + &made + &quota("count/resourceclaims.resource.k8s.io: '4'")));
        assert_eq!(names, ["ml/p2"]);
        assert_eq!(why, "ResourceQuota ml/q allows 4 ResourceClaims and has 0 left, its ResourceClaim would take 1");
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
}
