//! Commands that a plan has asked for and that have not begun.
//!
//! What is planned because machines could be used better is only done if a plan some time later asks for it still: pods
//! come and go, and who removes a machine at the first moment launches the next one a moment later. Meanwhile nothing
//! else is searched for that would save money, as long as some of what was proposed holds; other reasons do not wait.
//! But what was found while a workload was being scaled down is far from the best once its pods are gone, so where many
//! pods have come or gone it is searched anew.
//!
//! Differs: `disruption-pause`. What was rolled back is not begun again for a while, longer after each time: a machine
//! whose replacement does not come would have one launched all the time otherwise.

use std::collections::BTreeMap;

use model::{DurationMs, Timestamp, Uid};
use scheduling::snapshot::fleet::Reason;

/// How long a command is only proposed. Karpenter's `validationTTL`, which there is a sleep.
pub(crate) const PROPOSED_FOR: DurationMs = DurationMs::from_seconds(15);

/// How long what is due stands before others are looked for: what cannot begin does not keep everybody waiting.
const STANDS_FOR: DurationMs = DurationMs::from_seconds(30);

/// How long what was rolled back is not begun again; twice as long after the next time.
const PAUSE: DurationMs = DurationMs::from_seconds(60);
/// And no longer than that: it may keep others of its NodePool waiting, where budgets let few go.
const LONGEST_PAUSE: DurationMs = DurationMs::from_seconds(600);

/// By this part of all pods their number has changed so much that it is searched anew.
const MANY: usize = 50;

/// What makes two plans' commands the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub reason: Reason,
    /// The NodeClaims that go, in order.
    pub going: Vec<Uid>,
}

impl Key {
    /// How long a command for that reason is only proposed. As with Karpenter, what is not as it should be is not
    /// waited for.
    fn proposed_for(&self) -> DurationMs {
        match self.reason {
            Reason::Empty | Reason::Underutilized => PROPOSED_FOR,
            Reason::Drifted | Reason::Expired | Reason::Unhealthy => DurationMs(0),
        }
    }
}

/// Since when commands are proposed.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    since: BTreeMap<Key, Timestamp>,
    /// How many pods there were on nodes, when it was last searched for what saves money.
    searched_with: Option<usize>,
    /// NodeClaims whose commands were rolled back lately.
    paused: BTreeMap<Uid, Pause>,
}

/// That a command was rolled back.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Timestamp,
    /// How often in a row.
    times: u32,
}

/// What became of a plan's commands.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Update {
    /// The commands whose time has come, by their positions.
    pub due: Vec<usize>,
    /// When the next one's comes.
    pub next: Option<Timestamp>,
    /// Proposals that the plan does not ask for any more.
    pub dropped: Vec<Key>,
}

impl Proposals {
    /// Notes that it was searched for what saves money, among so many pods.
    pub(crate) fn searched(&mut self, pods: usize) {
        self.searched_with = Some(pods);
    }

    /// What was proposed lately to save money and may begin: the NodeClaims that would go, by command. Nothing where it
    /// was found among many more or fewer pods than there are now.
    pub(crate) fn to_save_money(&self, pods: usize, now: Timestamp) -> Vec<Vec<Uid>> {
        if self.searched_with.is_some_and(|then| then.abs_diff(pods).saturating_mul(MANY) > then) {
            return Vec::new();
        }
        let is_lately = |since: &Timestamp| {
            now.since(*since) <= DurationMs(PROPOSED_FOR.0 + STANDS_FOR.0) && since.since(now) <= PROPOSED_FOR
        };
        let may_begin = |(key, since): &(&Key, &Timestamp)| {
            key.reason == Reason::Underutilized && is_lately(since) && !self.is_paused(key, now)
        };
        self.since.iter().filter(may_begin).map(|(key, _)| key.going.clone()).collect()
    }

