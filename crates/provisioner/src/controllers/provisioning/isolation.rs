//! A pod that makes the planner panic is set aside, and the others are planned.
//!
//! The planner is a pure function, so it can be asked again without some of the pods. When it panics, the class of pods
//! at fault is found by halves: of the classes in order, the least number is searched with which it panics; the last of
//! these is the culprit. It takes as many plans as the number of classes has binary digits. The culprit is set aside
//! and the search begins anew, until the planner gets through, at most [`MOST_AT_ONCE`] times a round.
//!
//! A class that is set aside is tried again when what else decides about a plan has changed (NodePools, overlays, node
//! classes, DaemonSets), else after a delay that doubles each time. A pod that is changed is of another class.

use std::collections::{BTreeMap, BTreeSet};

use model::{DurationMs, Timestamp};

use super::pod_class::PodClass;
use crate::runtime::panics::Panicked;
use crate::world::store::State;

/// Culprits that are looked for in one round.
const MOST_AT_ONCE: usize = 8;
/// Classes that are remembered.
const REMEMBERED: usize = 1_000;
/// How long the first culprit waits to be tried again.
const FIRST_DELAY: DurationMs = DurationMs::from_seconds(60);
const LONGEST_DELAY: DurationMs = DurationMs::from_seconds(3600);

/// What came of a plan and its repetitions.
#[derive(Debug)]
pub(super) struct Isolated<T> {
    /// What was made without the culprits, or the panic that could be laid on no class.
    pub(super) made: Result<T, Panicked>,
    /// The classes at fault, each with the panic that it led to.
    pub(super) culprits: Vec<(PodClass, Panicked)>,
}

/// Makes something for as many of the classes as can be without a panic; `attempt` makes it without some.
pub(super) fn isolate<T>(
    classes: &BTreeSet<PodClass>,
    mut attempt: impl FnMut(&BTreeSet<PodClass>) -> Result<T, Panicked>,
) -> Isolated<T> {
    let mut culprits: Vec<(PodClass, Panicked)> = Vec::new();
    let mut left_out = BTreeSet::new();
    loop {
        let panicked = match attempt(&left_out) {
            Ok(made) => return Isolated { made: Ok(made), culprits },
            Err(panicked) => panicked,
        };
        if culprits.len() == MOST_AT_ONCE {
            return Isolated { made: Err(panicked), culprits };
        }
        let suspects: Vec<PodClass> = classes.difference(&left_out).copied().collect();
        let with_first = |count: usize| left_out.iter().chain(suspects.iter().skip(count)).copied().collect();
        if let Err(panicked) = attempt(&with_first(0)) {
            return Isolated { made: Err(panicked), culprits };
        }
        // It panics with the first `many` and does not with the first `few`.
        let (mut few, mut many, mut panicked) = (0, suspects.len(), panicked);
        while many - few > 1 {
            let half = few + (many - few) / 2;
            match attempt(&with_first(half)) {
                Ok(_) => few = half,
                Err(with_half) => (many, panicked) = (half, with_half),
            }
        }
        let Some(&culprit) = many.checked_sub(1).and_then(|last| suspects.get(last)) else {
            return Isolated { made: Err(panicked), culprits };
        };
        left_out.insert(culprit);
        culprits.push((culprit, panicked));
    }
}

/// What is remembered of a culprit.
#[derive(Debug, Clone)]
struct Known {
    input: u64,
    times: u32,
    retry_at: Timestamp,
    message: String,
}

/// The classes that are set aside.
#[derive(Debug, Default)]
pub(super) struct SetAside(BTreeMap<PodClass, Known>);

impl SetAside {
    /// The classes that are not to be tried, with the time until then and what the planner says of them. `input` stands
    /// for what else decides about a plan.
    pub(super) fn now(&self, input: u64, now: Timestamp) -> BTreeMap<PodClass, (Timestamp, &str)> {
        let is_on = |known: &&Known| known.input == input && now < known.retry_at;
        let on = self.0.iter().filter(|(_, known)| is_on(known));
        on.map(|(class, known)| (*class, (known.retry_at, known.message.as_str()))).collect()
    }

    /// Sets a class aside.
    pub(super) fn insert(&mut self, class: PodClass, panicked: &Panicked, input: u64, now: Timestamp) {
        let times = self.0.get(&class).map_or(0, |known| known.times);
        let delay = DurationMs(FIRST_DELAY.0.saturating_mul(2_i64.saturating_pow(times))).0.min(LONGEST_DELAY.0);
        let retry_at = now.saturating_add(DurationMs(delay));
        let times = times.saturating_add(1);
        self.0.insert(class, Known { input, times, retry_at, message: panicked.to_string() });
        while self.0.len() > REMEMBERED {
            let first = self.0.iter().min_by_key(|(_, known)| known.retry_at).map(|(class, _)| *class);
            first.and_then(|class| self.0.remove(&class));
        }
    }

