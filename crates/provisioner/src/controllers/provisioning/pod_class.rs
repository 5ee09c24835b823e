//! Pods that fare alike, by a number that stays the same over restarts and whatever the names are interned as.
//!
//! Who made a pod is left out on purpose: the successor of a pod that was preempted, the next run of a CronJob and the
//! next pod of an operator all ask for what the last one did not get. Two workloads of a namespace that ask for exactly
//! the same count as one class.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use model::{Interner, Pod, PodShape};

/// A class of pods in one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodClass(u64);

impl PodClass {
    /// The class of a pod in that namespace with that shape.
    pub(super) fn of_shape(namespace: &str, shape: &PodShape, names: &Interner) -> Self {
        let mut text = format!("{namespace}/{}/{}", shape.requests.display(names), shape.node_selector.display(names));
        for term in &shape.required_node_affinity {
            // Writing to a string cannot fail.
            let _ = write!(text, "/{}", term.expressions.display(names));
        }
        for claim in &shape.resource_claims {
            let _ = write!(text, "/{:?}", claim.source);
        }
        // FNV-1a: the number is written on NodeClaims, so it must not change with a release of a hasher.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }

    /// The class of a pod.
    pub(super) fn of(pod: &Pod, names: &Interner) -> Self {
        Self::of_shape(&pod.name.namespace, &pod.shape, names)
    }

    #[cfg(test)]
    pub(super) const fn numbered(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for PodClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for PodClass {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// The classes of many pods, each shape of a namespace looked at once.
#[derive(Debug)]
pub(super) struct PodClasses<'a> {
    names: &'a Interner,
    known: BTreeMap<(*const PodShape, &'a str), PodClass>,
}

impl<'a> PodClasses<'a> {
    pub(super) fn new(names: &'a Interner) -> Self {
        Self { names, known: BTreeMap::new() }
    }

    /// The class of a pod. Pods of one shape share it, so the place in memory tells shapes apart well enough.
    pub(super) fn of(&mut self, pod: &'a Pod) -> PodClass {
        let names = self.names;
        let key = (Arc::as_ptr(&pod.shape), &*pod.name.namespace);
        *self.known.entry(key).or_insert_with(|| PodClass::of(pod, names))
    }
}

#[cfg(test)]
mod tests {
    use model::ResourceId;

    use super::*;
    use crate::world::test_pods::pod;

    fn with_cpu(name: &str, milli: i64) -> Pod {
        let mut shape = PodShape::default();
        shape.requests.set(ResourceId::CPU, milli);
        Pod { shape: Arc::new(shape), ..pod(name) }
    }

    #[test]
    fn pods_that_ask_for_the_same_are_one_class_whoever_made_them() {
        let names = Interner::new();
        let class = |pod: &Pod| PodClass::of(pod, &names);
        assert_eq!(class(&with_cpu("a", 100)), class(&Pod { owner: None, ..with_cpu("b", 100) }));
        assert_ne!(class(&with_cpu("a", 100)), class(&with_cpu("a", 200)));
        let elsewhere = Pod { name: model::NamespacedName::new("other", "a"), ..with_cpu("a", 100) };
        assert_ne!(class(&with_cpu("a", 100)), class(&elsewhere));
    }

    #[test]
    fn a_class_is_written_and_read_back() {
        let class = PodClass::of(&with_cpu("a", 100), &Interner::new());
        assert_eq!(class.to_string().parse(), Ok(class));
        assert_eq!(class.to_string().len(), 16);
    }
}
