//! Random scenarios: classes of pods with all kinds of rules, the NodePools that they use, perhaps a DaemonSet, perhaps
//! machines that are there already. A seed gives the same scenario everywhere.
//!
//! Rules are drawn so that there is a place for every pod: what one rule of a class says of zones bounds what the next
//! may say (`class::Zones`), for a scenario whose pods contradict themselves tries nothing. Of some scenarios one
//! class, a tenth of the pods at most, is made impossible on purpose: it must be refused.

mod class;
#[cfg(test)]
mod tests;

use seeded_random::Random;
use serde_json::{Value, json};

use class::{Classes, requests};
pub(super) use class::{Zones, is_spread_over_zones};

use super::resizes::{self, Resized};
use super::{BEFORE, CLASS, volumes};
use crate::objects;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
pub(super) const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
/// By name. Pods without any have the lowest, for only those may preempt, and it would move pods that are bound.
const PRIORITIES: [(&str, i32); 2] = [("fidelity-low", 10), ("fidelity-high", 1000)];

/// Its pods need more than their containers ask for.
const RUNTIME_CLASS: &str = "fidelity-sandboxed";
/// A label that some machines have, and the key of a taint of some.
const TEAM: &str = "fidelity.example.com/team";
/// A label of pods: which of two releases of their application they are.
const RELEASE: &str = "release";

/// How many applications the pods have that are there before.
const OLD_APPS: u64 = 3;
/// So many times what was there before may all find room on machines that are there: half of it goes again, and the
/// smallest machines that hold the rest may be half empty.
const FEW: u64 = 2;
const NEWCOMERS: &str = "newcomer";

/// What pods ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
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
    /// Those of them that are being resized.
    pub(super) resizes: Vec<Resized>,
    /// Claims of the pods, and volumes that are there before.
    pub(super) volumes: Vec<Value>,
    pub(super) pods: Vec<Value>,
}

/// What belongs to the whole cluster and pods of scenarios name: PriorityClasses, and a RuntimeClass with an overhead.
#[must_use]
pub fn surroundings() -> Vec<Value> {
    let class = |(name, value): &(&str, i32)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": { "name": name },
            "value": value,
            "preemptionPolicy": "Never",
        })
    };
    let sandboxed = json!({
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": { "name": RUNTIME_CLASS },
        "handler": "sandboxed",
        "overhead": { "podFixed": { "cpu": "150m", "memory": "100Mi" } },
    });
    PRIORITIES.iter().map(class).chain([sandboxed]).collect()
}

impl Scenario {
    /// All its objects and what they name as one list, but for the machines that are there before its pods come.
    #[must_use]
    pub fn objects(&self) -> Value {
        let own = self
            .node_pools
            .iter()
            .chain(&self.agent)
            .chain(&self.volumes)
            .chain(&self.before)
            .chain(&self.pods)
            .cloned();
        let namespace = objects::with(
            objects::namespace(&self.name),
            json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": self.name } } }),
        );
        let items: Vec<Value> =
            [namespace].into_iter().chain(surroundings()).chain(volumes::storage()).chain(own).collect();
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }

    /// The scenario of a seed, of all rules.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        Self::with(seed, Rules::All)
    }

    /// A scenario without rules between pods, priorities, and machines that are there before.
    #[must_use]
    pub fn plain(seed: u64) -> Self {
        Self::with(seed, Rules::Nodes)
    }

    fn with(seed: u64, rules: Rules) -> Self {
        let mut random = Random::new(seed);
        let name = format!("random-{seed}");
        let node_pools = node_pools(&name, rules, &mut random);
        let agent = random.one_in(2).then(|| agent(&name, &mut random));
        let before = if random.one_in(3) && rules == Rules::All { before(&name, &mut random) } else { Vec::new() };
        let classes = 2 + random.below(5);
        let label =
            |pool: &Value| pool.pointer("/spec/template/metadata/labels").is_some_and(|it| it.get(TEAM).is_some());
        let team = node_pools.iter().any(label);
        let mut made = Classes::new(&name, rules, team);
        let mut pods: Vec<Value> = (0..classes).flat_map(|class| made.next(class, &mut random)).collect();
        if random.one_in(3) {
            let most = pods.len() as u64 / 10;
            pods.extend(made.impossible(classes, most.min(1 + random.below(4)), &mut random));
        }
        let volumes = if rules == Rules::All { volumes::add(seed, &name, &mut pods) } else { Vec::new() };
        if !before.is_empty() && may_all_find_room(&pods, &before) {
            pods.extend(newcomers(&name, before.len()));
        }
        Self { seed, name, node_pools, agent, resizes: resizes::of(seed, &before), before, volumes, pods }
    }

    /// How many pods are judged.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.pods.len()
    }
}

