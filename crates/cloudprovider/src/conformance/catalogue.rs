//! Whether a catalogue is one that can be planned with.

use std::collections::BTreeSet;

use api::{labels, resources};

use super::{Finding, Kit, ensure};
use crate::{CapacityType, InstanceType, InstanceTypes, Offering};

fn offerings(types: &InstanceTypes) -> impl Iterator<Item = (&InstanceType, &Offering)> {
    types
        .types
        .iter()
        .flat_map(|instance_type| instance_type.offerings.iter().map(move |offering| (&**instance_type, offering)))
}

pub(super) fn instance_types_are_told(types: &InstanceTypes) -> Result<(), Finding> {
    ensure!(!types.types.is_empty(), "there is no instance type");
    Ok(())
}

pub(super) fn names_are_unique_and_ordered(types: &InstanceTypes) -> Result<(), Finding> {
    for (before, after) in types.types.iter().zip(types.types.iter().skip(1)) {
        ensure!(before.name != after.name, "instance type {} twice", after.name);
        ensure!(before.name < after.name, "instance type {} comes after {}", after.name, before.name);
    }
    for instance_type in types.types.iter() {
        ensure!(!instance_type.name.is_empty(), "an instance type without a name");
    }
    Ok(())
}

pub(super) fn types_carry_labels(types: &InstanceTypes) -> Result<(), Finding> {
    for instance_type in types.types.iter() {
        let name = &instance_type.name;
        let values = |key| instance_type.requirements.get(key);
        let own_name = values(labels::INSTANCE_TYPE).is_some_and(|values| values.iter().eq([name.as_str()]));
        ensure!(own_name, "instance type {name}: label {} is not its name", labels::INSTANCE_TYPE);
        for key in [labels::ARCH, labels::OS, labels::ZONE, labels::CAPACITY_TYPE] {
            ensure!(
                values(key).is_some_and(|values| !values.is_empty()),
                "instance type {name}: no value of label {key}"
            );
        }
    }
    Ok(())
}

pub(super) fn capacity_leaves_room_for_pods(types: &InstanceTypes) -> Result<(), Finding> {
    let check = |name: &str, capacity: &crate::ResourceList, allocatable: &crate::ResourceList| {
        for (resource, amount) in capacity {
            ensure!(amount.sign() >= 0, "instance type {name}: capacity of {resource} is negative");
        }
        for resource in [resources::CPU, resources::MEMORY, resources::PODS] {
            let left = allocatable.get(resource).map_or(0, |amount| amount.sign());
            ensure!(left > 0, "instance type {name}: no {resource} is left for pods");
        }
        Ok(())
    };
    for instance_type in types.types.iter() {
        check(&instance_type.name, &instance_type.capacity, &instance_type.allocatable())?;
    }
    for (instance_type, offering) in offerings(types) {
        check(&instance_type.name, &offering.capacity(instance_type), &offering.allocatable(instance_type))?;
    }
    Ok(())
}

pub(super) fn offerings_are_unique(types: &InstanceTypes) -> Result<(), Finding> {
    let mut seen = BTreeSet::new();
    for (instance_type, offering) in offerings(types) {
        let key = offering.key(&instance_type.name);
        ensure!(seen.insert(key.clone()), "offering {key} twice");
    }
    for instance_type in types.types.iter() {
        ensure!(!instance_type.offerings.is_empty(), "instance type {} has no offering", instance_type.name);
    }
    Ok(())
}

pub(super) fn offerings_agree_with_their_type(types: &InstanceTypes) -> Result<(), Finding> {
    for (instance_type, offering) in offerings(types) {
        for (label, value) in offering.all_labels() {
            ensure!(!value.is_empty(), "offering {}: label {label} is empty", offering.key(&instance_type.name));
            let known = instance_type.requirements.get(label).is_none_or(|values| values.contains(value));
            ensure!(known, "offering {}: its type does not have {label}={value}", offering.key(&instance_type.name));
        }
    }
    for instance_type in types.types.iter() {
        for key in labels::OFFERING {
            for value in instance_type.requirements.get(key).into_iter().flatten() {
                let sold = instance_type.offerings.iter().any(|offering| offering.label(key) == Some(value));
                ensure!(sold, "instance type {}: no offering has {key}={value}", instance_type.name);
            }
        }
    }
    Ok(())
}

pub(super) fn prices_are_not_negative(types: &InstanceTypes) -> Result<(), Finding> {
    for (instance_type, offering) in offerings(types) {
        let key = offering.key(&instance_type.name);
        ensure!(offering.price >= Default::default(), "offering {key}: price {:?}", offering.price);
    }
    Ok(())
}

pub(super) fn reservations_are_named(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let id_label = kit.provider.config().labels.reservation_id.as_deref();
    for (instance_type, offering) in offerings(types) {
        let key = offering.key(&instance_type.name);
        let reserved = offering.capacity_type == CapacityType::Reserved;
        ensure!(
            offering.reservation.is_some() == reserved,
            "offering {key}: reservation without capacity type, or the reverse"
        );
        if let Some(reservation) = &offering.reservation {
            let Some(id_label) = id_label else {
                return Err(
                    format!("offering {key}: reserved, but the provider declares no reservation id label").into()
                );
            };
            let labelled = offering.label(id_label) == Some(&reservation.id);
            ensure!(labelled, "offering {key}: label {id_label} is not the reservation's id");
        }
    }
    Ok(())
}

pub(super) fn labels_are_well_known(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let labels = &kit.provider.config().labels;
    for instance_type in types.types.iter() {
        let of_offerings = instance_type.offerings.iter().flat_map(|offering| offering.labels.keys());
        for key in instance_type.requirements.keys().chain(of_offerings) {
            ensure!(
                labels.is_well_known(key),
                "instance type {}: label {key} is not declared well-known",
                instance_type.name
            );
        }
    }
    Ok(())
}

pub(super) async fn generation_is_steady(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let again = kit.provider.instance_types(&kit.hooks.node_pool()).await?;
    let same = again.types == types.types;
    let (before, after) = (types.generation, again.generation);
    ensure!(same == (before == after), "generation {before}, then {after}; instance types are the same: {same}");
    Ok(())
}
