//! The claims that kube-scheduler allocated, against the planner's allocator on what was published.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use dra_sched::{ClaimClassId, ClusterLedger, Inventory};
use dra_types::{Allocation, ClaimSource, PodGroup};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::AGENT;
use super::annex::is_of_annex;
use super::crowd::CROWD;
use super::driver::Order;
use crate::Gates;
use crate::cluster::{Corner, node_of};
use crate::devices::{Claim, Devices, Given, Numbers, pod_groups};
use crate::fidelity::CLASS;
use crate::fidelity::reading::{planned_pods, refused};

/// Most classes all of whose orders are tried.
const MAX_CLASSES: usize = 5;

/// How the claims came out.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) claims: usize,
    pub(super) in_another_order: usize,
    pub(super) as_published: usize,
    /// Drivers of which the claims were given devices, or were to be.
    pub(super) drivers: usize,
    /// Drivers of which they were given more or fewer than the plan says, in words.
    pub(super) other_devices: Vec<String>,
    pub(super) wrong: Vec<String>,
}

/// How many devices of each driver.
pub(super) type ByDriver = BTreeMap<String, u64>;

/// What the claims of a class were given on a node.
type ByPlace = BTreeMap<(String, String), Vec<Given>>;

/// A bound pod and the claims that were allocated with it. Those of pods that the plan refused are here too: what they
/// hold is not free, whether they came to be bound or kube-scheduler allocated for a group that it then left waiting.
/// So are those of nodes that are no machines.
struct Bound {
    class: String,
    /// Empty where the pod is not bound.
    node: String,
    is_planned: bool,
    /// Indices of claims, in the order of allocation.
    claims: Vec<usize>,
    /// When the last of them was allocated.
    version: u64,
}

struct Cluster {
    devices: Devices,
    bound: Vec<Bound>,
}

/// `planned` says how many devices the plan took, of each driver.
pub(super) async fn judge(corner: &Corner, gates: Gates, order: &Order, planned: &ByDriver) -> Result<Judged> {
    let pods = corner.pods().await?;
    let mut judged = Judged::default();
    let cluster = Cluster::read(corner, &pods, (gates, order), &mut judged.wrong).await?;
    judged.claims = cluster.bound.iter().map(|bound| bound.claims.len()).sum();
    let given = cluster.given_by_driver();
    let drivers: BTreeSet<&String> = planned.keys().chain(given.keys()).collect();
    judged.drivers = drivers.len();
    let of = |devices: &ByDriver, driver: &String| devices.get(driver).copied().unwrap_or(0);
    let differ = drivers.iter().filter(|driver| of(planned, driver) != of(&given, driver));
    let words = |driver: &&String| {
        format!("{driver}: {} devices were planned, {} were given", of(planned, driver), of(&given, driver))
    };
    judged.other_devices = differ.map(words).collect();
    let actual = cluster.actual();
    let as_they_came: Vec<&Bound> = cluster.bound.iter().collect();
    if cluster.replay(&as_they_came).as_ref() == Ok(&actual) {
        return Ok(judged);
    }
    if cluster.is_as_published() {
        judged.as_published = judged.claims;
        return Ok(judged);
    }
    let classes: BTreeSet<&str> = cluster.bound.iter().map(|bound| bound.class.as_str()).collect();
    let is_as_given = |order: &Vec<&str>| {
        let mut bound: Vec<&Bound> = cluster.bound.iter().collect();
        bound.sort_by_key(|bound| order.iter().position(|class| *class == bound.class));
        cluster.replay(&bound).as_ref() == Ok(&actual)
    };
    let as_in_some_order =
        || classes.len() <= MAX_CLASSES && orders(&classes.into_iter().collect::<Vec<_>>()).iter().any(is_as_given);
    if as_in_some_order() || cluster.is_as_in_orders_of_nodes(&actual) {
        judged.in_another_order = judged.claims;
        return Ok(judged);
    }
    judged.wrong.push(match cluster.replay(&as_they_came) {
        Ok(expected) => {
            let differs = |(place, given): (&(String, String), &Vec<Given>)| {
                let expected = expected.get(place);
                (expected != Some(given)).then(|| format!("{place:?}: {given:?}, expected {expected:?}"))
            };
            let differences: Vec<String> = actual.iter().filter_map(differs).collect();
            format!("claims of (node, class) are not as planned: {}", differences.join("; "))
        }
        Err(why) => format!("the planner's allocator does not give what the scheduler gave: {why}"),
    });
    Ok(judged)
}

fn orders<'c>(classes: &[&'c str]) -> Vec<Vec<&'c str>> {
    let mut orders: Vec<Vec<&str>> = vec![Vec::new()];
    for class in classes {
        let longer = |order: &Vec<&'c str>| {
            let order = order.clone();
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, class);
                longer
            })
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

