//! What of a device's attributes only this machine has.
//!
//! The rule, attribute by attribute (names with and without the driver's domain are one):
//!
//! 1. A text *names a thing* if it has the form of a name that a machine or its hardware gets: a run of eight or more
//!    hexadecimal digits with a decimal one among them (UUIDs, serial numbers), a network address (MAC, IP,
//!    InfiniBand), or the node's own name. The PCIe root always does.
//! 2. So does a text with digits that is another on every one of several devices which are alike otherwise, unless it
//!    says where the device is: a PCI address, or words with another small number. Machines of a type are wired alike.
//! 3. An attribute whose texts name things that several devices share (a PCIe root, a parent) is *bound*: which thing
//!    it is differs from machine to machine, who shares it does not. One that names a single device each is *left out*.
//! 4. All else describes the type and is kept: numbers, versions, truth values, words, places. So is what too many
//!    devices share to be bound, with a note.

use std::collections::{BTreeMap, BTreeSet};

use dra_types::{AttributeValue, Device, DeviceName, DriverName, QualifiedName};

use super::Source;
use super::pools::Draft;

/// Bound even if no two devices share it, because claims ask for devices that do.
const ALWAYS_BOUND: [(&str, &str); 1] = [("resource.kubernetes.io", "pcieRoot")];
/// This many hexadecimal digits in a row make a name.
const NAME_DIGITS: usize = 8;
/// At most this many digits make a number that is a position.
const PLACE_DIGITS: usize = 3;

/// Bindings of an overlay and devices of each, as in the CRD.
const MAX_BINDINGS: usize = 32;
const MAX_SELECTORS: usize = 32;

/// Domain and identifier.
type FullName = (String, String);
/// The pool, and the device in it.
pub(super) type Place = (usize, usize);

/// An attribute whose values belong to this machine, and the devices that share each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    /// As a binding names it.
    pub(super) attribute: String,
    /// The devices of each value, in the order of their first devices.
    pub(super) groups: Vec<Vec<Place>>,
}

/// Removes what only this machine has, also from names of devices. Returns what is to be bound.
pub(super) fn separate(pools: &mut [Draft], source: &Source<'_>, notes: &mut Vec<String>) -> Vec<Bound> {
    let node = source.node_name;
    leave_out(pools, source.without);
    let mut left_out: BTreeMap<DriverName, BTreeSet<String>> = BTreeMap::new();
    let mut bound: Vec<Bound> = Vec::new();
    let is_always_bound = |name: &FullName| ALWAYS_BOUND.contains(&(name.0.as_str(), name.1.as_str()));
    let mut attributes: Vec<_> = by_name(pools).into_iter().collect();
    // Attributes that claims match by come first, as long as there is room for bindings.
    attributes.sort_by_key(|(name, _)| !is_always_bound(name));
    for (name, places) in attributes {
        let value = |&(pool, device): &Place, name: &QualifiedName| {
            pools.get(pool)?.devices.get(device)?.device.attributes.get(name).cloned()
        };
        let texts: Vec<(Place, Vec<String>, bool)> = places
            .iter()
            .filter_map(|(place, name)| match value(place, name)? {
                AttributeValue::String(text) => Some((*place, vec![text.to_string()], false)),
                AttributeValue::Strings(texts) => Some((*place, texts.iter().map(ToString::to_string).collect(), true)),
                AttributeValue::Int(_)
                | AttributeValue::Bool(_)
                | AttributeValue::Version(_)
                | AttributeValue::Ints(_)
                | AttributeValue::Bools(_)
                | AttributeValue::Versions(_)
                | AttributeValue::Unset
                | AttributeValue::AfterLaunch => None,
            })
            .collect();
        let always = is_always_bound(&name);
        let names_things = texts.iter().flat_map(|(_, texts, _)| texts).any(|text| names_a_thing(text, &name.1, node));
        let going: Vec<Place> = if always || names_things {
            texts.iter().map(|(place, ..)| *place).collect()
        } else {
            serials(pools, &texts)
        };
        if going.is_empty() {
            continue;
        }
        let groups = groups(&texts, &going);
        let lists: Vec<Place> =
            texts.iter().filter(|(place, _, list)| *list && going.contains(place)).map(|(place, ..)| *place).collect();
        let is_bound = !groups.is_empty() && (always || groups.iter().any(|group| group.len() > 1));
        if is_bound && !has_room(&bound, &groups) {
            notes.push(format!(
                "{}/{} is kept as it is on this machine: too many devices share it to be bound",
                name.0, name.1
            ));
            continue;
        }
        if is_bound {
            bound.push(Bound { attribute: written(&name, pools, &groups), groups });
        }
        for &place in going.iter().filter(|place| !is_bound || lists.contains(place)) {
            let Some(pool) = pools.get(place.0) else { continue };
            left_out.entry(pool.driver.clone()).or_default().insert(if lists.contains(&place) {
                format!("{} (a list of values that only this machine has cannot be described)", name.1)
            } else {
                name.1.clone()
            });
        }
        for ((pool, device), attribute) in places.iter().filter(|(place, _)| going.contains(place)) {
            if let Some(device) = pools.get_mut(*pool).and_then(|pool| pool.devices.get_mut(*device)) {
                device.device.attributes.remove(attribute);
            }
        }
    }
    for (driver, attributes) in left_out {
        let attributes: Vec<String> = attributes.into_iter().collect();
        notes.push(format!("{driver}: left out, as only this machine has it: {}", attributes.join(", ")));
    }
    for pool in &mut *pools {
        forget_unset(pool, notes);
        rename(pool, node, notes);
    }
    bound
}

