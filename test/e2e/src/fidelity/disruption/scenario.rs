//! Random fleets, and what becomes of them. A seed gives the same scenario everywhere.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use seeded_random::Random;
use serde_json::{Value, json};

use super::super::scenario::ZONE;
use crate::objects;

/// A fleet, the steps by which it changes, and when the controller is killed.
#[derive(Debug)]
pub struct DisruptionScenario {
    /// Of its namespace and NodePool.
    pub name: String,
    policy: &'static str,
    on_demand: bool,
    first: BTreeMap<String, App>,
    first_budgets: Vec<Budget>,
    pub(super) steps: Vec<Step>,
    pub(super) kill: Option<Kill>,
}

/// When the controller is killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kill {
    /// In which step, the first being 1.
    pub(super) step: usize,
    /// How long after its begin.
    pub(super) after: Duration,
}

/// A Deployment.
#[derive(Debug, Clone)]
pub(super) struct App {
    pub(super) replicas: u32,
    milli_cpu: u32,
    mebibytes: u32,
    is_spread: bool,
    /// Of its PodDisruptionBudget.
    pub(super) max_unavailable: Option<u32>,
    /// Its pods say that they are not to be disrupted.
    is_protected: bool,
}

/// How many machines may go at a time.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    pub(super) nodes: Nodes,
    /// For these reasons only, if any are given.
    pub(super) reasons: &'static [&'static str],
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Nodes {
    Count(usize),
    Percent(usize),
}

/// What happens to a fleet.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Deployments get other numbers of pods.
    Scale(BTreeMap<String, u32>),
    /// A Deployment goes.
    Remove(String),
    /// All machines have drifted.
    Drift,
    /// The NodePool has other budgets.
    Budgets(Vec<Budget>),
    /// Pods of a Deployment are replaced by smaller ones.
    Shrink(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Scale(replicas) => write!(f, "scale to {replicas:?}"),
            Step::Remove(app) => write!(f, "remove {app}"),
            Step::Drift => f.write_str("let all machines drift"),
            Step::Budgets(budgets) => write!(f, "set budgets {}", json!(objects_of(budgets))),
            Step::Shrink(app) => write!(f, "shrink the pods of {app}"),
        }
    }
}

/// What is in the cluster by now.
#[derive(Debug, Clone)]
pub(super) struct State<'a> {
    scenario: &'a DisruptionScenario,
    pub(super) apps: BTreeMap<String, App>,
    pub(super) budgets: Vec<Budget>,
    /// How often machines have drifted.
    template: usize,
}

impl DisruptionScenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let first: BTreeMap<String, App> =
            (0..2 + random.below(4)).map(|number| (format!("app-{number}"), App::random(&mut random))).collect();
        let steps: Vec<Step> = (0..1 + random.below(3)).map(|_| Step::random(&first, &mut random)).collect();
        let kill = random.one_in(3).then(|| Kill {
            step: 1 + random.below(steps.len()),
            after: random.time_within(&(Duration::ZERO..Duration::from_secs(25))),
        });
        Self {
            name: format!("disrupted-{seed}"),
            policy: *random.pick(&["WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced"]),
            on_demand: random.one_in(2),
            first_budgets: Budget::random(&mut random),
            first,
            steps,
            kill,
        }
    }

    /// Those that the NodePool has at first.
    pub(super) fn budgets(&self) -> Vec<Budget> {
        self.first_budgets.clone()
    }

    pub(super) fn begin(&self) -> State<'_> {
        State { scenario: self, apps: self.first.clone(), budgets: self.budgets(), template: 0 }
    }
}

impl State<'_> {
    /// Takes the step, and gives what is to be deleted.
    pub(super) fn take(&mut self, step: &Step) -> Vec<Value> {
        match step {
            Step::Scale(replicas) => {
                for (name, replicas) in replicas {
                    self.apps.entry(name.clone()).and_modify(|app| app.replicas = *replicas);
                }
            }
            Step::Remove(name) => {
                return self.apps.remove(name).map(|app| app.objects(&self.scenario.name, name)).unwrap_or_default();
            }
            Step::Drift => self.template += 1,
            Step::Budgets(budgets) => self.budgets.clone_from(budgets),
            Step::Shrink(name) => {
                self.apps.entry(name.clone()).and_modify(|app| app.milli_cpu = (app.milli_cpu / 2).max(50));
            }
        }
        Vec::new()
    }

    /// All of it.
    pub(super) fn objects(&self) -> Vec<Value> {
        let apps = self.apps.iter().flat_map(|(name, app)| app.objects(&self.scenario.name, name));
        [self.node_pool()].into_iter().chain(apps).collect()
    }

    fn node_pool(&self) -> Value {
        let DisruptionScenario { name, policy, on_demand, .. } = self.scenario;
        let mut requirements = vec![
            json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }),
            json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"] }),
        ];
        if *on_demand {
            requirements
                .push(json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }));
        }
        let annotations = json!({ "e2e.dovetail.test/template": self.template.to_string() });
        objects::with(
            objects::node_pool(name),
            json!({ "spec": {
                "disruption": {
                    "consolidateAfter": "1s",
                    "consolidationPolicy": policy,
                    "budgets": objects_of(&self.budgets),
                },
                "template": { "metadata": { "annotations": annotations }, "spec": { "requirements": requirements } },
            } }),
        )
    }
}

