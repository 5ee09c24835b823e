//! A provider in memory, for tests of whatever calls providers, and for the tests of the conformance kit itself.
//!
//! It does what the contract asks for, unless it is given a [`Defect`]. Time stands still unless the test moves it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use api::{NodeClaim, NodeClassReference, NodePool, labels};
use async_trait::async_trait;
use model::{DurationMs, InstanceTypeName, NodeClaimName, PriceNanoUsdPerHour, ProviderId, Quantity, Timestamp};

use crate::instance_type::resources_from_api;
use crate::launch::{LaunchOption, launch_candidates, launch_options};
use crate::{
    CapacityType, CloudProvider, ConditionStatus, CreateRequest, DriftReason, Error, Instance, InstanceState,
    InstanceType, InstanceTypes, LabelRequirements, NodeClassKind, NodeClassReadiness, Offering, OfferingKey, Overhead,
    ProviderConfig, RepairAction, RepairPolicy, ResourceList,
};

const NODE_CLASS_KINDS: [NodeClassKind; 1] =
    [NodeClassKind { group: "fake.example.com", version: "v1", kind: "FakeNodeClass", plural: "fakenodeclasses" }];

/// A way to break the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// An instance type is listed twice.
    TypeListedTwice,
    /// An instance type lacks the label of its architecture.
    TypeWithoutArchitecture,
    /// Overhead eats the whole machine.
    NothingAllocatable,
    /// An offering is listed twice.
    OfferingListedTwice,
    /// An offering is in a zone that its type does not have.
    OfferingInForeignZone,
    /// A price is below zero.
    NegativePrice,
    /// A reserved offering without a reservation.
    ReservedWithoutReservation,
    /// A label that is not declared.
    UndeclaredLabel,
    /// The generation changes although nothing else does.
    RestlessGeneration,
    /// Two fallbacks among the repair policies.
    TwoRepairFallbacks,
    /// Every node class counts as ready.
    EveryNodeClassReady,
    /// The token is not looked at.
    TokenIgnored,
    /// The token is looked at, but not at the moment of the launch.
    TokenCheckedTooEarly,
    /// What the NodeClaim asks for is not looked at.
    RequirementsIgnored,
    /// Corrected instance types are not looked at.
    CorrectionsIgnored,
    /// All NodeClaims share one instance.
    OneInstanceForAll,
    /// The list leaves tokens out.
    ListWithoutTokens,
    /// One instance tells another zone than it was created with.
    GetDisagrees,
    /// Deleting never ends.
    DeleteNeverEnds,
    /// Deleting what is gone succeeds.
    DeleteOfNothingSucceeds,
    /// Running out of machines is reported as something transient.
    NoCapacityIsTransient,
    /// Running out of machines does not say of which.
    NoCapacityWithoutOfferings,
    /// An offering without machines is tried again and again.
    NoCapacityTriedAgain,
    /// A fresh instance has drifted.
    AlwaysDrifted,
    /// A reboot that was accepted is refused when it is asked for again.
    RebootOnlyOnce,
}

#[derive(Debug, Default)]
struct State {
    now: Timestamp,
    launched: u64,
    instances: BTreeMap<ProviderId, Instance>,
    empty: BTreeSet<OfferingKey>,
    generation: u64,
    reboots: BTreeSet<String>,
    drifted: BTreeMap<ProviderId, DriftReason>,
}

/// The provider.
#[derive(Debug)]
pub struct FakeCloudProvider {
    config: ProviderConfig,
    types: Arc<[Arc<InstanceType>]>,
    repair_policies: Vec<RepairPolicy>,
    defect: Option<Defect>,
    state: Mutex<State>,
}

impl Default for FakeCloudProvider {
    fn default() -> Self {
        Self::new(default_types())
    }
}

impl FakeCloudProvider {
    /// A provider with these instance types.
    pub fn new(types: impl IntoIterator<Item = InstanceType>) -> Self {
        let types: BTreeMap<_, _> = types.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect();
        Self {
            config: ProviderConfig::default(),
            types: types.into_values().collect(),
            repair_policies: repair_policies(),
            defect: None,
            state: Mutex::default(),
        }
    }

