//! The provider: [`CloudProvider`] on top of records.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::labels;
use api::{NodeClaim, NodeClassReference, NodePool};
use async_trait::async_trait;
use cloudprovider::{
    CloudProvider, CreateRequest, DriftReason, Error, Instance, InstanceType, InstanceTypes, NodeClassKind,
    NodeClassReadiness, OfferingKey, ProviderConfig, RepairPolicy, UnavailableOfferings,
};
use cloudprovider_plugin::Clock;
use kube::Client;
use model::{DurationMs, NodeClaimName, ProviderId, Timestamp, Uid};
use parking_lot::Mutex;
use serde_json::json;

use crate::catalogue::default_instance_types;
use crate::choice::{Asked, choose};
use crate::cluster::{Cause, Cluster, Failure};
use crate::declaration::{DECLARATION, provider_labels, repair_policies};
use crate::faults::{self, Faults, Machine, Target};
use crate::node::new_record;
use crate::node_class::KWOKNodeClass;
use crate::record::{Record, State, node_name, node_name_of};

/// How often a record that changed meanwhile is read anew in one call.
const MAX_CONFLICTS: u32 = 5;

/// How the provider is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the records are kept. It must exist.
    pub namespace: String,
    /// What can be launched.
    pub instance_types: Vec<InstanceType>,
    /// How long an offering that turned out to have no machines is not tried again.
    pub unavailable_ttl: DurationMs,
    /// Whether faults are read from the ConfigMap [`faults::CONFIG_MAP`]. For tests.
    pub read_faults: bool,
}

impl Options {
    /// The default machines, records in that namespace.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            instance_types: default_instance_types(),
            unavailable_ttl: cloudprovider::unavailable_offerings::DEFAULT_TTL,
            read_faults: false,
        }
    }
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// A cloud of machines that exist as ConfigMaps and Nodes only. Clones are the same provider.
#[derive(Clone)]
pub struct KwokCloudProvider {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) cluster: Cluster,
    clock: Clock,
    config: ProviderConfig,
    repair_policies: Vec<RepairPolicy>,
    /// The catalogue, nothing known to have run out.
    pub(crate) types: Arc<[Arc<InstanceType>]>,
    read_faults: bool,
    faults: Mutex<Faults>,
    catalogue: Mutex<Catalogue>,
}

/// The catalogue as it is known just now.
struct Catalogue {
    unavailable: UnavailableOfferings,
    current: InstanceTypes,
}

impl fmt::Debug for KwokCloudProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KwokCloudProvider").field("namespace", &self.inner.cluster.namespace).finish_non_exhaustive()
    }
}

impl KwokCloudProvider {
    /// A provider in that cluster.
    pub fn new(client: Client, options: Options) -> Self {
        Self::with_clock(client, options, Arc::new(wall_clock))
    }

