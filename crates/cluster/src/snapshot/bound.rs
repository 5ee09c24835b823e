//! Bound pods by node.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NodeName, Pod};

/// The bound pods of each node, by name; those that have ended included. A clone shares everything, and a change copies
/// what one node has, so whoever remembers what the pods of a node came to sees by their address that they are the
/// same.
#[derive(Debug, Clone, Default)]
pub struct BoundPods(Arc<BTreeMap<NodeName, Arc<Vec<Arc<Pod>>>>>);

impl BoundPods {
    /// The pods of a node, by name.
    pub fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.0.get(node).map_or(&[], |pods| pods)
    }

    /// The pods bound to a node, shared; `None` if there are none.
    pub fn shared(&self, node: &str) -> Option<&Arc<Vec<Arc<Pod>>>> {
        self.0.get(node)
    }

    /// Puts a bound pod in, in place of one of that name on the same node; one that is not bound is none of these.
    pub fn insert(&mut self, pod: &Arc<Pod>) {
        let Some(node) = &pod.node_name else { return };
        let pods = Arc::make_mut(Arc::make_mut(&mut self.0).entry(node.clone()).or_default());
        match pods.binary_search_by(|other| other.name.cmp(&pod.name)) {
            Ok(index) => {
                if let Some(known) = pods.get_mut(index) {
                    *known = Arc::clone(pod);
                }
            }
            Err(index) => pods.insert(index, Arc::clone(pod)),
        }
    }

    /// Takes a bound pod out.
    pub fn remove(&mut self, pod: &Pod) {
        let Some(node) = pod.node_name.as_ref().filter(|node| self.0.contains_key(*node)) else { return };
        let nodes = Arc::make_mut(&mut self.0);
        let Some(pods) = nodes.get_mut(node) else { return };
        if let Ok(index) = pods.binary_search_by(|other| other.name.cmp(&pod.name)) {
            Arc::make_mut(pods).remove(index);
        }
        if pods.is_empty() {
            nodes.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::bound_pod;

    #[test]
    fn a_change_of_one_node_leaves_the_pods_of_others_where_they_are() {
        let mut bound = BoundPods::default();
        let pods = [bound_pod("b", "n"), bound_pod("a", "n"), bound_pod("c", "other")];
        pods.iter().for_each(|pod| bound.insert(pod));
        let before = bound.clone();
        bound.remove(&pods[0]);
        bound.insert(&bound_pod("a", "n"));
        let names = |bound: &BoundPods| bound.on("n").iter().map(|pod| pod.name.name.to_string()).collect::<Vec<_>>();
        assert_eq!((names(&before), names(&bound)), (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned()]));
        let shares = |node: &str| before.shared(node).zip(bound.shared(node)).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        assert!(shares("other") && !shares("n"));
        bound.remove(&bound_pod("a", "n"));
        assert!(bound.shared("n").is_none());
    }
}
