//! Karpenter's order of packing, for comparison and as a plan that ours must never be dearer than.
//!
//! Pods go one by one, by CPU and then memory, largest first: onto an existing node, else into the open machine with
//! fewest pods that takes it, else into a new machine of the most preferred pool. A machine keeps every type that holds
//! its pods, and the cheapest of them is launched in the end. Pods without a place are tried again until nothing
//! changes.
//!
//! Copies of a class come one after the other; those that nothing couples go into a machine until it has as many pods
//! as the next that may have room. Machines with as many pods are in a tree by what the largest of their types has
//! free, so those without room are not looked at; and what does not take a copy is not asked again for the next, unless
//! rules over labels may let it in by then. Which machines are elsewhere, and how many copies rules over hosts let onto
//! each, is known from the classes before. So work grows with the pods, and with classes × machines that have room for
//! them.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{IdVec, ResourceId, ResourceVec, collections::FastSet};
use smallvec::SmallVec;

use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::PoolRank;
use crate::simulation::compile::residual_capacity::SlackTree;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::BinId;
use crate::simulation::placing::choose;
use crate::simulation::placing::choose::Allowed;
use crate::simulation::placing::fill::on_nodes;
use crate::simulation::topology::Scope;
use crate::snapshot::NodeId;
use crate::tuning::KARPENTER_STEPS;

/// Places what it can of the waiting copies; says whether it came to the end. Nobody waits for it but who asked for it,
/// and nobody is refused by it: what is left goes class by class.
pub(crate) fn place(packing: &mut Packing<'_>, waiting: &mut IdVec<ClassId, u32>, is_asked_for: bool) -> bool {
    let problem = packing.problem;
    let mut order: Vec<ClassId> =
        waiting.ids().filter(|&class| waiting[class] > 0 && !problem.classes[class].is_refused()).collect();
    order.sort_by_key(|&class| {
        let requests = &problem.classes[class].shape.requests;
        (Reverse(requests.get(ResourceId::CPU)), Reverse(requests.get(ResourceId::MEMORY)), class)
    });
    let mut machines = Machines::default();
    loop {
        let before: u64 = waiting.iter().map(|&left| u64::from(left)).sum();
        for &class in &order {
            let mut copies = Copies::new(packing, class);
            if copies.is_free {
                waiting[class] = on_nodes(packing, class, waiting[class]).so_far();
            }
            while waiting[class] > 0 {
                let placed = copies.place_some(packing, &mut machines, waiting[class]);
                if placed == 0 {
                    break;
                }
                waiting[class] -= placed;
                if packing.aim.is_too_dear(packing.state.price()) || (machines.steps > KARPENTER_STEPS && !is_asked_for)
                {
                    return false;
                }
            }
        }
        let after: u64 = waiting.iter().map(|&left| u64::from(left)).sum();
        if after == 0 || after == before {
            packing.merge_assignments();
            return true;
        }
    }
}

/// Where in the order of trying a machine comes: fewer pods first, then those opened earlier.
type Position = (u32, BinId);

/// Open machines in the order of trying.
#[derive(Debug, Default)]
struct Machines {
    /// By pods: how many machines have so many, and what the largest of their types has free.
    by_pods: BTreeMap<u32, (usize, SlackTree)>,
    /// By machine.
    pods: Vec<u32>,
    /// How many machines and nodes were asked.
    steps: u64,
}

impl Machines {
    /// What is said of the first machine about which something is said, from a position on; asked are those whose
    /// largest type has so much free.
    fn find_from<T>(
        &self,
        from: Position,
        requests: &ResourceVec,
        mut ask: impl FnMut(Position) -> Option<T>,
    ) -> Option<T> {
        self.by_pods.range(from.0..).find_map(|(&pods, (_, tree))| {
            let mut place = if pods == from.0 { from.1.0 } else { 0 };
            loop {
                place = tree.next(place, requests).filter(|place| *place < self.pods.len())?;
                if self.pods.get(place) == Some(&pods)
                    && let Some(found) = ask((pods, BinId(place)))
                {
                    return Some(found);
                }
                place += 1;
            }
        })
    }

