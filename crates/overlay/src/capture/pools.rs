//! The pools of a machine, as templates will describe them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::resource_slice_template::{NodeSelectorTemplate, NodeSelectorTermTemplate, Scope};
use api::{NodeSelectorRequirement, Operator, labels};
use dra_types::{
    CounterSet, Device, DriverName, NodeFacts, NodeScope, NodeSelector, NodeSelectorOperator, PoolName, ResourceSlice,
};

use super::{Source, label, unique};
use crate::verify::{belongs, is_complete, pools_of};

/// A pool for which templates are to be written.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) driver: DriverName,
    pub(super) suffix: Option<String>,
    pub(super) scope: Option<Scope>,
    pub(super) node_selector: Option<NodeSelectorTemplate>,
    pub(super) all_nodes: bool,
    pub(super) per_device: bool,
    pub(super) devices: Vec<DraftDevice>,
    pub(super) counter_sets: Vec<CounterSet>,
}

/// A device of it.
#[derive(Debug, Clone)]
pub(super) struct DraftDevice {
    pub(super) device: Device,
    pub(super) node_selector: Option<NodeSelectorTemplate>,
    pub(super) all_nodes: bool,
}

/// What the drivers have published for the machine, in the order of drivers and pools.
pub(super) fn of_machine(source: &Source<'_>, notes: &mut Vec<String>) -> Vec<Draft> {
    let facts = facts(source);
    let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap_or(false);
    let mut drivers: Vec<&DriverName> = source.slices.iter().map(|slice| &slice.driver).collect();
    drivers.sort();
    drivers.dedup();
    let mut drafts = Vec::new();
    for driver in drivers.into_iter().filter(|driver| source.driver.is_none_or(|only| driver.as_str() == only)) {
        let mut of_driver = Vec::new();
        for (name, slices) in pools_of(driver, source.slices, &is_here) {
            let pool = format!("pool {name} of {driver}");
            if !is_complete(&slices) {
                notes.push(format!("{pool} is left out: slices are missing"));
            } else if let Some(unsupported) = slices.iter().find_map(|slice| slice.unsupported.first()) {
                notes.push(format!("{pool} is left out: {} is not understood", unsupported.construct));
            } else {
                let reached: Vec<&ResourceSlice> = slices.into_iter().filter(|it| belongs(it, &is_here)).collect();
                of_driver
                    .extend(drafts_of(source, &name, &reached, &pool, notes).into_iter().map(|it| (name.clone(), it)));
            }
        }
        name_apart(source, &mut of_driver);
        drafts.extend(of_driver.into_iter().map(|(_, draft)| draft));
    }
    drafts.retain(|draft| !draft.devices.is_empty() || !draft.counter_sets.is_empty());
    drafts
}

fn facts(source: &Source<'_>) -> NodeFacts {
    let labels = source.labels.iter();
    NodeFacts {
        name: Some(source.node_name.into()),
        labels: labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
        ..NodeFacts::default()
    }
}

/// One draft for each way in which slices of a pool say who can use them.
fn drafts_of(
    source: &Source<'_>,
    name: &PoolName,
    slices: &[&ResourceSlice],
    pool: &str,
    notes: &mut Vec<String>,
) -> Vec<Draft> {
    let mut drafts: Vec<(&NodeScope, Draft)> = Vec::new();
    let owned = |slice: &&ResourceSlice| slice.meta.owners.iter().any(|owner| &*owner.kind == "Node");
    let is_of_machine = name.as_str().contains(source.node_name) || slices.iter().any(owned);
    for slice in slices {
        let Some(scope) = &slice.node_scope else { continue };
        let place = match drafts.iter().position(|(known, _)| *known == scope) {
            Some(place) => place,
            None => {
                let Some(draft) = empty(source, slice, scope, is_of_machine, pool, notes) else { continue };
                drafts.push((scope, draft));
                drafts.len() - 1
            }
        };
        let Some((_, draft)) = drafts.get_mut(place) else { continue };
        draft.counter_sets.extend(slice.shared_counters.iter().cloned());
        for device in &slice.devices {
            draft.devices.extend(draft_device(source, scope, device, pool, notes));
        }
    }
    drafts.into_iter().map(|(_, draft)| draft).collect()
}

fn empty(
    source: &Source<'_>,
    slice: &ResourceSlice,
    scope: &NodeScope,
    is_of_machine: bool,
    pool: &str,
    notes: &mut Vec<String>,
) -> Option<Draft> {
    let mut draft = Draft {
        driver: slice.driver.clone(),
        suffix: None,
        scope: None,
        node_selector: None,
        all_nodes: false,
        per_device: false,
        devices: Vec::new(),
        counter_sets: Vec::new(),
    };
    match scope {
        NodeScope::Node(_) => {}
        NodeScope::AllNodes if !is_of_machine => {
            notes.push(format!("{pool} is left out: every node can use it, and it is there without this machine"));
            return None;
        }
        NodeScope::AllNodes => draft.all_nodes = true,
        NodeScope::PerDevice => draft.per_device = true,
        NodeScope::Selector(selector) => {
            let Some(template) = selection(source, selector) else {
                notes.push(format!("{pool} is left out: a template's nodeSelector has exactly one term"));
                return None;
            };
            draft.node_selector = Some(template);
            if !is_of_machine {
                draft.scope = Some(Scope::Domain);
                notes.push(format!(
                    "{pool} is taken for one that its domain has once (scope Domain), since neither its name nor its owner is \
                     the machine"
                ));
            }
        }
    }
    Some(draft)
}

