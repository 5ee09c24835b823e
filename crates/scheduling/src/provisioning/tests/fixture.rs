//! Small snapshots in few words.

mod devices;

use std::sync::Arc;

use api::labels;
use cloudprovider::CapacityType;
use model::{
    IdVec, Interner, LabelSelector, Labels, NamespacedName, NodeClaimName, NodePoolName, Pod, PodShape,
    PriceNanoUsdPerHour, Requirement, Requirements, ResourceId, ResourceVec, Taint, TaintEffect, Timestamp, Toleration,
    TolerationOperator, Unsupported, ValueSet,
    pod::{
        HostPort, NodeInclusionPolicy, NodeSelectorTerm, PodAffinityTerm, Protocol, SchedulingGroup, SpreadSource,
        TopologySpreadConstraint, VolumeRef, Weighted, WhenUnsatisfiable,
    },
    volume::{ClaimPhase, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBindingMode},
    workload::{DaemonSet, PodGroup, PodTemplate},
};

use crate::{
    catalogue::{Catalogue, InstanceType, Offering, Reservation},
    plan::Plan,
    snapshot::{
        Buffer, Limit, LimitRemaining, Node, NodeLabels, NodePool, NodeState, Options, PendingPod, PodsToPlace,
        Snapshot, Volumes, attach_resource,
    },
};

pub(crate) use devices::exactly;

pub(crate) fn gib(count: i64) -> i64 {
    count << 30
}

/// The label by which machines say their reservation.
pub(crate) const RESERVATION: &str = "example.com/reservation-id";

