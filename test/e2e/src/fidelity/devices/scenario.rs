//! Random overlays and claims. A seed gives the same scenario everywhere.
//!
//! Pods claim what the machines of some overlay offer (`offered`), and no more of what a zone has than it has. Of some
//! scenarios one pod is made impossible on purpose: it must be refused.
//!
//! What the scheduler itself does wrong is left out: of pods of one PodGroup that come at once and have claims of their
//! own beside the group's, 1.36 writes the devices of one claim into another.

mod offered;
mod pods;

use seeded_random::Random;
use serde_json::{Value, json};

use self::offered::{Gpus, OfZones, Offered};
use super::annex::Annex;
use super::crowd::Crowd;
use super::quota::Quota;
use crate::fidelity::Scenario;
use crate::{Gates, Kubernetes, Platform, objects};

const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: [&str; 3] = ["test-zone-a", "test-zone-b", "test-zone-c"];
const ROOT: &str = "resource.kubernetes.io/pcieRoot";
const CPU: &str = "karpenter.kwok.sh/instance-cpu";

/// Pods with claims, and the overlays of the machines that they need.
#[derive(Debug)]
pub struct DeviceScenario {
    /// The pods and their NodePool.
    pub base: Scenario,
    /// Overlays, DeviceClasses, rules, claims and templates of claims.
    pub(super) objects: Vec<Value>,
    pub(super) quota: Option<Quota>,
    pub(super) crowd: Option<Crowd>,
    pub(super) annex: Option<Annex>,
}

/// One pod in so many may be refused on purpose.
const ONE_REFUSED_IN: usize = 5;
/// What happens around the pods is drawn apart from them.
const AROUND: u64 = 0x5eed_a40d_a40d_5eed;

/// A kind of devices, each published by a driver of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Whole devices of a machine, of one model or several.
    Gpu,
    /// Cards that share PCIe roots with the GPUs.
    Nic,
    /// Partitions that draw from a board's counters.
    Partition,
    /// Cards that many use at a time, by bandwidth.
    Shared,
    /// Links that all machines of a zone can use.
    Link,
    /// Devices with lists, and that cost memory of the machine.
    Advanced,
    /// Devices that their driver makes ready once they are given, of a machine or of a zone.
    Attached,
}

impl Family {
    /// Whether machines can use each other's.
    fn is_of_zone(self) -> bool {
        matches!(self, Self::Link | Self::Attached)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Nic => "nic",
            Self::Partition => "part",
            Self::Shared => "shared",
            Self::Link => "link",
            Self::Advanced => "adv",
            Self::Attached => "att",
        }
    }
}

impl DeviceScenario {
    /// The scenario of a seed, with features that a cluster of this release with these gates has.
    #[must_use]
    pub fn random(seed: u64, platform: Platform) -> Self {
        let gates = platform.gates;
        let mut random = Random::new(seed);
        let name = format!("dra-{seed}");
        let mut families = vec![*random.pick(&[Family::Gpu, Family::Gpu, Family::Partition, Family::Link])];
        for other in [Family::Nic, Family::Shared, Family::Link, Family::Partition, Family::Gpu] {
            if random.one_in(3) && !families.contains(&other) {
                families.push(other);
            }
        }
        if matches!(gates, Gates::All) && random.one_in(2) {
            families.push(Family::Advanced);
        }
        if random.one_in(4) {
            families.push(Family::Attached);
        }
        // A zone has one pool, so all machines describe it alike.
        let links = (*random.pick(&["Machine", "Domain"]), 1 + random.below(4));
        let attached = attached(&mut random);
        let mut scenario = Writer {
            name,
            platform,
            families,
            links,
            attached,
            random,
            objects: Vec::new(),
            shared: None,
            offered: Vec::new(),
            of_zones: OfZones::default(),
            pool_zones: None,
            tainted: None,
            held_by_agent: None,
        };
        scenario.overlays();
        scenario.device_classes();
        if matches!(gates, Gates::All) && scenario.random.one_in(4) {
            scenario.taint_rule();
        }
        let node_pool = scenario.node_pool();
        scenario.count_devices_of_zones();
        let agent = scenario.agent();
        let classes = 1 + scenario.random.below(4);
        let mut pods: Vec<Value> = (0..classes).flat_map(|class| scenario.class_of_pods(class)).collect();
        let is_one_impossible = pods.len() >= 10 && scenario.random.one_in(2);
        if is_one_impossible {
            pods.push(scenario.impossible(classes));
        }
        let Writer { name, mut objects, .. } = scenario;
        let mut random = Random::new(seed ^ AROUND);
        // Pods of a group share a claim, daemons make theirs when nodes come, and the scheduler makes those for
        // extended resources when it binds: who is kept out then is another question.
        let is_plain =
            |pod: &Value| pod["spec"]["schedulingGroup"].is_null() && !pod["spec"]["resourceClaims"].is_null();
        let may_keep_out = agent.is_none() && pods.iter().all(is_plain);
        let mut refused = if is_one_impossible { 0 } else { pods.len() / ONE_REFUSED_IN };
        let crowd = Crowd::random(&name, refused, &mut random);
        refused -= crowd.as_ref().map_or(0, Crowd::refused);
        objects.extend(crowd.iter().flat_map(Crowd::objects));
        pods.extend(crowd.iter().flat_map(Crowd::pods));
        let quota = Quota::random(&name, (&objects, &pods), if may_keep_out { refused } else { 0 }, &mut random);
        // The pods that wait for devices of a node have claims too, which such a quota could keep from being made.
        let is_short = quota.as_ref().is_some_and(|quota| quota.kept_out > 0);
        let annex = Annex::random(&name, &mut random).filter(|_| !is_short);
        let (resizes, volumes) = (Vec::new(), Vec::new());
        let base =
            Scenario { seed, name, node_pools: vec![node_pool], agent, before: Vec::new(), resizes, volumes, pods };
        Self { base, objects, quota, crowd, annex }
    }

