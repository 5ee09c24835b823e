//! Templates of pods.

use serde_json::{Value, json};

use seeded_random::Random;

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// A pod with these labels and requests, and further fields of its spec.
pub(crate) fn pod(labels: Value, cpu_milli: u64, memory_mib: u64, spec: Value) -> Value {
    let requests = json!({"cpu": format!("{cpu_milli}m"), "memory": format!("{memory_mib}Mi")});
    let mut template = json!({"metadata": {"labels": labels}, "spec": spec});
    template["spec"]["containers"] = json!([{"name": "app", "image": "app", "resources": {"requests": requests}}]);
    template
}

/// Karpenter's own benchmark: five equal parts, the rest like the first.
pub(crate) fn diverse(count: usize, random: &mut Random) -> Vec<Value> {
    let part = count / 5;
    let mut pods = Vec::with_capacity(count);
    pods.extend((0..count - 4 * part).map(|_| {
        let labels = json!({"my-label": label(random)});
        sized(labels, json!({}), random)
    }));
    for key in [ZONE, HOSTNAME] {
        pods.extend((0..part).map(|_| {
            let labels = json!({"my-label": label(random)});
            let counted = json!({"matchLabels": {"my-label": label(random)}});
            let spread = json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": counted}]);
            sized(labels, json!({"topologySpreadConstraints": spread}), random)
        }));
    }
    pods.extend((0..part).map(|_| {
        let labels = json!({"my-affininity": label(random)});
        let term = json!({"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}});
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        sized(labels, json!({"affinity": affinity}), random)
    }));
    pods.extend((0..part).map(|_| sized(json!({"app": "nginx"}), json!({"affinity": apart("app", "nginx")}), random)));
    pods
}

/// Diverse pods in a cluster with kube-scheduler's built-in defaults and a Service for each label: pods without a
/// spread of their own would rather be spread over hosts and zones.
pub(crate) fn diverse_with_defaults(count: usize, random: &mut Random) -> Vec<Value> {
    let mut pods = diverse(count, random);
    for pod in pods.iter_mut().filter(|pod| pod["spec"]["topologySpreadConstraints"].is_null()) {
        let selector = json!({"matchLabels": pod["metadata"]["labels"]});
        let over = |key: &str, skew: u64| json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector});
        pod["spec"]["topologySpreadConstraints"] = json!([over(HOSTNAME, 3), over(ZONE, 5)]);
    }
    pods
}

/// Required anti-affinity between hosts.
fn apart(key: &str, value: &str) -> Value {
    let term = json!({"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {key: value}}});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

fn label(random: &mut Random) -> &'static str {
    const LABELS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    random.pick::<&str>(&LABELS)
}

fn sized(labels: Value, spec: Value, random: &mut Random) -> Value {
    let cpu = *random.pick(&[100, 250, 500, 1000, 1500]);
    let memory = *random.pick(&[100, 256, 512, 1024, 2048, 4096]);
    pod(labels, cpu, memory, spec)
}

/// Identical pods that would rather be in one zone (possible), in different zones (not possible for more than there are
/// zones) and on different hosts (possible at a price).
pub(crate) fn with_preferences(count: usize) -> Vec<Value> {
    let counted = json!({"matchLabels": {"app": "nginx"}});
    let away = |weight: u64, key: &str| json!({"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": counted}});
    let zone = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["test-zone-1"]}]});
    let affinity = json!({
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": zone}]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [away(10, ZONE), away(1, HOSTNAME)]},
    });
    vec![pod(json!({"app": "nginx"}), 500, 512, json!({"affinity": affinity})); count]
}

/// How requests of deployments are drawn.
#[derive(Clone, Copy)]
pub(crate) enum Mix {
    /// About 4 GiB for each vCPU.
    Balanced,
    /// From 1 to 12 GiB for each vCPU.
    Ratios,
    /// CPU and memory log-normal and independent of each other.
    LogNormal,
}

impl Mix {
    pub(crate) const ALL: [(Self, &'static str); 3] =
        [(Self::Balanced, "balanced"), (Self::Ratios, "ratios"), (Self::LogNormal, "lognormal")];

    fn requests(self, random: &mut Random) -> (u64, u64) {
        let cpu = *random.pick(&[100_u64, 250, 500, 1000, 2000, 4000]);
        match self {
            Self::Balanced => (cpu, rounded(cpu as f64 * 4.096 * (0.7 + 0.6 * random.unit()), 16, 64 << 10)),
            Self::Ratios => {
                (cpu, rounded(cpu as f64 * 1.024 * *random.pick(&[1.0, 2.0, 4.0, 8.0, 12.0]), 16, 64 << 10))
            }
            Self::LogNormal => {
                let cpu = 500.0 * power_of_two(random.normal() * 1.45);
                let memory = 1536.0 * power_of_two(random.normal() * 1.75);
                (rounded(cpu, 10, 16_000), rounded(memory, 16, 64 << 10))
            }
        }
    }
}

/// To a multiple of `step`, from one step to `most`.
fn rounded(amount: f64, step: u64, most: u64) -> u64 {
    ((amount / step as f64).round() as u64 * step).clamp(step, most)
}

/// By additions and multiplications only, so that it is the same everywhere.
fn power_of_two(exponent: f64) -> f64 {
    let whole = exponent.floor();
    let x = (exponent - whole) * std::f64::consts::LN_2;
    let fraction = 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))));
    let two = if whole < 0.0 { 0.5 } else { 2.0 };
    (0..whole.abs() as u32).fold(fraction, |product, _| product * two)
}

/// Deployments of 5 to 60 replicas without further rules, until there are so many pods.
pub(crate) fn deployments(mix: Mix, count: usize, random: &mut Random) -> Vec<Value> {
    let mut pods = Vec::with_capacity(count);
    for number in 0.. {
        if pods.len() >= count {
            break;
        }
        let (cpu, memory) = mix.requests(random);
        let template = pod(json!({"app": format!("app-{number}")}), cpu, memory, json!({}));
        let replicas = (random.within(&(5..61)) as usize).min(count - pods.len());
        pods.extend(std::iter::repeat_n(template, replicas));
    }
    pods
}

/// Thirty deployments of all sizes, each spread over zones; three of them also one pod a host, three spread over hosts.
pub(crate) fn wide(count: usize, random: &mut Random) -> Vec<Value> {
    const DEPLOYMENTS: usize = 30;
    let mut pods = Vec::with_capacity(count);
    for number in 0..DEPLOYMENTS {
        let app = format!("app-{number}");
        let counted = json!({"matchLabels": {"app": app}});
        let over = |key: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": counted});
        let mut spec = json!({"topologySpreadConstraints": [over(ZONE)]});
        match number {
            0..3 => spec["affinity"] = apart("app", &app),
            3..6 => spec["topologySpreadConstraints"] = json!([over(ZONE), over(HOSTNAME)]),
            _ => {}
        }
        let cpu = rounded(225.0 * power_of_two(4.08 * random.unit()), 5, 3800);
        let memory = rounded(300.0 * power_of_two(7.7 * random.unit()), 4, 64 << 10);
        // The sizes of the rare ones are small: each of their pods has a machine of its own.
        let template = if number < 6 {
            pod(json!({"app": app}), cpu.min(1000), memory.min(4096), spec)
        } else {
            pod(json!({"app": app}), cpu, memory, spec)
        };
        let replicas = (number + 1) * count / DEPLOYMENTS - number * count / DEPLOYMENTS;
        pods.extend(std::iter::repeat_n(template, replicas));
    }
    pods
}
