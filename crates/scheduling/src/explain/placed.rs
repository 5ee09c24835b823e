//! Why a pod is where a finished plan puts it: worked out on demand, for one pod, while all others are where the plan
//! puts them. Planning records nothing for it.
//!
//! The question is asked of a snapshot of its own, in which the planned machines are there with their pods and only the
//! one pod waits. Every place that would have come first (other nodes, other machines of the plan, cheaper offerings)
//! counts at the first rule it fails, in the order taints, labels, resources, rules between pods, limits. Costs a walk
//! over nodes and offerings for each pod asked about. Of devices it is known which machines never have those that the
//! pod claims, and what they cost of the others; they are not allocated once more, and a place that only they could
//! exclude is told as such.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{IdSet, IdVec, Interner, NodeClaimName, Pod, ResourceVec, collections::FastMap};

use crate::catalogue::OfferingId;
use crate::explain::costs::{Footprint, OfDevices};
use crate::explain::{closing, with_devices};
use crate::plan::device_cost::PodDeviceCosts;
use crate::plan::placement::{Decision, Fall, Passed, Placement};
use crate::plan::{Machine, MachineId, Plan, with_virtual_pods};
use crate::simulation::compile::attachments;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::{DeviceRequest, Spot};
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::Charging;
use crate::simulation::topology::Involvement;
use crate::snapshot::affinity;
use crate::snapshot::affinity::{Term, surely};
use crate::snapshot::{Limit, Node, NodeId, NodeLabels, NodeState, PodId, PoolId, Snapshot};

/// Why the plan, which is one of this snapshot, puts a pod where it does; `None` for a pod without a place.
pub fn why_placed(snapshot: &Snapshot, plan: &Plan, pod: PodId) -> Option<Placement> {
    if let Some((snapshot, plan)) = with_virtual_pods(snapshot, plan) {
        return why_placed(&snapshot, &plan, pod);
    }
    let target = Target::of(plan, pod)?;
    let after = with_plan(snapshot, plan, pod, target);
    let request = Request::of(&after.snapshot);
    let request = attachments::as_resources(&request).unwrap_or(request);
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let packing = Packing::new(&problem, &run, Charging::Least);
    let class = problem.classes.ids().next()?;
    let wants_devices = snapshot.pods.try_get(pod)?.devices.is_some();
    let mut giving = if wants_devices { Giving::new(snapshot, pod) } else { Giving::default() };
    giving.add_machines(plan, &after);
    let mut asking = Asking { packing, class, wants_devices, giving };
    let here = after.node_of(target)?;
    let (mut nodes, mut machines) = (Passed::default(), Passed::default());
    let mut comes_first = true;
    for &node in after.in_order(&problem).iter().filter(|&&node| node != here) {
        let passed = if node < after.first_machine { &mut nodes } else { &mut machines };
        match (asking.node(node), target) {
            (_, Target::Node(_)) if node >= after.first_machine => {}
            (Some(fall), _) => passed.add(fall),
            (None, _) => {
                asking.hold(passed);
                comes_first &= problem.position_of(here) < problem.position_of(node);
            }
        }
    }
    let offerings = match target {
        Target::Node(_) => Passed::default(),
        Target::Machine(id) => asking.offerings_before(snapshot, plan.machines.try_get(id)?),
    };
    let was_planned_there = snapshot.pods[pod].planned_on.is_some()
        && snapshot.pods[pod].planned_on == snapshot.nodes.try_get(here).and_then(|node| node.node_claim.clone());
    let decided_by = match target {
        Target::Node(_) if was_planned_there => Decision::PlannedBefore,
        Target::Node(_) if nodes.hold + nodes.by_devices_unasked == 0 => Decision::OnlyRoom,
        Target::Node(_) if comes_first => Decision::FirstRoom,
        Target::Node(_) => Decision::OneOfSeveral,
        Target::Machine(_) if offerings.of == 0 => Decision::CheapestMachine,
        Target::Machine(_) if offerings.hold + offerings.by_devices_unasked == 0 => Decision::CheapestThatRulesLeave,
        Target::Machine(id) => match plan.machines.try_get(id).map_or(0, |machine| machine.pods.len()) {
            0 | 1 => Decision::WholePlan,
            pods => Decision::SharedMachine(pods - 1),
        },
    };
    let names = &*snapshot.interner;
    let [nodes, machines, offerings] = [nodes, machines, offerings].map(|passed| passed.in_order(names));
    Some(Placement { decided_by, nodes, machines, offerings })
}