    /// A provider in that cluster and another time.
    pub fn with_clock(client: Client, options: Options, clock: Clock) -> Self {
        let mut types: Vec<_> = options.instance_types.into_iter().map(Arc::new).collect();
        types.sort_by(|a, b| a.name.cmp(&b.name));
        let types: Arc<[_]> = types.into();
        let mut unavailable =
            UnavailableOfferings::new(options.unavailable_ttl, cloudprovider::unavailable_offerings::DEFAULT_CAPACITY);
        let current = InstanceTypes { generation: unavailable.generation(clock()), types: Arc::clone(&types) };
        let inner = Inner {
            cluster: Cluster::new(client, &options.namespace),
            clock,
            config: ProviderConfig { labels: provider_labels(&types), ..ProviderConfig::default() },
            repair_policies: repair_policies(),
            types,
            read_faults: options.read_faults,
            faults: Mutex::default(),
            catalogue: Mutex::new(Catalogue { unavailable, current }),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What goes wrong from now on, unless a ConfigMap of faults is read and there.
    pub fn set_faults(&self, faults: Faults) {
        *self.inner.faults.lock() = faults;
    }

    /// Forgets which offerings turned out to have no machines.
    pub fn forget_unavailable_offerings(&self) {
        let now = self.now();
        let catalogue = &mut *self.inner.catalogue.lock();
        let keys: Vec<OfferingKey> = catalogue.unavailable.iter(now).map(|(key, _)| key.clone()).collect();
        for key in keys {
            catalogue.unavailable.remove(&key);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.inner.clock)()
    }

    pub(crate) fn reads_faults(&self) -> bool {
        self.inner.read_faults
    }

    /// What goes wrong just now.
    pub(crate) async fn faults(&self) -> Result<Faults, Failure> {
        if self.inner.read_faults {
            let cluster = &self.inner.cluster;
            if let Some(text) = cluster.config_map_value(faults::CONFIG_MAP, faults::CONFIG_MAP_KEY).await? {
                let what =
                    || format!("ConfigMap {}/{}: {}", cluster.namespace, faults::CONFIG_MAP, faults::CONFIG_MAP_KEY);
                return Faults::parse(&text).map_err(|error| Failure::other(what(), error));
            }
        }
        Ok(self.inner.faults.lock().clone())
    }

    /// The delay that the NodeClaim's node class puts before a Node.
    async fn registration_delay(&self, claim: &NodeClaim) -> Result<DurationMs, Error> {
        let name = &claim.spec.node_class_ref.name;
        let node_class = self.node_class(&claim.spec.node_class_ref).await?;
        let not_ready = |reason: &str| Error::NodeClassNotReady(format!("KWOKNodeClass {name}: {reason}"));
        let (node_class, readiness) = node_class.ok_or_else(|| not_ready("not found"))?;
        match readiness {
            NodeClassReadiness::Ready => {}
            NodeClassReadiness::NotReady { reason, message } => return Err(not_ready(&format!("{reason}: {message}"))),
            NodeClassReadiness::Terminating => return Err(not_ready("is being deleted")),
            NodeClassReadiness::NotFound => return Err(not_ready("not found")),
        }
        let Some(delay) = &node_class.spec.node_registration_delay else { return Ok(DurationMs::ZERO) };
        let delay = delay.parse().map_err(|error| not_ready(&format!("spec.nodeRegistrationDelay: {error}")))?;
        Ok(DurationMs(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)))
    }

    /// A node class of ours with its readiness.
    async fn node_class(
        &self,
        reference: &NodeClassReference,
    ) -> Result<Option<(KWOKNodeClass, NodeClassReadiness)>, Error> {
        let ours = DECLARATION
            .node_class_kinds
            .iter()
            .any(|kind| kind.group == reference.group && kind.kind == reference.kind);
        if !ours {
            return Ok(None);
        }
        let node_class = self.inner.cluster.node_class(&reference.name).await.map_err(transient)?;
        Ok(node_class.map(|node_class| {
            let readiness = readiness(&node_class);
            (node_class, readiness)
        }))
    }

    /// The record that the token stands for, if there is one by that name.
    async fn launched(&self, node_name: &str, token: &Uid) -> Result<Option<Record>, Error> {
        match self.inner.cluster.record(node_name).await.map_err(transient)? {
            Some(record) if record.token == *token => Ok(Some(record)),
            Some(record) => Err(Error::CreateFailed {
                reason: "NameTaken".to_owned(),
                message: format!("{} belongs to token {}", record.config_map_name(), record.token),
            }),
            None => Ok(None),
        }
    }

    /// Chooses an offering and writes the record.
    async fn launch(&self, request: CreateRequest<'_>, faults: &Faults) -> Result<Record, Error> {
        let claim = request.claim;
        let node_pool = node_pool(claim);
        let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
        if faults.slow_launch_ms > 0 {
            tokio::time::sleep(Duration::from_millis(faults.slow_launch_ms)).await;
        }
        if let Some(message) = faults.refusal(node_pool, claim_name) {
            let message = message.to_owned();
            return Err(Error::CreateFailed { reason: "LaunchRefused".to_owned(), message });
        }
        let delay = self.registration_delay(claim).await?;
        let asked = Asked::of(claim, &self.inner.config.labels)?;
        let now = self.now();
        let unavailable: BTreeSet<OfferingKey> =
            self.inner.catalogue.lock().unavailable.iter(now).map(|(key, _)| key.clone()).collect();
        let chosen = choose(
            request.instance_types.unwrap_or(&self.inner.types),
            &asked,
            |key| unavailable.contains(key),
            |option| {
                let machine = Machine {
                    node_pool,
                    node_claim: claim_name,
                    instance_type: &option.instance_type.name,
                    zone: &option.offering.zone,
                    capacity_type: option.offering.capacity_type.as_str(),
                };
                !Target::any(&faults.no_capacity, &machine)
            },
        );
        let choice = match chosen {
            Ok(choice) => {
                self.remember_unavailable(&choice.without_capacity, now);
                choice
            }
            Err(Error::InsufficientCapacity { message, offerings }) => {
                let found_out: Vec<_> = offerings.iter().filter(|key| !unavailable.contains(key)).cloned().collect();
                self.remember_unavailable(&found_out, now);
                return Err(Error::InsufficientCapacity { message, offerings });
            }
            Err(error) => return Err(error),
        };
        let record =
            new_record(claim, request.token, &choice.option, &asked.requirements, now, now.saturating_add(delay))
                .map_err(|error| Error::CreateFailed {
                    reason: "InvalidToken".to_owned(),
                    message: error.to_string(),
                })?;
        self.inner.cluster.create_record(&record).await.map_err(transient)
    }

    /// Writes into the record that the machine's end was asked for. `false`: there is no such record.
    async fn mark_terminating(&self, node_name: &str) -> Result<bool, Failure> {
        let cluster = &self.inner.cluster;
        let mut tries_left = MAX_CONFLICTS;
        loop {
            let Some(mut record) = cluster.record(node_name).await? else { return Ok(false) };
            if record.state == State::Terminating {
                return Ok(true);
            }
            record.state = State::Terminating;
            match cluster.replace_record(&record).await {
                Ok(()) => return Ok(true),
                Err(Failure { cause: Cause::NotFound, .. }) => return Ok(false),
                // The machine came up in between.
                Err(Failure { cause: Cause::Conflict, .. }) if tries_left > 0 => tries_left -= 1,
                Err(failure) => return Err(failure),
            }
        }
    }

    fn remember_unavailable(&self, keys: &[OfferingKey], now: Timestamp) {
        let mut catalogue = self.inner.catalogue.lock();
        for key in keys {
            tracing::info!(offering = %key, "offering is out of capacity");
            catalogue.unavailable.insert(key.clone(), now);
        }
    }
}

/// The NodePool that a NodeClaim came from.
fn node_pool(claim: &NodeClaim) -> Option<&str> {
    claim.metadata.labels.as_ref()?.get(labels::NODEPOOL).map(String::as_str)
}

impl Record {
    /// The machine as faults see it.
    pub(crate) fn machine(&self) -> Machine<'_> {
        Machine {
            node_pool: self.node.labels.get(labels::NODEPOOL).map(String::as_str),
            node_claim: &self.claim_name,
            instance_type: &self.instance_type,
            zone: &self.zone,
            capacity_type: self.capacity_type.as_str(),
        }
    }
}

