//! What volumes need on the test plane: StorageClasses, machines that attach only so many volumes, and a provisioner.
//! And the claims that pods of random scenarios come with.
//!
//! The provisioner does what one of a CSI driver does: a claim whose class waits for its first consumer is annotated by
//! kube-scheduler with the node that it has chosen; the provisioner makes a PersistentVolume in that node's zone, and
//! Kubernetes binds the two.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cloudprovider::{InstanceType, Offering};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use seeded_random::Random;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::CLASS;
use super::scenario::{ZONE, ZONES, Zones, is_spread_over_zones};
use crate::cluster::{Corner, DEADLINE};
use crate::{eventually, objects};

/// The driver of all volumes.
const DRIVER: &str = "csi.fidelity.test";
/// Claims of this class wait for their first consumer, and may be anywhere.
const ANYWHERE: &str = "fidelity-anywhere";
/// The StorageClass of volumes in the first two zones.
const TWO_ZONES: &str = "fidelity-two-zones";
/// What kube-scheduler writes on a claim: the node that it has chosen.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// How long the provisioner tries to make a volume: an API server on a busy computer may not answer for seconds.
const PROVISIONING: Duration = Duration::from_secs(20);
/// Volumes being made at the same time, so that one that does not get on keeps no other waiting.
const PARALLEL: usize = 16;

/// The StorageClasses of scenarios, and their driver.
#[must_use]
pub fn storage() -> Vec<Value> {
    let class = |name: &str, allowed: Value| {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": name },
            "provisioner": DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer",
            "reclaimPolicy": "Retain",
            "allowedTopologies": allowed,
        })
    };
    let two = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": [ZONES[0], ZONES[1]] }] }]);
    vec![
        // Nobody attaches these volumes, so nobody is to wait until they are.
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": { "name": DRIVER },
            "spec": { "attachRequired": false },
        }),
        class(ANYWHERE, Value::Null),
        class(TWO_ZONES, two),
    ]
}

/// The default machines as a catalogue file, each of which attaches few volumes: the more, the larger it is.
///
/// # Errors
/// If a machine lacks what a catalogue file tells.
pub fn catalogue() -> Result<String> {
    let entries = cloudprovider_kwok::catalogue::default_instance_types()
        .iter()
        .map(|instance_type| entry(instance_type).with_context(|| instance_type.name.to_string()))
        .collect::<Result<Vec<Value>>>()?;
    Ok(serde_json::to_string(&entries)?)
}

fn entry(instance_type: &InstanceType) -> Result<Value> {
    let values = |key: &str| instance_type.requirements.get(key).into_iter().flatten().cloned().collect::<Vec<_>>();
    let cpu = instance_type.capacity.get("cpu").context("no CPU")?.to_string();
    let limit = match cpu.parse::<u32>()? {
        0..=1 => 2,
        2..=3 => 3,
        4..=7 => 4,
        8..=15 => 6,
        _ => 10,
    };
    let resources: BTreeMap<&str, String> =
        instance_type.capacity.iter().map(|(name, amount)| (name.as_str(), amount.to_string())).collect();
    let offering = |offering: &Offering| {
        let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        json!({
            "Price": offering.price.dollars(),
            "Available": true,
            "Requirements": [one("karpenter.sh/capacity-type", offering.capacity_type.as_str()), one(ZONE, &offering.zone)],
        })
    };
    Ok(json!({
        "name": instance_type.name.as_str(),
        "architecture": values("kubernetes.io/arch").first().context("no architecture")?,
        "operatingSystems": values("kubernetes.io/os"),
        "resources": resources,
        "offerings": instance_type.offerings.iter().map(offering).collect::<Vec<_>>(),
        "volumeAttachmentLimits": { DRIVER: limit },
    }))
}

/// Makes volumes for claims until it is dropped.
#[derive(Debug)]
pub struct Provisioner(JoinHandle<()>);

