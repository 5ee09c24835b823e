//! The provider on a real control plane: the conformance kit, and what only a real API server and kwok can show.
//!
//! With `DOVETAIL_E2E=1` the tests boot a control plane for themselves, which `cargo xtask test --stage e2e` asks for;
//! with `DOVETAIL_E2E_KUBECONFIG` they use the one of that kubeconfig. With neither, each says so and passes. Every
//! test has a namespace of its own and removes its Nodes, so that any number can run at once.

use cloudprovider_kwok::names;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use api::{NodeClaim, NodePool, NodeSelectorRequirementWithMinValues, labels};
use async_trait::async_trait;
use cloudprovider::conformance::{self, Hooks};
use cloudprovider::{CapacityType, CloudProvider, CreateRequest, Error, Instance, OfferingKey};
use cloudprovider_kwok::KWOKNodeClass;
use cloudprovider_kwok::{Faults, KwokCloudProvider, Options, faults};
use e2e::client;
use e2e::control_plane::{self, ControlPlane};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use model::Uid;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard, oneshot};
use tokio::task::JoinHandle;

const KUBECONFIG: &str = "DOVETAIL_E2E_KUBECONFIG";
const BOOT: &str = "DOVETAIL_E2E";
const DEADLINE: Duration = Duration::from_secs(60);

/// Held for writing by the test whose Nodes every loop in the cluster would adopt, for reading by the others.
static ADOPTION: RwLock<()> = RwLock::const_new(());

/// What a test holds of [`ADOPTION`].
enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

/// A namespace on the control plane and a provider in it.
struct Setup {
    _turn: Turn,
    client: Client,
    namespace: String,
    node_class: String,
    provider: KwokCloudProvider,
    claims: AtomicU32,
}

/// The loop that makes Nodes, until it is stopped.
struct Loop {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Loop {
    fn start(provider: &KwokCloudProvider) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let provider = provider.clone();
        let task = tokio::spawn(async move {
            provider
                .run(async {
                    let _ = stopped.await;
                })
                .await;
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).expect("the loop runs until it is stopped");
        self.task.await.expect("the loop does not panic");
    }
}

/// A control plane for all tests of this file. Its processes end with this one.
async fn booted() -> &'static ControlPlane {
    static BOOTED: OnceCell<ControlPlane> = OnceCell::const_new();
    let options = || control_plane::Options { name: "kwok-provider".to_owned(), ..control_plane::Options::default() };
    BOOTED.get_or_init(async || ControlPlane::up(options()).await.expect("a control plane")).await
}

async fn client() -> Option<Client> {
    let kubeconfig = match (std::env::var_os(KUBECONFIG), std::env::var_os(BOOT)) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(_)) => booted().await.kubeconfig().to_owned(),
        (None, None) => {
            println!("skipped: neither {KUBECONFIG} nor {BOOT} is set");
            return None;
        }
    };
    Some(client::client(&kubeconfig).await.expect("a client"))
}

