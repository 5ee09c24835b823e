//! Devices that differ only in their number become one entry with replicas.
//!
//! Templates expand replicas in the order of their numbers, from 0, so only such a run becomes one entry. Whether it is
//! one is decided by expanding the entry and comparing ([`devices::write`]). Devices that do not come back stay written
//! out.

use api::resource_slice_template::{CounterSet, DeviceAttribute, DeviceCounterConsumption, DeviceTemplate, IntOrIndex};

use super::identity::{is_number, kind, runs};
use super::pools::{Draft, DraftDevice};
use super::{Source, write};
use dra_templates::{INDEX, devices};

/// An entry of a template, and the devices that it stands for.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) template: DeviceTemplate,
    /// In the order of their numbers.
    pub(super) names: Vec<String>,
}

/// The entries of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    pub(super) devices: Vec<Entry>,
    pub(super) counter_sets: Vec<CounterSet>,
}

/// Describes a pool's devices and counters in as few entries as it can.
pub(super) fn entries(pool: &Draft, source: &Source<'_>) -> Entries {
    let mut entries = Entries::default();
    let all = &pool.devices;
    let mut rest = all.as_slice();
    while let Some((first, after)) = rest.split_first() {
        if let Some((mut template, count)) = family(all, rest) {
            let (of_family, after) = rest.split_at(count);
            count_by(&mut template, source, pool);
            entries.devices.push(Entry { template, names: of_family.iter().map(name).collect() });
            rest = after;
        } else {
            entries.devices.push(Entry { template: write::device(first), names: vec![name(first)] });
            rest = after;
        }
    }
    entries.counter_sets = counter_sets(&pool.counter_sets);
    entries
}

/// Sorts neighbours that only differ in numbers by these numbers. Drivers publish such devices in any order, so their
/// order says nothing.
pub(super) fn put_in_order(pool: &mut Draft) {
    let is_alike = |a: &DraftDevice, b: &DraftDevice| {
        words(a.device.name.as_str()) == words(b.device.name.as_str()) && kind(&a.device) == kind(&b.device)
    };
    for alike in pool.devices.chunk_by_mut(is_alike) {
        alike.sort_by_cached_key(|device| numbers(device.device.name.as_str()));
    }
}

fn words(name: &str) -> Vec<&str> {
    runs(name).into_iter().map(|run| if is_number(run) { "#" } else { run }).collect()
}

/// The numbers in a name: first by how long they are, which is by value but for leading zeros.
fn numbers(name: &str) -> Vec<(usize, String)> {
    runs(name).into_iter().filter(|run| is_number(run)).map(|run| (run.len(), run.to_owned())).collect()
}

fn name(device: &DraftDevice) -> String {
    device.device.name.to_string()
}

/// The entry for the first devices of `rest`, and how many it stands for. It stands for all devices with such names.
fn family(all: &[DraftDevice], rest: &[DraftDevice]) -> Option<(DeviceTemplate, usize)> {
    let [zero, one, ..] = rest else { return None };
    let mut template = combined(&write::device(zero), &write::device(one))?;
    let is_number = |(number, device): &(usize, &DraftDevice)| {
        let same_nodes = (&device.node_selector, device.all_nodes) == (&zero.node_selector, zero.all_nodes);
        same_nodes && devices::write(&template, Some(*number)).is_ok_and(|written| is_same(&written, &device.device))
    };
    let count = rest.iter().enumerate().take_while(is_number).count();
    let next = template.name.replace(INDEX, &count.to_string());
    if count < 2 || all.iter().any(|device| device.device.name.as_str() == next) {
        return None;
    }
    template.replicas = i64::try_from(count).ok();
    Some((template, count))
}

/// Whether an expanded device equals the one that was read. Since when it is tainted is not part of a template.
fn is_same(written: &dra_types::Device, read: &dra_types::Device) -> bool {
    let mut read = read.clone();
    read.taints.iter_mut().for_each(|taint| taint.time_added = None);
    *written == read
}

/// The entry whose replicas 0 and 1 two devices may be.
fn combined(zero: &DeviceTemplate, one: &DeviceTemplate) -> Option<DeviceTemplate> {
    let mut template = zero.clone();
    template.name = pattern(&zero.name, &one.name).filter(|name| name.contains(INDEX))?;
    for (name, attribute) in &mut template.attributes {
        *attribute = combined_attribute(attribute, one.attributes.get(name)?)?;
    }
    template.consumes_counters = pairwise(&zero.consumes_counters, &one.consumes_counters, |zero, one| {
        let counter_set = pattern(&zero.counter_set, &one.counter_set)?;
        Some(DeviceCounterConsumption { counter_set, ..zero.clone() })
    })?;
    Some(template)
}