/// Removes what the author does not want.
fn leave_out(pools: &mut [Draft], without: &[String]) {
    for pool in pools.iter_mut().filter(|_| !without.is_empty()) {
        let Draft { driver, devices, .. } = pool;
        for device in devices {
            device.device.attributes.retain(|name, _| {
                let (domain, id) = name.resolve(driver);
                !without.iter().any(|text| text == id || *text == format!("{domain}/{id}"))
            });
        }
    }
}

/// Whether further groups can be bound. Attributes that the same devices share are bound together.
fn has_room(bound: &[Bound], groups: &[Vec<Place>]) -> bool {
    let mut known: Vec<&[Vec<Place>]> = Vec::new();
    for groups in bound.iter().map(|bound| bound.groups.as_slice()).chain([groups]) {
        if !known.contains(&groups) {
            known.push(groups);
        }
    }
    let bindings: usize = known.iter().map(|groups| groups.len()).sum();
    bindings <= MAX_BINDINGS && groups.iter().all(|group| group.len() <= MAX_SELECTORS)
}

/// Where each attribute is, with the name it has there.
fn by_name(pools: &[Draft]) -> BTreeMap<FullName, Vec<(Place, QualifiedName)>> {
    let mut by_name: BTreeMap<FullName, Vec<(Place, QualifiedName)>> = BTreeMap::new();
    for (pool_place, pool) in pools.iter().enumerate() {
        for (place, device) in pool.devices.iter().enumerate() {
            for name in device.device.attributes.keys() {
                let (domain, id) = name.resolve(&pool.driver);
                let places = by_name.entry((domain.to_owned(), id.to_owned())).or_default();
                places.push(((pool_place, place), name.clone()));
            }
        }
    }
    by_name
}