    /// All objects of it, as one List: what `dovetail plan` reads.
    #[must_use]
    pub fn manifests(&self) -> Value {
        let Scenario { node_pools, agent, pods, .. } = &self.base;
        let around: Vec<Value> = self.annex.iter().flat_map(Annex::manifests).collect();
        let quota = self.quota.as_ref().map(|quota| &quota.object);
        let own = node_pools.iter().chain(&self.objects).chain(agent).chain(pods);
        let items: Vec<&Value> = own.chain(quota).chain(&around).collect();
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }
}

/// Devices with conditions: the machine's, or its zone's, and then perhaps tied to the machine that gets them.
fn attached(random: &mut Random) -> Value {
    let device = json!({ "name": "att-{index}", "replicas": 1 + random.below(3),
        "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"] });
    match *random.pick(&["", "Machine", "Domain"]) {
        "" => json!({ "devices": [device] }),
        scope => {
            let tied = objects::with(device, json!({ "bindsToNode": random.one_in(2) }));
            json!({ "scope": scope, "nodeSelector": { "nodeSelectorTerms": [{ "matchLabelKeys": [ZONE] }] },
                "devices": [tied] })
        }
    }
}

struct Writer {
    name: String,
    platform: Platform,
    families: Vec<Family>,
    /// Scope and number of links.
    links: (&'static str, u64),
    attached: Value,
    random: Random,
    objects: Vec<Value>,
    /// A claim that pods of another class have already, and their zone.
    shared: Option<(String, Option<&'static str>)>,
    /// By overlay.
    offered: Vec<Offered>,
    of_zones: OfZones,
    /// Those of the NodePool, if it names some.
    pool_zones: Option<Vec<&'static str>>,
    /// The family whose devices are tainted from outside.
    tainted: Option<Family>,
    /// The family of which the DaemonSet's pods take a device each.
    held_by_agent: Option<Family>,
}

impl Writer {
    fn driver(&self, family: Family) -> String {
        format!("{}.{}.test", family.name(), self.name)
    }

    fn has(&self, family: Family) -> bool {
        self.families.contains(&family)
    }

    /// One overlay, or one for smaller and one for larger machines.
    fn overlays(&mut self) {
        let sizes: Vec<Vec<&str>> = match self.random.below(3) {
            0 => vec![vec!["4", "8", "16"]],
            1 => vec![vec!["8"], vec!["16"]],
            _ => vec![vec!["4", "8"], vec!["16"]],
        };
        for (index, cpus) in sizes.into_iter().enumerate() {
            self.offered.push(Offered::default());
            let resources = self.dynamic_resources();
            self.objects.push(json!({
                "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
                "metadata": { "name": format!("{}-{index}", self.name) },
                "spec": {
                    "requirements": [
                        { "key": "karpenter.sh/nodepool", "operator": "In", "values": [self.name] },
                        { "key": CPU, "operator": "In", "values": cpus },
                    ],
                    "weight": 1 + self.random.below(10),
                    "dynamicResources": resources,
                },
            }));
        }
    }

    fn dynamic_resources(&mut self) -> Value {
        let count = 1 + self.random.below(4);
        let mut templates = Vec::new();
        for family in self.families.clone() {
            let spec = objects::with(json!({ "driver": self.driver(family) }), self.template(family, count));
            templates.push(json!({ "metadata": { "name": family.name() }, "spec": spec }));
        }
        let mut bindings = Vec::new();
        if self.has(Family::Gpu) && self.has(Family::Nic) {
            let selector = |family: Family| json!({ "resourceSliceTemplate": family.name(), "device": format!("{}-{{index}}", family.name()) });
            bindings.push(json!({ "attributes": [ROOT], "distinctGroups": true,
                "deviceSelectors": [selector(Family::Gpu), selector(Family::Nic)] }));
        }
        json!({ "resourceSliceTemplates": templates, "attributeBindings": bindings })
    }

    fn template(&mut self, family: Family, count: u64) -> Value {
        let random = &mut self.random;
        let mut unused = Offered::default();
        let offered = self.offered.last_mut().unwrap_or(&mut unused);
        let model = *random.pick(&["x", "y"]);
        match family {
            Family::Gpu => {
                let mut gpu = json!({ "name": "gpu-{index}", "replicas": count,
                    "attributes": { "model": { "string": model } }, "capacity": { "memory": { "value": "40Gi" } } });
                offered.gpus = Gpus { model, count, is_tainted: random.one_in(6) };
                if offered.gpus.is_tainted {
                    gpu["taints"] = json!([{ "key": "example.com/old", "value": "yes", "effect": "NoSchedule" }]);
                }
                let mut devices = vec![gpu];
                if random.one_in(3) {
                    let other = if model == "x" { "y" } else { "x" };
                    let count = 1 + random.below(2);
                    offered.other_gpus = Gpus { model: other, count, is_tainted: false };
                    devices.push(json!({ "name": "other-{index}", "replicas": count,
                        "attributes": { "model": { "string": other } }, "capacity": { "memory": { "value": "80Gi" } } }));
                }
                json!({ "devices": devices })
            }
            Family::Nic => {
                offered.nics = 1 + random.below(count);
                json!({ "devices": [{ "name": "nic-{index}", "replicas": offered.nics }] })
            }
            Family::Partition => {
                let draws = |slices: u64| json!([{ "counterSet": "board-{index}", "counters": { "slices": { "value": slices.to_string() } } }]);
                let boards = 1 + random.below(2);
                offered.boards = boards;
                let part = |name: &str, slices: u64| {
                    json!({ "name": format!("{name}-{{index}}"), "replicas": boards, "consumesCounters": draws(slices),
                        "attributes": { "profile": { "string": name } } })
                };
                let mut devices = vec![part("whole", 4), part("half-a", 2), part("half-b", 2)];
                offered.has_quarters = random.one_in(2);
                if offered.has_quarters {
                    devices.push(part("quarter", 1));
                }
                json!({ "devices": devices, "sharedCounters": [
                    { "name": "board-{index}", "replicas": boards, "counters": { "slices": { "value": "4" } } }] })
            }
            Family::Shared => {
                let policy = json!({ "default": "1G", "validRange": { "min": "1G", "max": "8G", "step": "1G" } });
                offered.shared = 1 + random.below(2);
                json!({ "devices": [{ "name": "shared-{index}", "replicas": offered.shared,
                    "allowMultipleAllocations": true, "attributes": { "card": { "int": "{index}" } },
                    "capacity": { "bandwidth": { "value": "10G", "requestPolicy": policy } } }] })
            }
            Family::Link => {
                let (scope, count) = self.links;
                json!({ "scope": scope, "nodeSelector": { "nodeSelectorTerms": [{ "matchLabelKeys": [ZONE] }] },
                    "devices": [{ "name": "link-{index}", "replicas": count }] })
            }
            Family::Advanced => {
                offered.advanced = 1 + random.below(3);
                let device = json!({ "name": "adv-{index}", "replicas": offered.advanced,
                    "attributes": { "numa": { "ints": [0, 1] } } });
                let costs = match self.platform.kubernetes {
                    Kubernetes::V1_36 => json!({ "nodeAllocatableResourceMappings": {
                        "memory": { "allocationMultiplier": "1Gi" } } }),
                    Kubernetes::V1_37 => json!({ "nodeAllocatableResources": {
                        "memory": { "mapping": { "deviceMultiplier": "1Gi" } },
                        "cpu": { "overhead": { "perPod": "100m", "perContainer": "50m" } } } }),
                };
                json!({ "devices": [objects::with(device, costs)] })
            }
            Family::Attached => self.attached.clone(),
        }
    }

    /// A class for each driver; GPUs may be had as an extended resource too.
    fn device_classes(&mut self) {
        for family in self.families.clone() {
            let expression = format!("device.driver == '{}'", self.driver(family));
            let mut spec = json!({ "selectors": [{ "cel": { "expression": expression } }] });
            if family == Family::Gpu {
                spec["extendedResourceName"] = json!(self.named_resource());
            }
            let name = self.class(family);
            self.objects.push(json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
                "metadata": { "name": name }, "spec": spec }));
        }
    }

