//! Random scenarios: classes of pods with all kinds of rules, the NodePools that they use, perhaps a DaemonSet, perhaps
//! machines that are there already. A seed gives the same scenario everywhere.

use serde_json::{Map, Value, json};

use super::{BEFORE, CLASS};
use crate::objects;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
/// By name. Pods without any have the lowest, for only those may preempt, and it would move pods that are bound.
const PRIORITIES: [(&str, i32); 2] = [("fidelity-low", 10), ("fidelity-high", 1000)];

/// What pods ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// Labels of nodes.
    Nodes,
    /// That, and rules that couple pods.
    All,
}

/// Some classes of pods, the NodePools that they use, and what is there before.
#[derive(Debug)]
pub struct Scenario {
    /// What it was made from.
    pub seed: u64,
    /// Of its namespace and NodePools.
    pub name: String,
    pub(super) node_pools: Vec<Value>,
    pub(super) agent: Option<Value>,
    /// Pods whose machines are there before.
    pub(super) before: Vec<Value>,
    pub(super) pods: Vec<Value>,
}

/// The PriorityClasses that pods of scenarios name.
#[must_use]
pub fn priority_classes() -> Vec<Value> {
    let class = |(name, value): &(&str, i32)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": { "name": name },
            "value": value,
            "preemptionPolicy": "Never",
        })
    };
    PRIORITIES.iter().map(class).collect()
}

impl Scenario {
    /// The scenario of a seed, of all rules.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        Self::with(seed, Rules::All)
    }

    /// The same without rules between pods, priorities, and machines that are there before.
    #[must_use]
    pub fn plain(seed: u64) -> Self {
        Self::with(seed, Rules::Nodes)
    }

    fn with(seed: u64, rules: Rules) -> Self {
        let mut random = Random(seed);
        let name = format!("random-{seed}");
        let node_pools = node_pools(&name, &mut random);
        let agent = random.chance(2).then(|| agent(&name, &mut random));
        let before = if random.chance(3) && rules == Rules::All { before(&name, &mut random) } else { Vec::new() };
        let classes = 2 + random.below(5);
        let pods = (0..classes).flat_map(|class| class_of_pods(&name, class, rules, &mut random)).collect();
        Self { seed, name, node_pools, agent, before, pods }
    }

    /// How many pods are judged.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.pods.len()
    }
}

fn node_pools(name: &str, random: &mut Random) -> Vec<Value> {
    let mut requirements = vec![
        json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }),
        json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": [random.choose(&["9", "17", "65"])] }),
    ];
    if random.chance(3) {
        let family = random.choose(&["c", "s", "m"]);
        requirements.push(json!({ "key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [family] }));
    }
    if random.chance(3) {
        requirements.push(json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }));
    }
    let pool = objects::with(
        objects::node_pool(name),
        json!({ "spec": { "template": { "spec": { "requirements": requirements } } } }),
    );
    let mut pools = vec![pool];
    if random.chance(4) {
        // A second pool in fewer zones, preferred to the first or not.
        let mut fewer = requirements;
        fewer.push(json!({ "key": ZONE, "operator": "In", "values": [ZONES[0], ZONES[1]] }));
        let changes = json!({
            "metadata": { "name": format!("{name}-b") },
            "spec": { "weight": 1 + random.below(50), "template": { "spec": { "requirements": fewer } } },
        });
        pools.push(objects::with(objects::node_pool(name), changes));
    }
    pools
}

fn agent(name: &str, random: &mut Random) -> Value {
    let requests = json!({ "cpu": format!("{}m", 50 + random.below(200)), "memory": "64Mi" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "agent", "namespace": name },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": { "metadata": { "labels": { "app": "agent" } }, "spec": objects::pod_spec(name, &requests) },
        },
    })
}

/// Pods that get machines first; every other one goes again and leaves room.
fn before(name: &str, random: &mut Random) -> Vec<Value> {
    let requests = requests(random);
    let count = 4 + random.below(9);
    (0..count)
        .map(|index| {
            let app = format!("{BEFORE}{}", index % 3);
            let labels = json!({ "metadata": { "labels": { "app": app } } });
            objects::with(objects::pod(name, &format!("before-{index}"), &requests), labels)
        })
        .collect()
}

fn requests(random: &mut Random) -> Value {
    json!({
        "cpu": format!("{}m", random.choose(&[100, 250, 400, 700, 1000, 1500, 3000])),
        "memory": format!("{}Mi", random.choose(&[64, 200, 512, 1024, 3000])),
    })
}

