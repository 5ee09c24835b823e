//! What comes next for a command, from what the API server shows of it.
//!
//! Nothing here remembers anything: the note on the NodeClaims says what was intended, their conditions, taints and
//! deletion how far it has come. So whoever leads goes on where the last one stopped, wherever that was.

use std::fmt;

use cluster::node_claim::command::Note;
use model::{DurationMs, NamespacedName, NodeClaimName, NodePoolName, Timestamp};
use scheduling::snapshot::fleet::Reason;

use crate::world::replacement::Readiness;

#[cfg(test)]
mod tests;

/// A command as the API server shows it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// What was intended.
    pub note: Note,
    /// The NodeClaims that go and are there, by name.
    pub going: Vec<Going>,
    /// The NodeClaims that take their place, by name.
    pub replacements: Vec<Replacement>,
    /// A NodePool of theirs that is gone or is being deleted.
    pub lost_pool: Option<NodePoolName>,
}

/// A NodeClaim that goes.
#[derive(Debug, Clone)]
pub(crate) struct Going {
    pub name: NodeClaimName,
    /// Whether it has the command's note.
    pub has_note: bool,
    pub is_deleting: bool,
    /// Whether its condition `DisruptionReason` is true.
    pub is_marked: bool,
    /// Whether its Node has the taint `karpenter.sh/disrupted`; one without Node needs none.
    pub is_tainted: bool,
    /// How many of its pods would have to be placed elsewhere.
    pub pods: usize,
    /// A pod that may not be evicted, where that holds the command.
    pub held_by: Option<NamespacedName>,
}

/// A NodeClaim that takes the place of others.
#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    pub name: NodeClaimName,
    pub is_deleting: bool,
    pub readiness: Readiness,
    /// Whether pods are there or are to come.
    pub is_used: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is over.
    Nothing,
    /// Not all replacements are ready.
    Wait,
    /// Those that go are deleted.
    Finish,
    /// Those that go are going; the replacements belong to no command any more.
    Release,
    /// Nothing goes, and what was written for that is taken away.
    RollBack(Why),
}

/// Why a command is rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// Some of what is written at its start is missing.
    CutShort(NodeClaimName),
    /// A replacement is gone, or was not created.
    ReplacementLost { there: usize, wanted: usize },
    /// A replacement came without its devices.
    WithoutDevices(NodeClaimName),
    /// A pod came to a node that was empty.
    PodArrived(NodeClaimName),
    /// A pod may not be evicted any more.
    PodMayNotLeave(NamespacedName),
    /// A NodePool is gone or is being deleted.
    NodePoolGone(NodePoolName),
    /// The replacements were not ready in time.
    TimedOut,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort(name) => write!(f, "what was begun with nodeclaim {name} was not completed"),
            Self::ReplacementLost { there, wanted } => write!(f, "{there} of {wanted} replacements are there"),
            Self::WithoutDevices(name) => write!(f, "replacement {name} has come without its devices"),
            Self::PodArrived(name) => write!(f, "a pod has come to nodeclaim {name}, which was empty"),
            Self::PodMayNotLeave(pod) => write!(f, "pod {pod} may not be evicted"),
            Self::NodePoolGone(name) => write!(f, "nodepool {name} is gone"),
            Self::TimedOut => f.write_str("its replacements were not ready in time"),
        }
    }
}

/// Decides. A deadline that lies further ahead than `longest` was written by a clock that went wrong.
pub(crate) fn next(shown: &Shown, longest: DurationMs, now: Timestamp) -> Step {
    let staying: Vec<&Going> = shown.going.iter().filter(|going| !going.is_deleting).collect();
    if staying.is_empty() {
        return if shown.replacements.is_empty() { Step::Nothing } else { Step::Release };
    }
    match obstacle(shown, &staying) {
        Some(why) => Step::RollBack(why),
        None if shown.replacements.iter().all(|it| it.readiness == Readiness::Ready) => Step::Finish,
        // Only now: what is ready at the last moment is ready.
        None if now >= shown.note.deadline || shown.note.deadline.since(now) > longest => Step::RollBack(Why::TimedOut),
        None => Step::Wait,
    }
}

/// Lets a command wait whose replacements are ready, while it `is_young` and those of another that is so are on their
/// way: pods that are evicted for one find room that is planned for pods of the other, whose replacements are open
/// until its own pods leave. So what begins together ends together, if that is soon.
///
/// Differs: `together`. Karpenter's commands end each by itself.
pub(crate) fn together(steps: Vec<(&Shown, Step)>, is_young: impl Fn(&Shown) -> bool) -> Vec<(&Shown, Step)> {
    let others_come = steps.iter().any(|(shown, step)| *step == Step::Wait && is_young(shown));
    let moves_pods = |shown: &Shown| shown.going.iter().any(|going| going.pods > 0);
    let waits =
        |(shown, step): &(&Shown, Step)| others_come && *step == Step::Finish && moves_pods(shown) && is_young(shown);
    steps.into_iter().filter(|it| !waits(it)).collect()
}

/// What keeps the command from going on for good.
fn obstacle(shown: &Shown, staying: &[&Going]) -> Option<Why> {
    let Shown { note, replacements, lost_pool, .. } = shown;
    if let Some(going) = staying.iter().find(|going| !(going.has_note && going.is_marked && going.is_tainted)) {
        return Some(Why::CutShort(going.name.clone()));
    }
    let there = replacements.iter().filter(|it| !it.is_deleting).count();
    if there < note.replacements || there < replacements.len() {
        return Some(Why::ReplacementLost { there, wanted: note.replacements });
    }
    if let Some(pool) = lost_pool {
        return Some(Why::NodePoolGone(pool.clone()));
    }
    if let Some(going) = staying.iter().find(|going| note.reason == Reason::Empty && going.pods > 0) {
        return Some(Why::PodArrived(going.name.clone()));
    }
    if let Some(pod) = staying.iter().find_map(|going| going.held_by.clone()) {
        return Some(Why::PodMayNotLeave(pod));
    }
    let without = replacements.iter().find(|it| it.readiness == Readiness::WithoutDevices);
    without.map(|it| Why::WithoutDevices(it.name.clone()))
}