fn transient(error: impl fmt::Display) -> Error {
    Error::Transient(error.to_string())
}

/// A node class without a Ready condition is ready: nothing about it could fail.
fn readiness(node_class: &KWOKNodeClass) -> NodeClassReadiness {
    if node_class.metadata.deletion_timestamp.is_some() {
        return NodeClassReadiness::Terminating;
    }
    let conditions = node_class.status.iter().flat_map(|status| &status.conditions);
    match conditions.into_iter().find(|condition| condition.type_ == "Ready" && condition.status != "True") {
        Some(condition) => {
            NodeClassReadiness::NotReady { reason: condition.reason.clone(), message: condition.message.clone() }
        }
        None => NodeClassReadiness::Ready,
    }
}

#[async_trait]
impl CloudProvider for KwokCloudProvider {
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
        let found = self.node_class(node_class).await?;
        Ok(found.map_or(NodeClassReadiness::NotFound, |(_, readiness)| readiness))
    }

    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        let claim_name = NodeClaimName::from(request.claim.metadata.name.as_deref().unwrap_or_default());
        let node_name = node_name(&claim_name, request.token)
            .map_err(|error| Error::CreateFailed { reason: "InvalidToken".to_owned(), message: error.to_string() })?;
        let faults = self.faults().await.map_err(transient)?;
        // Launching first saves a call where it succeeds. Whatever it fails for, the token may stand for a machine
        // already. Differs: `kwok-second-launch`. Karpenter's kwok provider makes a second Node if it is asked a second
        // time.
        let record = match self.launch(request, &faults).await {
            Ok(record) => record,
            Err(error) => self.launched(&node_name, request.token).await?.ok_or(error)?,
        };
        if Target::any(&faults.lost_answer, &record.machine()) {
            return Err(Error::Transient(format!("the answer for {} was lost", record.provider_id())));
        }
        record.to_instance().map_err(transient)
    }

    /// Differs: `kwok-end`. Karpenter's kwok provider deletes the NodeClaim object. That is not ours; the machine and
    /// its Node are.
    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        let gone = || Error::NotFound(format!("no instance {provider_id}"));
        let cluster = &self.inner.cluster;
        let node_name = node_name_of(provider_id).ok_or_else(gone)?;
        // First, so that no Node is made after the one that is there was deleted; see `registration`.
        if !self.mark_terminating(node_name).await.map_err(transient)? {
            return Err(gone());
        }
        cluster.delete_node(node_name, None).await.map_err(transient)?;
        cluster.delete_record(node_name).await.map_err(transient)?;
        Ok(())
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        let gone = || Error::NotFound(format!("no instance {provider_id}"));
        let node_name = node_name_of(provider_id).ok_or_else(gone)?;
        let record = self.inner.cluster.record(node_name).await.map_err(transient)?.ok_or_else(gone)?;
        record.to_instance().map_err(transient)
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        let faults = self.faults().await.map_err(transient)?;
        let lag = DurationMs(i64::try_from(faults.list_lag_ms).unwrap_or(i64::MAX));
        let newest = self.now().saturating_sub(lag);
        let mut records = self.inner.cluster.records().await.map_err(transient)?;
        records.retain(|record| lag == DurationMs::ZERO || record.created_at <= newest);
        let mut instances = Vec::with_capacity(records.len());
        for record in &records {
            match record.to_instance() {
                Ok(instance) => instances.push(instance),
                Err(error) => {
                    tracing::error!(%error, "could not read an instance's record, leaving the instance out of the list")
                }
            }
        }
        instances.sort_by(|a: &Instance, b| a.provider_id.cmp(&b.provider_id));
        Ok(instances)
    }

    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        let record = self.inner.cluster.record_of(token).await.map_err(transient)?;
        let record = record.ok_or_else(|| Error::NotFound(format!("no instance with token {token}")))?;
        record.to_instance().map_err(transient)
    }

    async fn instance_types(&self, _: &NodePool) -> Result<InstanceTypes, Error> {
        let now = self.now();
        let catalogue = &mut *self.inner.catalogue.lock();
        let generation = catalogue.unavailable.generation(now);
        if generation != catalogue.current.generation {
            let types = without(&self.inner.types, &catalogue.unavailable, now);
            catalogue.current = InstanceTypes { generation, types };
        }
        Ok(catalogue.current.clone())
    }

    async fn drifted(&self, _: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        Ok(None)
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &self.inner.repair_policies
    }

    async fn reboot(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), Error> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let node_name = claim.status.as_ref().map(|status| status.node_name.as_str()).filter(|name| !name.is_empty());
        let node_name = node_name.ok_or_else(|| Error::Transient(format!("NodeClaim {name} has no node yet")))?;
        let boot_id = json!({"status": {"nodeInfo": {"bootID": format!("kwok-{operation_id}")}}});
        match self.inner.cluster.patch_node_status(node_name, &boot_id).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Error::NotFound(format!("no Node {node_name}"))),
            Err(failure) => Err(transient(failure)),
        }
    }
}

