//! Mistakes that neither the API server nor the controller refuses.

use std::collections::{BTreeMap, BTreeSet};

use api::{NodePool, labels};
use cloudprovider::InstanceType;
use cluster::offline::{self, OfflineNote, Settings};
use decode::manifests::Manifest;
use dra_templates::Expansion;
use dra_templates::{Nodes, Pool};
use dra_types::{AttributeValue, Compat, Device, DeviceClass, DeviceName, DeviceSelector, DriverName};
use k8s_cel::{DeviceView, EvalError, Selector};
use overlay::capture::PLACEHOLDER_INSTANCE_TYPE;

use super::objects::{GivenOverlay, Objects, World};
use crate::cli::machine_types;
use crate::cli::report::plural;

/// What was found, in words, each with its object.
pub(super) fn lint(objects: &Objects, world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for given in &objects.overlays {
        let name = given.object.metadata.name.as_deref().unwrap_or_default();
        let unknown = given.unknown_fields.iter();
        found.extend(unknown.map(|field| format!("nodeoverlay/{name}: {field}")));
    }
    found.extend(placeholders(objects));
    found.extend(of_no_use(objects, world));
    found.extend(labels_that_no_machine_has(objects, world));
    found.extend(devices_beyond_their_counters(world));
    found.extend(classes_without_devices(objects, world));
    found
}

/// Drivers of whose DaemonSets no pod could run on machines with their devices, read as `dovetail plan` reads them.
pub(super) fn drivers_without_pods(manifests: Vec<Manifest>, objects: &Objects) -> anyhow::Result<Vec<String>> {
    let provider = objects.provider.declaration();
    let labels = (provider.labels)(&objects.types);
    let node_classes: Vec<(&str, &str)> = provider.node_class_kinds.iter().map(|it| (it.group, it.kind)).collect();
    let default_node_pool = machine_types::default_node_pool(provider)?;
    let settings = Settings {
        default_node_pool: Some(&default_node_pool),
        node_class_types: objects.of_node_classes.as_ref(),
        ..Settings::new(&objects.types, &labels, &node_classes)
    };
    let notes = offline::read(manifests, Vec::new(), &settings).notes;
    let is_of_drivers = |note: &OfflineNote| matches!(note, OfflineNote::NoDriverPods(_));
    Ok(notes.into_iter().filter(is_of_drivers).map(|note| note.to_string()).collect())
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

/// What machines of each type of each NodePool will publish.
fn expansions(world: &World) -> impl Iterator<Item = (&str, &InstanceType, Expansion)> {
    world.pools().flat_map(|(name, types)| {
        types.iter().filter_map(move |instance_type| {
            let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
            let expansion = Expansion::new(&instance_type.dynamic_resources, &label).ok()?;
            Some((name, &**instance_type, expansion))
        })
    })
}

/// Keys of `matchLabelKeys` that no machine with such devices will have: a node without the label cannot use them.
fn labels_that_no_machine_has(objects: &Objects, world: &World) -> Vec<String> {
    let mut seen: BTreeMap<(String, String), bool> = BTreeMap::new();
    for (name, instance_type, expansion) in expansions(world) {
        let pool = objects.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name));
        for described in &expansion.pools {
            let by_device = described.devices.iter().filter_map(|device| device.nodes.as_ref());
            let keys = by_device.chain([&described.nodes]).flat_map(|nodes| match nodes {
                Nodes::Selected(selection) => selection.match_label_keys.iter().collect(),
                Nodes::Host | Nodes::All | Nodes::PerDevice => Vec::new(),
            });
            for key in keys {
                let has = has_label(pool, instance_type, key);
                for template in &described.templates {
                    *seen.entry((template.clone(), key.clone())).or_default() |= has;
                }
            }
        }
    }
    let missing = seen.into_iter().filter(|(_, has)| !has).map(|(template_and_key, _)| template_and_key);
    let told = missing.filter_map(|(template, key)| {
        let (overlay, template) = template.split_once('/')?;
        Some(format!(
            "nodeoverlay/{overlay}: matchLabelKeys of resourceSliceTemplate {template}: no machine that it describes has the \
             label {key}, so nobody can use its devices; add it to the NodePool's labels or requirements"
        ))
    });
    told.collect()
}