/// Collects objects; every part added last can be refined by the methods that follow it.
pub(crate) struct Fixture {
    pub(crate) names: Interner,
    types: Vec<(InstanceType, Vec<Offering>)>,
    pools: Vec<NodePool>,
    nodes: Vec<Node>,
    pods: Vec<(Pod, PodShape, Option<NodeClaimName>)>,
    daemon_sets: Vec<Arc<DaemonSet>>,
    pod_groups: std::collections::BTreeMap<NamespacedName, Arc<PodGroup>>,
    volumes: Volumes,
    namespaces: std::collections::BTreeMap<Arc<str>, Labels>,
    options: Options,
    devices: devices::DeviceFixture,
    buffers: Vec<Buffer>,
    /// What pods wait for.
    waiting: std::collections::BTreeMap<NamespacedName, Arc<str>>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            names: Interner::new(),
            types: Vec::new(),
            pools: Vec::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
            daemon_sets: Vec::new(),
            pod_groups: Default::default(),
            volumes: Volumes::default(),
            namespaces: Default::default(),
            options: Options::default(),
            devices: devices::DeviceFixture::default(),
            buffers: Vec::new(),
            waiting: Default::default(),
        }
    }

    /// A pod that was added waits for something else.
    pub(crate) fn waits(&mut self, pod: &str, what: &str) {
        self.waiting.insert(NamespacedName::new("default", pod), what.into());
    }

    pub(crate) fn pre_intern(&mut self, name: &str) {
        self.names.key(name);
        self.names.value(name);
    }

    pub(crate) fn search_steps(&mut self, steps: u64) {
        self.options.search_steps = steps;
    }

    pub(crate) fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn requirement(&mut self, key: &str, operator: &str, values: &[&str]) -> Requirement {
        let operator = operator.parse().unwrap();
        Requirement::parse(key, operator, values.iter().copied(), &mut self.names).unwrap()
    }

    pub(crate) fn instance_type(&mut self, name: &str, cpu: i64, memory_gib: i64) -> &mut Self {
        let mut capacity = ResourceVec::default();
        capacity.set(ResourceId::CPU, cpu * 1000);
        capacity.set(ResourceId::MEMORY, gib(memory_gib));
        capacity.set(ResourceId::PODS, 110);
        let requirement = self.requirement(labels::INSTANCE_TYPE, "In", &[name]);
        let requirements = Requirements::from_requirements([requirement], &self.names);
        let instance_type = InstanceType {
            name: name.into(),
            requirements,
            capacity,
            volume_attachment_limits: Vec::new(),
            device_templates: Arc::default(),
        };
        self.types.push((instance_type, Vec::new()));
        self
    }

    pub(crate) fn offering(&mut self, zone: &str, capacity_type: &str, price: i64) -> &mut Self {
        let zone_requirement = self.requirement(labels::ZONE, "In", &[zone]);
        let type_requirement = self.requirement(labels::CAPACITY_TYPE, "In", &[capacity_type]);
        let zone = self.names.value(zone);
        let (instance_type, offerings) = self.types.last_mut().unwrap();
        let mut requirements = instance_type.requirements.clone();
        requirements.insert_intersect(zone_requirement, &self.names);
        requirements.insert_intersect(type_requirement, &self.names);
        offerings.push(Offering {
            instance_type: model::Id::from_index(0),
            requirements,
            zone,
            capacity_type: CapacityType::parse(capacity_type).unwrap(),
            reservation: None,
            price: PriceNanoUsdPerHour(price),
            available: true,
            capacity: instance_type.capacity.clone(),
            allocatable: instance_type.capacity.clone(),
        });
        self
    }

    /// What the last type's machines don't give to pods; before its offerings are added.
    pub(crate) fn kept_by_kubelet(&mut self, milli_cpu: i64, memory: i64) -> &mut Self {
        let (instance_type, _) = self.types.last_mut().unwrap();
        let mut kept = ResourceVec::default();
        kept.set(ResourceId::CPU, milli_cpu);
        kept.set(ResourceId::MEMORY, memory);
        instance_type.capacity.saturating_sub_assign(&kept);
        self
    }

    /// The offering added last draws on a reservation with so many machines left.
    pub(crate) fn of_reservation(&mut self, id: &str, remaining: u32) -> &mut Self {
        let requirement = self.requirement(RESERVATION, "In", &[id]);
        let (label, id) = (Some(self.names.key(RESERVATION)), self.names.value(id));
        let offering = self.types.last_mut().unwrap().1.last_mut().unwrap();
        offering.requirements.insert_intersect(requirement, &self.names);
        offering.reservation = Some(Reservation { label, id, remaining });
        self
    }

    pub(crate) fn unavailable(&mut self) -> &mut Self {
        self.types.last_mut().unwrap().1.last_mut().unwrap().available = false;
        self
    }

    pub(crate) fn pool(&mut self, name: &str) -> &mut Self {
        let requirement = self.requirement(labels::NODEPOOL, "In", &[name]);
        self.pools.push(NodePool {
            name: NodePoolName::from(name),
            weight: 0,
            usable: Ok(()),
            requirements: Requirements::from_requirements([requirement], &self.names),
            planning_only: Vec::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            remaining: Vec::new(),
            catalogue: Arc::default(),
            observed_room: Vec::new(),
        });
        self
    }

    pub(crate) fn weight(&mut self, weight: i32) -> &mut Self {
        self.pools.last_mut().unwrap().weight = weight;
        self
    }

    pub(crate) fn require(&mut self, key: &str, operator: &str, values: &[&str]) -> &mut Self {
        let requirement = self.requirement(key, operator, values);
        self.pools.last_mut().unwrap().requirements.insert_intersect(requirement, &self.names);
        self
    }

    pub(crate) fn min_values(&mut self, key: &str, wanted: u32) -> &mut Self {
        let requirement = self.requirement(key, "Exists", &[]);
        let requirement = Requirement { min_values: Some(wanted), ..requirement };
        self.pools.last_mut().unwrap().requirements.insert_intersect(requirement, &self.names);
        self
    }

    pub(crate) fn limit(&mut self, resource: &str, total: i64, remaining: i64) -> &mut Self {
        let limit = match resource {
            "nodes" => Limit::Nodes,
            resource => Limit::Resource(self.names.resource(resource)),
        };
        self.pools.last_mut().unwrap().remaining.push(LimitRemaining { limit, total, remaining });
        self
    }

    /// Adds a label to the last pool.
    pub(crate) fn label(&mut self, key: &str, value: &str) -> &mut Self {
        if let Some(Node { labels: NodeLabels::Known(labels), .. }) = self.nodes.last_mut() {
            let key = self.names.key(key);
            labels.insert(key, self.names.value(value));
            return self;
        }
        self.require(key, "In", &[value])
    }

    /// Adds a NoSchedule taint to the last node, or to the last pool while there is no node.
    pub(crate) fn taint(&mut self, key: &str, value: &str) -> &mut Self {
        self.taint_with(TaintEffect::NoSchedule, key, value)
    }

    /// Taints the last node, with any effect.
    pub(crate) fn taint_with(&mut self, effect: TaintEffect, key: &str, value: &str) -> &mut Self {
        let taint = Taint { key: self.names.key(key), value: self.names.value(value), effect };
        match self.nodes.last_mut() {
            Some(node) => node.taints.push(taint),
            None => self.pools.last_mut().unwrap().taints.push(taint),
        }
        self
    }

    pub(crate) fn node(&mut self, name: &str) -> &mut Self {
        let hostname = self.names.key(labels::HOSTNAME);
        let mut node_labels = Labels::new();
        node_labels.insert(hostname, self.names.value(name));
        self.nodes.push(Node {
            name: Some(name.into()),
            node_claim: None,
            node_pool: None,
            state: NodeState::Initialized,
            excluded: None,
            labels: NodeLabels::Known(node_labels),
            taints: Vec::new(),
            allocatable: ResourceVec::default(),
            attach_limits: Vec::new(),
            pods: Vec::new().into(),
            awaits_devices: false,
        });
        self
    }

    pub(crate) fn allocatable(&mut self, milli_cpu: i64, memory: i64) -> &mut Self {
        let node = self.nodes.last_mut().unwrap();
        node.allocatable.set(ResourceId::CPU, milli_cpu);
        node.allocatable.set(ResourceId::MEMORY, memory);
        node.allocatable.set(ResourceId::PODS, 110);
        self
    }

    /// The node added last takes no more pods than that.
    pub(crate) fn most_pods(&mut self, pods: i64) -> &mut Self {
        self.nodes.last_mut().unwrap().allocatable.set(ResourceId::PODS, pods);
        self
    }

    /// The node added last is going.
    pub(crate) fn deleting(&mut self) -> &mut Self {
        self.nodes.last_mut().unwrap().excluded = Some(crate::snapshot::Excluded::Deleting);
        self
    }

    pub(crate) fn pod(&mut self, name: &str) -> PodFixture<'_> {
        let mut shape = PodShape::default();
        shape.requests.set(ResourceId::PODS, 1);
        self.pods.push((pod(name), shape, None));
        PodFixture { fixture: self }
    }

    /// A PodGroup; pods join it by [`PodFixture::group`].
    pub(crate) fn pod_group(&mut self, name: &str, min_count: Option<u32>) {
        let name = NamespacedName::new("default", name);
        let group = PodGroup { name: name.clone(), min_count, topology_key: None, unsupported: Vec::new() };
        self.pod_groups.insert(name, Arc::new(group));
    }

    /// A PodGroup whose pods have to be at one value of a label.
    pub(crate) fn pod_group_in_one(&mut self, name: &str, min_count: Option<u32>, key: &str) {
        self.pod_group(name, min_count);
        let key = self.names.key(key);
        let group = self.pod_groups.get_mut(&NamespacedName::new("default", name)).unwrap();
        Arc::make_mut(group).topology_key = Some(key);
    }

    pub(crate) fn daemon_set(&mut self, name: &str, milli_cpu: i64, memory: i64, selector: &[(&str, &str)]) {
        let mut shape = PodShape::default();
        shape.requests.set(ResourceId::CPU, milli_cpu);
        shape.requests.set(ResourceId::MEMORY, memory);
        shape.requests.set(ResourceId::PODS, 1);
        for (key, value) in selector {
            let requirement = self.requirement(key, "In", &[value]);
            shape.node_selector.insert_intersect(requirement, &self.names);
        }
        self.daemon_sets.push(Arc::new(DaemonSet {
            name: NamespacedName::new("kube-system", name),
            uid: name.into(),
            template: PodTemplate {
                labels: Labels::new(),
                priority: None,
                priority_class: None,
                shape: Arc::new(shape),
            },
            template_generation: None,
        }));
    }

    /// A claim that waits for its first consumer, and the class of its driver.
    pub(crate) fn waiting_claim(&mut self, name: &str, driver: &str) {
        let class: Arc<str> = Arc::from("standard");
        self.volumes.classes.entry(Arc::clone(&class)).or_insert_with(|| {
            Arc::new(StorageClass {
                name: Arc::clone(&class),
                provisioner: driver.into(),
                binding_mode: VolumeBindingMode::WaitForFirstConsumer,
                allowed_topologies: Vec::new(),
                is_default: true,
            })
        });
        let name = NamespacedName::new("default", name);
        let claim = PersistentVolumeClaim {
            name: name.clone(),
            uid: "claim".into(),
            volume_name: None,
            storage_class: Some(class),
            phase: ClaimPhase::Pending,
            access_modes: Vec::new(),
            bind_completed: false,
            is_being_deleted: false,
        };
        self.volumes.claims.insert(name, Arc::new(claim));
    }

    /// A claim that was added, to be changed.
    pub(crate) fn volume_claim(&mut self, name: &str) -> &mut PersistentVolumeClaim {
        Arc::make_mut(self.volumes.claims.get_mut(&NamespacedName::new("default", name)).unwrap())
    }

    /// A volume that is reached from nodes with these labels.
    pub(crate) fn volume(&mut self, name: &str, labels: &[&str]) {
        let requirements: Vec<Requirement> =
            labels.iter().map(|label| self.requirement(label, "Exists", &[])).collect();
        let expressions = Requirements::from_requirements(requirements, &self.names);
        let term = NodeSelectorTerm { expressions, ..NodeSelectorTerm::default() };
        let volume = PersistentVolume {
            name: name.into(),
            node_affinity: if labels.is_empty() { Vec::new() } else { vec![term] },
            csi_driver: None,
            csi_volume_handle: None,
            storage_class: None,
            claim: None,
        };
        self.volumes.volumes.insert(name.into(), Arc::new(volume));
    }

    /// The instance type added last attaches so many volumes of a driver.
    pub(crate) fn attaches(&mut self, driver: &str, limit: u32) -> &mut Self {
        self.names.resource(&attach_resource(driver));
        self.types.last_mut().unwrap().0.volume_attachment_limits.push((driver.into(), limit));
        self
    }

    pub(crate) fn attach_limit(&mut self, driver: &str, limit: u32) -> &mut Self {
        self.names.resource(&attach_resource(driver));
        self.nodes.last_mut().unwrap().attach_limits.push((driver.into(), limit));
        self
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let catalogue = Arc::new(Catalogue::new(self.types.clone(), &self.names));
        let pools = self.pools.iter().cloned().map(|pool| NodePool { catalogue: Arc::clone(&catalogue), ..pool });
        let pods = self.pods.iter().map(|(pod, shape, planned_on)| PendingPod {
            pod: Arc::new(Pod { shape: Arc::new(shape.clone()), ..pod.clone() }),
            planned_on: planned_on.clone(),
            devices: self.devices.pod(&pod.name),
            waits_for: self.waiting.get(&pod.name).cloned(),
            stays_within: None,
        });
        let (pools, pods) = (pools.collect::<IdVec<_, _>>(), pods.collect::<IdVec<_, _>>());
        let nodes = self.nodes.iter().cloned().map(Arc::new).collect();
        let to_place = PodsToPlace { pods: &pods, buffers: &self.buffers };
        let devices = self.devices.build(&pools, &nodes, to_place, &self.daemon_sets, &self.names);
        Snapshot {
            interner: Arc::new(self.names.clone()),
            now: Timestamp::default(),
            options: self.options.clone(),
            node_pools: pools,
            nodes,
            pods,
            daemon_sets: self.daemon_sets.clone(),
            pod_groups: self.pod_groups.clone(),
            volumes: self.volumes.clone(),
            namespaces: self.namespaces.clone(),
            devices,
            buffers: self.buffers.clone(),
            fleet: None,
        }
    }
}

