//! Random small clusters in which all rules meet.

use std::fmt::Write as _;

use seeded_random::Random;

pub(crate) const ZONES: [&str; 3] = ["test-zone-a", "test-zone-b", "test-zone-c"];
const APPS: [&str; 3] = ["web", "db", "ring"];
const KEYS: [&str; 5] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "karpenter.sh/capacity-type",
    "rack",
];

/// `Small` leaves out endless labels and has few pods: then a refusal can be checked by trying everything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Any,
    Small,
}

pub(crate) fn manifests(random: &mut Random, size: Size) -> String {
    let mut text = String::new();
    for (index, zones) in ["[test-zone-a, test-zone-b, test-zone-c]", "[test-zone-b]"].iter().enumerate() {
        if index == 1 && random.percent(50) {
            break;
        }
        let _ = write!(
            text,
            "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: pool-{index}}}\nspec:\n  weight: {}\n",
            1 + random.below(2)
        );
        if random.percent(25) {
            let _ = writeln!(text, "  limits: {{nodes: {}}}", 1 + random.below(4));
        }
        let rack =
            ["", "\n      - {key: rack, operator: In, values: [r1, r2]}", "\n      - {key: rack, operator: Exists}"]
                [usize::try_from(random.below(if size == Size::Small { 2 } else { 3 })).unwrap_or(0)];
        let taint = if index == 1 { "\n      taints: [{key: team, value: x, effect: NoSchedule}]" } else { "" };
        let _ = writeln!(
            text,
            "  template:\n    spec:\n      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: c}}{taint}\n      \
             requirements:\n      - {{key: topology.kubernetes.io/zone, operator: In, values: {zones}}}\n      - {{key: \
             kubernetes.io/arch, operator: In, values: [amd64]}}\n      - {{key: karpenter.sh/capacity-type, operator: In, values: [{}]}}{rack}",
            *random.pick(&["on-demand", "spot, on-demand"])
        );
    }
    for node in 0..random.below(if size == Size::Small { 3 } else { 4 }) {
        let _ = writeln!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{node}, labels: {{kubernetes.io/hostname: n{node}, {}: {}{}}}}}\nspec: {{{}}}\n\
             status: {{allocatable: {{cpu: {}, memory: 8Gi, pods: 20}}, conditions: [{{type: Ready, status: \"True\"}}]}}",
            KEYS[0],
            *random.pick(&ZONES),
            *random.pick(&["", ", rack: r1", ", rack: r3"]),
            *random.pick(&["", "", "taints: [{key: team, value: x, effect: NoSchedule}]"]),
            random.below(5),
        );
        for pod in 0..random.below(3) {
            pods(random, &mut text, &format!("running-{node}-{pod}"), 1, Some(node));
        }
    }
    for class in 0..1 + random.below(if size == Size::Small { 2 } else { 4 }) {
        let copies = 1 + random.below(if size == Size::Small { 2 } else { 5 });
        pods(random, &mut text, &format!("p{class}"), copies, None);
    }
    if random.percent(30) {
        let _ = writeln!(
            text,
            "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent, namespace: d}}\nspec:\n  selector: {{matchLabels: {{app: \
             agent}}}}\n  template:\n    metadata: {{labels: {{app: agent}}}}\n    spec:\n      {}\n      containers: [{{name: c, image: x, \
             ports: [{{containerPort: 1, hostPort: 80}}], resources: {{requests: {{cpu: 100m}}}}}}]",
            *random.pick(&["", "nodeSelector: {topology.kubernetes.io/zone: test-zone-a}"]),
        );
    }
    if size == Size::Any && random.percent(30) {
        group_in_one_domain(random, &mut text);
    }
    text
}

/// A PodGroup whose pods have to be in one zone or rack; some may run.
fn group_in_one_domain(random: &mut Random, text: &mut String) {
    let policy = *random.pick(&["gang: {minCount: 2}", "gang: {minCount: 3}", "basic: {}"]);
    let key = *random.pick(&["topology.kubernetes.io/zone", "rack"]);
    let _ = write!(
        text,
        "---\napiVersion: scheduling.k8s.io/v1alpha2\nkind: PodGroup\nmetadata: {{name: together, namespace: d}}\nspec:\n  \
         schedulingPolicy: {{{policy}}}\n  schedulingConstraints: {{topology: [{{key: {key}}}]}}\n"
    );
    let runs = random.percent(30);
    let cpu = *random.pick(&["200m", "1700m", "3"]);
    for index in 0..2 + random.below(3) {
        let node = if runs && index == 0 { "  nodeName: n0\n" } else { "" };
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: together-{index}, namespace: d, labels: {{app: ring}}}}\nspec:\n{node}  \
             schedulingGroup: {{podGroupName: together}}\n  \
             containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}, memory: 500Mi}}}}}}]\n"
        );
    }
}

/// Pods of one template.
pub(crate) fn pods(random: &mut Random, text: &mut String, name: &str, copies: u64, node: Option<u64>) {
    let app = *random.pick(&APPS);
    let mut spec = String::new();
    let selector = |random: &mut Random| format!("{{matchLabels: {{app: {}}}}}", *random.pick(&APPS));
    if random.percent(35) {
        spec.push_str("  topologySpreadConstraints:\n");
        for _ in 0..1 + random.below(2) {
            let _ = writeln!(
                spec,
                "  - {{maxSkew: {}, topologyKey: {}, whenUnsatisfiable: DoNotSchedule, labelSelector: {}{}{}{}}}",
                1 + random.below(2),
                *random.pick(&KEYS),
                if random.percent(70) { format!("{{matchLabels: {{app: {app}}}}}") } else { selector(random) },
                *random.pick(&["", "", ", minDomains: 2", ", minDomains: 4"]),
                *random.pick(&["", "", ", nodeAffinityPolicy: Ignore"]),
                *random.pick(&["", "", ", nodeTaintsPolicy: Honor"]),
            );
        }
    }
    let mut affinity = String::new();
    for kind in ["podAffinity", "podAntiAffinity"] {
        if random.percent(20) {
            let selector =
                if random.percent(60) { format!("{{matchLabels: {{app: {app}}}}}") } else { selector(random) };
            let _ = writeln!(
                affinity,
                "    {kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: {}, labelSelector: {selector}}}]}}",
                *random.pick(&KEYS),
            );
        }
    }
    if !affinity.is_empty() {
        let _ = write!(spec, "  affinity:\n{affinity}");
    }
    match random.below(6) {
        0 => drop(writeln!(spec, "  nodeSelector: {{{}: {}}}", KEYS[0], *random.pick(&ZONES))),
        1 => spec.push_str("  tolerations: [{key: team, operator: Exists}]\n"),
        _ => {}
    }
    let port = if random.percent(15) {
        format!(
            ", ports: [{{containerPort: 1, hostPort: 80{}}}]",
            *random.pick(&["", ", hostIP: 10.0.0.1", ", protocol: UDP"])
        )
    } else {
        String::new()
    };
    let cpu = *random.pick(&["200m", "900m", "1700m", "3"]);
    let priority = *random.pick(&["0", "0", "0", "10"]);
    for copy in 0..copies {
        let bound = node.map(|node| format!("  nodeName: n{node}\n")).unwrap_or_default();
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-{copy}, namespace: d, labels: {{app: {app}}}}}\nspec:\n{bound}{spec}  \
             priority: {priority}\n  containers: [{{name: c, image: x{port}, resources: {{requests: {{cpu: {cpu}, memory: 500Mi}}}}}}]\n"
        );
    }
}