    /// A provider with the default instance types that breaks the contract in one way.
    pub fn with_defect(defect: Defect) -> Self {
        let mut types: Vec<_> = default_types().into_iter().map(Arc::new).collect();
        if let Some(first) = types.first_mut() {
            spoil(Arc::make_mut(first), defect);
        }
        if defect == Defect::TypeListedTwice {
            types.extend(types.first().cloned());
            types.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let mut repair_policies = repair_policies();
        if defect == Defect::TwoRepairFallbacks {
            repair_policies.push(repair_policy("DiskPressure"));
        }
        Self { types: types.into(), repair_policies, defect: Some(defect), ..Self::new([]) }
    }

    /// Sets the time that instances launched from now on carry.
    pub fn set_now(&self, now: Timestamp) {
        self.state().now = now;
    }

    /// Lets an offering run out of machines, or have some again.
    pub fn set_has_capacity(&self, offering: &OfferingKey, has_capacity: bool) {
        let mut state = self.state();
        if has_capacity {
            state.empty.remove(offering);
        } else {
            state.empty.insert(offering.clone());
        }
    }

    /// Makes an instance vanish, as a cloud may.
    pub fn lose(&self, provider_id: &ProviderId) {
        self.state().instances.remove(provider_id);
    }

    /// Lets an instance drift for that reason, or be as it would be launched today.
    pub fn set_drifted(&self, provider_id: &ProviderId, reason: Option<DriftReason>) {
        let mut state = self.state();
        match reason {
            Some(reason) => drop(state.drifted.insert(provider_id.clone(), reason)),
            None => drop(state.drifted.remove(provider_id)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn of_token(&self, request: CreateRequest<'_>) -> Option<Instance> {
        let state = self.state();
        let mut instances = state.instances.values();
        if self.has(Defect::OneInstanceForAll) {
            return instances.next().cloned();
        }
        instances.find(|instance| instance.token.as_ref() == Some(request.token)).cloned()
    }

    fn launch(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        let requirements = if self.has(Defect::RequirementsIgnored) {
            LabelRequirements::default()
        } else {
            LabelRequirements::of_claim(request.claim, &self.config.labels).map_err(invalid)?
        };
        let requests = resources_from_api(&request.claim.spec.resources.requests).map_err(invalid)?;
        let mut state = self.state();
        let corrected = request.instance_types.filter(|_| !self.has(Defect::CorrectionsIgnored));
        let options = launch_options(corrected.unwrap_or(&self.types), &requirements, &requests, |_| false);
        let candidates = launch_candidates(&options, &requirements).map_err(|unmet| Error::CreateFailed {
            reason: "MinValuesNotMet".to_owned(),
            message: unmet.to_string(),
        })?;
        let (empty, full): (Vec<_>, Vec<_>) = candidates.iter().partition(|option| state.empty.contains(&option.key()));
        let first = if self.has(Defect::NoCapacityTriedAgain) { candidates.first() } else { full.first() };
        match first.filter(|option| !state.empty.contains(&option.key())) {
            Some(option) => Ok(launch(&mut state, request, *option, &requirements)),
            None if self.has(Defect::NoCapacityIsTransient) => Err(Error::Transient("no machines".to_owned())),
            None => Err(Error::InsufficientCapacity {
                message: format!("{} offerings have no machines", empty.len()),
                offerings: match self.defect {
                    Some(Defect::NoCapacityWithoutOfferings) => Vec::new(),
                    _ => empty.iter().map(|option| option.key()).collect(),
                },
            }),
        }
    }
}

fn invalid(error: impl std::error::Error) -> Error {
    Error::CreateFailed { reason: "InvalidNodeClaim".to_owned(), message: error.to_string() }
}

fn launch(
    state: &mut State,
    request: CreateRequest<'_>,
    option: LaunchOption<'_>,
    requirements: &LabelRequirements,
) -> Instance {
    state.launched += 1;
    let instance = Instance {
        provider_id: ProviderId::from(format!("fake://{:08}", state.launched)),
        token: Some(request.token.clone()),
        claim_name: request.claim.metadata.name.as_deref().map(NodeClaimName::from),
        labels: requirements.resolve_labels(option.instance_type, option.offering),
        annotations: BTreeMap::new(),
        image_id: Some("fake-image".to_owned()),
        capacity: option.offering.capacity(option.instance_type),
        allocatable: option.offering.allocatable(option.instance_type),
        instance_type: option.instance_type.name.clone(),
        zone: option.offering.zone.clone(),
        capacity_type: option.offering.capacity_type,
        created_at: state.now,
        state: InstanceState::Running,
    };
    state.instances.insert(instance.provider_id.clone(), instance.clone());
    instance
}

#[async_trait]
impl CloudProvider for FakeCloudProvider {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn config(&self) -> &ProviderConfig {
        &self.config
    }

    fn node_class_kinds(&self) -> &[NodeClassKind] {
        &NODE_CLASS_KINDS
    }

    async fn node_class_readiness(&self, node_class: &NodeClassReference) -> Result<NodeClassReadiness, Error> {
        let ready = node_class.name == "default" || self.has(Defect::EveryNodeClassReady);
        Ok(if ready { NodeClassReadiness::Ready } else { NodeClassReadiness::NotFound })
    }

    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        let launched = self.of_token(request);
        yield_once().await;
        let launched = if self.has(Defect::TokenCheckedTooEarly) { launched } else { self.of_token(request) };
        if let Some(instance) = launched.filter(|_| !self.has(Defect::TokenIgnored)) {
            return Ok(instance);
        }
        let launched = self.launch(request);
        yield_once().await;
        launched
    }

    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        let mut state = self.state();
        match state.instances.get_mut(provider_id) {
            Some(instance) if instance.state == InstanceState::Running => {
                instance.state = InstanceState::Terminating;
                Ok(())
            }
            Some(_) if self.has(Defect::DeleteNeverEnds) => Ok(()),
            None if self.has(Defect::DeleteOfNothingSucceeds) => Ok(()),
            Some(_) | None => {
                state.instances.remove(provider_id);
                Err(Error::NotFound(provider_id.to_string()))
            }
        }
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        let found = self.state().instances.get(provider_id).cloned();
        let mut instance = found.ok_or_else(|| Error::NotFound(provider_id.to_string()))?;
        if self.has(Defect::GetDisagrees) {
            instance.zone = "elsewhere".to_owned();
        }
        Ok(instance)
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        let mut instances: Vec<_> = self.state().instances.values().cloned().collect();
        if self.has(Defect::ListWithoutTokens) {
            for instance in &mut instances {
                instance.token = None;
            }
        }
        Ok(instances)
    }

    async fn instance_types(&self, _: &NodePool) -> Result<InstanceTypes, Error> {
        let mut state = self.state();
        if self.has(Defect::RestlessGeneration) {
            state.generation += 1;
        }
        Ok(InstanceTypes { generation: state.generation, types: Arc::clone(&self.types) })
    }

    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        if self.has(Defect::AlwaysDrifted) {
            return Ok(Some(DriftReason("AlwaysDrifted".to_owned())));
        }
        let id = claim.status.as_ref().map_or("", |status| &status.provider_id);
        let state = self.state();
        if !state.instances.contains_key(id) {
            return Err(Error::NotFound(id.to_owned()));
        }
        Ok(state.drifted.get(id).cloned())
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &self.repair_policies
    }

    async fn reboot(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), Error> {
        let id = claim.status.as_ref().map_or("", |status| &status.provider_id);
        let mut state = self.state();
        if !state.instances.contains_key(id) {
            return Err(Error::NotFound(id.to_owned()));
        }
        let first = state.reboots.insert(operation_id.to_owned());
        if !first && self.has(Defect::RebootOnlyOnce) {
            return Err(Error::RebootFailed("it was rebooted already".to_owned()));
        }
        Ok(())
    }
}

/// Gives everything else that runs on this task a turn, as a call over the network does.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A Node that is not ready for ten minutes is replaced.
pub fn repair_policies() -> Vec<RepairPolicy> {
    vec![repair_policy("Ready")]
}

fn repair_policy(condition_type: &str) -> RepairPolicy {
    RepairPolicy {
        condition_type: condition_type.to_owned(),
        condition_status: ConditionStatus::False,
        reason_regex: String::new(),
        toleration: DurationMs::from_seconds(600),
        termination_grace_period: None,
        priority: 0,
        action: RepairAction::ReplaceNode,
    }
}

/// Three sizes in two zones, spot and on demand.
pub fn default_types() -> Vec<InstanceType> {
    [("fake-small", 2), ("fake-medium", 4), ("fake-large", 8)].map(|(name, cpu)| default_type(name, cpu)).into()
}

fn default_type(name: &str, cpu: i64) -> InstanceType {
    let amounts = |cpu_milli: i64, memory_gib: i64, pods: i64| -> ResourceList {
        [("cpu", cpu_milli), ("memory", memory_gib * 1024 * 1024 * 1024 * 1000), ("pods", pods * 1000)]
            .map(|(resource, milli)| (resource.to_owned(), Quantity::from_milli(milli, Default::default())))
            .into()
    };
    let values = |values: &[&str]| -> BTreeSet<String> { values.iter().map(|value| (*value).to_owned()).collect() };
    let mut offerings = Vec::new();
    for zone in ["fake-zone-a", "fake-zone-b"] {
        for (capacity_type, factor) in [(CapacityType::Spot, 7), (CapacityType::OnDemand, 10)] {
            offerings.push(Offering {
                zone: zone.to_owned(),
                capacity_type,
                labels: BTreeMap::new(),
                reservation: None,
                price: PriceNanoUsdPerHour(cpu * factor * 1_000_000),
                available: true,
                capacity_override: None,
                overhead_override: None,
            });
        }
    }
    InstanceType {
        name: InstanceTypeName::from(name),
        requirements: [
            (labels::INSTANCE_TYPE, values(&[name])),
            (labels::ARCH, values(&[labels::ARCH_AMD64])),
            (labels::OS, values(&[labels::OS_LINUX])),
            (labels::ZONE, values(&["fake-zone-a", "fake-zone-b"])),
            (labels::CAPACITY_TYPE, values(&[labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_ON_DEMAND])),
        ]
        .map(|(key, values)| (key.to_owned(), values))
        .into(),
        offerings,
        capacity: amounts(cpu * 1000, cpu * 4, 110),
        overhead: Overhead { kube_reserved: amounts(100, 0, 0), ..Overhead::default() },
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    }
}

/// Breaks an instance type. Defects of other things leave it as it is.
fn spoil(instance_type: &mut InstanceType, defect: Defect) {
    let capacity = instance_type.capacity.clone();
    let first = instance_type.offerings.first_mut();
    match (defect, first) {
        (Defect::TypeWithoutArchitecture, _) => {
            instance_type.requirements.remove(labels::ARCH);
        }
        (Defect::NothingAllocatable, _) => instance_type.overhead.system_reserved = capacity,
        (Defect::UndeclaredLabel, _) => {
            instance_type.requirements.insert("example.com/undeclared".to_owned(), ["x".to_owned()].into());
        }
        (Defect::OfferingListedTwice, Some(first)) => {
            let twin = first.clone();
            instance_type.offerings.push(twin);
        }
        (Defect::OfferingInForeignZone, Some(first)) => first.zone = "foreign".to_owned(),
        (Defect::NegativePrice, Some(first)) => first.price = PriceNanoUsdPerHour(-1),
        (Defect::ReservedWithoutReservation, Some(first)) => {
            first.capacity_type = CapacityType::Reserved;
            let terms = instance_type.requirements.entry(labels::CAPACITY_TYPE.to_owned()).or_default();
            terms.insert(labels::CAPACITY_TYPE_RESERVED.to_owned());
        }
        (_, _) => {}
    }
}
