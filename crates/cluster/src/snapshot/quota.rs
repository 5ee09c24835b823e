//! Pods whose ResourceClaims are not made: because a ResourceQuota forbids them, or because nobody has made them yet.
//!
//! kube-controller-manager makes a claim for each template that a pod names, and kube-scheduler one for its extended
//! resources. Where a quota of the namespace is used up, they cannot, and the pod is never bound: a machine for it
//! would stay empty. Here the claims that are to be made are counted against the quotas in the order of the pods' ages;
//! those of pods that come too late wait. A claim that the pods of a group share counts once.
//!
//! An extended resource is counted when a pod that asks for it is created. Of the claim that then serves it only what
//! goes beyond that is counted under the resource (`getVerifiedPodUsage`, `addExtendedResourceQuota` of Kubernetes'
//! `pkg/quota/v1/evaluator/core/resource_claims.go`). In a cluster a quota's status counts all pods that are there.
//! Pods from manifests may be in it or not, so they are counted here by age: one that goes beyond both the quota and
//! what its status counts would not be created.
//!
//! In a cluster a pod also waits until its claims were made, as kube-scheduler does not look at it before (`PreEnqueue`
//! of its DynamicResources plugin). Manifests have nobody who makes claims.
//!
//! Left out: sums of node resources that devices hand out, for which no release has a quota yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dra_sched::pods::{ExtendedResources, Served, WantedClaim, claims, served_extended_resources};
use dra_types::{
    Allocation, AllocationMode, DeviceClass, ExactRequest, Gate, RequestKind, ResourceClaim, ResourceClaimSpec,
    Resources,
};
use model::quota::QuotaResource;
use model::{Interner, NamespacedName, Pod, Uid};

use super::{Cluster, PendingRule};

/// What is left of an entry of a quota.
struct Left {
    quota: NamespacedName,
    resource: QuotaResource,
    hard: i64,
    /// What the quota's status counts, and what was planned since.
    in_status: i64,
    /// What was counted here.
    counted: i64,
}

impl Left {
    /// The status of a quota follows what there is with a delay, and manifests may have none.
    fn used(&self) -> i64 {
        self.in_status.max(self.counted)
    }
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
    // What DaemonSets' pods want is kept as that of a pod too.
    let sets = cluster.daemon_sets.iter().map(|set| &set.uid);
    let no_others: BTreeSet<&Uid> = by_age.iter().map(|pod| &pod.uid).chain(sets).collect();
    for (_, pod) in cluster.devices.pods.iter().filter(|(uid, _)| !no_others.contains(uid)) {
        making.count(pod);
    }
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
        // The scheduler makes this one when it binds the pod.
        let is_made = pod.extended_resource_claim.is_some() || self.served.contains(&pod.meta.uid);
        let of_scheduler = match self.extended.serve(pod, &self.of_plugins) {
            Served::Claim(claim) if !is_made => Some(claim),
            Served::Claim(_) | Served::Missing(_) | Served::Stranded(_) | Served::Elsewhere => None,
        };
        self.count(pod);
        if of_scheduler.is_some() && !is_live {
            self.admit(pod)?;
        }
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
                None => self.take(namespace, usage(&template.spec, self.cluster))?,
                Some(group) => {
                    if !self.of_groups.contains_key(&group) {
                        let made = self.take(namespace, usage(&template.spec, self.cluster));
                        self.of_groups.insert(group.clone(), made);
                    }
                    self.of_groups.get(&group).cloned().unwrap_or(Ok(()))?;
                }
            }
        }
        if let Some(claim) = of_scheduler {
            self.take(namespace, beyond(usage(&claim.spec, self.cluster), pod))?;
        }
        match unmade.filter(|_| is_live) {
            Some(entry) => Err(format!("its ResourceClaim for {entry:?} has not been made yet").into()),
            None => Ok(()),
        }
    }

    /// Counts the extended resources that a pod asks for and classes serve.
    fn count(&mut self, pod: &dra_types::Pod) {
        for (left, asked) in asked_of(&mut self.quotas, &self.extended, pod) {
            left.counted = left.counted.saturating_add(asked);
        }
    }

    /// Whether a pod from a manifest, which was counted, can be created. One that cannot is counted no more.
    fn admit(&mut self, pod: &dra_types::Pod) -> Result<(), Arc<str>> {
        let mut asked = asked_of(&mut self.quotas, &self.extended, pod);
        let is_short = |(left, _): &&(&mut Left, i64)| left.counted > left.hard.max(left.in_status);
        let Some((left, wanted)) = asked.iter().find(is_short) else { return Ok(()) };
        let used = left.used().saturating_sub(*wanted);
        let why = refusal(left, used, format_args!("the pod asks for {wanted}"));
        for (left, asked) in &mut asked {
            left.counted = left.counted.saturating_sub(*asked);
        }
        Err(why)
    }

    /// Takes what a claim uses of all quotas, or of none if one has not enough left.
    fn take(&mut self, namespace: &Arc<str>, usage: Usage) -> Result<(), Arc<str>> {
        let Some(quotas) = self.quotas.get_mut(namespace) else { return Ok(()) };
        let is_short = |left: &&Left| {
            let wanted = count(&usage, &left.resource);
            wanted > 0 && left.used().saturating_add(wanted) > left.hard
        };
        if let Some(left) = quotas.iter().find(is_short) {
            let wanted = count(&usage, &left.resource);
            return Err(refusal(left, left.used(), format_args!("its ResourceClaim would take {wanted}")));
        }
        for left in quotas {
            let wanted = count(&usage, &left.resource);
            left.in_status = left.in_status.saturating_add(wanted);
            left.counted = left.counted.saturating_add(wanted);
        }
        Ok(())
    }
}