impl Provisioner {
    /// Starts it.
    #[must_use]
    pub fn start(client: Client) -> Self {
        Self(tokio::spawn(async move {
            let claims = Api::<PersistentVolumeClaim>::all(client.clone());
            let changes = watcher(claims, watcher::Config::default()).default_backoff().applied_objects();
            let provision = async |change| match change {
                Ok(claim) => provision(&client, &claim).await,
                Err(error) => eprintln!("provisioner: {error}"),
            };
            changes.for_each_concurrent(PARALLEL, provision).await;
        }))
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the claim's volume if it waits for one, and says so if that does not go.
async fn provision(client: &Client, claim: &PersistentVolumeClaim) {
    let Some(node) = claim.annotations().get(SELECTED_NODE) else { return };
    let is_bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    if is_bound || claim.metadata.deletion_timestamp.is_some() {
        return;
    }
    let what = format!("a volume for {}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
    if let Err(error) = eventually(&what, PROVISIONING, || make(client, claim, node)).await {
        eprintln!("provisioner: {error:#}");
    }
}

async fn make(client: &Client, claim: &PersistentVolumeClaim, node: &str) -> Result<()> {
    let node = Api::<Node>::all(client.clone()).get(node).await?;
    let zone = node.labels().get(ZONE).context("the chosen node has no zone")?;
    let spec = claim.spec.as_ref().context("the claim has no spec")?;
    let mut made = volume(&format!("pvc-{}", claim.uid().context("the claim has no uid")?), claim, zone)?;
    made["spec"]["storageClassName"] = json!(spec.storage_class_name);
    made["metadata"]["annotations"] = json!({ "pv.kubernetes.io/provisioned-by": DRIVER });
    let made: PersistentVolume = serde_json::from_value(made)?;
    match Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

/// A volume in a zone for that claim.
fn volume(name: &str, claim: &PersistentVolumeClaim, zone: &str) -> Result<Value> {
    let in_zone = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }]);
    let spec = claim.spec.as_ref().context("the claim has no spec")?;
    let storage = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
    Ok(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": {
            "accessModes": spec.access_modes,
            "capacity": { "storage": storage },
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(),
                "name": claim.name_any(),
                "uid": claim.uid(),
            },
            "csi": { "driver": DRIVER, "volumeHandle": name },
            "nodeAffinity": { "required": { "nodeSelectorTerms": in_zone } },
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }))
}

/// How the pods of a class have volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Volumes {
    /// Each its own, made where the first consumer goes.
    Waiting(&'static str),
    /// Each its own, which is there already.
    Bound,
    /// All one, which is there already and which many may use.
    Shared,
    /// The first of them, which alone may use it.
    Exclusive,
}

/// Gives some classes of pods volumes; the claims, and the volumes that are there already.
pub(super) fn add(seed: u64, namespace: &str, pods: &mut [Value]) -> Vec<Value> {
    // A stream of its own, so that all else of a scenario is what it was without volumes.
    let mut random = Random::new(seed ^ 0x766f_6c75_6d65_7321);
    let mut objects = Vec::new();
    if !random.one_in(2) {
        return objects;
    }
    let mut of_class: BTreeMap<String, (Volumes, &'static str, usize)> = BTreeMap::new();
    for pod in pods {
        let class = pod["metadata"]["labels"][CLASS].as_str().unwrap_or_default().to_owned();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !of_class.contains_key(&class) {
            let zones = Zones::of(&pod["spec"]);
            let kind = *random.pick(kinds(&pod["spec"], zones));
            let has_volumes = random.one_in(2) && !zones.is_empty();
            let (zone, first) = if has_volumes { (zones.choose(&mut random), 0) } else { ("", usize::MAX) };
            of_class.insert(class.clone(), (kind, zone, first));
        }
        let Some((kind, zone, index)) = of_class.get_mut(&class).filter(|(_, _, index)| *index != usize::MAX) else {
            continue;
        };
        let is_first = std::mem::replace(index, *index + 1) == 0;
        let claim = match kind {
            Volumes::Waiting(storage_class) => {
                objects.push(claim(namespace, &name, "ReadWriteOnce", &json!({ "storageClassName": storage_class })));
                name
            }
            Volumes::Bound => {
                objects.extend(bound(namespace, &name, "ReadWriteOnce", zone));
                name
            }
            Volumes::Shared => {
                let shared = format!("shared-{class}");
                if is_first {
                    objects.extend(bound(namespace, &shared, "ReadWriteMany", zone));
                }
                shared
            }
            Volumes::Exclusive if is_first => {
                objects.extend(bound(namespace, &name, "ReadWriteOncePod", zone));
                name
            }
            Volumes::Exclusive => continue,
        };
        let volumes =
            json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] } });
        *pod = objects::with(pod.take(), volumes);
    }
    objects
}

