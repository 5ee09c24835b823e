//! The fleets, each from a seed and so the same on every computer.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bench::catalogues;
use bench::machine::machine;
use cloudprovider::{CapacityType, InstanceType, Offering};
use model::Quantity;
use scheduling::provisioning;
use seeded_random::Random;
use serde_json::{Value, json};

use super::gpus;
use crate::case::{Case, CaseNode};
use crate::cases::pods::{self, Mix, pod};
use crate::cases::{among, node_pool};
use crate::ours::Input;

/// The NodePool of all fleets.
pub(super) const NODE_POOL: &str = "default";
/// The largest machines have so many vCPUs: with larger ones, some would hold all pods.
const MOST_CPUS: i64 = 8;

/// A fleet that can be made.
pub(super) struct Named {
    /// The group, such as `C1`.
    pub group: &'static str,
    /// The group and the number of nodes, such as `C1-300`.
    pub name: String,
    /// How many nodes it has, or had before pods went.
    pub nodes: usize,
    /// Whether Karpenter's methods can be asked about it.
    pub is_for_both: bool,
    make: fn(usize) -> Result<Fleet>,
}

/// A fleet as a case: nodes with their pods, and none that waits.
pub(super) struct Fleet(Case);

/// One line for each group, for the head of a table.
pub(super) const GROUPS: [(&str, &str); 4] = [
    ("C1", "as it was planned for deployments without rules: there is nothing to gain, or little"),
    ("C2", "the same, of which 30 % of the pods are gone"),
    (
        "C3",
        "in each of three zones pods that are too large to share the machines they are on, and that fit on half as many of twice the size",
    ),
    (
        "D8",
        "as it was planned for pods that claim one, two or four GPUs, of which 30 % are gone; Karpenter v1.14.1 knows no claims",
    ),
];

pub(super) fn all() -> Vec<Named> {
    let of = |group: &'static str, sizes: &[usize], make: fn(usize) -> Result<Fleet>| {
        let named = |&nodes: &usize| {
            let name = format!("{group}-{nodes}");
            Named { group, name, nodes, is_for_both: group != "D8", make }
        };
        sizes.iter().map(named).collect::<Vec<_>>()
    };
    [
        of("C1", &[300, 1000, 5000], planned),
        of("C2", &[300, 1000], thinned),
        of("C3", &[60, 300], |nodes| Ok(planted(nodes))),
        of("D8", &[60, 500], with_gpus),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Named {
    pub(super) fn make(&self) -> Result<Fleet> {
        (self.make)(self.nodes)
    }
}

impl Fleet {
    /// Writes it, and says what it costs, in nano-dollars per hour.
    pub(super) fn write_to(&self, path: &Path) -> Result<i64> {
        self.0.write(path)?;
        price(&self.0)
    }
}

/// What the machines of a case cost as what they are, in nano-dollars per hour.
pub(super) fn price(case: &Case) -> Result<i64> {
    let types: BTreeMap<&str, &InstanceType> = case.instance_types.iter().map(|it| (it.name.as_str(), it)).collect();
    let mut sum = 0;
    for node in &case.nodes {
        let label = |key: &str| node.node["metadata"]["labels"][key].as_str().unwrap_or_default();
        let of = types.get(label(api::labels::INSTANCE_TYPE)).context("a node of a type that there is not")?;
        let (zone, capacity_type) = (label(pods::ZONE), label(api::labels::CAPACITY_TYPE));
        let is_it = |it: &&Offering| it.zone == zone && it.capacity_type.as_str() == capacity_type;
        sum += of.offerings.iter().find(is_it).context("a node of an offering that there is not")?.price.0;
    }
    Ok(sum)
}

/// No nodes and no pods; machines on demand.
fn empty() -> Case {
    let is_small = |it: &InstanceType| {
        let cpus = Quantity::from_i64(MOST_CPUS, model::quantity::Format::DecimalSi).ok();
        it.capacity.get(api::resources::CPU).zip(cpus.as_ref()).is_some_and(|(has, most)| has <= most)
    };
    let requirements = json!([among(api::labels::CAPACITY_TYPE, &["on-demand"])]);
    // All may go at once: what is compared is what is decided.
    let spec = json!({
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}],
        },
    });
    let mut pool = node_pool(NODE_POOL, &requirements, spec, &json!({}));
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2023-11-14T22:13:20Z",
    });
    pool["status"] = json!({"conditions": [ready]});
    Case {
        instance_types: catalogues::real_shaped().into_iter().filter(is_small).collect(),
        node_pools: vec![pool],
        ..Case::default()
    }
}

/// The machines that are planned for deployments without rules, the first so many of them.
fn planned(nodes: usize) -> Result<Fleet> {
    // A machine holds between two and three of these pods; what is too much is left out.
    const PODS_PER_NODE: usize = 6;
    let mut case = empty();
    case.pods = pods::deployments(Mix::Ratios, nodes * PODS_PER_NODE, &mut Random::new(11));
    launched(case, nodes)
}

