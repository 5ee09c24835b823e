use std::sync::atomic::{AtomicUsize, Ordering};

use api::{NodeClaim, NodePool};
use async_trait::async_trait;
use cloudprovider::fake::FakeCloudProvider;
use cloudprovider::{
    CloudProvider, CreateRequest, DriftReason, Error, Instance, InstanceTypes, NodeClassKind, NodeClassReadiness,
    ProviderConfig, RepairPolicy,
};
use kube::core::DynamicObject;
use model::{ProviderId, Timestamp};
use serde_json::{Value, json};
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::runtime::beats::Beats;
use crate::runtime::clock::MockClock;
use crate::world::store::{NodeClass, Revision};

/// The fake with a count of questions, which may be silent.
struct Counted {
    inner: FakeCloudProvider,
    asked: AtomicUsize,
    refuses: AtomicUsize,
}

#[async_trait]
impl CloudProvider for Counted {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn config(&self) -> &ProviderConfig {
        self.inner.config()
    }
    fn node_class_kinds(&self) -> &[NodeClassKind] {
        self.inner.node_class_kinds()
    }
    async fn node_class_readiness(&self, class: &api::NodeClassReference) -> Result<NodeClassReadiness, Error> {
        self.inner.node_class_readiness(class).await
    }
    async fn create(&self, request: CreateRequest<'_>) -> Result<Instance, Error> {
        self.inner.create(request).await
    }
    async fn delete(&self, provider_id: &ProviderId) -> Result<(), Error> {
        self.inner.delete(provider_id).await
    }
    async fn get(&self, provider_id: &ProviderId) -> Result<Instance, Error> {
        self.inner.get(provider_id).await
    }
    async fn list(&self) -> Result<Vec<Instance>, Error> {
        self.inner.list().await
    }
    async fn instance_types(&self, pool: &NodePool) -> Result<InstanceTypes, Error> {
        self.inner.instance_types(pool).await
    }
    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<DriftReason>, Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.refuses.load(Ordering::Relaxed) > 0 {
            self.refuses.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Transient("not now".to_owned()));
        }
        self.inner.drifted(claim).await
    }
    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }
    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), Error> {
        self.inner.reboot(claim, operation).await
    }
}

struct World {
    cloud: Arc<Counted>,
    store: Arc<ClusterStore>,
    drift: Arc<CloudDrift>,
    answered: Arc<WorkQueue<NodeClaimName>>,
    machine: ProviderId,
    claim: NodeClaim,
    stop: CancellationToken,
}

fn class_ref() -> Value {
    json!({"group": "fake.example.com", "kind": "FakeNodeClass", "name": "default"})
}

