//! What becomes of each request of a refused class's claims on the instance types that there are: how many have a
//! template for it, and at which step of the allocator, or rule of the planner after it, each of them ends.

use std::{collections::BTreeMap, sync::Arc};

use dra_sched::explain::RequestStep;
use model::InstanceTypeName;

use super::{Asked, Fall, PoolStage, Shortages};
use crate::catalogue::{OfferingId, TypeId};
use crate::plan::reason::{ClaimedDevices, EndOfType, EndingTypes};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::Steps;

/// One request on one type.
struct OnType {
    end: EndOfType,
    has_template: bool,
    usable: u64,
    nearest: Option<Arc<str>>,
}

/// A request: claim, name.
type Request = (Arc<str>, Arc<str>);

/// What is known of a request whatever the type.
struct Known {
    class: Arc<str>,
    wanted: Option<u64>,
    by_type: BTreeMap<InstanceTypeName, OnType>,
}

/// The requests of a class, in their order, over all types of the NodePools that got as far.
pub(super) fn of_class(packing: &Packing<'_>, class: ClassId, stages: &[PoolStage<'_, '_>]) -> Vec<ClaimedDevices> {
    let Some(devices) = &packing.state.devices else { return Vec::new() };
    let mut order: Vec<Request> = Vec::new();
    let mut requests: BTreeMap<Request, Known> = BTreeMap::new();
    for stage in stages {
        for variant in 0..packing.problem.classes[class].variants() {
            let steps = devices.steps(packing.asking_alone(), stage.rank, class, variant);
            for request in steps.by_shape.iter().filter_map(|(_, steps)| steps.as_ref().ok()).flatten() {
                let key = (Arc::clone(&request.claim), Arc::clone(&request.request));
                if !order.contains(&key) {
                    order.push(key.clone());
                }
                requests.entry(key).or_insert_with(|| Known {
                    class: request.class.as_str().into(),
                    wanted: request.wanted,
                    by_type: BTreeMap::new(),
                });
            }
            let of_pool = ClaimsOnPool { packing, class, stage, variant, steps: &steps };
            for (key, known) in &mut requests {
                of_pool.add_types(key, known);
            }
        }
    }
    let done = order.into_iter().filter_map(|key| {
        let known = requests.remove(&key)?;
        Some(summary(key, known))
    });
    // Of a pod with several requests those that have what they want on every type tell nothing.
    done.filter(|request| !request.ends.is_empty() || request.with_template == 0).collect()
}

/// The claims of a class, by one of its variants, on the machines of a NodePool.
struct ClaimsOnPool<'a> {
    packing: &'a Packing<'a>,
    class: ClassId,
    stage: &'a PoolStage<'a, 'a>,
    variant: usize,
    steps: &'a Steps,
}

impl ClaimsOnPool<'_> {
    /// Adds what becomes of a request on each of the pool's types that serve the class by this variant.
    fn add_types(&self, key: &Request, known: &mut Known) {
        let Self { packing, class, stage, variant, steps } = *self;
        let problem = packing.problem;
        let (table, catalogue) = (stage.table, stage.table.catalogue);
        let Some(of_snapshot) = &problem.snapshot.devices else { return };
        for instance_type in catalogue.types.ids() {
            let offerings: Vec<OfferingId> = catalogue.offerings_of(instance_type).collect();
            let is_served_so = |offering: &&OfferingId| {
                problem.variant_at(class, &catalogue.offerings[**offering].allocatable) == variant
            };
            if !offerings.iter().any(|offering| is_served_so(&offering)) {
                continue;
            }
            let shape = of_snapshot.shape(table.id, instance_type);
            let of_shape = steps.by_shape.iter().find(|(of, _)| Some(*of) == shape).map(|(_, steps)| steps);
            let on_type = match of_shape {
                Some(Ok(requests)) => {
                    let of_request = requests.iter().find(|request| request.claim == key.0 && request.request == key.1);
                    match of_request {
                        Some(request) => by_devices(request),
                        None => OnType { end: EndOfType::OtherRequest, has_template: false, usable: 0, nearest: None },
                    }
                }
                Some(Err(why)) => {
                    let end = why.clone().map_or(EndOfType::Undecided, EndOfType::Refused);
                    OnType { end, has_template: true, usable: 0, nearest: None }
                }
                // It gives the pod its devices.
                None => OnType {
                    end: self.after_devices(instance_type, &offerings),
                    has_template: true,
                    usable: u64::MAX,
                    nearest: None,
                },
            };
            let name = &catalogue.types[instance_type].name;
            match known.by_type.get_mut(name) {
                // A type of several NodePools counts where it comes furthest.
                Some(before) if before.end >= on_type.end => {}
                Some(before) => *before = on_type,
                None => drop(known.by_type.insert(name.clone(), on_type)),
            }
        }
    }

    /// Where a type ends whose machines would give the pod its devices.
    fn after_devices(&self, instance_type: TypeId, offerings: &[OfferingId]) -> EndOfType {
        let Self { packing, class, stage, .. } = *self;
        let names = packing.problem.names();
        let asked = Asked {
            packing,
            class,
            rank: stage.rank,
            table: stage.table,
            term: stage.term,
            given: stage.given.as_ref(),
        };
        match asked.furthest(offerings, &mut Shortages::default(), names) {
            Fall::NodePool => EndOfType::NodePool,
            Fall::Label(key) => EndOfType::Label(names.key_name(key).into()),
            Fall::Resources => EndOfType::Resources,
            Fall::Devices => EndOfType::NotSettled,
            Fall::HostPort | Fall::Offering | Fall::Reservation => {
                EndOfType::Offering(catalogue_zones(packing.problem, stage, instance_type))
            }
        }
    }
}