/// Whether a machine of a type may have the label, whatever its value.
fn has_label(pool: Option<&NodePool>, instance_type: &InstanceType, key: &str) -> bool {
    let of_pool = |pool: &NodePool| {
        let template = &pool.spec.template;
        let class = &template.spec.node_class_ref;
        template.metadata.labels.contains_key(key)
            || template.spec.requirements.iter().any(|requirement| requirement.key == key)
            || labels::node_class(&class.group, &class.kind) == key
    };
    [labels::HOSTNAME, labels::NODEPOOL].contains(&key)
        || instance_type.requirements.contains_key(key)
        || instance_type.offerings.iter().any(|offering| offering.label(key).is_some())
        || pool.is_some_and(of_pool)
}

/// Devices that draw more of a counter than there is even while nothing else is allocated: no claim ever gets them.
fn devices_beyond_their_counters(world: &World) -> Vec<String> {
    let mut seen: BTreeMap<(String, DriverName), BTreeMap<DeviceName, String>> = BTreeMap::new();
    for pool in expansions(world).flat_map(|(.., expansion)| expansion.pools) {
        let Some((overlay, _)) = pool.templates.first().and_then(|template| template.split_once('/')) else { continue };
        for device in pool.devices.iter().map(|it| &it.device) {
            if let Some(beyond) = beyond_counters(&pool, device) {
                let devices = seen.entry((overlay.to_owned(), pool.driver.clone())).or_default();
                devices.entry(device.name.clone()).or_insert(beyond);
            }
        }
    }
    let told = seen.iter().filter_map(|((overlay, driver), devices)| {
        let (device, beyond) = devices.first_key_value()?;
        let others = match devices.len() - 1 {
            0 => String::new(),
            others => format!("; so it is with {}", plural(others, "more device", "more devices")),
        };
        Some(format!("nodeoverlay/{overlay}: device {device} of {driver} {beyond}, so no claim can get it{others}"))
    });
    told.collect()
}

/// What a device draws that its pool does not have.
fn beyond_counters(pool: &Pool, device: &Device) -> Option<String> {
    device.consumes_counters.iter().find_map(|draws| {
        let set = pool.shared_counters.iter().find(|set| set.name == draws.counter_set)?;
        draws.counters.iter().find_map(|(counter, wanted)| {
            let there = set.counters.get(counter).filter(|there| *there < wanted)?;
            Some(format!("consumes {wanted} of counter {counter} of counter set {}, which has {there}", set.name))
        })
    })
}

/// DeviceClasses that no device of any overlay is in.
fn classes_without_devices(objects: &Objects, world: &World) -> Vec<String> {
    let mut devices = Vec::new();
    for (.., mut expansion) in expansions(world) {
        for group in &expansion.groups {
            for &(pool, place) in &group.members {
                let device = expansion.pools.get_mut(pool).and_then(|pool| pool.devices.get_mut(place));
                let unknown = group.attributes.iter().map(|name| (name.as_str().into(), AttributeValue::AfterLaunch));
                device.into_iter().for_each(|it| it.device.attributes.extend(unknown.clone()));
            }
        }
        for pool in expansion.pools {
            for device in pool.devices {
                let known = (pool.driver.clone(), device.device);
                if !devices.contains(&known) {
                    devices.push(known);
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

/// Whether a device may be in the class; what depends on values that are known after launch may well be so.
fn is_in(class: &DeviceClass, driver: &DriverName, device: &Device) -> bool {
    class.selectors.iter().all(|selector| match selector {
        DeviceSelector::Cel(text) => Selector::compile(text, &Compat::fixed()).is_ok_and(|selector| {
            let outcome = selector.evaluate(&DeviceView::new(driver, device, &Compat::fixed())).outcome;
            matches!(outcome, Ok(true) | Err(EvalError::AfterLaunch(_)))
        }),
        DeviceSelector::Other => false,
    })
}
