//! What pods and daemons want of devices, each kind of want once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::{
    Alternative, ClaimClassId, ClaimId, ClaimUse, InventoryBuilder, NodeDemand, Reservation, ShapeId,
    pods::{
        self, ExtendedClaim, ExtendedResources, IN_MEMORY_CLAIM, NodeResourceFault, PodFault, Served, WantedClaim,
        check_node_resources, check_pod_limits, total_demand,
    },
};
use dra_types::{
    ClaimSource, Compat, Gate, KubernetesMinor, Lifetime, Pod, ResourceClaim, ResourceClaimSpec, Resources,
};
use model::{IdVec, Interner, NamespacedName, Quantity, ResourceId, ResourceVec, Uid, Unsupported};

use super::{DemandId, DeviceObjects, SnapshotParts, idle::Idle, leaving::Leaving};
use crate::snapshot::PodId;
use crate::tuning::MAX_EXTENDED;

/// What the devices of one claim of a pod cost of one resource, on top of what the pod requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCost {
    /// The pod's own name for the claim; `None` for the claim that serves its extended resources.
    pub claim: Option<Arc<str>>,
    /// Which resource.
    pub resource: ResourceId,
    /// How many devices of the claim cost some of it.
    pub devices: usize,
    /// All of them together, in the resource's unit.
    pub amount: i64,
    /// Each of them, where all cost the same.
    pub each: Option<i64>,
}

/// What one or more pods want of devices.
#[derive(Debug)]
pub struct Demand {
    /// Why no node can have them at all, if so.
    pub fault: Option<PodFault>,
    /// Extended resources of the pods that a class serves on nodes without a device plugin for them.
    pub extended: Vec<ResourceId>,
    /// The claims, by which of `extended` come from DRA.
    pub variants: Vec<Variant>,
    /// One of the pods; for all of them equal in what devices depend on.
    pub example: Arc<Pod>,
    /// The pod's claims, in the order of [`Variant::claims`].
    pub(super) entries: Vec<Arc<str>>,
    /// Limits of the pod as a whole must cover its devices: from 1.37 on.
    pub(super) limits_cover_devices: bool,
}

/// The claims of a pod on nodes that serve its extended resources in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Resources that come from DRA and count nothing against the node's allocatable.
    pub served: Vec<ResourceId>,
    /// The claims, in the order in which they are allocated.
    pub claims: Vec<ClaimUse>,
    /// The scheduler would never bind the pod to such a node.
    pub is_stranded: bool,
}

impl Demand {
    /// The variant for a node or machine with these resources to give.
    pub fn variant_for(&self, allocatable: &ResourceVec) -> usize {
        let served = |variant: &Variant| {
            self.extended.iter().all(|resource| variant.served.contains(resource) == (allocatable.get(*resource) == 0))
        };
        let exact = self.variants.iter().position(served);
        exact.unwrap_or_else(|| self.variants.len().saturating_sub(1))
    }

    /// Whether a pod can be bound where its extended resources are served in this way.
    pub fn can_be_bound(&self, variant: usize) -> bool {
        self.variants.get(variant).is_none_or(|variant| !variant.is_stranded)
    }

    /// What a pod takes of the node's resources on top of its requests because of the devices that it is given on a
    /// shape (None for a node that exists); `None` where that is a resource that no node has.
    ///
    /// # Errors
    /// What the pod says of itself as a whole does not cover its devices.
    pub fn extra(
        &self,
        given: &Alternative,
        shape: Option<ShapeId>,
        names: &Interner,
    ) -> Result<Option<ResourceVec>, NodeResourceFault> {
        let devices = &given.demand(shape);
        if self.limits_cover_devices {
            check_pod_limits(&self.example, devices, &given.shares(shape), &self.entries)?;
        }
        self.extra_of(devices, names)
    }

