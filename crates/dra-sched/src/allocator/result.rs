//! Writes an assignment as upstream writes it: results, configurations, node selector.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{NodeName, Quantity};

use super::search::{BranchIndex, ClaimPosition, Pick, Search};
use super::{Found, Need, Outcome};
use crate::faults::Fault;
use crate::inventory::view::Position;
use crate::ledger::{Amounts, Usage};
use crate::verdict::Refusal;
use dra_types::{
    Allocation, AllocationResult, Config, ConfigSource, NodeScope, NodeSelector, NodeSelectorOperator,
    NodeSelectorRequirement, NodeSelectorTerm, RequestName, ResultConfig, compat::Gate,
};

/// kube-scheduler gives each share a random name. Only whether there is one matters here.
const SHARE_ID: &str = "share";

/// Upstream's score of the first alternative.
const BEST_SCORE: usize = 8;

/// The outcome of a search that served all claims.
pub(super) fn found(search: &Search<'_>, need: Need) -> Outcome {
    let mut allocations = Vec::with_capacity(search.claims.len());
    let mut pinned = Vec::new();
    let mut score = 0;
    for claim in search.claims.ids() {
        match node_selector(search, claim) {
            Ok((node_selector, pins)) => {
                allocations.push(Allocation {
                    results: search.picks_of(claim).iter().map(|pick| result(search, pick)).collect(),
                    config: config(search, claim),
                    node_selector,
                    timestamp: None,
                });
                if need == Need::Usage {
                    pinned.push(pins);
                }
            }
            Err(fault) => return Outcome::Refused(Refusal::Fault(fault)),
        }
        for (request, of) in search.claims[claim].class.requests.iter().enumerate() {
            if of.first_available {
                let chosen = chosen(search, claim, request).map_or(0, |branch| search.branches[branch].index);
                score += BEST_SCORE.saturating_sub(chosen);
            }
        }
    }
    let score = u32::try_from(score).unwrap_or(u32::MAX);
    let usage = match need {
        Need::Usage => usage(search),
        Need::Allocations => Usage::default(),
    };
    Outcome::Found(Found { allocations, score, usage, pinned })
}

/// The branch that served a request.
fn chosen(search: &Search<'_>, claim: ClaimPosition, request: usize) -> Option<BranchIndex> {
    let of_request = |pick: &&Pick| search.branches[pick.branch].request == request;
    search.picks_of(claim).iter().find(of_request).map(|pick| pick.branch)
}

fn result(search: &Search<'_>, pick: &Pick) -> AllocationResult {
    let entry = search.entry(pick.position);
    let device = search.device(pick.position);
    let alternative = search.branches[pick.branch].alternative;
    let compat = &search.inventory.compat;
    let waits = compat.is_on(Gate::DeviceBindingConditions);
    let slice = &search.inventory.slices[entry.slice].slice;
    let consumed = pick.share.iter().flatten().zip(&device.capacity).filter_map(|(amount, (name, capacity))| {
        Some((name.clone(), Quantity::from_nano(*amount, capacity.value.format()).ok()?))
    });
    AllocationResult {
        request: alternative.name.clone(),
        device: search.device_id(pick.position),
        admin_access: alternative.admin_access,
        tolerations: alternative.tolerations.clone(),
        binding_conditions: if waits { device.binding_conditions.clone() } else { Vec::new() },
        binding_failure_conditions: if waits { device.binding_failure_conditions.clone() } else { Vec::new() },
        share_id: pick.share.as_ref().map(|_| SHARE_ID.into()),
        consumed_capacity: consumed.collect(),
        skip_node_operations: if compat.is_on(Gate::OptionalNodeOperations) {
            slice.skip_node_operations.clone()
        } else {
            Vec::new()
        },
    }
}

