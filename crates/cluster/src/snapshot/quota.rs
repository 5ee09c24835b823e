//! Pods whose ResourceClaims are not made: because a ResourceQuota forbids them, or because nobody has made them yet.
//!
//! kube-controller-manager makes a claim for each template that a pod names, and kube-scheduler one for its extended
//! resources. Where a quota of the namespace is used up, they cannot, and the pod is never bound: a machine for it
//! would stay empty. Here the claims that are to be made are counted against the quotas in the order of the pods' ages;
//! those of pods that come too late wait. A claim that the pods of a group share counts once.
//!
//! In a cluster a pod also waits until its claims were made, as kube-scheduler does not look at it before (`PreEnqueue`
//! of its DynamicResources plugin). Manifests have nobody who makes claims.
//!
//! Left out: sums of node resources that devices hand out, for which no release has a quota yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dra_sched::pods::{ExtendedResources, Served, WantedClaim, claims, served_extended_resources};
use dra_types::{
    Allocation, AllocationMode, DeviceClass, ExactRequest, Gate, RequestKind, ResourceClaimSpec, Resources,
};
use model::quota::QuotaResource;
use model::{Interner, NamespacedName, Pod, Uid};

use super::{Cluster, PendingRule};

/// What is left of an entry of a quota.
struct Left {
    quota: NamespacedName,
    resource: QuotaResource,
    hard: i64,
    used: i64,
}

/// What quotas count: by resource.
type Usage = BTreeMap<QuotaResource, i64>;

/// Of these pods the ones whose claims are not made, with a sentence about it.
pub(super) fn without_claims<'p>(
    cluster: &Cluster,
    pods: impl Iterator<Item = &'p Pod>,
    interner: &Interner,
) -> BTreeMap<Uid, Arc<str>> {
    let mut waiting = BTreeMap::new();
    let is_live = cluster.pending == PendingRule::Unschedulable;
    let quotas = quotas(cluster);
    if !is_live && quotas.is_empty() {
        return waiting;
    }
    let is_concerned = |pod: &&Pod| is_live || quotas.contains_key(&pod.name.namespace);
    let with_devices = |pod: &&Pod| cluster.devices.pods.contains_key(&pod.uid);
    let mut by_age: Vec<&Pod> = pods.filter(is_concerned).filter(with_devices).collect();
    by_age.sort_by_key(|pod| (pod.created_at, &pod.name));
    let mut making = Making::new(cluster, quotas, interner);
    for pod in by_age {
        let Some(devices) = cluster.devices.pods.get(&pod.uid) else { continue };
        if let Err(why) = making.claims_of(devices, is_live) {
            waiting.insert(pod.uid.clone(), why);
        }
    }
    waiting
}

/// Claims that are made one after the other, as far as quotas allow.
struct Making<'c> {
    cluster: &'c Cluster,
    quotas: BTreeMap<Arc<str>, Vec<Left>>,
    /// The claims of groups, by group and entry: whether they can be made.
    of_groups: BTreeMap<(NamespacedName, Arc<str>), Result<(), Arc<str>>>,
    extended: ExtendedResources,
    /// Pods whose claim for extended resources there is, also if their status does not name it yet.
    served: BTreeSet<&'c Uid>,
    /// Extended resources that some node has of a device plugin, as upstream's scheduler would use before a claim.
    of_plugins: Resources,
}

impl<'c> Making<'c> {
    fn new(cluster: &'c Cluster, quotas: BTreeMap<Arc<str>, Vec<Left>>, interner: &Interner) -> Self {
        let classes = cluster.devices.objects.classes.values();
        let extended = ExtendedResources::new(classes.map(|class| &**class), &cluster.devices.compat);
        let made = cluster.devices.objects.claims.values();
        Self {
            cluster,
            quotas,
            of_groups: BTreeMap::new(),
            extended,
            served: made.filter_map(|claim| served_extended_resources(claim)).collect(),
            of_plugins: of_plugins(cluster, interner),
        }
    }