    /// What that is made up of, claim after claim; nothing of what the pod's own total covers.
    pub fn costs(
        &self,
        given: &Alternative,
        shape: Option<ShapeId>,
        extra: &ResourceVec,
        names: &Interner,
    ) -> Arc<[DeviceCost]> {
        let mut costs = Vec::new();
        for share in given.shares(shape) {
            for (name, cost) in &share.of_pod {
                let Some(resource) = names.find_resource(name).filter(|resource| extra.get(*resource) > 0) else {
                    continue;
                };
                let units = |nano: i128| Some(of_nano(resource, nano)?.get(resource));
                let Some(amount) = units(cost.amount).filter(|amount| *amount > 0) else { continue };
                let claim = self.entries.get(share.place).cloned();
                let (devices, each) = (cost.devices, cost.each.and_then(units));
                costs.push(DeviceCost { claim, resource, devices, amount, each });
            }
        }
        costs.into()
    }

    /// What a pod takes of the node's resources on top of its requests, where devices cost so much; `None` where that
    /// is a resource that no node has.
    ///
    /// # Errors
    /// What the pod asks for as a whole does not cover its devices.
    pub fn extra_of(&self, devices: &NodeDemand, names: &Interner) -> Result<Option<ResourceVec>, NodeResourceFault> {
        // Whether the node has room is for the packer to say; here everything is there.
        let everything = |name: &Arc<str>| (Arc::clone(name), i128::MAX);
        let everything = NodeDemand(total_demand(&self.example, devices).0.keys().map(everything).collect());
        check_node_resources(&self.example, devices, &everything)?;
        Ok(device_costs(&self.example, devices, names))
    }
}

/// What a pod takes of the node's resources on top of its requests because of its devices; `None` where that is a
/// resource that no node has. What the pod says of itself as a whole covers them.
pub fn device_costs(pod: &Pod, devices: &NodeDemand, names: &Interner) -> Option<ResourceVec> {
    let mut extra = ResourceVec::default();
    if devices.0.is_empty() {
        return Some(extra);
    }
    let without = total_demand(pod, &NodeDemand::default());
    for (name, amount) in total_demand(pod, devices).0 {
        let more = amount - without.0.get(&name).copied().unwrap_or(0);
        if more <= 0 {
            continue;
        }
        extra.saturating_add_assign(&of_nano(names.find_resource(&name)?, more)?);
    }
    Some(extra)
}

/// So many nano-units of one resource.
fn of_nano(resource: ResourceId, nano: i128) -> Option<ResourceVec> {
    let quantity = Quantity::from_nano(nano, model::quantity::Format::DecimalSi).ok()?;
    let mut amount = ResourceVec::default();
    amount.set_quantity(resource, &quantity).ok()?;
    Some(amount)
}

/// Amounts by name, in nano-units.
type Amounts = Vec<(Arc<str>, i128)>;

/// All that tells the demand of one pod from that of another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    claims: Vec<(u8, usize, u32, Option<Reservation>)>,
    fault: Option<String>,
    /// Only where the containers matter: for extended resources, and for what devices cost of the node. How long they
    /// run, requests, limits, and which of the claims they use.
    containers: Vec<(u8, Amounts, Amounts, Vec<usize>)>,
    /// Requests and limits of the pod as a whole.
    whole: (Amounts, Amounts),
    /// The pod's names for its claims, where their costs are told claim after claim.
    entries: Vec<Arc<str>>,
    /// The claim that was made for its extended resources.
    made: Option<ClaimId>,
}

/// The demands of all waiting pods and of daemons.
pub(super) struct Demands {
    pub(super) demands: IdVec<DemandId, Demand>,
    pub(super) of_pods: IdVec<PodId, Option<DemandId>>,
    /// In the order of the DaemonSets.
    pub(super) of_daemons: Vec<Option<DemandId>>,
    /// In the order of the nominated pods.
    pub(super) of_nominated: Vec<Option<DemandId>>,
}

struct Reading<'a> {
    objects: &'a DeviceObjects,
    compat: Compat,
    names: &'a Interner,
    builder: &'a mut InventoryBuilder,
    ids: BTreeMap<NamespacedName, ClaimId>,
    extended: ExtendedResources,
    /// Allocated claims that were made for extended resources, by the pod's uid.
    made: BTreeMap<Uid, ClaimId>,
    known: BTreeMap<Key, DemandId>,
    demands: IdVec<DemandId, Demand>,
}