    /// Takes a plan's commands. What they do not have is not proposed any more. Machines of several proposals may be in
    /// one command by now, or the other way around.
    pub(crate) fn update(&mut self, commands: &[Key], now: Timestamp) -> Update {
        self.forget_old_pauses(now);
        let mut before = std::mem::take(&mut self.since);
        let going = |(key, since): (&Key, &Timestamp)| -> Vec<((Reason, Uid), Timestamp)> {
            key.going.iter().map(|uid| ((key.reason, uid.clone()), *since)).collect()
        };
        let known: BTreeMap<(Reason, Uid), Timestamp> = before.iter().flat_map(going).collect();
        let mut update = Update::default();
        for (position, key) in commands.iter().enumerate() {
            before.remove(key);
            let of_machine = |uid: &Uid| known.get(&(key.reason, uid.clone())).copied();
            let since =
                key.going.iter().map(of_machine).try_fold(Timestamp(i64::MIN), |last, since| Some(last.max(since?)));
            // A clock that was set back makes no proposal wait for what it was ahead.
            let since = since.filter(|_| !key.going.is_empty()).unwrap_or(now).min(now);
            let paused_until = key.going.iter().filter_map(|uid| self.paused.get(uid)).map(|pause| pause.until).max();
            let at = since.saturating_add(key.proposed_for()).max(paused_until.unwrap_or(since));
            if at <= now {
                update.due.push(position);
            } else {
                update.next = Some(update.next.map_or(at, |next| next.min(at)));
            }
            self.since.insert(key.clone(), since);
        }
        update.dropped = before.into_keys().collect();
        update
    }

    /// What goes before long, if nothing changes, since it is proposed and has to wait for its time: the NodeClaims, by
    /// command.
    pub(crate) fn about_to_go(&self, now: Timestamp) -> Vec<Vec<Uid>> {
        let waits = |key: &&Key| key.proposed_for() > DurationMs::ZERO && !self.is_paused(key, now);
        self.since.keys().filter(waits).map(|key| key.going.clone()).collect()
    }

    /// Whether a command for one of these was rolled back lately.
    fn is_paused(&self, key: &Key, now: Timestamp) -> bool {
        key.going.iter().any(|uid| self.paused.get(uid).is_some_and(|pause| pause.until > now))
    }

    /// Whether anything is proposed.
    pub(crate) fn are_any(&self) -> bool {
        !self.since.is_empty()
    }

    /// Notes that a command for these was rolled back.
    pub(crate) fn rolled_back(&mut self, going: impl IntoIterator<Item = Uid>, now: Timestamp) {
        self.forget_old_pauses(now);
        for uid in going {
            let pause = self.paused.entry(uid).or_insert(Pause { until: now, times: 0 });
            let span = PAUSE.0.saturating_mul(1 << pause.times.min(8)).min(LONGEST_PAUSE.0);
            *pause = Pause { until: now.saturating_add(DurationMs(span)), times: pause.times + 1 };
        }
    }

    /// After a while without trouble what was counts no more. A pause that would last longer than any does was begun by
    /// a clock that was ahead and has been set back.
    fn forget_old_pauses(&mut self, now: Timestamp) {
        let is_lately =
            |pause: &Pause| pause.until.saturating_add(LONGEST_PAUSE) > now && pause.until.since(now) <= LONGEST_PAUSE;
        self.paused.retain(|_, pause| is_lately(pause));
    }

    /// Forgets a command that has begun.
    pub(crate) fn begun(&mut self, key: &Key) {
        self.since.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(reason: Reason, claim: &str) -> Key {
        Key { reason, going: vec![claim.into()] }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000 + seconds)
    }

