//! Expanded templates laid out as ResourceSlices, as a driver would publish them: counters in slices of their own,
//! devices in list order, cut at the API's limits.
//!
//! Drivers choose the names of their pools; the ones here follow the custom that a machine's pool has the machine's
//! name.

use std::collections::{BTreeMap, BTreeSet};

use dra_types::validate::{MAX_ADVANCED_DEVICES, MAX_COUNTER_SETS, MAX_DEVICES};
use dra_types::{FieldError, ResourceSlice, validate};
use serde_json::{Value, json};

use super::error::{Error, Place, Reason};
use super::{Expansion, Nodes, Pool, PoolScope, Selection};

/// Of a selection's requirements in a pool's name.
const MAX_REQUIREMENTS: usize = 120;

/// The machine that publishes.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    /// The Node's name.
    pub node_name: &'a str,
    /// The Node's labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// The name under which a pool is published.
#[must_use]
pub fn pool_name(pool: &Pool, host: Host<'_>) -> String {
    let (mut name, kind) = match (pool.scope, &pool.nodes) {
        (PoolScope::Machine, Nodes::Host) => (host.node_name.to_owned(), None),
        (PoolScope::Machine, Nodes::All) => (host.node_name.to_owned(), Some("all")),
        (PoolScope::Machine, Nodes::PerDevice) => (host.node_name.to_owned(), Some("devices")),
        (PoolScope::Machine, Nodes::Selected(_)) => (host.node_name.to_owned(), Some("selected")),
        (PoolScope::Domain, Nodes::Selected(selection)) => {
            let values: Vec<String> = selection
                .match_label_keys
                .iter()
                .filter_map(|key| host.labels.get(key))
                .map(|value| subdomain(value))
                .collect();
            (if values.is_empty() { "domain".to_owned() } else { values.join("/") }, None)
        }
        (PoolScope::Domain, _) => ("cluster".to_owned(), None),
    };
    let number = (pool.number > 0).then(|| (pool.number + 1).to_string());
    // Machines with other templates must come to the same name for a domain's pool, so it cannot be a number.
    let (number, requirements) = match pool.scope {
        PoolScope::Machine => (number, None),
        PoolScope::Domain => (None, requirements(&pool.nodes)),
    };
    let suffix = Some(pool.suffix.as_str()).filter(|suffix| !suffix.is_empty());
    for part in kind.into_iter().chain(requirements.as_deref()).chain(number.as_deref()).chain(suffix) {
        name.push('/');
        name.push_str(part);
    }
    name
}

/// What a selection asks of nodes, as part of a pool's name.
fn requirements(nodes: &Nodes) -> Option<String> {
    let Nodes::Selected(selection) = nodes else { return None };
    let all = selection.expressions.iter().chain(&selection.fields);
    let words = all
        .flat_map(|it| [it.key.as_str(), it.operator.as_str()].into_iter().chain(it.values.iter().map(String::as_str)));
    let words: Vec<String> = words.map(subdomain).collect();
    let mut text = words.join("-");
    text.truncate(MAX_REQUIREMENTS);
    Some(text.trim_matches('-').to_owned()).filter(|text| !text.is_empty())
}

/// A label's value as part of a pool's name.
fn subdomain(value: &str) -> String {
    let lower: String =
        value.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' }).collect();
    lower.trim_matches('-').to_owned()
}

/// The slices of a pool, complete, as `resource.k8s.io/v1` objects without owner.
///
/// # Errors
/// The first label in which nodes must equal the host and that the host lacks.
pub fn slices(pool: &Pool, host: Host<'_>) -> Result<Vec<Value>, Error> {
    let error = |key: String| Error {
        place: Place::Driver(pool.driver.to_string()),
        reason: Box::new(Reason::LabelMissing(key)),
    };
    let nodes = node_fields(&pool.nodes, host).map_err(error)?;
    let mut devices = Vec::with_capacity(pool.devices.len());
    for device in &pool.devices {
        let mut json = device.json();
        if let (Some(nodes), Some(fields)) = (&device.nodes, json.as_object_mut()) {
            fields.extend(node_fields(nodes, host).map_err(error)?);
        }
        devices.push(json);
    }
    let is_advanced = pool.devices.iter().any(|it| validate::is_advanced(&it.device));
    let limit = if is_advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let counters = pool.counters_json.chunks(MAX_COUNTER_SETS).map(|sets| ("sharedCounters", json!(sets)));
    let devices = devices.chunks(limit).map(|devices| ("devices", json!(devices)));
    let contents: Vec<(&str, Value)> = counters.chain(devices).collect();
    let (name, count) = (pool_name(pool, host), contents.len());
    let slices = contents.into_iter().enumerate().map(|(place, (field, content))| {
        let mut spec = json!({
            "driver": pool.driver.as_str(),
            "pool": { "name": name, "generation": 1, "resourceSliceCount": count },
        });
        if let Some(fields) = spec.as_object_mut() {
            fields.extend(nodes.clone());
            fields.insert(field.to_owned(), content);
        }
        // Slices of a pool come in the order of their names.
        let slice = format!("{}-{}-{place:03}", name.replace('/', "-"), pool.driver);
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": slice },
            "spec": spec,
        })
    });
    Ok(slices.collect())
}

/// The fields that say who can use devices, or the label that the host lacks.
fn node_fields(nodes: &Nodes, host: Host<'_>) -> Result<serde_json::Map<String, Value>, String> {
    let (field, value) = match nodes {
        Nodes::Host => ("nodeName", json!(host.node_name)),
        Nodes::All => ("allNodes", json!(true)),
        Nodes::PerDevice => ("perDeviceNodeSelection", json!(true)),
        Nodes::Selected(selection) => ("nodeSelector", selector(selection, host)?),
    };
    Ok([(field.to_owned(), value)].into_iter().collect())
}

