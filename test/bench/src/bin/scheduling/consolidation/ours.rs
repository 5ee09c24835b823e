//! Our side: what the planner decides is carried out on the case, which is then decoded anew.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use model::PriceNanoUsdPerHour;
use scheduling::Snapshot;
use scheduling::disruption::plan::{Command, DisruptionPlan, Place};
use scheduling::disruption::{Memory, plan_disruption_with};
use scheduling::plan::MachineId;
use serde_json::Value;

use super::Consolidated;
use super::fleets::{by_name, of_fleet, offering, price};
use crate::case::{self, Case, CaseNode, Line, OnNode};
use crate::clock::{Stopwatch, peak_kib};
use crate::ours::Input;

/// Consolidates the fleet until nothing is left to do, or the time is over. Without a price of evictions it goes by the
/// controller's default.
pub(super) fn consolidate(
    path: &Path,
    eviction_price: Option<PriceNanoUsdPerHour>,
    limit: Duration,
) -> Result<Consolidated> {
    let reading = Stopwatch::start();
    let mut case = read(path)?;
    let mut answer = Consolidated { read_nanos: reading.elapsed().1, ..Consolidated::default() };
    let own = path.with_extension("ours");
    let begun = Instant::now();
    let (mut launched, mut memory) = (0, Memory::default());
    loop {
        case.write(&own)?;
        let mut input = Input::read(&own)?;
        if let Some(price) = eviction_price {
            input.options().disruption.eviction_price_nano_usd = price.0;
        }
        let round = Stopwatch::start();
        let snapshot = input.snapshot()?;
        let plan = plan_disruption_with(&snapshot, &mut memory);
        let (cpu, wall) = round.elapsed();
        answer.cpu_nanos += cpu;
        answer.wall_nanos += wall;
        if answer.rounds == 0 {
            answer.first_cpu_nanos = cpu;
            answer.candidates = case.nodes.len();
        }
        answer.rounds += 1;
        answer.timed_out = begun.elapsed() > limit;
        if plan.commands.is_empty() || answer.timed_out {
            answer.bound_nano_usd_per_hour = plan.fleet_bound.map(|bound| bound.0);
            if !answer.timed_out {
                answer.again_cpu_nanos = after_changes(&mut input, &mut memory, limit.saturating_sub(begun.elapsed()))?;
            }
            break;
        }
        let round = Round { pods: named(&case), snapshot: &snapshot, plan: &plan };
        for command in &plan.commands {
            answer.commands += 1;
            answer.evictions += command.moves.len();
            round.carry_out(&mut case, command, &mut launched)?;
        }
    }
    std::fs::remove_file(&own)?;
    answer.peak_kib = peak_kib().unwrap_or(0);
    answer.nodes = case.nodes.len();
    answer.price_nano_usd_per_hour = price(&case)?;
    Ok(answer)
}

/// CPU time of each plan of the fleet at rest once one of its nodes has changed: a pod goes, and in the next round it
/// is back. Snapshots and plans are made with what is left of those before, as in the controller. As many as there is
/// time for.
fn after_changes(input: &mut Input, memory: &mut Memory, limit: Duration) -> Result<Vec<u64>> {
    const CHANGES: usize = 50;
    let step = (input.nodes() / CHANGES).max(1);
    let begun = Instant::now();
    let mut took = Vec::new();
    for node in (0..input.nodes()).step_by(step).take_while(|_| begun.elapsed() < limit) {
        let Some(pod) = input.take_pod(node) else { continue };
        for is_back in [false, true] {
            if is_back {
                input.put_back(&pod);
            }
            let round = Stopwatch::start();
            drop(black_box(plan_disruption_with(&input.snapshot()?, memory)));
            took.push(round.elapsed().0);
        }
    }
    took.sort_unstable();
    Ok(took)
}

/// What the commands of one round are about.
struct Round<'r> {
    /// Pods by their nodes, each with its name, as they were when the round began.
    pods: BTreeMap<String, Vec<(String, Value)>>,
    snapshot: &'r Snapshot,
    plan: &'r DisruptionPlan,
}

