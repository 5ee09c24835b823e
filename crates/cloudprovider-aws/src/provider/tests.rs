use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::NodeSelectorRequirementWithMinValues;
use async_trait::async_trait;
use cloudprovider::OfferingKey;
use cloudprovider::conformance::{self, Hooks};
use model::DurationMs;
use seeded_random::Random;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::memory::{CallFault, Cloud, Faults, Fuse, Lag, Objects, VirtualClock, sample};

mod bad_input;
mod launches;
mod partitions;
mod permissions;
mod region;
mod reservations;
mod telemetry;

/// A clock that stands still between runtimes, and follows tokio's while one runs.
#[derive(Clone, Default)]
struct TestClock {
    before: VirtualClock,
    entered: Arc<Mutex<Option<Instant>>>,
}

impl TestClock {
    fn new() -> Self {
        Self { before: VirtualClock::at(Timestamp(1_800_000_000_000)), ..Self::default() }
    }

    fn now(&self) -> Timestamp {
        let passed = self.entered.lock().map_or(0, |entered| entered.elapsed().as_millis());
        self.before.now().saturating_add(DurationMs(i64::try_from(passed).unwrap()))
    }

    fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }

    /// Runs something in virtual time; tasks that it leaves behind end with it, as in a crash.
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let output = runtime.block_on(async {
            *self.entered.lock() = Some(Instant::now());
            let output = future.await;
            let now = self.now();
            *self.entered.lock() = None;
            self.before.advance(now.since(self.before.now()));
            output
        });
        drop(runtime);
        output
    }
}

/// A cloud, a cluster with a node class that is ready, and a clock.
struct World {
    clock: TestClock,
    cloud: Cloud,
    objects: Objects,
    processes: AtomicU64,
    machines: MachineOptions,
    telemetry: Telemetry,
}

const CLUSTER: &str = "test";

impl World {
    fn new() -> Self {
        let clock = TestClock::new();
        let cloud = sample(CLUSTER, clock.clock());
        let objects = Objects::default();
        objects.set_class(class());
        let machines = MachineOptions::default();
        Self { clock, cloud, objects, processes: AtomicU64::new(0), machines, telemetry: Telemetry::default() }
    }

    /// What machines are told of the cluster.
    fn cluster() -> user_data::Cluster {
        user_data::Cluster {
            name: CLUSTER.to_owned(),
            endpoint: "https://test.example.com".to_owned(),
            ca_bundle: Some("Y2E=".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            dns_ip: None,
        }
    }

    /// A controller's provider, as after a start, which ends when the fuse blows.
    fn provider_with(&self, fuse: &Fuse) -> Ec2CloudProvider {
        let process = self.processes.fetch_add(1, Ordering::Relaxed);
        Ec2CloudProvider::new(Setup {
            ec2: Arc::new(self.cloud.with_fuse(fuse.clone())),
            objects: Arc::new(self.objects.with_fuse(fuse.clone())),
            cluster: Self::cluster(),
            region: "us-east-1".to_owned(),
            machines: self.machines,
            clock: self.clock.clock(),
            seed: process * 1000,
            telemetry: self.telemetry.clone(),
        })
    }

    fn provider(&self) -> Ec2CloudProvider {
        self.provider_with(&Fuse::default())
    }

    /// A NodeClaim of the cluster.
    fn claim(&self, name: &str, requirements: Vec<NodeSelectorRequirementWithMinValues>) -> NodeClaim {
        let mut claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": {(kubernetes::NODEPOOL): "default"}},
            "spec": {
                "requirements": [],
                "resources": {"requests": {"cpu": "1"}},
                "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"},
            },
        }))
        .unwrap();
        claim.spec.requirements = requirements;
        self.objects.set_claim(claim.clone());
        claim
    }

    /// Writes into a NodeClaim what the controller writes once its machine is launched.
    fn launched(&self, uid: &Uid, provider_id: &ProviderId) {
        if let Some(mut claim) = self.objects.claim(uid) {
            claim.status.get_or_insert_default().provider_id = provider_id.to_string();
            self.objects.set_claim(claim);
        }
    }

    /// The ids of the machines that cost money.
    fn alive(&self) -> Vec<String> {
        self.cloud.alive().into_iter().map(|machine| machine.id).collect()
    }
}

/// A node class that is ready.
fn class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "uid-of-class", "generation": 1},
        "spec": {
            "role": "nodes", "amiFamily": "AL2023",
            "amiSelectorTerms": [{"tags": {"cluster": CLUSTER}}],
            "subnetSelectorTerms": [{"tags": {"cluster": CLUSTER}}],
            "securityGroupSelectorTerms": [{"tags": {"cluster": CLUSTER}}],
        },
        "status": {
            "subnets": [
                {"id": "subnet-a", "zone": "us-east-1a", "zoneID": "use1-az1"},
                {"id": "subnet-b", "zone": "us-east-1b", "zoneID": "use1-az2"},
                {"id": "subnet-c", "zone": "us-east-1c", "zoneID": "use1-az3"},
            ],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "amis": [
                {"id": "ami-amd64", "name": "eks-node", "requirements":
                    [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]},
                {"id": "ami-arm64", "name": "eks-node", "requirements":
                    [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]},
            ],
            "instanceProfile": "test_profile",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

fn node_pool() -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "default"},
        }}},
    }))
    .unwrap()
}

/// Does what the controllers do with a provider whose calls fail now and then: it calls again.
struct Patient<'a>(&'a Ec2CloudProvider);

/// How often, two seconds apart.
const TRIES: u32 = 200;

