//! Random fleets: machines of ours in all states, with pods that may leave and pods that may not, under budgets.

use std::fmt::Write as _;

use seeded_random::Random;

use crate::clusters::{ZONES, pods};

/// When these fleets are looked at.
pub(crate) const NOW: &str = "2026-11-25T10:00:00Z";

pub(crate) fn manifests(random: &mut Random) -> String {
    let mut text = String::new();
    for pool in 0..2 {
        node_pool(random, &mut text, pool);
    }
    for node in 0..3 + random.below(5) {
        machine(random, &mut text, node);
        for pod in 0..random.below(4) {
            match random.below(8) {
                0 => daemon(random, &mut text, node, pod),
                1 => guarded(random, &mut text, node, pod),
                _ => pods(random, &mut text, &format!("running-{node}-{pod}"), 1, Some(node)),
            }
        }
    }
    for class in 0..random.below(3) {
        let copies = 1 + random.below(2);
        pods(random, &mut text, &format!("p{class}"), copies, None);
    }
    for app in ["web", "db"] {
        if random.percent(40) {
            let _ = write!(
                text,
                "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {app}, namespace: d}}\nspec: {{selector: \
                 {{matchLabels: {{app: {app}}}}}, maxUnavailable: 1}}\nstatus: {{disruptionsAllowed: {}}}\n",
                random.below(2)
            );
        }
    }
    for pool in 0..2 {
        let policies = ["WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty"];
        text = text.replace(&policy_of(pool), random.pick::<&str>(&policies));
    }
    text
}

/// A fleet in which nothing has drifted, nothing is under way and NodePools are consolidated.
pub(crate) fn calm(text: &str) -> String {
    let mut text = text.to_owned();
    for condition in ["Drifted", "DisruptionReason"] {
        let is = |status: &str| format!("{{type: {condition}, status: \"{status}\"");
        text = text.replace(&is("True"), &is("False"));
    }
    let text = text.replace("consolidationPolicy: WhenEmpty,", "consolidationPolicy: WhenEmptyOrUnderutilized,");
    text.replace("consolidateAfter: Never", "consolidateAfter: 0s")
}

/// What stands for the policy of a NodePool until it is drawn: last, so that seeds mean what they meant before.
fn policy_of(pool: u64) -> String {
    format!("policy-of-{pool}")
}

fn node_pool(random: &mut Random, text: &mut String, index: u64) {
    let limits =
        if random.percent(30) { format!("\n  limits: {{nodes: {}}}", 2 + random.below(6)) } else { String::new() };
    let replicas = if random.percent(10) { "\n  replicas: 3" } else { "" };
    let limits = if replicas.is_empty() { limits } else { String::new() };
    let budgets: Vec<&str> = (0..random.below(3))
        .map(|_| {
            *random.pick(&[
                "{nodes: \"0\", reasons: [Empty]}",
                "{nodes: \"1\"}",
                "{nodes: 50%}",
                "{nodes: \"2\", reasons: [Drifted]}",
                "{nodes: \"0\", schedule: \"0 9 * * 1-5\", duration: 30m}",
                "{nodes: \"1\", schedule: \"@daily\", duration: 12h}",
                "{nodes: \"3\", reasons: [Underutilized, Unhealthy]}",
            ])
        })
        .collect();
    let budgets = if random.percent(40) { String::new() } else { format!(", budgets: [{}]", budgets.join(", ")) };
    let _ = write!(
        text,
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: pool-{index}}}\nspec:\n  disruption: {{consolidationPolicy: \
         {}, consolidateAfter: {}{budgets}}}{limits}{replicas}\n  template:\n    spec:\n      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, \
         name: c}}\n      requirements:\n      - {{key: kubernetes.io/arch, operator: In, values: [amd64]}}\n      - {{key: \
         karpenter.sh/capacity-type, operator: In, values: [{}]}}\n",
        policy_of(index),
        random.pick(&["0s", "30s", "Never"]),
        random.pick(&["on-demand", "spot, on-demand"]),
    );
}

