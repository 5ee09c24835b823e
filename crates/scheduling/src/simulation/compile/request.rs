//! What the planner is asked: a snapshot as passes have changed it, and what they decided about single pods.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Interner, KeyId, NamespacedName, Pod, PodShape, Requirement, ResourceId, ValueId, ValueSet, collections::FastMap,
};

use crate::plan::{Refusal, Verdict, reason::Reason};
use crate::snapshot::{PodId, Snapshot};

/// A snapshot to plan, beside what passes know of it. Whatever a pass changes, ids stay those of the snapshot that it
/// was given.
#[derive(Debug, Clone)]
pub(crate) struct Request<'s> {
    pub(crate) snapshot: Cow<'s, Snapshot>,
    /// Claims whose volumes several pods use, with the resource that stands for what their driver attaches: a node
    /// counts each once. Empty where nothing limits how many volumes are attached.
    pub(crate) shared_volumes: BTreeMap<NamespacedName, ResourceId>,
    purpose: Purpose,
    /// Ends a plan early that is only made for comparison.
    limit: Option<Limit>,
    left_out: BTreeMap<PodId, LeftOut>,
}

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// There is no answer without it.
    Needed,
    /// It is compared with others. If it is not finished, one of these is the answer.
    Compared,
}

/// What a plan may cost that is only made to be compared with another, and which pods it may leave without a place.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    /// Of machines and nodes.
    pub(crate) cost: i128,
    pub(crate) refused: BTreeSet<PodId>,
}

/// What a pass decides about a pod. A pod about which no pass decides is planned as it is.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// It is planned as if it had this shape.
    With(Arc<PodShape>),
    /// No place is looked for; rules between pods still know of it.
    LeftOut(LeftOut),
}

/// Why a pod is left out of a plan.
#[derive(Debug, Clone)]
pub(crate) enum LeftOut {
    /// It is refused.
    Refused(Refused),
    /// The shape of another pod stands for it too. The plan says nothing about it: the pass that made it so puts it
    /// where the other is.
    PartOfAnother,
}

/// Why a pod has no place, whatever becomes of the others.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) verdict: Verdict,
    pub(crate) reasons: Arc<[Reason]>,
}

impl<'s> Request<'s> {
    /// Every pod as it is.
    pub(crate) fn of(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot: Cow::Borrowed(snapshot),
            shared_volumes: BTreeMap::new(),
            purpose: Purpose::Needed,
            limit: None,
            left_out: BTreeMap::new(),
        }
    }

    /// With another snapshot in which all pods of this one have the same ids.
    pub(crate) fn with_snapshot(&self, snapshot: Snapshot) -> Request<'static> {
        Request {
            snapshot: Cow::Owned(snapshot),
            shared_volumes: self.shared_volumes.clone(),
            purpose: self.purpose,
            limit: self.limit.clone(),
            left_out: self.left_out.clone(),
        }
    }

    /// With what a pass decides about some pods.
    pub(crate) fn with(&self, fates: impl IntoIterator<Item = (PodId, Fate)>) -> Request<'static> {
        let mut request = self.with_snapshot(Snapshot::clone(&self.snapshot));
        let snapshot = request.snapshot.to_mut();
        let nothing: Arc<PodShape> = Arc::default();
        for (pod, fate) in fates {
            match fate {
                Fate::With(shape) => set_shape(snapshot, pod, shape),
                Fate::LeftOut(left_out) => {
                    if matches!(left_out, LeftOut::PartOfAnother) {
                        set_shape(snapshot, pod, Arc::clone(&nothing));
                    }
                    request.left_out.insert(pod, left_out);
                }
            }
        }
        request
    }

    /// Only made to be compared with other plans.
    pub(crate) fn compared(self) -> Self {
        Self { purpose: Purpose::Compared, ..self }
    }

    /// Held to a limit, and so only made to be compared with other plans.
    pub(crate) fn within(self, limit: Limit) -> Self {
        Self { limit: Some(limit), ..self.compared() }
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(crate) fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// Whether no place is looked for because a pass says so.
    pub(crate) fn is_left_out(&self, pod: PodId) -> bool {
        self.left_out.contains_key(&pod)
    }

    /// The refusal of a pod that a pass left out, unless another stands for it.
    pub(crate) fn refusal(&self, pod: PodId) -> Option<Refusal> {
        match self.left_out.get(&pod)? {
            LeftOut::Refused(Refused { verdict, reasons }) => {
                Some(Refusal { pod, verdict: *verdict, reasons: Arc::clone(reasons) })
            }
            LeftOut::PartOfAnother => None,
        }
    }
}

/// One change of shape for several pods.
pub(crate) fn reshaped(
    snapshot: &Snapshot,
    pods: &[PodId],
    change: impl Fn(&mut PodShape),
) -> impl Iterator<Item = (PodId, Fate)> {
    // Most pods share their shapes, so few are made.
    let mut changed: FastMap<*const PodShape, Arc<PodShape>> = FastMap::default();
    pods.iter().map(move |&pod| {
        let shape = &snapshot.pods[pod].pod.shape;
        let shape = changed.entry(Arc::as_ptr(shape)).or_insert_with(|| {
            let mut shape = PodShape::clone(shape);
            change(&mut shape);
            Arc::new(shape)
        });
        (pod, Fate::With(Arc::clone(shape)))
    })
}

/// Several pods, each held to a value of a label.
pub(crate) fn held_to(
    snapshot: &Snapshot,
    pods: &[PodId],
    key: KeyId,
    value: ValueId,
) -> impl Iterator<Item = (PodId, Fate)> {
    reshaped(snapshot, pods, move |shape| hold_to(shape, key, value, &snapshot.interner))
}

/// Has a shape ask for a value of a label.
pub(crate) fn hold_to(shape: &mut PodShape, key: KeyId, value: ValueId, names: &Interner) {
    shape.node_selector.insert_intersect(Requirement::new(key, ValueSet::one(value)), names);
}

fn set_shape(snapshot: &mut Snapshot, pod: PodId, shape: Arc<PodShape>) {
    let pod = &mut snapshot.pods[pod].pod;
    *pod = Arc::new(Pod { shape, ..(**pod).clone() });
}