/// Pods are numbered in the order of the file.
fn named(case: &Case) -> BTreeMap<String, Vec<(String, Value)>> {
    let mut numbered = 0..;
    let mut name = || format!("bound-{:06}", numbered.next().unwrap_or(0));
    let of_node = |node: &CaseNode| {
        let pods = node.pods.iter().map(|template| (name(), template.clone())).collect();
        (name_of(node).to_owned(), pods)
    };
    case.nodes.iter().map(of_node).collect()
}

impl Round<'_> {
    fn carry_out(&self, case: &mut Case, command: &Command, launched: &mut usize) -> Result<()> {
        let Self { pods, snapshot, plan } = self;
        let mut names: BTreeMap<MachineId, String> = BTreeMap::new();
        let simulated = plan.simulated.as_deref();
        for &id in &command.replacements {
            let simulated = simulated.context("a replacement of no plan")?;
            let of_plan = simulated.plan.machines.try_get(id).context("a replacement that is not planned")?;
            let catalogue = &simulated.snapshot.node_pools[of_plan.node_pool].catalogue;
            let of = by_name(case, catalogue.types[of_plan.launch.instance_type].name.as_str())?;
            let zone = simulated.snapshot.interner.value_name(of_plan.launch.zone);
            let name = format!("launched-{launched:05}");
            *launched += 1;
            let node = of_fleet(&name, of, offering(of, zone, of_plan.launch.capacity_type)?);
            case.nodes.push(node);
            names.insert(id, name);
        }
        let goes: BTreeSet<String> =
            command.nodes.iter().map(|&id| snapshot.nodes[id].display_name().to_string()).collect();
        let goes_with = |name: &String| pods.get(name).into_iter().flatten().cloned();
        let mut moving: BTreeMap<String, Value> = goes.iter().flat_map(goes_with).collect();
        let mut arrivals: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for planned in &command.moves {
            let simulated = simulated.context("a move of no plan")?;
            let pod = simulated.snapshot.pods.try_get(planned.pod).context("a pod that does not wait")?;
            let template = moving
                .remove(&*pod.pod.name.name)
                .with_context(|| format!("{} is on no node that goes", pod.pod.name))?;
            let to = match planned.to {
                Place::Node(id) => simulated.snapshot.nodes[id].display_name().to_string(),
                Place::Machine(id) => names.get(&id).cloned().context("a machine of another command")?,
            };
            arrivals.entry(to).or_default().push(template);
        }
        ensure!(moving.is_empty(), "{} pods of nodes that go have no place", moving.len());
        case.nodes.retain(|node| !goes.contains(name_of(node)));
        for node in &mut case.nodes {
            node.pods.extend(arrivals.remove(name_of(node)).unwrap_or_default());
        }
        ensure!(arrivals.is_empty(), "pods move to nodes that are not there");
        Ok(())
    }
}

fn name_of(node: &CaseNode) -> &str {
    node.node["metadata"]["name"].as_str().unwrap_or_default()
}

/// A case of nodes, as it was written.
fn read(path: &Path) -> Result<Case> {
    let mut case = Case::default();
    let mut templates: Vec<Value> = Vec::new();
    for line in case::read(path)? {
        match line? {
            Line::Options(options) => case.options = options,
            Line::InstanceType(of) => case.instance_types.push(*of),
            Line::NodePool(pool) => case.node_pools.push(pool),
            Line::DaemonSet(set) => case.daemon_sets.push(set),
            Line::DeviceObject(object) => case.device_objects.push(object),
            Line::PodTemplate(template) => templates.push(template),
            Line::Node(on_node) => {
                let mut pods = Vec::new();
                for count in &on_node.pods {
                    let template = templates.get(count.template).context("a template that is not there")?;
                    pods.extend(std::iter::repeat_n(template.clone(), count.count));
                }
                let OnNode { node, node_claim, slices, .. } = on_node;
                case.nodes.push(CaseNode { node, node_claim, slices, pods });
            }
            Line::Pods(counts) => ensure!(counts.iter().all(|count| count.count == 0), "pods wait in a fleet"),
        }
    }
    Ok(case)
}
