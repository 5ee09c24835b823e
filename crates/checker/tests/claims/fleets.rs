//! Small random fleets whose pods hold GPUs, and all that could be done with them.

use std::collections::{BTreeMap, BTreeSet};

use model::Timestamp;
use scheduling::Snapshot;
use scheduling::disruption::plan::{DisruptionPlan, Place};
use scheduling::plan::MachineId;
use scheduling::snapshot::NodeId;
use seeded_random::Random;
use serde_json::{Value, json};

use super::input::read_as;
use super::random_clusters::{GPU, ZONE, ZONES, device_classes, object, resource, slice};

const NOW: &str = "2026-11-25T10:00:00Z";
/// A dollar, in nano-dollars.
const DOLLAR: i64 = 1_000_000_000;

/// What the provider's machines keep of their CPUs for themselves.
const KEPT_MILLI_CPU: i64 = 100;

/// What can be bought: name, CPUs, GPUs, their model, dollars per hour.
const TYPES: [(&str, i64, i64, &str, i64); 4] =
    [("plain", 4, 0, "", 4), ("one", 4, 1, "x", 10), ("two", 8, 2, "y", 17), ("four", 8, 4, "x", 30)];
/// The least that devices and CPUs cost: dollars, and for how many GPUs or milli-CPUs.
const PER_GPU: (i64, i64) = (15, 2);
const PER_MILLI_CPU: (i64, i64) = (1, 1_000);

/// What a pod wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    gpus: i64,
    /// Whether only those of model x will do.
    only_x: bool,
    milli_cpu: i64,
}

/// A machine: its type, and its pods.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    of_type: usize,
    pub(crate) pods: Vec<Wanted>,
}

/// Room on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Room {
    milli_cpu: i64,
    gpus: i64,
    is_x: bool,
}

impl Room {
    fn of_type(of_type: usize) -> Self {
        let (_, cpu, gpus, model, _) = TYPES[of_type];
        Self { milli_cpu: 1_000 * cpu - KEPT_MILLI_CPU, gpus, is_x: model == "x" }
    }

    /// The room beside a pod, if it fits.
    fn beside(self, pod: Wanted) -> Option<Self> {
        let rest = Self { milli_cpu: self.milli_cpu - pod.milli_cpu, gpus: self.gpus - pod.gpus, ..self };
        (rest.milli_cpu >= 0 && rest.gpus >= 0 && (self.is_x || !pod.only_x)).then_some(rest)
    }
}

impl Held {
    /// What is free; `None` if more is held than there is.
    fn room(&self) -> Option<Room> {
        self.pods.iter().try_fold(Room::of_type(self.of_type), |room, pod| room.beside(*pod))
    }
}

/// Up to six machines with up to 14 pods.
pub(crate) fn random_fleet(random: &mut Random) -> Vec<Held> {
    let mut left = 14;
    let mut machines = Vec::new();
    for _ in 0..2 + random.below(5) {
        let mut held = Held { of_type: random.below(TYPES.len()), pods: Vec::new() };
        for _ in 0..1 + random.below(3) {
            let gpus = *random.pick(&[0, 0, 1, 1, 2]);
            let pod = Wanted {
                gpus,
                only_x: gpus > 0 && random.percent(40),
                milli_cpu: *random.pick(&[200, 500, 900, 1_500, 2_000]),
            };
            if left > 0 && held.room().is_some_and(|room| room.beside(pod).is_some()) {
                held.pods.push(pod);
                left -= 1;
            }
        }
        machines.push(held);
    }
    machines
}

/// In nano-dollars per hour.
pub(crate) fn price(machines: &[Held]) -> i64 {
    machines.iter().map(|machine| TYPES[machine.of_type].4 * DOLLAR).sum()
}

/// What the cheapest fleet costs: some of the machines, and new ones for the pods of the others.
pub(crate) fn best_price(machines: &[Held]) -> i64 {
    let mut best = price(machines) / DOLLAR;
    for set in 0..1_u32 << machines.len() {
        let (mut rooms, mut pods, mut kept) = (Vec::new(), Vec::new(), 0);
        for (index, machine) in machines.iter().enumerate() {
            if set & (1 << index) != 0 {
                pods.extend(machine.pods.iter().copied());
            } else {
                kept += TYPES[machine.of_type].4;
                rooms.extend(machine.room());
            }
        }
        pods.sort_unstable_by(|a, b| b.cmp(a));
        place(&mut rooms, &pods, (0, kept), &mut best);
    }
    best * DOLLAR
}