    #[test]
    fn a_command_is_due_when_plans_have_asked_for_it_for_fifteen_seconds() {
        let mut proposals = Proposals::default();
        let (a, b) = (key(Reason::Empty, "a"), key(Reason::Empty, "b"));
        let update = |due: &[usize], next: Option<i64>, dropped: &[&Key]| Update {
            due: due.to_vec(),
            next: next.map(at),
            dropped: dropped.iter().copied().cloned().collect(),
        };
        assert_eq!(proposals.update(std::slice::from_ref(&a), at(0)), update(&[], Some(15), &[]));
        assert_eq!(proposals.update(&[b.clone(), a.clone()], at(10)), update(&[], Some(15), &[]));
        assert_eq!(proposals.update(&[b.clone(), a.clone()], at(15)), update(&[1], Some(25), &[]));
        proposals.begun(&a);
        assert_eq!(proposals.update(&[], at(16)), update(&[], None, &[&b]));
        // Proposed anew, its time begins anew.
        assert_eq!(proposals.update(std::slice::from_ref(&b), at(26)), update(&[], Some(41), &[]));
    }

    #[test]
    fn what_has_drifted_is_due_at_once_and_a_clock_set_back_makes_nobody_wait_longer() {
        let mut proposals = Proposals::default();
        let drifted = key(Reason::Drifted, "a");
        assert_eq!(proposals.update(std::slice::from_ref(&drifted), at(0)).due, [0]);
        let empty = key(Reason::Empty, "a");
        proposals.update(std::slice::from_ref(&empty), at(100));
        assert_eq!(proposals.update(std::slice::from_ref(&empty), at(0)).next, Some(at(15)));
        assert_eq!(proposals.update(std::slice::from_ref(&empty), at(15)).due, [0]);
    }

    #[test]
    fn what_was_rolled_back_is_begun_again_later_and_later_and_holds_no_other_up() {
        let mut proposals = Proposals::default();
        let commands = [key(Reason::Drifted, "a"), key(Reason::Drifted, "b")];
        let mut due = |at_seconds: i64, rolled_back: bool| {
            if rolled_back {
                proposals.rolled_back(["a".into()], at(at_seconds));
            }
            let update = proposals.update(&commands, at(at_seconds));
            (update.due, update.next)
        };
        assert_eq!(due(0, false), (vec![0, 1], None));
        assert_eq!(due(100, true), (vec![1], Some(at(160))));
        assert_eq!(due(160, false), (vec![0, 1], None));
        assert_eq!(due(200, true), (vec![1], Some(at(320))));
        for _ in 0..8 {
            due(400, true);
        }
        assert_eq!(due(400, false), (vec![1], Some(at(1_000))));
        // Long ago.
        assert_eq!(due(1_600, true), (vec![1], Some(at(1_660))));
    }

    #[test]
    fn a_clock_that_jumps_makes_nobody_wait_longer_than_without() {
        const YEAR: i64 = 365 * 24 * 3600;
        // By how much the clock is set while a command is proposed, or paused: how long both then wait at most.
        for jump in [-YEAR, -3_600, -30, -1, 0, 1, 30, 3_600, YEAR] {
            let (empty, drifted) = (key(Reason::Empty, "a"), key(Reason::Drifted, "b"));
            let mut proposals = Proposals::default();
            proposals.update(std::slice::from_ref(&empty), at(0));
            proposals.rolled_back(["b".into()], at(0));
            let commands = [empty, drifted];
            let first = proposals.update(&commands, at(jump));
            let wait = first.next.map_or(DurationMs::ZERO, |next| next.since(at(jump)));
            assert!(wait <= PROPOSED_FOR.max(PAUSE), "set by {jump} s, the next is due in {wait}");
            // One look a second, as the controller does, by the clock as it now is.
            let due = |seconds: i64| proposals.update(&commands, at(jump + seconds)).due;
            let due: Vec<Vec<usize>> = (0..=600).map(due).collect();
            let since = |command: usize| due.iter().position(|due| due.contains(&command));
            assert!(since(0).is_some_and(|seconds| seconds <= 15), "set by {jump} s: {:?}", since(0));
            assert!(since(1).is_some_and(|seconds| seconds <= 600), "set by {jump} s: {:?}", since(1));
        }
    }

