//! Pods with the same scheduling shape are one class with a count. Everything after this file works on classes; pods
//! come back when a class's copies are dealt out to their places.

use std::{borrow::Cow, cmp::Reverse, sync::Arc};

use api::labels;
use dra_sched::ClaimUse;
use model::{
    IdVec, Interner, NamespacedName, PodShape, Requirements, ResourceId, ResourceVec, Unsupported, ValueSet,
    collections::FastMap, define_id, pod::PodAffinityTerm,
};

use super::request::Request;
use super::supported::{self, Obstacle};
use crate::simulation::topology;
use crate::simulation::topology::{
    AffinitySet, Coupling, GroupId, Involvement, Kind, MatchedByLabels, Owned, Signature, Topology,
};
use crate::snapshot::affinity::{Term, narrowed, terms_with_volumes};
use crate::{
    devices::{Demand, DemandId},
    snapshot::{PodId, Snapshot},
};

define_id! {
    /// A class of pods; ids follow the order in which classes are placed.
    pub(crate) struct ClassId;
}

/// Pods that are interchangeable for planning.
#[derive(Debug)]
pub(crate) struct PodClass {
    pub(crate) shape: Arc<PodShape>,
    pub(crate) priority: i32,
    /// Oldest first, then by name: the order in which kube-scheduler's queue would pop them.
    pub(crate) members: Vec<PodId>,
    /// A node must satisfy one of them.
    pub(crate) terms: Vec<Term>,
    /// Set when no place is looked for.
    pub(crate) refused: Option<Obstacle>,
    /// Set when its claims keep it from every node.
    pub(crate) claim_fault: Option<Arc<str>>,
    /// What it wants of devices.
    pub(crate) devices: Option<ClassDevices>,
    /// Rules that couple it with other pods; none for most.
    pub(crate) involved: Vec<Involvement>,
    /// Which of them are affinity of its own.
    pub(crate) affinity_sets: Vec<AffinitySet>,
    /// Whether no two copies share a host, and nothing else has to be there first.
    pub(crate) needs_host_alone: bool,
}

/// What a class wants of devices.
#[derive(Debug)]
pub(crate) struct ClassDevices {
    pub(crate) demand: DemandId,
    /// Requests without what comes from DRA, by variant of the demand.
    requests: Vec<ResourceVec>,
    /// Whether its pods use claims that other pods can use too.
    pub(crate) shares_claims: bool,
    /// Whether some request has alternatives.
    pub(crate) has_alternatives: bool,
}

/// Pods of one shape and one signature; several variants can still be one class.
struct Variant {
    shape: Arc<PodShape>,
    priority: i32,
    demand: Option<DemandId>,
    waits_for: Option<Arc<str>>,
    stays_within: Option<Arc<Requirements>>,
    /// Whether a pass left them out.
    is_left_out: bool,
    members: Vec<PodId>,
}

