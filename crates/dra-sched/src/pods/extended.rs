//! Extended resources that DRA serves (KEP-5004).
//!
//! A DeviceClass serves the resource that its `extendedResourceName` says and
//! `deviceclass.resource.kubernetes.io/<name>`. Where a node offers none of such a resource by a device plugin, the
//! pod's requests for it become one claim that exists in memory until the pod is bound: a request of exact count for
//! each container and resource, by name in order.
//!
//! Containers that run as long as the pod, sidecars included, get devices of their own. A plain init container uses
//! those of long-lived containers that come after it and needs only what they lack; of all init containers the one that
//! needs most is asked for, since they run one after the other. 1.34 knows no such reuse.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Quantity;

use dra_types::compat::{Compat, Gate, KubernetesMinor};
use dra_types::{
    AllocationMode, Container, DeviceClass, DeviceClassName, DeviceRequest, ExactRequest, Lifetime, Pod, RequestKind,
    RequestName, ResourceClaimSpec, Resources,
};

/// The name in reasons of a claim that is not written yet.
pub const IN_MEMORY_CLAIM: &str = "<extended-resources>";

/// Which class serves which extended resource.
#[derive(Debug, Clone, Default)]
pub struct ExtendedResources {
    is_on: bool,
    reuses: bool,
    strands: bool,
    classes: BTreeMap<Arc<str>, DeviceClassName>,
}

/// How a pod's extended resources are served on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// Not by DRA: there are none, or device plugins have them.
    Elsewhere,
    /// By a claim.
    Claim(ExtendedClaim),
    /// The node has none of a resource and no class serves it: the pod does not fit.
    Missing(Arc<str>),
    /// A device plugin has a resource that a class could serve too, and the pod has other claims. The scheduler from
    /// 1.36 on then allocates the pod's devices, fails to write the status of extended resources, of which there is
    /// none, and never binds the pod.
    Stranded(Arc<str>),
}

/// The claim for a pod's extended resources on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedClaim {
    /// What it asks for.
    pub spec: Arc<ResourceClaimSpec>,
    /// Which container gets what of which request.
    pub mappings: Vec<ExtendedMapping>,
}

/// `status.extendedResourceClaimStatus.requestMappings[]` of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedMapping {
    /// The container.
    pub container: Arc<str>,
    /// The extended resource.
    pub resource: Arc<str>,
    /// The request whose devices it gets.
    pub request: RequestName,
}

/// Whether kube-scheduler takes a name for an extended resource: of a domain that is not Kubernetes' own, or of a
/// class.
fn is_extended(name: &str) -> bool {
    let is_foreign = |name: &str| name.contains('/') && !name.contains("kubernetes.io/");
    name.starts_with(DeviceClass::EXTENDED_RESOURCE_PREFIX) || is_foreign(name) && !name.starts_with("requests.")
}

fn count(amount: Quantity) -> i64 {
    amount.value().unwrap_or(0).max(0)
}

impl ExtendedResources {
    /// Reads which class serves which resource. Of several classes for one resource the newest counts, of equally old
    /// ones the first by name.
    pub fn new<'a>(classes: impl IntoIterator<Item = &'a DeviceClass>, compat: &Compat) -> Self {
        let mut explicit: BTreeMap<Arc<str>, &DeviceClass> = BTreeMap::new();
        let mut served: BTreeMap<Arc<str>, DeviceClassName> = BTreeMap::new();
        let rank = |class: &DeviceClass| (std::cmp::Reverse(class.meta.created_at), Arc::clone(&class.meta.name.name));
        for class in classes {
            let name = &class.meta.name.name;
            let implicit = format!("{}{name}", DeviceClass::EXTENDED_RESOURCE_PREFIX);
            served.insert(implicit.into(), DeviceClassName::from(&**name));
            let Some(resource) = &class.extended_resource_name else { continue };
            if explicit.get(resource).is_none_or(|known| rank(class) < rank(known)) {
                explicit.insert(Arc::clone(resource), class);
            }
        }
        served.extend(explicit.into_iter().map(|(resource, class)| (resource, (&*class.meta.name.name).into())));
        Self {
            is_on: compat.is_on(Gate::ExtendedResource),
            reuses: compat.kubernetes >= KubernetesMinor::V1_35,
            strands: compat.kubernetes >= KubernetesMinor::V1_36,
            classes: served,
        }
    }

    /// The class that serves a resource.
    pub fn class(&self, resource: &str) -> Option<&DeviceClassName> {
        if self.is_on { self.classes.get(resource) } else { None }
    }

    /// How a pod's extended resources are served on a node that has these resources to give.
    pub fn serve(&self, pod: &Pod, allocatable: &Resources) -> Served {
        let mut served: BTreeMap<&Arc<str>, &DeviceClassName> = BTreeMap::new();
        let mut of_plugin = None;
        for (resource, amount) in pod.containers.iter().flat_map(|container| &container.requests) {
            if !is_extended(resource) || count(*amount) == 0 {
                continue;
            }
            let offered = allocatable.get(resource).copied();
            match self.class(resource) {
                Some(class) if offered.is_none_or(|offered| count(offered) == 0) => {
                    served.insert(resource, class);
                }
                Some(_) => of_plugin = of_plugin.or(Some(resource)),
                None if offered.is_none() => return Served::Missing(Arc::clone(resource)),
                None => {}
            }
        }
        if served.is_empty() {
            return match of_plugin.filter(|_| self.strands && !pod.claims.is_empty()) {
                Some(resource) => Served::Stranded(Arc::clone(resource)),
                None => Served::Elsewhere,
            };
        }
        let mut requests: BTreeMap<RequestName, DeviceRequest> = BTreeMap::new();
        let mut mappings = Vec::new();
        for (resource, class) in served {
            let mut demand = Demand { resource, class, containers: &pod.containers, mappings: &mut mappings };
            let made = if self.reuses { demand.with_reuse() } else { demand.each() };
            requests.extend(made.into_iter().map(|request| (request.name.clone(), request)));
        }
        let requests = requests.into_values().collect();
        let spec = ResourceClaimSpec { requests, ..ResourceClaimSpec::default() };
        Served::Claim(ExtendedClaim { spec: Arc::new(spec), mappings })
    }
}