pub(crate) fn pod(name: &str) -> Pod {
    Pod {
        name: NamespacedName::new("default", name),
        uid: name.into(),
        labels: Labels::new(),
        created_at: Timestamp::default(),
        started_at: None,
        deletion_timestamp: None,
        priority: 0,
        preemption_policy: model::pod::PreemptionPolicy::default(),
        owner: None,
        is_daemon: false,
        template_generation: None,
        is_mirror: false,
        node_name: None,
        nominated_node_name: None,
        phase: model::pod::PodPhase::Pending,
        is_unready: false,
        scheduling: model::pod::SchedulingState::Unschedulable,
        scheduler_name: "default-scheduler".into(),
        do_not_disrupt: model::pod::DoNotDisrupt::default(),
        disruption_cost: None,
        deletion_cost: None,
        termination_grace_period_s: None,
        resource_claim_names: Vec::new(),
        may_enter: Vec::new(),
        kubelet_plugins: None,
        resizing: None,
        unreadable: None,
        shape: Arc::default(),
    }
}

/// Refines the pod added last.
pub(crate) struct PodFixture<'f> {
    fixture: &'f mut Fixture,
}

impl PodFixture<'_> {
    fn shape(&mut self) -> &mut PodShape {
        &mut self.fixture.pods.last_mut().unwrap().1
    }

    pub(crate) fn requests(mut self, milli_cpu: i64, memory: i64) -> Self {
        self.shape().requests.set(ResourceId::CPU, milli_cpu);
        self.shape().requests.set(ResourceId::MEMORY, memory);
        self
    }

    pub(crate) fn group(mut self, name: &str) -> Self {
        let pod_group = NamespacedName::new("default", name);
        self.shape().scheduling_group = Some(SchedulingGroup { pod_group });
        self
    }

    pub(crate) fn priority(self, priority: i32) -> Self {
        self.fixture.pods.last_mut().unwrap().0.priority = priority;
        self
    }

    pub(crate) fn select(mut self, key: &str, value: &str) -> Self {
        let requirement = self.fixture.requirement(key, "In", &[value]);
        let names = self.fixture.names.clone();
        self.shape().node_selector.insert_intersect(requirement, &names);
        self
    }

    fn selector_term(&mut self, expressions: &[(&str, &str, &[&str])]) -> NodeSelectorTerm {
        let requirements: Vec<Requirement> =
            expressions.iter().map(|(key, operator, values)| self.fixture.requirement(key, operator, values)).collect();
        let expressions = Requirements::from_requirements(requirements, &self.fixture.names);
        NodeSelectorTerm { expressions, ..NodeSelectorTerm::default() }
    }

    pub(crate) fn term(mut self, expressions: &[(&str, &str, &[&str])]) -> Self {
        let term = self.selector_term(expressions);
        self.shape().required_node_affinity.push(term);
        self
    }

    /// Wants the Node of that name.
    pub(crate) fn node_named(mut self, name: &str) -> Self {
        let node_name = Some(ValueSet::one(self.fixture.names.value(name)));
        self.shape().required_node_affinity.push(NodeSelectorTerm { node_name, ..NodeSelectorTerm::default() });
        self
    }

    pub(crate) fn prefer(mut self, key: &str, value: &str) -> Self {
        let term = self.selector_term(&[(key, "In", &[value])]);
        self.shape().preferred_node_affinity.push(Weighted { weight: 1, term });
        self
    }

    /// Would rather share a value of `key` with pods of the app.
    pub(crate) fn rather_near(mut self, key: &str, app: &str) -> Self {
        self = self.near(key, app);
        let affinity = &mut self.shape().pod_affinity;
        let term = affinity.required.pop().unwrap();
        affinity.preferred.push(Weighted { weight: 100, term });
        self
    }

    /// Would rather not share a value of `key` with pods of the app.
    pub(crate) fn rather_away_from(mut self, key: &str, app: &str) -> Self {
        self = self.away_from(key, app);
        let anti_affinity = &mut self.shape().pod_anti_affinity;
        let term = anti_affinity.required.pop().unwrap();
        anti_affinity.preferred.push(Weighted { weight: 100, term });
        self
    }

    pub(crate) fn tolerate(mut self, key: &str, value: &str) -> Self {
        let toleration = Toleration {
            key: Some(self.fixture.names.key(key)),
            operator: TolerationOperator::Equal,
            value: self.fixture.names.value(value),
            effect: None,
            toleration_seconds: None,
        };
        self.shape().tolerations.push(toleration);
        self
    }

    pub(crate) fn label(self, key: &str, value: &str) -> Self {
        let (key, value) = (self.fixture.names.key(key), self.fixture.names.value(value));
        self.fixture.pods.last_mut().unwrap().0.labels.insert(key, value);
        self
    }

    /// Spreads pods with label `app` of this value.
    pub(crate) fn spread(mut self, key: &str, max_skew: u32, app: &str) -> Self {
        let topology_key = self.fixture.names.key(key);
        let selector = self.fixture.app(app);
        self.shape().topology_spread.push(TopologySpreadConstraint {
            max_skew,
            topology_key,
            when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
            selector,
            namespace: "default".into(),
            min_domains: None,
            node_affinity_policy: NodeInclusionPolicy::Honor,
            node_taints_policy: NodeInclusionPolicy::Ignore,
            match_label_keys: Vec::new(),
            source: SpreadSource::Pod,
        });
        self
    }

    /// Refines the spread added last.
    pub(crate) fn but(mut self, change: impl FnOnce(&mut TopologySpreadConstraint, &mut Interner)) -> Self {
        let mut names = std::mem::take(&mut self.fixture.names);
        change(self.shape().topology_spread.last_mut().unwrap(), &mut names);
        self.fixture.names = names;
        self
    }

    pub(crate) fn near(mut self, key: &str, app: &str) -> Self {
        let term = self.fixture.pod_term(key, app);
        self.shape().pod_affinity.required.push(term);
        self
    }

    pub(crate) fn away_from(mut self, key: &str, app: &str) -> Self {
        let term = self.fixture.pod_term(key, app);
        self.shape().pod_anti_affinity.required.push(term);
        self
    }

    pub(crate) fn port(mut self, ip: &str, port: u16, protocol: Protocol) -> Self {
        self.shape().host_ports.push(HostPort { ip: ip.parse().unwrap(), port, protocol });
        self
    }

    pub(crate) fn going(self) -> Self {
        self.fixture.pods.last_mut().unwrap().0.deletion_timestamp = Some(Timestamp::default());
        self
    }

    /// The pod is on a node that it has to leave.
    pub(crate) fn leaves(self, node: &str) -> Self {
        self.fixture.pods.last_mut().unwrap().0.node_name = Some(node.into());
        self
    }

    pub(crate) fn in_namespace(self, namespace: &str) -> Self {
        self.fixture.pods.last_mut().unwrap().0.name.namespace = namespace.into();
        self
    }

    /// The pod is one of a DaemonSet.
    pub(crate) fn daemon(self) -> Self {
        self.fixture.pods.last_mut().unwrap().0.is_daemon = true;
        self
    }

    /// The pod runs on the node added last instead of waiting.
    pub(crate) fn runs(self) {
        let (pod, shape, _) = self.fixture.pods.pop().unwrap();
        let node = self.fixture.nodes.last_mut().unwrap();
        node.pods.extend([Arc::new(Pod { shape: Arc::new(shape), node_name: node.name.clone(), ..pod })]);
    }

    /// The pod is promised the node added last, and will be bound to it, instead of waiting.
    pub(crate) fn nominated(self) {
        let (pod, shape, _) = self.fixture.pods.pop().unwrap();
        let node = self.fixture.nodes.last_mut().unwrap();
        let nominated_node_name = Some(node.display_name().into());
        node.pods.extend([Arc::new(Pod { shape: Arc::new(shape), nominated_node_name, ..pod })]);
    }

    /// Room is kept for so many of the pod instead of the pod itself, under its name.
    pub(crate) fn buffered(self, replicas: u32) {
        let (pod, shape, _) = self.fixture.pods.pop().unwrap();
        let template = PodTemplate {
            labels: pod.labels,
            priority: Some(pod.priority),
            priority_class: None,
            shape: Arc::new(shape),
        };
        let devices = self.fixture.devices.pod(&pod.name);
        let buffer = Buffer { name: pod.name, uid: pod.uid, template: Arc::new(template), devices, replicas };
        self.fixture.buffers.push(buffer);
    }

    pub(crate) fn claim(mut self, name: &str) -> Self {
        self.shape().volumes.push(VolumeRef::Claim(NamespacedName::new("default", name)));
        self
    }

    pub(crate) fn unsupported(mut self, construct: &str) -> Self {
        self.shape().unsupported.push(Unsupported::new(construct));
        self
    }

    pub(crate) fn planned_on(self, claim: &str) -> Self {
        self.fixture.pods.last_mut().unwrap().2 = Some(claim.into());
        self
    }
}

