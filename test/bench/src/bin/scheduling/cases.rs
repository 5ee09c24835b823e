//! What is planned: the cases, by name, each from a seed and so the same on every computer.

pub(crate) mod pods;

use bench::catalogues;
use serde_json::{Value, json};

use self::pods::{Mix, pod};
use crate::case::{Case, CaseNode, NAMESPACE, Options, Preferences};
use seeded_random::Random;

/// A case that can be made.
pub(crate) struct Named {
    /// The group, such as `P1`.
    pub group: &'static str,
    /// The group, the kind and the number of pods, such as `P3-ratios-5000`.
    pub name: String,
    /// How many pods wait.
    pub pods: usize,
    make: Box<dyn Fn() -> Case>,
}

impl Named {
    fn new(group: &'static str, kind: &str, pods: usize, make: impl Fn() -> Case + 'static) -> Self {
        let kind = if kind.is_empty() { String::new() } else { format!("-{kind}") };
        Self { group, name: format!("{group}{kind}-{pods}"), pods, make: Box::new(make) }
    }

    /// Makes it.
    pub(crate) fn make(&self) -> Case {
        (self.make)()
    }
}

/// One line for each group, for the head of a table.
pub(crate) const GROUPS: [(&str, &str); 11] = [
    ("P1", "Karpenter's own benchmark: diverse pods, 400 types"),
    ("P2", "identical pods with preferences of which one cannot be met"),
    ("P3", "deployments without rules, 800 real-shaped types: price"),
    ("P4", "the same onto 1,000 nodes that are half full"),
    ("P5", "30 wide deployments, all spread over zones"),
    ("P6", "60 NodePools with taints, weights, limits and minValues"),
    ("P7", "a backlog of identical pods, and diverse ones"),
    ("P8", "P1's pods, those without a spread with a cluster's default ones, which only prefer"),
    ("P9", "pods that have a place nowhere, in twelve of P6's NodePools"),
    ("E1", "P1's pods on all types of EC2 with their devices, every tenth with a claim of a GPU in `claims`"),
    ("X2", "cold start: 5,000 nodes with 150,000 pods"),
];

/// All cases; with `pods` each group once, with so many.
pub(crate) fn all(pods: Option<usize>) -> Vec<Named> {
    let sizes = |usual: &[usize]| pods.map_or(usual.to_vec(), |pods| vec![pods]);
    let mut all = Vec::new();
    for count in sizes(&[100, 500, 1000, 2000, 5000, 10_000, 20_000]) {
        all.push(Named::new("P1", "", count, move || diverse(count)));
    }
    for count in sizes(&[4000]) {
        for (preferences, kind) in [(Preferences::Respect, "respect"), (Preferences::Ignore, "ignore")] {
            all.push(Named::new("P2", kind, count, move || with_preferences(count, preferences)));
        }
    }
    for count in sizes(&[1000, 5000, 20_000]) {
        for (mix, kind) in Mix::ALL {
            all.push(Named::new("P3", kind, count, move || price(mix, count)));
        }
    }
    for count in sizes(&[5000]) {
        all.push(Named::new("P4", "", count, move || half_full(count)));
    }
    for count in sizes(&[1000, 10_000]) {
        all.push(Named::new("P5", "", count, move || wide(count)));
    }
    for count in sizes(&[5000]) {
        all.push(Named::new("P6", "", count, move || many_pools(count)));
    }
    for count in sizes(&[105_000]) {
        all.push(Named::new("P7", "", count, move || backlog(count)));
    }
    for count in sizes(&[1000, 5000]) {
        all.push(Named::new("P8", "", count, move || with_defaults(count)));
    }
    for count in sizes(&[200]) {
        all.push(Named::new("P9", "", count, move || nowhere(count)));
    }
    for count in sizes(&[5000]) {
        all.push(Named::new("E1", "", count, move || on_ec2(count, 0)));
        all.push(Named::new("E1", "claims", count, move || on_ec2(count, 10)));
    }
    for count in sizes(&[1000]) {
        all.push(Named::new("X2", "", count, move || cold_start(count)));
    }
    all
}

/// A NodePool with these requirements and further fields.
pub(crate) fn node_pool(name: &str, requirements: &Value, spec: Value, template: &Value) -> Value {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "uid": name},
        "spec": spec,
    });
    pool["spec"]["template"] = template.clone();
    pool["spec"]["template"]["spec"]["requirements"] = requirements.clone();
    pool["spec"]["template"]["spec"]["nodeClassRef"] =
        json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    pool
}

pub(crate) fn among(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

fn daemon_sets() -> Vec<Value> {
    let daemon_set = |name: &str, cpu: u64, memory: u64| {
        let spec = json!({"tolerations": [{"operator": "Exists"}]});
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system", "uid": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod(json!({"app": name}), cpu, memory, spec)},
        })
    };
    vec![daemon_set("network", 100, 128), daemon_set("logs", 50, 200)]
}