/// One resource of one pod.
struct Demand<'a> {
    resource: &'a Arc<str>,
    class: &'a DeviceClassName,
    containers: &'a [Container],
    mappings: &'a mut Vec<ExtendedMapping>,
}

/// A request that is being built: for which container, and how many devices.
#[derive(Clone, Copy)]
struct Draft {
    container: usize,
    count: i64,
}

impl Demand<'_> {
    /// Containers that ask for the resource, with how many they want.
    fn drafts(&self, of: impl Fn(Lifetime) -> bool) -> Vec<Draft> {
        let draft = |(container, spec): (usize, &Container)| {
            let count = spec.requests.get(self.resource).map_or(0, |amount| count(*amount));
            (of(spec.lifetime) && count > 0).then_some(Draft { container, count })
        };
        self.containers.iter().enumerate().filter_map(draft).collect()
    }

    /// `container-<i>-request-<j>`: the resource's position among all that the container asks for.
    fn name(&self, container: usize) -> RequestName {
        let names = self.containers.get(container).into_iter().flat_map(|container| container.requests.keys());
        let index = names.take_while(|name| *name != self.resource).count();
        format!("container-{container}-request-{index}").as_str().into()
    }

    fn request(&self, draft: Draft) -> DeviceRequest {
        DeviceRequest {
            name: self.name(draft.container),
            kind: RequestKind::Exactly(ExactRequest {
                device_class_name: self.class.clone(),
                selectors: Vec::new(),
                allocation_mode: AllocationMode::ExactCount(draft.count),
                admin_access: false,
                tolerations: Vec::new(),
                capacity: BTreeMap::new(),
                derived_attributes: Vec::new(),
            }),
        }
    }

    fn map(&mut self, container: usize, request: usize) {
        let Some(of) = self.containers.get(container) else { return };
        let mapping = ExtendedMapping {
            container: Arc::clone(&of.name),
            resource: Arc::clone(self.resource),
            request: self.name(request),
        };
        self.mappings.push(mapping);
    }

    /// A request for each container.
    fn each(&mut self) -> Vec<DeviceRequest> {
        let drafts = self.drafts(|_| true);
        for draft in &drafts {
            self.map(draft.container, draft.container);
        }
        drafts.into_iter().map(|draft| self.request(draft)).collect()
    }

    fn with_reuse(&mut self) -> Vec<DeviceRequest> {
        let lasting = self.drafts(|lifetime| lifetime != Lifetime::Init);
        let mut lacking: Vec<Draft> = Vec::new();
        let mut reused: Vec<(usize, usize)> = Vec::new();
        let init = self.drafts(|lifetime| lifetime == Lifetime::Init);
        for draft in &init {
            let mut missing = draft.count;
            for later in lasting.iter().filter(|later| later.container > draft.container) {
                reused.push((draft.container, later.container));
                missing -= later.count;
                if missing <= 0 {
                    break;
                }
            }
            if missing > 0 {
                lacking.push(Draft { container: draft.container, count: missing });
            }
        }
        let largest = lacking.iter().copied().reduce(|most, next| if next.count > most.count { next } else { most });
        for draft in &lasting {
            self.map(draft.container, draft.container);
        }
        for draft in &init {
            for (_, request) in reused.iter().filter(|(of, _)| *of == draft.container) {
                self.map(draft.container, *request);
            }
            let lacks = lacking.iter().any(|lacking| lacking.container == draft.container);
            if let Some(largest) = largest.filter(|_| lacks) {
                self.map(draft.container, largest.container);
            }
        }
        largest.into_iter().chain(lasting).map(|draft| self.request(draft)).collect()
    }
}
