//! Our side: a case is decoded object by object, as the controller's store holds it, and planned as in a round of the
//! controller: a snapshot is built, and the planner makes a plan of it. Both are in the clock.
//!
//! Not in the clock is what the controller does when something changes and not in each round: decoding an object when a
//! watch brings it, and compiling the instance types when the provider's answer changes. Karpenter's side is given its
//! decoded objects, its cluster state and its instance types as well.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use api::labels::ProviderLabels;
use cluster::snapshot::{Cache, Cluster, LaunchableNodePool};
use decode::Context;
use model::{Interner, Pod};
use scheduling::snapshot::{Options, PreferencePolicy};
use scheduling::{Plan, Snapshot, provisioning};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::case::{self, Line, NAMESPACE, Names, Preferences};
use crate::clock::{Stopwatch, peak_kib};
use crate::devices::{self, CaseDevices, Claims};
use crate::verdict;

/// How many plans are made at once to see whether they are the same.
const THREADS: [usize; 3] = [1, 2, 8];

/// What planning took and gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Of reading the objects.
    pub read_ns: u64,
    /// CPU and wall time of the first round of the process: the snapshot built, and planned.
    pub first_ns: (u64, u64),
    /// What the planner alone took of that.
    pub first_plan_ns: (u64, u64),
    /// CPU time of each further round, which is made with what is left of the one before; a few nodes have changed.
    pub again_cpu_ns: Vec<u64>,
    /// After reading, and after the first plan.
    pub peak_kib: (u64, u64),
    pub machines: usize,
    pub on_existing_nodes: usize,
    pub unplaced: usize,
    /// Why the first of these has no place.
    pub first_refusal: Option<String>,
    pub price_nano_usd_per_hour: i64,
    pub lower_bound_nano_usd_per_hour: i64,
    /// Of the whole plan.
    pub sha256: String,
    /// How many of the plans made in further rounds, and on several threads at once, differ from it; None where that
    /// was not asked.
    pub differing_plans: Option<usize>,
}

/// Reads a case and plans it; where that is wanted, so often again, and then on several threads at once.
pub(crate) fn measure(path: &Path, again: usize) -> Result<Measured> {
    let watch = Stopwatch::start();
    let mut input = Input::read(path)?;
    let read_ns = watch.elapsed().1;
    let after_reading = peak_kib().unwrap_or(0);
    let round = Stopwatch::start();
    let snapshot = input.snapshot()?;
    let planning = Stopwatch::start();
    let plan = provisioning::plan(&snapshot);
    let (first_plan_ns, first_ns) = (planning.elapsed(), round.elapsed());
    let after_planning = peak_kib().unwrap_or(0);
    let sha256 = digest(&plan);
    let (mut again_cpu_ns, mut differing_rounds) = (Vec::new(), 0);
    for round in 0..again {
        input.change(round, &snapshot);
        let watch = Stopwatch::start();
        let snapshot = input.snapshot()?;
        let plan = provisioning::plan(&snapshot);
        again_cpu_ns.push(watch.elapsed().0);
        differing_rounds += usize::from(digest(&plan) != sha256);
    }
    let first_refusal = plan.refusals.first().map(|refusal| {
        let reason = refusal.reasons.first().map(|reason| format!("{reason:?}")).unwrap_or_default();
        format!("{}: {reason}", snapshot.pods[refusal.pod].pod.name)
    });
    Ok(Measured {
        read_ns,
        first_ns,
        first_plan_ns,
        again_cpu_ns,
        peak_kib: (after_reading, after_planning),
        machines: plan.machines.len(),
        on_existing_nodes: plan.existing.iter().map(|placement| placement.pods.len()).sum(),
        unplaced: plan.refusals.len(),
        first_refusal,
        price_nano_usd_per_hour: verdict::price(&snapshot, &plan)?,
        lower_bound_nano_usd_per_hour: plan.lower_bound.0,
        differing_plans: (again > 0).then(|| {
            differing_rounds + THREADS.iter().map(|&threads| differing(&snapshot, threads, &sha256)).sum::<usize>()
        }),
        sha256,
    })
}

/// Reads a case and plans it once and so often again. Only planning is repeated: it is what instructions are counted
/// of.
pub(crate) fn repeat(path: &Path, again: usize) -> Result<()> {
    let snapshot = Input::read(path)?.snapshot()?;
    for _ in 0..=again {
        drop(black_box(provisioning::plan(black_box(&snapshot))));
    }
    Ok(())
}

/// How many plans that so many threads make at once are not that one.
fn differing(snapshot: &Snapshot, threads: usize, sha256: &str) -> usize {
    std::thread::scope(|scope| {
        let plan = || digest(&provisioning::plan(snapshot));
        let planners: Vec<_> = (0..threads).map(|_| scope.spawn(plan)).collect();
        let plans = planners.into_iter().map(std::thread::ScopedJoinHandle::join);
        plans.filter(|other| other.as_ref().map_or(true, |other| other != sha256)).count()
    })
}