/// The devices grouped by the text that they share. Devices with lists are in no group.
fn groups(texts: &[(Place, Vec<String>, bool)], going: &[Place]) -> Vec<Vec<Place>> {
    let mut groups: Vec<(&str, Vec<Place>)> = Vec::new();
    for (place, texts, is_list) in texts {
        let (false, Some(text)) = (is_list, texts.first()) else { continue };
        if !going.contains(place) {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| known == text) {
            Some((_, members)) => members.push(*place),
            None => groups.push((text, vec![*place])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The name to write: without domain if it is the driver's on all devices.
fn written((domain, id): &FullName, pools: &[Draft], groups: &[Vec<Place>]) -> String {
    let mut drivers = groups.iter().flatten().filter_map(|(pool, _)| pools.get(*pool)).map(|pool| &pool.driver);
    if drivers.all(|driver| driver.as_str() == domain) { id.clone() } else { format!("{domain}/{id}") }
}

/// Rule 2: the devices whose text is a serial number, judged by the texts of devices like them.
fn serials(pools: &[Draft], texts: &[(Place, Vec<String>, bool)]) -> Vec<Place> {
    let mut kinds: BTreeMap<_, Vec<(Place, &str)>> = BTreeMap::new();
    for (place, texts, is_list) in texts {
        let (false, Some(text), Some(pool)) = (is_list, texts.first(), pools.get(place.0)) else { continue };
        let Some(device) = pool.devices.get(place.1) else { continue };
        kinds.entry((pool.driver.clone(), kind(&device.device))).or_default().push((*place, text));
    }
    let mut serials = Vec::new();
    for members in kinds.into_values().filter(|members| members.len() > 1) {
        let texts: BTreeSet<&str> = members.iter().map(|(_, text)| *text).collect();
        let have_digits = texts.iter().all(|text| text.contains(|it: char| it.is_ascii_digit()));
        let are_pci = texts.iter().all(|text| is_pci_address(text));
        if texts.len() == members.len() && have_digits && !are_pci && !are_places(&texts) {
            serials.extend(members.iter().map(|(place, _)| *place));
        }
    }
    serials
}

/// Devices with equal attributes and capacities can be taken for each other.
pub(super) fn kind(device: &Device) -> (Vec<QualifiedName>, Vec<(QualifiedName, String)>) {
    let capacity = device.capacity.iter().map(|(name, capacity)| (name.clone(), capacity.value.to_string()));
    (device.attributes.keys().cloned().collect(), capacity.collect())
}

/// Whether texts are the same words with different small numbers.
fn are_places(texts: &BTreeSet<&str>) -> bool {
    let skeleton = |text: &str| -> (String, bool) {
        let runs = runs(text);
        let small = runs.iter().all(|run| !is_number(run) || run.len() <= PLACE_DIGITS);
        (runs.iter().map(|run| if is_number(run) { "#" } else { run }).collect(), small)
    };
    let mut skeletons = texts.iter().map(|text| skeleton(text));
    let Some((first, true)) = skeletons.next() else { return false };
    first.contains(|it: char| it.is_ascii_alphabetic()) && skeletons.all(|(other, small)| small && other == first)
}

/// The runs of digits and of other characters, alternately.
pub(super) fn runs(text: &str) -> Vec<&str> {
    let mut runs = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|it: char| it.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        runs.push(run);
        rest = after;
    }
    runs
}

pub(super) fn is_number(run: &str) -> bool {
    run.starts_with(|it: char| it.is_ascii_digit())
}

/// Rule 1.
fn names_a_thing(text: &str, attribute: &str, node: &str) -> bool {
    let is_form = has_long_run(text) || is_address(text) || is_ipv4(text, attribute);
    (is_form && !is_pci_address(text)) || has_word(text, node)
}

fn has_long_run(text: &str) -> bool {
    let runs = text.split(|it: char| !it.is_ascii_hexdigit());
    runs.into_iter().any(|run| run.len() >= NAME_DIGITS && run.contains(|it: char| it.is_ascii_digit()))
}

/// Four or more hexadecimal numbers with colons between them: MAC, InfiniBand and IPv6 addresses.
fn is_address(text: &str) -> bool {
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    let is_group = |group: &str| group.len() <= 4 && group.chars().all(|it| it.is_ascii_hexdigit());
    (text.split(':').count() >= 4 || text.contains("::")) && text.split(':').all(is_group)
}

/// `0000:03:00.1`, with or without domain, or a bus: `pci0000:03`.
fn is_pci_address(text: &str) -> bool {
    let is_hex =
        |text: &str, digits: &[usize]| digits.contains(&text.len()) && text.chars().all(|it| it.is_ascii_hexdigit());
    if let Some((domain, bus)) = text.strip_prefix("pci").and_then(|text| text.split_once(':')) {
        return is_hex(domain, &[4, 8]) && is_hex(bus, &[2]);
    }
    let Some((start, function)) = text.rsplit_once('.') else { return false };
    let numbers: Vec<&str> = start.split(':').collect();
    let has_address = match numbers.as_slice() {
        [domain, bus, device] => is_hex(domain, &[4, 8]) && is_hex(bus, &[2]) && is_hex(device, &[2]),
        [bus, device] => is_hex(bus, &[2]) && is_hex(device, &[2]),
        _ => false,
    };
    has_address && is_hex(function, &[1])
}

/// Four numbers with dots between them, if there is a mask or the attribute says so: versions look like that too.
fn is_ipv4(text: &str, attribute: &str) -> bool {
    let (address, mask) = text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
    let says_so = attribute.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("ip"));
    (mask.is_some() || says_so)
        && address.split('.').count() == 4
        && address.split('.').all(|part| part.parse::<u8>().is_ok())
}

fn has_word(text: &str, word: &str) -> bool {
    let is_inside = |it: char| it.is_ascii_alphanumeric();
    word.len() >= 4
        && text.match_indices(word).any(|(start, _)| {
            let (before, after) = (text.get(..start), text.get(start + word.len()..));
            !before.is_some_and(|it| it.ends_with(is_inside)) && !after.is_some_and(|it| it.starts_with(is_inside))
        })
}

/// Attributes of a kind that is not known cannot be described.
fn forget_unset(pool: &mut Draft, notes: &mut Vec<String>) {
    for device in &mut pool.devices {
        let name = &device.device.name;
        device.device.attributes.retain(|attribute, value| {
            let is_known = *value != AttributeValue::Unset;
            if !is_known {
                notes.push(format!("device {name} of {}: left out {attribute}, which has no value", pool.driver));
            }
            is_known
        });
    }
}

/// Numbers devices whose names belong to this machine.
fn rename(pool: &mut Draft, node: &str, notes: &mut Vec<String>) {
    let is_own = |name: &str| has_long_run(name) || has_word(name, node);
    let mut taken: BTreeSet<String> =
        pool.devices.iter().map(|it| it.device.name.to_string()).filter(|name| !is_own(name)).collect();
    let mut renamed = 0_usize;
    for device in &mut pool.devices {
        let name = device.device.name.to_string();
        if !is_own(&name) {
            continue;
        }
        let word: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
        let word = if word.is_empty() || node.starts_with(&word) { "device".to_owned() } else { word };
        let numbered = (0..).map(|number: usize| format!("{word}-{number}"));
        let Some(fresh) = numbered.take(4096).find(|name| !taken.contains(name)) else { continue };
        taken.insert(fresh.clone());
        device.device.name = DeviceName::from(fresh.as_str());
        renamed += 1;
    }
    if renamed > 0 {
        notes.push(format!("{}: {renamed} devices whose names only this machine has are numbered", pool.driver));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_things_are_told_from_words_numbers_and_places() {
        let names = |text: &str| names_a_thing(text, "attribute", "worker-1");
        for text in [
            "GPU-5d1d46ee-c7f8-fb08-137a-026f11ab6dd9",
            "60:5e:65:14:0f:10",
            "fe80::1/64",
            "10.0.1.5/24",
            "1322721036",
            "worker-1",
            "on worker-1.internal",
        ] {
            assert!(names(text), "{text}");
        }
        for text in
            ["NVIDIA GB200", "580.126.20", "2x2x1", "x1", "worker-11", "rdma0", "Ampere", "1g.5gb", "up", "1.2.3.4"]
        {
            assert!(!names(text), "{text}");
        }
        for text in ["0000:03:00.1", "00000000:07:00.0", "pci0008:00", "3b:00.0"] {
            assert!(!names(text) && is_pci_address(text), "{text}");
        }
        assert!(names_a_thing("10.0.1.5", "ipv4", "n"));
    }

    #[test]
    fn texts_that_differ_in_a_small_number_are_places() {
        let places = |texts: &[&str]| are_places(&texts.iter().copied().collect());
        assert!(places(&["rdma0", "rdma1"]));
        assert!(places(&["eth0v1", "eth1v2"]));
        assert!(!places(&["SN10001", "SN10002"]), "a serial number");
        assert!(!places(&["1", "2"]), "no words");
        assert!(!places(&["a1", "b1"]), "other words");
    }
}
