//! What a plan is worth, whoever made it: the price by one rule for both sides, and the checker's verdict.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use model::{IdVec, PriceNanoUsdPerHour, Requirement, Requirements, ResourceVec, ValueId, ValueSet};
use scheduling::catalogue::{Catalogue, OfferingId, TypeId};
use scheduling::plan::action::Action;
use scheduling::plan::{Choice, ExistingPlacement, Launch, Machine, Plan, Refusal, Verdict};
use scheduling::snapshot::{NodePool, PodId};
use scheduling::{Snapshot, provisioning};

use crate::ours::Input;
use crate::report::Checked;
use crate::theirs::{Answer, Claim};

/// Nano-dollars per hour of all machines: each costs its cheapest offering that can be launched, agrees with its claim,
/// and holds its pods and the DaemonSets' with what it can allocate.
pub(crate) fn price(snapshot: &Snapshot, plan: &Plan) -> Result<i64> {
    let mut sum = 0;
    for machine in &plan.machines {
        let pool = &snapshot.node_pools[machine.node_pool];
        let launch = cheapest(snapshot, pool, &machine.instance_types, &machine.requirements, &machine.pods);
        sum += launch.context("no offering of a machine holds its pods")?.price.0;
    }
    Ok(sum)
}

fn cheapest(
    snapshot: &Snapshot,
    pool: &NodePool,
    types: &[TypeId],
    requirements: &Requirements,
    pods: &[PodId],
) -> Option<Launch> {
    let catalogue = &pool.catalogue;
    let wanted = requests(snapshot, pods);
    let offerings = types.iter().flat_map(|&of| catalogue.offerings_of(of));
    let is_possible = |id: OfferingId| {
        let offering = &catalogue.offerings[id];
        offering.launchable()
            && wanted.iter().all(|(resource, amount)| amount <= offering.allocatable.get(resource))
            && agrees(snapshot, catalogue, id, requirements)
    };
    let mut best: Option<(PriceNanoUsdPerHour, OfferingId)> = None;
    for offered in offerings.map(|id| (catalogue.offerings[id].price, id)) {
        // Looking at labels takes longest, so it is left to what would be better.
        if best.is_none_or(|best| offered < best) && is_possible(offered.1) {
            best = Some(offered);
        }
    }
    let (_, id) = best?;
    let offering = &catalogue.offerings[id];
    Some(Launch {
        offering: id,
        instance_type: offering.instance_type,
        zone: offering.zone,
        capacity_type: offering.capacity_type,
        price: offering.price,
    })
}

fn agrees(snapshot: &Snapshot, catalogue: &Catalogue, id: OfferingId, requirements: &Requirements) -> bool {
    requirements.iter().all(|wanted| {
        let offered = catalogue.offerings[id].requirements.get(wanted.key);
        offered.is_none_or(|offered| offered.values.intersects(&wanted.values, &snapshot.interner))
    })
}

/// Of the pods and of all DaemonSets: those of the cases run everywhere.
fn requests(snapshot: &Snapshot, pods: &[PodId]) -> ResourceVec {
    let daemons = snapshot.daemon_sets.iter().map(|set| &set.template.shape);
    let mut sum = ResourceVec::default();
    for shape in pods.iter().map(|&pod| &snapshot.pods[pod].pod.shape).chain(daemons) {
        sum.saturating_add_assign(&shape.requests);
    }
    sum
}