impl Demands {
    pub(super) fn new(
        objects: &DeviceObjects,
        compat: Compat,
        parts: SnapshotParts<'_>,
        builder: &mut InventoryBuilder,
    ) -> Self {
        let SnapshotParts { nodes, pods, before, names, .. } = parts;
        // Of claims with equal specs the first gives its name to reasons; the pods' own words come first.
        let of_daemons = before.daemon_sets.iter().map(|(_, pod)| pod);
        let all = pods.devices().flatten().chain(of_daemons);
        let entries = all.flat_map(|pod| {
            pod.claims.iter().filter_map(move |entry| match &entry.source {
                ClaimSource::Template(template) => Some((pod, entry, template)),
                ClaimSource::Claim(_) => None,
            })
        });
        for (pod, entry, template) in entries {
            let name = NamespacedName::new(Arc::clone(&pod.meta.name.namespace), Arc::clone(template));
            if let Some(template) = objects.claim_templates.get(&name) {
                class_of(&entry.name, &template.spec, &template.unsupported, builder);
            }
        }
        let leaving = Leaving::new(pods, nodes, before, (objects, &compat));
        let idle = Idle::new(pods);
        let id_of = |(name, claim): (&NamespacedName, &Arc<ResourceClaim>)| {
            let id = builder.claim(leaving.without(claim));
            if idle.contains(claim) {
                builder.mark_idle(id);
            }
            (name.clone(), id)
        };
        let ids: BTreeMap<NamespacedName, ClaimId> = objects.claims.iter().map(id_of).collect();
        let allocated = objects.claims.values().filter(|claim| claim.allocation.is_some());
        let made = allocated
            .filter_map(|claim| Some((pods::served_extended_resources(claim)?.clone(), *ids.get(&claim.meta.name)?)));
        let made = made.collect();
        let extended = ExtendedResources::new(objects.classes.values().map(|class| &**class), &compat);
        let known = BTreeMap::new();
        let demands = IdVec::new();
        let mut reading = Reading { objects, compat, names, builder, ids, extended, made, known, demands };
        let mut of_pods: Vec<Option<DemandId>> =
            pods.devices().map(|pod| pod.and_then(|pod| reading.of_pod(pod))).collect();
        // The buffers' own come last; each of their virtual pods wants the same.
        let of_buffers = of_pods.split_off(pods.pods.len());
        of_pods.extend(pods.owners().map(|buffer| of_buffers.get(buffer).copied().flatten()));
        let of_daemons = before.daemon_sets.iter().map(|(_, pod)| reading.of_pod(pod)).collect();
        let of_nominated = before.nominated.iter().map(|(_, pod)| reading.of_pod(pod)).collect();
        Self { demands: reading.demands, of_pods: of_pods.into(), of_daemons, of_nominated }
    }
}

/// The class of claims with this spec.
fn class_of(
    name: &str,
    spec: &ResourceClaimSpec,
    unsupported: &[Unsupported],
    builder: &mut InventoryBuilder,
) -> ClaimClassId {
    let unsupported = unsupported.first().map(|field| Arc::clone(&field.construct));
    builder.claim_class(name, &Arc::new(spec.clone()), unsupported)
}