fn digest(plan: &Plan) -> String {
    let hash = Sha256::digest(format!("{plan:?}"));
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A pod that was taken off its node, and its claims.
pub(crate) struct Taken {
    pod: Arc<Pod>,
    claims: Claims,
}

/// A case as the controller's store holds it: every object decoded, the instance types compiled.
pub(crate) struct Input {
    cluster: Cluster,
    interner: Arc<Interner>,
    labels: ProviderLabels,
    cache: Cache,
}

impl Input {
    /// Reads a case.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let labels = ProviderLabels::default();
        let mut interner = Interner::new();
        let context = &mut Context::with_labels(&mut interner, &labels);
        let mut cluster = Cluster::default();
        let mut instance_types = Vec::new();
        let mut node_pools = Vec::new();
        let mut templates: Vec<Value> = Vec::new();
        let mut names = Names::default();
        let mut devices = CaseDevices::new();
        for line in case::read(path)? {
            match line? {
                Line::Options(options) => {
                    cluster.options.preference_policy = match options.preferences {
                        Preferences::Respect => PreferencePolicy::Respect,
                        Preferences::Ignore => PreferencePolicy::Ignore,
                    };
                }
                Line::InstanceType(instance_type) => instance_types.push(*instance_type),
                Line::NodePool(pool) => {
                    node_pools.push(decode::node_pool_object(&pool).map_err(|error| anyhow!("{error}"))?)
                }
                Line::DaemonSet(set) => {
                    let set = decode::daemon_set(&set, context).map_err(|error| anyhow!("{error}"))?;
                    cluster.daemon_sets.push(Arc::new(set));
                }
                Line::DeviceObject(object) => devices.add(&object)?,
                Line::PodTemplate(template) => templates.push(template),
                Line::Node(on_node) => {
                    let node = decode::node(&on_node.node, context).map_err(|error| anyhow!("{error}"))?;
                    let name = node.name.to_string();
                    cluster.nodes.push(Arc::new(node));
                    if let Some(claim) = &on_node.node_claim {
                        let claim = decode::node_claim_object(claim).map_err(|error| anyhow!("{error}"))?;
                        cluster.node_claims.push(Arc::new(claim));
                        cluster.wants_fleet = true;
                    }
                    let mut free = devices.publish(&on_node.slices)?;
                    names.pods(&on_node.pods, &templates, Some(&name), |pod| {
                        devices.make_claims(pod, Some((&name, &mut free)))?;
                        devices.wants(pod)?;
                        cluster.bound.insert(&decoded(pod, context)?);
                        Ok(())
                    })?;
                }
                Line::Pods(counts) => {
                    names.pods(&counts, &templates, None, |pod| {
                        devices.make_claims(pod, None)?;
                        devices.wants(pod)?;
                        cluster.pods.push(decoded(pod, context)?);
                        Ok(())
                    })?;
                }
            }
        }
        let (catalogue, errors) = cluster::catalogue(&instance_types, context);
        if let Some(error) = errors.first() {
            bail!("{error}");
        }
        let catalogue = Arc::new(catalogue);
        cluster.node_pools = node_pools
            .into_iter()
            .map(|object| LaunchableNodePool {
                object: Arc::new(object),
                usable: Ok(()),
                catalogue: Arc::clone(&catalogue),
            })
            .collect();
        cluster.devices = devices.into_cluster();
        cluster.namespaces.insert(NAMESPACE.into(), model::Labels::new());
        Ok(Self { cluster, interner: Arc::new(interner), labels, cache: Cache::default() })
    }

    /// What a watch brings between two rounds: a pod of each of some nodes is another object. What `snapshot` had to
    /// name becomes known, as in the controller.
    fn change(&mut self, round: usize, snapshot: &Snapshot) {
        const NODES: usize = 10;
        let before = Arc::clone(&self.interner);
        Arc::make_mut(&mut self.interner).learn(&snapshot.interner, &before);
        let changed: Vec<Arc<Pod>> = {
            let nodes = self.cluster.nodes.iter().skip(round * NODES).take(NODES);
            nodes.filter_map(|node| self.cluster.bound.on(&node.name).first().cloned()).collect()
        };
        for pod in changed {
            self.cluster.bound.insert(&Arc::new(Pod::clone(&pod)));
        }
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.cluster.nodes.len()
    }

    /// Takes the first pod off a node, by the node's position, with what it holds; gives it, so that it can come back.
    pub(crate) fn take_pod(&mut self, node: usize) -> Option<Taken> {
        let name = &self.cluster.nodes.get(node)?.name;
        let pod = self.cluster.bound.on(name).first().cloned()?;
        self.cluster.bound.remove(&pod);
        let claims = devices::release(&mut self.cluster.devices, &pod);
        Some(Taken { pod, claims })
    }

    /// Puts a pod that was taken back onto its node.
    pub(crate) fn put_back(&mut self, taken: &Taken) {
        self.cluster.bound.insert(&taken.pod);
        devices::hold_again(&mut self.cluster.devices, &taken.claims);
    }

    /// What its snapshots are planned by.
    pub(crate) fn options(&mut self) -> &mut Options {
        &mut self.cluster.options
    }

    /// What one round plans. Any object that cannot be used is an error.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot> {
        let (cluster, interner) = (self.cluster.clone(), Arc::clone(&self.interner));
        let (snapshot, errors) = cluster::snapshot_with(cluster, interner, &self.labels, &mut self.cache);
        match errors.first() {
            Some(error) => bail!("{error}"),
            None => Ok(snapshot),
        }
    }
}

fn decoded(pod: &Value, context: &mut Context<'_>) -> Result<Arc<Pod>> {
    decode::pod(pod, context).map(Arc::new).map_err(|error| anyhow!("{error}"))
}
