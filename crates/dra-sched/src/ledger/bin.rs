//! The devices of one machine: an existing node, or a planned machine that is still one of several shapes.

use std::sync::{Arc, OnceLock};

use model::IdSet;
use model::NodeName;

use super::{ClusterLedger, MachineOverhead, Usage};
use crate::compile::ids::ShapeId;
use crate::faults::Fault;
use crate::inventory::shared::Brought;
use crate::inventory::unit::BinId;
use crate::inventory::view::View;
use crate::inventory::{Domain, Inventory};
use dra_types::{NodeFacts, NodeSelector};

/// Where a claim can be used once it is allocated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Place {
    /// On one planned machine.
    Bin(BinId),
    /// On one node.
    Node(Option<NodeName>),
    /// On nodes that match; None for all.
    Nodes(Option<Arc<NodeSelector>>),
}

/// What a machine would hold if it were of one shape.
#[derive(Debug, Clone)]
pub(crate) struct Hypothesis {
    pub(crate) shape: ShapeId,
    /// Devices of the machine itself and of the cluster.
    pub(crate) usage: Usage,
}

/// The devices of one machine. Cheap to clone; a packer keeps it beside its own record of the machine.
#[derive(Debug, Clone)]
pub struct BinLedger {
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// It exists; all that is taken is in the cluster's ledger.
    Node(Arc<ExistingNode>),
    /// It is planned.
    Machine { id: BinId, domain: Domain, hypotheses: Vec<Hypothesis> },
}

/// A node that exists, with what it sees.
#[derive(Debug)]
pub(crate) struct ExistingNode {
    pub(crate) facts: NodeFacts,
    view: OnceLock<Result<Arc<View>, Fault>>,
}

impl ExistingNode {
    /// What the node sees. The view is made once, unless a planned machine brings the node a pool.
    pub(crate) fn view(&self, inventory: &Inventory, cluster: &ClusterLedger) -> Result<Arc<View>, Fault> {
        let brought = cluster.brought_to(inventory, &self.facts)?;
        let order = cluster.pool_order();
        if brought.is_empty() {
            self.view.get_or_init(|| View::of_node(inventory, &self.facts, &brought, order)).clone()
        } else {
            View::of_node(inventory, &self.facts, &brought, order)
        }
    }
}

impl BinLedger {
    /// A node that exists. Its pools are gathered once, so it is worth keeping; it must not be used with another
    /// inventory.
    pub fn node(facts: NodeFacts) -> Self {
        Self { kind: Kind::Node(Arc::new(ExistingNode { facts, view: OnceLock::new() })) }
    }

    /// A machine to be, of any of the given shapes.
    pub fn machine(shapes: &IdSet<ShapeId>, cluster: &mut ClusterLedger) -> Self {
        Self::machine_with(shapes, &MachineOverhead::default(), cluster)
    }

    /// A machine some of whose devices are taken from the start.
    pub fn machine_with(shapes: &IdSet<ShapeId>, overhead: &MachineOverhead, cluster: &mut ClusterLedger) -> Self {
        let hypotheses = shapes.iter().map(|shape| Hypothesis { shape, usage: overhead.of(shape) }).collect();
        Self { kind: Kind::Machine { id: cluster.open(), domain: Domain::default(), hypotheses } }
    }

    /// The machine with nothing taken of its own devices, as it is before its daemons come.
    #[must_use]
    pub fn without_overhead(&self) -> Self {
        let mut bare = self.clone();
        if let Kind::Machine { hypotheses, .. } = &mut bare.kind {
            hypotheses.iter_mut().for_each(|hypothesis| hypothesis.usage = Usage::default());
        }
        bare
    }

    /// The machine's number in its ledger; None for a node that exists.
    pub fn id(&self) -> Option<BinId> {
        match &self.kind {
            Kind::Node(_) => None,
            Kind::Machine { id, .. } => Some(*id),
        }
    }

    /// The domain that the machine is pinned to so far.
    pub fn domain(&self) -> Option<&Domain> {
        match &self.kind {
            Kind::Node(_) => None,
            Kind::Machine { domain, .. } => Some(domain),
        }
    }

    /// The shapes that the machine may still have; None for a node that exists.
    pub fn shapes(&self) -> Option<impl Iterator<Item = ShapeId> + '_> {
        match &self.kind {
            Kind::Node(_) => None,
            Kind::Machine { hypotheses, .. } => Some(hypotheses.iter().map(|hypothesis| hypothesis.shape)),
        }
    }

    /// Drops the shapes that other filters excluded, and refunds what only they needed. A machine without a shape is
    /// gone, and so are the pools that only it brought; ask [`ClusterLedger::users_of_pools`] before who holds devices
    /// of these.
    pub fn release(&mut self, inventory: &Inventory, cluster: &mut ClusterLedger, keep: &IdSet<ShapeId>) {
        if let Kind::Machine { id, domain, hypotheses } = &mut self.kind {
            hypotheses.retain(|hypothesis| keep.contains(hypothesis.shape));
            settle(inventory, cluster, *id, domain, hypotheses);
        }
    }

    /// Pins labels that a choice outside of the engine decided, such as the machine's zone; `labels` may be empty. From
    /// then on others can use the pools that the machine certainly brings for its domain. Without this call that begins
    /// with the first [`crate::Alternative::commit`].
    pub fn pin(&mut self, inventory: &Inventory, cluster: &mut ClusterLedger, labels: &Domain) {
        if let Kind::Machine { id, domain, hypotheses } = &mut self.kind {
            domain.0.extend(labels.0.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
            settle(inventory, cluster, *id, domain, hypotheses);
        }
    }
}

/// Withholds from others what any hypothesis takes of the cluster, and offers them the pools that the machine certainly
/// brings.
pub(crate) fn settle(
    inventory: &Inventory,
    cluster: &mut ClusterLedger,
    bin: BinId,
    domain: &Domain,
    hypotheses: &[Hypothesis],
) {
    let mut most = Usage::default();
    for hypothesis in hypotheses {
        most.max(&hypothesis.usage);
    }
    // Nobody else can use devices of the machine itself.
    most.dedicated.retain(|unit| !inventory.is_planned(unit.key()));
    most.shares.retain(|unit, _| !inventory.is_planned(unit.key()));
    most.counters.retain(|(pool, ..), _| !inventory.is_planned_pool(*pool));
    cluster.withhold(bin, most);
    cluster.bring(bin, certain(inventory, bin, domain, hypotheses));
}

/// The pools that a machine brings whatever shape it will have.
fn certain(inventory: &Inventory, bin: BinId, domain: &Domain, hypotheses: &[Hypothesis]) -> Vec<Brought> {
    let Some((first, rest)) = hypotheses.split_first() else { return Vec::new() };
    let mut certain = inventory.brought_by(first.shape, domain, bin);
    for hypothesis in rest {
        if certain.is_empty() {
            break;
        }
        let brought = inventory.brought_by(hypothesis.shape, domain, bin);
        certain.retain(|pool| brought.contains(pool));
    }
    certain
}
