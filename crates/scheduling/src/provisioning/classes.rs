//! Pods with the same scheduling shape are one class with a count. Everything after this file works on classes; pods
//! come back when a class's copies are dealt out to their places.

use std::{cmp::Reverse, sync::Arc};

use model::{IdVec, NamespacedName, PodShape, ResourceId, ResourceVec, Unsupported, collections::FastMap, define_id};

use super::{
    affinity::{Term, terms},
    attachments::{self, Attachments},
    supported::{self, RunningAntiAffinity},
};
use crate::snapshot::{PodId, Snapshot};

define_id! {
    /// A class of pods; ids follow the order in which classes are placed.
    pub(crate) struct ClassId;
}

/// Pods that are interchangeable for planning.
#[derive(Debug)]
pub(crate) struct PodClass {
    pub(crate) shape: Arc<PodShape>,
    pub(crate) priority: i32,
    /// Oldest first, then by name: the order in which kube-scheduler's queue would pop them.
    pub(crate) members: Vec<PodId>,
    /// A node must satisfy one of them.
    pub(crate) terms: Vec<Term>,
    /// Volumes that one pod attaches.
    pub(crate) attachments: Attachments,
    /// Set when the pod uses something that is not planned for.
    pub(crate) refused: Option<Unsupported>,
}

#[derive(PartialEq, Eq, Hash)]
struct ClassKey {
    priority: i32,
    shape: Arc<PodShape>,
    refused: Option<Unsupported>,
}

/// Groups the snapshot's pods, and orders the classes: higher priority first, then the class that takes the largest
/// share of `largest` (the most that any machine or node has, per resource), then more CPU, more memory, then the name
/// of the first pod.
pub(crate) fn classes(snapshot: &Snapshot, largest: &ResourceVec) -> IdVec<ClassId, PodClass> {
    let names = &*snapshot.interner;
    let anti_affinity = RunningAntiAffinity::new(snapshot);
    let mut by_key: FastMap<ClassKey, usize> = FastMap::default();
    let mut classes: Vec<PodClass> = Vec::new();
    for (id, pending) in snapshot.pods.iter_enumerated() {
        let pod = &pending.pod;
        let refused =
            supported::unsupported(&pod.shape, &snapshot.volumes).or_else(|| anti_affinity.against(pod, names));
        let key = ClassKey { priority: pod.priority, shape: Arc::clone(&pod.shape), refused };
        if let Some(class) = by_key.get(&key).and_then(|&index| classes.get_mut(index)) {
            class.members.push(id);
            continue;
        }
        classes.push(PodClass {
            shape: Arc::clone(&pod.shape),
            priority: pod.priority,
            members: vec![id],
            terms: terms(&pod.shape, names),
            attachments: attachments::of(&pod.shape, &snapshot.volumes),
            refused: key.refused.clone(),
        });
        by_key.insert(key, classes.len() - 1);
    }
    let waiting = waiting(&classes);
    for class in classes.iter_mut().filter(|class| class.refused.is_none()) {
        class.refused = attachments::unsupported(&class.attachments, &waiting, snapshot);
    }
    let name = |id: PodId| -> &NamespacedName { &snapshot.pods[id].pod.name };
    for class in &mut classes {
        class.members.sort_by(|&a, &b| {
            let age = |id: PodId| snapshot.pods[id].pod.created_at;
            age(a).cmp(&age(b)).then_with(|| name(a).cmp(name(b)))
        });
    }
    classes.sort_by_cached_key(|class| {
        let requests = &class.shape.requests;
        (
            Reverse(class.priority),
            Reverse(share_of(requests, largest)),
            Reverse(requests.get(ResourceId::CPU)),
            Reverse(requests.get(ResourceId::MEMORY)),
            class.members.iter().map(|&id| name(id)).min().cloned(),
        )
    });
    classes.into()
}

/// Volumes of all pods that wait.
pub(crate) fn waiting<'c>(classes: impl IntoIterator<Item = &'c PodClass>) -> Attachments {
    let mut waiting = Attachments::new();
    for class in classes {
        let pods = u32::try_from(class.members.len()).unwrap_or(u32::MAX);
        for (driver, count) in &class.attachments {
            attachments::add(&mut waiting, driver, count.saturating_mul(pods));
        }
    }
    waiting
}

/// The largest share that `requests` takes of `largest`, in parts of 2³².
fn share_of(requests: &ResourceVec, largest: &ResourceVec) -> i128 {
    let share =
        |(resource, amount): (ResourceId, i64)| (i128::from(amount) << 32) / i128::from(largest.get(resource).max(1));
    requests.iter().map(share).max().unwrap_or(0)
}

impl PodClass {
    /// The name of its first pod, for messages.
    pub(crate) fn example<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s NamespacedName> {
        self.members.iter().map(|&id| &snapshot.pods[id].pod.name).min()
    }
}
