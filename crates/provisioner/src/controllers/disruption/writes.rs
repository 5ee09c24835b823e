//! What is written in the life of a command, in which order.
//!
//! The order makes a crash between any two writes harmless: the note is there before anything else, so what follows it
//! is never a stranger's; it is on a replacement from its creation, so none is ever lost; and it goes last, so whoever
//! reads it takes the rest away.

use cluster::node_claim::command::Note;
use model::NodeClaimName;

use super::progress::{Going, Shown};

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    /// The note onto a NodeClaim that goes.
    Note(NodeClaimName),
    /// Its condition `DisruptionReason`.
    Mark(NodeClaimName),
    /// The taint `karpenter.sh/disrupted` onto its Node.
    Taint(NodeClaimName),
    /// The replacement of that number is created, with the note.
    Launch(usize),
    /// A NodeClaim that goes is deleted.
    Delete(NodeClaimName),
    /// The taint goes.
    Untaint(NodeClaimName),
    /// The condition goes.
    Unmark(NodeClaimName),
    /// The note goes.
    Forget(NodeClaimName),
    /// A replacement that nobody uses is deleted.
    Discard(NodeClaimName),
}

impl Write {
    /// The place before it where tests let the process die.
    pub(crate) fn failpoint(&self) -> &'static str {
        match self {
            Self::Note(_) => "disruption.before-note",
            Self::Mark(_) => "disruption.before-condition",
            Self::Taint(_) => "disruption.before-taint",
            Self::Launch(_) => "disruption.before-launch",
            Self::Delete(_) => "disruption.before-deletion",
            Self::Untaint(_) => "disruption.before-untaint",
            Self::Unmark(_) => "disruption.before-unmark",
            Self::Forget(_) => "disruption.before-forget",
            Self::Discard(_) => "disruption.before-discard",
        }
    }
}

/// The start, up to the launches: after these it is looked once more whether the NodeClaims may go.
pub(crate) fn begin(note: &Note) -> Vec<Write> {
    let each = |write: fn(NodeClaimName) -> Write| note.going.iter().cloned().map(write);
    each(Write::Note).chain(each(Write::Mark)).chain(each(Write::Taint)).collect()
}

/// The rest of the start.
pub(crate) fn launch(note: &Note) -> Vec<Write> {
    (0..note.replacements).map(Write::Launch).collect()
}

/// The end.
pub(crate) fn finish(shown: &Shown) -> Vec<Write> {
    let staying = shown.going.iter().filter(|going| !going.is_deleting);
    staying.map(|going| Write::Delete(going.name.clone())).chain(release(shown)).collect()
}

/// The replacements belong to no command any more.
pub(crate) fn release(shown: &Shown) -> Vec<Write> {
    shown.replacements.iter().map(|it| Write::Forget(it.name.clone())).collect()
}

/// The end of a command that cannot go on.
pub(crate) fn roll_back(shown: &Shown) -> Vec<Write> {
    // Another command may have begun with one that has no note of this one.
    let ours: Vec<&Going> = shown.going.iter().filter(|going| going.has_note && !going.is_deleting).collect();
    let each = |write: fn(NodeClaimName) -> Write| ours.iter().map(move |going| write(going.name.clone()));
    let replacements = shown.replacements.iter().filter(|it| !it.is_deleting).map(|it| {
        let write = if it.is_used { Write::Forget } else { Write::Discard };
        write(it.name.clone())
    });
    // Replacements first: with the condition gone, a static NodePool would have one machine too many.
    replacements.chain(each(Write::Untaint)).chain(each(Write::Unmark)).chain(each(Write::Forget)).collect()
}

/// What is taken away of a note that cannot be read.
pub(crate) fn clear(name: &NodeClaimName) -> Vec<Write> {
    vec![Write::Untaint(name.clone()), Write::Unmark(name.clone()), Write::Forget(name.clone())]
}