/// The catalogue in which what is known to have run out is not available.
fn without(
    types: &Arc<[Arc<InstanceType>]>,
    unavailable: &UnavailableOfferings,
    now: Timestamp,
) -> Arc<[Arc<InstanceType>]> {
    let changed: BTreeSet<_> = unavailable.iter(now).map(|(key, _)| &key.instance_type).collect();
    if changed.is_empty() {
        return Arc::clone(types);
    }
    types
        .iter()
        .map(|instance_type| {
            if !changed.contains(&instance_type.name) {
                return Arc::clone(instance_type);
            }
            let mut instance_type = InstanceType::clone(instance_type);
            for offering in &mut instance_type.offerings {
                offering.available &= !unavailable.is_unavailable(&offering.key(&instance_type.name), now);
            }
            Arc::new(instance_type)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use cloudprovider::RepairPolicies;

    use super::*;

    #[test]
    fn the_repair_policies_are_valid() {
        RepairPolicies::new(&repair_policies()).unwrap();
    }

    #[test]
    fn what_has_run_out_is_listed_as_not_available_and_only_that() {
        let types: Arc<[_]> = default_instance_types().into_iter().map(Arc::new).collect();
        let mut unavailable = UnavailableOfferings::default();
        let key = types[0].offerings[3].key(&types[0].name);
        unavailable.insert(key.clone(), Timestamp(0));
        let known = without(&types, &unavailable, Timestamp(1));
        let gone: Vec<_> = known
            .iter()
            .flat_map(|it| it.offerings.iter().map(|offering| (offering.key(&it.name), offering.available)))
            .filter(|(_, available)| !available)
            .collect();
        assert_eq!(gone, [(key, false)]);
        assert!(Arc::ptr_eq(&types[1], &known[1]));
    }

    #[test]
    fn a_node_class_is_ready_unless_it_says_otherwise_or_goes() {
        let node_class = |status: serde_json::Value, metadata: serde_json::Value| -> KWOKNodeClass {
            serde_json::from_value(json!({
                "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
                "metadata": metadata, "spec": {}, "status": status,
            }))
            .unwrap()
        };
        let condition = |status: &str| {
            json!({"conditions": [{"type": "Ready", "status": status, "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let named = json!({"name": "default"});
        assert_eq!(readiness(&node_class(json!({}), named.clone())), NodeClassReadiness::Ready);
        assert_eq!(readiness(&node_class(condition("True"), named.clone())), NodeClassReadiness::Ready);
        let not_ready = NodeClassReadiness::NotReady { reason: "R".to_owned(), message: "m".to_owned() };
        assert_eq!(readiness(&node_class(condition("False"), named)), not_ready);
        let going = json!({"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(readiness(&node_class(condition("True"), going)), NodeClassReadiness::Terminating);
    }
}