/// Waits until `check` is content; its last complaint is the failure.
async fn eventually<T>(check: impl AsyncFn() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return value,
            Err(complaint) => assert!(start.elapsed() < DEADLINE, "after {DEADLINE:?}: {complaint}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Setup {
    async fn new(node_class: Value, read_faults: bool) -> Option<Self> {
        Self::with_turn(Turn::Shared { _guard: ADOPTION.read().await }, node_class, read_faults).await
    }

    async fn alone() -> Option<Self> {
        Self::with_turn(Turn::Alone { _guard: ADOPTION.write().await }, json!({}), false).await
    }

    async fn with_turn(turn: Turn, node_class: Value, read_faults: bool) -> Option<Self> {
        let client = client().await?;
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in api::crd::crds().into_iter().chain((cloudprovider_kwok::DECLARATION.crds)()) {
            let params = PatchParams::apply("dovetail-tests").force();
            crds.patch(&crd.name_any(), &params, &Patch::Apply(&crd)).await.expect("a CRD");
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "kwok-"}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace").name_any();
        let node_classes: Api<KWOKNodeClass> = Api::all(client.clone());
        let object = json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": &namespace}, "spec": node_class,
        });
        let object: KWOKNodeClass = serde_json::from_value(object).unwrap();
        // The CRD may have been made this moment.
        eventually(async || {
            node_classes.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
        })
        .await;
        let provider = KwokCloudProvider::new(client.clone(), Options { read_faults, ..Options::new(&namespace) });
        Some(Self {
            _turn: turn,
            client,
            node_class: namespace.clone(),
            namespace,
            provider,
            claims: AtomicU32::new(0),
        })
    }

    fn claim(&self, requirements: Value) -> NodeClaim {
        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": format!("{}-{number}", self.namespace),
                "uid": format!("{}-uid-{number}", self.namespace),
                "labels": {(labels::NODEPOOL): "general"},
            },
            "spec": {
                "requirements": requirements,
                "resources": {"requests": {"cpu": "500m"}},
                "taints": [{"key": "example.com/own", "effect": "NoSchedule"}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": self.node_class},
            },
        }))
        .unwrap()
    }

    async fn create(&self, claim: &NodeClaim) -> Result<Instance, Error> {
        let token = Uid::from(claim.metadata.uid.as_deref().unwrap());
        self.provider.create(CreateRequest { claim, token: &token, instance_types: None }).await
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn set_faults(&self, faults: Value) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": faults::CONFIG_MAP},
            "data": {(faults::CONFIG_MAP_KEY): faults.to_string()},
        });
        let params = PatchParams::apply("dovetail-tests").force();
        self.config_maps().patch(faults::CONFIG_MAP, &params, &Patch::Apply(&object)).await.expect("a ConfigMap");
    }

    async fn delete(&self, instance: &Instance) {
        eventually(async || match self.provider.delete(&instance.provider_id).await {
            Err(Error::NotFound(_)) => Ok(()),
            other => Err(format!("delete gave {other:?}")),
        })
        .await;
    }

    async fn node(&self, instance: &Instance) -> Option<Node> {
        self.nodes().get_opt(node_name(instance)).await.expect("an answer")
    }

    async fn appears(&self, instance: &Instance) -> Node {
        eventually(async || self.node(instance).await.ok_or_else(|| format!("no Node of {}", instance.provider_id)))
            .await
    }

    async fn disappears(&self, instance: &Instance) {
        eventually(async || match self.node(instance).await {
            None => Ok(()),
            Some(_) => Err(format!("the Node of {} is still there", instance.provider_id)),
        })
        .await;
    }

    async fn state(&self, instance: &Instance) -> Option<String> {
        let name = format!("kwok-instance-{}", node_name(instance));
        let config_map = self.config_maps().get_opt(&name).await.expect("an answer")?;
        config_map.data?.remove("state")
    }

    async fn reaches(&self, instance: &Instance, state: &str) {
        eventually(async || match self.state(instance).await {
            Some(now) if now == state => Ok(()),
            other => Err(format!("the state of {} is {other:?}, not {state}", instance.provider_id)),
        })
        .await;
    }

    async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.expect("an answer");
        let node_classes: Api<KWOKNodeClass> = Api::all(self.client.clone());
        node_classes.delete(&self.node_class, &DeleteParams::default()).await.expect("an answer");
    }
}

fn node_name(instance: &Instance) -> &str {
    instance.provider_id.strip_prefix("kwok://").expect("one of ours")
}

fn is_ready(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.clone())
}

