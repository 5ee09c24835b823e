//! Sorts objects by kind and reads each.

mod node_pools;
mod workloads;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use api::admission::{Admission, Operation};
use api::crd::CustomResourceDefinition;
use api::{CapacityBuffer, NodePool, validation};
use cloudprovider::InstanceType;
use dra_types::Compat;
use k8s_openapi::api::core::v1::Node;
use model::pod::{PodPhase, SchedulingState};
use model::volume::CsiNodeDriver;
use model::{Interner, NamespacedName, NodeName, Pod};
use overlay::Overlay;
use scheduling::devices::DeviceObjects;
use serde_json::{Value, json};

use super::defaults::{Defaults, apply_to_metadata};
use super::node_classes::Types;
use super::role::{Role, is_of_provider};
use super::{InputProblem, NotPlanned, Offline, OfflineNote, Settings, unknown_fields};
use crate::buffers::{self, NotResolved};
use crate::node_repair::RepairSources;
use crate::snapshot::{Cluster, PendingRule};
use crate::snapshot_file::{self, Header};
use decode::Context;
use decode::capacity_buffer::{self, BufferTemplate, TemplateKey, TemplateKind};
use decode::devices::{AdminNamespaces, Admitted, DeviceKind, daemon_set_devices, pod_devices_as};
use decode::limit_range::TemplateResources;
use decode::manifests::{DocumentError, Manifest, Origin};
use decode::pod_selectors::{SelectorKind, pod_selector};
use decode::workloads::WorkloadKind;
use decode::{ObjectError, ObjectRef, Problem, Reason};
use decode::{node_claim_object, node_overlay_object, node_pool_object};
use scheduling::snapshot::pending::{is_ignored, is_of_planned_scheduler, is_provisionable};

/// Our CRDs, compiled when the first object of one of them comes along.
static ADMISSION: LazyLock<Compiled> = LazyLock::new(|| compiled(&api::crd::crds()));

/// CRDs, or why they cannot be used.
type Compiled = Result<Admission, String>;

fn compiled(crds: &[CustomResourceDefinition]) -> Compiled {
    Admission::new(crds).map_err(|why| why.to_string())
}

/// The gate that lets reserved offerings be used.
const RESERVED_CAPACITY: &str = "ReservedCapacity";
/// The gate that lets broken machines be repaired.
const NODE_REPAIR: &str = "NodeRepair";
/// The gate that lets NodeOverlays correct instance types.
const NODE_OVERLAY: &str = "NodeOverlay";
/// The gate that lets room be kept free.
const CAPACITY_BUFFER: &str = "CapacityBuffer";

/// A NodePool of the input, and why it is refused if it is.
struct GivenNodePool {
    object: Arc<NodePool>,
    refused: Option<Arc<str>>,
}