fn by_devices(request: &RequestStep) -> OnType {
    OnType {
        end: request.step.clone().map_or(EndOfType::OtherRequest, EndOfType::Step),
        has_template: request.of_class > 0,
        usable: request.usable,
        nearest: request.nearest.clone(),
    }
}

/// The zones of a type's offerings that the pod's labels and the NodePool agree with.
fn catalogue_zones(problem: &Problem<'_>, stage: &PoolStage<'_, '_>, instance_type: TypeId) -> Vec<Arc<str>> {
    let names = problem.names();
    let table = stage.table;
    let agrees = |offering: &OfferingId| {
        table.allows(*offering, names)
            && stage
                .term
                .requirements
                .iter()
                .all(|wanted| table.can_have(Some(*offering), wanted.key, &wanted.values, names))
    };
    let agreeing = table.catalogue.offerings_of(instance_type).filter(agrees);
    let mut zones: Vec<Arc<str>> =
        agreeing.map(|offering| names.value_arc(table.catalogue.offerings[offering].zone)).collect();
    zones.sort();
    zones.dedup();
    zones
}

fn summary((claim, request): Request, known: Known) -> ClaimedDevices {
    let types = known.by_type.len();
    let with_template = known.by_type.values().filter(|on_type| on_type.has_template).count();
    let mut counts: BTreeMap<&EndOfType, usize> = BTreeMap::new();
    for on_type in known.by_type.values().filter(|on_type| on_type.has_template) {
        *counts.entry(&on_type.end).or_default() += 1;
    }
    let mut ends: Vec<EndingTypes> = Vec::new();
    let mut without_capacity: (usize, Vec<Arc<str>>) = (0, Vec::new());
    for (end, types) in counts {
        match end {
            EndOfType::Offering(zones) => {
                without_capacity.0 += types;
                without_capacity.1.extend(zones.iter().cloned());
            }
            _ => ends.push(EndingTypes::new(types, end, &request)),
        }
    }
    let (without, zones) = without_capacity;
    if without > 0 {
        ends.push(EndingTypes::new(without, &EndOfType::Offering(zones), &request));
    }
    let furthest = |on_type: &&OnType| matches!(on_type.end, EndOfType::Step(_)) && on_type.nearest.is_some();
    let nearest = known.by_type.iter().filter(|(_, on_type)| furthest(on_type));
    // More usable devices are nearer; of equals the first by name.
    let nearest = nearest
        .max_by(|(a, on_a), (b, on_b)| (&on_a.end, on_a.usable).cmp(&(&on_b.end, on_b.usable)).then_with(|| b.cmp(a)));
    let nearest = nearest.and_then(|(name, on_type)| Some(format!("on {name} {}", on_type.nearest.as_ref()?).into()));
    let (class, wanted) = (known.class, known.wanted);
    ClaimedDevices { claim, request, class, wanted, types, with_template, ends, nearest }
}