impl Fixture {
    fn app(&mut self, app: &str) -> LabelSelector {
        LabelSelector::new([("app", app)], [], &mut self.names).unwrap()
    }

    fn pod_term(&mut self, key: &str, app: &str) -> PodAffinityTerm {
        PodAffinityTerm {
            topology_key: self.names.key(key),
            selector: self.app(app),
            namespaces: vec!["default".into()],
            namespace_selector: LabelSelector::Nothing,
            match_label_keys: Vec::new(),
            mismatch_label_keys: Vec::new(),
        }
    }

    /// Adds a host port to the DaemonSet added last.
    pub(crate) fn daemon_port(&mut self, port: u16) {
        let daemon_set = Arc::make_mut(self.daemon_sets.last_mut().unwrap());
        let shape = Arc::make_mut(&mut daemon_set.template.shape);
        shape.host_ports.push(HostPort { ip: HostPort::ANY_IP, port, protocol: Protocol::Tcp });
    }

    /// Changes a claim, its volume or its class.
    pub(crate) fn volumes(&mut self) -> (&mut Interner, &mut Volumes) {
        (&mut self.names, &mut self.volumes)
    }

    /// Makes the last node one of a NodePool.
    pub(crate) fn of_pool(&mut self, name: &str) -> &mut Self {
        self.nodes.last_mut().unwrap().node_pool = Some(name.into());
        self
    }