fn draft_device(
    source: &Source<'_>,
    scope: &NodeScope,
    device: &Device,
    pool: &str,
    notes: &mut Vec<String>,
) -> Option<DraftDevice> {
    let mut draft = DraftDevice { device: device.clone(), node_selector: None, all_nodes: false };
    draft.device.node_scope = None;
    if let Some(taint) = device.taints.first() {
        notes.push(format!(
            "device {} of {pool} has taint {}: remove it from the template if it is a fault of this machine",
            device.name, taint.key
        ));
    }
    if *scope != NodeScope::PerDevice {
        return Some(draft);
    }
    let mut left_out = |why: &str| notes.push(format!("device {} of {pool} is left out: {why}", device.name));
    match &device.node_scope {
        Some(NodeScope::AllNodes) => draft.all_nodes = true,
        Some(NodeScope::Selector(selector)) => match selection(source, selector) {
            Some(template) => draft.node_selector = Some(template),
            None => {
                left_out("a template's nodeSelector has exactly one term");
                return None;
            }
        },
        Some(NodeScope::Node(name)) if name.as_str() == source.node_name => {
            if !source.labels.contains_key(labels::HOSTNAME) {
                left_out("the node has no hostname label, by which a template could mean it");
                return None;
            }
            draft.node_selector = Some(like_me(vec![labels::HOSTNAME.to_owned()], Vec::new()));
        }
        Some(NodeScope::Node(_) | NodeScope::PerDevice) | None => {
            left_out("it is another node's");
            return None;
        }
    }
    Some(draft)
}

fn like_me(match_label_keys: Vec<String>, match_expressions: Vec<NodeSelectorRequirement>) -> NodeSelectorTemplate {
    let term = NodeSelectorTermTemplate { match_label_keys, match_expressions, match_fields: Vec::new() };
    NodeSelectorTemplate { node_selector_terms: vec![term] }
}

/// A selector as a template has it: where it asks for a value that says where the machine is, for the machine's own.
/// What it asks of the machine's type (labels that all such machines have, and truth values) stays.
fn selection(source: &Source<'_>, selector: &NodeSelector) -> Option<NodeSelectorTemplate> {
    let [term] = selector.terms.as_slice() else { return None };
    let (mut keys, mut expressions) = (Vec::new(), Vec::new());
    for requirement in &term.match_expressions {
        let key = requirement.key.to_string();
        if says_where(source, requirement) {
            if !keys.contains(&key) {
                keys.push(key);
            }
            continue;
        }
        expressions.push(NodeSelectorRequirement {
            key,
            operator: Operator::from(requirement.operator.as_str()),
            values: requirement.values.iter().map(ToString::to_string).collect(),
        });
    }
    for requirement in &term.match_fields {
        let is_me = requirement.operator == NodeSelectorOperator::In
            && matches!(requirement.values.as_slice(), [name] if **name == *source.node_name);
        // A template's field would name this machine.
        if !is_me || !source.labels.contains_key(labels::HOSTNAME) {
            return None;
        }
        keys.push(labels::HOSTNAME.to_owned());
    }
    Some(like_me(keys, expressions))
}

fn says_where(source: &Source<'_>, requirement: &dra_types::NodeSelectorRequirement) -> bool {
    let [value] = requirement.values.as_slice() else { return false };
    let is_own = source.labels.get(&*requirement.key).is_some_and(|own| **own == **value);
    let is_of_type = (source.label_of_type)(&requirement.key).is_some_and(|of_type| *of_type == **value);
    let is_truth = matches!(&**value, "true" | "false" | "");
    requirement.operator == NodeSelectorOperator::In && is_own && !is_of_type && !is_truth
}

/// Gives pools of a driver that templates could not tell apart a suffix: the part of their name beside the machine's.
fn name_apart(source: &Source<'_>, drafts: &mut [(PoolName, Draft)]) {
    let same = |a: &Draft, b: &Draft| {
        (&a.scope, &a.node_selector, a.all_nodes, a.per_device)
            == (&b.scope, &b.node_selector, b.all_nodes, b.per_device)
    };
    let all: Vec<Draft> = drafts.iter().map(|(_, draft)| draft.clone()).collect();
    let mut taken: Vec<String> = Vec::new();
    for (name, draft) in drafts {
        if all.iter().filter(|other| same(draft, other)).count() < 2 || name.as_str() == source.node_name {
            continue;
        }
        let rest = name.as_str().replace(source.node_name, "");
        let suffix = unique(&label(&rest, "pool"), &|name| taken.iter().any(|it| it == name));
        taken.push(suffix.clone());
        draft.suffix = Some(suffix);
    }
}

pub(super) fn implied_labels(slices: &[&ResourceSlice]) -> BTreeMap<String, String> {
    let of_devices = slices.iter().flat_map(|slice| &slice.devices).filter_map(|device| device.node_scope.as_ref());
    let scopes = slices.iter().filter_map(|slice| slice.node_scope.as_ref()).chain(of_devices);
    let mut implied = BTreeMap::new();
    for scope in scopes {
        let NodeScope::Selector(NodeSelector { terms }) = scope else { continue };
        for requirement in terms.iter().take(1).flat_map(|term| &term.match_expressions) {
            if let (NodeSelectorOperator::In, Some(value)) = (&requirement.operator, requirement.values.first()) {
                implied.entry(requirement.key.to_string()).or_insert_with(|| value.to_string());
            }
        }
    }
    implied
}