    /// Makes the claims that a pod has not got yet; says why that is not done.
    fn claims_of(&mut self, pod: &dra_types::Pod, is_live: bool) -> Result<(), Arc<str>> {
        let objects = &self.cluster.devices.objects;
        let known = objects.lookup();
        // What else is wrong with the pod's claims is told where they are planned.
        let Ok(wanted) = claims(pod, &known, &self.cluster.devices.compat) else { return Ok(()) };
        let namespace = &pod.meta.name.namespace;
        let mut unmade = None;
        for claim in wanted {
            let (template, group) = match &claim {
                WantedClaim::Existing { .. } => continue,
                WantedClaim::Fresh { template, .. } => (template, None),
                WantedClaim::OfGroup { entry, group, template } => (template, Some((group.clone(), Arc::clone(entry)))),
            };
            let Some(template) = objects.claim_templates.get(template) else { continue };
            unmade = unmade.or_else(|| Some(Arc::clone(claim.entry())));
            match group {
                None => self.take(namespace, &template.spec)?,
                Some(group) => {
                    if !self.of_groups.contains_key(&group) {
                        let made = self.take(namespace, &template.spec);
                        self.of_groups.insert(group.clone(), made);
                    }
                    self.of_groups.get(&group).cloned().unwrap_or(Ok(()))?;
                }
            }
        }
        // The scheduler makes this one when it binds the pod.
        let is_made = pod.extended_resource_claim.is_some() || self.served.contains(&pod.meta.uid);
        if !is_made && let Served::Claim(claim) = self.extended.serve(pod, &self.of_plugins) {
            self.take(namespace, &claim.spec)?;
        }
        match unmade.filter(|_| is_live) {
            Some(entry) => Err(format!("its ResourceClaim for {entry:?} has not been made yet").into()),
            None => Ok(()),
        }
    }

    /// Takes what a claim uses of all quotas, or of none if one has not enough left.
    fn take(&mut self, namespace: &Arc<str>, spec: &ResourceClaimSpec) -> Result<(), Arc<str>> {
        let Some(quotas) = self.quotas.get_mut(namespace) else { return Ok(()) };
        let usage = usage(spec, self.cluster);
        let is_short = |quota: &&Left| {
            let wanted = count(&usage, &quota.resource);
            wanted > 0 && quota.used.saturating_add(wanted) > quota.hard
        };
        if let Some(Left { quota, resource, hard, used }) = quotas.iter().find(is_short) {
            let what = match resource {
                QuotaResource::Claims => "ResourceClaims".to_owned(),
                QuotaResource::Devices(class) => format!("devices of class {class}"),
                QuotaResource::Extended(name) => format!("devices that count as {name}"),
            };
            let wanted = count(&usage, resource);
            return Err(format!(
                "ResourceQuota {quota} limits {what}: used {used}, hard {hard}, and its ResourceClaim would take {wanted}"
            )
            .into());
        }
        for quota in quotas {
            quota.used = quota.used.saturating_add(count(&usage, &quota.resource));
        }
        Ok(())
    }
}

/// What device plugins have on nodes, or will have on machines that can be launched.
fn of_plugins(cluster: &Cluster, interner: &Interner) -> Resources {
    let one = model::Quantity::from_milli(1000, model::quantity::Format::DecimalSi);
    let of_nodes = cluster.nodes.iter().map(|node| &node.allocatable);
    let types = cluster.node_pools.iter().flat_map(|pool| pool.catalogue.types.iter());
    let offered = of_nodes.chain(types.map(|of_type| &of_type.capacity));
    let names = offered.flat_map(|offered| offered.iter()).filter(|(_, amount)| *amount > 0);
    names.map(|(resource, _)| (Arc::from(interner.resource_name(resource)), one)).collect()
}

/// What each quota limits and how much of it is used, by namespace. The status of a quota follows what there is with a
/// delay, so the claims are counted too.
fn quotas(cluster: &Cluster) -> BTreeMap<Arc<str>, Vec<Left>> {
    let mut quotas: BTreeMap<Arc<str>, Vec<Left>> = BTreeMap::new();
    for quota in &cluster.resource_quotas {
        for limit in &quota.limits {
            let namespace = &quota.name.namespace;
            let made = cluster.devices.objects.claims.values().filter(|claim| claim.meta.name.namespace == *namespace);
            let counted: i64 = made.map(|claim| count(&usage(&claim.spec, cluster), &limit.resource)).sum();
            quotas.entry(Arc::clone(namespace)).or_default().push(Left {
                quota: quota.name.clone(),
                resource: limit.resource.clone(),
                hard: limit.hard,
                used: limit.used.unwrap_or(0).max(counted),
            });
        }
    }
    quotas
}

