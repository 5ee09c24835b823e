//! Which machines were launched in vain, and which help: judged from a snapshot and the plan made of it.
//!
//! A machine is judged for a class that it was launched for when the plan wants another one for a pod of that class. It
//! was in vain if it runs no pod of the class and
//!
//! * could not hold one even if nobody but daemons and static pods ran there; or
//! * runs nobody else either, and the pod is one that it was launched for: the planner has tried it there first.
//!
//! The first can be said as soon as the machine has its Node, for who could not be planned there would get another
//! machine at once; the second when it is initialized, and all that it has to offer is known.
//!
//! Where others have taken the room of a machine that could have held the pod, it did help: it took them in.

use std::collections::{BTreeMap, BTreeSet};

use model::{Id as _, InstanceTypeName, Pod, ResourceId, Timestamp};
use scheduling::plan::Plan;
use scheduling::provisioning::{Obstacle, bare_room, obstacle};
use scheduling::snapshot::{Excluded, NodeLabels, PendingPod, Snapshot};

use super::launched_for::Launched;
use super::{Brake, InVain};
use crate::controllers::provisioning::pod_class::{PodClass, PodClasses};

/// The machines that were launched in vain for pods for which the plan wants more of them.
pub(in crate::controllers::provisioning) fn in_vain(
    snapshot: &Snapshot,
    plan: &Plan,
    launched: &[Launched],
) -> Vec<InVain> {
    let mut classes = PodClasses::new(&snapshot.interner);
    let mut wanting: BTreeMap<PodClass, Vec<&PendingPod>> = BTreeMap::new();
    for &pod in plan.machines.iter().flat_map(|machine| &machine.pods) {
        let pending = &snapshot.pods[pod];
        wanting.entry(classes.of(&pending.pod)).or_default().push(pending);
    }
    let mut all = Vec::new();
    for machine in launched {
        for &(class, before) in &machine.classes {
            let Some(pods) = wanting.get(&class) else { continue };
            if is_in_vain(snapshot, machine, class, pods, &mut classes) {
                all.extend(pods.first().map(|pending| told(snapshot, machine, (class, before), &pending.pod)));
            }
        }
    }
    all
}

fn is_in_vain<'a>(
    snapshot: &'a Snapshot,
    machine: &Launched,
    class: PodClass,
    wanting: &[&PendingPod],
    classes: &mut PodClasses<'a>,
) -> bool {
    let node = &snapshot.nodes[machine.node];
    // Who takes a machine away may leave its pods without a place; that is no fault of the machine.
    if node.excluded == Some(Excluded::Deleting) {
        return false;
    }
    let workload: Vec<&Pod> = node.pods.iter().map(AsRef::as_ref).filter(|pod| is_workload(pod)).collect();
    if node.pods.iter().any(|pod| is_workload(pod) && classes.of(pod) == class) {
        return false;
    }
    let Some(pending) = wanting.first() else { return false };
    if obstacle(machine.node, &pending.pod.shape, snapshot).is_some() {
        return true;
    }
    let is_planned_here = |pending: &PendingPod| pending.planned_on.is_some() && pending.planned_on == node.node_claim;
    machine.is_initialized && workload.is_empty() && wanting.iter().any(|pending| is_planned_here(pending))
}

/// Whether a pod that is there to stay is what machines are launched for.
fn is_workload(pod: &Pod) -> bool {
    !pod.is_daemon && !pod.is_mirror && pod.deletion_timestamp.is_none()
}

fn told(snapshot: &Snapshot, machine: &Launched, (class, before): (PodClass, u32), pod: &Pod) -> InVain {
    let (node, names) = (&snapshot.nodes[machine.node], &*snapshot.interner);
    let room = bare_room(machine.node, snapshot);
    let asked = &pod.shape.requests;
    // What nobody asks for is of no interest, and there may be a lot of it.
    let listed = |resource: ResourceId| asked.get(resource) != 0 || resource == ResourceId::CPU;
    let mut shown = model::ResourceVec::new();
    room.iter().filter(|(resource, _)| listed(*resource)).for_each(|(resource, amount)| shown.set(resource, amount));
    let why = match obstacle(machine.node, &pod.shape, snapshot) {
        Some(Obstacle::Taint(taint)) => format!("it has the taint {}", taint.display(names)),
        Some(Obstacle::Labels) => "its labels are not those that the pod selects".to_owned(),
        Some(Obstacle::Room) | None => {
            format!("beside daemons it has {}, and the pod asks for {}", shown.display(names), asked.display(names))
        }
    };
    let message =
        format!("machine {} was launched for pods such as {} and took none in: {why}", node.display_name(), pod.name);
    let resources = (0..names.resource_count()).map(ResourceId::from_index).filter(|&it| is_capped(node, it));
    InVain {
        class,
        before,
        at: machine.came_at,
        node_claim: machine.uid.clone(),
        node_pool: node.node_pool.clone().unwrap_or_else(|| "".into()),
        instance_type: instance_type(&node.labels, snapshot),
        room: resources.map(|it| (names.resource_name(it).to_owned(), room.get(it))).collect(),
        message,
    }
}

/// Whether the kubelet has said how much there is of a resource.
fn is_capped(node: &scheduling::snapshot::Node, resource: ResourceId) -> bool {
    node.allocatable.get(resource) != 0
}

fn instance_type(labels: &NodeLabels, snapshot: &Snapshot) -> Option<InstanceTypeName> {
    let names = &*snapshot.interner;
    let key = names.find_key(api::labels::INSTANCE_TYPE)?;
    let value = match labels {
        NodeLabels::Known(labels) => labels.get(key)?,
        NodeLabels::Promised(promised) => promised.get(key)?.values.single_value()?,
    };
    Some(names.value_name(value).into())
}

/// Tells the brake which machines run pods that they were launched for, and gives the classes of which the machine that
/// is tried runs some already.
pub(in crate::controllers::provisioning) fn note_help(
    brake: &mut Brake,
    snapshot: &Snapshot,
    launched: &[Launched],
    now: Timestamp,
) -> BTreeSet<PodClass> {
    let mut running_some = BTreeSet::new();
    let mut classes = PodClasses::new(&snapshot.interner);
    for machine in launched {
        for &(class, before) in &machine.classes {
            let in_vain = brake.in_vain(class);
            if in_vain == 0 || before < in_vain {
                continue;
            }
            let running = snapshot.nodes[machine.node].pods.iter().filter(|pod| is_workload(pod));
            let oldest = running.filter(|pod| classes.of(pod) == class).map(|pod| pod.created_at).min();
            if let Some(oldest) = oldest {
                brake.note_help(class, before, oldest.max(machine.came_at), now);
                running_some.insert(class);
            }
        }
    }
    running_some
}
