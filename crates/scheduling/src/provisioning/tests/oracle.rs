//! Plans of small random snapshots against an exhaustive search that shares nothing with the planner but its input.
//!
//! Two claims: no plan breaks a rule, whatever the provider launches from it; and no pod is called "does not fit" if
//! some arrangement of everything placed and that pod exists, nor because something less important took its room.

use model::{IdSet, Interner, KeyId, PodShape, ResourceVec, Taint, Toleration, ValueSet};
use proptest::prelude::*;

use super::budget::planned;
use super::fixture::{Fixture, gib, render};
use crate::{
    catalogue::{Catalogue, OfferingId},
    plan::{Machine, Plan, Verdict},
    snapshot::{Limit, Node, NodeId, NodeLabels, NodePool, PodId, PoolId, Snapshot},
    tuning::{KEPT_BACK, MAX_FILLS},
};

const ZONES: [&str; 2] = ["za", "zb"];
const TEAMS: [&str; 2] = ["red", "blue"];
const ZONE: &str = api::labels::ZONE;

/// In nano-dollars.
const CENT: i64 = 10_000_000;

/// (zone, spot, price in cents, available)
type OfferingInput = (usize, bool, i64, bool);

#[derive(Debug, Clone)]
struct Input {
    /// (CPUs, GiB, offerings)
    types: Vec<(i64, i64, Vec<OfferingInput>)>,
    pools: Vec<PoolInput>,
    nodes: Vec<(i64, i64, Option<usize>, bool)>,
    pods: Vec<PodInput>,
    daemon: Option<(i64, Option<usize>)>,
}

#[derive(Debug, Clone)]
struct PoolInput {
    weight: i32,
    zone: Option<usize>,
    team: u8,
    tainted: bool,
    nodes_left: Option<i64>,
    cpu_left: Option<i64>,
    memory_left: Option<i64>,
}

#[derive(Debug, Clone)]
struct PodInput {
    cpu: i64,
    memory: i64,
    priority: i32,
    team: Option<usize>,
    zones: Vec<usize>,
    not_zone: Option<usize>,
    tolerates: bool,
}

fn inputs() -> impl Strategy<Value = Input> {
    let offering = (0..2_usize, any::<bool>(), 1..20_i64, prop::bool::weighted(0.85));
    let instance_type = (1..5_i64, 1..5_i64, prop::collection::vec(offering, 1..3));
    let pool = (
        0..2_i32,
        prop::option::weighted(0.3, 0..2_usize),
        0..4_u8,
        prop::bool::weighted(0.2),
        prop::option::weighted(0.3, 0..3_i64),
        prop::option::weighted(0.3, 0..9_i64),
        prop::option::weighted(0.2, 0..9_i64),
    )
        .prop_map(|(weight, zone, team, tainted, nodes_left, cpu_left, memory_left)| PoolInput {
            weight,
            zone,
            team,
            tainted,
            nodes_left,
            cpu_left,
            memory_left,
        });
    let node = (0..5_i64, 0..5_i64, prop::option::of(0..2_usize), prop::bool::weighted(0.2));
    let pod = (
        1..9_i64,
        0..5_i64,
        0..2_i32,
        prop::option::weighted(0.3, 0..2_usize),
        prop::collection::vec(0..2_usize, 0..3),
        prop::option::weighted(0.2, 0..2_usize),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(cpu, memory, priority, team, zones, not_zone, tolerates)| PodInput {
            cpu: cpu * 500,
            memory,
            priority,
            team,
            zones,
            not_zone,
            tolerates,
        });
    (
        prop::collection::vec(instance_type, 1..4),
        prop::collection::vec(pool, 0..3),
        prop::collection::vec(node, 0..3),
        prop::collection::vec(pod, 1..6),
        prop::option::weighted(0.3, (1..3_i64, prop::option::of(0..2_usize))),
    )
        .prop_map(|(types, pools, nodes, pods, daemon)| Input { types, pools, nodes, pods, daemon })
}

