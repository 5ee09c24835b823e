//! Devices that plainly run out: where classes want more than there can be wherever they go, no search for room is
//! needed to tell, and none would end soon.

use std::{cell::RefCell, collections::BTreeSet};

use dra_sched::packing::Wanting;
use dra_types::{NodeScope, NodeSelectorOperator, NodeSelectorRequirement};
use model::{KeyId, NodeName, ValueSet};

use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::snapshot::{Node, NodeLabels};

/// Whether so many copies of classes want more devices than there can be, whatever is launched and wherever they go.
pub(crate) fn want_too_much(packing: &Packing<'_>, copies: &[(ClassId, u32)]) -> bool {
    let problem = packing.problem;
    let (Some(of_problem), Some(state)) = (&problem.devices, &packing.state.devices) else { return false };
    let wants_devices = |(class, _): &&(ClassId, u32)| problem.classes[*class].devices.is_some();
    let places: Vec<(Places<'_>, u32)> =
        copies.iter().filter(wants_devices).map(|&(class, copies)| (Places::of(problem, class), copies)).collect();
    let reaches: Vec<_> = places.iter().map(|(of, _)| |scope: &NodeScope| of.reach(scope)).collect();
    let wanting = places.iter().zip(&reaches).filter_map(|((of, copies), reaches)| {
        let claims = of_problem.claims(&problem.classes[of.class], of.variant()?);
        Some(Wanting { claims, copies: *copies, reaches })
    });
    let ledger = of_problem.ledger_after(state.cluster.released());
    dra_sched::packing::want_too_much(&of_problem.devices.inventory, &wanting.collect::<Vec<_>>(), &ledger)
}

/// Where a class could be.
struct Places<'p> {
    problem: &'p Problem<'p>,
    class: ClassId,
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
        let machines = problem.pools.iter().flat_map(|table| table.by_class[class].iter().map(move |it| (table, it)));
        let is_cut_off = problem.pools.iter().any(|table| table.cut_off.contains(class));
        Self { problem, class, nodes, names, machines: machines.collect(), is_cut_off, known: RefCell::default() }
    }

    /// By which of its variants the class is, wherever it goes; `None` if it has several.
    fn variant(&self) -> Option<usize> {
        let on_nodes = self.nodes.iter().map(|node| self.problem.variant_at(self.class, &node.allocatable));
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
