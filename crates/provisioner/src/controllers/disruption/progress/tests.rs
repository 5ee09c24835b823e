//! What comes next, by tables; and what holds whatever happens, by random histories.

mod histories;

use super::*;

const NOW: i64 = 1_000;
const LONGEST: DurationMs = DurationMs::from_seconds(3_600);

fn going(name: &str) -> Going {
    Going {
        name: name.into(),
        has_note: true,
        is_deleting: false,
        is_marked: true,
        is_tainted: true,
        pods: 0,
        held_by: None,
    }
}

fn replacement(name: &str, readiness: Readiness) -> Replacement {
    Replacement { name: name.into(), is_deleting: false, readiness, is_used: false }
}

/// Two NodeClaims that go for two that are ready.
fn shown() -> Shown {
    let note = Note {
        id: "1".to_owned(),
        reason: Reason::Drifted,
        going: ["a", "b"].map(NodeClaimName::from).into(),
        replacements: 2,
        deadline: Timestamp::from_seconds(NOW + 600),
        drain_bounds: Default::default(),
    };
    let replacements = vec![replacement("x", Readiness::Ready), replacement("y", Readiness::Ready)];
    Shown { note, going: vec![going("a"), going("b")], replacements, lost_pool: None }
}

fn after(change: impl FnOnce(&mut Shown)) -> Step {
    let mut shown = shown();
    change(&mut shown);
    next(&shown, LONGEST, Timestamp::from_seconds(NOW))
}

#[test]
fn what_begins_together_ends_together_if_that_is_soon() {
    let command = |id: &str, pods: usize| {
        let mut shown = shown();
        shown.note.id = id.to_owned();
        shown.going[0].pods = pods;
        shown
    };
    let (ready, empty, comes) = (command("ready", 3), command("empty", 0), command("comes", 3));
    let steps = || vec![(&ready, Step::Finish), (&empty, Step::Finish), (&comes, Step::Wait)];
    let taken = |steps: Vec<(&Shown, Step)>, young: &[&str]| {
        let steps = together(steps, |shown| young.contains(&shown.note.id.as_str()));
        steps.into_iter().map(|(shown, _)| shown.note.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        taken(steps(), &["ready", "empty", "comes"]),
        ["empty", "comes"],
        "its pods wait for the other's places"
    );
    assert_eq!(taken(steps(), &["ready", "empty"]), ["ready", "empty", "comes"], "the other takes long");
    assert_eq!(taken(steps(), &["comes"]), ["ready", "empty", "comes"], "it has waited long enough");
    let nobody_waits = vec![(&ready, Step::Finish), (&empty, Step::Finish), (&comes, Step::Finish)];
    assert_eq!(taken(nobody_waits, &["ready", "empty", "comes"]), ["ready", "empty", "comes"]);
}

#[test]
fn nodes_go_once_every_replacement_is_ready_and_not_before() {
    assert_eq!(after(|_| {}), Step::Finish);
    assert_eq!(after(|shown| shown.replacements[1].readiness = Readiness::Coming), Step::Wait);
    // Some are going already: a deletion was cut short.
    assert_eq!(after(|shown| shown.going[0].is_deleting = true), Step::Finish);
    assert_eq!(after(|shown| drop(shown.going.remove(0))), Step::Finish);
    // Nothing has to come first.
    let only_deletes = |shown: &mut Shown| {
        shown.note.replacements = 0;
        shown.replacements.clear();
    };
    assert_eq!(after(only_deletes), Step::Finish);
}

#[test]
fn once_all_are_going_the_replacements_are_let_go_and_then_it_is_over() {
    let all_going = |shown: &mut Shown| shown.going.iter_mut().for_each(|going| going.is_deleting = true);
    assert_eq!(after(all_going), Step::Release);
    assert_eq!(after(|shown| shown.going.clear()), Step::Release);
    // Whatever became of them: their pods need the room.
    let never_came = |shown: &mut Shown| {
        all_going(shown);
        shown.replacements[0].readiness = Readiness::Coming;
        shown.note.deadline = Timestamp::from_seconds(0);
    };
    assert_eq!(after(never_came), Step::Release);
    let released = |shown: &mut Shown| {
        all_going(shown);
        shown.replacements.clear();
    };
    assert_eq!(after(released), Step::Nothing);
}

#[test]
fn what_was_begun_and_not_completed_is_rolled_back() {
    type Change = fn(&mut Going);
    let cases: [Change; 3] = [|it| it.has_note = false, |it| it.is_marked = false, |it| it.is_tainted = false];
    for change in cases {
        assert_eq!(after(|shown| change(&mut shown.going[1])), Step::RollBack(Why::CutShort("b".into())));
    }
    let lost = |there| Step::RollBack(Why::ReplacementLost { there, wanted: 2 });
    assert_eq!(after(|shown| drop(shown.replacements.pop())), lost(1));
    assert_eq!(after(|shown| shown.replacements[0].is_deleting = true), lost(1));
    assert_eq!(after(|shown| shown.replacements.clear()), lost(0));
}

#[test]
fn what_forbids_it_for_good_rolls_it_back_and_is_named() {
    assert_eq!(
        after(|shown| shown.going[1].held_by = Some(NamespacedName::new("shop", "db"))),
        Step::RollBack(Why::PodMayNotLeave(NamespacedName::new("shop", "db")))
    );
    assert_eq!(
        after(|shown| shown.lost_pool = Some("general".into())),
        Step::RollBack(Why::NodePoolGone("general".into()))
    );
    assert_eq!(
        after(|shown| shown.replacements[0].readiness = Readiness::WithoutDevices),
        Step::RollBack(Why::WithoutDevices("x".into()))
    );
    // Pods of a node that is not empty have their places; one on a node that is has none.
    assert_eq!(after(|shown| shown.going[0].pods = 3), Step::Finish);
    let arrived = |shown: &mut Shown| {
        shown.note.reason = Reason::Empty;
        shown.going[0].pods = 1;
    };
    assert_eq!(after(arrived), Step::RollBack(Why::PodArrived("a".into())));
}

#[test]
fn replacements_that_are_late_are_not_waited_for_and_those_ready_at_the_last_moment_are_taken() {
    let late = |shown: &mut Shown| shown.note.deadline = Timestamp::from_seconds(NOW);
    assert_eq!(after(late), Step::Finish);
    let coming = |shown: &mut Shown| {
        late(shown);
        shown.replacements[0].readiness = Readiness::Coming;
    };
    assert_eq!(after(coming), Step::RollBack(Why::TimedOut));
    // A clock that was years ahead wrote it.
    let far_ahead = |shown: &mut Shown| {
        coming(shown);
        shown.note.deadline = Timestamp::from_seconds(NOW + 3_601);
    };
    assert_eq!(after(far_ahead), Step::RollBack(Why::TimedOut));
}
