//! The clusters that tests run on, and the corner of a shared one that a test has to itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::control_plane::{self, ControlPlane, Gates, Kubernetes, Platform};
use crate::controller::{self, Controller};
pub use crate::wait::DEADLINE;
use crate::{apply, binary, eventually, install, objects};
use anyhow::{Result, ensure};
use api::{NodeClaim, NodePool};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, PodCondition};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The finalizer of what a test wants to look at while it is being deleted.
const HOLD: &str = "e2e.dovetail.test/hold";

/// A control plane with everything installed and no controller.
pub struct Cluster {
    /// Its processes.
    pub control_plane: ControlPlane,
    binary: PathBuf,
}

/// The release that tests are asked for, with these feature gates.
fn asked_for(gates: Gates) -> Result<Platform> {
    Ok(Platform { kubernetes: Kubernetes::asked_for()?, gates })
}

impl Cluster {
    /// Boots one, of the release that tests are asked for.
    pub async fn new(name: &str) -> Result<Self> {
        Self::with_arguments(name, &[]).await
    }

    /// Of this release, with these feature gates.
    pub async fn of(name: &str, platform: Platform) -> Result<Self> {
        Self::with(name, platform, &[]).await
    }

    /// With more arguments for `control-plane up`.
    pub async fn with_arguments(name: &str, arguments: &[&str]) -> Result<Self> {
        Self::with(name, asked_for(Gates::Default)?, arguments).await
    }

    /// With every feature gate of Kubernetes on.
    pub async fn with_all_gates(name: &str) -> Result<Self> {
        Self::of(name, asked_for(Gates::All)?).await
    }

    async fn with(name: &str, platform: Platform, arguments: &[&str]) -> Result<Self> {
        let cluster = Self::without_node_class(name, platform, arguments).await?;
        apply::apply_one(&cluster.client().await?, objects::node_class(objects::NODE_CLASS)).await?;
        Ok(cluster)
    }

    /// Where whoever uses it brings node classes along.
    pub async fn without_node_class(name: &str, platform: Platform, arguments: &[&str]) -> Result<Self> {
        Self::with_rights(name, platform, arguments, &[]).await
    }

    /// With the chart's rights by these values, and without node classes.
    pub async fn with_rights(
        name: &str,
        platform: Platform,
        arguments: &[&str],
        settings: &'static [&'static str],
    ) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(binary::with_failpoints).await??.to_owned();
        let control_plane = ControlPlane::up(control_plane::Options {
            name: name.to_owned(),
            gates: platform.gates,
            kubernetes: platform.kubernetes,
            service_accounts: vec![install::SERVICE_ACCOUNT.to_owned()],
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        })
        .await?;
        let client = control_plane.client().await?;
        install::crds(&client).await?;
        install::rights_with(&client, settings).await?;
        Ok(Self { control_plane, binary })
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        self.control_plane.client().await
    }

    /// Gives the controller what the chart does with these values.
    pub async fn more_rights(&self, settings: &'static [&'static str]) -> Result<()> {
        install::rights_with(&self.client().await?, settings).await
    }

    /// How to run the controller here: with the chart's rights, and quick to plan. It is the only one, and nobody is
    /// elected: it would end where a busy computer keeps the API server from answering for ten seconds, as it should,
    /// and there is no Kubernetes here to start it again.
    pub fn controller(&self) -> Result<controller::Options> {
        Ok(self.candidate()?.env("DISABLE_LEADER_ELECTION", "true"))
    }

    /// How to run one of several controllers, of which one is elected, or one that is kept running.
    pub fn candidate(&self) -> Result<controller::Options> {
        let environment = [
            ("LEADER_ELECTION_NAMESPACE", install::NAMESPACE),
            ("KWOK_INSTANCES_NAMESPACE", install::INSTANCES_NAMESPACE),
            ("BATCH_IDLE_DURATION", "300ms"),
            ("LOG_LEVEL", "debug"),
        ];
        Ok(controller::Options {
            name: "controller".to_owned(),
            binary: self.binary.clone(),
            kubeconfig: self.control_plane.kubeconfig_of(install::RELEASE)?.to_owned(),
            folder: self.control_plane.folder().to_owned(),
            arguments: Vec::new(),
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
        })
    }
}

/// A cluster with its controller.
pub struct Running {
    /// The cluster.
    pub cluster: Cluster,
    /// Its controller.
    pub controller: Controller,
}

/// The cluster that tests share. Its processes end with this one.
pub async fn shared() -> Result<&'static Running> {
    static SHARED: OnceCell<Running> = OnceCell::const_new();
    SHARED
        .get_or_try_init(|| async {
            let cluster = Cluster::new("shared").await?;
            let controller = Controller::start_ready(&cluster.controller()?).await?;
            Ok(Running { cluster, controller })
        })
        .await
}

/// One test's namespace and NodePool, both of the test's name.
pub struct Corner {
    /// A client with all rights.
    pub client: Client,
    /// Of the namespace and the NodePool.
    pub name: String,
    /// Where the controller is shared, which ends only with the process: each test looks into its log.
    _log: Option<SharedLog>,
}