fn count(usage: &Usage, resource: &QuotaResource) -> i64 {
    usage.get(resource).copied().unwrap_or(0)
}

/// What quotas count of a claim: of alternatives the most of each class, and that under the class's extended resource
/// too.
fn usage(spec: &ResourceClaimSpec, cluster: &Cluster) -> Usage {
    let mut usage = Usage::from([(QuotaResource::Claims, 1)]);
    let extends = cluster.devices.compat.is_on(Gate::ExtendedResource);
    for request in &spec.requests {
        let alternatives: Vec<&ExactRequest> = match &request.kind {
            RequestKind::Exactly(exactly) => vec![exactly],
            RequestKind::FirstAvailable(alternatives) => alternatives.iter().map(|(_, request)| request).collect(),
            RequestKind::Neither => Vec::new(),
        };
        let mut most: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        for alternative in alternatives {
            let class: Arc<str> = Arc::from(alternative.device_class_name.as_str());
            let devices = match alternative.allocation_mode {
                AllocationMode::ExactCount(count) => count,
                AllocationMode::All => i64::try_from(Allocation::MAX_RESULTS).unwrap_or(i64::MAX),
                AllocationMode::Other(_) => 0,
            };
            let known = most.entry(class).or_default();
            *known = devices.max(*known);
        }
        for (class, devices) in most {
            let mut add = |resource: QuotaResource| {
                let sum = usage.entry(resource).or_default();
                *sum = devices.saturating_add(*sum);
            };
            let of_class = cluster.devices.objects.classes.get(&class).filter(|_| extends);
            if let Some(extended) = of_class.and_then(|class| class.extended_resource_name.as_ref()) {
                add(QuotaResource::Extended(Arc::clone(extended)));
                add(QuotaResource::Extended(format!("{}{class}", DeviceClass::EXTENDED_RESOURCE_PREFIX).into()));
            }
            add(QuotaResource::Devices(class));
        }
    }
    usage
}

#[cfg(test)]
mod tests {
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
            let expected =
                format!("ResourceQuota ml/q limits {what}: used 0, hard 0, and its ResourceClaim would take 1");
            assert_eq!((names, why), (vec!["ml/p0".to_owned()], expected));
            let enough = waiting(&(input.clone() + &quota(&format!("{hard}: '1'"))));
            assert_eq!(enough.0, Vec::<String>::new(), "{hard}");
        }
        // The claim for extended resources, which the scheduler makes.
        let asks = "---\n{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: ml, uid: x}, spec: {containers: [{name: c, \
                    resources: {limits: {example.com/gpu: '2'}}}]}}\n";
        let devices = "gpu.deviceclass.resource.k8s.io/devices";
        let (names, why) = waiting(&(class.to_owned() + asks + &quota(&format!("{devices}: '1'"))));
        let expected =
            "ResourceQuota ml/q limits devices of class gpu: used 0, hard 1, and its ResourceClaim would take 2";
        assert_eq!((names, why), (vec!["ml/x".to_owned()], expected.to_owned()));
        // What it has made counts once, before the pod's status names it too.
        let made = "---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x-1, namespace: ml, annotations: \
                    {resource.kubernetes.io/extended-resource-claim: 'true'}, ownerReferences: [{apiVersion: v1, kind: Pod, name: x, \
                    uid: x, controller: true}]}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]}}}\n";
        let waiting_for =
            |hard: usize| waiting(&(class.to_owned() + asks + made + &quota(&format!("{devices}: '{hard}'")))).0;
        assert_eq!(waiting_for(2), Vec::<String>::new());
        // Where a device plugin has them, no claim is made.
        let plugin = "---\n{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {allocatable: {example.com/gpu: '8'}}}\n";
        let input = class.to_owned() + asks + plugin + &quota(&format!("{devices}: '1'"));
        assert_eq!(waiting(&input).0, Vec::<String>::new());
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
}
