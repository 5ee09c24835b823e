//! What was planned is what happens: seeded random scenarios go from plan to machines to the real kube-scheduler.
//!
//! The controller writes onto each NodeClaim which pods it was planned for. In the end each machine must hold exactly
//! those pods, or pods of their classes; there must be no other machine, and none without pods.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use e2e::{Controller, apply, install, objects};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, node_of};

const SEEDS: std::ops::Range<u64> = 0..20;
const PLANNED_PODS: &str = "dovetail.sh/planned-pods";
const CLASS: &str = "class";

#[tokio::test]
async fn twenty_random_scenarios_are_bound_as_they_were_planned() -> Result<()> {
    let cluster = Cluster::new("fidelity").await?;
    // Pods that come while machines do are another plan's; here there is to be one.
    let options = cluster.controller()?.env("BATCH_IDLE_DURATION", "1s");
    let controller = Controller::start_ready(&options).await?;
    let client = cluster.client().await?;
    let mut scenarios = Vec::new();
    for seed in SEEDS {
        let scenario = Scenario::random(seed);
        let corner = Corner::without_node_pool(client.clone(), &scenario.name).await?;
        scenario.run(&corner).await.with_context(|| format!("seed {seed}"))?;
        scenarios.push((scenario, corner));
    }
    // A second plan, had there been one, would have come by now.
    let mut total = Outcome::default();
    for (scenario, corner) in &scenarios {
        total.add(scenario.outcome(corner).await.with_context(|| format!("seed {}", scenario.seed))?);
    }
    println!(
        "{} scenarios, {} pods on {} machines: {} bound exactly as planned ({:.1} %), {} exchanged with a pod of their class",
        scenarios.len(),
        total.pods,
        total.machines,
        total.exact,
        100.0 * total.exact as f64 / total.pods as f64,
        total.exchanged,
    );
    let wrong: Vec<String> = [total.broken, total.stray, total.wrong].concat();
    ensure!(wrong.is_empty(), "not as planned:\n{}", wrong.join("\n"));
    ensure!(total.exact + total.exchanged == total.pods, "every pod was planned for a machine");
    let refused: Vec<_> =
        controller.log()?.lines().filter(|line| line.contains("forbidden")).map(str::to_owned).collect();
    ensure!(refused.is_empty(), "the chart's rights are not enough: {refused:#?}");
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn where_the_controller_may_not_patch_pods_it_nominates_them() -> Result<()> {
    let cluster = Cluster::new("nominations").await?;
    let client = cluster.client().await?;
    let lesser =
        tokio::task::spawn_blocking(|| install::render("charts/dovetail", &["settings.handOver=nominate"])).await??;
    apply::apply(&client, lesser.into_iter().filter(install::is_about_rights)).await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    let scenario = Scenario::random(0);
    let corner = Corner::without_node_pool(client, &scenario.name).await?;
    scenario.run(&corner).await?;
    let outcome = scenario.outcome(&corner).await?;
    println!("{} of {} pods bound exactly as planned", outcome.exact, outcome.pods);
    ensure!(outcome.broken.is_empty(), "{}", outcome.broken.join("\n"));
    for pod in scenario.planned(&corner).await? {
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        let keys: Vec<_> = tolerations.filter_map(|toleration| toleration.key.as_deref()).collect();
        ensure!(!keys.contains(&api::taints::HELD), "{} tolerates {keys:?}", pod.name_any());
    }
    ensure!(controller.metric("dovetail_hand_over_nominations_total")? > 0.0, "{}", controller.metrics()?);
    controller.terminate().await.map(drop)
}

/// Some classes of pods, the NodePool that they use, and perhaps a DaemonSet.
struct Scenario {
    seed: u64,
    name: String,
    node_pool: Value,
    agent: Option<Value>,
    pods: Vec<Value>,
}

#[derive(Default)]
struct Outcome {
    pods: usize,
    /// Pods on the machine that was planned for them.
    exact: usize,
    /// Pods on another, where one of their class was planned.
    exchanged: usize,
    machines: usize,
    /// What is not as planned, in words.
    wrong: Vec<String>,
    /// What must never be: a machine without a plan.
    broken: Vec<String>,
    /// Machines beside the first plan's, and machines without pods.
    stray: Vec<String>,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.pods += other.pods;
        self.exact += other.exact;
        self.exchanged += other.exchanged;
        self.machines += other.machines;
        self.wrong.extend(other.wrong);
        self.broken.extend(other.broken);
        self.stray.extend(other.stray);
    }
}