fn snapshot(input: &Input) -> Snapshot {
    let mut f = Fixture::new();
    for (index, (cpu, memory, offerings)) in input.types.iter().enumerate() {
        f.instance_type(&format!("type-{index}"), *cpu, *memory);
        for (zone, spot, price, available) in offerings {
            f.offering(ZONES[*zone], if *spot { "spot" } else { "on-demand" }, *price * CENT);
            if !available {
                f.unavailable();
            }
        }
    }
    for (index, pool) in input.pools.iter().enumerate() {
        f.pool(&format!("pool-{index}")).weight(pool.weight);
        if let Some(zone) = pool.zone {
            f.require(ZONE, "In", &[ZONES[zone]]);
        }
        match pool.team {
            0 => {}
            1 => drop(f.require("team", "In", &[TEAMS[0]])),
            2 => drop(f.require("team", "Exists", &[])),
            _ => drop(f.require("team", "NotIn", &[TEAMS[1]])),
        }
        if pool.tainted {
            f.taint("dedicated", "yes");
        }
        if let Some(left) = pool.nodes_left {
            f.limit("nodes", 10, left);
        }
        if let Some(left) = pool.cpu_left {
            f.limit("cpu", 10_000, left * 1000);
        }
        if let Some(left) = pool.memory_left {
            f.limit("memory", gib(10), gib(left));
        }
    }
    for (index, (cpu, memory, zone, tainted)) in input.nodes.iter().enumerate() {
        f.node(&format!("node-{index}")).allocatable(cpu * 1000, gib(*memory));
        if let Some(zone) = zone {
            f.label(ZONE, ZONES[*zone]);
            f.label("team", TEAMS[*zone]);
        }
        if *tainted {
            f.taint("dedicated", "yes");
        }
    }
    for (index, pod) in input.pods.iter().enumerate() {
        let mut p = f.pod(&format!("pod-{index}")).requests(pod.cpu, gib(pod.memory)).priority(pod.priority);
        if let Some(team) = pod.team {
            p = p.select("team", TEAMS[team]);
        }
        for zone in &pod.zones {
            p = p.term(&[(ZONE, "In", &[ZONES[*zone]])]);
        }
        if let Some(zone) = pod.not_zone {
            p = p.term(&[(ZONE, "NotIn", &[ZONES[zone]]), ("team", "Exists", &[])]);
        }
        if pod.tolerates {
            p.tolerate("dedicated", "yes");
        }
    }
    if let Some((cpu, zone)) = input.daemon {
        let selector: Vec<(&str, &str)> = zone.map(|zone| (ZONE, ZONES[zone])).into_iter().collect();
        f.daemon_set("agent", cpu * 500, 0, &selector);
    }
    f.snapshot()
}

/// One machine: label key → its value, or absent.
type Machinery = Vec<(KeyId, Option<model::ValueId>)>;

fn tolerated(taints: &[Taint], tolerations: &[Toleration], names: &Interner) -> bool {
    taints.iter().all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint, names)))
}

fn matches(shape: &PodShape, value: impl Fn(KeyId) -> Option<model::ValueId>, names: &Interner) -> bool {
    let holds = |requirements: &model::Requirements| {
        requirements.iter().all(|wanted| wanted.values.contains(value(wanted.key), names))
    };
    holds(&shape.node_selector)
        && (shape.required_node_affinity.is_empty()
            || shape.required_node_affinity.iter().any(|term| holds(&term.expressions)))
}

fn sum<'a>(shapes: impl Iterator<Item = &'a PodShape>) -> ResourceVec {
    let mut sum = ResourceVec::default();
    for shape in shapes {
        sum.saturating_add_assign(&shape.requests);
    }
    sum
}

fn known(node: &Node) -> &model::Labels {
    match &node.labels {
        NodeLabels::Known(labels) => labels,
        NodeLabels::Promised(_) => panic!("the generator makes registered nodes only"),
    }
}

