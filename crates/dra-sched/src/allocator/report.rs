//! The report of a refusal: for each request, every device of the view against every rule, with what was taken at that
//! time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::Budget;

use super::Question;
use super::search::{BranchIndex, Search};
use crate::capacity::Demand;
use crate::compile::attributes::{self, Held};
use crate::compile::ids::{AttributeIndex, DeviceIndex, DeviceShape};
use crate::compile::selectors::Judgement;
use crate::inventory::Inventory;
use crate::inventory::view::Position;
use crate::ledger::Taken;
use crate::tuning::{NAMED_DEVICES, REASON_STEPS};
use crate::verdict::scene::Scene;
use crate::verdict::{ConstraintReport, Fall, Infeasible, Proof, RequestReport, Rule, Shortage};
use dra_types::compat::Gate;

/// The reports for each request, and for the constraints that could be the reason. `None` if the claims have a fault
/// and no device was looked at.
pub(crate) fn of(
    inventory: &Inventory,
    scene: &Scene,
    proof: &Proof,
) -> Option<(Vec<RequestReport>, Vec<ConstraintReport>)> {
    again(inventory, scene, |search| (requests(search), constraints(search, proof)))
}

impl Infeasible {
    /// With the reason that counting gives, if there is one: a search that has tried everything does not look for it.
    pub(crate) fn reasoned(&self, inventory: &Inventory) -> Cow<'_, Self> {
        if self.proof != Proof::Exhausted {
            return Cow::Borrowed(self);
        }
        let proof = again(inventory, &self.scene, |search| search.proof_of_exhaustion());
        Cow::Owned(Self { proof: proof.unwrap_or(Proof::Exhausted), ..self.clone() })
    }
}