/// The first so many machines that are planned for the pods of a case, with their pods; the other pods are left out.
fn launched(mut case: Case, nodes: usize) -> Result<Fleet> {
    let path = std::env::temp_dir().join(format!("dovetail-bench-fleet-{}-{nodes}", std::process::id()));
    case.write(&path)?;
    let snapshot = Input::read(&path)?.snapshot()?;
    std::fs::remove_file(&path)?;
    let plan = provisioning::plan(&snapshot);
    ensure!(plan.machines.len() >= nodes, "{} machines hold all pods, {nodes} are wanted", plan.machines.len());
    for (index, machine_of_plan) in plan.machines.iter().take(nodes).enumerate() {
        let catalogue = &snapshot.node_pools[machine_of_plan.node_pool].catalogue;
        let launch = machine_of_plan.launch;
        let zone = snapshot.interner.value_name(launch.zone);
        let of = by_name(&case, catalogue.types[launch.instance_type].name.as_str())?;
        let mut node = of_fleet(&format!("node-{index:05}"), of, offering(of, zone, launch.capacity_type)?);
        node.pods = machine_of_plan
            .pods
            .iter()
            .map(|&id| template(&case, &snapshot.pods[id].pod.name.name))
            .collect::<Result<_>>()?;
        case.nodes.push(node);
    }
    case.pods.clear();
    Ok(Fleet(case))
}

/// Of each ten pods three, whichever, are gone.
fn thinned(nodes: usize) -> Result<Fleet> {
    without_three_of_ten(planned(nodes)?)
}

fn without_three_of_ten(Fleet(mut case): Fleet) -> Result<Fleet> {
    let mut random = Random::new(12);
    for node in &mut case.nodes {
        node.pods.retain(|_| random.below(10) >= 3);
    }
    Ok(Fleet(case))
}

/// Machines with GPUs as they are planned for pods that claim some of them.
fn with_gpus(nodes: usize) -> Result<Fleet> {
    const PODS_PER_NODE: usize = 6;
    let mut case = empty();
    gpus::add_to(&mut case)?;
    case.pods = gpus::pods(nodes * PODS_PER_NODE, &mut Random::new(13));
    without_three_of_ten(launched(case, nodes)?)
}

/// A machine of the fleets, with its devices and without pods.
pub(super) fn of_fleet(name: &str, of: &InstanceType, offering: &Offering) -> CaseNode {
    CaseNode { slices: gpus::slices(name, of), ..machine(name, NODE_POOL, of, offering).into() }
}

/// Machines of 4 vCPUs with one pod of 2.2 vCPUs each, in equal numbers in three zones to which the pods are bound. No
/// pod fits beside another, a machine for one pod alone is no cheaper, and three fit on a machine of 8 vCPUs: what
/// three machines hold costs two thirds of it on one, in each zone by itself.
fn planted(nodes: usize) -> Fleet {
    let mut case = empty();
    for index in 0..nodes {
        let zone = catalogues::ZONES[index % catalogues::ZONES.len()];
        let template = pod(json!({"app": zone}), 2200, 2048, json!({"nodeSelector": {pods::ZONE: zone}}));
        let of = case.instance_types.iter().find(|it| it.name.as_str() == "c7g.xlarge");
        let offering = of.and_then(|of| {
            of.offerings.iter().find(|it| it.zone == zone && it.capacity_type == CapacityType::OnDemand)
        });
        if let (Some(of), Some(offering)) = (of, offering) {
            let mut node = of_fleet(&format!("node-{index:05}"), of, offering);
            node.pods.push(template);
            case.nodes.push(node);
        }
    }
    Fleet(case)
}

pub(super) fn by_name<'c>(case: &'c Case, name: &str) -> Result<&'c InstanceType> {
    case.instance_types.iter().find(|it| it.name.as_str() == name).with_context(|| format!("no type {name}"))
}

pub(super) fn offering<'c>(of: &'c InstanceType, zone: &str, capacity_type: CapacityType) -> Result<&'c Offering> {
    let is_it = |it: &&Offering| it.zone == zone && it.capacity_type == capacity_type;
    of.offerings.iter().find(is_it).with_context(|| format!("{} is not to be had in {zone}", of.name))
}

/// Waiting pods are called `pod-000000` and so on.
fn template(case: &Case, name: &str) -> Result<Value> {
    let index: usize =
        name.strip_prefix("pod-").and_then(|number| number.parse().ok()).context("a pod of another case")?;
    case.pods.get(index).cloned().with_context(|| format!("no pod {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_have_as_many_nodes_as_they_say_and_every_node_has_its_claim() -> Result<()> {
        for fleet in all().into_iter().filter(|fleet| fleet.nodes <= 300) {
            let Fleet(case) = fleet.make()?;
            assert_eq!(case.nodes.len(), fleet.nodes, "{}", fleet.name);
            assert!(case.nodes.iter().all(|node| node.node_claim.is_some()), "{}", fleet.name);
            assert!(case.nodes.iter().any(|node| !node.pods.is_empty()), "{}", fleet.name);
            assert!(price(&case)? > 0, "{}", fleet.name);
        }
        Ok(())
    }
}
