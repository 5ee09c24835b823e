//! A claim that nearly as many pods use as may: 256. Its consumers are pods that are never bound, and its device is one
//! that all nodes see, so a class of pods with little else to ask for finds it anywhere, or it finds it full.

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use seeded_random::Random;
use serde_json::{Value, json};

use crate::cluster::Corner;
use crate::fidelity::CLASS;
use crate::objects;

/// Of the claim, and the class of its pods.
pub(super) const CROWD: &str = "crowd";
/// The most consumers of a claim.
const MOST: usize = 256;

/// The pods that want the claim, and how many have it.
#[derive(Debug, Clone)]
pub(super) struct Crowd {
    corner: String,
    consumers: usize,
    wanting: usize,
}

impl Crowd {
    /// `refused` says how many pods may be refused at most.
    pub(super) fn random(corner: &str, refused: usize, random: &mut Random) -> Option<Self> {
        if !random.one_in(6) {
            return None;
        }
        let corner = corner.to_owned();
        if refused > 0 && random.one_in(2) {
            return Some(Self { corner, consumers: MOST, wanting: refused.min(2) });
        }
        let wanting = 1 + random.below(3_usize);
        // All of them find room, and perhaps none is left.
        Some(Self { corner, consumers: MOST - wanting - random.below(2_usize), wanting })
    }

    /// How many of its pods are to be refused.
    pub(super) fn refused(&self) -> usize {
        if self.consumers == MOST { self.wanting } else { 0 }
    }

    fn name(&self) -> String {
        format!("hub-{}", self.corner)
    }

    fn driver(&self) -> String {
        format!("hub.{}.test", self.corner)
    }

    /// The claim, its class and its device.
    pub(super) fn objects(&self) -> Vec<Value> {
        let (name, driver) = (self.name(), self.driver());
        let expression = format!("device.driver == '{driver}'");
        let request = json!({ "name": "r", "exactly": { "deviceClassName": name } });
        vec![
            json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
                "spec": { "selectors": [{ "cel": { "expression": expression } }] } }),
            json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name },
                "spec": { "driver": driver, "allNodes": true, "devices": [{ "name": "hub" }],
                    "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 } } }),
            json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                // As the scheduler leaves it.
                "metadata": { "name": CROWD, "namespace": self.corner,
                    "finalizers": ["resource.kubernetes.io/delete-protection"] },
                "spec": { "devices": { "requests": [request] } } }),
        ]
    }

    /// The pods that want it.
    pub(super) fn pods(&self) -> Vec<Value> {
        let changes = json!({ "metadata": { "labels": { CLASS: CROWD, "app": CROWD } },
            "spec": { "resourceClaims": [{ "name": "devices", "resourceClaimName": CROWD }] } });
        let pod = |index| {
            let name = format!("{CROWD}-{index}");
            let mut pod = objects::with(objects::pod(&self.corner, &name, &json!({ "cpu": "50m" })), changes.clone());
            pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "devices" }]);
            pod
        };
        (0..self.wanting).map(pod).collect()
    }

    /// Gives the claim its consumers.
    pub(super) async fn gather(&self, corner: &Corner) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
        let consumer = async |index| {
            let gates = json!({ "spec": { "schedulingGates": [{ "name": "fidelity.dovetail.test/consumer" }] } });
            let pod = objects::with(objects::pod(&self.corner, &format!("consumer-{index}"), &json!({})), gates);
            let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            anyhow::Ok(json!({ "resource": "pods", "name": pod.name_any(), "uid": pod.uid() }))
        };
        let consumers: Vec<Value> =
            stream::iter(0..self.consumers).map(consumer).buffer_unordered(16).try_collect().await?;
        let result = json!({ "request": "r", "driver": self.driver(), "pool": self.name(), "device": "hub" });
        // Without a time, kube-scheduler would write one beside the next consumer, which the API server does not take.
        let allocation = json!({ "devices": { "results": [result] }, "allocationTimestamp": "2026-01-01T00:00:00Z" });
        let status = json!({ "allocation": allocation, "reservedFor": consumers });
        let claims: Api<ResourceClaim> = Api::namespaced(corner.client.clone(), &corner.name);
        let patch = Patch::Merge(json!({ "status": status }));
        let claim = claims.patch_status(CROWD, &PatchParams::default(), &patch).await?;
        let reserved = claim.status.and_then(|status| status.reserved_for).map_or(0, |reserved| reserved.len());
        ensure!(reserved == self.consumers, "claim {CROWD} has {reserved} consumers, not {}", self.consumers);
        Ok(())
    }
}