/// Tries all places for the pods, largest first, as long as that can be cheaper than the best; equal pods in the order
/// of the rooms, the first from room `first` on.
fn place(rooms: &mut Vec<Room>, pods: &[Wanted], (first, cost): (usize, i64), best: &mut i64) {
    let missing = |wanted: i64, free: i64, (price, of): (i64, i64)| ((wanted - free).max(0) * price + of - 1) / of;
    let gpus = missing(sum(pods, |pod| pod.gpus), sum(rooms, |room| room.gpus), PER_GPU);
    let cpus = missing(sum(pods, |pod| pod.milli_cpu), sum(rooms, |room| room.milli_cpu), PER_MILLI_CPU);
    if cost + gpus.max(cpus) >= *best {
        return;
    }
    let Some((pod, rest)) = pods.split_first() else {
        *best = cost;
        return;
    };
    let next = |index: usize| if rest.first() == Some(pod) { index } else { 0 };
    let mut tried = BTreeSet::new();
    for index in first..rooms.len() {
        let before = rooms[index];
        if let Some(beside) = before.beside(*pod)
            && tried.insert(before)
        {
            rooms[index] = beside;
            place(rooms, rest, (next(index), cost), best);
            rooms[index] = before;
        }
    }
    for (of_type, (_, _, _, _, price)) in TYPES.iter().enumerate() {
        if let Some(beside) = Room::of_type(of_type).beside(*pod) {
            rooms.push(beside);
            place(rooms, rest, (next(rooms.len() - 1), cost + price), best);
            rooms.pop();
        }
    }
}

fn sum<T: Copy>(of: &[T], what: impl Fn(T) -> i64) -> i64 {
    of.iter().map(|it| what(*it)).sum()
}

fn instance_types() -> String {
    let of = |(name, cpu, gpus, model, price): (&str, i64, i64, &str, i64)| {
        let offering = json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": ZONE, "operator": "In", "values": [ZONES[0]]}]});
        let templates =
            json!([{"metadata": {"name": "gpus"}, "spec": {"driver": GPU, "devices": devices(gpus, model)}}]);
        let resources = if gpus > 0 { json!({"resourceSliceTemplates": templates}) } else { json!({}) };
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110"},
            "offerings": [offering], "dynamicResources": resources})
    };
    TYPES.into_iter().map(of).collect::<Value>().to_string()
}

fn devices(count: i64, model: &str) -> Vec<Value> {
    let device = |index| json!({"name": format!("g{index}"), "attributes": {"model": {"string": model}}});
    (0..count).map(device).collect()
}

/// The fleet as the cluster's objects, and the snapshot of these in which any saving pays.
pub(crate) fn snapshot(machines: &[Held]) -> (Snapshot, String) {
    let mut text = String::new();
    device_classes(&mut text);
    object(
        &mut text,
        &json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"}, "spec": {
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}]},
            "template": {"spec": {"nodeClassRef": class(), "requirements": []}}}}),
    );
    for (index, held) in machines.iter().enumerate() {
        machine(&mut text, &format!("n{index}"), held);
    }
    let types = instance_types();
    let mut snapshot = read_as(&types, &text, |cluster| {
        cluster.wants_fleet = true;
        cluster.now = Timestamp::parse(NOW).unwrap();
    });
    snapshot.options.disruption.eviction_price_nano_usd = 0;
    (snapshot, text)
}

fn class() -> Value {
    json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"})
}

