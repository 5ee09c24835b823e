//! Workloads, pods and machines at one moment of virtual time.

mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use api::NodePool;
use api::labels::ProviderLabels;
use cluster::snapshot::{BoundPods, Cluster, LaunchableNodePool};
use decode::Context;
use model::pod::{PodPhase, SchedulingState};
use model::{
    DurationMs, Interner, NamespacedName, NodeClaimName, NodeName, Pod, PriceNanoUsdPerHour, ResourceId, ResourceVec,
    Timestamp, Uid, ValueId,
};
use scheduling::Snapshot;
use scheduling::catalogue::Catalogue;
use scheduling::plan::Machine as PlannedMachine;
use scheduling::snapshot::{NodeId, PodId};

use crate::market::{Bought, Market, Wanted, offering_in};
use crate::trace::Workload;

/// How long a machine has to be without coming and going pods before it may be disrupted: `consolidateAfter`.
pub const CONSOLIDATE_AFTER: DurationMs = DurationMs::from_seconds(30);
/// Of the ready machines so many may be disrupted at once, in percent: Karpenter's default.
pub const BUDGET_PERCENT: usize = 10;

/// A machine, in the order in which they were launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineKey(pub u64);

/// A pod, in the order in which they were made. Who takes the place of an evicted pod is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey(pub u64);

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// What it is.
    pub bought: Bought,
    /// The value of its zone label.
    pub zone: ValueId,
    /// What is there for pods.
    pub allocatable: ResourceVec,
    /// What of it no pod has.
    pub free: ResourceVec,
    /// When its Node became ready; `None` while it is coming up.
    pub ready_at: Option<Timestamp>,
    /// Whether no pod has come or left for [`CONSOLIDATE_AFTER`].
    pub is_quiet: bool,
    /// Whether a command takes it away. It takes no pods then.
    pub is_going: bool,
    launched_at: Timestamp,
    last_pod_event: Timestamp,
    objects: Option<objects::Decoded>,
}

/// A pod.
#[derive(Debug)]
pub struct SimulatedPod {
    /// By its number.
    pub workload: usize,
    /// Where it runs.
    pub on: Option<MachineKey>,
    /// Where it is to run, once the machine is ready; of a pod that runs, where its successor is.
    pub planned: Option<MachineKey>,
    /// As planners see it.
    pub pod: Arc<Pod>,
}

/// Everything.
#[derive(Debug)]
pub struct World {
    /// What can be bought.
    pub market: Market,
    /// Those that are there, and coming.
    pub machines: BTreeMap<MachineKey, Machine>,
    /// Those that are wanted.
    pub pods: BTreeMap<PodKey, SimulatedPod>,
    /// How to plan.
    pub options: scheduling::snapshot::Options,
    /// By workload: a pod of it.
    templates: Vec<Pod>,
    /// By workload: the only zone for its pods.
    zones: Vec<Option<ValueId>>,
    node_pool: Arc<NodePool>,
    interner: Interner,
    bound: BoundPods,
    next: u64,
}

