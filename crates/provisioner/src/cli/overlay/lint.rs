//! Mistakes that neither the API server nor the controller refuses.

use std::collections::{BTreeMap, BTreeSet};

use dra_sched::Compat;
use dra_sched::cel::{DeviceView, Selector};
use dra_sched::types::{DeviceClass, DeviceSelector, DriverName};
use overlay::Expansion;
use overlay::capture::PLACEHOLDER_INSTANCE_TYPE;

use super::objects::{GivenOverlay, Objects, World};

/// What was found, in words, each with its object.
pub(super) fn lint(objects: &Objects, world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for given in &objects.overlays {
        let name = given.object.metadata.name.as_deref().unwrap_or_default();
        let unknown = given.unknown_fields.iter();
        found.extend(unknown.map(|field| format!("nodeoverlay/{name}: {field}: is not a known field, and is dropped")));
    }
    found.extend(placeholders(objects));
    found.extend(of_no_use(objects, world));
    found.extend(classes_without_devices(objects, world));
    found
}

/// Overlays that `capture` wrote and that their author has not finished.
fn placeholders(objects: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for given in objects.overlays.iter().filter(|given| is_unfinished(given)) {
        let name = given.object.metadata.name.as_deref().unwrap_or_default();
        found.push(format!(
            "nodeoverlay/{name}: spec.requirements: {PLACEHOLDER_INSTANCE_TYPE} stands for the instance types that the \
             overlay is for; put their names in its place"
        ));
    }
    found
}

fn is_unfinished(given: &GivenOverlay) -> bool {
    let mut values = given.object.spec.requirements.iter().flat_map(|requirement| &requirement.values);
    values.any(|value| value == PLACEHOLDER_INSTANCE_TYPE)
}

/// Overlays that match nothing, and drivers that others describe wherever the overlay does.
fn of_no_use(objects: &Objects, world: &World) -> Vec<String> {
    let mut in_effect: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, types) in world.pools() {
        for template in types.iter().flat_map(|it| &it.dynamic_resources.resource_slice_templates) {
            if let Some((overlay, _)) = template.metadata.name.split_once('/') {
                in_effect.entry(overlay).or_default().insert(&template.spec.driver);
            }
        }
    }
    let mut found = Vec::new();
    for overlay in &world.overlays {
        let name = &overlay.name;
        let is_placeholder =
            |it: &GivenOverlay| it.object.metadata.name.as_deref() == Some(name.as_str()) && is_unfinished(it);
        let says_nothing =
            overlay.price.is_none() && overlay.capacity.is_empty() && overlay.dynamic_resources.is_empty();
        if says_nothing {
            found.push(format!("nodeoverlay/{name}: spec: it says nothing of price, capacity or dynamicResources"));
        } else if world.of_no_effect.contains(name) && !objects.overlays.iter().any(is_placeholder) {
            found.push(format!("nodeoverlay/{name}: spec.requirements: no instance type of any NodePool matches"));
        }
        for (driver, described) in world.evaluation.described.get(name).into_iter().flatten() {
            if described.most == 0 {
                found.push(format!(
                    "nodeoverlay/{name}: its templates of {driver} come to no device on any instance type"
                ));
                continue;
            }
            if !in_effect.get(name.as_str()).is_some_and(|drivers| drivers.contains(driver.as_str())) {
                found.push(format!(
                    "nodeoverlay/{name}: its templates of {driver} are never used: overlays that come first describe \
                     that driver on every instance type that matches"
                ));
            }
        }
    }
    found
}

/// DeviceClasses that no device of any overlay is in.
fn classes_without_devices(objects: &Objects, world: &World) -> Vec<String> {
    let mut devices = Vec::new();
    for (_, types) in world.pools() {
        for instance_type in types {
            let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
            let Ok(expansion) = Expansion::new(&instance_type.dynamic_resources, &label) else { continue };
            for pool in expansion.pools {
                for device in pool.devices {
                    let known = (pool.driver.clone(), device.device);
                    if !devices.contains(&known) {
                        devices.push(known);
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    for class in &objects.classes {
        let meets = devices.iter().any(|(driver, device)| is_in(class, driver, device));
        if !meets && !devices.is_empty() {
            let count = devices.len();
            found.push(format!(
                "deviceclass/{}: none of the {count} different devices that overlays describe meets its selectors",
                class.meta.name.name
            ));
        }
    }
    found
}

fn is_in(class: &DeviceClass, driver: &DriverName, device: &dra_sched::types::Device) -> bool {
    class.selectors.iter().all(|selector| match selector {
        DeviceSelector::Cel(text) => Selector::compile(text, &Compat::fixed()).is_ok_and(|selector| {
            matches!(selector.evaluate(&DeviceView::new(driver, device, &Compat::fixed())).outcome, Ok(true))
        }),
        DeviceSelector::Other => false,
    })
}
