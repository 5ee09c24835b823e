//! Claims, compiled: classes are looked up and selectors numbered; errors that hold on every node are found here.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{IdVec, Quantity};
use smallvec::SmallVec;

use super::attributes;
use super::derived::{DerivedId, DerivedTable};
use super::device::DeviceEntry;
use super::ids::{AttributeIndex, ClaimClassId, DeviceKey};
use super::selectors::{SelectorId, SelectorTable};
use crate::faults::ClaimFault;
use dra_types::compat::{Compat, Gate, KubernetesMinor};
use dra_types::{
    Allocation, AllocationMode, AllocationResult, Constraint, ConstraintKind, DeviceClass, DeviceClassName,
    DeviceSelector, DeviceTaint, DeviceToleration, ExactRequest, NodeSelector, QualifiedName, RequestKind, RequestName,
    ResourceClaim, ResourceClaimSpec, TaintEffect,
};

/// A claim that exists.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) class: ClaimClassId,
    pub(crate) object: Arc<ResourceClaim>,
    /// The device of each result of its allocation.
    pub(crate) held: SmallVec<[DeviceKey; 1]>,
    /// Allocated, and nobody uses it: see [`InventoryBuilder::mark_idle`](crate::InventoryBuilder::mark_idle).
    pub(crate) is_idle: bool,
}

impl Claim {
    /// What it was given, with the devices.
    pub(crate) fn results(&self) -> impl Iterator<Item = (&AllocationResult, DeviceKey)> {
        let results = self.object.allocation.iter().flat_map(|allocation| &allocation.results);
        results.zip(self.held.iter().copied())
    }

    /// The nodes that its allocation is for, if not all.
    pub(crate) fn nodes(&self) -> Option<&NodeSelector> {
        self.object.allocation.as_ref()?.node_selector.as_deref()
    }
}

/// A claim spec, compiled.
#[derive(Debug)]
pub(crate) struct ClaimClass {
    /// Its name in reasons.
    pub(crate) name: Arc<str>,
    pub(crate) spec: Arc<ResourceClaimSpec>,
    pub(crate) requests: Vec<Request>,
    pub(crate) constraints: Vec<CompiledConstraint>,
    /// Why no node can allocate it.
    pub(crate) fault: Option<ClaimFault>,
}

/// A request: one alternative for `exactly`, several for firstAvailable.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) first_available: bool,
    pub(crate) alternatives: Vec<Alternative>,
    /// How many alternatives the requests before it have together.
    pub(crate) before: usize,
}

/// One way to satisfy a request.
#[derive(Debug)]
pub(crate) struct Alternative {
    /// `request`, or `request/subrequest`.
    pub(crate) name: RequestName,
    pub(crate) class: Arc<DeviceClass>,
    pub(crate) class_selectors: Vec<SelectorId>,
    pub(crate) selectors: Vec<SelectorId>,
    /// None for all.
    pub(crate) count: Option<usize>,
    pub(crate) admin_access: bool,
    pub(crate) tolerations: Vec<DeviceToleration>,
    pub(crate) capacity: BTreeMap<QualifiedName, Quantity>,
    /// Constraints that cover it.
    pub(crate) constraints: Vec<usize>,
    /// Constraints whose attribute the request derives itself.
    pub(crate) derived: Vec<(usize, DerivedId)>,
}

impl Alternative {
    /// The expression that derives the attribute of a constraint.
    pub(crate) fn derived_for(&self, constraint: usize) -> Option<DerivedId> {
        self.derived.iter().find(|(of, _)| *of == constraint).map(|(_, id)| *id)
    }

    /// The first taint of a device that it does not tolerate.
    pub(crate) fn untolerated<'d>(&self, device: &'d DeviceEntry, compat: &Compat) -> Option<&'d DeviceTaint> {
        if !compat.is_on(Gate::DeviceTaints) {
            return None;
        }
        let counts = |taint: &&DeviceTaint| {
            matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
                && !self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
        };
        device.taints.iter().find(counts)
    }
}

/// Where texts and names of claims get their numbers.
pub(crate) struct Numbering<'a> {
    pub(crate) selectors: &'a mut SelectorTable,
    pub(crate) derived: &'a mut DerivedTable,
    pub(crate) attributes: &'a mut IdVec<AttributeIndex, QualifiedName>,
}

