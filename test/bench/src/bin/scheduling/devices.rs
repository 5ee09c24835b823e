//! Devices of a case: what nodes have, and what the pods that run there hold of it.
//!
//! A case says which ResourceSlices a node has and which ResourceClaimTemplates pods name. The claims of pods are made
//! here, as the claim controller does; each of a pod that runs holds the next devices of its node. That is a valid
//! allocation where a node's devices are alike and requests ask for a number of them, as in all cases; anything else is
//! an error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use cluster::snapshot::ClusterDevices;
use decode::ObjectError;
use decode::devices::{
    AdminNamespaces, Admitted, device_class, pod_devices, resource_claim, resource_claim_template, resource_slice,
};
use dra_types::{Compat, KubernetesMinor, ResourceClaim};
use model::{NamespacedName, Pod, Uid};
use scheduling::devices::DeviceObjects;
use serde_json::{Value, json};

use crate::case::NAMESPACE;

/// Objects of a case, as the planner's input has them.
pub(crate) struct CaseDevices {
    compat: Compat,
    objects: DeviceObjects,
    pods: BTreeMap<Uid, Arc<dra_types::Pod>>,
    /// What claims ask for, by the name of their template.
    templates: BTreeMap<String, Value>,
}

/// Devices of a node that nobody holds: driver, pool and name of each.
pub(crate) type Free = VecDeque<[String; 3]>;

/// The claims of a pod.
pub(crate) type Claims = Vec<(NamespacedName, Arc<ResourceClaim>)>;

fn text(object: &Value) -> String {
    object.as_str().unwrap_or_default().to_owned()
}

fn readable<T>(read: Result<T, ObjectError>) -> Result<T> {
    read.map_err(|error| anyhow!("{error}"))
}

impl CaseDevices {
    pub(crate) fn new() -> Self {
        let compat = Compat::new(KubernetesMinor::NEWEST);
        Self { compat, objects: DeviceObjects::default(), pods: BTreeMap::new(), templates: BTreeMap::new() }
    }

    /// Adds a DeviceClass or a ResourceClaimTemplate.
    pub(crate) fn add(&mut self, object: &Value) -> Result<()> {
        let no_admins = AdminNamespaces::default();
        let admitted = Admitted::ByNobody(&self.compat, &no_admins);
        match object["kind"].as_str() {
            Some("DeviceClass") => {
                let class = readable(device_class(object, admitted))?;
                self.objects.classes.insert(Arc::clone(&class.meta.name.name), Arc::new(class));
            }
            Some("ResourceClaimTemplate") => {
                let template = readable(resource_claim_template(object, admitted))?;
                self.templates.insert(template.meta.name.name.to_string(), object["spec"]["spec"].clone());
                self.objects.claim_templates.insert(template.meta.name.clone(), Arc::new(template));
            }
            kind => anyhow::bail!("{kind:?} is no kind of a case's devices"),
        }
        Ok(())
    }

    /// Adds the slices of a node; gives its devices.
    pub(crate) fn publish(&mut self, slices: &[Value]) -> Result<Free> {
        let mut free = Free::new();
        for object in slices {
            let slice =
                readable(resource_slice(object, Admitted::ByNobody(&self.compat, &AdminNamespaces::default())))?;
            self.objects.slices.insert(Arc::clone(&slice.meta.name.name), Arc::new(slice));
            let spec = &object["spec"];
            let devices = spec["devices"].as_array().into_iter().flatten();
            free.extend(devices.map(|device| [&spec["driver"], &spec["pool"]["name"], &device["name"]].map(text)));
        }
        Ok(free)
    }

    /// Takes note of what a pod wants.
    pub(crate) fn wants(&mut self, pod: &Value) -> Result<()> {
        if let Some(devices) = readable(pod_devices(pod))? {
            self.pods.insert(text(&pod["metadata"]["uid"]).as_str().into(), Arc::new(devices));
        }
        Ok(())
    }

