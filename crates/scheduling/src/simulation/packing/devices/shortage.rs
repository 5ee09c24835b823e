//! Devices that plainly run out: where classes want more than there can be wherever they go, no search for room is
//! needed to tell, and none would end soon. Pools that machines bring for others count as often as there can be such
//! machines. Consumers of a claim run out likewise.

use std::{cell::RefCell, collections::BTreeSet};

use dra_sched::packing::{Hosts, Wanting};
use dra_sched::{ClaimId, ClaimUse, ShapeId};
use dra_types::{NodeScope, NodeSelectorOperator, NodeSelectorRequirement};
use model::{IdSet, KeyId, NodeName, ValueSet};

use crate::devices::NodeDevices;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::devices::ProblemDevices;
use crate::simulation::compile::pools::{Alternative, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::snapshot::{Node, NodeLabels};

/// Whether so many copies of classes want more devices than there can be, whatever is launched and wherever they go.
pub(crate) fn want_too_much(packing: &Packing<'_>, copies: &[(ClassId, u32)]) -> bool {
    let problem = packing.problem;
    let (Some(of_problem), Some(state)) = (&problem.devices, &packing.state.devices) else { return false };
    let released = state.cluster.released();
    // What this asks does not depend on nodes and machines, so it comes first.
    if are_too_many_consumers(of_problem, released, problem, copies) {
        return true;
    }
    let wants_devices = |(class, _): &&(ClassId, u32)| problem.classes[*class].devices.is_some();
    let wanting = copies.iter().filter(wants_devices);
    let places: Vec<(ClassId, u32, Places<'_>)> =
        wanting.map(|&(class, copies)| (class, copies, Places::of(problem, class))).collect();
    let reaches: Vec<_> = places.iter().map(|(.., of)| |scope: &NodeScope| of.reach(scope)).collect();
    let wanting = places.iter().zip(&reaches).filter_map(|((class, copies, of), reaches)| {
        let claims = of_problem.claims(&problem.classes[*class], of.variant(*class)?);
        Some(Wanting { claims, copies: *copies, reaches })
    });
    let wanting: Vec<Wanting<'_>> = wanting.collect();
    let inventory = &of_problem.devices.inventory;
    // What is allocated for nobody can be had once its pods are elsewhere.
    let idle = wanting.iter().flat_map(|wanting| inventory.idle(wanting.claims));
    let ledger = of_problem.ledger_after(&released.iter().copied().chain(idle).collect());
    let could_host = Host::all(problem, of_problem);
    let reaches: Vec<_> =
        could_host.iter().flatten().map(|host| |scope: &NodeScope| host.places.reach(scope)).collect();
    let hosts: Option<Vec<Hosts<'_>>> = could_host.as_ref().map(|all| {
        let all = all.iter().zip(&reaches);
        all.map(|(host, reaches)| Hosts { shapes: host.shapes.clone(), machines: host.machines, reaches }).collect()
    });
    dra_sched::packing::want_too_much(inventory, &wanting, hosts.as_deref(), &ledger)
}

/// Whether so many copies of classes are more consumers of a claim than it can have.
fn are_too_many_consumers(
    of_problem: &ProblemDevices<'_>,
    released: &BTreeSet<ClaimId>,
    problem: &Problem<'_>,
    copies: &[(ClassId, u32)],
) -> bool {
    // Variants differ in extended resources only: the claims that exist are the same in each.
    let of_class = |&(class, copies): &(ClassId, u32)| {
        let class = &problem.classes[class];
        let shares = class.devices.as_ref().is_some_and(|devices| devices.shares_claims);
        shares.then(|| (of_problem.claims(class, 0), copies))
    };
    let pods: Vec<(&[ClaimUse], u32)> = copies.iter().filter_map(of_class).collect();
    if pods.is_empty() {
        return false;
    }
    let inventory = &of_problem.devices.inventory;
    let idle = pods.iter().flat_map(|(claims, _)| inventory.idle(claims));
    let ledger = of_problem.ledger_after(&released.iter().copied().chain(idle).collect());
    ledger.are_too_many_consumers(inventory, pods.iter().copied())
}

/// Machines that may bring pools for others: of the pods of one class, or one that is on its way.
struct Host<'p> {
    places: Places<'p>,
    shapes: IdSet<ShapeId>,
    machines: u32,
}

impl<'p> Host<'p> {
    /// All that there could be; `None` if that is not known. A machine is launched for a pod at least.
    fn all(problem: &'p Problem<'p>, of_problem: &ProblemDevices<'p>) -> Option<Vec<Self>> {
        if !of_problem.devices.brings_pools() {
            return Some(Vec::new());
        }
        let inventory = &of_problem.devices.inventory;
        let bringing = |mut shapes: IdSet<ShapeId>| {
            let others: Vec<ShapeId> = shapes.iter().filter(|shape| !inventory.brings_pools(*shape)).collect();
            for shape in others {
                shapes.remove(shape);
            }
            shapes
        };
        let mut hosts = Vec::new();
        for (class, pods) in problem.classes.iter_enumerated().filter(|(_, pods)| !pods.is_refused()) {
            let places = Places::on_machines(problem, class);
            let mut shapes = IdSet::default();
            for (table, alternative) in &places.machines {
                shapes.union_with(&bringing(table.shapes.shapes(&alternative.offerings)));
            }
            if places.is_cut_off {
                return None;
            }
            if !shapes.is_empty() {
                hosts.push(Self { places, shapes, machines: pods.count() });
            }
        }
        for (id, node) in problem.snapshot.nodes.iter_enumerated() {
            let Some(NodeDevices::Expected(shapes)) = of_problem.devices.node(id) else { continue };
            let shapes = bringing(shapes.clone());
            if !shapes.is_empty() {
                hosts.push(Self { places: Places::on(problem, node), shapes, machines: 1 });
            }
        }
        Some(hosts)
    }
}