/// Pods that are alike: the same requests and the same rules.
fn class_of_pods(name: &str, class: u64, rules: Rules, random: &mut Random) -> Vec<Value> {
    let requests = requests(random);
    let app = format!("class-{class}");
    let mut spec = Map::new();
    let mut selector = Map::new();
    if random.chance(4) {
        selector.insert(ZONE.to_owned(), json!(random.choose(&ZONES)));
    }
    if random.chance(5) {
        selector.insert("kubernetes.io/arch".to_owned(), json!(random.choose(&["amd64", "arm64"])));
    }
    spec.insert("nodeSelector".to_owned(), selector.into());
    if random.chance(3) && rules == Rules::All {
        let (priority, _) = PRIORITIES[usize::from(random.chance(2))];
        spec.insert("priorityClassName".to_owned(), json!(priority));
    }
    if random.chance(3) && rules == Rules::All {
        spec.insert("topologySpreadConstraints".to_owned(), spread(&app, random));
    }
    let affinity = affinity(&app, class, random);
    if !affinity.is_empty() && rules == Rules::All {
        spec.insert("affinity".to_owned(), affinity.into());
    }
    let mut containers =
        json!([{ "name": "main", "image": "example.org/main", "resources": { "requests": requests } }]);
    if random.chance(8) && rules == Rules::All {
        containers[0]["ports"] = json!([{ "containerPort": 80, "hostPort": 8000 + random.below(2) }]);
    }
    if random.chance(6) {
        let init = json!({ "cpu": "1200m", "memory": "100Mi" });
        let always = random.chance(2).then_some("Always");
        let mut sidecar = json!({ "name": "init", "image": "example.org/init", "resources": { "requests": init } });
        if let Some(always) = always {
            sidecar["restartPolicy"] = json!(always);
            sidecar["resources"]["requests"]["cpu"] = json!("50m");
        }
        spec.insert("initContainers".to_owned(), json!([sidecar]));
    }
    spec.insert("containers".to_owned(), containers);
    let count = 1 + random.below(12);
    (0..count)
        .map(|index| {
            let changes = json!({ "metadata": { "labels": { CLASS: class.to_string(), "app": app } }, "spec": spec });
            objects::with(objects::pod(name, &format!("class-{class}-{index}"), &json!({})), changes)
        })
        .collect()
}

fn spread(app: &str, random: &mut Random) -> Value {
    let mut constraint = json!({
        "topologyKey": random.choose(&[ZONE, ZONE, HOST]),
        "maxSkew": 1 + random.below(2),
        "whenUnsatisfiable": if random.chance(4) { "ScheduleAnyway" } else { "DoNotSchedule" },
        "labelSelector": { "matchLabels": { "app": app } },
    });
    if random.chance(5) && constraint["whenUnsatisfiable"] == "DoNotSchedule" {
        constraint["minDomains"] = json!(2);
    }
    if random.chance(5) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    json!([constraint])
}

fn affinity(app: &str, class: u64, random: &mut Random) -> Map<String, Value> {
    let mut affinity = Map::new();
    let other = format!("class-{}", random.below(class.max(1)));
    let term = |app: &str, key: &str| json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } });
    let required = |term: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
    let preferred = |weight: u64, term: Value| json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": weight, "podAffinityTerm": term }] });
    match random.below(12) {
        0 => drop(affinity.insert("podAntiAffinity".to_owned(), required(term(app, HOST)))),
        1 => drop(affinity.insert("podAntiAffinity".to_owned(), required(term(&other, HOST)))),
        2 => drop(affinity.insert("podAffinity".to_owned(), required(term(app, ZONE)))),
        3 => drop(affinity.insert("podAffinity".to_owned(), required(term(&other, ZONE)))),
        4 => drop(affinity.insert("podAntiAffinity".to_owned(), preferred(50, term(app, HOST)))),
        5 => drop(affinity.insert("podAffinity".to_owned(), preferred(20, term(&other, ZONE)))),
        _ => {}
    }
    match random.below(8) {
        0 => {
            let zones = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "NotIn", "values": [random.choose(&ZONES)] }] }]);
            let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": zones } });
            affinity.insert("nodeAffinity".to_owned(), required);
        }
        1 => {
            let in_zone =
                json!({ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [random.choose(&ZONES)] }] });
            let preferred = json!([{ "weight": 1 + random.below(100), "preference": in_zone }]);
            let preferred = json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred });
            affinity.insert("nodeAffinity".to_owned(), preferred);
        }
        _ => {}
    }
    affinity
}

/// SplitMix64: the same numbers from the same seed everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in so many times.
    pub(super) fn chance(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(super) fn choose<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap_or(0)]
    }
}
