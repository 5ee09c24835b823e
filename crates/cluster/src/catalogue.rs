//! From a provider's instance types to the planner's catalogue.

mod templates;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use cloudprovider as provider;
use dra_sched::Templates;
use model::{Interner, NamespacedName, Requirement, Requirements, ResourceVec, ValueSet};
use scheduling::catalogue::{Catalogue, InstanceType, Offering, Reservation, TypeId};

use self::templates::Expander;
use decode::Context;
use decode::aliases;
use decode::resource_list::set;
use decode::{ObjectError, ObjectRef, Problem, Reason};

/// An instance type without its reserved offerings: what is left of it where the gate `ReservedCapacity` is off.
pub fn without_reserved(instance_type: &provider::InstanceType) -> Cow<'_, provider::InstanceType> {
    let is_reserved = |offering: &provider::Offering| offering.capacity_type == provider::CapacityType::Reserved;
    if !instance_type.offerings.iter().any(is_reserved) {
        return Cow::Borrowed(instance_type);
    }
    let mut instance_type = instance_type.clone();
    instance_type.offerings.retain(|offering| !is_reserved(offering));
    Cow::Owned(instance_type)
}

/// Compiles instance types. One that cannot be used is left out and reported, one whose device templates cannot be used
/// is a machine without devices; the others go on.
pub fn catalogue<'a>(
    types: impl IntoIterator<Item = &'a provider::InstanceType>,
    context: &mut Context<'_>,
) -> (Catalogue, Vec<ObjectError>) {
    let mut compiled = Vec::new();
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    let mut templates = Expander::default();
    for instance_type in types {
        let object_error = |problem| {
            let name = NamespacedName::new("", instance_type.name.as_str());
            ObjectError { object: ObjectRef { kind: "InstanceType".into(), name }, problem }
        };
        let result = if names.insert(&instance_type.name) {
            // Without devices a type is still a machine.
            let devices = templates.expand(instance_type).unwrap_or_else(|problem| {
                errors.push(object_error(problem));
                templates.nothing()
            });
            compile(instance_type, devices, context)
        } else {
            Err(Problem { field: "name".to_owned(), reason: Reason::Invalid("is given twice".to_owned()) })
        };
        match result {
            Ok(instance_type) => compiled.push(instance_type),
            Err(problem) => errors.push(object_error(problem)),
        }
    }
    (Catalogue::new(compiled, context.interner), errors)
}

fn compile(
    instance_type: &provider::InstanceType,
    device_templates: Arc<Templates>,
    context: &mut Context<'_>,
) -> Result<(InstanceType, Vec<Offering>), Problem> {
    if instance_type.name.is_empty() {
        return Err(Problem { field: "name".to_owned(), reason: Reason::Missing });
    }
    let mut requirements = Requirements::new();
    for (key, values) in &instance_type.requirements {
        let values: Vec<_> = values.iter().map(|value| context.value(key, value)).collect();
        // No value at all: machines of this type never have the label.
        let values = if values.is_empty() { ValueSet::only_absent() } else { ValueSet::among(values) };
        let key = context.key(key);
        requirements.insert_intersect(Requirement::new(key, values), context.interner);
    }
    aliases::promise(&mut requirements, context.interner);
    let mut offerings = Vec::new();
    let mut keys = BTreeSet::new();
    for (index, offering) in instance_type.offerings.iter().enumerate() {
        let at = |field: &str| format!("offerings[{index}]{field}");
        if !keys.insert(offering.key(&instance_type.name)) {
            return Err(Problem { field: at(""), reason: Reason::Invalid("is given twice".to_owned()) });
        }
        offerings.push(compile_offering(instance_type, offering, &requirements, &at, context)?);
    }
    let compiled = InstanceType {
        name: instance_type.name.clone(),
        requirements,
        capacity: resources(&instance_type.capacity, "capacity", context.interner)?,
        volume_attachment_limits: instance_type
            .volume_attachment_limits
            .iter()
            .map(|(driver, &limit)| (Arc::from(driver.as_str()), limit))
            .collect(),
        device_templates,
    };
    Ok((compiled, offerings))
}

fn compile_offering(
    instance_type: &provider::InstanceType,
    offering: &provider::Offering,
    of_type: &Requirements,
    at: &dyn Fn(&str) -> String,
    context: &mut Context<'_>,
) -> Result<Offering, Problem> {
    if offering.price.0 < 0 {
        let reason = Reason::Invalid(format!("{} is below zero", offering.price));
        return Err(Problem { field: at(".price"), reason });
    }
    let mut requirements = of_type.clone();
    for (key, value) in offering.all_labels() {
        let (id, value) = (context.key(key), context.value(key, value));
        requirements.insert_intersect(Requirement::new(id, ValueSet::one(value)), context.interner);
    }
    if offering.reservation.is_none() {
        let of_reservations = context.provider_labels().of_reservations();
        for key in of_reservations.filter(|key| offering.label(key).is_none()) {
            let absent = Requirement::new(context.key(key), ValueSet::only_absent());
            requirements.insert_intersect(absent, context.interner);
        }
    }
    aliases::promise(&mut requirements, context.interner);
    let id_label = context.provider_labels().reservation_id.as_deref();
    let reservation = offering.reservation.as_ref().map(|reservation| Reservation {
        label: id_label.filter(|label| offering.label(label).is_some()).map(|label| context.key(label)),
        id: context.interner.value(&reservation.id),
        remaining: reservation.remaining,
    });
    Ok(Offering {
        // Numbered by `Catalogue::new`.
        instance_type: <TypeId as model::Id>::from_index(0),
        requirements,
        zone: context.value(api::labels::ZONE, &offering.zone),
        capacity_type: offering.capacity_type,
        reservation,
        price: offering.price,
        available: offering.available,
        capacity: resources(&offering.capacity(instance_type), &at(".capacityOverride"), context.interner)?,
        allocatable: resources(&offering.allocatable(instance_type), &at(".overheadOverride"), context.interner)?,
    })
}

/// A provider's amounts as the planner counts them.
fn resources(list: &provider::ResourceList, field: &str, interner: &mut Interner) -> Result<ResourceVec, Problem> {
    let mut vec = ResourceVec::new();
    for (name, amount) in list {
        set(&mut vec, name, amount, interner)
            .map_err(|reason| Problem { field: format!("{field}[{name}]"), reason })?;
    }
    Ok(vec)
}

#[cfg(test)]
mod tests;
