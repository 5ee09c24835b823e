//! A node that is nobody's machine, with devices of which pods wait for some: its driver is being rolled out, or who
//! has them ends. A NodePool of its own would launch a machine with such devices, and must not: kube-scheduler gives
//! the pods those of the node once they are back.
//!
//! The other pods of the scenario keep off the node and off that NodePool.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use seeded_random::Random;
use serde_json::{Value, json};

use crate::cluster::{Corner, DEADLINE, node_of};
use crate::fidelity::is_unschedulable;
use crate::{apply, eventually, objects};

/// Key of the taint of the node and of the NodePool's machines.
const TAINT: &str = "fidelity.dovetail.test/annex";
/// How names of its pods begin.
const PREFIX: &str = "annex-";
/// Keeps a pod that ends until the scenario is over.
const HELD: &str = "fidelity.dovetail.test/held";
/// Longer than a scenario takes to be planned, and shorter than a machine is thought to take as long as none was
/// launched.
const GRACE_SECONDS: u32 = 100;

/// What a driver that is rolled out leaves meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rollout {
    /// Nothing.
    Gone,
    /// Part of its new generation.
    HalfPublished,
}

/// What happens on the node.
#[derive(Debug, Clone)]
pub(super) struct Annex {
    corner: String,
    rollout: Option<Rollout>,
    /// Whether a pod ends.
    ends: bool,
}

impl Annex {
    pub(super) fn random(corner: &str, random: &mut Random) -> Option<Self> {
        if !random.one_in(3) {
            return None;
        }
        let rollout = *random.pick(&[None, Some(Rollout::Gone), Some(Rollout::HalfPublished)]);
        Some(Self { corner: corner.to_owned(), rollout, ends: rollout.is_none() || random.one_in(2) })
    }

    /// Of the node, its NodePool, and what belongs to the whole cluster.
    fn name(&self) -> String {
        format!("annex-{}", self.corner)
    }

    fn driver(&self) -> String {
        format!("annex.{}.test", self.corner)
    }

