//! What a person should know that refuses nothing.

use std::collections::BTreeMap;

use crate::tuning::TOLD_NOTES;
use model::NamespacedName;

/// Something a person should know that refuses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A pod of the class.
    pub example: NamespacedName,
    /// How many pods of that class.
    pub pods: usize,
    /// What.
    pub kind: NoteKind,
}

/// Notes as a person is told them: one by one, or all of a kind at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldNote {
    /// The note, or the first one with the pods of all.
    pub note: Note,
    /// How many classes it speaks of.
    pub classes: usize,
}

impl ToldNote {
    /// Of these notes, in their order.
    pub fn of<'n>(notes: impl IntoIterator<Item = &'n Note>) -> Vec<Self> {
        let mut by_kind: BTreeMap<NoteKind, Vec<&Note>> = BTreeMap::new();
        let mut told: Vec<Self> = Vec::new();
        for note in notes {
            by_kind.entry(note.kind).or_default().push(note);
        }
        for notes in by_kind.values() {
            match notes.as_slice() {
                [first, rest @ ..] if rest.len() >= TOLD_NOTES => {
                    let pods = notes.iter().map(|note| note.pods).sum();
                    told.push(Self { note: Note { pods, ..Note::clone(first) }, classes: notes.len() });
                }
                few => told.extend(few.iter().map(|note| Self { note: Note::clone(note), classes: 1 })),
            }
        }
        told.sort_by(|a, b| a.note.order().cmp(&b.note.order()));
        told
    }

    /// What is not kept, and whose.
    pub fn message(&self) -> String {
        let Note { example, pods, kind } = &self.note;
        let construct = kind.construct();
        match (pods, self.classes) {
            (0 | 1, _) => format!("{construct} of pod {example} is not kept"),
            (pods, 0 | 1) => format!("{construct} of {pods} pods such as {example} is not kept"),
            (pods, classes) => {
                format!("{construct} of {pods} pods of {classes} shapes, such as {example}, is not kept")
            }
        }
    }
}

impl Note {
    /// By what the notes of a plan are in order.
    pub(crate) fn order(&self) -> (&NamespacedName, NoteKind) {
        (&self.example, self.kind)
    }
}

/// What a [`Note`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKind {
    /// Preferred node affinity is not kept by the plan.
    PreferredNodeAffinity,
    /// Preferred pod affinity or anti-affinity is not kept by the plan.
    PreferredPodAffinity,
    /// `ScheduleAnyway` topology spread is not kept by the plan.
    ScheduleAnywaySpread,
    /// A preferred spread that the pods do not ask for themselves is not kept.
    DefaultScheduleAnywaySpread,
    /// The pods are planned where a `PreferNoSchedule` taint is that they do not tolerate.
    PreferNoScheduleTaint,
}

impl NoteKind {
    /// The construct in Kubernetes' words.
    pub fn construct(self) -> &'static str {
        match self {
            NoteKind::PreferredNodeAffinity => "preferred node affinity",
            NoteKind::PreferredPodAffinity => "preferred pod affinity or anti-affinity",
            NoteKind::ScheduleAnywaySpread => "topology spread with whenUnsatisfiable ScheduleAnyway",
            NoteKind::DefaultScheduleAnywaySpread => {
                "the cluster's default topology spread with whenUnsatisfiable ScheduleAnyway"
            }
            NoteKind::PreferNoScheduleTaint => "avoidance of PreferNoSchedule taints",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_one_kind_are_told_as_one_if_there_are_many() {
        let note = |name: &str, pods, kind| Note { example: NamespacedName::new("d", name), pods, kind };
        let (spread, affinity) = (NoteKind::ScheduleAnywaySpread, NoteKind::PreferredNodeAffinity);
        let few = [note("a", 1, spread), note("b", 2, affinity), note("c", 2, spread)];
        let told: Vec<String> = ToldNote::of(&few).iter().map(ToldNote::message).collect();
        assert_eq!(
            told,
            [
                "topology spread with whenUnsatisfiable ScheduleAnyway of pod d/a is not kept",
                "preferred node affinity of 2 pods such as d/b is not kept",
                "topology spread with whenUnsatisfiable ScheduleAnyway of 2 pods such as d/c is not kept",
            ]
        );
        let more = few.into_iter().chain([note("d", 5, spread), note("e", 9, spread)]).collect::<Vec<_>>();
        let told: Vec<String> = ToldNote::of(&more).iter().map(ToldNote::message).collect();
        assert_eq!(
            told,
            [
                "topology spread with whenUnsatisfiable ScheduleAnyway of 17 pods of 4 shapes, such as d/a, is not kept",
                "preferred node affinity of 2 pods such as d/b is not kept",
            ]
        );
    }
}