fn node_pools(name: &str, rules: Rules, random: &mut Random) -> Vec<Value> {
    let mut requirements = vec![
        json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }),
        json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": [*random.pick(&["9", "17", "65"])] }),
    ];
    if random.one_in(3) {
        let family = *random.pick(&["c", "s", "m"]);
        requirements.push(json!({ "key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [family] }));
    }
    if random.one_in(3) {
        requirements.push(json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }));
    }
    if random.one_in(8) && rules == Rules::All {
        // A pod may leave two sizes of one family and architecture.
        requirements.push(json!({
            "key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 2,
        }));
    }
    let mut pool = objects::with(
        objects::node_pool(name),
        json!({ "spec": { "template": { "spec": { "requirements": requirements } } } }),
    );
    if random.one_in(6) && rules == Rules::All {
        let softly = json!({ "key": TEAM, "value": "red", "effect": "PreferNoSchedule" });
        add_taint(&mut pool, softly);
    }
    let mut pools = vec![pool];
    if random.one_in(4) {
        // A second pool in fewer zones, preferred to the first or not.
        let mut fewer = requirements;
        fewer.push(json!({ "key": ZONE, "operator": "In", "values": [ZONES[0], ZONES[1]] }));
        let changes = json!({
            "metadata": { "name": format!("{name}-b") },
            "spec": { "weight": 1 + random.below(50), "template": { "spec": { "requirements": fewer } } },
        });
        let mut second = objects::with(objects::node_pool(name), changes);
        if rules == Rules::All && random.one_in(2) {
            // For those who tolerate it only; some of them ask for it.
            second["spec"]["template"]["metadata"]["labels"][TEAM] = json!("blue");
            add_taint(&mut second, json!({ "key": TEAM, "value": "blue", "effect": "NoSchedule" }));
        }
        pools.push(second);
    }
    pools
}

fn add_taint(pool: &mut Value, taint: Value) {
    if let Some(taints) = pool.pointer_mut("/spec/template/spec/taints").and_then(Value::as_array_mut) {
        taints.push(taint);
    }
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

/// Whether machines that are there may have room for all these pods. A machine that was taken for its memory has CPU to
/// spare, or the other way round.
fn may_all_find_room(pods: &[Value], before: &[Value]) -> bool {
    let less_of = |resource| total(pods, resource) < FEW * total(before, resource);
    less_of("cpu") || less_of("memory")
}

/// What the pods' containers request together, in milli-CPU or MiB as [`requests`] writes them; init containers aside.
fn total(pods: &[Value], resource: &str) -> u64 {
    let requests = pods.iter().filter_map(|pod| pod["spec"]["containers"].as_array()).flatten();
    let amounts = requests.filter_map(|container| container["resources"]["requests"][resource].as_str());
    amounts.filter_map(|amount| amount.trim_end_matches(char::is_alphabetic).parse::<u64>().ok()).sum()
}

/// Pods that keep off the machines of those that were there before and off each other's. They are more than the
/// machines that the others can leave empty, so there is something to launch however few the other pods are.
fn newcomers(name: &str, before: usize) -> impl Iterator<Item = Value> {
    let others: Vec<String> = old_apps().chain([NEWCOMERS.to_owned()]).collect();
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": others }] });
    let apart = json!([{ "labelSelector": selector, "topologyKey": HOST }]);
    let changes = json!({
        "metadata": { "labels": { "app": NEWCOMERS, CLASS: NEWCOMERS } },
        "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": apart } } },
    });
    let requests = json!({ "cpu": "200m", "memory": "128Mi" });
    (0..=before.div_ceil(2)).map(move |index| {
        objects::with(objects::pod(name, &format!("{NEWCOMERS}-{index}"), &requests), changes.clone())
    })
}

/// The applications of pods that are there before.
fn old_apps() -> impl Iterator<Item = String> {
    (0..OLD_APPS).map(|index| format!("{BEFORE}{index}"))
}

/// Pods that get machines first; every other one goes again and leaves room.
fn before(name: &str, random: &mut Random) -> Vec<Value> {
    let requests = requests(random);
    let count = 4 + random.below(9);
    (0..count)
        .map(|index| {
            let app = format!("{BEFORE}{}", index % OLD_APPS);
            let labels = json!({ "metadata": { "labels": { "app": app } } });
            objects::with(objects::pod(name, &format!("before-{index}"), &requests), labels)
        })
        .collect()
}