impl Scenario {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed);
        let name = format!("random-{seed}");
        let mut requirements = vec![
            json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }),
            json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": [random.choose(&["9", "17", "65"])] }),
        ];
        if random.chance(3) {
            let family = random.choose(&["c", "s", "m"]);
            requirements
                .push(json!({ "key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [family] }));
        }
        if random.chance(3) {
            requirements
                .push(json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }));
        }
        let node_pool = objects::with(
            objects::node_pool(&name),
            json!({ "spec": { "template": { "spec": { "requirements": requirements } } } }),
        );
        let agent = random.chance(2).then(|| {
            let requests = json!({ "cpu": format!("{}m", 50 + random.below(200)), "memory": "64Mi" });
            json!({
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": { "name": "agent", "namespace": name },
                "spec": {
                    "selector": { "matchLabels": { "app": "agent" } },
                    "template": {
                        "metadata": { "labels": { "app": "agent" } },
                        "spec": objects::pod_spec(&name, &requests),
                    },
                },
            })
        });
        let classes = 2 + random.below(5);
        let pods = (0..classes).flat_map(|class| Self::class(&name, class, &mut random)).collect();
        Self { seed, name, node_pool, agent, pods }
    }

    fn class(name: &str, class: u64, random: &mut Random) -> Vec<Value> {
        let requests = json!({
            "cpu": format!("{}m", random.choose(&[100, 250, 400, 700, 1000, 1500, 3000])),
            "memory": format!("{}Mi", random.choose(&[64, 200, 512, 1024, 3000])),
        });
        let mut selector = serde_json::Map::new();
        if random.chance(3) {
            let zone = random.choose(&["test-zone-a", "test-zone-b", "test-zone-c"]);
            selector.insert("topology.kubernetes.io/zone".to_owned(), json!(zone));
        }
        if random.chance(4) {
            selector.insert("kubernetes.io/arch".to_owned(), json!(random.choose(&["amd64", "arm64"])));
        }
        let count = 1 + random.below(15);
        (0..count)
            .map(|index| {
                objects::with(
                    objects::pod(name, &format!("class-{class}-{index}"), &requests),
                    json!({ "metadata": { "labels": { CLASS: class.to_string() } }, "spec": { "nodeSelector": selector } }),
                )
            })
            .collect()
    }

    /// All pods wait before there is a NodePool, so that one plan is made for all of them, however slow the computer is.
    async fn run(&self, corner: &Corner) -> Result<()> {
        corner.apply(self.agent.clone()).await?;
        let api: Api<Pod> = Api::namespaced(corner.client.clone(), &self.name);
        stream::iter(&self.pods)
            .map(|pod| async {
                let pod = serde_json::from_value(pod.clone())?;
                anyhow::Ok(api.create(&PostParams::default(), &pod).await.map(drop)?)
            })
            .buffer_unordered(16)
            .try_collect::<()>()
            .await?;
        e2e::eventually("the scheduler has given up on every pod", crate::cluster::DEADLINE, async || {
            let given_up = self.planned(corner).await?.iter().filter(|pod| is_unschedulable(pod)).count();
            ensure!(given_up == self.pods.len(), "{given_up} of {}", self.pods.len());
            Ok(())
        })
        .await?;
        corner.apply([self.node_pool.clone()]).await?;
        e2e::eventually("every pod is bound", crate::cluster::DEADLINE, async || {
            let pods = self.planned(corner).await?;
            let waiting = pods.iter().filter(|pod| node_of(pod).is_none()).count();
            ensure!(pods.len() == self.pods.len() && waiting == 0, "{waiting} of {} wait", pods.len());
            Ok(())
        })
        .await
    }

    /// The scenario's pods but the agents'.
    async fn planned(&self, corner: &Corner) -> Result<Vec<Pod>> {
        Ok(corner.pods().await?.into_iter().filter(|pod| pod.labels().contains_key(CLASS)).collect())
    }

    async fn outcome(&self, corner: &Corner) -> Result<Outcome> {
        let pods = self.planned(corner).await?;
        let class_of: BTreeMap<String, String> =
            pods.iter().filter_map(|pod| Some((pod.uid()?, pod.labels().get(CLASS)?.clone()))).collect();
        let mut outcome = Outcome { pods: pods.len(), ..Outcome::default() };
        let classes = |uids: &BTreeSet<String>| -> BTreeMap<String, usize> {
            uids.iter().filter_map(|uid| class_of.get(uid)).fold(BTreeMap::new(), |mut counts, class| {
                *counts.entry(class.clone()).or_default() += 1;
                counts
            })
        };
        let mut planned_once = BTreeSet::new();
        let mut claims = corner.node_claims().await?;
        claims.sort_by_key(|claim| claim.creation_timestamp().map(|time| time.0));
        for claim in claims {
            let name = claim.name_any();
            let Some(annotation) = claim.annotations().get(PLANNED_PODS) else {
                outcome.broken.push(format!("{name} has no {PLANNED_PODS}"));
                continue;
            };
            let planned: BTreeSet<String> = annotation.split(',').map(str::to_owned).collect();
            let twice = planned.iter().filter(|uid| !planned_once.insert((*uid).clone())).count();
            if twice == planned.len() {
                outcome.stray.push(format!("{name} was launched for pods that had been planned before"));
            } else if twice > 0 {
                outcome.wrong.push(format!("{name}: {twice} of its pods were planned for another machine too"));
            }
            let node = claim.status.as_ref().context("no status")?.node_name.clone();
            let bound: BTreeSet<String> =
                pods.iter().filter(|pod| node_of(pod) == Some(&node)).filter_map(ResourceExt::uid).collect();
            let (wanted, found) = (classes(&planned), classes(&bound));
            if bound.is_empty() {
                outcome.stray.push(format!("{name} is empty"));
            }
            if wanted != found {
                outcome.wrong.push(format!("{name} was planned for {wanted:?} (pods by class), and holds {found:?}"));
            }
            let exact = planned.intersection(&bound).count();
            let of_the_class = wanted.iter().map(|(class, count)| found.get(class).copied().unwrap_or(0).min(*count));
            outcome.machines += 1;
            outcome.exact += exact;
            outcome.exchanged += of_the_class.sum::<usize>().saturating_sub(exact);
        }
        if planned_once.len() != pods.len() {
            outcome.wrong.push(format!(
                "{}: {} pods were planned, {} exist",
                self.name,
                planned_once.len(),
                pods.len()
            ));
        }
        Ok(outcome)
    }
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "PodScheduled" && it.reason.as_deref() == Some("Unschedulable"))
}

/// SplitMix64: the same numbers from the same seed everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in so many times.
    fn chance(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn choose<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap_or(0)]
    }
}