impl World {
    /// One launched machine, two hours old, and the loop that asks.
    async fn new() -> Self {
        let cloud = Arc::new(Counted {
            inner: FakeCloudProvider::default(),
            asked: AtomicUsize::new(0),
            refuses: AtomicUsize::new(0),
        });
        let mut claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": "a", "uid": "a", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"karpenter.sh/nodepool": "default"},
            },
            "spec": {"nodeClassRef": class_ref(), "requirements": []},
        }))
        .unwrap();
        let token = Uid::from("a");
        let instance =
            cloud.create(CreateRequest { claim: &claim, token: &token, instance_types: None }).await.unwrap();
        claim.status.get_or_insert_default().provider_id = instance.provider_id.to_string();
        claim.metadata.labels.as_mut().unwrap().extend(instance.labels);
        let store = Arc::new(ClusterStore::new());
        store.show_node_pool(json!({
            "metadata": {"name": "default"}, "spec": {"template": {"spec": {"nodeClassRef": class_ref()}}},
        }));
        let clock = Arc::new(MockClock::at(Timestamp::parse("2026-01-01T02:00:00Z").unwrap()));
        let answered = Arc::new(WorkQueue::new());
        let shared: Arc<dyn CloudProvider> = Arc::clone(&cloud) as _;
        let drift = Arc::new(CloudDrift::of(shared, Arc::clone(&store), clock, Arc::clone(&answered)));
        let stop = CancellationToken::new();
        let beats = Beats::default();
        let owner = Owner { name: NAME, beat: beats.beat(NAME, queue::BOUND), stop: stop.clone() };
        tokio::spawn(run(owner, Arc::clone(&drift)));
        let world = Self { cloud, store, drift, answered, machine: instance.provider_id, claim: claim.clone(), stop };
        world.set_claim(claim);
        world.set_class(1);
        world
    }

    fn set_claim(&self, claim: NodeClaim) {
        self.store.apply(claim, Revision { uid: "a".into(), resource_version: 0 });
    }

    fn set_class(&self, version: u64) {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "fake.example.com/v1", "kind": "FakeNodeClass",
            "metadata": {"name": "default", "uid": "c", "resourceVersion": version.to_string()},
        }))
        .unwrap();
        let key = NodeClassKey(serde_json::from_value(class_ref()).unwrap());
        let class = NodeClass { key, generation: 1, object };
        self.store.apply(class, Revision { uid: "c".into(), resource_version: version });
    }

    /// Looks as the controller does, lets the loop have its turn, and looks again.
    async fn look(&self) -> Asked {
        self.drift.answer(&self.claim);
        self.turn().await;
        self.drift.answer(&self.claim).0
    }

    async fn turn(&self) {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    fn asked(&self) -> usize {
        self.cloud.asked.load(Ordering::Relaxed)
    }

    fn drifts(&self, reason: &str) {
        self.cloud.inner.set_drifted(&self.machine, Some(DriftReason(reason.to_owned())));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn provider(reason: &str) -> Asked {
    Asked::Drifted(Cause::Provider { reason: reason.to_owned() })
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_asked_for_every_few_minutes_however_often_its_claim_is_looked_at() {
    let world = World::new().await;
    assert_eq!(world.drift.answer(&world.claim).0, Asked::NotYet);
    assert_eq!(world.look().await, Asked::NotDrifted);
    assert_eq!(world.answered.len(), 1, "the answer is told");
    world.drifts("ImageDrift");
    for _ in 0..100 {
        assert_eq!(world.look().await, Asked::NotDrifted);
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(world.asked(), 1);
    let again_in = world.drift.answer(&world.claim).1;
    assert!(again_in <= EVERY, "{again_in:?}");
    advance(again_in).await;
    assert_eq!(world.look().await, provider("ImageDrift"));
    assert_eq!(world.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_changed_node_class_is_asked_about_soon_but_not_each_time() {
    let world = World::new().await;
    assert_eq!(world.look().await, Asked::NotDrifted);
    world.drifts("ImageDrift");
    for version in 2..12 {
        world.set_class(version);
        assert_eq!(world.look().await, Asked::NotDrifted);
    }
    let again_in = world.drift.answer(&world.claim).1;
    assert!(again_in <= AFTER_CHANGE, "{again_in:?}");
    advance(AFTER_CHANGE).await;
    assert_eq!(world.look().await, provider("ImageDrift"));
    assert_eq!(world.asked(), 2);
    assert!(world.drift.answer(&world.claim).1 > AFTER_CHANGE, "the class is as it was asked about");
}

#[tokio::test(start_paused = true)]
async fn an_error_keeps_the_last_answer_and_is_tried_again_later_and_later() {
    let world = World::new().await;
    world.drifts("ImageDrift");
    assert_eq!(world.look().await, provider("ImageDrift"));
    world.cloud.inner.set_drifted(&world.machine, None);
    world.cloud.refuses.store(3, Ordering::Relaxed);
    advance(EVERY).await;
    for expected in [2, 3, 4] {
        assert_eq!(world.look().await, provider("ImageDrift"), "no answer is no news");
        assert_eq!(world.asked(), expected);
        for _ in 0..5 {
            assert_eq!(world.look().await, provider("ImageDrift"));
        }
        assert_eq!(world.asked(), expected, "looks do not hurry it");
        advance(BACKOFF_MIN * 2_u32.pow(u32::try_from(expected).unwrap() - 2)).await;
        world.turn().await;
    }
    assert_eq!(world.look().await, Asked::NotDrifted);
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_not_listed_any_more_comes_before_the_cloud_and_saves_the_call() {
    let mut world = World::new().await;
    world.drifts("ImageDrift");
    let labels = world.claim.metadata.labels.as_mut().unwrap();
    labels.insert("node.kubernetes.io/instance-type".to_owned(), "gone".to_owned());
    world.set_claim(world.claim.clone());
    assert_eq!(world.look().await, Asked::Drifted(Cause::InstanceType { name: "gone".to_owned() }));
    assert_eq!(world.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_gone_and_a_claim_that_is_deleted_are_no_drift() {
    let world = World::new().await;
    world.cloud.inner.lose(&world.machine);
    assert_eq!(world.look().await, Asked::NotYet);
    assert_eq!(world.asked(), 1);
    let mut deleted = world.claim.clone();
    deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
    world.set_claim(deleted);
    advance(EVERY).await;
    assert_eq!(world.look().await, Asked::NotYet);
    assert_eq!(world.asked(), 1);
    world.drift.forget(&"a".into());
    assert!(world.drift.known.lock().is_empty());
}
