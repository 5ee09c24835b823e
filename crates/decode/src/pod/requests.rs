//! What a pod asks of a node, by the rules of `PodRequests` in `k8s.io/component-helpers/resource` 1.36 as
//! kube-scheduler calls it: containers are summed, init containers need their maximum on top of the restartable ones
//! started before them, resources of the whole pod replace the sum, resizes in progress count with the largest of what
//! is asked, allocated and in force, and the pod's overhead comes on top. From 1.37 on the largest is taken of sums,
//! not for each container; what these sums are is kept beside ([`Resizing`]), since a pod is read before the release is
//! known.
//!
//! Beside that, what the API server's defaulting does: a limit without a request is a request, and what it makes of the
//! resources of the whole pod ([`RequestsAndLimits::set_defaults`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_types::{KubernetesMinor, RequestsAndLimits, is_for_whole_pods};
use model::pod::Resizing;
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
    let mut requests = sum_up(spec, with_defaults, |container, own| match container.start {
        Start::Alone => own,
        Start::WithOthers => statuses.effective(container.name, own),
    })?;
    if let Some(mut whole) = of_whole_pod(spec)? {
        let given: Vec<_> = whole.names().filter(|name| is_for_whole_pods(name)).collect();
        let actual = status.field("resources")?;
        if !actual.is_absent() {
            let actuated = ResourceList::decode(&actual.field("requests")?)?;
            let allocated = ResourceList::decode(&status.field("allocatedResources")?)?;
            whole = statuses.largest(whole, &actuated, &allocated);
        }
        for name in given {
            requests.copy_entry(name, &whole);
        }
    }
    in_whole_units(requests, spec, interner)
}

/// What the kubelet says of the pod's resources, by the rules of 1.37; `None` where that is what the pod asks for.
pub(super) fn resizing(
    spec: &Field<'_, '_>,
    status: &Field<'_, '_>,
    interner: &mut Interner,
) -> Result<Option<Arc<Resizing>>, Problem> {
    let statuses = Statuses::decode(status)?;
    let (allocated, actual) = (status.field("allocatedResources")?, status.field("resources")?);
    if statuses.containers.is_empty() && allocated.is_absent() && actual.is_absent() {
        return Ok(None);
    }
    let in_force = actual.field("requests")?;
    let mut asked = sum_up(spec, with_defaults, |_, own| own)?;
    let whole = of_whole_pod(spec)?;
    // A kubelet that tells both of the pod as a whole has the sums, and what devices cost in them.
    let has_sums = !allocated.is_absent() && !in_force.is_absent();
    let (mut set_aside, mut actuated) = if has_sums {
        (ResourceList::decode(&allocated)?, ResourceList::decode(&in_force)?)
    } else {
        let set_aside = sum_up(spec, with_defaults, |container, own| statuses.allocated(container.name, own))?;
        (set_aside, sum_up(spec, with_defaults, |container, own| statuses.actuated(container.name, own))?)
    };
    if let Some(mut whole) = whole {
        if !actual.is_absent() {
            whole = statuses.largest(whole, &ResourceList::decode(&in_force)?, &ResourceList::decode(&allocated)?);
        }
        for name in whole.names().filter(|name| is_for_whole_pods(name)) {
            for sum in [&mut asked, &mut set_aside, &mut actuated] {
                sum.copy_entry(name, &whole);
            }
        }
    }
    if set_aside == asked && actuated == asked {
        return Ok(None);
    }
    let asked = (!statuses.resize_is_infeasible).then(|| in_whole_units(asked, spec, interner)).transpose()?;
    Ok(Some(Arc::new(Resizing {
        asked,
        allocated: in_whole_units(set_aside, spec, interner)?,
        in_force: in_whole_units(actuated, spec, interner)?,
        allocated_has_devices: has_sums,
    })))
}

/// A sum over containers as the planner counts it, with the pod itself and its overhead.
fn in_whole_units<'v>(
    mut sum: ResourceList<'v>,
    spec: &Field<'v, '_>,
    interner: &mut Interner,
) -> Result<ResourceVec, Problem> {
    sum.add(&ResourceList::decode(&spec.field("overhead")?)?);
    let mut vec = sum.to_vec(spec, interner)?;
    vec.set(ResourceId::PODS, 1);
    Ok(vec)
}

/// A container of which it is asked what it counts with.
struct Container<'v> {
    name: &'v str,
    start: Start,
}

#[derive(Clone, Copy)]
enum Start {
    /// An init container that ends before the next one starts.
    Alone,
    /// One that runs beside others.
    WithOthers,
}