/// The configurations of classes, each once, in the order of requests; then those of the claim for the branches that
/// were chosen.
fn config(search: &Search<'_>, claim: ClaimPosition) -> Vec<ResultConfig> {
    let class = search.claims[claim].class;
    let mut alternatives = class.requests.iter().flat_map(|request| &request.alternatives);
    if class.spec.config.is_empty() && alternatives.all(|alternative| alternative.class.config.is_empty()) {
        return Vec::new();
    }
    let mut configs: Vec<ResultConfig> = Vec::new();
    let mut of_class: Vec<(&str, usize, usize)> = Vec::new();
    let names: Vec<RequestName> =
        (0..class.requests.len()).filter_map(|request| name(search, claim, request)).collect();
    for request in 0..class.requests.len() {
        let Some(branch) = chosen_or_first(search, claim, request) else { continue };
        let alternative = search.branches[branch].alternative;
        let class_name = &*alternative.class.meta.name.name;
        // Requests of one class share the class's configuration.
        if let Some((_, start, end)) = of_class.iter().find(|(known, ..)| *known == class_name) {
            for config in configs.iter_mut().take(*end).skip(*start) {
                config.config.requests.push(alternative.name.clone());
            }
            continue;
        }
        let start = configs.len();
        configs.extend(alternative.class.config.iter().map(|config| ResultConfig {
            source: ConfigSource::Class,
            config: Config { requests: vec![alternative.name.clone()], opaque: config.opaque.clone() },
        }));
        of_class.push((class_name, start, configs.len()));
    }
    // Configuration of the claim for requests, or alternatives, that were not chosen is left out.
    let repeats = search.inventory.quirks.config_is_repeated;
    for config in &class.spec.config {
        let copy = || ResultConfig { source: ConfigSource::Claim, config: config.clone() };
        if config.requests.is_empty() {
            configs.push(copy());
            continue;
        }
        for name in &names {
            let whole = config.requests.iter().any(|named| named == name.split().0);
            let part = !whole && name.split().1.is_some() && config.requests.contains(name);
            if whole || part {
                configs.push(copy());
            }
            // Releases up to 1.36 copy it for each request that it names.
            if (whole || part) && !repeats {
                break;
            }
        }
    }
    // From 1.37 on, a configuration that covers all chosen requests is written as one for all.
    if !repeats {
        for config in configs.iter_mut().filter(|config| !config.config.requests.is_empty()) {
            let covered = |name: &RequestName| {
                config.config.requests.iter().any(|named| named == name || named == name.split().0)
            };
            if names.iter().all(covered) {
                config.config.requests.clear();
            }
        }
    }
    configs
}

/// Upstream takes the first alternative of a request that got no device.
fn chosen_or_first(search: &Search<'_>, claim: ClaimPosition, request: usize) -> Option<BranchIndex> {
    chosen(search, claim, request).or_else(|| search.branches_of(claim, request).iter().next())
}

/// `request`, or `request/subrequest` of what was chosen.
fn name(search: &Search<'_>, claim: ClaimPosition, request: usize) -> Option<RequestName> {
    Some(search.branches[chosen_or_first(search, claim, request)?].alternative.name.clone())
}

/// The node selector of a claim's result, and whether it pins the claim to this node.
fn node_selector(search: &Search<'_>, claim: ClaimPosition) -> Result<(Option<Arc<NodeSelector>>, bool), Fault> {
    let mut term = NodeSelectorTerm::default();
    for pick in search.picks_of(claim) {
        let device = search.device(pick.position);
        let slice = &search.inventory.slices[search.entry(pick.position).slice].slice;
        let brought = &search.view.pools[search.view_device(pick.position).pool].brought;
        let scope = match (&slice.node_scope, brought) {
            (_, Some(brought)) => Some(&*brought.scope),
            (Some(NodeScope::PerDevice), None) => device.node_scope.as_ref(),
            (scope, None) => scope.as_ref(),
        };
        if device.binds_to_node || matches!(scope, Some(NodeScope::Node(_))) {
            let only_here = search.view.only_here.get_or_init(|| only(search.facts.name.as_ref()));
            return Ok((Some(Arc::clone(only_here)), true));
        }
        let Some(NodeScope::Selector(selector)) = scope else { continue };
        match selector.terms.as_slice() {
            [] => {}
            [only] => {
                add(&mut term.match_fields, &only.match_fields);
                add(&mut term.match_expressions, &only.match_expressions);
            }
            terms => {
                return Err(Fault::SelectorTerms {
                    claim: Arc::clone(&search.claims[claim].class.name),
                    device: search.device_id(pick.position),
                    terms: terms.len(),
                });
            }
        }
    }
    let empty = term.match_fields.is_empty() && term.match_expressions.is_empty();
    Ok(((!empty).then(|| Arc::new(NodeSelector { terms: vec![term] })), false))
}