    /// The first machine from a position on whose largest type has so much free.
    fn next(&self, from: Position, requests: &ResourceVec) -> Option<Position> {
        self.find_from(from, requests, Some)
    }

    /// A machine got more pods, its first if it is new.
    fn add_pods(&mut self, packing: &Packing<'_>, id: BinId, more: u32) {
        let Some(bin) = packing.state.bins.get(id.0) else { return };
        if self.pods.len() <= id.0 {
            self.pods.resize(id.0 + 1, 0);
        }
        let Some(pods) = self.pods.get_mut(id.0) else { return };
        if let Some((machines, tree)) = self.by_pods.get_mut(pods) {
            *machines -= 1;
            if *machines == 0 {
                self.by_pods.remove(pods);
            } else {
                tree.set(id.0, &ResourceVec::default());
            }
        }
        *pods += more;
        let mut free = packing.problem.pools[bin.pool].most(&bin.offerings);
        free.saturating_sub_assign(&bin.requests);
        let (machines, tree) = self.by_pods.entry(*pods).or_default();
        *machines += 1;
        tree.set(id.0, &free);
    }
}

/// The copies of one class, one after the other.
struct Copies<'p> {
    class: ClassId,
    /// What each takes at least.
    requests: ResourceVec,
    /// Whether no rule, claim or shared volume concerns it.
    is_free: bool,
    /// Whether a machine that takes none now takes none later, but for rules over labels.
    is_lasting: bool,
    /// Whether no rule over labels concerns the class.
    asks_hosts_alone: bool,
    /// The nodes before this one in their order take no copy, unless some were passed over.
    from_node: usize,
    /// Whether nodes were passed over that may take one later.
    has_skipped_nodes: bool,
    /// Nodes that take no copy any more.
    nodes_without_room: FastSet<NodeId>,
    /// How far machines were looked at.
    from: Position,
    has_skipped: bool,
    without_room: FastSet<BinId>,
    /// By pool: the ways in which rules over labels let copies in, once that is asked; as long as none is placed.
    open: IdVec<PoolRank, Option<SmallVec<[Allowed<'p>; 4]>>>,
}

impl<'p> Copies<'p> {
    fn new(packing: &Packing<'_>, class: ClassId) -> Self {
        let problem = packing.problem;
        let pods = &problem.classes[class];
        let groups = || pods.involved.iter().map(|mine| (&problem.topology.groups[mine.group], mine.group));
        let over_hosts = || groups().filter(|(group, _)| group.scope == Scope::Host);
        let rules_last = || over_hosts().all(|(group, id)| group.depends_on_domain_alone(&packing.state.counts[id]));
        Self {
            class,
            // What a copy takes besides depends on who serves its extended resources.
            requests: if pods.devices.is_none() { pods.shape.requests.clone() } else { ResourceVec::default() },
            is_free: problem.is_free(class),
            is_lasting: pods.devices.is_none() && pods.affinity_sets.is_empty() && rules_last(),
            asks_hosts_alone: groups().all(|(group, _)| group.scope == Scope::Host),
            from_node: 0,
            has_skipped_nodes: false,
            nodes_without_room: FastSet::default(),
            from: (0, BinId(0)),
            has_skipped: false,
            without_room: FastSet::default(),
            open: IdVec::filled(None, problem.pools.len()),
        }
    }

    /// Places at least one of the waiting copies, if one has room, and says how many.
    fn place_some(&mut self, packing: &mut Packing<'p>, machines: &mut Machines, waiting: u32) -> u32 {
        let placed = if self.place_on_any_node(packing, machines) {
            1
        } else {
            match self.place_in_open(packing, machines, waiting) {
                0 => u32::from(self.place_in_new(packing, machines)),
                placed => placed,
            }
        };
        if placed > 0 && !packing.problem.classes[self.class].involved.is_empty() {
            self.open.iter_mut().for_each(|open| *open = None);
        }
        placed
    }