/// What gives the pod its devices as long as nothing else is planned, and what they cost there. Empty if machines bring
/// devices for others: there it takes the plan to know.
#[derive(Default)]
struct Giving {
    pools: BTreeMap<PoolId, IdSet<OfferingId>>,
    offerings: FastMap<(PoolId, OfferingId), OfDevices>,
    /// `None` for a node that does not give them.
    nodes: FastMap<NodeId, Option<OfDevices>>,
}

impl Giving {
    fn new(snapshot: &Snapshot, pod: PodId) -> Self {
        let request = Request::of(snapshot);
        let problem = Problem::new(&request);
        let run = PlanRun::new(&problem);
        let packing = Packing::new(&problem, &run, Charging::Least);
        let mut giving = Self::default();
        let Some(of_snapshot) = &snapshot.devices else { return giving };
        let of_pod = problem.classes.iter_enumerated().find(|(_, class)| class.members.contains(&pod));
        let Some((class, _)) = of_pod else { return giving };
        let brings = |table: &PoolTable<'_>| table.shapes.iter().any(|shape| of_snapshot.inventory.brings_pools(shape));
        if problem.pools.iter().any(brings) {
            return giving;
        }
        for (rank, table) in problem.pools.iter_enumerated() {
            let Some(offerings) = with_devices(&packing, rank, table, class) else { continue };
            let devices = |offering| Footprint::on_machine(&packing, (rank, table), class, offering).into_devices();
            giving.offerings.extend(offerings.iter().map(|offering| ((table.id, offering), devices(offering))));
            giving.pools.insert(table.id, offerings);
        }
        for &node in &problem.node_order {
            let variant = problem.variant_on(class, node);
            let request = DeviceRequest { spot: Spot::Node(node), class, variant, copies: 1 };
            let Some(ways) = packing.ways(request).so_far() else { continue };
            if ways.most() > 0 {
                giving.nodes.insert(node, Some(Footprint::on_node(&packing, class, node).into_devices()));
            } else if ways.is_decided() {
                giving.nodes.insert(node, None);
            }
        }
        giving
    }

    /// Machines of the plan give what their launch offerings do.
    fn add_machines(&mut self, plan: &Plan, after: &After) {
        for (machine, &node) in plan.machines.iter().zip(after.of_machines.iter()) {
            if let Some(devices) = self.offerings.get(&(machine.node_pool, machine.launch.offering)) {
                self.nodes.insert(node, Some(devices.clone()));
            }
        }
    }
}

/// Where the plan puts the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Node(NodeId),
    Machine(MachineId),
}

impl Target {
    fn of(plan: &Plan, pod: PodId) -> Option<Self> {
        let on_node = plan.existing.iter().find(|placement| placement.pods.contains(&pod));
        let on_machine = || plan.machines.iter_enumerated().find(|(_, machine)| machine.pods.contains(&pod));
        on_node.map(|placement| Self::Node(placement.node)).or_else(|| on_machine().map(|(id, _)| Self::Machine(id)))
    }
}

/// The snapshot once the plan is carried out for all pods but one.
struct After {
    snapshot: Snapshot,
    /// From here on nodes are machines of the plan.
    first_machine: NodeId,
    of_machines: IdVec<MachineId, NodeId>,
}

