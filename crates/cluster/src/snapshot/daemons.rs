//! What DaemonSets' pods will ask for on machines to come.
//!
//! What runs counts: a pod of the set has been through admission, so it shows what LimitRanges, webhooks and the
//! vertical pod autoscaler make of the template. Of the pods made from the present template the newest on a machine of
//! a NodePool decides, because a webhook may size pods by their node; without one the newest on any other node. A pod
//! that the DaemonSet controller has made and that is not bound yet counts too: it is the first that comes of a change.
//! Where none is there, the template with the defaults of its namespace's LimitRanges decides.
//!
//! Only requests are taken from pods. Where daemons run is decided by the template: the controller reads nothing else.

use std::sync::Arc;

use model::collections::FastMap;
use model::workload::DaemonSet;
use model::{IdVec, Interner, Pod, ResourceVec, Timestamp, Uid};
use scheduling::snapshot::{Node, NodeId};

use super::Cluster;
use decode::limit_range::ContainerDefaults;
use decode::priority_class::PriorityClasses;
use decode::{ObjectError, ObjectRef};

/// The cluster's DaemonSets with the requests and priorities that their next pods will have.
pub(super) fn daemon_sets(
    cluster: &Cluster,
    nodes: &IdVec<NodeId, Arc<Node>>,
    names: &mut Interner,
    errors: &mut Vec<ObjectError>,
) -> Vec<Arc<DaemonSet>> {
    let newest = Newest::of(cluster, nodes);
    let defaults: ContainerDefaults = cluster.limit_ranges.iter().map(AsRef::as_ref).collect();
    let sets = cluster.daemon_sets.iter();
    sets.map(|set| {
        let set = with_priority(Arc::clone(set), &cluster.priority_classes);
        match newest.requests_of(&set) {
            Some(requests) => with_requests(set, requests.clone()),
            None => with_defaults(set, cluster, &defaults, names, errors),
        }
    })
    .collect()
}

/// A DaemonSet whose template asks for so much.
fn with_requests(mut set: Arc<DaemonSet>, requests: ResourceVec) -> Arc<DaemonSet> {
    if set.template.shape.requests != requests {
        Arc::make_mut(&mut Arc::make_mut(&mut set).template.shape).requests = requests;
    }
    set
}

/// A DaemonSet whose template has what LimitRanges give to its containers.
fn with_defaults(
    set: Arc<DaemonSet>,
    cluster: &Cluster,
    defaults: &ContainerDefaults,
    names: &mut Interner,
    errors: &mut Vec<ObjectError>,
) -> Arc<DaemonSet> {
    let namespace = &set.name.namespace;
    let resources = cluster.template_resources.get(&set.uid).filter(|_| defaults.has(namespace));
    match resources.map(|resources| resources.requests(namespace, defaults, names)) {
        None => set,
        Some(Ok(requests)) => with_requests(set, requests),
        Some(Err(problem)) => {
            errors
                .push(ObjectError { object: ObjectRef { kind: "DaemonSet".into(), name: set.name.clone() }, problem });
            set
        }
    }
}

/// A DaemonSet whose template says the priority that admission will give to its pods.
fn with_priority(mut set: Arc<DaemonSet>, classes: &PriorityClasses) -> Arc<DaemonSet> {
    let template = &set.template;
    let class = classes.of(template.priority_class.as_deref()).filter(|_| template.priority.is_none());
    if let Some(class) = class {
        Arc::make_mut(&mut set).template.priority = Some(class.value);
    }
    set
}

/// The pod of each DaemonSet that shows best what the next one will ask for.
struct Newest<'a> {
    sets: FastMap<&'a Uid, (Option<i64>, Option<Candidate<'a>>)>,
}

/// In the order of preference: on a machine of a NodePool or for one, then late, then by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    is_of_node_pool: bool,
    created_at: Timestamp,
    name: &'a str,
}

struct Candidate<'a> {
    rank: Rank<'a>,
    requests: &'a ResourceVec,
}

impl<'a> Newest<'a> {
    fn of(cluster: &'a Cluster, nodes: &'a IdVec<NodeId, Arc<Node>>) -> Self {
        let sets = cluster.daemon_sets.iter().map(|set| (&set.uid, (set.template_generation, None)));
        let mut newest = Self { sets: sets.collect() };
        if newest.sets.is_empty() {
            return newest;
        }
        for node in nodes.iter() {
            for pod in node.pods.daemons() {
                newest.add(pod, node.node_pool.is_some(), cluster);
            }
        }
        let unbound = |pod: &&Arc<Pod>| pod.is_daemon && pod.node_name.is_none() && pod.nominated_node_name.is_none();
        for pod in cluster.pods.iter().filter(unbound).filter(|pod| !pod.phase.is_terminal()) {
            newest.add(pod, true, cluster);
        }
        newest
    }

    fn add(&mut self, pod: &'a Pod, is_of_node_pool: bool, cluster: &Cluster) {
        let Some((generation, known)) = pod.owner.as_ref().and_then(|owner| self.sets.get_mut(&owner.uid)) else {
            return;
        };
        // What devices cost of the node is in the requests of a pod that has them, and is added anew to what is
        // planned.
        let has_device_costs = cluster.devices.pods.get(&pod.uid).is_some_and(|it| !it.device_costs.is_empty());
        let is_of_template = generation.is_none() || pod.template_generation == *generation;
        if !is_of_template || has_device_costs || pod.unreadable.is_some() {
            return;
        }
        let rank = Rank { is_of_node_pool, created_at: pod.created_at, name: &pod.name.name };
        if known.as_ref().is_none_or(|known| known.rank < rank) {
            *known = Some(Candidate { rank, requests: &pod.shape.requests });
        }
    }

    fn requests_of(&self, set: &DaemonSet) -> Option<&'a ResourceVec> {
        self.sets.get(&set.uid)?.1.as_ref().map(|candidate| candidate.requests)
    }
}