impl App {
    fn random(random: &mut Random) -> Self {
        let replicas = 1 + random.below(8);
        Self {
            replicas,
            milli_cpu: *random.pick(&[100, 250, 500, 900, 1500]),
            mebibytes: *random.pick(&[64, 256, 1024, 2048]),
            is_spread: random.one_in(4),
            max_unavailable: random.one_in(4).then(|| 1 + random.below(2)),
            is_protected: random.one_in(8),
        }
    }

    /// What each of its pods asks for, in the API server's spelling.
    pub(super) fn cpu(&self) -> String {
        format!("{}m", self.milli_cpu)
    }

    fn objects(&self, namespace: &str, name: &str) -> Vec<Value> {
        let requests = json!({ "cpu": self.cpu(), "memory": format!("{}Mi", self.mebibytes) });
        let mut deployment = objects::deployment(namespace, name, self.replicas, &requests);
        let template = &mut deployment["spec"]["template"];
        if self.is_spread {
            template["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": name } },
            }]);
        }
        if self.is_protected {
            template["metadata"]["annotations"] = json!({ super::observer::DO_NOT_DISRUPT: "true" });
        }
        let budget = self.max_unavailable.map(|most| {
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": name, "namespace": namespace },
                "spec": { "maxUnavailable": most, "selector": { "matchLabels": { "app": name } } },
            })
        });
        [deployment].into_iter().chain(budget).collect()
    }
}

impl Step {
    fn random(apps: &BTreeMap<String, App>, random: &mut Random) -> Self {
        let names: Vec<&String> = apps.keys().collect();
        let one = |random: &mut Random| (*random.pick(&names)).clone();
        match random.below(8) {
            0..=2 => {
                let less = |random: &mut Random, app: &App| random.below(app.replicas + 1);
                Self::Scale(apps.iter().map(|(name, app)| (name.clone(), less(random, app))).collect())
            }
            3 => Self::Scale(BTreeMap::from([(one(random), 1 + random.below(10))])),
            4 => Self::Remove(one(random)),
            5 => Self::Budgets(Budget::random(random)),
            6 => Self::Shrink(one(random)),
            _ => Self::Drift,
        }
    }
}

impl Budget {
    fn random(random: &mut Random) -> Vec<Self> {
        let all = |nodes| Self { nodes, reasons: &[] };
        match random.below(7) {
            0 => vec![all(Nodes::Percent(50))],
            1 => vec![all(Nodes::Count(1))],
            2 => vec![all(Nodes::Count(2))],
            3 => vec![all(Nodes::Percent(100)), Self { nodes: Nodes::Count(1), reasons: &["Drifted"] }],
            4 => vec![Self { nodes: Nodes::Count(0), reasons: &["Underutilized"] }, all(Nodes::Percent(100))],
            _ => vec![all(Nodes::Percent(100))],
        }
    }

    /// How many machines of so many may go for the reason, by these budgets.
    pub(super) fn allow(budgets: &[Self], reason: &str, machines: usize) -> usize {
        let of_reason = budgets.iter().filter(|it| it.reasons.is_empty() || it.reasons.contains(&reason));
        let allowed = of_reason.map(|budget| match budget.nodes {
            Nodes::Count(nodes) => nodes,
            Nodes::Percent(percent) => (machines * percent).div_ceil(100),
        });
        allowed.min().unwrap_or(usize::MAX)
    }
}

fn objects_of(budgets: &[Budget]) -> Vec<Value> {
    let object = |budget: &Budget| {
        let nodes = match budget.nodes {
            Nodes::Count(nodes) => nodes.to_string(),
            Nodes::Percent(percent) => format!("{percent}%"),
        };
        match budget.reasons {
            [] => json!({ "nodes": nodes }),
            reasons => json!({ "nodes": nodes, "reasons": reasons }),
        }
    };
    budgets.iter().map(object).collect()
}