/// Groups the request's pods, and orders the classes: higher priority first, then those of which each pod needs a host
/// without another, then the class that takes the largest share of `largest` (the most that any machine or node has,
/// per resource), then more CPU, more memory, then the name of the first pod. A class that has to be near to another
/// comes after it, whatever the order otherwise.
pub(crate) fn classes(request: &Request<'_>, largest: &ResourceVec) -> (IdVec<ClassId, PodClass>, Topology) {
    let snapshot = &*request.snapshot;
    let names = &*snapshot.interner;
    let mut builder = topology::Builder::new(snapshot);
    let variants = variants(request, &builder);
    // All groups have to be known before it can be said which of them match a class, so this takes two steps.
    let owned: Vec<Result<Owned, Unsupported>> = variants
        .iter()
        .map(|variant| match variant.members.first() {
            Some(&pod) => builder.own(&snapshot.pods[pod]),
            None => Ok(Owned::default()),
        })
        .collect();
    builder.add_running();
    let mut matched_by_labels = MatchedByLabels::default();
    let mut classes: Vec<PodClass> = Vec::new();
    type Within = Option<Arc<Requirements>>;
    type ClassKey = (i32, Arc<PodShape>, Option<DemandId>, Option<Arc<str>>, Within, bool, Coupling);
    let mut by_key: FastMap<ClassKey, usize> = FastMap::default();
    for (variant, owned) in variants.into_iter().zip(owned) {
        let (owned, refused) = match owned {
            Ok(owned) => (owned, None),
            Err(unsupported) => (Owned::default(), Some(Obstacle::Unsupported(unsupported))),
        };
        let Some(&first) = variant.members.first() else { continue };
        let coupling = builder.coupling(&snapshot.pods[first], &owned, &mut matched_by_labels);
        let (waits_for, within) = (variant.waits_for.clone(), variant.stays_within.clone());
        let shape = Arc::clone(&variant.shape);
        // Variants that rules treat alike are one class, though their labels differ.
        let key = (variant.priority, shape, variant.demand, waits_for, within, variant.is_left_out, coupling);
        if let Some(class) = by_key.get(&key).and_then(|&index| classes.get_mut(index)) {
            class.members.extend(variant.members);
            continue;
        }
        let coupling = key.6.clone();
        by_key.insert(key, classes.len());
        let terms =
            terms_with_volumes(&variant.shape, &snapshot.volumes, names).map(|terms| match &variant.stays_within {
                Some(within) => {
                    narrowed(&terms, &[Term { requirements: Requirements::clone(within), node_name: None }], names)
                }
                None => terms,
            });
        let demand = variant.demand.and_then(|id| Some((id, snapshot.devices.as_ref()?.demands.try_get(id)?)));
        let is_read = variant.members.iter().all(|&pod| snapshot.pods[pod].devices.is_some());
        // The first obstacle counts: what a pass decided, then what the pod waits for, then what is not supported.
        let obstacle = variant.is_left_out.then_some(Obstacle::LeftOut);
        let obstacle = obstacle.or_else(|| variant.waits_for.map(Obstacle::Waits));
        let obstacle = obstacle.or_else(|| supported::obstacle(&variant.shape, snapshot, is_read));
        let refused = obstacle.or(refused).or_else(|| {
            let too_many = || {
                format!(
                    "more than {} combinations of node affinity terms and places of volumes",
                    crate::tuning::MAX_TERMS
                )
            };
            terms.is_none().then(|| Obstacle::unsupported(too_many()))
        });
        classes.push(PodClass {
            claim_fault: demand.and_then(|(_, demand)| demand.fault.as_ref()).map(|fault| fault.to_string().into()),
            devices: demand.map(|(id, demand)| ClassDevices::new(id, demand, &variant.shape, snapshot)),
            shape: variant.shape,
            priority: variant.priority,
            members: variant.members,
            terms: terms.unwrap_or_default(),
            refused,
            involved: coupling.involved,
            affinity_sets: coupling.affinity_sets,
            needs_host_alone: false,
        });
    }
    let mut topology = builder.finish();
    topology.connect(&classes);
    let name = |id: PodId| -> &NamespacedName { &snapshot.pods[id].pod.name };
    for class in &mut classes {
        // Needs all classes and groups, since another class can be what keeps a host for itself.
        class.needs_host_alone = class.affinity_sets.is_empty() && topology.alone_on_host(class).next().is_some();
        class.members.sort_by(|&a, &b| {
            let age = |id: PodId| snapshot.pods[id].pod.created_at;
            age(a).cmp(&age(b)).then_with(|| name(a).cmp(name(b)))
        });
    }
    classes.sort_by_cached_key(|class| {
        let requests = &class.shape.requests;
        (
            Reverse(class.priority),
            // Pods that need a host each come first: the others then find machines to share.
            !class.needs_host_alone,
            Reverse(share_of(requests, largest)),
            Reverse(requests.get(ResourceId::CPU)),
            Reverse(requests.get(ResourceId::MEMORY)),
            class.members.iter().map(|&id| name(id)).min().cloned(),
        )
    });
    // A class that has to be near another one finds its place once that one has its own.
    if classes.iter().any(|class| !class.affinity_sets.is_empty()) {
        classes = after_what_they_need(classes, &topology);
    }
    (classes.into(), topology)
}

/// Pods by priority, shape and, where rules couple pods, what the rules read of them; in the order of their first pod.
fn variants(request: &Request<'_>, builder: &topology::Builder<'_>) -> Vec<Variant> {
    type Within = Option<Arc<Requirements>>;
    type Key = (i32, usize, Option<DemandId>, Option<Arc<str>>, Within, bool, Option<Signature>);
    let snapshot = &*request.snapshot;
    let mut shapes = Shapes::default();
    let mut by_key: FastMap<Key, usize> = FastMap::default();
    let mut variants: Vec<Variant> = Vec::new();
    for (id, pending) in snapshot.pods.iter_enumerated() {
        let pod = &pending.pod;
        let demand = snapshot.devices.as_ref().and_then(|devices| devices.demand_of(id));
        let (waits_for, stays_within) = (pending.waits_for.clone(), pending.stays_within.clone());
        let (shape, is_left_out) = (shapes.number(&pod.shape), request.is_left_out(id));
        let signature = builder.signature(pod);
        let key = (pod.priority, shape, demand, waits_for.clone(), stays_within.clone(), is_left_out, signature);
        let index = *by_key.entry(key).or_insert(variants.len());
        match variants.get_mut(index) {
            Some(variant) => variant.members.push(id),
            None => {
                let (shape, priority, members) = (Arc::clone(&pod.shape), pod.priority, vec![id]);
                variants.push(Variant { shape, priority, demand, waits_for, stays_within, is_left_out, members });
            }
        }
    }
    variants
}

/// Numbers shapes; equal shapes get equal numbers. Most pods share their shape by pointer, so contents are seldom
/// compared.
#[derive(Default)]
pub(crate) struct Shapes<'s> {
    by_place: FastMap<*const PodShape, usize>,
    by_value: FastMap<&'s PodShape, usize>,
}