    fn node(&self) -> Value {
        let (name, size) = (self.name(), json!({ "cpu": "4", "memory": "8Gi", "pods": "20" }));
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" },
                "labels": { objects::TEST_KEY: self.corner, "kubernetes.io/hostname": name } },
            "spec": { "taints": [{ "key": TAINT, "effect": "NoSchedule" }] },
            "status": { "capacity": size, "allocatable": size },
        })
    }

    /// One slice of the driver's pool, of so many.
    fn slice(&self, name: &str, (generation, slices): (u64, u64), devices: &[&str]) -> Value {
        let devices: Vec<Value> = devices.iter().map(|device| json!({ "name": device })).collect();
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": { "name": format!("{}-{name}", self.name()) },
            "spec": { "driver": self.driver(), "nodeName": self.name(), "devices": devices,
                "pool": { "name": self.name(), "generation": generation, "resourceSliceCount": slices } },
        })
    }

    /// What the driver publishes at first.
    fn before(&self) -> Value {
        self.slice("a", (1, 1), &["annex-0", "annex-1", "annex-2"])
    }

    /// What it publishes in the end.
    fn after(&self) -> [Value; 2] {
        [self.slice("a", (2, 2), &["annex-0", "annex-1"]), self.slice("b", (2, 2), &["annex-2"])]
    }

    /// What belongs to the whole cluster, but for the node and its slices.
    fn surroundings(&self) -> [Value; 3] {
        let name = self.name();
        let taints = json!([{ "key": objects::TEST_KEY, "value": self.corner, "effect": "NoSchedule" },
            { "key": TAINT, "effect": "NoSchedule" }]);
        let requirements = json!([{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
            { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }]);
        let changes = json!({ "metadata": { "name": name },
            "spec": { "template": { "spec": { "taints": taints, "requirements": requirements } } } });
        let expression = format!("device.driver == '{}'", self.driver());
        let template = json!({ "metadata": { "name": "annex" },
            "spec": { "driver": self.driver(), "devices": [{ "name": "annex-{index}", "replicas": 3 }] } });
        [
            json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
                "spec": { "selectors": [{ "cel": { "expression": expression } }] } }),
            json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": name },
                "spec": { "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": [name] }],
                    "dynamicResources": { "resourceSliceTemplates": [template] } } }),
            objects::with(objects::node_pool(&self.corner), changes),
        ]
    }

    fn template(&self) -> Value {
        let request = json!({ "name": "r", "exactly": { "deviceClassName": self.name() } });
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": "annex", "namespace": self.corner },
            "spec": { "spec": { "devices": { "requests": [request] } } } })
    }

    /// A pod with one of the devices.
    fn pod(&self, name: &str) -> Value {
        let mut pod = objects::pod(&self.corner, &format!("{PREFIX}{name}"), &json!({ "cpu": "100m" }));
        pod["spec"]["resourceClaims"] = json!([{ "name": "devices", "resourceClaimTemplateName": "annex" }]);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "devices" }]);
        pod["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS.into();
        if let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() {
            tolerations.push(json!({ "key": TAINT, "operator": "Exists" }));
        }
        pod
    }

    /// Those who have a device, and those who wait for one.
    fn pods(&self) -> (Vec<Value>, Vec<Value>) {
        let ending = objects::with(self.pod("ends"), json!({ "metadata": { "finalizers": [HELD] } }));
        let holding = [self.pod("stays"), ending];
        // Two of three are taken.
        let waiting = match (self.rollout.is_some(), self.ends) {
            (true, true) => vec![self.pod("waits-0"), self.pod("waits-1")],
            (true, false) => vec![self.pod("waits-0")],
            // The free one is theirs at once.
            (false, _) => vec![self.pod("waits-0"), self.pod("waits-1")],
        };
        (holding.into(), waiting)
    }

    /// Waits until these of its pods are on the node.
    async fn are_bound(&self, corner: &Corner, wanted: &[Value]) -> Result<()> {
        eventually(&format!("{} pods have devices of {}", wanted.len(), self.name()), DEADLINE, async || {
            let bound = corner.pods().await?;
            let is_bound = |pod: &&Value| {
                let name = &pod["metadata"]["name"];
                bound.iter().any(|it| *name == it.name_any() && node_of(it) == Some(self.name().as_str()))
            };
            let count = wanted.iter().filter(is_bound).count();
            ensure!(count == wanted.len(), "{count} have");
            Ok(())
        })
        .await
    }

    /// Has pods wait for devices that are to come back.
    pub(super) async fn begin(&self, corner: &Corner) -> Result<()> {
        let (holding, waiting) = self.pods();
        let [class, overlay, pool] = self.surroundings();
        corner.apply([class, overlay, self.template(), self.node(), self.before()]).await?;
        corner.apply(holding.clone()).await?;
        self.are_bound(corner, &holding).await?;
        corner.apply([pool]).await?;
        let pods: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
        if self.ends {
            pods.delete("annex-ends", &DeleteParams::default()).await?;
        }
        match self.rollout {
            None => {}
            Some(Rollout::Gone) => apply::delete(&corner.client, &self.before()).await?,
            Some(Rollout::HalfPublished) => corner.apply([self.after()[0].clone()]).await?,
        }
        corner.apply(waiting.clone()).await?;
        let mut waiting: Vec<&str> = waiting.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        waiting.sort_unstable();
        eventually("kube-scheduler has tried the pods that wait for devices", DEADLINE, async || {
            let pods = corner.pods().await?;
            let tried = pods.iter().filter(|pod| node_of(pod).is_some() || is_unschedulable(pod));
            let tried = tried.filter(|pod| waiting.binary_search(&pod.name_any().as_str()).is_ok()).count();
            ensure!(tried == waiting.len(), "{tried} of {}", waiting.len());
            Ok(())
        })
        .await
    }

    /// Gives the devices back, and says what went otherwise than it should.
    pub(super) async fn end(&self, corner: &Corner) -> Result<Vec<String>> {
        let launched = |when: &str, claims: Vec<api::NodeClaim>| {
            let here =
                claims.into_iter().filter(|claim| claim.labels().get(api::labels::NODEPOOL) == Some(&self.name()));
            here.map(|claim| format!("{} was launched {when}", claim.name_any())).collect::<Vec<_>>()
        };
        let mut wrong = launched("while devices of a node were to come back", corner.all_node_claims().await?);
        match self.rollout {
            None => {}
            Some(_) => corner.apply(self.after()).await?,
        }
        self.let_go(corner).await?;
        self.are_bound(corner, &self.pods().1).await?;
        if wrong.is_empty() {
            wrong = launched("though devices of a node had come back", corner.all_node_claims().await?);
        }
        Ok(wrong)
    }

    /// Lets the pod go that ends.
    async fn let_go(&self, corner: &Corner) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
        let nobody = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        match pods.patch("annex-ends", &PatchParams::default(), &nobody).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            patched => Ok(patched.map(drop)?),
        }
    }

    /// Removes what would stay.
    pub(super) async fn clear(&self, corner: &Corner) -> Result<()> {
        self.let_go(corner).await?;
        let pods: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
        for pod in corner.pods().await?.iter().filter(|pod| is_of_annex(pod)) {
            // Without its node nobody would end it.
            pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        }
        let slices = [self.after()[0].clone(), self.after()[1].clone()];
        for object in self.surroundings().iter().chain(&slices).chain([&self.node()]) {
            // Some of it may not have come to be.
            if let Err(error) = apply::delete(&corner.client, object).await {
                let is_gone = matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404);
                ensure!(is_gone, error);
            }
        }
        Ok(())
    }

    /// Whether a node is this one.
    pub(super) fn is_it(&self, node: &Node) -> bool {
        node.name_any() == self.name()
    }

    /// All objects of it as they are when the pods wait, for people.
    pub(super) fn manifests(&self) -> Vec<Value> {
        let (holding, waiting) = self.pods();
        let slice = match self.rollout {
            None => Some(self.before()),
            Some(Rollout::Gone) => None,
            Some(Rollout::HalfPublished) => Some(self.after()[0].clone()),
        };
        let rest = [self.template(), self.node()].into_iter().chain(slice);
        self.surroundings().into_iter().chain(rest).chain(holding).chain(waiting).collect()
    }
}

/// Whether a pod has devices of such a node, or waits for some.
pub(super) fn is_of_annex(pod: &Pod) -> bool {
    pod.name_any().starts_with(PREFIX)
}
