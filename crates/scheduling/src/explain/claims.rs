//! What becomes of each request of a refused class's claims on the instance types that there are: how many have a
//! template for it, and at which step of the allocator, or rule of the planner after it, each of them ends.

use std::{collections::BTreeMap, sync::Arc};

use dra_sched::explain::{RequestStep, Step};
use dra_sched::verdict::Rule;
use model::InstanceTypeName;

use super::{Asked, Fall, PoolStage, Shortages};
use crate::catalogue::{OfferingId, TypeId};
use crate::plan::reason::{ClaimedDevices, EndingTypes, zones};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::Steps;

/// Where a type ends, in the order in which that is asked. What is known of devices comes first: it holds whatever else
/// would be changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Step(Step),
    /// The refusal is not about single devices.
    Refused(Arc<str>),
    /// The search was given up.
    Undecided,
    /// Another request of the pod.
    OtherRequest,
    NodePool,
    Label(Arc<str>),
    Resources,
    /// It would give them, and the plan did not come to that: out of budget, or other claims come first.
    NotSettled,
    /// Devices are there and room is, but nothing to be had; with the zones that would do.
    Offering(Vec<Arc<str>>),
}

/// One request on one type.
struct OnType {
    end: End,
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
            let steps = devices.steps(packing.problem, stage.rank, class, variant);
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
                        None => OnType { end: End::OtherRequest, has_template: false, usable: 0, nearest: None },
                    }
                }
                Some(Err(why)) => {
                    let end = why.clone().map_or(End::Undecided, End::Refused);
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
    fn after_devices(&self, instance_type: TypeId, offerings: &[OfferingId]) -> End {
        let Self { packing, class, stage, .. } = *self;
        let names = packing.problem.names();
        let asked = Asked { packing, class, table: stage.table, term: stage.term, given: stage.given.as_ref() };
        match asked.furthest(offerings, &mut Shortages::default(), names) {
            Fall::NodePool => End::NodePool,
            Fall::Label(key) => End::Label(names.key_name(key).into()),
            Fall::Resources => End::Resources,
            Fall::Devices => End::NotSettled,
            Fall::HostPort | Fall::Offering | Fall::Reservation => {
                End::Offering(catalogue_zones(packing.problem, stage, instance_type))
            }
        }
    }
}

fn by_devices(request: &RequestStep) -> OnType {
    OnType {
        end: request.step.clone().map_or(End::OtherRequest, End::Step),
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
    let mut counts: BTreeMap<&End, usize> = BTreeMap::new();
    for on_type in known.by_type.values().filter(|on_type| on_type.has_template) {
        *counts.entry(&on_type.end).or_default() += 1;
    }
    let mut ends: Vec<EndingTypes> = Vec::new();
    let mut zones_without_capacity: (usize, Vec<Arc<str>>) = (0, Vec::new());
    for (end, types) in counts {
        match end {
            End::Offering(zones) => {
                zones_without_capacity.0 += types;
                zones_without_capacity.1.extend(zones.iter().cloned());
            }
            _ => ends.push(EndingTypes { types, code: end.code(), what: end.message(&request).into() }),
        }
    }
    let (without_capacity, of_zones) = zones_without_capacity;
    if without_capacity > 0 {
        let what = format!("have no capacity in {}", zones(of_zones)).into();
        ends.push(EndingTypes { types: without_capacity, code: "Offering", what });
    }
    let furthest = |on_type: &&OnType| matches!(on_type.end, End::Step(_)) && on_type.nearest.is_some();
    let nearest = known.by_type.iter().filter(|(_, on_type)| furthest(on_type));
    // More usable devices are nearer; of equals the first by name.
    let nearest = nearest
        .max_by(|(a, on_a), (b, on_b)| (&on_a.end, on_a.usable).cmp(&(&on_b.end, on_b.usable)).then_with(|| b.cmp(a)));
    let nearest = nearest.and_then(|(name, on_type)| Some(format!("on {name} {}", on_type.nearest.as_ref()?).into()));
    let (class, wanted) = (known.class, known.wanted);
    ClaimedDevices { claim, request, class, wanted, types, with_template, ends, nearest }
}

impl End {
    fn code(&self) -> &'static str {
        match self {
            Self::Step(step) => step.code(),
            Self::Refused(_) => "Refused",
            Self::Undecided => "OutOfBudget",
            Self::OtherRequest => "OtherRequest",
            Self::NodePool => "NodePool",
            Self::Label(_) => "Label",
            Self::Resources => "Resources",
            Self::NotSettled => "NotSettled",
            Self::Offering(_) => "Offering",
        }
    }

    /// As `3 types …`.
    fn message(&self, request: &str) -> String {
        match self {
            Self::Step(step) => step_message(step, request),
            Self::Refused(why) => format!("fall because {why}"),
            Self::Undecided => "were not decided within the budget".to_owned(),
            Self::OtherRequest => "fall at another request".to_owned(),
            Self::NodePool => "are excluded by the NodePool's requirements".to_owned(),
            Self::Label(key) => format!("fall at label {key}"),
            Self::Resources => "are too small".to_owned(),
            Self::NotSettled => "have them, and the plan did not settle on that".to_owned(),
            Self::Offering(_) => "have no capacity".to_owned(),
        }
    }
}

fn step_message(step: &Step, request: &str) -> String {
    match step {
        Step::NoDevices => "have no such devices".to_owned(),
        Step::Rule(Rule::ClassSelector { text, .. }) => format!("fall at selector {text} of the class"),
        Step::Rule(Rule::RequestSelector { text, .. }) => format!("fall at selector {text} of request {request}"),
        Step::Rule(Rule::InUse) => "have too few that are not taken".to_owned(),
        Step::Rule(Rule::Taint { taint }) => format!("fall at device taint {taint}"),
        Step::Rule(Rule::Capacity { name }) => format!("fall at capacity {name} of request {request}"),
        Step::Rule(Rule::Counter { set, counter }) => format!("fall at counter {set}/{counter}"),
        Step::Rule(Rule::NoAttribute { attribute }) => format!("fall at a constraint: no attribute {attribute}"),
        Step::Rule(rule) => format!("have devices that {rule}"),
        Step::TooFew => "have too few of them".to_owned(),
        Step::Together => "have too few for all requests together".to_owned(),
        Step::Constraint { distinct: false, attribute } => format!("fall at matchAttribute {attribute}"),
        Step::Constraint { distinct: true, attribute } => format!("fall at distinctAttribute {attribute}"),
        Step::Combination => "have no combination that satisfies all requests".to_owned(),
    }
}
