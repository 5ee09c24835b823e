//! Why pods that are placed together or not at all have no place.

use model::{Interner, KeyId, NamespacedName, ValueId};

/// A PodGroup whose pods are placed together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    /// The PodGroup.
    pub name: NamespacedName,
    /// Its `minCount`.
    pub wanted: u32,
    /// How many of its pods are bound.
    pub bound: u32,
    /// How many wait.
    pub waiting: usize,
    /// How many of these would have had a place.
    pub placed: usize,
}

/// A PodGroup that has to be in one domain of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDomain {
    /// The PodGroup.
    pub name: NamespacedName,
    /// The label.
    pub key: KeyId,
    /// Its values on the nodes that pods of the group run on; `None` for nodes without it, or whose value is not known
    /// yet.
    pub runs_in: Vec<Option<ValueId>>,
    /// How many values were tried.
    pub tried: usize,
    /// How many were not.
    pub left: usize,
    /// The value that came nearest.
    pub nearest: Option<ValueId>,
}

impl Gang {
    pub(super) fn message(&self) -> String {
        let Self { wanted, bound, waiting, placed, .. } = self;
        let bound_text = if *bound == 0 { String::new() } else { format!("{bound} of them bound, ") };
        if *bound as usize + waiting < *wanted as usize {
            let there = *bound as usize + waiting;
            return format!("needs {wanted} pods at once, {bound_text}and there are only {there}");
        }
        format!("needs {wanted} pods at once, {bound_text}and {placed} of the {waiting} that wait would have a place")
    }
}

impl GroupDomain {
    pub(super) fn message(&self, names: &Interner) -> String {
        let Self { key, runs_in, tried, left, nearest, .. } = self;
        let key = names.key_name(*key);
        let one = format!("all its pods have to be in one {key}");
        if let [only] = runs_in.as_slice() {
            return match only {
                Some(value) => {
                    format!("{one}, and those that run are in {}, which has no room", names.value_name(*value))
                }
                None => format!("{one}, and those that run are on a node without that label"),
            };
        }
        if !runs_in.is_empty() {
            return format!("{one}, and those that run are in {}", runs_in.len());
        }
        if *tried + *left == 0 {
            return format!("{one}, and no node has that label, nor is a value of it known of any machine to come");
        }
        let nearest = nearest.map(|value| format!("; nearest is {}", names.value_name(value))).unwrap_or_default();
        let rest = if *left > 0 { format!("; {left} more were not tried") } else { String::new() };
        format!("{one}, and none of the {tried} tried has room for enough of them{rest}{nearest}")
    }
}