    fn place_on_any_node(&mut self, packing: &mut Packing<'_>, machines: &mut Machines) -> bool {
        if std::mem::take(&mut self.has_skipped_nodes) {
            self.from_node = 0;
        }
        while let Some((position, node)) = packing.next_node(self.from_node, self.class) {
            self.from_node = position + 1;
            machines.steps += 1;
            if self.nodes_without_room.contains(&node) {
                continue;
            }
            if packing.copies_on_node(node, self.class, 1).so_far() == 1 {
                packing.place_on_node(node, self.class, 1);
                // It may take another.
                self.from_node = position;
                return true;
            }
            if (self.is_lasting && self.asks_hosts_alone) || !packing.problem.node_accepts(self.class, node) {
                self.nodes_without_room.insert(node);
            } else {
                self.has_skipped_nodes = true;
            }
        }
        false
    }

    fn place_in_open(&mut self, packing: &mut Packing<'p>, machines: &mut Machines, waiting: u32) -> u32 {
        if std::mem::take(&mut self.has_skipped) {
            self.from = (0, BinId(0));
        }
        let requests = std::mem::take(&mut self.requests);
        let mut steps = 0;
        let found = machines.find_from(self.from, &requests, |(pods, id)| {
            self.from = (pods, BinId(id.0 + 1));
            steps += 1;
            if self.without_room.contains(&id) {
                return None;
            }
            let before_next = if self.is_free {
                let next = machines.next(self.from, &requests);
                next.map_or(u32::MAX, |(others, other)| others - pods + u32::from(id < other))
            } else {
                1
            };
            let placed = self.place_in(packing, id, waiting.min(before_next));
            (placed > 0).then_some((id, placed))
        });
        self.requests = requests;
        machines.steps += steps;
        let Some((id, placed)) = found else {
            self.from = (u32::MAX, BinId(0));
            return 0;
        };
        machines.add_pods(packing, id, placed);
        placed
    }

    /// Places copies in an open machine, if that goes; else takes note of whether to ask again.
    fn place_in(&mut self, packing: &mut Packing<'p>, id: BinId, wanted: u32) -> u32 {
        let Some(pool) = packing.state.bins.get(id.0).map(|bin| bin.pool) else { return 0 };
        let (table, class) = (&packing.problem.pools[pool], self.class);
        // What rules let in together is asked copy by copy.
        let most = if self.is_free { u32::MAX } else { 1 };
        let open = self.open[pool].get_or_insert_with(|| choose::allowed_by_labels(packing, pool, class, most));
        for way in open.iter() {
            let is_elsewhere = packing.state.bins.get(id.0).is_none_or(|bin| bin.is_elsewhere(table, way.alternative));
            if is_elsewhere || way.on_host(packing, id, class).is_none() {
                continue;
            }
            let copies = packing.copies_in_bin(id, class, way.alternative, wanted).so_far();
            if copies > 0 {
                packing.place_in_bin(id, class, way.alternative, copies);
                return copies;
            }
        }
        if self.is_lasting && open.len() == table.by_class[class].len() {
            self.without_room.insert(id);
        } else {
            self.has_skipped = true;
        }
        0
    }

    fn place_in_new(&mut self, packing: &mut Packing<'_>, machines: &mut Machines) -> bool {
        for (pool, table) in packing.problem.pools.iter_enumerated() {
            for way in &table.by_class[self.class] {
                machines.steps += 1;
                if packing.copies_in_new_bin(pool, self.class, way, 1).so_far() == 1 {
                    let id = BinId(packing.state.bins.len());
                    packing.open_bin(pool, self.class, way, 1);
                    machines.add_pods(packing, id, 1);
                    self.from = self.from.min((1, id));
                    return true;
                }
            }
        }
        false
    }
}