    fn class(&self, family: Family) -> String {
        format!("{}-{}", self.name, family.name())
    }

    /// What the class of GPUs calls them.
    fn named_resource(&self) -> String {
        format!("{}.test/gpu", self.name)
    }

    /// Devices of one driver are tainted from outside.
    fn taint_rule(&mut self) {
        let family = *self.random.pick(&self.families.clone());
        let effect = *self.random.pick(&["NoSchedule", "None"]);
        self.tainted = (effect == "NoSchedule").then_some(family);
        let version = format!("resource.k8s.io/{}", self.platform.kubernetes.taint_rule_version());
        self.objects.push(json!({
            "apiVersion": version, "kind": "DeviceTaintRule", "metadata": { "name": self.name },
            "spec": { "deviceSelector": { "driver": self.driver(family) },
                "taint": { "key": "example.com/serviced", "value": "yes", "effect": effect } },
        }));
    }

    /// Pools of zones have as many devices in all as each machine says.
    fn count_devices_of_zones(&mut self) {
        let zones = self.zones();
        if self.has(Family::Link) && self.links.0 == "Domain" {
            self.of_zones.add(Family::Link, &zones, self.links.1);
        }
        if self.has(Family::Attached) && self.attached["scope"] == "Domain" {
            let each = self.attached["devices"][0]["replicas"].as_u64().unwrap_or(0);
            self.of_zones.add(Family::Attached, &zones, each);
        }
    }

