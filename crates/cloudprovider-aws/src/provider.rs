//! The provider: [`CloudProvider`] on top of the services of AWS.
//!
//! What is decided is in the rest of the crate; here are the calls, and the order that they must have. The services,
//! the cluster and the clock are traits, so that all of this runs on an EC2 in memory.

mod catalogue;
pub mod cluster;
pub(crate) mod drift;
mod dry_run;
mod instances;
mod journal;
mod launcher;
mod learning;
mod lookup;
mod market;
pub mod offerings;
mod pace;
mod readiness;
pub(crate) mod region;
mod repair;
mod subnets;
mod templates;
mod tidy;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::labels as kubernetes;
use api::{NodeClaim, NodeClassReference, NodePool};
use async_trait::async_trait;
use cloudprovider::{
    CloudProvider, CreateRequest, DriftReason, Error, Instance, InstanceType, InstanceTypes, NodeClassKind,
    NodeClassReadiness, ProviderConfig, RepairPolicy,
};
use model::{ProviderId, Timestamp, Uid};
use parking_lot::Mutex;
use serde_json::Value;

use self::catalogue::{Catalogue, Inputs, Known};
use self::cluster::Cluster;
use self::instances::{Owner, instance, query};
use self::launcher::{Answered, Launcher, NotLaunched};
use self::learning::Learning;
use self::lookup::{SHOWN_WITHIN, as_launched};
use self::market::RegionMarket;
use self::readiness::{UNKNOWN, readiness};
use self::templates::Templates;
use crate::declaration::{DECLARATION, provider_labels};
use crate::fleet_answer::{Outcome, evidence};
use crate::instance_types::Resolver;
use crate::instance_types::settings::{MachineOptions, NodeSettings};
use crate::launch::batch::{Claim, Wanted};
use crate::launch::fleet::Choice;
use crate::launch::resolve::{LaunchInput, asked, asked_partition, resolve};
use crate::node_class::kubelet::{Kubelet, Problem};
use crate::node_class::{NodeClass, decode};
use crate::provider_id::MachineId;
use crate::service::ec2::{Machine, MachineState, PlacementGroup};
use crate::service::error::launch_failure_reason;
use crate::service::{Ec2, Kind as Fault};
use crate::telemetry::Telemetry;
use crate::{discovery, names, user_data};

pub(crate) use self::dry_run::{DryRun, Trial};

/// Tells the time of day.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How many node classes are kept in memory.
const CLASSES: usize = 1000;

/// What the provider is made with.
pub struct Setup {
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// The cluster's objects.
    pub objects: Arc<dyn Cluster>,
    /// What machines are told of the cluster.
    pub cluster: user_data::Cluster,
    /// The region.
    pub region: String,
    /// What the controller's options change of machines.
    pub machines: MachineOptions,
    /// The time.
    pub clock: Clock,
    /// Another number in every process.
    pub seed: u64,
    /// Where the provider tells of itself.
    pub telemetry: Telemetry,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("cluster", &self.cluster.name)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// The provider for EC2. Clones are the same one.
#[derive(Clone)]
pub struct Ec2CloudProvider {
    inner: Arc<Inner>,
}

struct Inner {
    ec2: Arc<dyn Ec2>,
    objects: Arc<dyn Cluster>,
    cluster: user_data::Cluster,
    region: String,
    machines: MachineOptions,
    clock: Clock,
    config: ProviderConfig,
    repair_policies: Vec<RepairPolicy>,
    market: Arc<RegionMarket>,
    telemetry: Telemetry,
    catalogue: Catalogue,
    learning: Mutex<Learning>,
    templates: Templates,
    launcher: Launcher,
    /// Node classes as they were read last, by name.
    classes: Mutex<BTreeMap<String, (Value, NodeClass)>>,
    /// Machines that we have ended, and when. Lists show them as they were for a while.
    ended: Mutex<BTreeMap<String, Timestamp>>,
}

impl std::fmt::Debug for Ec2CloudProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ec2CloudProvider").field("cluster", &self.inner.cluster.name).finish_non_exhaustive()
    }
}