impl Reading<'_> {
    fn of_pod(&mut self, pod: &Arc<Pod>) -> Option<DemandId> {
        let extended = self.extended_of(pod);
        let objects = self.objects;
        let wanted = pods::claims(pod, &objects.lookup(), &self.compat);
        let (wanted, fault) = match wanted {
            Ok(wanted) => (wanted, None),
            Err(fault) => (Vec::new(), Some(fault)),
        };
        let entries: Vec<Arc<str>> = wanted.iter().map(|wanted| Arc::clone(wanted.entry())).collect();
        let claims: Vec<ClaimUse> = wanted.into_iter().map(|wanted| self.claim_use(wanted, pod)).collect();
        if claims.is_empty() && fault.is_none() && extended.is_empty() {
            return None;
        }
        let key = self.key(pod, (&claims, &entries), fault.as_ref(), &extended);
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        let variants = self.variants(pod, &claims, &extended);
        let demand = self.demands.push(Demand {
            fault,
            extended,
            variants,
            example: Arc::clone(pod),
            entries,
            limits_cover_devices: self.compat.kubernetes >= KubernetesMinor::V1_37,
        });
        self.known.insert(key, demand);
        Some(demand)
    }

    /// Extended resources of the pod that a class serves.
    fn extended_of(&self, pod: &Pod) -> Vec<ResourceId> {
        let mut found: Vec<ResourceId> = Vec::new();
        for (name, amount) in pod.containers.iter().flat_map(|container| &container.requests) {
            if amount.sign() > 0
                && self.extended.class(name).is_some()
                && let Some(resource) = self.names.find_resource(name)
                && !found.contains(&resource)
            {
                found.push(resource);
            }
        }
        found.sort_by_key(|resource| self.names.resource_name(*resource));
        found
    }

    /// One variant for each way in which device plugins can have some of the resources.
    fn variants(&mut self, pod: &Pod, claims: &[ClaimUse], extended: &[ResourceId]) -> Vec<Variant> {
        let all = (1_usize << extended.len().min(MAX_EXTENDED)) - 1;
        let subsets: Vec<Vec<ResourceId>> = if extended.len() > MAX_EXTENDED {
            vec![extended.to_vec(), Vec::new()]
        } else {
            let of = |bits: usize| {
                let chosen = extended.iter().enumerate().filter(|(index, _)| bits & (1 << index) != 0);
                chosen.map(|(_, resource)| *resource).collect()
            };
            (0..=all).rev().map(of).collect()
        };
        subsets.into_iter().map(|served| self.variant(pod, claims, served)).collect()
    }

    fn variant(&mut self, pod: &Pod, claims: &[ClaimUse], served: Vec<ResourceId>) -> Variant {
        let mut claims = claims.to_vec();
        let is_served = |name: &str| self.names.find_resource(name).is_some_and(|resource| served.contains(&resource));
        // All that is not served by DRA is there; whether there is enough of it is another rule's question.
        let one = Quantity::from_milli(1000, model::quantity::Format::DecimalSi);
        let there: Resources = pod
            .containers
            .iter()
            .flat_map(|container| container.requests.keys())
            .filter(|name| !is_served(name))
            .map(|name| (Arc::clone(name), one))
            .collect();
        let mut is_stranded = false;
        match self.extended.serve(pod, &there) {
            Served::Claim(claim) => claims.push(self.extended_use(pod, &claim)),
            Served::Elsewhere | Served::Missing(_) => {}
            Served::Stranded(_) => is_stranded = true,
        }
        Variant { served, claims, is_stranded }
    }

    /// The claim that was made for a pod's extended resources right before it is bound, or one in memory.
    fn extended_use(&mut self, pod: &Pod, claim: &ExtendedClaim) -> ClaimUse {
        if let Some(made) = self.made_for(pod) {
            let containers: BTreeSet<&Arc<str>> = claim.mappings.iter().map(|mapping| &mapping.container).collect();
            let containers = u32::try_from(containers.len()).unwrap_or(u32::MAX);
            return ClaimUse::Named { claim: made, containers, reservation: Reservation::OfPod };
        }
        ClaimUse::Extended { class: self.builder.claim_class(IN_MEMORY_CLAIM, &claim.spec, None) }
    }

    /// The claim that was made for extended resources of a pod that waits to be bound. One that has to leave its node
    /// gets a new claim elsewhere.
    fn made_for(&self, pod: &Pod) -> Option<ClaimId> {
        if pod.node_name.is_some() { None } else { self.made.get(&pod.meta.uid).copied() }
    }

    fn claim_use(&mut self, wanted: WantedClaim, pod: &Pod) -> ClaimUse {
        let entry = Arc::clone(wanted.entry());
        let containers = pod.containers_using(&entry);
        let reservation = wanted.reservation(self.builder);
        match wanted {
            WantedClaim::Existing { claim: name, .. } => {
                let is_own = pod
                    .claims
                    .iter()
                    .any(|claim| claim.name == entry && matches!(claim.source, ClaimSource::Template(_)));
                let claim = self.objects.claims.get(&name);
                let made_for_it = claim.filter(|claim| {
                    let is_free = claim.allocation.is_none() || pod.node_name.is_some();
                    // A pod that has to leave its node gets a new claim elsewhere.
                    is_own && is_free && claim.meta.owners.iter().any(|owner| &*owner.kind == "Pod")
                });
                if let Some(claim) = made_for_it {
                    let class = class_of(&entry, &claim.spec, &claim.unsupported, self.builder);
                    return ClaimUse::Fresh { class, containers };
                }
                let claim = *self.ids.get(&name).expect("a claim that pods::claims found has an id");
                ClaimUse::Named { claim, containers, reservation }
            }
            WantedClaim::Fresh { template, .. } => {
                let template = self.objects.claim_templates.get(&template).expect("pods::claims found the template");
                let class = class_of(&entry, &template.spec, &template.unsupported, self.builder);
                ClaimUse::Fresh { class, containers }
            }
            WantedClaim::OfGroup { group, template, .. } => {
                let name = NamespacedName::new(Arc::clone(&group.namespace), format!("{}-{entry}", group.name));
                let template = self.objects.claim_templates.get(&template).expect("pods::claims found the template");
                let builder = &mut *self.builder;
                let claim = *self.ids.entry(name.clone()).or_insert_with(|| {
                    let mut meta = template.meta.clone();
                    meta.name = name;
                    builder.claim(Arc::new(ResourceClaim {
                        meta,
                        spec: template.spec.clone(),
                        allocation: None,
                        reserved_for: Vec::new(),
                        device_status: Vec::new(),
                        unsupported: template.unsupported.clone(),
                        unknown_fields: Vec::new(),
                    }))
                });
                ClaimUse::Named { claim, containers, reservation }
            }
        }
    }

    fn key(
        &self,
        pod: &Pod,
        (claims, entries): (&[ClaimUse], &[Arc<str>]),
        fault: Option<&PodFault>,
        extended: &[ResourceId],
    ) -> Key {
        let amounts = |amounts: &Resources| {
            amounts.iter().map(|(name, amount)| (Arc::clone(name), amount.to_nano())).collect::<Amounts>()
        };
        let may_cost = self.compat.is_on(Gate::NodeAllocatableResources);
        let matters = !extended.is_empty() || may_cost;
        let lifetime = |lifetime: Lifetime| match lifetime {
            Lifetime::Pod => 0,
            Lifetime::Sidecar => 1,
            Lifetime::Init => 2,
        };
        let of_claim = |claim: &ClaimUse| match *claim {
            ClaimUse::Fresh { class, containers } => (0, model::Id::index(class), containers, None),
            ClaimUse::Named { claim, containers, reservation } => {
                (1, model::Id::index(claim), containers, Some(reservation))
            }
            ClaimUse::Extended { class } => (2, model::Id::index(class), 0, None),
        };
        let used = |claims: &[Arc<str>]| {
            let places = claims.iter().filter_map(|claim| entries.iter().position(|entry| entry == claim));
            places.collect::<Vec<usize>>()
        };
        let containers = pod
            .containers
            .iter()
            .filter(|_| matters)
            .map(|of| (lifetime(of.lifetime), amounts(&of.requests), amounts(&of.limits), used(&of.claims)));
        Key {
            claims: claims.iter().map(of_claim).collect(),
            fault: fault.map(ToString::to_string),
            containers: containers.collect(),
            whole: if matters { (amounts(&pod.pod_requests), amounts(&pod.pod_limits)) } else { Default::default() },
            entries: if may_cost { entries.to_vec() } else { Vec::new() },
            made: self.made_for(pod).filter(|_| !extended.is_empty()),
        }
    }
}