fn machine(random: &mut Random, text: &mut String, node: u64) {
    let zone = *random.pick(&ZONES);
    let (instance_type, cpu) = [("c-1x-amd64-linux", 1), ("c-4x-amd64-linux", 4), ("s-2x-amd64-linux", 2)]
        [usize::try_from(random.below(3)).unwrap_or(0)];
    let pool = random.below(2);
    let is_initialized = random.percent(90);
    let mut conditions = vec![("Launched", "Launched"), ("Registered", "Registered")];
    if is_initialized {
        conditions.push(("Initialized", "Initialized"));
    }
    for (condition, reason, percent) in [
        ("Consolidatable", "Consolidatable", 70),
        ("Drifted", "NodePoolDrifted", 50),
        ("DisruptionReason", "Drifted", 8),
    ] {
        if random.percent(percent) {
            conditions.push((condition, reason));
        }
    }
    let conditions: Vec<String> = conditions
        .into_iter()
        .map(|(condition, reason)| {
            format!(
                "{{type: {condition}, status: \"True\", reason: {reason}, message: \"\", lastTransitionTime: \"2026-11-25T09:{:02}:00Z\"}}",
                random.below(60)
            )
        })
        .collect();
    let grace_period = if random.percent(30) { ", terminationGracePeriod: 1h" } else { "" };
    let annotations = if random.percent(8) { ", annotations: {karpenter.sh/do-not-disrupt: \"true\"}" } else { "" };
    let deletion = if random.percent(6) { ", deletionTimestamp: \"2026-11-25T09:59:00Z\"" } else { "" };
    let labels = format!(
        "kubernetes.io/hostname: n{node}, topology.kubernetes.io/zone: {zone}, node.kubernetes.io/instance-type: {instance_type}, \
         karpenter.sh/capacity-type: on-demand, karpenter.sh/nodepool: pool-{pool}, kubernetes.io/arch: amd64, kubernetes.io/os: linux"
    );
    let initialized = if is_initialized { ", karpenter.sh/initialized: \"true\"" } else { "" };
    let ready = if random.percent(90) { "True" } else { "False" };
    let _ = write!(
        text,
        "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: claim-{node}, labels: {{karpenter.sh/nodepool: pool-{pool}}}, \
         creationTimestamp: \"2026-11-24T09:00:00Z\"}}\nspec: {{nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: \
         c}}, requirements: [{{key: kubernetes.io/arch, operator: In, values: [amd64]}}]{grace_period}}}\nstatus: {{providerID: \
         id-{node}, nodeName: n{node}, capacity: {{cpu: {cpu}, memory: 8Gi, pods: 20}}, allocatable: {{cpu: {cpu}, memory: 8Gi, pods: \
         20}}, conditions: [{}]}}\n",
        conditions.join(", ")
    );
    let _ = write!(
        text,
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{node}, labels: {{{labels}{initialized}}}{annotations}{deletion}}}\nspec: \
         {{providerID: id-{node}}}\nstatus: {{capacity: {{cpu: {cpu}, memory: 8Gi, pods: 20}}, allocatable: {{cpu: {cpu}, memory: 8Gi, \
         pods: 20}}, conditions: [{{type: Ready, status: \"{ready}\"}}]}}\n",
    );
}

fn daemon(random: &mut Random, text: &mut String, node: u64, pod: u64) {
    let annotations = if random.percent(15) { ", annotations: {karpenter.sh/do-not-disrupt: \"true\"}" } else { "" };
    let _ = write!(
        text,
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: daemon-{node}-{pod}, namespace: d{annotations}, ownerReferences: [{{apiVersion: \
         apps/v1, kind: DaemonSet, name: agent, uid: u, controller: true}}]}}\nspec: {{nodeName: n{node}, containers: [{{name: c, \
         image: x, resources: {{requests: {{cpu: 100m}}}}}}]}}\n"
    );
}

/// A pod that may not be disrupted, for a while or for good, or that is of another scheduler, or leaving.
fn guarded(random: &mut Random, text: &mut String, node: u64, pod: u64) {
    let (metadata, spec) = match random.below(5) {
        0 => (", annotations: {karpenter.sh/do-not-disrupt: \"true\"}", ""),
        1 => (", annotations: {karpenter.sh/do-not-disrupt: 2h}", ""),
        2 => (", annotations: {karpenter.sh/do-not-disrupt: 1m}", ""),
        3 => ("", ", schedulerName: theirs"),
        _ => (", deletionTimestamp: \"2026-11-25T09:59:00Z\"", ""),
    };
    let _ = write!(
        text,
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: guarded-{node}-{pod}, namespace: d, labels: {{app: web}}{metadata}}}\nspec: \
         {{nodeName: n{node}{spec}, containers: [{{name: c, image: x, resources: {{requests: {{cpu: 200m}}}}}}]}}\nstatus: {{startTime: \
         \"2026-11-25T09:00:00Z\"}}\n"
    );
}