    #[test]
    fn machines_of_several_proposals_may_come_together_and_part() {
        let mut proposals = Proposals::default();
        let of = |going: &[&str]| Key { reason: Reason::Empty, going: going.iter().map(|uid| (*uid).into()).collect() };
        proposals.update(&[of(&["a", "b"]), of(&["c"])], at(0));
        assert_eq!(proposals.update(&[of(&["a"]), of(&["b", "c"])], at(5)).next, Some(at(15)));
        // One that was not proposed lets the others wait.
        let update = proposals.update(&[of(&["a"]), of(&["b", "c", "d"])], at(15));
        assert_eq!((update.due, update.next), (vec![0], Some(at(30))));
    }

    #[test]
    fn what_was_proposed_lately_to_save_money_is_looked_at_again_but_for_what_is_paused() {
        let mut proposals = Proposals::default();
        let [a, b] = ["a", "b"].map(|claim| key(Reason::Underutilized, claim));
        proposals.update(&[a, b, key(Reason::Empty, "c"), key(Reason::Drifted, "d")], at(0));
        let asked_for = |proposals: &Proposals, seconds: i64| -> Vec<String> {
            proposals.to_save_money(100, at(seconds)).concat().iter().map(|uid| uid.as_str().to_owned()).collect()
        };
        assert_eq!(asked_for(&proposals, 10), ["a", "b"]);
        proposals.rolled_back(["b".into()], at(10));
        assert_eq!(asked_for(&proposals, 20), ["a"]);
        // It could not begin for some reason, and others wait. So it is by a clock that was set back by an hour.
        assert_eq!(asked_for(&proposals, 46), [""; 0]);
        assert_eq!(asked_for(&proposals, -3_600), [""; 0]);
    }

    #[test]
    fn what_waits_for_its_time_is_about_to_go_but_for_what_is_paused() {
        let mut proposals = Proposals::default();
        let [a, b] = ["a", "b"].map(|claim| key(Reason::Underutilized, claim));
        proposals.update(&[a.clone(), b, key(Reason::Empty, "c"), key(Reason::Drifted, "d")], at(0));
        let about_to_go = |proposals: &Proposals| {
            let mut going = proposals.about_to_go(at(10)).concat();
            going.sort();
            going
        };
        assert_eq!(about_to_go(&proposals), ["a", "b", "c"].map(Uid::from));
        proposals.begun(&a);
        proposals.rolled_back(["b".into()], at(10));
        assert_eq!(about_to_go(&proposals), ["c"].map(Uid::from));
    }

    #[test]
    fn it_is_searched_anew_once_many_pods_have_come_or_gone() {
        let mut proposals = Proposals::default();
        proposals.update(&[key(Reason::Underutilized, "a")], at(0));
        let is_asked_for = |proposals: &Proposals, pods: usize| !proposals.to_save_money(pods, at(5)).is_empty();
        proposals.searched(100);
        let asked_for = [97, 98, 102, 103].map(|pods| is_asked_for(&proposals, pods));
        assert_eq!(asked_for, [false, true, true, false]);
        // The search finds it again among those that are left, and it has waited since it was first proposed.
        proposals.searched(30);
        assert_eq!(proposals.update(&[key(Reason::Underutilized, "a")], at(5)).next, Some(at(15)));
        assert!(is_asked_for(&proposals, 30) && !is_asked_for(&proposals, 100));
    }

    #[test]
    fn other_nodes_or_another_reason_make_another_command() {
        let mut proposals = Proposals::default();
        proposals.update(&[key(Reason::Empty, "a")], at(0));
        assert_eq!(proposals.update(&[key(Reason::Underutilized, "a")], at(15)).due, [0; 0]);
        assert_eq!(proposals.update(&[key(Reason::Underutilized, "b")], at(30)).due, [0; 0]);
    }
}