/// Machines and a pool as in Karpenter's own benchmark.
fn on_linear_types(pods: Vec<Value>) -> Case {
    let limits = json!({"limits": {"cpu": "10000000", "memory": "10000000Gi"}});
    Case {
        instance_types: catalogues::linear(),
        node_pools: vec![node_pool("default", &json!([]), limits, &json!({}))],
        pods,
        ..Case::default()
    }
}

fn diverse(count: usize) -> Case {
    on_linear_types(pods::diverse(count, &mut Random::new(42)))
}

/// The pods of P1 on all types of EC2; of so many each last one claims a GPU, none where that is 0.
fn on_ec2(count: usize, claiming: usize) -> Case {
    const GPU: &str = "gpu.nvidia.com";
    let requirements = json!([among("kubernetes.io/os", &["linux"])]);
    let mut pods = pods::diverse(count, &mut Random::new(42));
    let mut device_objects = Vec::new();
    if claiming > 0 {
        let expression = format!("device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'");
        let request = json!({"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 1}});
        device_objects = vec![
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": GPU},
                "spec": {"selectors": [{"cel": {"expression": expression}}]},
            }),
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": "gpu", "namespace": NAMESPACE},
                "spec": {"spec": {"devices": {"requests": [request]}}},
            }),
        ];
        for pod in pods.iter_mut().skip(claiming - 1).step_by(claiming) {
            pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "gpu"}]);
            pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
        }
    }
    Case {
        instance_types: catalogues::ec2(),
        node_pools: vec![node_pool("default", &requirements, json!({}), &json!({}))],
        device_objects,
        pods,
        ..Case::default()
    }
}

fn with_defaults(count: usize) -> Case {
    on_linear_types(pods::diverse_with_defaults(count, &mut Random::new(42)))
}

fn with_preferences(count: usize, preferences: Preferences) -> Case {
    Case { options: Options { preferences }, ..on_linear_types(pods::with_preferences(count)) }
}

/// Real-shaped types on demand, one pool, two DaemonSets.
fn on_demand(pods: Vec<Value>) -> Case {
    let requirements = json!([among("karpenter.sh/capacity-type", &["on-demand"])]);
    Case {
        instance_types: catalogues::real_shaped(),
        node_pools: vec![node_pool("default", &requirements, json!({}), &json!({}))],
        daemon_sets: daemon_sets(),
        pods,
        ..Case::default()
    }
}

fn price(mix: Mix, count: usize) -> Case {
    on_demand(pods::deployments(mix, count, &mut Random::new(3)))
}

