//! Scenarios on machines of EC2: a random EC2NodeClass, families of types with devices, and pods that claim what some
//! machine of them will have by the catalogue. A seed gives the same scenario everywhere.
//!
//! What pods claim is drawn from what one type publishes, so there is a place for each; the plan may find a cheaper
//! one. Of some scenarios one pod is made impossible on purpose: it must be refused.

mod claims;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::resource_slice_template::DeviceTemplate;
use cloudprovider::InstanceType;
use cloudprovider_aws::names;
use seeded_random::Random;
use serde_json::{Value, json};

use super::DeviceScenario;
use crate::fidelity::{CLASS, Scenario};
use crate::objects::TEST_KEY;
use crate::{ec2, objects};

const ZONE: &str = api::labels::ZONE;
/// Families whose machines have devices, and what is known of each is enough to select by it.
const WITH_DEVICES: [&str; 13] =
    ["g4dn", "g5", "g6", "g6e", "gr6", "p4d", "p5", "p5en", "inf2", "trn1", "trn2", "c5n", "c6in"];
/// Families without.
const PLAIN: [&str; 3] = ["m5", "c6i", "r6i"];
/// Cores and memory that pods ask for, which fit on the least machine of all.
const CPU_MILLI: [u64; 4] = [100, 300, 700, 1200];
const MEMORY_MIB: [u64; 4] = [64, 256, 700, 1500];

impl DeviceScenario {
    /// The scenario of a seed on machines of [`Sold::All`](ec2::Sold::All).
    ///
    /// # Errors
    /// If the catalogue has no types for its node class.
    pub fn on_ec2(seed: u64) -> Result<Self> {
        let mut random = Random::of_case(29, seed);
        let name = format!("ec2-{seed}");
        let (class, zones) = node_class(&name, &mut random);
        let pool = Pool::random(zones, &mut random);
        let types = pool.types(&class).with_context(|| format!("types of {name}"))?;
        let mut writer = Writer { name, random, types, objects: vec![class], shared: None };
        writer.device_classes();
        let node_pool = objects::with(ec2::node_pool(&writer.name, &writer.name), pool.requirements());
        let classes = 1 + writer.random.below(4_u64);
        let mut pods: Vec<Value> = (0..classes).flat_map(|class| writer.class_of_pods(class)).collect();
        if pods.len() >= 10 && writer.random.one_in(2) {
            pods.push(writer.impossible(classes));
        }
        let Writer { name, objects, .. } = writer;
        let base = Scenario {
            seed,
            name,
            node_pools: vec![node_pool],
            agent: None,
            before: Vec::new(),
            resizes: Vec::new(),
            volumes: Vec::new(),
            pods,
        };
        Ok(Self { base, objects, quota: None, crowd: None, annex: None })
    }
}

/// A node class, and the letters of the zones that it has subnets in.
fn node_class(name: &str, random: &mut Random) -> (Value, Vec<char>) {
    let zones: Vec<char> = match random.below(4_u64) {
        0 => vec!['a', 'b'],
        1 => vec!['b', 'c', 'd'],
        _ => ('a'..='f').collect(),
    };
    let subnets: Vec<Value> = zones.iter().map(|letter| json!({ "id": format!("subnet-{letter}") })).collect();
    let mut spec = json!({ "subnetSelectorTerms": subnets });
    if random.one_in(3) {
        let size = format!("{}Gi", 20 + random.below(300_u64));
        spec["blockDeviceMappings"] =
            json!([{ "deviceName": "/dev/xvda", "ebs": { "volumeSize": size, "volumeType": "gp3" } }]);
    }
    if random.one_in(3) {
        spec["instanceStorePolicy"] = json!("RAID0");
    }
    if random.one_in(3) {
        let kubelet = json!({
            "maxPods": 12 + random.below(100_u64), "kubeReserved": { "cpu": format!("{}m", 50 + random.below(200_u64)) },
            "evictionHard": { "memory.available": format!("{}%", 2 + random.below(6_u64)) },
        });
        spec["kubelet"] = kubelet;
    }
    if random.one_in(4) {
        spec["metadataOptions"] = json!({ "httpTokens": "optional" });
    }
    if random.one_in(4) {
        spec["tags"] = json!({ "team": "fidelity" });
    }
    if random.one_in(6) {
        let interface =
            |device: u32, kind: &str| json!({ "networkCardIndex": 0, "deviceIndex": device, "interfaceType": kind });
        spec["networkInterfaces"] = json!([interface(0, "interface"), interface(1, "efa-only")]);
    }
    let mut annotations = json!({});
    match random.below(5_u64) {
        0 => annotations[names::NVIDIA_MIG] = json!("dynamic"),
        1 => annotations[names::NVIDIA_MIG] = json!("dynamic-on-ampere"),
        2 => {
            let shared = *random.pick(&["unlimited", "memory", "4"]);
            annotations[names::NVIDIA_CONSUMABLE_CAPACITY] = json!(shared);
        }
        _ => {}
    }
    let changes = json!({ "metadata": { "annotations": annotations }, "spec": spec });
    (objects::with(ec2::node_class(name), changes), zones)
}

/// What the NodePool allows.
struct Pool {
    families: BTreeSet<&'static str>,
    capacity_types: &'static [&'static str],
    /// Of the node class' zones, those that it allows; all where it says nothing.
    zones: Option<Vec<String>>,
    /// The node class' zones.
    subnets: Vec<String>,
}