/// Whether these pods can be on that node together.
fn node_holds(snapshot: &Snapshot, node: NodeId, pods: &[PodId]) -> bool {
    let names = &snapshot.interner;
    let node = &snapshot.nodes[node];
    let shape = |pod: &PodId| &*snapshot.pods[*pod].pod.shape;
    let lets_in = |shape: &PodShape| {
        tolerated(&node.taints, &shape.tolerations, names) && matches(shape, |key| known(node).get(key), names)
    };
    let daemons = snapshot.daemon_sets.iter().map(|daemon| &*daemon.template.shape).filter(|shape| lets_in(shape));
    pods.iter().all(|pod| lets_in(shape(pod))) && sum(pods.iter().map(shape).chain(daemons)).fits_in(&node.allocatable)
}

/// Every way the labels of a machine from the offering can turn out. Only `team` can be left open, and then any value
/// a pod can name, some other value, and (where the pool allows it) absence are what can be told apart.
fn labelings(snapshot: &Snapshot, pool: &NodePool, offering: OfferingId) -> Vec<Machinery> {
    let names = &snapshot.interner;
    let offering = &pool.catalogue.offerings[offering];
    let mut all: Vec<Machinery> = vec![Vec::new()];
    for key in (0..names.key_count()).map(<KeyId as model::Id>::from_index) {
        let offered = offering.requirements.get(key).map(|requirement| requirement.values.clone());
        let asked = pool.requirements.get(key).map(|requirement| requirement.values.clone());
        let mut values: Vec<Option<model::ValueId>> = match (offered, &asked) {
            (None, None) => vec![None],
            (Some(offered), _) => offered.finite_values().unwrap().iter().copied().map(Some).collect(),
            (None, Some(_)) => {
                let mut values: Vec<_> =
                    TEAMS.iter().map(|team| names.find_value(team)).filter(Option::is_some).collect();
                values.push(names.find_value(&pool.name));
                values.push(names.find_value("type-0"));
                values.push(None);
                values
            }
        };
        values.retain(|value| asked.as_ref().is_none_or(|asked: &ValueSet| asked.contains(*value, names)));
        all = all
            .into_iter()
            .flat_map(|labels| values.iter().map(move |value| [labels.clone(), vec![(key, *value)]].concat()))
            .collect();
    }
    all
}

fn value_of(labels: &Machinery, key: KeyId) -> Option<model::ValueId> {
    labels.iter().find(|(known, _)| *known == key).and_then(|(_, value)| *value)
}

/// Daemons count if some labelling of the offering lets them in.
fn daemons_on(snapshot: &Snapshot, pool: &NodePool, offering: OfferingId) -> ResourceVec {
    let names = &snapshot.interner;
    let shapes = snapshot.daemon_sets.iter().map(|daemon| &*daemon.template.shape);
    sum(shapes.filter(|shape| {
        tolerated(&pool.taints, &shape.tolerations, names)
            && labelings(snapshot, pool, offering)
                .iter()
                .any(|labels| matches(shape, |key| value_of(labels, key), names))
    }))
}

/// Offerings from which a machine of the pool could hold exactly these pods.
fn machine_holds(snapshot: &Snapshot, pool: &NodePool, pods: &[PodId]) -> Vec<OfferingId> {
    let names = &snapshot.interner;
    let shape = |pod: &PodId| &*snapshot.pods[*pod].pod.shape;
    if !pods.iter().all(|pod| tolerated(&pool.taints, &shape(pod).tolerations, names)) {
        return Vec::new();
    }
    let catalogue: &Catalogue = &pool.catalogue;
    catalogue
        .offerings
        .ids()
        .filter(|&id| {
            let mut requests = sum(pods.iter().map(shape));
            requests.saturating_add_assign(&daemons_on(snapshot, pool, id));
            catalogue.offerings[id].launchable()
                && requests.fits_in(&catalogue.offerings[id].allocatable)
                && labelings(snapshot, pool, id)
                    .iter()
                    .any(|labels| pods.iter().all(|pod| matches(shape(pod), |key| value_of(labels, key), names)))
        })
        .collect()
}