/// Karpenter's answer in the form of our plans.
pub(crate) fn plan_of(snapshot: &Snapshot, answer: &Answer) -> Result<Plan> {
    let pods: BTreeMap<&str, PodId> =
        snapshot.pods.iter_enumerated().map(|(id, pending)| (&*pending.pod.name.name, id)).collect();
    let ids = |names: &[String]| -> Result<Vec<PodId>> {
        names.iter().map(|name| pods.get(name.as_str()).copied().context("a pod that nobody asked about")).collect()
    };
    let mut machines = IdVec::new();
    let mut in_pool: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in &answer.claims {
        let index = in_pool.entry(&claim.node_pool).or_default();
        let machine = machine(snapshot, claim, ids(&claim.pods)?, *index)?;
        *index += 1;
        machines.push(machine);
    }
    let mut existing = Vec::new();
    for placement in &answer.existing {
        let node = snapshot.nodes.iter_enumerated().find(|(_, node)| node.display_name() == placement.node);
        let (node, _) = node.context("a node that is not there")?;
        existing.push(ExistingPlacement {
            node,
            pods: ids(&placement.pods)?,
            drivers: Vec::new(),
            device_costs: Vec::new(),
        });
    }
    let refusals = ids(&answer.unplaced)?
        .into_iter()
        .map(|pod| Refusal { pod, verdict: Verdict::DoesNotFit, reasons: Arc::new([]) })
        .collect();
    let mut plan = Plan { actions: Action::create_each(&machines), machines, existing, refusals, ..Plan::default() };
    plan.price = PriceNanoUsdPerHour(price(snapshot, &plan)?);
    Ok(plan)
}

fn machine(snapshot: &Snapshot, claim: &Claim, pods: Vec<PodId>, index_in_pool: usize) -> Result<Machine> {
    let pool = snapshot.node_pools.iter_enumerated().find(|(_, pool)| pool.name.as_ref() == claim.node_pool);
    let (id, pool) = pool.context("a NodePool that is not there")?;
    let names: BTreeMap<&str, TypeId> =
        pool.catalogue.types.iter_enumerated().map(|(id, of)| (of.name.as_str(), id)).collect();
    let types = claim.instance_types.iter().map(|name| names.get(name.as_str()).copied());
    let instance_types: Vec<TypeId> = types.collect::<Option<_>>().context("an instance type that is not there")?;
    let requirements = requirements(snapshot, pool, claim)?;
    let launch = cheapest(snapshot, pool, &instance_types, &requirements, &pods);
    Ok(Machine {
        node_pool: id,
        index_in_pool,
        instance_types,
        launch: launch.context("no offering of a claim of Karpenter's holds its pods")?,
        requirements,
        labels: Vec::new(),
        requests: requests(snapshot, &pods),
        pods,
        devices: Vec::new(),
        device_costs: Vec::new(),
        min_values_relaxed: false,
        choice: Choice { offerings: 0, next_best: None },
    })
}

/// What the claim asks besides its types, and what its pool does.
fn requirements(snapshot: &Snapshot, pool: &NodePool, claim: &Claim) -> Result<Requirements> {
    let names = &*snapshot.interner;
    let mut all = pool.requirements.clone();
    for wanted in &claim.requirements {
        let Some(key) = names.find_key(&wanted.key) else { continue };
        if wanted.operator != "In" || wanted.key == api::labels::INSTANCE_TYPE || wanted.key == api::labels::HOSTNAME {
            continue;
        }
        let values: Vec<ValueId> = wanted.values.iter().filter_map(|value| names.find_value(value)).collect();
        ensure!(!values.is_empty(), "a claim of Karpenter's asks for unknown values of {}", wanted.key);
        all.insert_intersect(Requirement::new(key, ValueSet::among(values)), names);
    }
    Ok(all)
}

/// What Karpenter's answer to a case costs.
pub(crate) fn price_of(case: &Path, answer: &Answer) -> Result<i64> {
    let snapshot = Input::read(case)?.snapshot()?;
    Ok(plan_of(&snapshot, answer)?.price.0)
}

/// What the checker says of our plan of a case, or of Karpenter's answer to it.
pub(crate) fn judge(case: &Path, answer: Option<&Path>) -> Result<Checked> {
    let snapshot = Input::read(case)?.snapshot()?;
    let plan = match answer {
        None => provisioning::plan(&snapshot),
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            plan_of(&snapshot, &serde_json::from_str(&text)?)?
        }
    };
    let problems = checker::check(&snapshot, &plan);
    Ok(Checked { finished: true, problems: problems.len(), first_problem: problems.into_iter().next() })
}
