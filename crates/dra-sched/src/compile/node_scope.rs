//! What slices say about themselves: for which nodes they are, and whether their pool is complete.

use std::sync::Arc;

use dra_types::{NodeScope, NodeSelector, NodeSelectorRequirement, ResourceSlice};

/// Whether all slices of the newest generation of a pool are there.
pub(crate) fn is_complete(slices: &[&ResourceSlice]) -> bool {
    let newest = slices.iter().map(|slice| slice.pool.generation).max();
    let mut of_newest = slices.iter().filter(|slice| Some(slice.pool.generation) == newest);
    let expected = of_newest.next().map_or(0, |slice| slice.pool.resource_slice_count);
    usize::try_from(expected) == Ok(of_newest.count() + 1)
}

/// Whether two scopes have equal texts, with requirements and values in any order: then they hold the same nodes.
pub(crate) fn alike(a: &NodeScope, b: &NodeScope) -> bool {
    match (a, b) {
        (NodeScope::Selector(a), NodeScope::Selector(b)) => is_same_selector(a, b),
        _ => a == b,
    }
}

/// Whether two node selectors have equal texts, with requirements and values in any order.
pub(crate) fn is_same_selector(a: &NodeSelector, b: &NodeSelector) -> bool {
    let normal = |requirements: &[NodeSelectorRequirement]| {
        let one = |requirement: &NodeSelectorRequirement| {
            let mut values = requirement.values.clone();
            values.sort_unstable();
            values.dedup();
            (Arc::clone(&requirement.key), requirement.operator.as_str().to_owned(), values)
        };
        let mut all: Vec<_> = requirements.iter().map(one).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    match (a.terms.as_slice(), b.terms.as_slice()) {
        ([a], [b]) => {
            normal(&a.match_expressions) == normal(&b.match_expressions)
                && normal(&a.match_fields) == normal(&b.match_fields)
        }
        _ => a == b,
    }
}

/// The label keys that a scope mentions.
pub(crate) fn keys_of(scope: &NodeScope) -> impl Iterator<Item = &Arc<str>> {
    let selector = match scope {
        NodeScope::Selector(selector) => Some(selector),
        NodeScope::Node(_) | NodeScope::AllNodes | NodeScope::PerDevice => None,
    };
    selector.into_iter().flat_map(selector_keys)
}

/// The label keys that a node selector mentions.
pub(crate) fn selector_keys(selector: &NodeSelector) -> impl Iterator<Item = &Arc<str>> {
    selector.terms.iter().flat_map(|term| &term.match_expressions).map(|requirement| &requirement.key)
}