    /// Makes the last node one of no NodePool.
    pub(crate) fn of_no_pool(&mut self) -> &mut Self {
        self.nodes.last_mut().unwrap().node_pool = None;
        self
    }

    /// How far the last node has come.
    pub(crate) fn state(&mut self, state: NodeState) -> &mut Self {
        self.nodes.last_mut().unwrap().state = state;
        self
    }

    /// Makes the last node belong to a NodeClaim.
    pub(crate) fn claim(&mut self, name: &str) -> &mut Self {
        self.nodes.last_mut().unwrap().node_claim = Some(name.into());
        self
    }
}

/// A plan, one line a decision.
pub(crate) fn render(plan: &Plan, snapshot: &Snapshot) -> String {
    use std::fmt::Write as _;
    let names = &snapshot.interner;
    let pods = |pods: &[crate::snapshot::PodId]| {
        pods.iter().map(|&pod| snapshot.pods[pod].pod.name.name.to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    for machine in &plan.machines {
        let pool = &snapshot.node_pools[machine.node_pool];
        let types: Vec<&str> =
            machine.instance_types.iter().map(|&id| pool.catalogue.types[id].name.as_str()).collect();
        let labels: Vec<String> = machine
            .labels
            .iter()
            .filter(|(key, _)| names.key_name(*key) != labels::NODEPOOL)
            .map(|(key, value)| format!("{}={value}", names.key_name(*key)))
            .collect();
        let labels = if labels.is_empty() { String::new() } else { format!(" labels [{}]", labels.join(", ")) };
        let devices: Vec<String> = machine.devices.iter().map(|(driver, count)| format!("{count} {driver}")).collect();
        let devices = if devices.is_empty() { String::new() } else { format!(" devices [{}]", devices.join(", ")) };
        let _ = writeln!(
            text,
            "machine {}-{}: {}/{}/{} {} types [{}]{labels}{devices} pods [{}]",
            pool.name,
            machine.index_in_pool,
            pool.catalogue.types[machine.launch.instance_type].name,
            names.value_name(machine.launch.zone),
            machine.launch.capacity_type,
            machine.launch.price,
            types.join(", "),
            pods(&machine.pods)
        );
    }
    for placement in &plan.existing {
        let name = snapshot.nodes[placement.node].display_name();
        let _ = write!(text, "node {name}: [{}]", pods(&placement.pods));
        if !placement.drivers.is_empty() {
            let _ = write!(text, " waits for [{}]", placement.drivers.join(", "));
        }
        text.push('\n');
    }
    for later in &plan.later {
        let _ = writeln!(text, "then [{}]", pods(later));
    }
    for refusal in &plan.refusals {
        let reasons: Vec<String> = refusal
            .reasons
            .iter()
            .map(|reason| {
                let object = reason.object().map(|object| format!("{object}: ")).unwrap_or_default();
                format!("{object}{}", reason.message(names))
            })
            .collect();
        let _ = writeln!(
            text,
            "refused {} ({:?}): {}",
            snapshot.pods[refusal.pod].pod.name.name,
            refusal.verdict,
            reasons.join("; ")
        );
    }
    for note in &plan.notes {
        let _ = writeln!(text, "note {} ({}): {}", note.example.name, note.pods, note.kind.construct());
    }
    text
}