impl After {
    fn node_of(&self, target: Target) -> Option<NodeId> {
        match target {
            Target::Node(node) => Some(node),
            Target::Machine(id) => self.of_machines.try_get(id).copied(),
        }
    }

    /// All nodes: in the order of trying, then those that take no pods.
    fn in_order(&self, problem: &Problem<'_>) -> Vec<NodeId> {
        let excluded = self.snapshot.nodes.iter_enumerated().filter(|(_, node)| node.excluded.is_some());
        problem.node_order.iter().copied().chain(excluded.map(|(id, _)| id)).collect()
    }
}

fn with_plan(snapshot: &Snapshot, plan: &Plan, asked: PodId, target: Target) -> After {
    let mut after = snapshot.clone();
    let running = |pods: &[PodId]| -> Vec<Arc<Pod>> {
        let others = pods.iter().filter(|&&pod| pod != asked).filter_map(|&pod| snapshot.pods.try_get(pod));
        others.map(|pending| Arc::clone(&pending.pod)).collect()
    };
    // What others' devices cost is not among what their pods request.
    let devices = |costs: &[PodDeviceCosts]| {
        let mut total = ResourceVec::default();
        costs.iter().filter(|of| of.pod != asked).for_each(|of| of.add_to(&mut total));
        total
    };
    for placement in &plan.existing {
        let node = Arc::make_mut(&mut after.nodes[placement.node]);
        node.pods.extend(running(&placement.pods));
        node.allocatable.saturating_sub_assign(&devices(&placement.device_costs));
    }
    let first_machine = model::Id::from_index(snapshot.nodes.len());
    let mut of_machines = IdVec::new();
    for (id, machine) in plan.machines.iter_enumerated() {
        let mut node = as_node(snapshot, machine, running(&machine.pods));
        node.allocatable.saturating_sub_assign(&devices(&machine.device_costs));
        of_machines.push(after.nodes.push(Arc::new(node)));
        if target != Target::Machine(id) {
            let capacity =
                &snapshot.node_pools[machine.node_pool].catalogue.offerings[machine.launch.offering].capacity;
            for limit in &mut after.node_pools[machine.node_pool].remaining {
                let taken = match limit.limit {
                    Limit::Nodes => 1,
                    Limit::Resource(resource) => capacity.get(resource),
                };
                limit.remaining = limit.remaining.saturating_sub(taken);
            }
        }
    }
    after.pods = after.pods.iter_enumerated().filter(|(id, _)| *id == asked).map(|(_, pod)| pod.clone()).collect();
    for pending in after.pods.iter_mut() {
        pending.pod = without_devices(&pending.pod, snapshot, asked);
    }
    after.devices = None;
    After { snapshot: after, first_machine, of_machines }
}

/// The pod without the resources that devices may serve: these are not asked for again.
fn without_devices(pod: &Arc<Pod>, snapshot: &Snapshot, id: PodId) -> Arc<Pod> {
    let demand = snapshot.devices.as_ref().and_then(|devices| devices.demands.try_get(devices.demand_of(id)?));
    let Some(demand) = demand else { return Arc::clone(pod) };
    let mut shape = (*pod.shape).clone();
    for resource in demand.variants.iter().flat_map(|variant| &variant.served) {
        shape.requests.set(*resource, 0);
    }
    Arc::new(Pod { shape: Arc::new(shape), ..(**pod).clone() })
}

/// A planned machine as the node that its launch offering makes.
fn as_node(snapshot: &Snapshot, machine: &Machine, pods: Vec<Arc<Pod>>) -> Node {
    let names = &*snapshot.interner;
    let pool = &snapshot.node_pools[machine.node_pool];
    let offering = &pool.catalogue.offerings[machine.launch.offering];
    let mut labels = pool.requirements.clone();
    labels.intersect(&machine.requirements, names);
    labels.intersect(&offering.requirements, names);
    Node {
        name: None,
        node_claim: Some(NodeClaimName::from(format!("{}-{}", pool.name, machine.index_in_pool))),
        node_pool: Some(pool.name.clone()),
        state: NodeState::Launching,
        excluded: None,
        labels: NodeLabels::Promised(labels),
        taints: pool.taints.clone(),
        allocatable: offering.allocatable.clone(),
        attach_limits: pool.catalogue.types[offering.instance_type].volume_attachment_limits.clone(),
        pods: pods.into(),
        awaits_devices: true,
    }
}