    fn node_pool(&mut self) -> Value {
        let mut requirements = vec![
            json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }),
            json!({ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }),
            json!({ "key": CPU, "operator": "In", "values": ["2", "4", "8", "16"] }),
        ];
        if self.random.one_in(3) {
            let some = &ZONES[..*self.random.pick(&[1, 2])];
            self.pool_zones = Some(some.to_vec());
            requirements.push(json!({ "key": ZONE, "operator": "In", "values": some }));
        }
        if self.random.one_in(3) {
            requirements
                .push(json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }));
        }
        objects::with(
            objects::node_pool(&self.name),
            json!({ "spec": { "template": { "spec": { "requirements": requirements } } } }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_scenario_and_each_family_comes() {
        let text =
            |seed| format!("{:?}", DeviceScenario::random(seed, Platform { gates: Gates::All, ..Platform::default() }));
        assert_eq!(text(7), text(7));
        let all: String = (0..40).map(text).collect();
        for family in [
            "gpu-{index}",
            "nic-{index}",
            "whole-{index}",
            "shared-{index}",
            "link-{index}",
            "adv-{index}",
            "att-{index}",
        ] {
            assert!(all.contains(family), "{family}");
        }
        let around = |seed| {
            let DeviceScenario { quota, crowd, annex, .. } = DeviceScenario::random(seed, Platform::default());
            format!("{quota:?} {crowd:?} {annex:?}")
        };
        let around: String = (0..200).map(around).collect();
        for what in ["kept_out: 1", "kept_out: 0", "consumers: 254", "consumers: 256", "Gone", "HalfPublished"] {
            assert!(around.contains(what), "{what}");
        }
        for feature in [
            "PodGroup",
            "firstAvailable",
            "resourceClaimName",
            "deviceclass.resource.kubernetes.io",
            "Domain",
            "DaemonSet",
        ] {
            assert!(all.contains(feature), "{feature}");
        }
        let alternatives = |seed| {
            let text = format!("{}", DeviceScenario::random(seed, Platform::default()).manifests());
            let lists = text
                .match_indices("\"firstAvailable\":[")
                .map(|(at, _)| text[at..].split(']').next().map(str::to_owned));
            lists.flatten().any(|list| list.contains("-link\"") || list.contains("-att\""))
        };
        assert!((0..100).any(alternatives), "alternatives that zones share");
    }
}