/// Entries of quotas that count an extended resource which the pod asks for and a class serves, and how much of it.
fn asked_of<'q>(
    quotas: &'q mut BTreeMap<Arc<str>, Vec<Left>>,
    extended: &ExtendedResources,
    pod: &dra_types::Pod,
) -> Vec<(&'q mut Left, i64)> {
    let Some(quotas) = quotas.get_mut(&pod.meta.name.namespace) else { return Vec::new() };
    let asked = asked(pod);
    let of = |resource: &QuotaResource| match resource {
        QuotaResource::Extended(name) if extended.class(name).is_some() => asked.get(name).copied(),
        QuotaResource::Extended(_) | QuotaResource::Claims | QuotaResource::Devices(_) => None,
    };
    quotas.iter_mut().filter_map(|left| of(&left.resource).map(|asked| (left, asked))).collect()
}

fn refusal(left: &Left, used: i64, wanted: std::fmt::Arguments<'_>) -> Arc<str> {
    let what = match &left.resource {
        QuotaResource::Claims => "ResourceClaims".to_owned(),
        QuotaResource::Devices(class) => format!("devices of class {class}"),
        QuotaResource::Extended(name) => format!("devices that count as {name}"),
    };
    format!("ResourceQuota {} limits {what}: used {used}, hard {}, and {wanted}", left.quota, left.hard).into()
}

/// What quotas count of a pod by itself: what it asks for, by resource, until it has ended.
fn asked(pod: &dra_types::Pod) -> BTreeMap<Arc<str>, i64> {
    if pod.is_terminal {
        return BTreeMap::new();
    }
    let mut asked = BTreeMap::new();
    for (name, amount) in pod.container_requests().iter().chain(&pod.overhead).filter(|(name, _)| name.contains('/')) {
        let sum: &mut i64 = asked.entry(Arc::clone(name)).or_default();
        *sum = sum.saturating_add(amount.value().unwrap_or(i64::MAX));
    }
    asked
}