/// One pod that asks for other places.
struct Asking<'p> {
    packing: Packing<'p>,
    class: ClassId,
    wants_devices: bool,
    giving: Giving,
}

impl Asking<'_> {
    fn hold(&self, passed: &mut Passed) {
        passed.of += 1;
        *(if self.wants_devices { &mut passed.by_devices_unasked } else { &mut passed.hold }) += 1;
    }

    fn names(&self) -> &Interner {
        self.packing.problem.names()
    }

    /// The rule that excludes a node.
    fn node(&self, id: NodeId) -> Option<Fall> {
        let (problem, state) = (self.packing.problem, &self.packing.state);
        let pods = &problem.classes[self.class];
        let node = &problem.snapshot.nodes[id];
        if let Some(excluded) = node.excluded {
            return Some(Fall::Excluded(excluded));
        }
        if let Some(taint) = affinity::keeps_out(&node.taints, &pods.shape, self.names()) {
            return Some(Fall::Taint(taint));
        }
        if !pods.terms.iter().any(|term| term.accepts(node, self.names())) {
            let [term] = pods.terms.as_slice() else { return Some(Fall::NodeAffinity) };
            return Some(label_of_node(term, node, self.names()));
        }
        let devices = match self.giving.nodes.get(&id) {
            Some(Some(devices)) => devices.clone(),
            Some(None) if self.wants_devices => return Some(Fall::Devices),
            Some(None) | None => OfDevices::default(),
        };
        let footprint = Footprint::new(self.packing.requests_on(id, self.class), devices);
        if !footprint.fits_in(&state.room[id]) {
            return Some(lacking(&footprint, &state.room[id], self.names()));
        }
        if self.packing.copies_on_node(id, self.class, 1).so_far() == 0 {
            let mut rules = Vec::new();
            closing(&self.packing, pods, |mine, _| problem.topology.place_of_node(mine.group, id), &mut rules);
            return Some(rules.first().map_or(Fall::NodeAffinity, |rule| Fall::PodRule(rule.to_string())));
        }
        None
    }

    /// How the offerings fell that the planner would have taken before that of the machine.
    fn offerings_before(&mut self, snapshot: &Snapshot, machine: &Machine) -> Passed {
        let problem = self.packing.problem;
        let mut passed = Passed::default();
        let mut is_later = false;
        for (rank, table) in problem.pools.iter_enumerated() {
            let is_own = table.id == machine.node_pool;
            let own_price = snapshot.node_pools[machine.node_pool].catalogue.offerings[machine.launch.offering].price;
            for (offering, data) in table.catalogue.offerings.iter_enumerated() {
                let is_cheaper = data.price < own_price;
                match (is_own || is_later, is_cheaper) {
                    (true, false) => {}
                    (true, true) if is_later => passed.add(Fall::PoolOrder),
                    (true, true) | (false, _) => match self.offering(rank, table, offering) {
                        Some(fall) => passed.add(fall),
                        None => self.hold(&mut passed),
                    },
                }
            }
            is_later |= is_own;
        }
        passed
    }

    /// The rule that excludes a new machine from an offering.
    fn offering(&mut self, rank: PoolRank, table: &PoolTable<'_>, id: OfferingId) -> Option<Fall> {
        let problem = self.packing.problem;
        let names = problem.names();
        let pods = &problem.classes[self.class];
        if let Some(taint) = affinity::keeps_out(&table.pool.taints, &pods.shape, names) {
            return Some(Fall::Taint(taint));
        }
        if !table.allows(id, names) {
            return Some(Fall::NodePool);
        }
        if !table.catalogue.offerings[id].launchable() {
            return Some(Fall::Unavailable);
        }
        let conflict = |term: &Term| {
            let mut wanted = term.requirements.iter_by_name(names);
            let wanted = wanted.find(|wanted| !table.can_have(Some(id), wanted.key, &wanted.values, names))?;
            Some(Fall::Label { key: wanted.key, wanted: wanted.values.clone() })
        };
        let mut conflicts = pods.terms.iter().map(conflict);
        match conflicts.next() {
            None => return Some(Fall::NodeAffinity),
            Some(Some(only)) if pods.terms.len() == 1 => return Some(only),
            Some(Some(_)) if conflicts.all(|conflict| conflict.is_some()) => return Some(Fall::NodeAffinity),
            Some(_) => {}
        }
        let devices = self.giving.offerings.get(&(table.id, id)).cloned().unwrap_or_default();
        let footprint = Footprint::new(problem.requests_alone(self.class, 0), devices);
        if !footprint.fits_in(table.net(id)) {
            return Some(lacking(&footprint, table.net(id), names));
        }
        let ways: Vec<Alternative> =
            table.by_class[self.class].iter().filter(|it| it.offerings.contains(id)).cloned().collect();
        let allowed = |way: &&Alternative| self.packing.copies_allowed(None, self.class, way, 1) == 1;
        let Some(way) = ways.iter().find(allowed) else { return Some(self.closed(table, &ways)) };
        let only: IdSet<OfferingId> = [id].into_iter().collect();
        let with_others = !table.min_values.is_empty();
        let way =
            if with_others { way.clone() } else { Alternative { offerings: Arc::new(only.clone()), ..way.clone() } };
        if self.packing.copies_in_new_bin(rank, self.class, &way, 1).so_far() == 1 {
            let is_without = self.giving.pools.get(&table.id).is_some_and(|giving| !giving.contains(id));
            return is_without.then_some(Fall::Devices);
        }
        if with_others {
            return Some(Fall::LimitsOrMinValues);
        }
        let exceeded = table.limits.exceeded(&table.limits.least(&only));
        Some(exceeded.map_or(Fall::LimitsOrMinValues, |exceeded| Fall::Limit(exceeded.limit)))
    }

    /// The rule between pods that closes a new machine in all of its ways.
    fn closed(&self, table: &PoolTable<'_>, ways: &[Alternative]) -> Fall {
        let problem = self.packing.problem;
        let pods = &problem.classes[self.class];
        let rules = crate::explain::closing_ways(&self.packing, pods, ways);
        let needs_label = |mine: &&Involvement| mine.owner;
        let described = |mine: &Involvement| problem.topology.groups[mine.group].describe(problem.names());
        let rule = rules.first().map(ToString::to_string);
        let rule = rule.or_else(|| pods.involved.iter().find(needs_label).map(described));
        debug_assert!(rule.is_some() || !table.pool.remaining.is_empty() || ways.is_empty());
        rule.map_or(Fall::NodePool, Fall::PodRule)
    }
}

/// The first label, by name, by which a term excludes a node.
fn label_of_node(term: &Term, node: &Node, names: &Interner) -> Fall {
    let mut wanted = term.requirements.iter_by_name(names);
    match wanted.find(|wanted| !surely(&node.labels, wanted, names)) {
        Some(wanted) => Fall::Label { key: wanted.key, wanted: wanted.values.clone() },
        None => Fall::NodeAffinity,
    }
}

/// The first resource, by name, that is missing.
fn lacking(footprint: &Footprint<'_>, there: &ResourceVec, names: &Interner) -> Fall {
    let first = footprint.exceeding(there).min_by_key(|wanted| names.resource_name(wanted.resource));
    match first {
        Some(wanted) => Fall::Resource { most: there.get(wanted.resource), wanted },
        None => Fall::NodePool,
    }
}