/// Whether all `pods` can be placed at once.
fn feasible(snapshot: &Snapshot, pods: &[PodId]) -> bool {
    let mut nodes: Vec<Vec<PodId>> = vec![Vec::new(); snapshot.nodes.len()];
    let mut machines: Vec<(PoolId, Vec<PodId>)> = Vec::new();
    arrange(snapshot, pods, &mut nodes, &mut machines)
}

fn arrange(
    snapshot: &Snapshot,
    pods: &[PodId],
    nodes: &mut Vec<Vec<PodId>>,
    machines: &mut Vec<(PoolId, Vec<PodId>)>,
) -> bool {
    let Some((&pod, rest)) = pods.split_first() else { return limits_can_hold(snapshot, machines) };
    for (index, node) in snapshot.nodes.ids().enumerate() {
        nodes[index].push(pod);
        if node_holds(snapshot, node, &nodes[index]) && arrange(snapshot, rest, nodes, machines) {
            return true;
        }
        nodes[index].pop();
    }
    for index in 0..machines.len() {
        machines[index].1.push(pod);
        let (pool, members) = &machines[index];
        if !machine_holds(snapshot, &snapshot.node_pools[*pool], members).is_empty()
            && arrange(snapshot, rest, nodes, machines)
        {
            return true;
        }
        machines[index].1.pop();
    }
    for pool in snapshot.node_pools.ids() {
        if machine_holds(snapshot, &snapshot.node_pools[pool], &[pod]).is_empty() {
            continue;
        }
        machines.push((pool, vec![pod]));
        if arrange(snapshot, rest, nodes, machines) {
            return true;
        }
        machines.pop();
    }
    false
}

/// What the cheapest arrangement of the pods costs, limits aside; `None` if there is none.
fn cheapest(
    snapshot: &Snapshot,
    pods: &[PodId],
    nodes: &mut Vec<Vec<PodId>>,
    machines: &mut Vec<(PoolId, Vec<PodId>)>,
) -> Option<i64> {
    let Some((&pod, rest)) = pods.split_first() else {
        let price = |(pool, pods): &(PoolId, Vec<PodId>)| {
            let pool = &snapshot.node_pools[*pool];
            let holding = machine_holds(snapshot, pool, pods);
            holding.iter().map(|&offering| pool.catalogue.offerings[offering].price.0).min().unwrap()
        };
        return Some(machines.iter().map(price).sum());
    };
    let mut least: Option<i64> = None;
    let mut keep = |found: Option<i64>| least = least.into_iter().chain(found).min();
    for (index, node) in snapshot.nodes.ids().enumerate() {
        nodes[index].push(pod);
        if node_holds(snapshot, node, &nodes[index]) {
            keep(cheapest(snapshot, rest, nodes, machines));
        }
        nodes[index].pop();
    }
    for index in 0..machines.len() {
        machines[index].1.push(pod);
        let (pool, members) = &machines[index];
        if !machine_holds(snapshot, &snapshot.node_pools[*pool], members).is_empty() {
            keep(cheapest(snapshot, rest, nodes, machines));
        }
        machines[index].1.pop();
    }
    for pool in snapshot.node_pools.ids() {
        machines.push((pool, vec![pod]));
        if !machine_holds(snapshot, &snapshot.node_pools[pool], &[pod]).is_empty() {
            keep(cheapest(snapshot, rest, nodes, machines));
        }
        machines.pop();
    }
    least
}

fn taken(pool: &NodePool, limit: Limit, offering: OfferingId) -> i64 {
    match limit {
        Limit::Nodes => 1,
        Limit::Resource(resource) => pool.catalogue.offerings[offering].capacity.get(resource),
    }
}

