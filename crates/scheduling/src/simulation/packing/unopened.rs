//! Domains of a spread in which the plan launches nothing.
//!
//! Kube-scheduler counts the domains that have nodes. While a plan is made, those count too in which a machine could be
//! launched, and as long as one of them has no pod the least is 0. So the plan leaves room on nodes free that only
//! their skew closes. Where it then launches nothing in such a domain, kube-scheduler fills that room, with pods that
//! were planned for machines. Such a plan is made again without these domains: they do not count, and no machine is
//! opened there for pods with that spread.

use model::IdSet;

use super::outside::landings;
use super::state::{State, Target};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::topology::{DomainId, GroupId, Kind, Scope};
use crate::snapshot::NodeId;

/// By spread: domains with neither a node nor a machine of the plan, where that matters: some of the spread's pods are
/// on machines, and some node has so much free that only rules and devices can keep one of them out.
///
/// Spreads of `refused` pods are left out, so that no pod is said to be refused because of a domain that was closed
/// here.
pub(crate) fn unopened(
    problem: &Problem<'_>,
    state: &State,
    refused: &IdSet<ClassId>,
) -> Vec<(GroupId, IdSet<DomainId>)> {
    if problem.node_order.is_empty() {
        return Vec::new();
    }
    let groups_of = |class: ClassId| problem.classes[class].involved.iter().filter(|mine| mine.owner);
    let of_refused: IdSet<GroupId> = refused.iter().flat_map(groups_of).map(|mine| mine.group).collect();
    let on_machines = state.assignments.iter().filter(|entry| matches!(entry.target, Target::Bin(_)));
    let on_machines: IdSet<ClassId> = on_machines.map(|entry| entry.class).collect();
    let fits = |class: ClassId, node: NodeId| {
        let requests = problem.classes[class].requests(problem.variant_on(class, node));
        problem.node_accepts(class, node) && requests.fits_in(&state.room[node])
    };
    let mut looked_at = IdSet::new();
    let mut found = Vec::new();
    for class in on_machines.iter() {
        // The cheapest checks come first.
        let groups = groups_of(class).map(|mine| mine.group);
        let new = groups.filter(|group| !of_refused.contains(*group) && !looked_at.contains(*group));
        let might = new.filter_map(|group| Some((group, candidates(problem, state, group)?)));
        let might: Vec<(GroupId, IdSet<DomainId>)> = might.collect();
        if might.is_empty() || !problem.node_order.iter().any(|&node| fits(class, node)) {
            continue;
        }
        for (group, candidates) in might {
            looked_at.insert(group);
            found.extend(empty_domains(problem, state, group, candidates).map(|domains| (group, domains)));
        }
    }
    found.sort_by_key(|(group, _)| *group);
    found
}

/// The domains that have no nodes and no pods that the spread counts, if there are some and it has a least that could
/// be more than 0.
fn candidates(problem: &Problem<'_>, state: &State, id: GroupId) -> Option<IdSet<DomainId>> {
    let (group, counts) = (&problem.topology.groups[id], &state.counts[id]);
    let (Kind::Spread { .. }, Scope::Label(_)) = (group.kind, group.scope) else { return None };
    let with_nodes = group.present_on_nodes();
    if counts.spread.least_is_zero || with_nodes.iter().any(|domain| counts.matched(domain) == 0) {
        return None;
    }
    let is_empty = |domain: &DomainId| !with_nodes.contains(*domain) && counts.matched(*domain) == 0;
    let domains: IdSet<DomainId> = counts.spread.present.iter().filter(is_empty).collect();
    (!domains.is_empty()).then_some(domains)
}

/// Those of its [`candidates`] that no machine of the plan may come to, if the least would be more than 0 without them.
fn empty_domains(
    problem: &Problem<'_>,
    state: &State,
    id: GroupId,
    mut empty: IdSet<DomainId>,
) -> Option<IdSet<DomainId>> {
    let group = &problem.topology.groups[id];
    let Kind::Spread { min_domains, .. } = group.kind else { return None };
    let (mut there, _) = landings(group, problem, &state.bins);
    there.union_with(group.present_on_nodes());
    empty.difference_with(&there);
    let has_pods = there.iter().all(|domain| state.counts[id].matched(domain) > 0);
    (!empty.is_empty() && has_pods && there.count() >= min_domains as usize).then_some(empty)
}