/// Looks at a scene as the search did that refused, before anything is picked. `None` if the claims have a fault.
fn again<T>(inventory: &Inventory, scene: &Scene, look: impl FnOnce(&mut Search<'_>) -> T) -> Option<T> {
    let ledger = scene.ledger();
    let taken = Taken { cluster: &ledger, own: None };
    let mut budget = Budget::new(REASON_STEPS);
    let question = Question { inventory, seen: (&scene.facts, &scene.view), claims: &scene.claims, taken };
    let mut search = Search::new(question, &mut budget);
    search.prepare().ok()?;
    Some(look(&mut search))
}

/// One report per branch. Call it before anything is picked.
fn requests(search: &mut Search<'_>) -> Vec<RequestReport> {
    let branches: Vec<BranchIndex> = search.branches.ids().collect();
    branches.into_iter().map(|branch| report(search, branch)).collect()
}

/// Devices that fail one rule, while they are counted.
struct Fallen {
    devices: u64,
    example: Arc<str>,
    shapes: Vec<DeviceShape>,
    sample: Vec<DeviceIndex>,
    shortage: Option<Shortage>,
}

fn report(search: &mut Search<'_>, branch: BranchIndex) -> RequestReport {
    let mut falls: BTreeMap<Rule, Fallen> = BTreeMap::new();
    let mut usable = 0;
    for position in search.view.devices.ids() {
        let Some((rule, shortage)) = first_rule(search, branch, position) else {
            usable += 1;
            continue;
        };
        let entry = search.entry(position);
        let is_about_itself = matches!(rule, Rule::InUse | Rule::Counter { .. } | Rule::Capacity { .. });
        let fallen = falls.entry(rule).or_insert_with(|| Fallen {
            devices: 0,
            example: search.device_id(position).to_string().into(),
            shapes: Vec::new(),
            sample: Vec::new(),
            shortage: None,
        });
        fallen.devices += 1;
        // A selector rejects all devices of one shape alike, but each device in use has a holder of its own.
        if fallen.sample.len() < NAMED_DEVICES && (is_about_itself || !fallen.shapes.contains(&entry.shape)) {
            fallen.shapes.push(entry.shape);
            fallen.sample.push(search.view_device(position).device);
        }
        // The device that lacks least is shown, since it is the nearest to a change that helps.
        let missing = |shortage: &Shortage| shortage.needed - shortage.left;
        if fallen
            .shortage
            .as_ref()
            .is_none_or(|known| shortage.as_ref().is_some_and(|new| missing(new) < missing(known)))
        {
            fallen.shortage = shortage;
        }
    }
    let fall = |(rule, fallen): (Rule, Fallen)| Fall {
        rule,
        devices: fallen.devices,
        example: fallen.example,
        sample: fallen.sample,
        shortage: fallen.shortage,
    };
    let mut falls: Vec<Fall> = falls.into_iter().map(fall).collect();
    falls.sort_by_key(|fall| std::cmp::Reverse(fall.devices));
    let of = &search.branches[branch];
    RequestReport {
        claim: model::Id::index(of.claim),
        claim_name: Arc::clone(&search.claims[of.claim].class.name),
        request: of.alternative.name.clone(),
        class: of.alternative.class.meta.name.name.as_ref().into(),
        wanted: of.alternative.count.map(|count| count as u64),
        seen: search.view.devices.len() as u64,
        usable,
        falls,
    }
}

/// The values in play under each constraint that could be the reason.
fn constraints(search: &mut Search<'_>, proof: &Proof) -> Vec<ConstraintReport> {
    let blamed = |of_claim: usize, of_constraint: usize| match proof {
        Proof::NoCommonValue { claim, constraint } | Proof::TooFewValues { claim, constraint } => {
            (*claim, *constraint) == (of_claim, of_constraint)
        }
        Proof::TooFew { .. } => false,
        Proof::Together { .. } | Proof::Exhausted => true,
    };
    let mut reports = Vec::new();
    for claim in search.claims.ids() {
        let compiled = search.claims[claim].class.constraints.clone();
        for (index, constraint) in compiled.into_iter().enumerate() {
            if !blamed(model::Id::index(claim), index) {
                continue;
            }
            let covered: Vec<BranchIndex> = search
                .branches
                .iter_enumerated()
                .filter(|(_, branch)| branch.claim == claim && branch.alternative.constraints.contains(&index))
                .map(|(branch, _)| branch)
                .collect();
            let mut requests = Vec::with_capacity(covered.len());
            for branch in covered {
                let name = search.branches[branch].alternative.name.clone();
                requests.push((name, values(search, branch, index, constraint.attribute)));
            }
            reports.push(ConstraintReport {
                claim: model::Id::index(claim),
                constraint: index,
                attribute: search.inventory.attributes[constraint.attribute].name.clone(),
                distinct: constraint.distinct,
                requests,
            });
        }
    }
    reports
}

/// The usable devices of a branch by their value of a constraint's attribute.
fn values(
    search: &mut Search<'_>,
    branch: BranchIndex,
    constraint: usize,
    attribute: AttributeIndex,
) -> BTreeMap<Arc<str>, u64> {
    let mut values: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for position in search.view.devices.ids() {
        if first_rule(search, branch, position).is_some() {
            continue;
        }
        let entry = search.entry(position);
        let shape = &search.inventory.shapes[entry.shape];
        let text = match search.branches[branch].alternative.derived_for(constraint) {
            Some(derived) => search.inventory.derived.value(derived, entry.shape, shape).map(|value| value.to_string()),
            None => {
                let (name, offset) = (&search.inventory.attributes[attribute].name, search.group_offset(position));
                Ok(attributes::text(name, shape, entry, attribute, offset))
            }
        };
        *values.entry(text.unwrap_or_else(|error| error.to_string()).into()).or_default() += 1;
    }
    values
}

/// The first rule that excludes a device by itself.
fn first_rule(search: &mut Search<'_>, branch: BranchIndex, position: Position) -> Option<(Rule, Option<Shortage>)> {
    if let Some(rule) = first_plain_rule(search, branch, position) {
        return Some((rule, None));
    }
    if let Some((rule, shortage)) = capacity(search, branch, position) {
        return Some((rule, shortage));
    }
    if !search.groups_admit(position) {
        return Some((Rule::CompatibilityGroups, None));
    }
    if let Some(counter) = search.short_counter(position) {
        let pool = search.view_device(position).pool;
        let of = &search.inventory.pools[search.view.pools[pool].pool];
        let (set, name) = &of.counters[counter];
        let rule = Rule::Counter { set: of.sets[*set].clone(), counter: name.clone() };
        let draws = search.draws_with_left(position);
        let draw = draws.iter().find(|((at, drawn), ..)| *at == pool && *drawn == counter);
        return Some((rule, draw.map(|(_, needed, left)| Shortage { needed: *needed, left: *left })));
    }
    missing_attribute(search, branch, position).map(|rule| (rule, None))
}

/// The first rule, of those that are not about amounts.
fn first_plain_rule(search: &mut Search<'_>, branch: BranchIndex, position: Position) -> Option<Rule> {
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
    None
}

fn missing_attribute(search: &Search<'_>, branch: BranchIndex, position: Position) -> Option<Rule> {
    let alternative = search.branches[branch].alternative;
    let claim = search.branches[branch].claim;
    alternative.constraints.iter().find_map(|&constraint| {
        let compiled = search.claims[claim].class.constraints.get(constraint)?;
        let attribute = || search.inventory.attributes[compiled.attribute].name.clone();
        match &*search.held(branch, constraint, position) {
            Held::Missing => Some(Rule::NoAttribute { attribute: attribute() }),
            Held::Failed => Some(Rule::DerivedError {
                attribute: attribute(),
                error: search.derived_error(branch, constraint, position),
            }),
            Held::Opaque | Held::Values(_) => None,
        }
    })
}

fn capacity(search: &mut Search<'_>, branch: BranchIndex, position: Position) -> Option<(Rule, Option<Shortage>)> {
    if !search.inventory.compat.is_on(Gate::ConsumableCapacity) {
        return None;
    }
    match search.has_capacity(branch, position, false) {
        Ok(true) => None,
        Err(_) => Some((Rule::CapacityPolicy, None)),
        Ok(false) => {
            let demand = search.demand(branch, position);
            let Ok(Demand::Amounts(amounts)) = &*demand else { return Some((Rule::CapacityPolicy, None)) };
            let taken = search.taken.shares(search.unit(position)).unwrap_or_default();
            let short =
                search.device(position).capacity.iter().zip(amounts.iter()).find_map(|((name, of), &needed)| {
                    let left = of.value.to_nano() - taken.get(name).copied().unwrap_or(0);
                    (needed > left).then(|| (Rule::Capacity { name: name.clone() }, Some(Shortage { needed, left })))
                });
            Some(short.unwrap_or((Rule::CapacityPolicy, None)))
        }
    }
}