/// Whether offerings can be chosen so that the machines keep all limits.
fn limits_can_hold(snapshot: &Snapshot, machines: &[(PoolId, Vec<PodId>)]) -> bool {
    snapshot.node_pools.iter_enumerated().all(|(id, pool)| {
        let choices: Vec<Vec<OfferingId>> = machines
            .iter()
            .filter(|(machine, _)| *machine == id)
            .map(|(_, pods)| machine_holds(snapshot, pool, pods))
            .collect();
        choose(pool, &choices, &vec![0; pool.remaining.len()])
    })
}

fn choose(pool: &NodePool, choices: &[Vec<OfferingId>], used: &[i64]) -> bool {
    if used.iter().zip(&pool.remaining).any(|(used, entry)| *used > entry.remaining.max(0)) {
        return false;
    }
    let Some((first, rest)) = choices.split_first() else { return true };
    first.iter().any(|&offering| {
        let used: Vec<i64> =
            used.iter().zip(&pool.remaining).map(|(used, entry)| used + taken(pool, entry.limit, offering)).collect();
        choose(pool, rest, &used)
    })
}

/// Whatever the provider launches for the claim, each pod can be scheduled onto it.
fn machine_is_right(snapshot: &Snapshot, machine: &Machine) -> Result<Vec<OfferingId>, String> {
    let mut names = (*snapshot.interner).clone();
    let given: Machinery = machine.labels.iter().map(|(key, value)| (*key, Some(names.value(value)))).collect();
    let names = &names;
    let pool = &snapshot.node_pools[machine.node_pool];
    let catalogue = &pool.catalogue;
    let shape = |pod: &PodId| &*snapshot.pods[*pod].pod.shape;
    let allowed: Vec<OfferingId> = catalogue
        .offerings
        .ids()
        .filter(|&id| {
            let offering = &catalogue.offerings[id];
            machine.instance_types.contains(&offering.instance_type)
                && machine.requirements.intersects(&offering.requirements, names).is_ok()
        })
        .collect();
    if !allowed.contains(&machine.launch.offering) || !catalogue.offerings[machine.launch.offering].launchable() {
        return Err("the launch offering is not allowed by the claim".to_owned());
    }
    for &id in &allowed {
        let offering = &catalogue.offerings[id];
        let mut requests = sum(machine.pods.iter().map(shape));
        requests.saturating_add_assign(&daemons_on(snapshot, pool, id));
        if !requests.fits_in(&offering.allocatable) {
            return Err(format!("the pods do not fit {:?}", offering.requirements.display(names).to_string()));
        }
        let value = |key: KeyId| {
            value_of(&given, key)
                .or_else(|| offering.requirements.get(key).and_then(|requirement| requirement.values.single_value()))
        };
        for pod in &machine.pods {
            if !tolerated(&pool.taints, &shape(pod).tolerations, names) || !matches(shape(pod), value, names) {
                return Err(format!("{} may not be there", snapshot.pods[*pod].pod.name));
            }
        }
    }
    Ok(allowed)
}