impl<'s> Shapes<'s> {
    /// In the order of first sight.
    pub(crate) fn number(&mut self, shape: &'s Arc<PodShape>) -> usize {
        *self.by_place.entry(Arc::as_ptr(shape)).or_insert_with(|| {
            let next = self.by_value.len();
            *self.by_value.entry(shape).or_insert(next)
        })
    }
}

/// Moves classes with affinity behind the classes that their affinity matches; among those that need each other, and
/// otherwise, the order stays.
fn after_what_they_need(classes: Vec<PodClass>, topology: &Topology) -> Vec<PodClass> {
    let mut waiting: Vec<PodClass> = Vec::new();
    let mut ordered: Vec<PodClass> = Vec::new();
    for class in classes {
        if class.affinity_sets.is_empty() { ordered.push(class) } else { waiting.push(class) }
    }
    let is_affinity = |group: GroupId| topology.groups[group].kind == Kind::Affinity;
    while !waiting.is_empty() {
        let needs_other = |index: usize, class: &PodClass| {
            let wanted = class.involved.iter().filter(|mine| mine.owner && is_affinity(mine.group));
            wanted.map(|mine| mine.group).any(|group| {
                waiting.iter().enumerate().any(|(other, others)| {
                    other != index && others.involved.iter().any(|theirs| theirs.group == group && theirs.matched)
                })
            })
        };
        let next = waiting.iter().enumerate().position(|(index, class)| !needs_other(index, class)).unwrap_or(0);
        ordered.push(waiting.remove(next));
    }
    ordered
}

/// The largest share that `requests` takes of `largest`, in parts of 2³².
fn share_of(requests: &ResourceVec, largest: &ResourceVec) -> i128 {
    let share =
        |(resource, amount): (ResourceId, i64)| (i128::from(amount) << 32) / i128::from(largest.get(resource).max(1));
    requests.iter().map(share).max().unwrap_or(0)
}

impl ClassDevices {
    fn new(id: DemandId, demand: &Demand, shape: &PodShape, snapshot: &Snapshot) -> Self {
        let without = |served: &Vec<ResourceId>| {
            let mut requests = shape.requests.clone();
            served.iter().for_each(|resource| requests.set(*resource, 0));
            requests
        };
        let claims = || demand.variants.iter().flat_map(|variant| &variant.claims);
        let has_alternatives = |claim: &ClaimUse| match (claim, &snapshot.devices) {
            (ClaimUse::Fresh { class, .. } | ClaimUse::Extended { class }, Some(devices)) => {
                devices.inventory.has_alternatives(*class)
            }
            (ClaimUse::Fresh { .. } | ClaimUse::Extended { .. } | ClaimUse::Named { .. }, _) => false,
        };
        Self {
            demand: id,
            requests: demand.variants.iter().map(|variant| without(&variant.served)).collect(),
            shares_claims: claims().any(|claim| matches!(claim, ClaimUse::Named { .. })),
            has_alternatives: claims().any(has_alternatives),
        }
    }
}

impl PodClass {
    /// How many copies there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Whether no place is looked for.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some() || self.claim_fault.is_some()
    }

    /// Whether each of its terms requires a node of no NodePool. Such pods are not ours to place, and nobody is told
    /// that they have no place.
    pub(crate) fn opts_out(&self, names: &Interner) -> bool {
        let Some(node_pool) = names.find_key(labels::NODEPOOL) else { return false };
        let is_outside = |term: &Term| {
            term.requirements.get(node_pool).is_some_and(|wanted| wanted.values == ValueSet::only_absent())
        };
        !self.terms.is_empty() && self.terms.iter().all(is_outside)
    }

    /// What a pod takes where its extended resources are served in one way.
    pub(crate) fn requests(&self, variant: usize) -> &ResourceVec {
        let devices = self.devices.as_ref();
        devices.and_then(|devices| devices.requests.get(variant)).unwrap_or(&self.shape.requests)
    }

    /// What a pod takes at least, however its extended resources are served.
    pub(crate) fn least_requests(&self) -> Cow<'_, ResourceVec> {
        let mut least = Cow::Borrowed(self.requests(0));
        for variant in 1..self.variants() {
            least.to_mut().min_assign(self.requests(variant));
        }
        least
    }

    /// Whether kube-scheduler lets its pods in only where certain others are. What they only prefer, and is kept as if
    /// it were required, makes none of them wait.
    pub(crate) fn waits_for_others(&self) -> bool {
        let preferred = &self.shape.pod_affinity.preferred;
        let is_kept = |term: &PodAffinityTerm| preferred.iter().any(|preferred| preferred.term == *term);
        !self.affinity_sets.is_empty() && !self.shape.pod_affinity.required.iter().all(is_kept)
    }

    /// Whether some request of its claims has alternatives.
    pub(crate) fn has_alternatives(&self) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.has_alternatives)
    }

    /// In how many ways its extended resources can be served.
    pub(crate) fn variants(&self) -> usize {
        self.devices.as_ref().map_or(1, |devices| devices.requests.len())
    }
}