/// A node class that machines can be launched from, and what is known of it.
struct Ready {
    class: NodeClass,
    kubelet: Kubelet,
    placement_group: Option<PlacementGroup>,
}

impl Ec2CloudProvider {
    /// A provider for a cluster. Nothing is called yet.
    pub fn new(setup: Setup) -> Self {
        let Setup { ec2, objects, cluster, region, machines, clock, seed, telemetry } = setup;
        let metrics = telemetry.metrics.clone();
        let market = RegionMarket::new(Arc::clone(&ec2), Arc::clone(&objects), Arc::clone(&clock), metrics);
        let market = Arc::new(market);
        let journal = journal::Journal::new(Arc::clone(&objects));
        let launcher =
            Launcher::new(Arc::clone(&ec2), journal, Arc::clone(&clock), Arc::clone(&market) as Arc<_>, seed);
        let inner = Inner {
            templates: Templates::new(Arc::clone(&ec2), &cluster.name),
            ec2,
            objects,
            cluster,
            region,
            machines,
            clock,
            config: ProviderConfig { labels: provider_labels(&[]), ..ProviderConfig::default() },
            repair_policies: repair::policies(),
            market,
            telemetry,
            catalogue: Catalogue::default(),
            learning: Mutex::default(),
            launcher,
            classes: Mutex::default(),
            ended: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn now(&self) -> Timestamp {
        (self.inner.clock)()
    }

    /// A node class of ours as the server has it.
    async fn object(&self, reference: &NodeClassReference) -> Result<Option<Value>, Error> {
        let is_ours = |kind: &NodeClassKind| kind.group == reference.group && kind.kind == reference.kind;
        if !DECLARATION.node_class_kinds.iter().any(is_ours) {
            return Ok(None);
        }
        self.inner.objects.node_class(&reference.name).await.map_err(transient)
    }

    /// The node class to launch a NodeClaim's machine from.
    async fn ready(&self, reference: &NodeClassReference) -> Result<Ready, Error> {
        let name = &reference.name;
        let not_ready = |why: &str| Error::NodeClassNotReady(format!("EC2NodeClass {name}: {why}"));
        let object = self.object(reference).await?.ok_or_else(|| not_ready("not found"))?;
        match readiness(&object) {
            NodeClassReadiness::Ready => {}
            NodeClassReadiness::NotReady { reason, message } if reason == UNKNOWN => {
                return Err(Error::CreateFailed { reason, message });
            }
            NodeClassReadiness::NotReady { reason, message } => return Err(not_ready(&format!("{reason}: {message}"))),
            NodeClassReadiness::Terminating => return Err(not_ready("is being deleted")),
            NodeClassReadiness::NotFound => return Err(not_ready("not found")),
        }
        self.known(&object).await.map_err(|error| match error {
            Error::InstanceTypesNotEvaluated(_) => not_ready("cannot be read"),
            error => error,
        })
    }

    /// What is known of a node class, ready or not.
    async fn known(&self, object: &Value) -> Result<Ready, Error> {
        self.understood(self.read(object)?).await
    }

    /// Reads a node class. Its rules are costly to check, so one that has not changed is not checked again.
    fn read(&self, object: &Value) -> Result<NodeClass, Error> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if let Some((before, class)) = self.inner.classes.lock().get(name)
            && before == object
        {
            return Ok(class.clone());
        }
        let class = decode(object).map_err(|error| Error::NodeClassNotReady(error.to_string()))?;
        let classes = &mut *self.inner.classes.lock();
        if classes.len() >= CLASSES {
            classes.clear();
        }
        classes.insert(name.to_owned(), (object.clone(), class.clone()));
        Ok(class)
    }

    /// The kubelet's settings in a node class.
    pub(crate) fn kubelet(&self, class: &NodeClass) -> Result<Kubelet, Vec<Problem>> {
        Kubelet::read(&class.spec.kubelet, class.spec.ami_family, self.inner.machines.expressions)
    }

    /// The first setting of the kubelet whose expression fails on an instance type of the region, and why.
    pub(crate) async fn failed_expression(&self, class: &NodeClass) -> Result<Option<String>, Error> {
        let Ok(kubelet) = self.kubelet(class) else { return Ok(None) };
        if kubelet.computed.is_empty() {
            return Ok(None);
        }
        let Ok(settings) = NodeSettings::of_node_class(class, &kubelet, None) else { return Ok(None) };
        let (_, region) = self.inner.market.region().await?;
        let resolver = Resolver { region: &self.inner.region, settings: &settings, options: &self.inner.machines };
        let failed = region.types.values().find_map(|info| resolver.failed_expression(info));
        Ok(failed.map(|(field, why)| format!("spec.kubelet.{field}: {why}")))
    }

    /// What is known of a node class that was read.
    async fn understood(&self, class: NodeClass) -> Result<Ready, Error> {
        let kubelet = self.kubelet(&class).map_err(|problems| {
            let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
            Error::NodeClassNotReady(format!("EC2NodeClass {}: {}", class.name, all.join("; ")))
        })?;
        let placement_group = match &class.spec.placement_group {
            Some(term) => {
                let query = discovery::placement_group(term);
                Some(self.inner.market.placement_group(&query).await?).flatten()
            }
            None => None,
        };
        Ok(Ready { class, kubelet, placement_group })
    }

    /// The instance types of a node class.
    async fn types(&self, ready: &Ready) -> Result<InstanceTypes, Error> {
        let inner = &*self.inner;
        let (class, now) = (&ready.class, self.now());
        let region = inner.market.region().await?;
        let left = inner.market.reservations(&class.status.capacity_reservations).await?;
        let strategy = ready.placement_group.as_ref().map(|group| group.strategy.clone());
        let (ledger, of_ledger) = inner.market.ledger();
        let (learned, of_learned) = {
            let learning = &mut *inner.learning.lock();
            let generation = learning.memory.generation(now);
            (learning.memory.clone(), generation)
        };
        let inputs = Inputs {
            region: inner.region.clone(),
            settings: NodeSettings::of_node_class(class, &ready.kubelet, strategy)
                .map_err(|reason| Error::NodeClassNotReady(format!("EC2NodeClass {}: {reason}", class.name)))?,
            options: inner.machines,
            images: class.status.amis.clone(),
            subnet_zones: Inputs::subnet_zones(class),
            placement_group: ready.placement_group.clone(),
            shifted_zones: inner.market.shifted_zones(),
            reservations: Inputs::reservations(class, &left),
            ledger: of_ledger,
            learned: of_learned,
            of_region: region.0,
        };
        let known = Known { region: &region.1, ledger: &ledger, learned: &learned, now };
        Ok(inner.catalogue.types(&class.name, inputs, &known))
    }

    /// Launches a machine for a NodeClaim whose launch is not under way.
    async fn launch(&self, request: CreateRequest<'_>, ready: &Ready) -> Result<Instance, Error> {
        // Once more where a launch template was removed that was taken to be there.
        for is_last in [false, true] {
            let launch = self.resolve(request, ready).await?;
            let largest = launch.templates.values().map(|it| user_data::decoded_bytes(&it.user_data)).max();
            self.inner.telemetry.metrics.user_data(&ready.class.name, largest.unwrap_or(0));
            let now = self.now();
            self.inner.templates.ensure(&launch.templates, now).await.map_err(refused)?;
            let wanted = Wanted {
                claim: Claim {
                    uid: request.token.clone(),
                    name: request.claim.metadata.name.as_deref().unwrap_or_default().into(),
                },
                request: launch.request,
                templates: launch.keys,
            };
            match self.inner.launcher.launch(wanted).await {
                Ok(answered) => return self.outcome(request, ready, &answered).await,
                Err(NotLaunched::Refused(error)) if error.kind == Fault::LaunchTemplateGone => {
                    self.inner.templates.forget(launch.templates.into_keys());
                    if is_last {
                        // It was just made: EC2 does not show it yet.
                        return Err(transient(error));
                    }
                }
                Err(NotLaunched::Refused(error)) if error.kind == Fault::NoCapacity => {
                    let offerings = launch.offerings;
                    return Err(Error::InsufficientCapacity { message: error.to_string(), offerings });
                }
                Err(failed) => return Err(not_launched(failed)),
            }
        }
        Err(Error::Transient("launch templates vanish as fast as they are made".to_owned()))
    }

    async fn resolve(
        &self,
        request: CreateRequest<'_>,
        ready: &Ready,
    ) -> Result<crate::launch::resolve::Launch, Error> {
        let types = self.types(ready).await?;
        let subnets = self.inner.market.subnets(&ready.class.status.subnets).await?;
        let (ledger, _) = self.inner.market.ledger();
        let shifted = self.inner.market.shifted_zone_names();
        let now = self.now();
        resolve(&LaunchInput {
            claim: request.claim,
            class: &ready.class,
            kubelet: &ready.kubelet,
            cluster: &self.inner.cluster,
            types: request.instance_types.unwrap_or(&types.types),
            choice: if request.instance_types.is_some() { Choice::ByPriority } else { Choice::ByPrice },
            placement_group: ready.placement_group.as_ref(),
            subnets: &subnets,
            is_out: &|key| ledger.is_out(key, now) || shifted.contains(&key.zone),
        })
    }

    /// What became of a claim, once its batch was answered.
    async fn outcome(&self, request: CreateRequest<'_>, ready: &Ready, answered: &Answered) -> Result<Instance, Error> {
        let launched = match answered.outcomes.get(request.token) {
            Some(Outcome::Launched(launched)) => launched,
            Some(Outcome::NoCapacity { message }) => {
                let found = evidence(&answered.answer.errors, &answered.batch.templates);
                let offerings = found.offerings.into_iter().collect();
                return Err(Error::InsufficientCapacity { message: message.clone(), offerings });
            }
            Some(Outcome::Failed { reason, message }) => {
                return Err(Error::CreateFailed { reason: (*reason).to_owned(), message: message.clone() });
            }
            None => return Err(Error::Transient("its batch has forgotten the nodeclaim".to_owned())),
        };
        let mut machine = as_launched(answered, launched);
        let (requirements, _) = asked(request.claim)?;
        if let Some(group) = ready.placement_group.as_ref().filter(|group| !group.partition_names().is_empty()) {
            machine.placement_group_id = Some(group.id.clone());
            machine.partition = match asked_partition(&requirements, group) {
                Some(partition) => Some(partition),
                None => Some(self.partition_of(&launched.id, &launched.zone).await?),
            };
        }
        let of_class = self.types(ready).await?;
        let types = request.instance_types.unwrap_or(&of_class.types);
        let instance_type = find(types, &machine.instance_type);
        let owner =
            Owner { token: Some(request.token.clone()), claim: request.claim.metadata.name.as_deref().map(Into::into) };
        let mut made = instance(&machine, owner, instance_type);
        if let Some(instance_type) = instance_type {
            made.labels =
                requirements.resolve_labels(instance_type, &instances::offering_of(&machine, Some(instance_type)));
            made.labels.extend(instances::of_launch(&machine));
        }
        made.annotations = self.annotations(ready);
        Ok(made)
    }

    /// The partition that EC2 has chosen for a machine. Its Node is not to come before that is known, or pods would be
    /// spread by a label that it lacks.
    ///
    /// Differs: `partition-at-launch`. Karpenter takes the machine for launched, and keeps its Node from registering.
    async fn partition_of(&self, id: &str, zone: &str) -> Result<i32, Error> {
        let machine = MachineId { zone: zone.to_owned(), instance: id.to_owned() };
        let not_yet = || Error::Transient(format!("EC2 does not tell yet which partition instance {id} is in"));
        self.machine(&machine).await?.0.partition.ok_or_else(not_yet)
    }

    /// What a NodeClaim keeps of the node class that its machine was launched from.
    fn annotations(&self, ready: &Ready) -> BTreeMap<String, String> {
        let ca_bundle = self.inner.cluster.ca_bundle.as_deref().unwrap_or_default();
        let hash = drift::hash_annotations(&ready.class.spec, ca_bundle);
        let profile = ready.class.status.instance_profile.clone();
        let all = hash.into_iter().chain(profile.map(|profile| (names::INSTANCE_PROFILE, profile)));
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

#[async_trait]
impl CloudProvider for Ec2CloudProvider {
    fn name(&self) -> &'static str {
        DECLARATION.name
    }

    fn config(&self) -> &ProviderConfig {
        &self.inner.config
    }

    fn node_class_kinds(&self) -> &[NodeClassKind] {
        DECLARATION.node_class_kinds
    }

    async fn node_class_readiness(&self, node_class: &NodeClassReference) -> Result<NodeClassReadiness, Error> {
        let object = self.object(node_class).await?;
        Ok(object.as_ref().map_or(NodeClassReadiness::NotFound, readiness))
    }

    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        let ready = self.ready(&request.claim.spec.node_class_ref).await?;
        match self.inner.launcher.known(request.token).await {
            Ok(Some(answered)) => return self.outcome(request, &ready, &answered).await,
            // The call that was written down was never made.
            Ok(None) | Err(NotLaunched::Refused(_)) => {}
            Err(failed) => return Err(not_launched(failed)),
        }
        self.launch(request, &ready).await
    }

    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        let gone = || Error::NotFound(provider_id.to_string());
        let id = MachineId::parse(provider_id).ok_or_else(gone)?;
        let (machine, _) = self.machine(&id).await?;
        let is_ending = machine.state == MachineState::ShuttingDown;
        if is_ending || self.inner.ended.lock().contains_key(&machine.id) {
            return Ok(());
        }
        match self.inner.ec2.terminate_instances(std::slice::from_ref(&machine.id)).await {
            Ok(_) => {
                let now = self.now();
                let mut ended = self.inner.ended.lock();
                // A machine that EC2 still calls alive long after is ended again.
                ended.retain(|_, at| now.since(*at) < SHOWN_WITHIN);
                ended.insert(machine.id, now);
                Ok(())
            }
            Err(error) if error.kind == Fault::NotFound => Err(gone()),
            Err(error) => {
                let zone_id = self.inner.market.zone_id(&id.zone);
                self.inner.telemetry.metrics.termination_failed(&id.zone, &zone_id);
                Err(self.failed(error))
            }
        }
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        let gone = || Error::NotFound(provider_id.to_string());
        let id = MachineId::parse(provider_id).ok_or_else(gone)?;
        let found = self.machine(&id).await?;
        self.instances(vec![found]).await?.pop().ok_or_else(gone)
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        let mut launched = self.launched().await?;
        let described = self.described(&query(&self.inner.cluster.name, None)).await?;
        let with_owner = |machine: Machine| {
            let owner = launched.remove(&machine.id).map_or_else(|| Owner::of_tags(&machine), |(_, owner)| owner);
            (machine, owner)
        };
        let described = described.into_iter().map(with_owner).collect();
        let mut instances = self.instances(described).await?;
        instances.sort_by(|a, b| a.provider_id.cmp(&b.provider_id));
        Ok(instances)
    }