/// What a pod's containers need together; `counts` says what each counts with, given what it says of itself.
fn sum_up<'v>(
    spec: &Field<'v, '_>,
    says: impl Fn(&Field<'v, '_>) -> Result<ResourceList<'v>, Problem>,
    counts: impl Fn(Container<'v>, ResourceList<'v>) -> ResourceList<'v>,
) -> Result<ResourceList<'v>, Problem> {
    let amount = |container: &Field<'v, '_>, start| -> Result<ResourceList<'v>, Problem> {
        let name = container.field("name")?.str_or_empty()?;
        Ok(counts(Container { name, start }, says(container)?))
    };
    let mut running = ResourceList::default();
    for container in spec.field("containers")?.items()? {
        running.add(&amount(&container, Start::WithOthers)?);
    }
    let mut restartable = ResourceList::default();
    let mut starting = ResourceList::default();
    for container in spec.field("initContainers")?.items()? {
        if container.field("restartPolicy")?.str()? == Some("Always") {
            let own = amount(&container, Start::WithOthers)?;
            running.add(&own);
            restartable.add(&own);
            starting.max(&restartable);
        } else {
            let mut own = amount(&container, Start::Alone)?;
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

fn limits<'v>(container: &Field<'v, '_>) -> Result<ResourceList<'v>, Problem> {
    ResourceList::decode(&container.field("resources")?.field("limits")?)
}

/// Resources of the pod as a whole, which take the place of the sum over its containers; `None` if there are none that
/// do. Only CPU, memory and huge pages can be given there.
fn of_whole_pod<'v>(spec: &Field<'v, '_>) -> Result<Option<ResourceList<'v>>, Problem> {
    let resources = spec.field("resources")?;
    if resources.is_absent() {
        return Ok(None);
    }
    let mut whole = RequestsAndLimits {
        requests: ResourceList::decode(&resources.field("requests")?)?.into_milli(),
        limits: ResourceList::decode(&resources.field("limits")?)?.into_milli(),
    };
    let containers = RequestsAndLimits {
        requests: sum_up(spec, with_defaults, |_, own| own)?.into_milli(),
        limits: sum_up(spec, limits, |_, own| own)?.into_milli(),
    };
    // What later releases fill in besides changes no sum.
    whole.set_defaults(&containers, KubernetesMinor::V1_36);
    let replaces = whole.requests.keys().any(|name| is_for_whole_pods(name));
    Ok(replaces.then(|| ResourceList::from_milli(whole.requests)))
}

/// What the kubelet says of a pod's containers while their resources change.
struct Statuses<'v> {
    /// By container, those of which it says something.
    containers: BTreeMap<&'v str, Said<'v>>,
    resize_is_infeasible: bool,
}

/// What the kubelet says of a container.
struct Said<'v> {
    has_resources: bool,
    in_force: Option<ResourceList<'v>>,
    allocated: Option<ResourceList<'v>>,
}

impl<'v> Statuses<'v> {
    fn decode(status: &Field<'v, '_>) -> Result<Self, Problem> {
        let present = |field: &Field<'v, '_>| match field.is_absent() {
            true => Ok(None),
            false => ResourceList::decode(field).map(Some),
        };
        let mut containers = BTreeMap::new();
        // Of a name in both lists the first counts, of one twice in a list too.
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status.field(list)?.items()? {
                let resources = container.field("resources")?;
                let said = Said {
                    has_resources: !resources.is_absent(),
                    in_force: present(&resources.field("requests")?)?,
                    allocated: present(&container.field("allocatedResources")?)?,
                };
                if said.has_resources || said.allocated.is_some() {
                    containers.insert(container.field("name")?.str_or_empty()?, said);
                }
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

    /// What 1.36 counts a container with.
    fn effective(&self, container: &str, asked: ResourceList<'v>) -> ResourceList<'v> {
        let nothing = ResourceList::default();
        match self.containers.get(container).filter(|said| said.has_resources) {
            None => asked,
            Some(Said { in_force, allocated, .. }) => {
                self.largest(asked, in_force.as_ref().unwrap_or(&nothing), allocated.as_ref().unwrap_or(&nothing))
            }
        }
    }

    fn allocated(&self, container: &str, asked: ResourceList<'v>) -> ResourceList<'v> {
        let said = self.containers.get(container).and_then(|said| said.allocated.clone());
        said.unwrap_or_else(|| self.largest(asked, &ResourceList::default(), &ResourceList::default()))
    }

    fn actuated(&self, container: &str, asked: ResourceList<'v>) -> ResourceList<'v> {
        let said = self.containers.get(container).and_then(|said| said.in_force.clone());
        said.unwrap_or_else(|| self.allocated(container, asked))
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