/// Looks for panics in the log of the controller that tests share.
struct SharedLog(&'static Controller);

impl Drop for SharedLog {
    fn drop(&mut self) {
        self.0.panic_if_it_did();
    }
}

impl Corner {
    /// In the shared cluster.
    pub async fn shared(name: &str) -> Result<Self> {
        let corner = Self::shared_without_node_pool(name).await?;
        corner.node_pool(serde_json::json!({})).await?;
        Ok(corner)
    }

    /// In the shared cluster, where the NodePool is still to come.
    pub async fn shared_without_node_pool(name: &str) -> Result<Self> {
        let running = shared().await?;
        let corner = Self::without_node_pool(running.cluster.client().await?, name).await?;
        Ok(Self { _log: Some(SharedLog(&running.controller)), ..corner })
    }

    /// Of a namespace and a NodePool that are there already.
    pub fn existing(client: Client, name: &str) -> Self {
        Self { client, name: name.to_owned(), _log: None }
    }

    /// With the NodePool.
    pub async fn new(client: Client, name: &str) -> Result<Self> {
        let corner = Self::without_node_pool(client, name).await?;
        corner.node_pool(serde_json::json!({})).await?;
        Ok(corner)
    }

    /// The NodePool is still to come.
    pub async fn without_node_pool(client: Client, name: &str) -> Result<Self> {
        apply::apply_one(&client, objects::namespace(name)).await?;
        Ok(Self::existing(client, name))
    }

    /// Applies the test's NodePool with changes.
    pub async fn node_pool(&self, changes: Value) -> Result<()> {
        apply::apply_one(&self.client, objects::with(objects::node_pool(&self.name), changes)).await.map(drop)
    }

    /// Waits until the controller says that the test's NodePool is ready.
    pub async fn ready(&self) -> Result<()> {
        eventually(&format!("NodePool {} is ready", self.name), DEADLINE, async || {
            let conditions = self.pool().await?.status.unwrap_or_default().conditions;
            ensure!(conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"), "{conditions:?}");
            Ok(())
        })
        .await
    }

    /// Applies objects.
    pub async fn apply(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        apply::apply(&self.client, objects).await
    }

    /// The pods of the namespace.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(Api::namespaced(self.client.clone(), &self.name).list(&ListParams::default()).await?.items)
    }

    /// The nodes of the test's NodePools.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        let of_this_test = ListParams::default().labels(&format!("{}={}", objects::TEST_KEY, self.name));
        Ok(Api::all(self.client.clone()).list(&of_this_test).await?.items)
    }

    /// The NodeClaims of the NodePool of the test's name.
    pub async fn node_claims(&self) -> Result<Vec<NodeClaim>> {
        self.node_claims_with(api::labels::NODEPOOL).await
    }

    /// Those of all NodePools whose machines have the test's label.
    pub async fn all_node_claims(&self) -> Result<Vec<NodeClaim>> {
        self.node_claims_with(objects::TEST_KEY).await
    }

    async fn node_claims_with(&self, key: &str) -> Result<Vec<NodeClaim>> {
        let of_this_test = ListParams::default().labels(&format!("{key}={}", self.name));
        Ok(Api::all(self.client.clone()).list(&of_this_test).await?.items)
    }

    /// Keeps a NodeClaim, once it is deleted, where a test can look at it.
    pub async fn hold(&self, claim: &NodeClaim) -> Result<()> {
        let held: Vec<&str> = claim.finalizers().iter().map(String::as_str).chain([HOLD]).collect();
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": held } }));
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        claims.patch(&claim.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Lets a NodeClaim go that was kept.
    pub async fn release(&self, claim: &NodeClaim) -> Result<()> {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        eventually("the claim may go", DEADLINE, async || {
            let Some(now) = claims.get_opt(&claim.name_any()).await? else { return Ok(()) };
            let rest: Vec<&str> = now.finalizers().iter().map(String::as_str).filter(|it| *it != HOLD).collect();
            let patch = json!({ "metadata": { "finalizers": rest, "resourceVersion": now.resource_version() } });
            claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            Ok(())
        })
        .await
    }

    /// The NodePool as it is now.
    pub async fn pool(&self) -> Result<NodePool> {
        Ok(Api::all(self.client.clone()).get(&self.name).await?)
    }

    /// Events on objects called `name`, of this namespace or of none, as `reason: message`. They are written aside, so
    /// one that tells of what has been seen already may still be to come.
    pub async fn events(&self, name: &str) -> Result<Vec<String>> {
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = Api::<Event>::all(self.client.clone()).list(&about).await?;
        let is_here = |event: &Event| {
            let namespace = event.involved_object.namespace.as_deref().unwrap_or_default();
            namespace.is_empty() || namespace == self.name
        };
        Ok(events
            .into_iter()
            .filter(is_here)
            .map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect())
    }

    /// Waits until the namespace holds exactly `count` pods and each is bound; gives them.
    pub async fn bound(&self, count: usize) -> Result<Vec<Pod>> {
        eventually(&format!("{count} pods of {} are bound", self.name), DEADLINE, async || {
            let pods = self.pods().await?;
            let waiting: Vec<_> = pods.iter().filter(|pod| node_of(pod).is_none()).map(describe_waiting).collect();
            ensure!(pods.len() == count && waiting.is_empty(), "{} pods, waiting: {waiting:#?}", pods.len());
            Ok(pods)
        })
        .await
    }

    /// Waits until an event on an object called `name` is as asked for.
    pub async fn event(&self, what: &str, name: &str, is_it: impl Fn(&str) -> bool) -> Result<()> {
        eventually(&format!("an event on {name}: {what}"), DEADLINE, async || {
            let events = self.events(name).await?;
            ensure!(events.iter().any(|event| is_it(event)), "{events:#?}");
            Ok(())
        })
        .await
    }

    /// Waits until kube-scheduler has tried the `count` pods of the namespace, none of which has a place, and the
    /// controller knows of it. A NodePool that comes now finds them all in one plan; otherwise there are as many plans
    /// as the pods take to come, and which machines there are is chance.
    pub async fn tried(&self, count: usize) -> Result<()> {
        eventually(&format!("kube-scheduler has tried {count} pods of {}", self.name), DEADLINE, async || {
            let pods = self.pods().await?;
            let tried = pods.iter().filter(|pod| scheduled(pod).is_some()).count();
            ensure!(pods.len() == count && tried == count, "{tried} of {}", pods.len());
            Ok(())
        })
        .await?;
        // The controller sees pods in the order of their changes, so who is told of this one has seen the others.
        // kube-scheduler's own events begin otherwise.
        self.apply([objects::pod(&self.name, LAST, &serde_json::json!({ "cpu": "1000" }))]).await?;
        self.event("it has no place", LAST, |event| event.contains("Failed to schedule pod")).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        pods.delete(LAST, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Waits until every NodeClaim names its Node, and gives them. Pods may be bound to a Node before its NodeClaim
    /// says whose it is: those are two writes.
    pub async fn with_nodes(&self) -> Result<Vec<NodeClaim>> {
        eventually(&format!("every NodeClaim of {} names its Node", self.name), DEADLINE, async || {
            let claims = self.node_claims().await?;
            let is_named = |claim: &&NodeClaim| claim.status.as_ref().is_some_and(|it| !it.node_name.is_empty());
            let named = claims.iter().filter(is_named).count();
            ensure!(named == claims.len(), "{named} of {} do", claims.len());
            Ok(claims)
        })
        .await
    }

    /// Asks for the end of every NodeClaim that there is now.
    pub async fn delete_claims(&self) -> Result<()> {
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        for claim in self.node_claims().await? {
            match api.delete(&claim.name_any(), &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    /// Deletes machines until there are none: while pods are still going, new ones may come.
    pub async fn cleared(&self) -> Result<()> {
        eventually(&format!("the machines of {} are removed", self.name), DEADLINE, async || {
            self.delete_claims().await?;
            let (claims, nodes) = (self.node_claims().await?.len(), self.nodes().await?.len());
            ensure!(claims + nodes == 0, "{claims} NodeClaims, {nodes} Nodes");
            Ok(())
        })
        .await
    }

    /// Asks for the end of all that is here, and waits for none of it.
    pub async fn abandon(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.name, &DeleteParams::default()).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let pools: Api<NodePool> = Api::all(self.client.clone());
        for name in [self.name.clone(), format!("{}-b", self.name)] {
            match pools.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    /// Waits until nothing is left of the test's NodeClaims and Nodes. A NodeClaim goes after the provider's instance.
    pub async fn emptied(&self) -> Result<()> {
        eventually(&format!("no machine of {} is left", self.name), DEADLINE, async || {
            let of_pool = self.node_claims().await?.into_iter();
            let claims: BTreeSet<_> = of_pool.chain(self.all_node_claims().await?).map(|it| it.name_any()).collect();
            let nodes: Vec<_> = self.nodes().await?.iter().map(ResourceExt::name_any).collect();
            ensure!(claims.is_empty() && nodes.is_empty(), "NodeClaims {claims:?}, Nodes {nodes:?}");
            Ok(())
        })
        .await
    }
}

/// The pod that comes after all others, see [`Corner::tried`].
const LAST: &str = "last";

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// What kube-scheduler says of the pod; `None` before it has tried it.
#[must_use]
pub fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "PodScheduled")
}

fn describe_waiting(pod: &Pod) -> String {
    let why = scheduled(pod).and_then(|condition| condition.message.as_deref()).unwrap_or("not tried yet");
    format!("{}: {why}", pod.name_any())
}

/// Selects the kwok provider's records of machines.
pub const INSTANCES: &str = "app.kubernetes.io/component=kwok-instance";

/// The kwok provider's record of each machine that exists.
pub async fn instances(client: &Client) -> Result<Vec<ConfigMap>> {
    let records = ListParams::default().labels(INSTANCES);
    Ok(Api::namespaced(client.clone(), install::INSTANCES_NAMESPACE).list(&records).await?.items)
}