    /// By the journal, and by the tag that machines get after their launch.
    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        let none = || Error::NotFound(format!("no instance with token {token}"));
        let answered = match self.inner.launcher.known(token).await {
            Ok(answered) => answered,
            Err(NotLaunched::Refused(_)) => None,
            Err(failed) => return Err(not_launched(failed)),
        };
        if let Some(answered) = answered {
            let Some(Outcome::Launched(launched)) = answered.outcomes.get(token) else { return Err(none()) };
            let machine = as_launched(&answered, launched);
            return self.get(&MachineId { zone: machine.zone, instance: machine.id }.to_provider_id()).await;
        }
        let tagged = query(&self.inner.cluster.name, Some((names::NODE_CLAIM_UID, token)));
        let found = self.described(&tagged).await?;
        let found = found.into_iter().map(|machine| (Owner::of_tags(&machine), machine));
        let found = found.map(|(owner, machine)| (machine, owner)).collect();
        self.instances(found).await?.pop().ok_or_else(none)
    }

    async fn instance_types(&self, node_pool: &NodePool) -> Result<InstanceTypes, Error> {
        let name = node_pool.metadata.name.as_deref().unwrap_or_default();
        let not_yet = || Error::InstanceTypesNotEvaluated(name.into());
        let object = self.object(&node_pool.spec.template.spec.node_class_ref).await?.ok_or_else(not_yet)?;
        match self.known(&object).await {
            Ok(ready) => self.types(&ready).await,
            // The node class says what is wrong with it.
            Err(Error::NodeClassNotReady(_)) => Err(not_yet()),
            Err(error) => Err(error),
        }
    }

    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        let is_of_pool = claim.metadata.labels.as_ref().is_some_and(|it| it.contains_key(kubernetes::NODEPOOL));
        let provider_id = claim.status.as_ref().map(|status| ProviderId::from(status.provider_id.as_str()));
        let Some(id) = provider_id.as_ref().and_then(MachineId::parse).filter(|_| is_of_pool) else { return Ok(None) };
        let Some(object) = self.object(&claim.spec.node_class_ref).await? else { return Ok(None) };
        let ready = self.known(&object).await?;
        let (machine, _) = self.machine(&id).await?;
        if machine.security_group_ids.is_empty() {
            // As it was launched: EC2 does not list it yet.
            return Ok(None);
        }
        let types = self.types(&ready).await?;
        let today = drift::Today {
            class: &ready.class,
            instance_type: find(&types.types, &machine.instance_type),
            placement_group: ready.placement_group.as_ref().map(|group| &*group.id),
        };
        Ok(drift::drifted(claim, &machine, today))
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &self.inner.repair_policies
    }

    /// EC2 has no token for it, so a second call reboots a second time.
    async fn reboot(&self, claim: &NodeClaim, _: &str) -> Result<(), Error> {
        let provider_id = claim.status.as_ref().map(|status| ProviderId::from(status.provider_id.as_str()));
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let id = provider_id.as_ref().and_then(MachineId::parse);
        let id = id.ok_or_else(|| Error::NotFound(format!("NodeClaim {name} has no instance")))?;
        match self.inner.ec2.reboot_instance(&id.instance).await {
            Ok(()) => Ok(()),
            Err(error) => Err(match error.kind {
                Fault::NotFound => Error::NotFound(id.instance),
                Fault::Throttled | Fault::ServerFault => transient(error),
                _ => Error::RebootFailed(error.to_string()),
            }),
        }
    }
}

fn find<'a>(types: &'a [Arc<InstanceType>], name: &str) -> Option<&'a InstanceType> {
    types.iter().find(|it| it.name == name).map(|it| &**it)
}

/// A call that did not work out and may later.
fn transient(error: impl std::fmt::Display) -> Error {
    Error::Transient(error.to_string())
}

/// A call of a launch that was refused.
fn refused(error: crate::service::Error) -> Error {
    match error.kind {
        Fault::Throttled | Fault::ServerFault => transient(error),
        _ => Error::CreateFailed {
            reason: launch_failure_reason(error.code.as_deref().unwrap_or_default(), &error.message).to_owned(),
            message: error.to_string(),
        },
    }
}

fn not_launched(failed: NotLaunched) -> Error {
    match failed {
        NotLaunched::Refused(error) => refused(error),
        NotLaunched::Later(message) => Error::Transient(message),
        NotLaunched::TooLate => Error::Transient("what was launched an hour ago is being sorted out".to_owned()),
    }
}

#[cfg(test)]
mod tests;