/// What quotas count of the claim that serves a pod's extended resources, beyond what they count of the pod.
fn beyond(mut usage: Usage, pod: &dra_types::Pod) -> Usage {
    for (name, asked) in asked(pod) {
        if let Some(devices) = usage.get_mut(&QuotaResource::Extended(name)) {
            *devices = devices.saturating_sub(asked).max(0);
        }
    }
    usage
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

/// What each quota limits and how much of it claims use, by namespace.
fn quotas(cluster: &Cluster) -> BTreeMap<Arc<str>, Vec<Left>> {
    let claims = &cluster.devices.objects.claims;
    let limited: BTreeSet<&Arc<str>> = cluster.resource_quotas.iter().map(|quota| &quota.name.namespace).collect();
    let mut used: BTreeMap<&Arc<str>, Vec<Usage>> = BTreeMap::new();
    let first = first_of_pods(cluster);
    for claim in claims.values().filter(|claim| limited.contains(&claim.meta.name.namespace)) {
        let usage = usage(&claim.spec, cluster);
        let usage = match served_pod(claim, cluster, &first) {
            Some(pod) => beyond(usage, pod),
            None => usage,
        };
        used.entry(&claim.meta.name.namespace).or_default().push(usage);
    }
    let mut quotas: BTreeMap<Arc<str>, Vec<Left>> = BTreeMap::new();
    for quota in &cluster.resource_quotas {
        for limit in &quota.limits {
            let namespace = &quota.name.namespace;
            let made = used.get(namespace).into_iter().flatten();
            quotas.entry(Arc::clone(namespace)).or_default().push(Left {
                quota: quota.name.clone(),
                resource: limit.resource.clone(),
                hard: limit.hard,
                in_status: limit.used.unwrap_or(0),
                counted: made.map(|usage| count(usage, &limit.resource)).sum(),
            });
        }
    }
    quotas
}

/// By pod, the claim that was made first for its extended resources.
fn first_of_pods(cluster: &Cluster) -> BTreeMap<&Uid, &Arc<str>> {
    fn age(claim: &ResourceClaim) -> impl Ord + '_ {
        (claim.meta.created_at, &claim.meta.name.name)
    }
    let mut first: BTreeMap<&Uid, &ResourceClaim> = BTreeMap::new();
    for claim in cluster.devices.objects.claims.values() {
        let Some(pod) = served_extended_resources(claim) else { continue };
        let known = first.entry(pod).or_insert(claim);
        if age(claim) < age(known) {
            *known = claim;
        }
    }
    first.into_iter().map(|(pod, claim)| (pod, &claim.meta.name.name)).collect()
}

/// The pod whose extended resources a claim serves, if they are not counted with another claim.
fn served_pod<'c>(
    claim: &ResourceClaim,
    cluster: &'c Cluster,
    first: &BTreeMap<&Uid, &Arc<str>>,
) -> Option<&'c dra_types::Pod> {
    let pod = cluster.devices.pods.get(served_extended_resources(claim)?)?;
    let counted = pod.extended_resource_claim.as_ref().or_else(|| first.get(&pod.meta.uid).copied());
    let is_it = pod.meta.name.namespace == claim.meta.name.namespace && counted == Some(&claim.meta.name.name);
    is_it.then_some(pod)
}

fn count(usage: &Usage, resource: &QuotaResource) -> i64 {
    usage.get(resource).copied().unwrap_or(0)
}

/// What quotas count of a claim: of alternatives the most of each class, and that under the class's extended resources
/// too: the one that it names, and the one that every class has.
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
            if let Some(of_class) = cluster.devices.objects.classes.get(&class).filter(|_| extends) {
                if let Some(extended) = &of_class.extended_resource_name {
                    add(QuotaResource::Extended(Arc::clone(extended)));
                }
                add(QuotaResource::Extended(format!("{}{class}", DeviceClass::EXTENDED_RESOURCE_PREFIX).into()));
            }
            add(QuotaResource::Devices(class));
        }
    }
    usage
}

#[cfg(test)]
mod tests;