#[async_trait]
impl Hooks for Setup {
    fn node_pool(&self) -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
            "spec": {"template": {"spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": self.node_class},
            }}},
        }))
        .unwrap()
    }

    async fn new_claim(&self, _: &str, requirements: Vec<NodeSelectorRequirementWithMinValues>) -> NodeClaim {
        NodeClaim { spec: api::NodeClaimSpec { requirements, ..self.claim(json!([])).spec }, ..self.claim(json!([])) }
    }

    async fn register(&self, claim: &mut NodeClaim) {
        let status = claim.status.get_or_insert_default();
        let name = status.provider_id.strip_prefix("kwok://").expect("one of ours").to_owned();
        let start = Instant::now();
        while self.nodes().get_opt(&name).await.expect("an answer").is_none() {
            assert!(start.elapsed() < DEADLINE, "no Node {name} after {DEADLINE:?}");
            self.pause().await;
        }
        status.node_name = name;
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    async fn set_has_capacity(&self, offering: &OfferingKey, has_capacity: bool) -> bool {
        let mut no_capacity = Faults::default();
        if !has_capacity {
            no_capacity.no_capacity.push(faults::Target {
                instance_type: Some(offering.instance_type.to_string()),
                zone: Some(offering.zone.clone()),
                capacity_type: Some(offering.capacity_type.to_string()),
                ..faults::Target::default()
            });
        }
        self.provider.set_faults(no_capacity);
        self.provider.forget_unavailable_offerings();
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_of_providers_is_kept() {
    let Some(setup) = Setup::new(json!({}), false).await else { return };
    let nodes = Loop::start(&setup.provider);
    let start = Instant::now();
    let report = conformance::run(&setup.provider, &setup).await;
    println!("{report}in {:?}", start.elapsed());
    assert_eq!(report.failed(), [] as [&str; 0], "{report}");
    assert_eq!(report.skipped(), [] as [&str; 0], "{report}");
    nodes.stop().await;
    let selector = format!("{}=general", labels::NODEPOOL);
    eventually(async || {
        let nodes =
            setup.nodes().list(&ListParams::default().labels(&selector)).await.map_err(|error| error.to_string())?;
        let left: Vec<_> = nodes.iter().map(Node::name_any).filter(|name| name.starts_with(&setup.namespace)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("Nodes are left: {left:?}")) }
    })
    .await;
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_registers_after_its_delay_and_becomes_ready() {
    let Some(setup) = Setup::new(json!({"nodeRegistrationDelay": "2s"}), false).await else { return };
    let nodes = Loop::start(&setup.provider);
    let claim = setup.claim(json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]));
    let instance = setup.create(&claim).await.unwrap();
    assert_eq!((instance.instance_type.as_str(), instance.capacity_type), ("c-1x-amd64-linux", CapacityType::OnDemand));
    assert!(setup.node(&instance).await.is_none(), "a Node before its time");
    let node = setup.appears(&instance).await;
    let registered_ms = node.creation_timestamp().unwrap().0.as_millisecond();
    // The server's timestamps have whole seconds.
    assert!(
        registered_ms + 1000 > instance.created_at.0 + 2000,
        "registered {registered_ms}, launched {:?}",
        instance.created_at
    );

    let spec = node.spec.clone().unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some(instance.provider_id.as_str()));
    let taints: Vec<_> = spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    assert!(taints.contains(&"karpenter.sh/unregistered".to_owned()), "{taints:?}");
    assert!(taints.contains(&"example.com/own".to_owned()), "{taints:?}");
    assert_eq!(node.labels().get("kubernetes.io/hostname").map(String::as_str), Some(node_name(&instance)));

    let node = eventually(async || {
        let node = setup.node(&instance).await.ok_or("the Node is gone")?;
        if is_ready(&node).as_deref() == Some("True") { Ok(node) } else { Err(format!("{:?}", is_ready(&node))) }
    })
    .await;
    let status = node.status.unwrap();
    assert_eq!(status.capacity.unwrap()["cpu"].0, "1");
    assert_eq!(status.allocatable.unwrap()["cpu"].0, "900m");

    setup.delete(&instance).await;
    setup.disappears(&instance).await;
    nodes.stop().await;
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_outlives_the_controller_and_its_node_is_made_once() {
    let Some(setup) = Setup::new(json!({}), false).await else { return };
    // Launched, and then nobody is there to give it a Node.
    let instance = setup.create(&setup.claim(json!([]))).await.unwrap();
    let second_life = KwokCloudProvider::new(setup.client.clone(), Options::new(&setup.namespace));
    let listed: Vec<_> = second_life.list().await.unwrap().into_iter().map(|it| it.provider_id).collect();
    assert_eq!(listed, std::slice::from_ref(&instance.provider_id));

    let nodes = Loop::start(&second_life);
    setup.appears(&instance).await;
    setup.reaches(&instance, "Running").await;
    nodes.stop().await;

    // A kubelet does not put back a Node that somebody deleted.
    setup.nodes().delete(node_name(&instance), &DeleteParams::default()).await.unwrap();
    setup.disappears(&instance).await;
    let third_life = KwokCloudProvider::new(setup.client.clone(), Options::new(&setup.namespace));
    let nodes = Loop::start(&third_life);
    // Another machine shows that the loop has passed over all records.
    let other = setup.create(&setup.claim(json!([]))).await.unwrap();
    setup.reaches(&other, "Running").await;
    assert!(setup.node(&instance).await.is_none(), "the Node was made a second time");
    assert!(third_life.get(&instance.provider_id).await.is_ok(), "but the machine is there");

    setup.delete(&instance).await;
    setup.delete(&other).await;
    nodes.stop().await;
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_left_when_machines_end_while_they_come_up() {
    let Some(setup) = Setup::new(json!({}), false).await else { return };
    let nodes = Loop::start(&setup.provider);
    let claims: Vec<_> = (0..20).map(|_| setup.claim(json!([]))).collect();
    let ends = claims.iter().enumerate().map(|(index, claim)| {
        let setup = &setup;
        async move {
            let instance = setup.create(claim).await.unwrap();
            // Spread over the time that a Node takes to be made.
            tokio::time::sleep(Duration::from_millis(index as u64)).await;
            setup.delete(&instance).await;
            instance
        }
    });
    let instances = futures::future::join_all(ends).await;
    // Stopping waits for what is under way, and another loop finds what was left.
    nodes.stop().await;
    let nodes = Loop::start(&setup.provider);
    for instance in &instances {
        setup.disappears(instance).await;
    }
    nodes.stop().await;
    for instance in &instances {
        assert!(setup.node(instance).await.is_none(), "the Node of {} came back", instance.provider_id);
    }
    assert_eq!(setup.provider.list().await.unwrap(), []);
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_in_a_config_map_happen_and_end() {
    let Some(setup) = Setup::new(json!({}), true).await else { return };
    let nodes = Loop::start(&setup.provider);
    let small = json!([{"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["c-1x-amd64-linux"]}]);

    setup.set_faults(json!({"noCapacity": [{"zone": "test-zone-a", "capacityType": "spot"}]})).await;
    let elsewhere = setup.create(&setup.claim(small.clone())).await.unwrap();
    assert_eq!((elsewhere.zone.as_str(), elsewhere.capacity_type), ("test-zone-b", CapacityType::Spot));
    let known = setup.provider.instance_types(&setup.node_pool()).await.unwrap();
    let gone: Vec<_> = known
        .types
        .iter()
        .flat_map(|it| {
            it.offerings.iter().filter(|offering| !offering.available).map(|offering| offering.key(&it.name))
        })
        .map(|key| key.to_string())
        .collect();
    assert_eq!(gone, ["c-1x-amd64-linux/test-zone-a/spot"], "only what was tried is known");

    setup.set_faults(json!({"failedLaunch": [{"nodePool": "general", "message": "quota"}]})).await;
    let claim = setup.claim(small.clone());
    let refused = setup.create(&claim).await.unwrap_err();
    assert_eq!(refused, Error::CreateFailed { reason: "LaunchRefused".into(), message: "quota".into() });

    let mute = json!([{"nodeClaim": claim.name_any()}]);
    setup.set_faults(json!({"lostAnswer": [{}], "slowLaunchMs": 300, "neverRegisters": mute})).await;
    let start = Instant::now();
    assert!(matches!(setup.create(&claim).await, Err(Error::Transient(_))));
    assert!(start.elapsed() >= Duration::from_millis(300), "slow launches take longer");

    setup.set_faults(json!({"neverRegisters": mute, "listLagMs": 60_000})).await;
    assert_eq!(setup.provider.list().await.unwrap(), [], "everything is younger than the lag");
    let launched = setup.create(&claim).await.unwrap();
    setup.set_faults(json!({"neverRegisters": mute})).await;
    let listed: Vec<_> = setup.provider.list().await.unwrap().into_iter().map(|it| it.provider_id).collect();
    assert!(listed.contains(&launched.provider_id), "the lost answer was a launch, and the list has caught up");

    // Launched later and registered, so the loop has passed over the one that never does.
    let later = setup.create(&setup.claim(small.clone())).await.unwrap();
    setup.reaches(&later, "Running").await;
    assert!(setup.node(&launched).await.is_none(), "a machine registered that never does");

    setup.set_faults(json!({"neverReady": mute})).await;
    let node = setup.appears(&launched).await;
    assert!(!node.annotations().contains_key(names::KWOK_NODE), "nobody plays the kubelet");

    // One that registered and vanishes: the record goes, the Node stays and is not ready.
    let node = setup.appears(&elsewhere).await;
    setup.reaches(&elsewhere, "Running").await;
    let registered = json!({"metadata": {"labels": {(labels::REGISTERED): "true"}}});
    setup.nodes().patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(&registered)).await.unwrap();
    setup.set_faults(json!({"vanished": [{"nodeClaim": elsewhere.claim_name.as_deref()}]})).await;
    eventually(async || {
        let gone = matches!(setup.provider.get(&elsewhere.provider_id).await, Err(Error::NotFound(_)));
        let node = setup.node(&elsewhere).await.ok_or("the Node is gone")?;
        let ready = is_ready(&node);
        if gone && ready.as_deref() == Some("Unknown") {
            Ok(())
        } else {
            Err(format!("gone: {gone}, ready: {ready:?}"))
        }
    })
    .await;
    setup.nodes().delete(&node.name_any(), &DeleteParams::default()).await.unwrap();

    // One that never registered and vanishes leaves nothing.
    setup.set_faults(json!({"vanished": mute})).await;
    setup.disappears(&launched).await;

    setup.delete(&later).await;

    setup.set_faults(json!({"noSuchFault": 1})).await;
    let unreadable = setup.create(&setup.claim(small)).await.unwrap_err().to_string();
    assert!(unreadable.contains("dovetail-kwok-faults") && unreadable.contains("noSuchFault"), "{unreadable}");
    nodes.stop().await;
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_karpenter_launched_is_adopted() {
    let Some(setup) = Setup::alone().await else { return };
    let name = format!("{}-karpenter", setup.namespace);
    let provider_id = format!("kwok://{name}");
    let node: Node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kwok.x-k8s.io/node": "fake",
                "karpenter.sh/nodepool": "general",
                "karpenter.sh/capacity-type": "spot",
                "topology.kubernetes.io/zone": "test-zone-a",
                "node.kubernetes.io/instance-type": "c-2x-amd64-linux",
                "eks-node-viewer/instance-price": "0.038006",
            },
        },
        "spec": {"providerID": provider_id},
        "status": {"capacity": {"cpu": "1"}, "allocatable": {"cpu": "1900m"}},
    }))
    .unwrap();
    setup.nodes().create(&PostParams::default(), &node).await.unwrap();
    let claims: Api<NodeClaim> = Api::all(setup.client.clone());
    let claim = eventually(async || {
        claims.create(&PostParams::default(), &setup.claim(json!([]))).await.map_err(|error| error.to_string())
    })
    .await;
    let status = json!({"status": {"providerID": provider_id}});
    claims.patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();

    assert_eq!(setup.provider.list().await.unwrap(), []);
    let nodes = Loop::start(&setup.provider);
    let adopted = eventually(async || {
        let listed = setup.provider.list().await.map_err(|error| error.to_string())?;
        listed.into_iter().next().ok_or("nothing is listed".to_owned())
    })
    .await;
    assert_eq!(adopted.provider_id, *provider_id);
    assert_eq!(adopted.token.as_deref(), claim.metadata.uid.as_deref());
    assert_eq!((adopted.instance_type.as_str(), adopted.capacity_type), ("c-2x-amd64-linux", CapacityType::Spot));

    setup.delete(&adopted).await;
    setup.disappears(&adopted).await;
    claims.delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
    nodes.stop().await;
    setup.end().await;
}