/// A constraint of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompiledConstraint {
    pub(crate) attribute: AttributeIndex,
    pub(crate) distinct: bool,
}

impl ClaimClass {
    pub(crate) fn compile(
        name: &Arc<str>,
        spec: &Arc<ResourceClaimSpec>,
        unsupported: Option<&Arc<str>>,
        compat: &Compat,
        classes: &BTreeMap<DeviceClassName, Arc<DeviceClass>>,
        numbering: &mut Numbering<'_>,
    ) -> Self {
        let mut compiler = Compiler { compat, classes, selectors: numbering.selectors, derived: numbering.derived };
        let compiled = match unsupported {
            Some(field) => Err(ClaimFault::Unsupported(Arc::clone(field))),
            None => compiler.requests(spec),
        };
        let constraints = compiled.as_ref().map_or(Ok(Vec::new()), |_| constraints(spec, numbering.attributes));
        let (requests, constraints, fault) = match (compiled, constraints) {
            (Ok(requests), Ok(constraints)) => {
                let fault = too_many(&requests);
                (requests, constraints, fault)
            }
            (Err(fault), _) | (Ok(_), Err(fault)) => (Vec::new(), Vec::new(), Some(fault)),
        };
        Self { name: Arc::clone(name), spec: Arc::clone(spec), requests, constraints, fault }
    }

    /// The alternatives of all requests.
    pub(crate) fn alternatives(&self) -> usize {
        self.requests.last().map_or(0, |last| last.before + last.alternatives.len())
    }
}

/// Whether the requests want more devices than a claim's status can hold, whichever alternatives are chosen. Requests
/// for all devices are checked once their devices are known.
fn too_many(requests: &[Request]) -> Option<ClaimFault> {
    let least = |request: &Request| {
        request.alternatives.iter().map(|alternative| alternative.count.unwrap_or(0)).min().unwrap_or(0) as u64
    };
    let devices = requests.iter().map(least).fold(0u64, u64::saturating_add);
    (devices > Allocation::MAX_RESULTS as u64).then_some(ClaimFault::TooManyDevices { devices })
}

fn constraints(
    spec: &ResourceClaimSpec,
    names: &mut IdVec<AttributeIndex, QualifiedName>,
) -> Result<Vec<CompiledConstraint>, ClaimFault> {
    let compile = |(index, constraint): (usize, &Constraint)| match &constraint.kind {
        ConstraintKind::MatchAttribute(name) => {
            Ok(CompiledConstraint { attribute: attributes::intern(names, name), distinct: false })
        }
        ConstraintKind::DistinctAttribute(name) => {
            Ok(CompiledConstraint { attribute: attributes::intern(names, name), distinct: true })
        }
        ConstraintKind::Other => Err(ClaimFault::UnknownConstraint { index }),
    };
    spec.constraints.iter().enumerate().map(compile).collect()
}

struct Compiler<'a> {
    compat: &'a Compat,
    classes: &'a BTreeMap<DeviceClassName, Arc<DeviceClass>>,
    selectors: &'a mut SelectorTable,
    derived: &'a mut DerivedTable,
}