impl World {
    /// Without pods and machines.
    ///
    /// # Errors
    /// An object that cannot be decoded.
    pub fn new(workloads: &[Workload]) -> Result<Self> {
        let mut interner = Interner::new();
        let context = &mut Context::new(&mut interner);
        let mut templates = Vec::new();
        let mut zones = Vec::new();
        for workload in workloads {
            let pod = decode::pod(&objects::pod(workload), context).map_err(|error| anyhow!("{error}"))?;
            templates.push(pod);
            let zone = workload.zone.and_then(|zone| bench::catalogues::ZONES.get(zone));
            zones.push(zone.map(|zone| context.interner.value(zone)));
        }
        let node_pool = decode::node_pool_object(&objects::node_pool()).map_err(|error| anyhow!("{error}"))?;
        Ok(Self {
            market: Market::default(),
            machines: BTreeMap::new(),
            pods: BTreeMap::new(),
            options: scheduling::snapshot::Options::default(),
            templates,
            zones,
            node_pool: Arc::new(node_pool),
            interner,
            bound: BoundPods::default(),
            next: 0,
        })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What all machines cost now.
    pub fn price(&self) -> PriceNanoUsdPerHour {
        let prices = self.machines.values().map(|machine| self.market.price(machine.bought));
        prices.fold(PriceNanoUsdPerHour::ZERO, PriceNanoUsdPerHour::saturating_add)
    }

    /// What a machine costs now; nothing if it is not there.
    pub fn price_of(&self, machine: MachineKey) -> i64 {
        self.machines.get(&machine).map_or(0, |machine| self.market.price(machine.bought).0)
    }

    /// The only zone for a workload's pods.
    pub fn zone_of(&self, workload: usize) -> Option<ValueId> {
        self.zones.get(workload).copied().flatten()
    }

    /// A label's value as text.
    pub fn value_name(&self, value: ValueId) -> &str {
        self.interner.value_name(value)
    }

    /// The pods of a machine, the oldest first.
    pub fn pods_on(&self, machine: MachineKey) -> impl Iterator<Item = (PodKey, &SimulatedPod)> {
        self.pods.iter().filter(move |(_, pod)| pod.on == Some(machine)).map(|(key, pod)| (*key, pod))
    }

    /// Whether a pod waits to run on it.
    pub fn is_nominated(&self, machine: MachineKey) -> bool {
        self.pods.values().any(|pod| pod.on.is_none() && pod.planned == Some(machine))
    }

    /// Gives a workload so many replicas. Who goes first: who waits, then who shares its machine with most of its like,
    /// then the youngest.
    pub fn scale(&mut self, workload: usize, replicas: usize, now: Timestamp) {
        let mut of_workload: Vec<PodKey> =
            self.pods.iter().filter(|(_, pod)| pod.workload == workload).map(|(key, _)| *key).collect();
        while of_workload.len() > replicas {
            let mut on: BTreeMap<Option<MachineKey>, usize> = BTreeMap::new();
            for key in &of_workload {
                *on.entry(self.pods[key].on).or_default() += 1;
            }
            let rank = |key: &PodKey| {
                let machine = self.pods[key].on;
                (machine.is_none(), on[&machine], *key)
            };
            let Some(position) = (0..of_workload.len()).max_by_key(|position| rank(&of_workload[*position])) else {
                break;
            };
            let key = of_workload.remove(position);
            self.remove_pod(key, now);
        }
        for _ in of_workload.len()..replicas {
            self.add_pod(workload, None, now);
        }
    }

    /// A pod that waits.
    fn add_pod(&mut self, workload: usize, planned: Option<MachineKey>, now: Timestamp) -> PodKey {
        let key = PodKey(self.number());
        let template = &self.templates[workload];
        let name = format!("{}-{:06}", template.name.name, key.0);
        let pod = Pod {
            name: NamespacedName::new(Arc::clone(&template.name.namespace), name),
            uid: Uid::from(key.0.to_string().as_str()),
            created_at: now,
            scheduling: SchedulingState::Unschedulable,
            ..template.clone()
        };
        self.pods.insert(key, SimulatedPod { workload, on: None, planned, pod: Arc::new(pod) });
        key
    }

    fn remove_pod(&mut self, key: PodKey, now: Timestamp) {
        let Some(pod) = self.pods.remove(&key) else { return };
        if let Some(machine) = pod.on.and_then(|machine| self.machines.get_mut(&machine)) {
            machine.free.saturating_add_assign(&pod.pod.shape.requests);
            machine.touch(now);
            self.bound.remove(&pod.pod);
        }
    }

    fn bind(&mut self, key: PodKey, to: MachineKey, now: Timestamp) {
        let (Some(pod), Some(machine)) = (self.pods.get_mut(&key), self.machines.get_mut(&to)) else { return };
        machine.free.saturating_sub_assign(&pod.pod.shape.requests);
        machine.touch(now);
        pod.on = Some(to);
        pod.planned = None;
        pod.pod = Arc::new(Pod {
            node_name: Some(NodeName::from(name(to).as_str())),
            started_at: Some(now),
            phase: PodPhase::Running,
            scheduling: SchedulingState::Scheduled,
            ..Pod::clone(&pod.pod)
        });
        self.bound.insert(&pod.pod);
    }

    /// Binds what fits, the oldest first: where it was planned, else where most is left free.
    pub fn schedule(&mut self, now: Timestamp) {
        let waiting: Vec<PodKey> = self.pods.iter().filter(|(_, pod)| pod.on.is_none()).map(|(key, _)| *key).collect();
        // Who has a place of its own takes it before others look.
        let mut others = Vec::new();
        for key in waiting {
            let pod = &self.pods[&key];
            match pod.planned.filter(|machine| self.machines.get(machine).is_some_and(|it| self.takes(it, pod))) {
                Some(machine) => self.bind(key, machine, now),
                None => others.push(key),
            }
        }
        for key in others {
            let pod = &self.pods[&key];
            let fitting = self.machines.iter().filter(|(_, machine)| self.takes(machine, pod));
            let best = fitting.max_by_key(|(key, machine)| (machine.share_left(&pod.pod), std::cmp::Reverse(**key)));
            if let Some(machine) = best.map(|(key, _)| *key) {
                self.bind(key, machine, now);
            }
        }
    }

    fn takes(&self, machine: &Machine, pod: &SimulatedPod) -> bool {
        machine.ready_at.is_some()
            && !machine.is_going
            && self.zone_of(pod.workload).is_none_or(|zone| machine.zone == zone)
            && pod.pod.shape.requests.fits_in(&machine.free)
    }

    /// Whether a pod waits that has no machine to wait for.
    pub fn wants_machines(&self) -> bool {
        let has_hope = |pod: &SimulatedPod| {
            let machine = pod.planned.and_then(|machine| self.machines.get(&machine));
            machine.is_some_and(|machine| machine.ready_at.is_none())
        };
        self.pods.values().any(|pod| pod.on.is_none() && !has_hope(pod))
    }

    /// Buys a machine, if what is wanted can be had. Its Node becomes ready when somebody says so.
    ///
    /// # Errors
    /// A catalogue without what was bought.
    pub fn launch(&mut self, wanted: &Wanted, now: Timestamp) -> Result<Option<MachineKey>> {
        let Some(bought) = self.market.buy(wanted, now) else { return Ok(None) };
        let (of_type, offering) = self.market.offering(bought);
        let (of_type, zone) = (of_type.name.clone(), offering.zone.clone());
        let catalogue = self.catalogue(now)?;
        let zone = self.interner.find_value(&zone).context("a zone without a name")?;
        let (of_type, _) =
            catalogue.types.iter_enumerated().find(|(_, it)| it.name == of_type).context("no such type")?;
        let offering = offering_in(&catalogue, of_type, zone).context("no such offering")?;
        let allocatable = catalogue.offerings[offering].allocatable.clone();
        let key = MachineKey(self.number());
        let machine = Machine {
            bought,
            zone,
            free: allocatable.clone(),
            allocatable,
            ready_at: None,
            is_quiet: false,
            is_going: false,
            launched_at: now,
            last_pod_event: now,
            objects: None,
        };
        self.machines.insert(key, machine);
        Ok(Some(key))
    }

    /// Takes a machine away. Each of its pods is replaced by one that waits, for the machine that was promised. Gives
    /// what was evicted with what takes its place.
    pub fn remove(&mut self, machine: MachineKey, now: Timestamp) -> Vec<(PodKey, PodKey)> {
        let evicted: Vec<(PodKey, usize, Option<MachineKey>)> =
            self.pods_on(machine).map(|(key, pod)| (key, pod.workload, pod.planned)).collect();
        let successors = evicted.into_iter().map(|(key, workload, promised)| {
            self.remove_pod(key, now);
            (key, self.add_pod(workload, promised, now))
        });
        let successors = successors.collect();
        self.machines.remove(&machine);
        successors
    }

    /// Sees which machines have been quiet for long enough; gives when the next one will have been.
    pub fn look_who_is_quiet(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut next: Option<Timestamp> = None;
        for machine in self.machines.values_mut().filter(|machine| !machine.is_quiet) {
            let Some(ready_at) = machine.ready_at else { continue };
            let at = machine.last_pod_event.max(ready_at).saturating_add(CONSOLIDATE_AFTER);
            if at <= now {
                machine.is_quiet = true;
                machine.objects = None;
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }

    /// What can be bought, as planners see it.
    ///
    /// # Errors
    /// An instance type that cannot be compiled.
    pub fn catalogue(&mut self, now: Timestamp) -> Result<Arc<Catalogue>> {
        self.market.catalogue(&mut Context::new(&mut self.interner), now)
    }

    /// What planners get.
    ///
    /// # Errors
    /// An object that cannot be decoded.
    pub fn snapshot(&mut self, now: Timestamp, wants_fleet: bool) -> Result<Snapshot> {
        let catalogue = self.catalogue(now)?;
        let mut nodes = Vec::new();
        let mut node_claims = Vec::new();
        for (key, machine) in &mut self.machines {
            if machine.objects.is_none() {
                machine.objects = Some(objects::decoded(*key, machine, &self.market, &mut self.interner)?);
            }
            if let Some((node, claim)) = &machine.objects {
                nodes.push(Arc::clone(node));
                node_claims.push(Arc::clone(claim));
            }
        }
        let waiting = || self.pods.values().filter(|pod| pod.on.is_none());
        // Those of pods that wait, and of pods whose machines commands take away.
        let planned_on = self.pods.values().filter_map(|pod| {
            let machine = pod.planned.filter(|machine| self.machines.contains_key(machine))?;
            Some((pod.pod.uid.clone(), NodeClaimName::from(name(machine).as_str())))
        });
        let cluster = Cluster {
            now,
            options: self.options.clone(),
            node_pools: vec![LaunchableNodePool { object: Arc::clone(&self.node_pool), usable: Ok(()), catalogue }],
            nodes,
            node_claims,
            pods: waiting().map(|pod| Arc::clone(&pod.pod)).collect(),
            bound: self.bound.clone(),
            planned_on: planned_on.collect(),
            namespaces: [(objects::NAMESPACE.into(), model::Labels::new())].into(),
            wants_fleet,
            ..Cluster::default()
        };
        let (snapshot, errors) =
            cluster::snapshot(cluster, Arc::new(self.interner.clone()), &ProviderLabels::default());
        match errors.first() {
            Some(error) => bail!("{error}"),
            None => Ok(snapshot),
        }
    }

    /// Says that a machine's Node is ready.
    pub fn make_ready(&mut self, machine: MachineKey, now: Timestamp) {
        if let Some(machine) = self.machines.get_mut(&machine) {
            machine.ready_at = Some(now);
            machine.objects = None;
        }
    }

    /// Says where the successor of a pod is to run whose machine a command takes away.
    pub fn promise(&mut self, pod: PodKey, machine: MachineKey) {
        if let Some(pod) = self.pods.get_mut(&pod) {
            pod.planned = Some(machine);
        }
    }

    /// Says whether a command takes a machine away.
    pub fn set_going(&mut self, machine: MachineKey, is_going: bool) {
        if let Some(machine) = self.machines.get_mut(&machine) {
            machine.is_going = is_going;
            machine.objects = None;
        }
    }
}

impl Machine {
    fn touch(&mut self, now: Timestamp) {
        self.last_pod_event = now;
        self.is_quiet = false;
        self.objects = None;
    }

    /// What share of CPU and memory would be free with a pod more, in millionths; their mean.
    fn share_left(&self, pod: &Pod) -> i64 {
        let share = |resource: ResourceId| {
            let left = self.free.get(resource) - pod.shape.requests.get(resource);
            let share = i128::from(left) * 1_000_000 / i128::from(self.allocatable.get(resource).max(1));
            i64::try_from(share).unwrap_or(0)
        };
        (share(ResourceId::CPU) + share(ResourceId::MEMORY)) / 2
    }
}

/// What a machine's objects are called.
pub(crate) fn name(machine: MachineKey) -> String {
    format!("node-{:06}", machine.0)
}

/// The machine of a node of a snapshot.
///
/// # Errors
/// If it is none of ours.
pub(crate) fn machine_of(snapshot: &Snapshot, node: NodeId) -> Result<MachineKey> {
    let node = snapshot.nodes.try_get(node).context("a node that is not there")?;
    let number = node.display_name().strip_prefix("node-").and_then(|number| number.parse().ok());
    Ok(MachineKey(number.with_context(|| format!("{} is no machine of the simulation", node.display_name()))?))
}

/// The NodeClaim of one of our machines, if it is there.
pub(crate) fn claim_of(snapshot: &Snapshot, machine: MachineKey) -> Option<NodeClaimName> {
    snapshot.nodes.iter().find(|node| node.display_name() == name(machine))?.node_claim.clone()
}

/// The pod of a snapshot.
///
/// # Errors
/// If it is none of ours.
pub(crate) fn pod_of(snapshot: &Snapshot, pod: PodId) -> Result<PodKey> {
    let pod = snapshot.pods.try_get(pod).context("a pod that does not wait")?;
    Ok(PodKey(pod.pod.uid.as_str().parse().with_context(|| format!("{} is no pod of the simulation", pod.pod.name))?))
}

/// What the NodeClaim of a planned machine lets in.
///
/// # Errors
/// If the plan is of another snapshot.
pub(crate) fn wanted(snapshot: &Snapshot, machine: &PlannedMachine) -> Result<Wanted> {
    let pool = snapshot.node_pools.try_get(machine.node_pool).context("a machine of no NodePool")?;
    let types = machine.instance_types.iter().filter_map(|id| pool.catalogue.types.try_get(*id));
    let names = &snapshot.interner;
    let zones = names.find_key(api::labels::ZONE).and_then(|key| machine.requirements.get(key));
    let is_let_in = |zone: &&str| zones.is_none_or(|zones| zones.values.contains(names.find_value(zone), names));
    Ok(Wanted {
        types: types.map(|it| it.name.clone()).collect(),
        zones: bench::catalogues::ZONES.iter().copied().filter(is_let_in).map(Arc::from).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Workload;

    #[test]
    fn a_snapshot_knows_where_commands_under_way_move_pods_to() {
        let workload = Workload { name: "app".to_owned(), milli_cpu: 500, memory_mib: 500, zone: None };
        let mut world = World::new(&[workload]).unwrap();
        let wanted = Wanted { types: vec!["c7g.large".into()], zones: Vec::new() };
        let now = Timestamp(0);
        let [goes, stays] = [(); 2].map(|()| world.launch(&wanted, now).unwrap().unwrap());
        world.make_ready(goes, now);
        world.scale(0, 1, now);
        world.schedule(now);
        world.make_ready(stays, now);
        let pod = world.pods_on(goes).map(|(key, _)| key).next().unwrap();
        world.promise(pod, stays);
        world.set_going(goes, true);
        let snapshot = world.snapshot(now, true).unwrap();
        let there = claim_of(&snapshot, stays).unwrap();
        let fleet = snapshot.fleet.as_ref().unwrap();
        let moving = fleet.nodes.iter().flat_map(|node| node.moving()).map(|pending| pending.planned_on.clone());
        assert_eq!(moving.collect::<Vec<_>>(), [Some(there)]);
    }
}