fn combined_attribute(zero: &DeviceAttribute, one: &DeviceAttribute) -> Option<DeviceAttribute> {
    let mut attribute = zero.clone();
    if let (Some(zero), Some(one)) = (&zero.int, &one.int) {
        attribute.int = Some(combined_int(zero, one)?);
    }
    if let (Some(zero), Some(one)) = (&zero.string, &one.string) {
        attribute.string = Some(pattern(zero, one)?);
    }
    if let (Some(zero), Some(one)) = (&zero.ints, &one.ints) {
        attribute.ints = Some(pairwise(zero, one, combined_int)?);
    }
    if let (Some(zero), Some(one)) = (&zero.strings, &one.strings) {
        attribute.strings = Some(pairwise(zero, one, |zero, one| pattern(zero, one))?);
    }
    Some(attribute)
}

fn combined_int(zero: &IntOrIndex, one: &IntOrIndex) -> Option<IntOrIndex> {
    match (zero, one) {
        (zero, one) if zero == one => Some(zero.clone()),
        (IntOrIndex::Int(0), IntOrIndex::Int(1)) => Some(IntOrIndex::Index(INDEX.to_owned())),
        _ => None,
    }
}

fn pairwise<T, U>(zero: &[T], one: &[T], combine: impl Fn(&T, &T) -> Option<U>) -> Option<Vec<U>> {
    if zero.len() != one.len() {
        return None;
    }
    zero.iter().zip(one).map(|(zero, one)| combine(zero, one)).collect()
}

/// The pattern of which these are numbers 0 and 1: `gpu-{index}` for `gpu-0` and `gpu-1`.
fn pattern(zero: &str, one: &str) -> Option<String> {
    if zero.contains(INDEX) {
        return None;
    }
    if zero == one {
        return Some(zero.to_owned());
    }
    let parts = pairwise(&runs(zero), &runs(one), |zero, one| match (*zero, *one) {
        (zero, one) if zero == one => Some(zero),
        ("0", "1") if is_number(zero) => Some(INDEX),
        _ => None,
    });
    parts.map(|parts| parts.concat())
}

fn counter_sets(sets: &[dra_types::CounterSet]) -> Vec<CounterSet> {
    let mut entries = Vec::new();
    let mut rest = sets;
    while let Some((first, after)) = rest.split_first() {
        match family_of_sets(sets, rest) {
            Some((entry, count)) => {
                entries.push(entry);
                rest = rest.get(count..).unwrap_or_default();
            }
            None => {
                entries.push(write::counter_set(first));
                rest = after;
            }
        }
    }
    entries
}

fn family_of_sets(all: &[dra_types::CounterSet], rest: &[dra_types::CounterSet]) -> Option<(CounterSet, usize)> {
    let [zero, one, ..] = rest else { return None };
    let mut entry = write::counter_set(zero);
    entry.name = pattern(zero.name.as_str(), one.name.as_str()).filter(|name| name.contains(INDEX))?;
    let named = |number: usize| entry.name.replace(INDEX, &number.to_string());
    let is_number = |(number, set): &(usize, &dra_types::CounterSet)| {
        set.counters == zero.counters && set.name.as_str() == named(*number)
    };
    let count = rest.iter().enumerate().take_while(is_number).count();
    let next = named(count);
    if count < 2 || all.iter().any(|set| set.name.as_str() == next) {
        return None;
    }
    entry.replicas = i64::try_from(count).ok();
    Some((entry, count))
}

/// Takes the count from a label if one certainly says it: all machines of the type have the label, its value is the
/// number, and its name is of the device or driver and ends in `count`.
fn count_by(entry: &mut DeviceTemplate, source: &Source<'_>, pool: &Draft) {
    let Some(count) = entry.replicas else { return };
    let word = |text: &str| text.split(|it: char| !it.is_ascii_alphabetic()).next().unwrap_or_default().to_lowercase();
    let words = [word(&entry.name), word(pool.driver.as_str())];
    let says = |key: &&String| {
        let name = key.rsplit('/').next().unwrap_or_default().to_lowercase();
        let own = words.iter().any(|word| !word.is_empty() && name.contains(word.as_str()));
        own && name.ends_with("count") && (source.label_of_type)(key).is_some_and(|value| value == count.to_string())
    };
    let mut keys = source.labels.keys().filter(says);
    if let (Some(key), None) = (keys.next(), keys.next()) {
        entry.replicas_from_label = Some(key.clone());
        entry.replicas = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_the_number_in_place_of_zero_and_one() {
        let cases = [
            ("gpu-0", "gpu-1", Some("gpu-{index}")),
            ("x1-0", "x1-1", Some("x1-{index}")),
            ("same", "same", Some("same")),
            ("0a0", "1a1", Some("{index}a{index}")),
            ("gpu-1", "gpu-2", None),
            ("gpu-00", "gpu-01", None),
            ("gpu", "gpu-1", None),
            ("{index}0", "{index}1", None),
        ];
        for (zero, one, expected) in cases {
            assert_eq!(pattern(zero, one).as_deref(), expected, "{zero} {one}");
        }
    }
}
