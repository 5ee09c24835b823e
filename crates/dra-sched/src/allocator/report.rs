//! Why each request finds too little: every device of the view against every rule, as the ledger stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::search::{BranchIndex, Search};
use crate::attributes::Held;
use crate::capacity::Demand;
use crate::compat::Gate;
use crate::selectors::Judgement;
use crate::verdict::{Fall, RequestReport, Rule};
use crate::view::Position;

/// One report a branch. Nothing may be picked.
pub(super) fn requests(search: &mut Search<'_>) -> Vec<RequestReport> {
    let branches: Vec<BranchIndex> = search.branches.ids().collect();
    branches.into_iter().map(|branch| report(search, branch)).collect()
}

fn report(search: &mut Search<'_>, branch: BranchIndex) -> RequestReport {
    let mut falls: BTreeMap<Rule, (u64, Arc<str>)> = BTreeMap::new();
    let mut usable = 0;
    for position in search.view.devices.ids() {
        match first_rule(search, branch, position) {
            None => usable += 1,
            Some(rule) => {
                let device = || search.inventory.keys[search.entry(position).key].to_string().into();
                let (devices, _) = falls.entry(rule).or_insert_with(|| (0, device()));
                *devices += 1;
            }
        }
    }
    let fall = |(rule, (devices, example))| Fall { rule, devices, example };
    let mut falls: Vec<Fall> = falls.into_iter().map(fall).collect();
    falls.sort_by_key(|fall| std::cmp::Reverse(fall.devices));
    let of = &search.branches[branch];
    RequestReport {
        claim: model::Id::index(of.claim),
        claim_name: Arc::clone(&search.claims[of.claim].name),
        request: of.alternative.name.clone(),
        wanted: of.alternative.count.map(|count| count as u64),
        seen: search.view.devices.len() as u64,
        usable,
        falls,
    }
}

/// The first rule that excludes a device by itself.
fn first_rule(search: &mut Search<'_>, branch: BranchIndex, position: Position) -> Option<Rule> {
    let device = search.device(position);
    let alternative = search.branches[branch].alternative;
    if !search.inventory.compat.is_on(Gate::DeviceBindingConditions) && !device.binding_conditions.is_empty() {
        return Some(Rule::BindingConditionsOff);
    }
    if let Some((selector, (of_class, index), judgement)) = search.first_selector_that_fails(branch, position) {
        let text = Arc::clone(search.inventory.selectors.text(selector));
        let content = &search.inventory.shapes[search.entry(position).shape];
        return Some(match (judgement, of_class) {
            (Judgement::Error, _) => Rule::SelectorError { error: search.inventory.selectors.error(selector, content) },
            (Judgement::Yes | Judgement::No, true) => Rule::ClassSelector { index, text },
            (Judgement::Yes | Judgement::No, false) => Rule::RequestSelector { index, text },
        });
    }
    if !search.view_device(position).here {
        return Some(Rule::OtherNode);
    }
    if !alternative.admin_access && search.is_taken(position) {
        return Some(Rule::InUse);
    }
    if search.lacks_node_operations(position) {
        return Some(Rule::NodeOperations);
    }
    if search.counters_are_off(position) {
        return Some(Rule::CountersOff);
    }
    if let Some(taint) = search.untolerated(branch, position) {
        let text = format!("{}={}:{}", taint.key, taint.value, taint.effect.as_str());
        return Some(Rule::Taint { taint: text.into() });
    }
    if let Some(rule) = capacity(search, branch, position) {
        return Some(rule);
    }
    if !search.groups_admit(position) {
        return Some(Rule::CompatibilityGroups);
    }
    if let Some(counter) = search.short_counter(position) {
        let pool = &search.inventory.pools[search.view.pools[search.view_device(position).pool].pool];
        let (set, counter) = &pool.counters[counter];
        return Some(Rule::Counter { set: pool.sets[*set].clone(), counter: counter.clone() });
    }
    let claim = search.branches[branch].claim;
    alternative.constraints.iter().find_map(|&constraint| {
        let compiled = search.claims[claim].constraints.get(constraint)?;
        let attribute = || search.inventory.attributes[compiled.attribute].name.clone();
        match search.held(branch, constraint, position) {
            Held::Missing => Some(Rule::NoAttribute { attribute: attribute() }),
            Held::Failed => Some(Rule::DerivedError {
                attribute: attribute(),
                error: search.derived_error(branch, constraint, position),
            }),
            Held::Opaque | Held::Values(_) => None,
        }
    })
}

fn capacity(search: &mut Search<'_>, branch: BranchIndex, position: Position) -> Option<Rule> {
    if !search.inventory.compat.is_on(Gate::ConsumableCapacity) {
        return None;
    }
    match search.has_capacity(branch, position, false) {
        Ok(true) => None,
        Err(_) => Some(Rule::CapacityPolicy),
        Ok(false) => {
            let demand = search.demand(branch, position);
            let Ok(Demand::Amounts(amounts)) = &*demand else { return Some(Rule::CapacityPolicy) };
            let taken = search.taken.shares(search.entry(position).key).unwrap_or_default();
            let short =
                search.device(position).capacity.iter().zip(amounts.iter()).find(|((name, capacity), amount)| {
                    taken.get(*name).copied().unwrap_or(0) + **amount > capacity.value.to_nano()
                });
            Some(short.map_or(Rule::CapacityPolicy, |((name, _), _)| Rule::Capacity { name: name.clone() }))
        }
    }
}