macro_rules! again {
    ($call:expr) => {{
        let mut tries = 0;
        loop {
            match $call.await {
                Err(Error::Transient(_)) if tries < TRIES => tries += 1,
                result => break result,
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }};
}

impl Patient<'_> {
    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        again!(self.0.create(request))
    }
}

/// [`Patient`] for the conformance kit.
struct PatientProvider(Ec2CloudProvider);

#[async_trait]
impl CloudProvider for PatientProvider {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn config(&self) -> &ProviderConfig {
        self.0.config()
    }

    fn node_class_kinds(&self) -> &[NodeClassKind] {
        self.0.node_class_kinds()
    }

    async fn node_class_readiness(&self, node_class: &NodeClassReference) -> Result<NodeClassReadiness, Error> {
        again!(self.0.node_class_readiness(node_class))
    }

    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        Patient(&self.0).create(request).await
    }

    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        again!(self.0.delete(provider_id))
    }

    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        again!(self.0.get(provider_id))
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        again!(self.0.list())
    }

    async fn find(&self, token: &Uid) -> Result<Instance, Error> {
        again!(self.0.find(token))
    }

    async fn instance_types(&self, node_pool: &NodePool) -> Result<InstanceTypes, Error> {
        again!(self.0.instance_types(node_pool))
    }

    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        again!(self.0.drifted(claim))
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.0.repair_policies()
    }

    async fn reboot(&self, claim: &NodeClaim, operation_id: &str) -> Result<(), Error> {
        again!(self.0.reboot(claim, operation_id))
    }
}

/// The kit's test of this cloud.
struct KitHooks<'a> {
    world: &'a World,
    provider: Ec2CloudProvider,
}

#[async_trait]
impl Hooks for KitHooks<'_> {
    fn node_pool(&self) -> NodePool {
        node_pool()
    }

    async fn new_claim(&self, name: &str, requirements: Vec<NodeSelectorRequirementWithMinValues>) -> NodeClaim {
        self.world.claim(name, requirements)
    }

    /// Time passes, the controller writes down what was launched, and what is due is done.
    async fn pause(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        for instance in self.provider.list().await.unwrap_or_default() {
            if let Some(token) = &instance.token {
                self.world.launched(token, &instance.provider_id);
            }
        }
        // What fails is done the next time.
        let _ = self.provider.tidy().await;
    }

    async fn set_has_capacity(&self, offering: &OfferingKey, has_capacity: bool) -> bool {
        self.world.cloud.set_stock(offering, if has_capacity { None } else { Some(0) });
        self.provider.forget_stock_outs();
        true
    }
}

/// What goes wrong, drawn from a seed.
struct Schedule {
    random: Random,
    /// Of a thousand calls, so many are throttled, fail, and lose their answers.
    per_mille: [u32; 3],
    /// The longest lag of each kind, in seconds.
    lag: i64,
}

impl Schedule {
    fn new(seed: u64, case: u64) -> Self {
        let mut random = Random::of_case(seed, case);
        let per_mille = [random.below(80), random.below(80), random.below(120)];
        let lag = random.below(40_u64);
        Self { random, per_mille, lag: i64::try_from(lag).unwrap() }
    }
}

impl Faults for Schedule {
    fn of_call(&mut self, _: &'static str) -> CallFault {
        let [throttled, failed, lost] = self.per_mille;
        match () {
            () if self.random.per_mille(throttled) => CallFault::Throttled,
            () if self.random.per_mille(failed) => CallFault::Failed,
            () if self.random.per_mille(lost) => CallFault::AnswerLost,
            () => CallFault::None,
        }
    }

    fn lag(&mut self, _: Lag) -> DurationMs {
        DurationMs::from_seconds(i64::try_from(self.random.below(u64::try_from(self.lag).unwrap() + 1)).unwrap())
    }
}

fn conform(faults: Option<Schedule>) -> (conformance::Report, Vec<String>) {
    let world = World::new();
    world.cloud.set_faults(faults.map(|faults| Box::new(faults) as _));
    let report = world.clock.run(async {
        let provider = world.provider();
        let hooks = KitHooks { world: &world, provider: provider.clone() };
        let provider = PatientProvider(provider);
        let report = conformance::run(&provider, &hooks).await;
        // The kit may have looked before EC2 listed its last machine. What is there must be listed in time, with its
        // token, and go.
        tokio::time::sleep(Duration::from_secs(600)).await;
        for instance in provider.list().await.unwrap() {
            assert!(instance.token.is_some(), "{instance:?}");
            Error::ignore_not_found(provider.delete(&instance.provider_id).await).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        report
    });
    (report, world.alive())
}

#[test]
fn the_contract_of_providers_is_kept() {
    let (report, alive) = conform(None);
    assert_eq!(report.failed(), [] as [&str; 0], "{report}");
    assert_eq!(report.skipped(), [] as [&str; 0], "{report}");
    assert_eq!(alive, [] as [&str; 0]);
}

/// A run of more schedules sets the variable.
const SCHEDULES: &str = "DOVETAIL_EC2_SCHEDULES";

#[test]
fn the_contract_is_kept_whatever_goes_wrong() {
    let number = std::env::var(SCHEDULES).ok().map_or(8, |number| number.parse().unwrap());
    for case in 0..number {
        let (report, alive) = conform(Some(Schedule::new(29, case)));
        assert_eq!(report.failed(), [] as [&str; 0], "schedule {case}:\n{report}");
        assert_eq!(alive, [] as [&str; 0], "schedule {case}");
    }
}