impl Cluster {
    async fn read(
        corner: &Corner,
        pods: &[Pod],
        (gates, order): (Gates, &Order),
        wrong: &mut Vec<String>,
    ) -> Result<Self> {
        let devices = Devices::read(&corner.client, gates, &[&corner.name]).await?;
        let groups = pod_groups(&corner.client, &corner.name).await?;
        let refused = refused(corner).await?;
        let machines = corner.all_node_claims().await?;
        let planned: BTreeSet<String> = machines.iter().filter_map(planned_pods).flatten().collect();
        let mut bound = Vec::new();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        for pod in pods {
            let has_machine = pod.uid().is_some_and(|uid| planned.contains(&uid));
            let is_planned = (has_machine || !refused.contains(&pod.name_any())) && !is_of_annex(pod);
            let node = match node_of(pod) {
                Some(node) => node,
                None if is_planned => continue,
                None => "",
            };
            let class = pod.labels().get(CLASS).map_or(AGENT, String::as_str);
            let mut mine = Vec::new();
            for name in claim_names(pod, &groups) {
                let found = devices.claims.iter().position(|claim| *claim.object.meta.name.name == *name);
                let claim = found.and_then(|index| Some((index, devices.claims.get(index)?)));
                match claim {
                    Some((index, claim)) if claim.object.allocation.is_some() => {
                        if taken.insert(index) {
                            mine.push(index);
                        }
                    }
                    _ if !is_planned => {}
                    Some(_) => wrong.push(format!("{}: its claim {name} is not allocated", pod.name_any())),
                    None => wrong.push(format!("{}: its claim {name} does not exist", pod.name_any())),
                }
            }
            let allocated_at = |claim: &Claim| order.of(&claim.object.meta.name.name).unwrap_or(claim.version);
            let version =
                mine.iter().filter_map(|index| devices.claims.get(*index).map(allocated_at)).max().unwrap_or(0);
            bound.push(Bound { class: class.to_owned(), node: node.to_owned(), is_planned, claims: mine, version });
        }
        bound.sort_by_key(|bound| bound.version);
        for (index, claim) in devices.claims.iter().enumerate() {
            if claim.object.allocation.is_some() && !taken.contains(&index) {
                wrong.push(format!("claim {} is allocated, and no bound pod has it", claim.object.meta.name.name));
            }
        }
        Ok(Self { devices, bound })
    }

    fn claims_of<'c>(&'c self, bound: &'c Bound) -> impl Iterator<Item = &'c Claim> {
        bound.claims.iter().filter_map(|index| self.devices.claims.get(*index))
    }

    fn allocations_of<'c>(&'c self, bound: &'c Bound) -> impl Iterator<Item = &'c Allocation> {
        self.claims_of(bound).filter_map(|claim| claim.object.allocation.as_ref())
    }

    /// How many devices of each driver the scheduler gave to pods that were planned, but for DaemonSets' and those of a
    /// claim that was allocated before.
    fn given_by_driver(&self) -> ByDriver {
        let is_counted = |bound: &&Bound| bound.is_planned && bound.class != AGENT && bound.class != CROWD;
        let planned = self.bound.iter().filter(is_counted);
        let allocations = planned.flat_map(|bound| self.allocations_of(bound));
        let mut given = ByDriver::new();
        for result in allocations.flat_map(|allocation| &allocation.results) {
            *given.entry(result.device.driver.to_string()).or_default() += 1;
        }
        given
    }

    /// What the scheduler gave.
    fn actual(&self) -> ByPlace {
        let mut given = ByPlace::new();
        for bound in self.bound.iter().filter(|bound| bound.is_planned && !bound.claims.is_empty()) {
            let place = (bound.node.clone(), bound.class.clone());
            given
                .entry(place)
                .or_default()
                .extend(self.allocations_of(bound).map(|it| self.devices.given(it, Numbers::Count)));
        }
        sorted(given)
    }

    /// Whether the planner's allocator gives each pod what it was given out of what was published at some time before:
    /// pools of a zone come one by one, with the machines that bring them. Pods come about in the order in which their
    /// claims were written: the scheduler writes while it goes on. Access as administrator takes nothing from others,
    /// so who has nothing else may have come before any of them.
    fn is_as_published(&self) -> bool {
        let history = self.devices.history();
        let mut held: Vec<&Allocation> = Vec::new();
        let mut left: Vec<&Bound> = self.bound.iter().filter(|bound| !bound.claims.is_empty()).collect();
        while !left.is_empty() {
            let is_explained = |bound: &&Bound| self.explains(bound, &history, &held);
            let harmless = left.iter().position(|bound| self.takes_nothing(bound) && is_explained(bound));
            let Some(next) = harmless.or_else(|| left.iter().position(is_explained)) else { return false };
            let bound = left.remove(next);
            held.extend(self.allocations_of(bound));
        }
        true
    }

    fn takes_nothing(&self, bound: &Bound) -> bool {
        self.allocations_of(bound).flat_map(|allocation| &allocation.results).all(|result| result.admin_access)
    }

