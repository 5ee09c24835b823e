//! Pods that run on a node, and what they come to.
//!
//! A cluster has hundreds of thousands of running pods of a few hundred kinds. The planner asks the same of all of them
//! (what they take, which rules count them) and asks it several times for each plan, so what it asks is summed up once
//! for each node: whoever knows that the pods of a node are those of the last snapshot uses the sum again.

use std::{ops::Deref, sync::Arc};

use crate::tuning::RUNNING_KINDS;
use hashbrown::HashTable;
use model::{Labels, Pod, PodShape, ResourceVec, collections::fast_hash};
use smallvec::SmallVec;

/// The pods that run on a node, and what they come to.
#[derive(Debug, Clone, Default)]
pub struct RunningPods {
    pods: Arc<Vec<Arc<Pod>>>,
    requests: ResourceVec,
    kinds: Vec<(Arc<RunningKind>, u32)>,
    daemons: SmallVec<[Arc<Pod>; 2]>,
}

/// What rules that couple pods read of a pod that runs.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RunningKind {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The labels.
    pub labels: Labels,
    /// What decides where the pods may go.
    pub shape: Arc<PodShape>,
    /// Whether they are being deleted.
    pub is_going: bool,
}

impl RunningKind {
    fn is_of(&self, pod: &Pod) -> bool {
        Arc::ptr_eq(&self.shape, &pod.shape)
            && self.is_going == pod.deletion_timestamp.is_some()
            && self.labels == pod.labels
            && self.namespace == pod.name.namespace
    }
}

impl RunningPods {
    /// The kinds of the pods, and how many there are of each. One kind may be there twice; the order means nothing.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = (&Arc<RunningKind>, u32)> {
        self.kinds.iter().map(|(kind, count)| (kind, *count))
    }

    /// What the pods request together.
    pub fn requests(&self) -> &ResourceVec {
        &self.requests
    }

    /// The pods of DaemonSets.
    pub fn daemons(&self) -> &[Arc<Pod>] {
        &self.daemons
    }

    /// Adds pods.
    pub fn extend(&mut self, more: impl IntoIterator<Item = Arc<Pod>>) {
        let pods = self.pods.iter().cloned().chain(more).collect();
        *self = Kinds::default().running(Arc::new(pods));
    }
}

impl Deref for RunningPods {
    type Target = [Arc<Pod>];

    fn deref(&self) -> &[Arc<Pod>] {
        &self.pods
    }
}

impl<'a> IntoIterator for &'a RunningPods {
    type Item = &'a Arc<Pod>;
    type IntoIter = std::slice::Iter<'a, Arc<Pod>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pods.iter()
    }
}

impl From<Vec<Arc<Pod>>> for RunningPods {
    fn from(pods: Vec<Arc<Pod>>) -> Self {
        Kinds::default().running(Arc::new(pods))
    }
}

/// The kinds of the pods of several nodes: alike on all of them, each is there once.
#[derive(Debug, Default)]
pub struct Kinds {
    known: HashTable<(u64, Arc<RunningKind>)>,
    /// How many there may be before those that no node has are dropped.
    limit: usize,
}

impl Kinds {
    /// What those pods come to.
    pub fn running(&mut self, pods: Arc<Vec<Arc<Pod>>>) -> RunningPods {
        let mut running = RunningPods::default();
        for pod in pods.iter() {
            running.requests.saturating_add_assign(&pod.shape.requests);
            // Pods of one owner have names that begin alike, so they stand side by side.
            match running.kinds.last_mut().filter(|(kind, _)| kind.is_of(pod)) {
                Some((_, count)) => *count += 1,
                None => running.kinds.push((self.kind(pod), 1)),
            }
            if pod.is_daemon {
                running.daemons.push(Arc::clone(pod));
            }
        }
        running.pods = pods;
        running
    }

    fn kind(&mut self, pod: &Pod) -> Arc<RunningKind> {
        let hash = fast_hash(&(Arc::as_ptr(&pod.shape), &pod.labels, &pod.name.namespace));
        if let Some((_, kind)) = self.known.find(hash, |(other, kind)| *other == hash && kind.is_of(pod)) {
            return Arc::clone(kind);
        }
        if self.known.len() >= self.limit.max(RUNNING_KINDS) {
            self.known.retain(|(_, kind)| Arc::strong_count(kind) > 1);
            self.limit = 2 * self.known.len();
        }
        let kind = Arc::new(RunningKind {
            namespace: Arc::clone(&pod.name.namespace),
            labels: pod.labels.clone(),
            shape: Arc::clone(&pod.shape),
            is_going: pod.deletion_timestamp.is_some(),
        });
        self.known.insert_unique(hash, (hash, Arc::clone(&kind)), |(hash, _)| *hash);
        kind
    }
}
