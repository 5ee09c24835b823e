//! Circles in a graph of names.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of two names or more that all reach each other along the arrows, each sorted.
///
/// Every name's reach is searched anew, which is quick enough for the few hundred rooms that there are.
pub(super) fn cycles(arrows: impl Iterator<Item = (String, String)>) -> Vec<Vec<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in arrows.filter(|(from, to)| from != to) {
        graph.entry(from).or_default().insert(to);
    }
    let reach: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|name| (name, reached(&graph, name))).collect();
    let reaches = |from: &String, to: &String| reach.get(from).is_some_and(|reached| reached.contains(to));
    let mut cycles = BTreeSet::new();
    for (name, reached) in &reach {
        if reached.contains(name) {
            cycles.insert(reached.iter().filter(|other| reaches(other, name)).map(|&other| other.clone()).collect());
        }
    }
    cycles.into_iter().collect()
}

fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, start: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = graph.get(start).into_iter().flatten().collect();
    while let Some(name) = open.pop() {
        if reached.insert(name) {
            open.extend(graph.get(name).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arrows: &[(&str, &str)]) -> Vec<Vec<String>> {
        cycles(arrows.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())))
    }

    #[test]
    fn names_that_reach_each_other_are_one_circle_and_what_hangs_on_them_is_not_in_it() {
        assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]), [["a", "b", "c"]]);
        assert_eq!(of(&[("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("b", "c")]), [["a", "b"], ["c", "d"]]);
    }

    #[test]
    fn a_graph_whose_arrows_all_go_down_has_no_circle() {
        assert!(of(&[("a", "b"), ("a", "c"), ("b", "c"), ("c", "c")]).is_empty());
    }
}