    fn explains(&self, bound: &Bound, history: &[(u64, Inventory)], held: &[&Allocation]) -> bool {
        if !bound.is_planned {
            return true;
        }
        let classes: Vec<ClaimClassId> = self.claims_of(bound).map(|claim| claim.class).collect();
        let shapes = |allocation: &Allocation| self.devices.given(allocation, Numbers::Count);
        let actual: Vec<Given> = self.allocations_of(bound).map(shapes).collect();
        history.iter().filter(|(version, _)| *version <= bound.version).any(|(_, then)| {
            let allocations = self.devices.allocate_then(then, &bound.node, &classes, held);
            allocations.is_ok_and(|allocations| allocations.iter().map(shapes).eq(actual.iter().cloned()))
        })
    }

    /// Whether each node has an order of its classes in which the planner's allocator gives what was given there. The
    /// scheduler writes allocations side by side, so the order in which they came is not always that in which it made
    /// them.
    fn is_as_in_orders_of_nodes(&self, actual: &ByPlace) -> bool {
        let mut order: Vec<&Bound> = self.bound.iter().collect();
        let nodes: BTreeSet<&str> = actual.keys().map(|(node, _)| node.as_str()).collect();
        for node in nodes {
            let positions: Vec<usize> = (0..order.len()).filter(|at| order[*at].node == node).collect();
            let classes: BTreeSet<&str> = positions.iter().map(|at| order[*at].class.as_str()).collect();
            if classes.len() > MAX_CLASSES {
                return false;
            }
            let of_node = |all: &ByPlace| -> ByPlace {
                let here = all.iter().filter(|((of, _), _)| of == node);
                here.map(|(place, given)| (place.clone(), given.clone())).collect()
            };
            let wanted = of_node(actual);
            let found = orders(&classes.into_iter().collect::<Vec<_>>()).into_iter().find_map(|classes| {
                let mut mine: Vec<&Bound> = positions.iter().map(|at| order[*at]).collect();
                mine.sort_by_key(|bound| classes.iter().position(|class| *class == bound.class));
                let mut tried = order.clone();
                positions.iter().zip(mine).for_each(|(at, bound)| tried[*at] = bound);
                self.replay(&tried).is_ok_and(|given| of_node(&given) == wanted).then_some(tried)
            });
            let Some(found) = found else { return false };
            order = found;
        }
        self.replay(&order).as_ref() == Ok(actual)
    }

    /// What the planner's allocator gives pods that come in this order, on the nodes that they are on.
    fn replay(&self, order: &[&Bound]) -> Result<ByPlace, String> {
        let mut ledger = ClusterLedger::new(&self.devices.inventory);
        let mut given = ByPlace::new();
        for bound in order.iter().filter(|bound| !bound.claims.is_empty()) {
            if !bound.is_planned {
                self.allocations_of(bound).for_each(|allocation| ledger.hold(&self.devices.inventory, allocation));
                continue;
            }
            let classes: Vec<ClaimClassId> = self.claims_of(bound).map(|claim| claim.class).collect();
            let allocations = self.devices.allocate(&bound.node, &classes, &ledger);
            let allocations = allocations.map_err(|why| format!("class {} {why}", bound.class))?;
            for allocation in &allocations {
                ledger.hold(&self.devices.inventory, allocation);
            }
            let place = (bound.node.clone(), bound.class.clone());
            let shapes = allocations.iter().map(|it| self.devices.given(it, Numbers::Count));
            given.entry(place).or_default().extend(shapes);
        }
        Ok(sorted(given))
    }
}

fn sorted(mut given: ByPlace) -> ByPlace {
    given.values_mut().for_each(|of_place| of_place.sort_by_key(|given| format!("{given:?}")));
    given
}

/// The claims of a pod as its status and its group's name them, that for extended resources last.
fn claim_names(pod: &Pod, groups: &[PodGroup]) -> Vec<String> {
    let spec = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let group = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref()?.pod_group_name.clone());
    let group = group.and_then(|name| groups.iter().find(|group| *group.meta.name.name == *name));
    let status = pod.status.as_ref();
    let made = |entry: &str, template: &str| {
        let of_group = group.and_then(|group| {
            let is_it =
                |it: &&dra_types::PodClaim| &*it.name == entry && it.source == ClaimSource::Template(template.into());
            group.claims.iter().find(is_it)?;
            group.claim_names.get(entry)?.as_deref().map(str::to_owned)
        });
        let of_pod = || {
            let mut statuses = status?.resource_claim_statuses.iter().flatten();
            statuses.find(|it| it.name == entry)?.resource_claim_name.clone()
        };
        of_group.or_else(of_pod)
    };
    let named = spec.filter_map(|entry| {
        let template = entry.resource_claim_template_name.as_deref().unwrap_or_default();
        entry.resource_claim_name.clone().or_else(|| made(&entry.name, template))
    });
    let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    named.chain(extended.map(|it| it.resource_claim_name.clone())).collect()
}