/// Where pods could be.
struct Places<'p> {
    problem: &'p Problem<'p>,
    nodes: Vec<&'p Node>,
    names: BTreeSet<&'p NodeName>,
    machines: Vec<(&'p PoolTable<'p>, &'p Alternative)>,
    /// Alternatives were left out.
    is_cut_off: bool,
    known: RefCell<Vec<(NodeScope, bool)>>,
}

impl<'p> Places<'p> {
    fn of(problem: &'p Problem<'p>, class: ClassId) -> Self {
        let accepting = problem.node_order.iter().filter(|&&node| problem.node_accepts(class, node));
        let nodes: Vec<&Node> = accepting.map(|&node| &*problem.snapshot.nodes[node]).collect();
        let names = nodes.iter().filter_map(|node| node.name.as_ref()).collect();
        Self { nodes, names, ..Self::on_machines(problem, class) }
    }

    /// On machines to be alone.
    fn on_machines(problem: &'p Problem<'p>, class: ClassId) -> Self {
        let machines = problem.pools.iter().flat_map(|table| table.by_class[class].iter().map(move |it| (table, it)));
        let is_cut_off = problem.pools.iter().any(|table| table.cut_off.contains(class));
        Self { machines: machines.collect(), is_cut_off, ..Self::nowhere(problem) }
    }

    /// On one node.
    fn on(problem: &'p Problem<'p>, node: &'p Node) -> Self {
        Self { nodes: vec![node], names: node.name.iter().collect(), ..Self::nowhere(problem) }
    }

    fn nowhere(problem: &'p Problem<'p>) -> Self {
        let (nodes, names, machines) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { problem, nodes, names, machines, is_cut_off: false, known: RefCell::default() }
    }

    /// By which of its variants the class is, wherever it goes; `None` if it has several.
    fn variant(&self, class: ClassId) -> Option<usize> {
        let on_nodes = self.nodes.iter().map(|node| self.problem.variant_at(class, &node.allocatable));
        let mut variants = on_nodes.chain(self.machines.iter().map(|(_, alternative)| alternative.variant));
        let first = variants.next()?;
        (!self.is_cut_off && variants.all(|variant| variant == first)).then_some(first)
    }

    /// Whether some place could be in a scope.
    fn reach(&self, scope: &NodeScope) -> bool {
        let selector = match scope {
            NodeScope::Node(name) => return self.names.contains(name),
            NodeScope::AllNodes | NodeScope::PerDevice => return true,
            NodeScope::Selector(selector) => selector,
        };
        if let Some((_, known)) = self.known.borrow().iter().find(|(known, _)| known == scope) {
            return *known;
        }
        let reaches = selector.terms.iter().any(|term| {
            let wanted: Vec<(KeyId, ValueSet)> =
                term.match_expressions.iter().filter_map(|expression| self.wanted(expression)).collect();
            self.nodes.iter().any(|node| self.may_be_in(node, &wanted))
                || self.machines.iter().any(|(table, alternative)| self.can_have(table, alternative, &wanted))
        });
        self.known.borrow_mut().push((scope.clone(), reaches));
        reaches
    }

    /// The values that a requirement wants; `None` where that is not looked at.
    fn wanted(&self, requirement: &NodeSelectorRequirement) -> Option<(KeyId, ValueSet)> {
        let names = self.problem.names();
        let values: Option<Vec<_>> = requirement.values.iter().map(|value| names.find_value(value)).collect();
        let is_looked_at = requirement.operator == NodeSelectorOperator::In;
        Some((names.find_key(&requirement.key)?, ValueSet::among(values.filter(|_| is_looked_at)?)))
    }

    fn may_be_in(&self, node: &Node, wanted: &[(KeyId, ValueSet)]) -> bool {
        let names = self.problem.names();
        wanted.iter().all(|(key, values)| match &node.labels {
            NodeLabels::Known(labels) => values.contains(labels.get(*key), names),
            NodeLabels::Promised(promised) => {
                promised.get(*key).is_none_or(|promised| promised.values.intersects(values, names))
            }
        })
    }

    fn can_have(&self, table: &PoolTable<'_>, alternative: &Alternative, wanted: &[(KeyId, ValueSet)]) -> bool {
        let names = self.problem.names();
        let mut offerings = alternative.offerings.iter();
        offerings.any(|id| wanted.iter().all(|(key, values)| table.can_have(Some(id), *key, values, names)))
    }
}