    /// Makes the claims of a pod, and names them in its status. If it runs on a node, they hold devices there.
    pub(crate) fn make_claims(&mut self, pod: &mut Value, mut on: Option<(&str, &mut Free)>) -> Result<()> {
        let entries = pod["spec"]["resourceClaims"].as_array().cloned().unwrap_or_default();
        let name = text(&pod["metadata"]["name"]);
        let mut statuses = Vec::new();
        for entry in &entries {
            let template = text(&entry["resourceClaimTemplateName"]);
            let spec =
                self.templates.get(&template).with_context(|| format!("{name} names no template that is there"))?;
            let claim = format!("{name}-{}", text(&entry["name"]));
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
            let mut object = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": claim, "namespace": NAMESPACE, "uid": claim, "ownerReferences": [owner],
                    "annotations": {"resource.kubernetes.io/pod-claim-name": entry["name"]}},
                "spec": spec,
            });
            if let Some((node, free)) = &mut on {
                let allocation = next_devices(spec, node, free)?;
                let consumer = json!({"resource": "pods", "name": name, "uid": name});
                object["status"] = json!({"allocation": allocation, "reservedFor": [consumer]});
            }
            let read =
                readable(resource_claim(&object, Admitted::ByNobody(&self.compat, &AdminNamespaces::default())))?;
            self.objects.claims.insert(read.meta.name.clone(), Arc::new(read));
            statuses.push(json!({"name": entry["name"], "resourceClaimName": claim}));
        }
        if !statuses.is_empty() {
            pod["status"]["resourceClaimStatuses"] = statuses.into();
        }
        Ok(())
    }

    pub(crate) fn into_cluster(self) -> ClusterDevices {
        ClusterDevices { compat: self.compat, objects: Arc::new(self.objects), pods: self.pods }
    }
}

/// What a claim that asks for numbers of devices gets of those that are free on a node.
fn next_devices(spec: &Value, node: &str, free: &mut Free) -> Result<Value> {
    let mut results = Vec::new();
    for request in spec["devices"]["requests"].as_array().into_iter().flatten() {
        let count = request["exactly"]["count"].as_u64().context("a request for no number of devices")?;
        for _ in 0..count {
            let [driver, pool, device] = free.pop_front().with_context(|| format!("{node} has too few devices"))?;
            results.push(json!({"request": request["name"], "driver": driver, "pool": pool, "device": device}));
        }
    }
    ensure!(!results.is_empty(), "a claim asks for nothing");
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    Ok(json!({
        "devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }))
}

/// Takes out the claims that are reserved for a pod, as the cluster does once it is gone.
pub(crate) fn release(devices: &mut ClusterDevices, pod: &Pod) -> Claims {
    let is_its = |claim: &ResourceClaim| claim.reserved_for.iter().any(|consumer| consumer.uid == pod.uid);
    let of_pod = devices.objects.claims.iter().filter(|(_, claim)| is_its(claim));
    let claims: Claims = of_pod.map(|(name, claim)| (name.clone(), Arc::clone(claim))).collect();
    if !claims.is_empty() {
        let objects = Arc::make_mut(&mut devices.objects);
        claims.iter().for_each(|(name, _)| drop(objects.claims.remove(name)));
    }
    claims
}

/// Puts claims back that were taken out.
pub(crate) fn hold_again(devices: &mut ClusterDevices, claims: &Claims) {
    if !claims.is_empty() {
        Arc::make_mut(&mut devices.objects).claims.extend(claims.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_run_hold_the_next_devices_of_their_node_and_no_more_than_there_are() -> Result<()> {
        let mut devices = CaseDevices::new();
        let object = |kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": "resource.k8s.io/v1", "kind": kind,
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        };
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}});
        let wanted = json!({"spec": {"devices": {"requests": [request]}}});
        devices.add(&object("DeviceClass", "gpu", json!({})))?;
        devices.add(&object("ResourceClaimTemplate", "two", wanted))?;
        let slice = json!({"driver": "gpu.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "g0"}, {"name": "g1"}, {"name": "g2"}]});
        let mut free = devices.publish(&[object("ResourceSlice", "n-gpu", slice)])?;
        let pod = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
                "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "two"}],
                    "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}]},
                "status": {"phase": "Running"}})
        };
        let mut first = pod("first");
        devices.make_claims(&mut first, Some(("n", &mut free)))?;
        devices.wants(&first)?;
        assert_eq!(first["status"]["resourceClaimStatuses"][0]["resourceClaimName"], "first-gpu");
        let told = devices.make_claims(&mut pod("second"), Some(("n", &mut free))).map_err(|error| error.to_string());
        assert_eq!(told, Err("n has too few devices".to_owned()));
        let mut devices = devices.into_cluster();
        let claim = devices.objects.claims.values().next().cloned().context("no claim")?;
        let held = claim.allocation.iter().flat_map(|allocation| &allocation.results);
        assert_eq!(held.map(|result| result.device.device.to_string()).collect::<Vec<_>>(), ["g0", "g1"]);
        let names = &mut model::Interner::new();
        let labels = api::labels::ProviderLabels::default();
        let pod = readable(decode::pod(&first, &mut decode::Context::with_labels(names, &labels)))?;
        let claims = release(&mut devices, &pod);
        assert_eq!((claims.len(), devices.objects.claims.len()), (1, 0));
        hold_again(&mut devices, &claims);
        assert_eq!(devices.objects.claims.len(), 1);
        Ok(())
    }
}