pub(super) struct Reader<'a> {
    settings: &'a Settings<'a>,
    /// The CRDs of providers, compiled as ours are.
    provider_admission: OnceCell<Compiled>,
    interner: Interner,
    cluster: Cluster,
    node_pools: Vec<GivenNodePool>,
    instance_types: BTreeMap<String, Vec<Arc<InstanceType>>>,
    overlays: Vec<(Origin, Overlay)>,
    csi_nodes: BTreeMap<NodeName, Vec<CsiNodeDriver>>,
    node_objects: Vec<Arc<Node>>,
    devices: DeviceObjects,
    admin_namespaces: AdminNamespaces,
    buffers: Vec<(Origin, CapacityBuffer)>,
    templates: Vec<BufferTemplate>,
    defaults: Defaults,
    header: Option<Header>,
    pod_names: BTreeSet<NamespacedName>,
    /// Expanded once everything else has been read: pods and claims that are given count first.
    workloads: Vec<(WorkloadKind, Manifest)>,
    not_expanded: usize,
    problems: Vec<InputProblem>,
    not_planned: Vec<(NamespacedName, NotPlanned)>,
    not_used: BTreeMap<String, usize>,
    notes: Vec<OfflineNote>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(settings: &'a Settings<'a>) -> Self {
        let mut cluster = Cluster { pending: PendingRule::Unbound, ..Cluster::default() };
        cluster.devices.compat = settings.release.compat(cluster.devices.compat);
        cluster.default_spread.config = settings.scheduler_config.cloned().unwrap_or_default();
        Self {
            settings,
            provider_admission: OnceCell::new(),
            interner: Interner::new(),
            cluster,
            node_pools: Vec::new(),
            instance_types: BTreeMap::new(),
            overlays: Vec::new(),
            csi_nodes: BTreeMap::new(),
            node_objects: Vec::new(),
            devices: DeviceObjects::default(),
            admin_namespaces: AdminNamespaces::default(),
            buffers: Vec::new(),
            templates: Vec::new(),
            defaults: Defaults::default(),
            header: None,
            pod_names: BTreeSet::new(),
            workloads: Vec::new(),
            not_expanded: 0,
            problems: Vec::new(),
            not_planned: Vec::new(),
            not_used: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn read(mut self, manifests: Vec<Manifest>, documents: Vec<DocumentError>) -> Offline {
        self.problems.extend(documents.into_iter().map(InputProblem::Document));
        let manifests = self.last_of_each(manifests);
        let (first, others): (Vec<_>, Vec<_>) = manifests.into_iter().partition(|(role, _)| role.comes_first());
        for (role, manifest) in first.into_iter().chain(others) {
            let origin = manifest.origin.clone();
            if let Err(error) = self.object(role, manifest) {
                self.problem(origin, error);
            }
        }
        self.finish()
    }

    /// Of objects that are given more than once the last, in the order of the first, with names and namespaces filled
    /// in.
    fn last_of_each(&mut self, manifests: Vec<Manifest>) -> Vec<(Role, Manifest)> {
        let mut kept: Vec<(Role, Manifest)> = Vec::new();
        let mut index: BTreeMap<(String, String, String), usize> = BTreeMap::new();
        let mut given_twice = BTreeSet::new();
        for (serial, mut manifest) in manifests.into_iter().enumerate() {
            let role = Role::of(&manifest, self.settings.provider_crds);
            if role == Role::NotUsed {
                *self.not_used.entry(manifest.kind).or_default() += 1;
                continue;
            }
            apply_to_metadata(&mut manifest.object, &manifest.kind, role.is_namespaced(), serial);
            let name = manifest.object_ref().name.to_string();
            let key = (manifest.group.clone(), manifest.kind.clone(), name.clone());
            let previous = if name.is_empty() { None } else { index.get(&key) };
            match previous.and_then(|&index| kept.get_mut(index)) {
                Some(slot) => {
                    given_twice.insert(format!("{} {name}", manifest.kind));
                    *slot = (role, manifest);
                }
                None => {
                    index.insert(key, kept.len());
                    kept.push((role, manifest));
                }
            }
        }
        if !given_twice.is_empty() {
            self.notes.push(OfflineNote::GivenTwice(given_twice));
        }
        kept
    }

    fn object(&mut self, role: Role, manifest: Manifest) -> Result<(), ObjectError> {
        let object = &manifest.object;
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        match role {
            Role::Pod => self.pod(manifest),
            Role::Node => {
                self.cluster.nodes.push(Arc::new(decode::node(object, context)?));
                // Who could read it so far can read the rest: a Node without a usable status is not broken.
                self.node_objects.extend(serde_json::from_value(manifest.object).ok().map(Arc::new));
            }
            Role::CsiNode => {
                let (node, drivers) = decode::csi_node(object)?;
                self.csi_nodes.insert(node, drivers);
            }
            Role::Namespace => {
                let (name, labels) = decode::namespace(object, context)?;
                self.admin_namespaces.add(object);
                self.cluster.namespaces.insert(name, labels);
            }
            Role::DaemonSet => {
                let mut object = manifest.object;
                if let Some(spec) = object.pointer_mut("/spec/template/spec") {
                    self.defaults.apply_classes(spec);
                }
                let set = decode::daemon_set(&object, context)?;
                if let Some(resources) = TemplateResources::of_daemon_set(&object) {
                    self.cluster.template_resources.insert(set.uid.clone(), Arc::new(resources));
                }
                if let Some(pod) = daemon_set_devices(&object)? {
                    self.cluster.devices.pods.insert(set.uid.clone(), Arc::new(pod));
                }
                self.cluster.daemon_sets.push(Arc::new(set));
            }
            Role::PersistentVolume => {
                let volume = Arc::new(decode::persistent_volume(object, context)?);
                self.cluster.volumes.volumes.insert(Arc::clone(&volume.name), volume);
            }
            Role::PersistentVolumeClaim => {
                let claim = Arc::new(decode::persistent_volume_claim(object)?);
                self.cluster.volumes.claims.insert(claim.name.clone(), claim);
            }
            Role::StorageClass => {
                let class = Arc::new(decode::storage_class(object, context)?);
                self.cluster.volumes.classes.insert(Arc::clone(&class.name), class);
            }
            Role::PodDisruptionBudget => {
                let budget = decode::pod_disruption_budget(object, context)?;
                self.cluster.pod_disruption_budgets.push(Arc::new(budget));
            }
            Role::ResourceQuota => {
                self.cluster.resource_quotas.push(Arc::new(decode::resource_quota(object)?));
            }
            Role::PriorityClass => self.defaults.add_priority_class(object)?,
            Role::RuntimeClass => self.defaults.add_runtime_class(object)?,
            Role::LimitRange => {
                let range = decode::limit_range(object)?;
                self.defaults.add_limit_range(&range);
                self.cluster.limit_ranges.push(Arc::new(range));
            }
            Role::Device(kind) => {
                if kind == DeviceKind::PodGroup {
                    let group = decode::pod_group(object, context)?;
                    self.cluster.pod_groups.insert(group.name.clone(), Arc::new(group));
                }
                let admitted = admitted(self.header.as_ref(), &self.cluster.devices.compat, &self.admin_namespaces);
                crate::snapshot::add_device_object(kind, object, admitted, &mut self.devices)?;
            }
            Role::NodePool => self.node_pool(&manifest)?,
            Role::NodeClaim => {
                let admitted = self.admit(&manifest)?;
                self.cluster.node_claims.push(Arc::new(node_claim_object(&admitted)?));
            }
            Role::NodeOverlay => self.node_overlay(&manifest)?,
            Role::Workload(kind) => {
                self.template(&manifest);
                let selector = SelectorKind::of(&manifest.group, &manifest.kind);
                let selects = selector.map(|kind| self.selector(kind, &manifest)).transpose()? == Some(true);
                if !(selects && self.header.is_some()) {
                    self.workloads.push((kind, manifest));
                }
            }
            Role::Selector(kind) => {
                if !self.selector(kind, &manifest)? {
                    *self.not_used.entry(manifest.kind).or_default() += 1;
                }
            }
            Role::PodTemplate => self.template(&manifest),
            Role::CapacityBuffer => self.capacity_buffer(&manifest)?,
            Role::Header => self.header(snapshot_file::header(object)?),
            Role::InstanceType => {
                let line = snapshot_file::instance_type(object)?;
                let instance_type = Arc::new(line.instance_type);
                for pool in line.node_pools {
                    self.instance_types.entry(pool).or_default().push(Arc::clone(&instance_type));
                }
            }
            Role::Checked => {
                self.admit(&manifest)?;
                if self.node_class(&manifest)? {
                    return Ok(());
                }
                *self.not_used.entry(manifest.kind).or_default() += 1;
            }
            Role::NotUsed => {}
        }
        Ok(())
    }

    fn header(&mut self, header: Header) {
        match self.settings.scheduler_config {
            None => self.cluster.default_spread.config = header.scheduler_config.clone(),
            Some(config) if header.scheduler_config.is_empty() && !config.is_empty() => {
                self.notes.push(OfflineNote::NothingSelects);
            }
            Some(_) => {}
        }
        self.cluster.now = header.time;
        self.cluster.options = header.options();
        self.cluster.pending = PendingRule::Unschedulable;
        if let Some(compat) = header.compat() {
            self.cluster.devices.compat = self.settings.release.compat(compat);
        }
        self.header = Some(header);
    }

    /// Applies the rules of the CRD, as the API server would.
    fn admit(&self, manifest: &Manifest) -> Result<Value, ObjectError> {
        let error = |field, why| ObjectError {
            object: manifest.object_ref(),
            problem: Problem { field, reason: Reason::Invalid(why) },
        };
        let provider_crds = self.settings.provider_crds;
        let admission = match is_of_provider(&manifest.group, provider_crds) {
            true => self.provider_admission.get_or_init(|| compiled(provider_crds)),
            false => &ADMISSION,
        };
        let admission = admission.as_ref().map_err(|why| error(String::new(), why.clone()))?;
        // A manifest may carry a status that no server would have written; creating the object drops it.
        let restored = admission.admit(&manifest.object, Operation::Restore);
        let admitted = restored.or_else(|_| admission.admit(&manifest.object, Operation::Create));
        admitted.map_err(|errors| {
            let mut errors = errors.into_iter();
            let first = errors.next().map(|first| (first.path, first.message));
            let (field, mut why) = first.unwrap_or_default();
            // Naming the first field and telling the others keeps one error per object.
            for other in errors {
                why.push_str("; ");
                why.push_str(&other.to_string());
            }
            error(field, why)
        })
    }

    /// One that is refused stays, so that pods without a place can say why it is not used.
    fn node_pool(&mut self, manifest: &Manifest) -> Result<(), ObjectError> {
        let admitted = self.admit(manifest).and_then(|admitted| node_pool_object(&admitted));
        let (object, error) = match admitted {
            Ok(object) => {
                let refused = self.validate(&object).err();
                (Some(object), refused)
            }
            Err(error) => (by_name(&error.object.name.name), Some(error)),
        };
        let refused = error.as_ref().map(|error| format!("is refused: {}", error.problem).into());
        self.node_pools.extend(object.map(|object| GivenNodePool { object: Arc::new(object), refused }));
        error.map_or(Ok(()), Err)
    }

    fn node_overlay(&mut self, manifest: &Manifest) -> Result<(), ObjectError> {
        let error = |why: String| ObjectError {
            object: manifest.object_ref(),
            problem: Problem { field: String::new(), reason: Reason::Invalid(why) },
        };
        let admitted = self.admit(manifest)?;
        if !self.gate(NODE_OVERLAY) {
            *self.not_used.entry(manifest.kind.clone()).or_default() += 1;
            return Ok(());
        }
        let object = node_overlay_object(&admitted)?;
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let unknown = unknown_fields(&manifest.object, &admitted).into_iter();
        self.notes.extend(unknown.map(|field| OfflineNote::UnknownField { overlay: name.to_owned(), field }));
        let overlay = Overlay::new(&object, self.settings.labels).map_err(|invalid| error(invalid.to_string()))?;
        self.overlays.push((manifest.origin.clone(), overlay));
        Ok(())
    }

    /// Whether a gate was on where the snapshot was taken. Manifests know of no gates: all that we have are on.
    fn gate(&self, name: &str) -> bool {
        self.header.as_ref().and_then(|header| header.feature_gates.get(name)).copied().unwrap_or(true)
    }

    /// What the controller would find wrong with a NodePool that the API server let in. In a snapshot its status says
    /// so.
    fn validate(&self, object: &NodePool) -> Result<(), ObjectError> {
        let findings = validation::node_pool(object, self.settings.labels);
        let mut errors = findings.errors.into_iter();
        let Some(first) = errors.next().filter(|_| self.header.is_none()) else { return Ok(()) };
        let mut why = first.reason;
        for other in errors {
            why.push_str("; ");
            why.push_str(&other.to_string());
        }
        let name = NamespacedName::new("", object.metadata.name.as_deref().unwrap_or_default());
        Err(ObjectError {
            object: ObjectRef { kind: "NodePool".into(), name },
            problem: Problem { field: first.field, reason: Reason::Invalid(why) },
        })
    }

    fn capacity_buffer(&mut self, manifest: &Manifest) -> Result<(), ObjectError> {
        let buffer = decode::capacity_buffer_object(&self.admit(manifest)?)?;
        if self.gate(CAPACITY_BUFFER) && buffers::is_served(&buffer) {
            self.buffers.push((manifest.origin.clone(), buffer));
        } else {
            *self.not_used.entry(manifest.kind.clone()).or_default() += 1;
        }
        Ok(())
    }

    /// Keeps what a buffer may name. One that cannot be read is missed by its buffer.
    fn template(&mut self, manifest: &Manifest) {
        let Some(kind) = TemplateKind::of(&manifest.group, &manifest.kind) else { return };
        let mut object = manifest.object.clone();
        if let Some(spec) = object.pointer_mut(kind.spec_pointer()) {
            match self.header {
                None => self.defaults.apply_to_spec(&manifest.object_ref().name.namespace, spec),
                // The controller takes them as they are.
                Some(_) => self.defaults.apply_classes(spec),
            }
        }
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        self.templates.extend(capacity_buffer::buffer_template(&object, kind, context));
    }

    /// Keeps which pods an object selects, if that decides anything. Whether it does.
    fn selector(&mut self, kind: SelectorKind, manifest: &Manifest) -> Result<bool, ObjectError> {
        let defaults = &mut self.cluster.default_spread;
        if defaults.config.is_empty() {
            return Ok(false);
        }
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        defaults.selectors.push(Arc::new(pod_selector(&manifest.object, kind, context)?));
        Ok(true)
    }

    /// Room that buffers ask for, by name.
    fn add_buffers(&mut self) {
        let mut used = BTreeSet::new();
        for (origin, buffer) in std::mem::take(&mut self.buffers) {
            let find = |key: &TemplateKey| self.templates.iter().find(|template| template.key == *key);
            match buffers::resolve(&buffer, find, &self.interner) {
                Ok(resolved) => {
                    used.insert(resolved.template);
                    self.cluster.buffers.push(resolved.buffer);
                }
                Err(why @ (NotResolved::ScalableRefNotFound(_) | NotResolved::PodTemplateNotFound(_))) => {
                    let buffer = buffers::buffer_name(&buffer).to_string();
                    self.notes.push(OfflineNote::NoRoomKept { buffer, why: why.to_string() });
                }
                Err(why @ NotResolved::Failed(_)) => {
                    let object = ObjectRef { kind: "CapacityBuffer".into(), name: buffers::buffer_name(&buffer) };
                    let problem = Problem { field: "spec".to_owned(), reason: Reason::Invalid(why.to_string()) };
                    self.problem(origin, ObjectError { object, problem });
                }
            }
        }
        let is_used = |template: &BufferTemplate| used.contains(&template.key);
        let of_kind = |template: &&BufferTemplate| template.key.kind == TemplateKind::PodTemplate;
        let unused = self.templates.iter().filter(of_kind).filter(|template| !is_used(template)).count();
        if unused > 0 {
            self.not_used.insert(TemplateKind::PodTemplate.as_str().to_owned(), unused);
        }
        self.cluster.buffers.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn pod(&mut self, manifest: Manifest) {
        let namespace = manifest.object_ref().name.namespace;
        let Manifest { origin, mut object, .. } = manifest;
        if let Some(spec) = object.get_mut("spec") {
            match self.header {
                None => self.defaults.apply_to_spec(&namespace, spec),
                // A cluster's pods are admitted.
                Some(_) => self.defaults.apply_classes(spec),
            }
        }
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        let admitted = admitted(self.header.as_ref(), &self.cluster.devices.compat, &self.admin_namespaces);
        let read = decode::pod(&object, context).and_then(|pod| Ok((pod, pod_devices_as(&object, admitted)?)));
        match read {
            Ok((pod, devices)) => self.add_pod(pod, devices),
            Err(error) => {
                let name = error.object.name.clone();
                self.unreadable(origin, error, [name]);
            }
        }
    }

    fn add_pod(&mut self, pod: Pod, devices: Option<dra_types::Pod>) {
        if let Some(devices) = devices {
            self.cluster.devices.pods.insert(pod.uid.clone(), Arc::new(devices));
        }
        self.pod_names.insert(pod.name.clone());
        self.cluster.pods.push(Arc::new(pod));
    }

    fn unreadable(&mut self, origin: Origin, error: ObjectError, pods: impl IntoIterator<Item = NamespacedName>) {
        let error = Arc::new(error);
        self.not_planned.extend(pods.into_iter().map(|pod| (pod, NotPlanned::Unreadable(Arc::clone(&error)))));
        self.problems.push(InputProblem::Object { origin, error });
    }

    fn problem(&mut self, origin: Origin, error: ObjectError) {
        let error = Arc::new(error);
        self.cluster.unusable.insert(error.object.clone(), Arc::clone(&error));
        self.problems.push(InputProblem::Object { origin, error });
    }

    fn finish(mut self) -> Offline {
        for (kind, manifest) in std::mem::take(&mut self.workloads) {
            self.workload(kind, &manifest);
        }
        self.notes.extend(self.defaults.notes());
        if self.not_expanded > 0 {
            self.notes.push(OfflineNote::NotExpanded(self.not_expanded));
        }
        for node in &mut self.cluster.nodes {
            if let Some(drivers) = self.csi_nodes.remove(&node.name) {
                Arc::make_mut(node).csi_drivers = Some(drivers);
            }
        }
        let is_repaired = self.header.as_ref().is_some_and(|header| header.is_on(NODE_REPAIR));
        if let Some(policies) = self.settings.repair_policies.filter(|_| is_repaired) {
            let nodes = std::mem::take(&mut self.node_objects);
            self.cluster.repair = Some(RepairSources { policies: Arc::clone(policies), nodes });
        }
        self.cluster.devices.objects = Arc::new(std::mem::take(&mut self.devices));
        self.add_buffers();
        self.drop_pods_elsewhere();
        self.add_node_pools();
        self.set_aside_pods_not_ours();
        self.not_planned.sort_by(|(a, _), (b, _)| a.cmp(b));
        Offline {
            cluster: self.cluster,
            interner: Arc::new(self.interner),
            header: self.header,
            problems: self.problems,
            not_planned: self.not_planned,
            not_used: self.not_used,
            notes: self.notes,
        }
    }

    /// Pods that have ended or run on nodes we know nothing of have no part in the plan.
    fn drop_pods_elsewhere(&mut self) {
        let nodes: BTreeSet<&NodeName> = self.cluster.nodes.iter().map(|node| &node.name).collect();
        let is_elsewhere =
            |pod: &Pod| !pod.phase.is_terminal() && pod.node_name.as_ref().is_some_and(|node| !nodes.contains(node));
        let elsewhere = self.cluster.pods.iter().filter(|pod| is_elsewhere(pod)).count();
        let ended = self.cluster.pods.iter().filter(|pod| pod.phase.is_terminal()).count();
        let used = |pod: &Pod| match pod.phase {
            PodPhase::Succeeded | PodPhase::Failed => false,
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => !is_elsewhere(pod),
        };
        self.cluster.pods.retain(|pod| used(pod));
        if elsewhere > 0 {
            self.notes.push(OfflineNote::BoundElsewhere(elsewhere));
        }
        if elsewhere + ended > 0 {
            *self.not_used.entry("Pod".to_owned()).or_default() += elsewhere + ended;
        }
    }

    /// Pods of manifests all wait; those that no plan of ours is for are told apart here. A snapshot's pods have a
    /// state of their own.
    fn set_aside_pods_not_ours(&mut self) {
        let is_live = self.cluster.pending != PendingRule::Unbound;
        for pod in self.cluster.pods.iter().filter(|pod| pod.node_name.is_none()) {
            let why = if is_live {
                if !(is_ignored(pod, &self.cluster.options)
                    && is_of_planned_scheduler(pod, &self.cluster.options)
                    && is_provisionable(pod))
                {
                    continue;
                }
                NotPlanned::ResourceClaimsIgnored
            } else if pod.scheduling == SchedulingState::Gated {
                NotPlanned::Gated
            } else if !is_of_planned_scheduler(pod, &self.cluster.options) {
                NotPlanned::OtherScheduler(Arc::clone(&pod.scheduler_name))
            } else {
                continue;
            };
            self.not_planned.push((pod.name.clone(), why));
        }
    }
}

/// The objects of a snapshot come from an API server.
fn admitted<'a>(header: Option<&Header>, compat: &'a Compat, namespaces: &'a AdminNamespaces) -> Admitted<'a> {
    header.map_or(Admitted::ByNobody(compat, namespaces), |_| Admitted::ByServer)
}

/// What is left of a NodePool that cannot be read.
fn by_name(name: &str) -> Option<NodePool> {
    let nothing = json!({"nodeClassRef": {"group": "", "kind": "", "name": ""}, "requirements": []});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"template": {"spec": nothing}}})).ok()
}