/// A node with that much to give, of which a share is used by pods of these templates.
fn node(index: usize, size: &str, cpu_milli: u64, memory_mib: u64, pods: u64) -> Value {
    let name = format!("node-{index:05}");
    let amounts =
        json!({"cpu": format!("{cpu_milli}m"), "memory": format!("{memory_mib}Mi"), "pods": pods.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {
            pods::HOSTNAME: name, pods::ZONE: catalogues::ZONES[index % catalogues::ZONES.len()],
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": size, "karpenter.sh/capacity-type": "on-demand",
        }},
        "spec": {"providerID": format!("bench:///{name}")},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn half_full(count: usize) -> Case {
    const NODES: usize = 1000;
    let mut random = Random::new(4);
    let sizes = [("m6i.xlarge", 4, 16), ("m6i.2xlarge", 8, 32), ("c6i.2xlarge", 8, 16), ("r6i.xlarge", 4, 32)];
    let templates = pods::deployments(Mix::Balanced, 600, &mut random);
    let mut case = on_demand(pods::deployments(Mix::Ratios, count, &mut random));
    for index in 0..NODES {
        let (size, cpus, gib) = *random.pick(&sizes);
        let (cpu, memory) = (cpus * 1000 - 100, gib * 947 - 900);
        let mut running = Vec::new();
        let (mut used_cpu, mut used_memory) = (0, 0);
        // Until half of either is used.
        while used_cpu < cpu / 2 && used_memory < memory / 2 && running.len() < 40 {
            let template = random.pick(&templates);
            let (of_cpu, of_memory) = requests(template);
            if used_cpu + of_cpu > cpu * 3 / 4 || used_memory + of_memory > memory * 3 / 4 {
                continue;
            }
            (used_cpu, used_memory) = (used_cpu + of_cpu, used_memory + of_memory);
            running.push(template.clone());
        }
        case.nodes.push(CaseNode { node: node(index, size, cpu, memory, 58), pods: running, ..CaseNode::default() });
    }
    case
}

/// Milli-CPU and MiB, as [`pod`] wrote them.
fn requests(template: &Value) -> (u64, u64) {
    let requests = &template["spec"]["containers"][0]["resources"]["requests"];
    let amount = |name: &str, unit: &str| {
        requests[name].as_str().and_then(|text| text.strip_suffix(unit)?.parse().ok()).unwrap_or(0)
    };
    (amount("cpu", "m"), amount("memory", "Mi"))
}

fn wide(count: usize) -> Case {
    on_demand(pods::wide(count, &mut Random::new(5)))
}

/// Six teams with ten pools each, of falling weight; pods of a team tolerate its taint, and half of them ask for a pool
/// label. Every second pool wants ten different types, every third has a limit.
fn many_pools(count: usize) -> Case {
    const TEAMS: usize = 6;
    const POOLS: usize = 60;
    let mut random = Random::new(6);
    let mut case = on_demand(Vec::new());
    case.node_pools = (0..POOLS)
        .map(|index| {
            let (team, tier) = (format!("team-{}", index % TEAMS), index / TEAMS);
            let mut requirements = vec![
                among("karpenter.sh/capacity-type", if tier % 2 == 0 { &["on-demand"] } else { &["spot", "on-demand"] }),
                among("kubernetes.io/arch", if tier % 3 == 0 { &["amd64"] } else { &["amd64", "arm64"] }),
            ];
            if tier % 2 == 1 {
                let ten = json!({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 10});
                requirements.push(ten);
            }
            let mut spec = json!({"weight": 100 - tier});
            if tier % 3 == 2 {
                spec["limits"] = json!({"cpu": "400"});
            }
            let taint = json!({"key": "dedicated", "value": team, "effect": "NoSchedule"});
            let template = json!({"metadata": {"labels": {"team": team, "tier": format!("tier-{tier}")}}, "spec": {"taints": [taint]}});
            node_pool(&format!("pool-{index:02}"), &json!(requirements), spec, &template)
        })
        .collect();
    let plain = pods::deployments(Mix::Ratios, count, &mut random);
    let (mut team, mut tier, mut last) = (String::new(), 0, Value::Null);
    case.pods = plain
        .into_iter()
        .map(|mut pod| {
            let app = pod["metadata"]["labels"]["app"].clone();
            if app != last {
                team = format!("team-{}", random.below(TEAMS as u64));
                tier = random.below(20);
                last = app;
            }
            pod["spec"]["tolerations"] = json!([{"key": "dedicated", "operator": "Equal", "value": team}]);
            pod["spec"]["nodeSelector"] =
                if tier < 10 { json!({"team": team, "tier": format!("tier-{tier}")}) } else { json!({"team": team}) };
            pod
        })
        .collect();
    case
}

/// Pods of P6, each deployment with something that no machine has: a zone, so much memory, a toleration, a label.
fn nowhere(count: usize) -> Case {
    const POOLS: usize = 12;
    let mut case = many_pools(count);
    case.node_pools.truncate(POOLS);
    let (mut apps, mut last) = (0, Value::Null);
    for pod in &mut case.pods {
        let app = pod["metadata"]["labels"]["app"].clone();
        if app != last {
            apps += 1;
            last = app;
        }
        match apps % 4 {
            0 => pod["spec"]["nodeSelector"] = json!({pods::ZONE: "elsewhere"}),
            1 => pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("100Ti"),
            2 => pod["spec"]["tolerations"] = json!([]),
            _ => pod["spec"]["nodeSelector"]["tier"] = json!("none"),
        }
    }
    case
}

fn backlog(count: usize) -> Case {
    let of_diverse = count / 21;
    let mut pods = pods::diverse(of_diverse, &mut Random::new(7));
    pods.extend(std::iter::repeat_n(pod(json!({"app": "batch"}), 500, 1024, json!({})), count - of_diverse));
    on_linear_types(pods)
}

/// Waiting pods of wide deployments that run already, and of others.
fn cold_start(count: usize) -> Case {
    const NODES: usize = 5000;
    const PODS_ON_NODE: usize = 30;
    let mut random = Random::new(8);
    let mut running = pods::deployments(Mix::LogNormal, 9000, &mut random);
    running.retain(|template| requests(template).0 <= 1500 && requests(template).1 <= 3000);
    let wide = pods::wide(300, &mut random);
    let mut case = on_demand(pods::deployments(Mix::Ratios, count - count / 2, &mut random));
    case.pods.extend(pods::wide(count / 2, &mut random));
    for index in 0..NODES {
        let of_node = (0..PODS_ON_NODE).map(|pod| match pod {
            0 => wide[(60 + index % 240) % wide.len()].clone(),
            _ => random.pick(&running).clone(),
        });
        let of_node: Vec<Value> = of_node.collect();
        // Room for little more.
        let used = of_node.iter().map(requests).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let spare = random.within(&(150..901));
        let node = node(index, "m6i.8xlarge", used.0 + 150 + spare, used.1 + 328 + 2 * spare, 110);
        case.nodes.push(CaseNode { node, pods: of_node, ..CaseNode::default() });
    }
    case
}
