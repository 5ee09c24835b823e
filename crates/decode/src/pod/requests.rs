//! What a pod asks of a node, by the rules of `PodRequests` in `k8s.io/component-helpers/resource` 1.36 as
//! kube-scheduler calls it: containers are summed, init containers need their maximum on top of the restartable ones
//! started before them, resources of the whole pod replace the sum, resizes in progress count with the largest of what
//! is asked, allocated and in force, and the pod's overhead comes on top.
//!
//! Beside that, what the API server's defaulting does: a limit without a request is a request.

use std::collections::BTreeMap;

use model::{Interner, ResourceId, ResourceVec};

use crate::error::Problem;
use crate::field::Field;
use crate::resource_list::ResourceList;

/// All requests of the pod, itself counted as one of [`ResourceId::PODS`].
pub(super) fn decode(
    spec: &Field<'_, '_>,
    status: &Field<'_, '_>,
    interner: &mut Interner,
) -> Result<ResourceVec, Problem> {
    let statuses = Statuses::decode(status)?;
    let mut requests = of_containers(spec, &statuses)?;
    replace_by_pod_level(spec, status, &statuses, &mut requests)?;
    requests.add(&ResourceList::decode(&spec.field("overhead")?)?);
    let mut vec = requests.to_vec(spec, interner)?;
    vec.set(ResourceId::PODS, 1);
    Ok(vec)
}

fn of_containers<'v>(spec: &Field<'v, '_>, statuses: &Statuses<'v>) -> Result<ResourceList<'v>, Problem> {
    let mut running = ResourceList::default();
    for container in spec.field("containers")?.items()? {
        let name = container.field("name")?.str_or_empty()?;
        running.add(&statuses.effective(name, with_defaults(&container)?));
    }
    let mut restartable = ResourceList::default();
    let mut starting = ResourceList::default();
    for container in spec.field("initContainers")?.items()? {
        let own = with_defaults(&container)?;
        if container.field("restartPolicy")?.str()? == Some("Always") {
            let name = container.field("name")?.str_or_empty()?;
            let own = statuses.effective(name, own);
            running.add(&own);
            restartable.add(&own);
            starting.max(&restartable);
        } else {
            let mut own = own;
            own.add(&restartable);
            starting.max(&own);
        }
    }
    running.max(&starting);
    Ok(running)
}

/// Requests of a container, limits standing in where there are none.
fn with_defaults<'v>(container: &Field<'v, '_>) -> Result<ResourceList<'v>, Problem> {
    let resources = container.field("resources")?;
    let mut requests = ResourceList::decode(&resources.field("requests")?)?;
    requests.default_to(&ResourceList::decode(&resources.field("limits")?)?);
    Ok(requests)
}

/// Resources of the pod as a whole take the place of the sum over its containers. Only CPU, memory and huge pages can
/// be given there.
fn replace_by_pod_level<'v>(
    spec: &Field<'v, '_>,
    status: &Field<'v, '_>,
    statuses: &Statuses<'v>,
    requests: &mut ResourceList<'v>,
) -> Result<(), Problem> {
    let resources = spec.field("resources")?;
    let mut whole = ResourceList::decode(&resources.field("requests")?)?;
    let limits = ResourceList::decode(&resources.field("limits")?)?;
    // Defaulting: what the containers ask for, else the limit of the whole.
    let mut defaults = ResourceList::default();
    for name in limits.names() {
        defaults.copy_entry(name, requests);
    }
    defaults.default_to(&limits);
    whole.default_to(&defaults);
    let given: Vec<_> = whole.names().filter(|name| is_supported_for_whole_pods(name)).collect();
    if given.is_empty() {
        return Ok(());
    }
    let actual = status.field("resources")?;
    if !actual.is_absent() {
        let actuated = ResourceList::decode(&actual.field("requests")?)?;
        let allocated = ResourceList::decode(&status.field("allocatedResources")?)?;
        whole = statuses.largest(whole, &actuated, &allocated);
    }
    for name in given {
        requests.copy_entry(name, &whole);
    }
    Ok(())
}

fn is_supported_for_whole_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What the kubelet says of a pod's containers while their resources change.
struct Statuses<'v> {
    /// By container: requests in force, and allocated ones.
    containers: BTreeMap<&'v str, (ResourceList<'v>, ResourceList<'v>)>,
    resize_is_infeasible: bool,
}

impl<'v> Statuses<'v> {
    fn decode(status: &Field<'v, '_>) -> Result<Self, Problem> {
        let mut containers = BTreeMap::new();
        for list in ["containerStatuses", "initContainerStatuses"] {
            for container in status.field(list)?.items()? {
                let resources = container.field("resources")?;
                if resources.is_absent() {
                    continue;
                }
                let in_force = ResourceList::decode(&resources.field("requests")?)?;
                let allocated = ResourceList::decode(&container.field("allocatedResources")?)?;
                containers.insert(container.field("name")?.str_or_empty()?, (in_force, allocated));
            }
        }
        let mut resize_is_infeasible = false;
        for condition in status.field("conditions")?.items()? {
            if condition.field("type")?.str()? == Some("PodResizePending") {
                resize_is_infeasible = condition.field("reason")?.str()? == Some("Infeasible");
                break;
            }
        }
        Ok(Self { containers, resize_is_infeasible })
    }

    fn effective(&self, container: &str, asked: ResourceList<'v>) -> ResourceList<'v> {
        match self.containers.get(container) {
            None => asked,
            Some((in_force, allocated)) => self.largest(asked, in_force, allocated),
        }
    }

    /// A resize that can't be done on this node does not count.
    fn largest(
        &self,
        asked: ResourceList<'v>,
        in_force: &ResourceList<'v>,
        allocated: &ResourceList<'v>,
    ) -> ResourceList<'v> {
        let mut largest = if self.resize_is_infeasible { ResourceList::default() } else { asked };
        largest.max(in_force);
        largest.max(allocated);
        largest
    }
}