    /// Forgets classes that were planned without trouble, and those of which no pod waits any more.
    pub(super) fn retain(&mut self, left_out: &BTreeSet<PodClass>, waiting: &BTreeSet<PodClass>) {
        self.0.retain(|class, _| left_out.contains(class) && waiting.contains(class));
    }
}

/// A number that changes with what decides about plans besides pods and nodes.
pub(super) fn input(state: &State) -> u64 {
    let mut text = String::new();
    let mut add = |name: &dyn std::fmt::Display, uid: &str, generation: i64| {
        text.push_str(&format!("{name}/{uid}/{generation};"));
    };
    for (name, pool) in state.node_pools.iter() {
        add(name, pool.metadata.uid.as_deref().unwrap_or_default(), pool.metadata.generation.unwrap_or_default());
    }
    for (name, overlay) in state.node_overlays.iter() {
        add(name, overlay.metadata.uid.as_deref().unwrap_or_default(), overlay.metadata.generation.unwrap_or_default());
    }
    for (name, class) in state.node_classes.iter() {
        add(name, "", class.generation);
    }
    for (name, set) in state.daemon_sets.iter() {
        add(name, &set.uid, set.template_generation.unwrap_or_default());
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panicked() -> Panicked {
        Panicked { message: "no".to_owned(), place: "here".to_owned(), backtrace: String::new() }
    }

    fn numbered(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<PodClass> {
        numbers.into_iter().map(PodClass::numbered).collect()
    }

    /// What is made of a thousand classes if it panics with some, which are found, and after how many attempts.
    fn isolated(panics: impl Fn(&BTreeSet<PodClass>) -> bool) -> (Result<usize, ()>, Vec<PodClass>, usize) {
        let all = numbered(0..1000);
        let mut attempts = 0;
        let isolated = isolate(&all, |left_out| {
            attempts += 1;
            let asked: BTreeSet<_> = all.difference(left_out).copied().collect();
            if panics(&asked) { Err(panicked()) } else { Ok(asked.len()) }
        });
        let culprits = isolated.culprits.into_iter().map(|(class, _)| class).collect();
        (isolated.made.map_err(drop), culprits, attempts)
    }

    #[test]
    fn the_class_that_makes_it_panic_is_found_and_all_others_are_planned() {
        for culprit in [0, 1, 499, 998, 999] {
            let (made, culprits, attempts) = isolated(|asked| asked.contains(&PodClass::numbered(culprit)));
            assert_eq!((made, culprits), (Ok(999), vec![PodClass::numbered(culprit)]));
            assert!(attempts <= 13, "{attempts}");
        }
        assert_eq!(isolated(|_| false), (Ok(1000), vec![], 1));
    }

    #[test]
    fn several_culprits_are_found_one_after_the_other() {
        let (made, culprits, _) = isolated(|asked| !asked.is_disjoint(&numbered([7, 300, 301])));
        assert_eq!((made, culprits), (Ok(997), numbered([7, 300, 301]).into_iter().collect()));
    }

    #[test]
    fn of_classes_that_panic_only_together_one_is_set_aside() {
        let (made, culprits, _) = isolated(|asked| asked.is_superset(&numbered([7, 300])));
        assert_eq!((made, culprits), (Ok(999), vec![PodClass::numbered(300)]));
    }

    #[test]
    fn a_panic_that_no_pod_causes_is_laid_on_none_and_the_search_has_an_end() {
        assert_eq!(isolated(|_| true), (Err(()), vec![], 2));
        let (made, culprits, _) = isolated(|asked| !asked.is_empty());
        assert_eq!((made, culprits.len()), (Err(()), MOST_AT_ONCE));
    }

    #[test]
    fn a_culprit_is_tried_again_when_something_has_changed_or_ever_later() {
        let (class, at) = (PodClass::numbered(1), Timestamp::from_seconds);
        let mut aside = SetAside::default();
        aside.insert(class, &panicked(), 1, at(0));
        let is_on = |aside: &SetAside, input, second| aside.now(input, at(second)).contains_key(&class);
        assert!(is_on(&aside, 1, 59) && !is_on(&aside, 1, 60));
        assert!(!is_on(&aside, 2, 1), "a NodePool was changed");
        aside.insert(class, &panicked(), 1, at(60));
        assert!(is_on(&aside, 1, 179) && !is_on(&aside, 1, 180));
        for _ in 0..20 {
            aside.insert(class, &panicked(), 1, at(0));
        }
        assert!(is_on(&aside, 1, 3599) && !is_on(&aside, 1, 3600));
        aside.retain(&numbered([1]), &numbered([1]));
        assert!(!aside.0.is_empty());
        aside.retain(&numbered([]), &numbered([1]));
        assert!(aside.0.is_empty(), "it was planned without trouble");
    }
}