/// A machine that is there and quiet, with its devices, and its pods with theirs.
fn machine(text: &mut String, name: &str, held: &Held) {
    let (of_type, cpu, gpus, model, _) = TYPES[held.of_type];
    let capacity = json!({"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110"});
    let mut allocatable = capacity.clone();
    allocatable["cpu"] = format!("{}m", 1_000 * cpu - KEPT_MILLI_CPU).into();
    let condition = |condition: &str| {
        json!({"type": condition, "status": "True", "reason": condition, "message": "",
            "lastTransitionTime": "2026-11-25T09:00:00Z"})
    };
    let conditions = ["Launched", "Registered", "Initialized", "Consolidatable"].map(condition);
    object(
        text,
        &json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "pool"},
                "creationTimestamp": "2026-11-24T09:00:00Z"},
            "spec": {"nodeClassRef": class(), "requirements": []},
            "status": {"providerID": format!("id-{name}"), "nodeName": name, "capacity": capacity,
                "allocatable": allocatable, "conditions": conditions}}),
    );
    object(
        text,
        &json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, ZONE: ZONES[0],
                "node.kubernetes.io/instance-type": of_type, "karpenter.sh/capacity-type": "on-demand",
                "karpenter.sh/nodepool": "pool", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
            "spec": {"providerID": format!("id-{name}")},
            "status": {"capacity": capacity, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    if gpus > 0 {
        slice(text, name, GPU, ("nodeName", name.into()), &devices(gpus, model));
    }
    let mut first = 0;
    for (index, pod) in held.pods.iter().enumerate() {
        running(text, name, (&format!("{name}-{index}"), *pod), first);
        first += pod.gpus;
    }
}

/// A pod on a node, that has the node's GPUs from the first on that is given.
fn running(text: &mut String, node: &str, (name, wanted): (&str, Wanted), first: i64) {
    let claim = format!("{name}-gpus");
    let mut container = json!({"name": "c", "image": "x",
        "resources": {"requests": {"cpu": format!("{}m", wanted.milli_cpu)}}});
    let mut spec = json!({"nodeName": node});
    let mut status = json!({"phase": "Running", "startTime": "2026-11-25T09:00:00Z"});
    if wanted.gpus > 0 {
        let of_class = if wanted.only_x { "gpu-x" } else { "gpu" };
        let request = json!({"name": "r", "exactly": {"deviceClassName": of_class, "count": wanted.gpus}});
        let devices = json!({"devices": {"requests": [request]}});
        let template = format!("{of_class}-{name}");
        object(text, &resource("ResourceClaimTemplate", &template, &json!({"spec": devices})));
        let mut allocated = resource("ResourceClaim", &claim, &devices);
        allocated["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "c"});
        allocated["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true}]);
        let result =
            |index: i64| json!({"request": "r", "driver": GPU, "pool": node, "device": format!("g{}", first + index)});
        let results: Vec<Value> = (0..wanted.gpus).map(result).collect();
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        allocated["status"] = json!({
            "allocation": {"devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}]});
        object(text, &allocated);
        container["resources"]["claims"] = json!([{"name": "c"}]);
        spec["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": template}]);
        status["resourceClaimStatuses"] = json!([{"name": "c", "resourceClaimName": claim}]);
    }
    spec["containers"] = json!([container]);
    object(
        text,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": spec, "status": status}),
    );
}

/// The fleet once all commands are carried out; how many pods with GPUs have moved.
///
/// # Errors
/// A machine that would hold more than it has.
pub(crate) fn after(
    machines: &[Held],
    snapshot: &Snapshot,
    plan: &DisruptionPlan,
) -> Result<(Vec<Held>, usize), String> {
    let index = |node: NodeId| snapshot.nodes[node].display_name()[1..].parse::<usize>().unwrap();
    let (mut gone, mut moved) = (BTreeSet::new(), 0);
    let mut all = machines.to_vec();
    let mut launched: BTreeMap<MachineId, Held> = BTreeMap::new();
    for command in &plan.commands {
        gone.extend(command.nodes.iter().map(|node| index(*node)));
        let simulated = plan.simulated.as_ref();
        for id in &command.replacements {
            let machine = &simulated.unwrap().plan.machines[*id];
            let name = &snapshot.node_pools[machine.node_pool].catalogue.types[machine.launch.instance_type].name;
            let of_type = TYPES.iter().position(|known| name.as_str() == known.0).unwrap();
            launched.insert(*id, Held { of_type, pods: Vec::new() });
        }
        for it in &command.moves {
            let name = &simulated.unwrap().snapshot.pods[it.pod].pod.name.name;
            let (_, position) = name.rsplit_once('-').unwrap();
            let pod = machines[index(it.from)].pods[position.parse::<usize>().unwrap()];
            moved += usize::from(pod.gpus > 0);
            match it.to {
                Place::Node(node) => all[index(node)].pods.push(pod),
                Place::Machine(id) => launched.get_mut(&id).unwrap().pods.push(pod),
            }
        }
    }
    let stay = all.into_iter().enumerate().filter(|(index, _)| !gone.contains(index)).map(|(_, held)| held);
    let after: Vec<Held> = stay.chain(launched.into_values()).collect();
    match after.iter().find(|held| held.room().is_none()) {
        Some(held) => Err(format!("{held:?} holds too much")),
        None => Ok((after, moved)),
    }
}