impl Pool {
    fn random(letters: Vec<char>, random: &mut Random) -> Self {
        let mut families: BTreeSet<&str> = (0..1 + random.below(4_u64)).map(|_| *random.pick(&WITH_DEVICES)).collect();
        if random.one_in(2) {
            families.insert(*random.pick(&PLAIN));
        }
        let capacity_types: &[&str] = if random.one_in(2) { &["on-demand"] } else { &["spot", "on-demand"] };
        let subnets: Vec<String> = letters.iter().map(|letter| ec2::zone(*letter)).collect();
        let zones = random.one_in(4).then(|| subnets[..subnets.len().min(2)].to_vec());
        Self { families, capacity_types, zones, subnets }
    }

    fn requirements(&self) -> Value {
        let mut requirements = vec![
            json!({ "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": self.families }),
            json!({ "key": api::labels::CAPACITY_TYPE, "operator": "In", "values": self.capacity_types }),
            json!({ "key": api::labels::ARCH, "operator": "In", "values": ["amd64"] }),
        ];
        if let Some(zones) = &self.zones {
            requirements.push(json!({ "key": ZONE, "operator": "In", "values": zones }));
        }
        json!({ "spec": { "template": { "spec": { "requirements": requirements } } } })
    }

    /// The types that can be launched by it.
    fn types(&self, class: &Value) -> Result<Vec<Arc<Target>>> {
        let zones = self.zones.as_ref().unwrap_or(&self.subnets);
        let mut found = Vec::new();
        for instance_type in ec2::types_of(class)? {
            let family = instance_type.certain_label("karpenter.k8s.aws/instance-family");
            if !family.is_some_and(|family| self.families.contains(family)) {
                continue;
            }
            let can = instance_type.offerings.iter().filter(|it| it.launchable() && zones.contains(&it.zone));
            let can = can.filter(|it| self.capacity_types.contains(&it.capacity_type.as_str()));
            let zones: BTreeSet<String> = can.map(|it| it.zone.clone()).collect();
            if !zones.is_empty() {
                found.push(Arc::new(Target { zones: zones.into_iter().collect(), instance_type }));
            }
        }
        Ok(found)
    }
}

/// A type that can be launched, and where.
struct Target {
    instance_type: InstanceType,
    zones: Vec<String>,
}

impl Target {
    fn has_devices(&self) -> bool {
        !self.instance_type.dynamic_resources.is_empty()
    }

    /// What a driver will publish.
    fn devices(&self, driver: &str) -> Vec<&DeviceTemplate> {
        let templates = self.instance_type.dynamic_resources.resource_slice_templates.iter();
        templates.filter(|it| it.spec.driver == driver).flat_map(|it| &it.spec.devices).collect()
    }
}

struct Writer {
    name: String,
    random: Random,
    types: Vec<Arc<Target>>,
    objects: Vec<Value>,
    /// A claim that pods of another class have already.
    shared: Option<String>,
}

impl Writer {
    /// Pods that are alike: with a claim of what some type has, or with none where there is none to have.
    fn class_of_pods(&mut self, class: u64) -> Vec<Value> {
        let mut with_devices = self.types.clone();
        with_devices.retain(|target| target.has_devices());
        let has_claim = !with_devices.is_empty() && !self.random.one_in(6);
        let target = has_claim.then(|| Arc::clone(self.random.pick(&with_devices)));
        let mut count = 1 + self.random.below(6_u64);
        let requests = json!({
            "cpu": format!("{}m", self.random.pick(&CPU_MILLI)), "memory": format!("{}Mi", self.random.pick(&MEMORY_MIB)),
        });
        let labels = json!({ "metadata": { "labels": { CLASS: class.to_string(), "app": format!("class-{class}") } } });
        let mut spec = json!({});
        if let Some(target) = &target {
            let (entry, is_shared) = self.claim(class, target);
            if is_shared {
                count = count.min(2);
            } else if self.random.one_in(4) {
                spec["nodeSelector"] = json!({ TEST_KEY: self.name, ZONE: self.random.pick(&target.zones) });
            }
            spec["resourceClaims"] = json!([entry]);
        }
        let pod = |index| {
            let mut pod = objects::with(
                objects::pod(&self.name, &format!("class-{class}-{index}"), &requests),
                objects::with(labels.clone(), json!({ "spec": spec })),
            );
            if target.is_some() {
                pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "devices" }]);
            }
            pod
        };
        (0..count).map(pod).collect()
    }

    /// A pod that wants more adapters than any machine has.
    fn impossible(&mut self, class: u64) -> Value {
        let requests = ["r", "s"].map(|name| json!({ "name": name, "exactly": self.exactly("efa", 32) }));
        let name = self.template(class, &json!({ "requests": requests }));
        let app = format!("class-{class}");
        let mut pod = objects::pod(&self.name, &format!("{app}-0"), &json!({ "cpu": "100m" }));
        pod["metadata"]["labels"] = json!({ CLASS: class.to_string(), "app": app });
        pod["spec"]["resourceClaims"] = json!([{ "name": "devices", "resourceClaimTemplateName": name }]);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "devices" }]);
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_scenario_and_claims_of_each_class_come() {
        let text = |seed| DeviceScenario::on_ec2(seed).unwrap().manifests().to_string();
        assert_eq!(text(3), text(3));
        let all: String = (0..150).map(text).collect();
        let classes = claims::CLASSES.map(|class| format!("-{}\"", class.name));
        let features = ["pcieRoot", "devicegroup", "driverVersion", "firstAvailable", "allocationMode"];
        let of_node_class = ["RAID0", names::NVIDIA_MIG, names::NVIDIA_CONSUMABLE_CAPACITY, "efa-only", "maxPods"];
        for wanted in classes.iter().map(String::as_str).chain(features).chain(of_node_class) {
            assert!(all.contains(wanted), "{wanted}");
        }
    }
}
