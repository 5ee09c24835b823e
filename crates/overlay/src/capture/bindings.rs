//! Attribute bindings: which devices share values that only this machine has.

use api::resource_slice_template::{AttributeBinding, DeviceSelector};

use super::Placed;
use super::identity::{Bound, Place};

/// As in the CRD.
const MAX_ATTRIBUTES: usize = 8;

/// Writes the bindings. Attributes that the same devices share are bound together. Whether there is room for all of
/// them was checked when the attributes were chosen.
pub(super) fn write(bound: &[Bound], placed: &[Vec<Placed>]) -> Vec<AttributeBinding> {
    // Names that several drivers use matter most.
    let mut ordered: Vec<&Bound> = bound.iter().collect();
    ordered.sort_by_key(|it| (!it.attribute.starts_with("resource.kubernetes.io/"), &it.attribute));
    let mut together: Vec<(Vec<String>, &[Vec<Place>])> = Vec::new();
    for Bound { attribute, groups } in ordered {
        let known = together.iter_mut().find(|(attributes, of)| *of == groups && attributes.len() < MAX_ATTRIBUTES);
        match known {
            Some((attributes, _)) => attributes.push(attribute.clone()),
            None => together.push((vec![attribute.clone()], groups)),
        }
    }
    let mut bindings: Vec<AttributeBinding> = Vec::new();
    for (attributes, groups) in together {
        let groups: Vec<Vec<&Placed>> = groups.iter().map(|group| members(group, placed)).collect();
        let selectors = numbered(&groups).map_or_else(|| groups.iter().map(|it| by_name(it)).collect(), |it| vec![it]);
        // If all devices share one value, there are no groups that could differ.
        let distinct = groups.len() > 1;
        bindings.extend(selectors.into_iter().map(|device_selectors| AttributeBinding {
            attributes: attributes.clone(),
            distinct_groups: distinct.then_some(true),
            device_selectors,
        }));
    }
    bindings
}

fn members<'p>(group: &[Place], placed: &'p [Vec<Placed>]) -> Vec<&'p Placed> {
    group.iter().filter_map(|(pool, device)| placed.get(*pool)?.get(*device)).collect()
}

fn by_name(group: &[&Placed]) -> Vec<DeviceSelector> {
    let selector = |placed: &&Placed| DeviceSelector {
        resource_slice_template: placed.template.clone(),
        device: placed.name.clone(),
    };
    group.iter().map(selector).collect()
}

/// One binding for all groups, if each group has exactly the devices with one number, and all numbers exist.
fn numbered(groups: &[Vec<&Placed>]) -> Option<Vec<DeviceSelector>> {
    let entries = |group: &[&Placed]| -> Vec<(String, String)> {
        group.iter().map(|placed| (placed.template.clone(), placed.entry.clone())).collect()
    };
    let first = entries(groups.first()?);
    let mut twice = first.clone();
    twice.sort();
    twice.dedup();
    if groups.len() < 2 || twice.len() != first.len() {
        return None;
    }
    for (number, group) in groups.iter().enumerate() {
        let is_number = |placed: &&Placed| placed.number == Some((number, groups.len()));
        if entries(group) != first || !group.iter().all(is_number) {
            return None;
        }
    }
    let selector = |(resource_slice_template, device)| DeviceSelector { resource_slice_template, device };
    Some(first.into_iter().map(selector).collect())
}