fn only(name: Option<&NodeName>) -> Arc<NodeSelector> {
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: NodeSelectorOperator::In,
        values: vec![name.map_or_else(|| "".into(), |name| Arc::from(name.as_str()))],
    };
    let term = NodeSelectorTerm { match_expressions: Vec::new(), match_fields: vec![requirement] };
    Arc::new(NodeSelector { terms: vec![term] })
}

fn add(to: &mut Vec<NodeSelectorRequirement>, from: &[NodeSelectorRequirement]) {
    for requirement in from {
        let values: BTreeSet<&str> = requirement.values.iter().map(|value| &**value).collect();
        let same = |other: &NodeSelectorRequirement| {
            other.key == requirement.key
                && other.operator == requirement.operator
                && other.values.iter().map(|value| &**value).collect::<BTreeSet<&str>>() == values
        };
        if !to.iter().any(same) {
            to.push(requirement.clone());
        }
    }
}

/// What an assignment takes. Picks with adminAccess take nothing that outlasts the search.
fn usage(search: &Search<'_>) -> Usage {
    let mut usage = Usage::default();
    let mut shared: BTreeSet<Position> = BTreeSet::new();
    for pick in &search.picks {
        if search.branches[pick.branch].alternative.admin_access {
            continue;
        }
        let (entry, unit) = (search.entry(pick.position), search.unit(pick.position));
        let first_share = match &pick.share {
            Some(amounts) => {
                let names = search.device(pick.position).capacity.keys().cloned();
                let amounts: Amounts = names.zip(amounts.iter().copied()).collect();
                usage.add_share(unit, 1, &amounts);
                shared.insert(pick.position) && search.taken.shares(unit).is_none()
            }
            None => {
                usage.dedicated.insert(unit);
                true
            }
        };
        if first_share {
            let pool = &search.view.pools[search.view_device(pick.position).pool];
            for (counter, amount) in entry.draws.iter().flat_map(|draw| &draw.counters) {
                *usage.counters.entry(pool.counter(*counter)).or_default() += amount;
            }
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::fixture::{ask, builder_for, claim, devices, exactly, local};
    use crate::verdict::Verdict;
    use dra_types::{Compat, KubernetesMinor};

    /// The requests of each configuration in the result of a claim with the requests `a` and `b/sub`.
    fn named(release: KubernetesMinor, requests: &Value) -> Vec<Vec<String>> {
        let mut builder = builder_for(Compat::new(release), &["gpu"]);
        builder.slice(local("gpu", &devices(2, |_| json!({}))));
        let alternatives = json!({"name": "b", "firstAvailable": [{"name": "sub", "deviceClassName": "gpu"}]});
        let spec = json!({
            "requests": [exactly("a", "gpu", 1), alternatives],
            "config": [{"requests": requests, "opaque": {"driver": "gpu", "parameters": {}}}],
        });
        let class = claim(&mut builder, "c", &spec);
        let Verdict::Allocated { allocations, .. } = ask(&builder.build(), &[class]).0 else { panic!("refused") };
        let names = |requests: &[dra_types::RequestName]| requests.iter().map(ToString::to_string).collect();
        allocations[0].config.iter().map(|config| names(&config.config.requests)).collect()
    }

    #[test]
    fn a_configuration_is_copied_for_each_request_that_it_names_up_to_1_36_and_once_from_then_on() {
        let none: &[&str] = &[];
        for (requests, up_to_1_36, later) in [
            (json!(["a"]), vec![&["a"][..]], vec![&["a"][..]]),
            (json!(["b", "b/sub"]), vec![&["b", "b/sub"][..]], vec![&["b", "b/sub"][..]]),
            (json!(["a", "b/sub"]), vec![&["a", "b/sub"][..]; 2], vec![none]),
            (json!(["a", "b"]), vec![&["a", "b"][..]; 2], vec![none]),
        ] {
            assert_eq!(named(KubernetesMinor::V1_36, &requests), up_to_1_36, "{requests}");
            assert_eq!(named(KubernetesMinor::V1_37, &requests), later, "{requests}");
        }
    }
}