fn check(snapshot: &Snapshot, plan: &Plan) -> Result<(), String> {
    let mut seen: IdSet<PodId> = IdSet::with_len(snapshot.pods.len());
    let everywhere = plan.machines.iter().flat_map(|machine| &machine.pods);
    let everywhere = everywhere.chain(plan.existing.iter().flat_map(|placement| &placement.pods));
    let everywhere = everywhere.copied().chain(plan.refusals.iter().map(|refusal| refusal.pod));
    for pod in everywhere {
        if !seen.insert(pod) {
            return Err(format!("{} is in the plan twice", snapshot.pods[pod].pod.name));
        }
    }
    if seen.count() != snapshot.pods.len() {
        return Err("a pod is missing from the plan".to_owned());
    }
    for placement in &plan.existing {
        if !node_holds(snapshot, placement.node, &placement.pods) {
            return Err(format!("{} does not hold its pods", snapshot.nodes[placement.node].display_name()));
        }
    }
    let mut allowed = Vec::new();
    for machine in &plan.machines {
        if machine.pods.is_empty() {
            return Err("a machine without pods".to_owned());
        }
        allowed.push((machine.node_pool, machine_is_right(snapshot, machine)?));
    }
    for (id, pool) in snapshot.node_pools.iter_enumerated() {
        for entry in &pool.remaining {
            let machines = allowed.iter().filter(|(machine, _)| *machine == id);
            let most: i64 = machines
                .map(|(_, offerings)| {
                    offerings.iter().map(|&offering| taken(pool, entry.limit, offering)).max().unwrap_or(0)
                })
                .sum();
            if most > entry.remaining.max(0) {
                return Err(format!("{} could exceed {:?}", pool.name, entry.limit));
            }
        }
    }
    Ok(())
}

fn refusals_are_proofs(snapshot: &Snapshot, plan: &Plan) -> Result<(), String> {
    let refused: Vec<PodId> = plan.refusals.iter().map(|refusal| refusal.pod).collect();
    let placed: Vec<PodId> = snapshot.pods.ids().filter(|pod| !refused.contains(pod)).collect();
    for refusal in &plan.refusals {
        if refusal.verdict != Verdict::DoesNotFit {
            return Err(format!("{:?} on an input this small", refusal.verdict));
        }
        let priority = |pod: PodId| snapshot.pods[pod].pod.priority;
        let important = placed.iter().copied().filter(|&pod| priority(pod) >= priority(refusal.pod));
        for others in [placed.clone(), important.collect()] {
            if feasible(snapshot, &[others, vec![refusal.pod]].concat()) {
                return Err(format!("{} is refused and fits", snapshot.pods[refusal.pod].pod.name));
            }
        }
    }
    Ok(())
}

/// The bound is at most the least price, and the plan costs at least as much.
fn prices_are_in_order(snapshot: &Snapshot, plan: &Plan) -> Result<(), String> {
    let on_nodes = plan.existing.iter().flat_map(|placement| &placement.pods);
    let placed: Vec<PodId> = plan.machines.iter().flat_map(|machine| &machine.pods).chain(on_nodes).copied().collect();
    let least = cheapest(snapshot, &placed, &mut vec![Vec::new(); snapshot.nodes.len()], &mut Vec::new());
    let least = least.ok_or("what is placed can't be placed")?;
    if plan.lower_bound.0 > least || least > plan.price.0 {
        return Err(format!("bound {}, cheapest {least}, plan {}", plan.lower_bound.0, plan.price.0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_breaks_a_rule_and_no_refusal_is_wrong(input in inputs()) {
        let snapshot = snapshot(&input);
        let (plan, fills) = planned(&snapshot, MAX_FILLS);
        let text = render(&plan, &snapshot);
        if let Err(problem) = check(&snapshot, &plan) {
            prop_assert!(false, "{problem}\n{text}");
        }
        if let Err(problem) = prices_are_in_order(&snapshot, &plan) {
            prop_assert!(false, "{problem}\n{text}");
        }
        if let Err(problem) = refusals_are_proofs(&snapshot, &plan) {
            prop_assert!(false, "{problem}\n{text}");
        }
        prop_assert!(fills <= MAX_FILLS / 10, "{fills} fills\n{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_breaks_a_rule_although_there_are_few_fills(input in inputs(), compared in 0..8_u32) {
        let snapshot = snapshot(&input);
        let (plan, fills) = planned(&snapshot, KEPT_BACK + compared);
        let text = render(&plan, &snapshot);
        prop_assert!(fills <= KEPT_BACK + compared, "{fills} fills\n{text}");
        if let Err(problem) = check(&snapshot, &plan) {
            prop_assert!(false, "{problem}\n{text}");
        }
    }
}
