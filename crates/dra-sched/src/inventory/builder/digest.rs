//! Digests of what a builder gives one id if it is equal. Equal objects have equal digests; different ones usually have
//! not, and are compared in full if they have.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use model::collections::NameMap;

use crate::machine::{LabelKnowledge, MachineShape, MachineTemplate};
use dra_types::{AllocationMode, ConstraintKind, ExactRequest, RequestKind, ResourceClaimSpec};

fn hasher() -> impl Hasher {
    NameMap::<u64, ()>::default().hasher().build_hasher()
}

/// Of a claim spec: all that usually tells two apart; configuration and amounts do not count.
pub(super) fn of_spec(spec: &ResourceClaimSpec) -> u64 {
    let mut hasher = hasher();
    for request in &spec.requests {
        request.name.hash(&mut hasher);
        match &request.kind {
            RequestKind::Exactly(exact) => add_request(exact, &mut hasher),
            RequestKind::FirstAvailable(alternatives) => {
                for (name, exact) in alternatives {
                    name.hash(&mut hasher);
                    add_request(exact, &mut hasher);
                }
            }
            RequestKind::Neither => {}
        }
    }
    for constraint in &spec.constraints {
        constraint.requests.hash(&mut hasher);
        match &constraint.kind {
            ConstraintKind::MatchAttribute(name) => (0u8, name).hash(&mut hasher),
            ConstraintKind::DistinctAttribute(name) => (1u8, name).hash(&mut hasher),
            ConstraintKind::Other => 2u8.hash(&mut hasher),
        }
    }
    spec.config.len().hash(&mut hasher);
    hasher.finish()
}

fn add_request(exact: &ExactRequest, hasher: &mut impl Hasher) {
    exact.device_class_name.hash(hasher);
    exact.selectors.hash(hasher);
    match &exact.allocation_mode {
        AllocationMode::ExactCount(count) => count.hash(hasher),
        AllocationMode::All => {}
        AllocationMode::Other(mode) => mode.hash(hasher),
    }
    (exact.admin_access, exact.tolerations.len(), exact.capacity.len()).hash(hasher);
    for derived in &exact.derived_attributes {
        (&derived.name, &derived.expression).hash(hasher);
    }
}

/// Of a template: its driver, its pool and the names of its devices.
pub(super) fn of_template(template: &MachineTemplate) -> u64 {
    let mut hasher = hasher();
    add_template(template, &mut hasher);
    hasher.finish()
}

fn add_template(template: &MachineTemplate, hasher: &mut impl Hasher) {
    (&template.driver, &template.pool_suffix, template.devices.len()).hash(hasher);
    for device in &template.devices {
        device.name.hash(hasher);
    }
}

/// Of a machine shape.
pub(super) fn of_machine(shape: &MachineShape) -> u64 {
    let mut hasher = hasher();
    shape.templates.iter().for_each(|template| add_template(template, &mut hasher));
    for shared in &shape.shared {
        (shared.scope, &shared.nodes).hash(&mut hasher);
        add_template(&shared.template, &mut hasher);
    }
    for (key, knowledge) in &shape.labels {
        key.hash(&mut hasher);
        match knowledge {
            LabelKnowledge::Known(value) => value.hash(&mut hasher),
            LabelKnowledge::OneOf(values) => values.iter().for_each(|value: &Arc<str>| value.hash(&mut hasher)),
        }
    }
    shape.declared_features.hash(&mut hasher);
    hasher.finish()
}