impl Compiler<'_> {
    fn requests(&mut self, spec: &ResourceClaimSpec) -> Result<Vec<Request>, ClaimFault> {
        let mut requests = Vec::with_capacity(spec.requests.len());
        let mut before = 0;
        for request in &spec.requests {
            let (first_available, alternatives) = match &request.kind {
                RequestKind::Exactly(exact) => (false, vec![self.alternative(spec, request.name.clone(), exact)?]),
                RequestKind::FirstAvailable(alternatives) => {
                    self.needs(Gate::PrioritizedList, &request.name, "has subrequests")?;
                    let compile = |(name, exact): &(RequestName, ExactRequest)| {
                        let full_name = RequestName::from(&*format!("{}/{name}", request.name));
                        self.alternative(spec, full_name, exact)
                    };
                    (true, alternatives.iter().map(compile).collect::<Result<_, _>>()?)
                }
                RequestKind::Neither => return Err(ClaimFault::NoClass { request: request.name.clone() }),
            };
            let count = alternatives.len();
            requests.push(Request { first_available, alternatives, before });
            before += count;
        }
        Ok(requests)
    }

    fn needs(&self, gate: Gate, request: &RequestName, what: &'static str) -> Result<(), ClaimFault> {
        if self.compat.is_on(gate) {
            Ok(())
        } else {
            Err(ClaimFault::FeatureOff { request: request.clone(), what, gate: gate.name() })
        }
    }

    fn alternative(
        &mut self,
        spec: &ResourceClaimSpec,
        name: RequestName,
        exact: &ExactRequest,
    ) -> Result<Alternative, ClaimFault> {
        // A field whose gate is off is an error of the claim: the API server keeps such fields in stored objects, and
        // the scheduler refuses them.
        if !exact.capacity.is_empty() {
            self.needs(Gate::ConsumableCapacity, &name, "has capacity requests")?;
        }
        // Releases before 1.37 do not know the field and drop it.
        let derives = !exact.derived_attributes.is_empty() && self.compat.kubernetes >= KubernetesMinor::V1_37;
        if derives {
            self.needs(Gate::DerivedAttributes, &name, "has derived attributes")?;
        }
        if exact.admin_access {
            self.needs(Gate::AdminAccess, &name, "admin access is requested")?;
        }
        if exact.device_class_name.as_str().is_empty() {
            return Err(ClaimFault::NoClass { request: name });
        }
        // A class that is missing is an error of this claim on every node, so it is found once here.
        let unknown = || ClaimFault::UnknownClass { request: name.clone(), class: exact.device_class_name.clone() };
        let class = self.classes.get(&exact.device_class_name).ok_or_else(unknown)?;
        if let Some(unsupported) = class.unsupported.first() {
            let field = format!("class {}: {}", exact.device_class_name, unsupported.construct);
            return Err(ClaimFault::Unsupported(field.into()));
        }
        let count = match &exact.allocation_mode {
            AllocationMode::ExactCount(count) => Some(usize::try_from(*count).unwrap_or(0)),
            AllocationMode::All => None,
            AllocationMode::Other(mode) => {
                return Err(ClaimFault::UnknownMode { request: name, mode: Arc::clone(mode) });
            }
        };
        // Constraints of the claim are looked up by request name once, since every pick asks for them.
        let constraints = covering(spec, &name);
        let derived = if derives { self.derived(spec, exact, &constraints) } else { Vec::new() };
        Ok(Alternative {
            class_selectors: self.selectors(&name, &class.selectors)?,
            selectors: self.selectors(&name, &exact.selectors)?,
            class: Arc::clone(class),
            count,
            admin_access: exact.admin_access,
            tolerations: exact.tolerations.clone(),
            capacity: exact.capacity.clone(),
            constraints,
            derived,
            name,
        })
    }

    /// Attributes that the request computes for constraints: by exact name, the last one of a name counts.
    fn derived(
        &mut self,
        spec: &ResourceClaimSpec,
        exact: &ExactRequest,
        covering: &[usize],
    ) -> Vec<(usize, DerivedId)> {
        let mut derived = Vec::new();
        for &constraint in covering {
            let named = match spec.constraints.get(constraint).map(|constraint| &constraint.kind) {
                Some(ConstraintKind::MatchAttribute(name) | ConstraintKind::DistinctAttribute(name)) => name,
                Some(ConstraintKind::Other) | None => continue,
            };
            if let Some(found) = exact.derived_attributes.iter().rfind(|derived| derived.name == *named) {
                derived.push((constraint, self.derived.intern(&found.expression)));
            }
        }
        derived
    }

    fn selectors(&mut self, name: &RequestName, texts: &[DeviceSelector]) -> Result<Vec<SelectorId>, ClaimFault> {
        let number = |(index, selector): (usize, &DeviceSelector)| match selector {
            DeviceSelector::Cel(text) => Ok(self.selectors.intern(text)),
            DeviceSelector::Other => Err(ClaimFault::UnknownSelector { request: name.clone(), index }),
        };
        texts.iter().enumerate().map(number).collect()
    }
}

/// The constraints that name a request, all its alternatives, or nothing in particular.
fn covering(spec: &ResourceClaimSpec, name: &RequestName) -> Vec<usize> {
    let covers = |constraint: &Constraint| {
        constraint.requests.is_empty()
            || constraint.requests.iter().any(|named| *named == *name || named == name.split().0)
    };
    let covering = spec.constraints.iter().enumerate().filter(|(_, constraint)| covers(constraint));
    covering.map(|(index, _)| index).collect()
}