/// How pods with this spec may have volumes, so that they can still keep its rules: one that is in a zone keeps its pod
/// there, and kube-scheduler spreads pods over zones whatever their volumes allow.
fn kinds(spec: &Value, zones: Zones) -> &'static [Volumes] {
    let has_to_be_near = !spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].is_null();
    if is_spread_over_zones(&spec["topologySpreadConstraints"]) || has_to_be_near {
        return &[Volumes::Waiting(ANYWHERE)];
    }
    const ALL: [Volumes; 6] = [
        Volumes::Waiting(ANYWHERE),
        Volumes::Waiting(ANYWHERE),
        Volumes::Bound,
        Volumes::Shared,
        Volumes::Exclusive,
        Volumes::Waiting(TWO_ZONES),
    ];
    let may_be_in_two = zones.iter().any(|zone| ZONES[..2].contains(&zone));
    if may_be_in_two { &ALL } else { &ALL[..5] }
}

fn claim(namespace: &str, name: &str, access_mode: &str, spec: &Value) -> Value {
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "accessModes": [access_mode], "resources": { "requests": { "storage": "1Gi" } } },
    });
    objects::with(claim, json!({ "spec": spec }))
}

/// A claim with its volume.
fn bound(namespace: &str, name: &str, access_mode: &str, zone: &str) -> [Value; 2] {
    let volume = format!("{namespace}-{name}");
    let in_zone = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }]);
    [
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": { "name": volume },
            "spec": {
                "accessModes": [access_mode],
                "capacity": { "storage": "1Gi" },
                "claimRef": { "namespace": namespace, "name": name },
                "csi": { "driver": DRIVER, "volumeHandle": volume },
                "nodeAffinity": { "required": { "nodeSelectorTerms": in_zone } },
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
            },
        }),
        claim(namespace, name, access_mode, &json!({ "storageClassName": "", "volumeName": volume })),
    ]
}

/// Waits until every claim that names its volume has it.
pub(super) async fn are_bound(corner: &Corner) -> Result<()> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(corner.client.clone(), &corner.name);
    eventually("claims are bound to the volumes that they name", DEADLINE, async || {
        for claim in claims.list(&ListParams::default()).await? {
            let names_one = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            ensure!(!names_one || phase == Some("Bound"), "{} is {phase:?}", claim.name_any());
        }
        Ok(())
    })
    .await
}

/// Deletes the volumes of a namespace's claims; they go once the claims have gone.
pub(super) async fn abandon(corner: &Corner) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(corner.client.clone());
    for volume in volumes.list(&ListParams::default()).await? {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if claim.and_then(|claim| claim.namespace.as_deref()) != Some(&corner.name) {
            continue;
        }
        match volumes.delete(&volume.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => drop(result?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::Scenario;

    #[test]
    fn a_seed_gives_the_same_volumes_and_all_kinds_appear() {
        let mut kinds = BTreeMap::new();
        for seed in 0..60 {
            let (one, other) = (Scenario::random(seed), Scenario::random(seed));
            assert_eq!((&one.volumes, &one.pods), (&other.volumes, &other.pods));
            for claim in one.volumes.iter().filter(|object| object["kind"] == "PersistentVolumeClaim") {
                let kind = format!("{} {}", claim["spec"]["accessModes"][0], claim["spec"]["storageClassName"]);
                *kinds.entry(kind).or_insert(0) += 1;
            }
            assert!(Scenario::plain(seed).volumes.is_empty());
        }
        let found: Vec<&str> = kinds.keys().map(String::as_str).collect();
        assert_eq!(
            found,
            [
                "\"ReadWriteMany\" \"\"",
                "\"ReadWriteOnce\" \"\"",
                "\"ReadWriteOnce\" \"fidelity-anywhere\"",
                "\"ReadWriteOnce\" \"fidelity-two-zones\"",
                "\"ReadWriteOncePod\" \"\""
            ]
        );
    }

    #[test]
    fn the_catalogue_has_the_default_machines_with_limits() {
        let read = cloudprovider_kwok::catalogue::parse(&catalogue().unwrap()).unwrap().instance_types;
        let default = cloudprovider_kwok::catalogue::default_instance_types();
        assert_eq!(read.len(), default.len());
        for instance_type in &read {
            let original = default.iter().find(|it| it.name == instance_type.name).unwrap();
            assert!(instance_type.volume_attachment_limits.contains_key(DRIVER));
            let same = InstanceType { volume_attachment_limits: BTreeMap::new(), ..instance_type.clone() };
            assert_eq!(same, *original);
        }
    }
}