fn selector(selection: &Selection, host: Host<'_>) -> Result<Value, String> {
    let mut expressions = Vec::new();
    for key in &selection.match_label_keys {
        let value = host.labels.get(key).ok_or_else(|| key.clone())?;
        expressions.push(json!({ "key": key, "operator": "In", "values": [value] }));
    }
    expressions.extend(selection.expressions.iter().map(|it| json!(it)));
    let mut term = serde_json::Map::new();
    if !expressions.is_empty() {
        term.insert("matchExpressions".to_owned(), json!(expressions));
    }
    if !selection.fields.is_empty() {
        term.insert("matchFields".to_owned(), json!(selection.fields));
    }
    Ok(json!({ "nodeSelectorTerms": [term] }))
}

/// Whether the API server and the scheduler would take the pools as they are.
pub(super) fn check(expansion: &Expansion) -> Result<(), Error> {
    for pool in &expansion.pools {
        let error = |reason| Err(Error { place: Place::Driver(pool.driver.to_string()), reason: Box::new(reason) });
        let mut names = BTreeSet::new();
        if let Some(twice) = pool.devices.iter().find(|it| !names.insert(&it.device.name)) {
            return error(Reason::DeviceTwice(twice.device.name.to_string()));
        }
        let mut sets = BTreeMap::new();
        for set in &pool.shared_counters {
            if sets.insert(&set.name, &set.counters).is_some() {
                return error(Reason::CounterSetTwice(set.name.to_string()));
            }
        }
        for device in pool.devices.iter().map(|it| &it.device) {
            for draw in &device.consumes_counters {
                let known = sets.get(&draw.counter_set);
                let missing = draw.counters.keys().find(|counter| known.is_none_or(|set| !set.contains_key(*counter)));
                if let Some(counter) = missing {
                    return error(Reason::UnknownCounter {
                        device: device.name.to_string(),
                        set: draw.counter_set.to_string(),
                        counter: counter.to_string(),
                    });
                }
            }
        }
        check_slices(pool)?;
    }
    Ok(())
}

/// Holds the slices against the rules of the API server, on a host that has every label.
fn check_slices(pool: &Pool) -> Result<(), Error> {
    let of_devices = pool.devices.iter().filter_map(|device| device.nodes.as_ref());
    let keys = of_devices.chain([&pool.nodes]).flat_map(|nodes| match nodes {
        Nodes::Selected(selection) => selection.match_label_keys.iter().cloned().collect(),
        Nodes::Host | Nodes::All | Nodes::PerDevice => Vec::new(),
    });
    let labels = keys.map(|key| (key, "value".to_owned())).collect();
    let host = Host { node_name: "node", labels: &labels };
    let mut first = 0;
    for slice in typed_slices(pool, host)? {
        let found = slice.map_err(|error| vec![error]).and_then(|slice| {
            validate::slice(&slice)?;
            Ok(slice.devices.len())
        });
        match found {
            Ok(devices) => first += devices,
            Err(errors) => {
                let Some(error) = errors.into_iter().next() else { continue };
                return Err(Error {
                    place: Place::Driver(pool.driver.to_string()),
                    reason: Box::new(named(pool, first, error)),
                });
            }
        }
    }
    Ok(())
}

/// [`slices`] as they are read. Devices are taken as they are known, which saves reading each of them again.
fn typed_slices(pool: &Pool, host: Host<'_>) -> Result<Vec<Result<ResourceSlice, FieldError>>, Error> {
    if pool.nodes == Nodes::PerDevice {
        return Ok(slices(pool, host)?.iter().map(ResourceSlice::from_json).collect());
    }
    // One device or set of counters, so that there is a slice.
    let counters = if pool.devices.is_empty() { 1 } else { 0 };
    let smallest = Pool {
        driver: pool.driver.clone(),
        suffix: pool.suffix.clone(),
        scope: pool.scope,
        nodes: pool.nodes.clone(),
        number: pool.number,
        templates: Vec::new(),
        devices: pool.devices.iter().take(1).cloned().collect(),
        shared_counters: Vec::new(),
        counters_json: pool.counters_json.iter().take(counters).cloned().collect(),
    };
    let Some(frame) = slices(&smallest, host)?.first().map(ResourceSlice::from_json) else { return Ok(Vec::new()) };
    let frame = match frame {
        Ok(frame) => frame,
        Err(error) => return Ok(vec![Err(error)]),
    };
    let is_advanced = pool.devices.iter().any(|it| validate::is_advanced(&it.device));
    let limit = if is_advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let counters = pool.shared_counters.chunks(MAX_COUNTER_SETS).map(|sets| (Vec::new(), sets.to_vec()));
    let devices = pool
        .devices
        .chunks(limit)
        .map(|devices| (devices.iter().map(|it| it.device.clone()).collect::<Vec<_>>(), Vec::new()));
    let filled = counters.chain(devices);
    Ok(filled
        .map(|(devices, shared_counters)| Ok(ResourceSlice { devices, shared_counters, ..frame.clone() }))
        .collect())
}

/// An error inside of a slice, in terms of the device.
fn named(pool: &Pool, first: usize, error: FieldError) -> Reason {
    let path = error.field.strip_prefix("spec.devices[").and_then(|path| path.split_once(']'));
    let device = path.and_then(|(place, field)| {
        let device = pool.devices.get(first + place.parse::<usize>().ok()?)?;
        Some((device.device.name.to_string(), field.trim_start_matches('.').to_owned()))
    });
    match device {
        Some((device, field)) => Reason::Device { device, field, reason: error.reason },
        None => Reason::Field(error),
    }
}
