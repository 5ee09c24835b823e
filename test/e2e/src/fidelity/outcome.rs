//! A plan, as the NodeClaims tell it, against where the pods are.
//!
//! What is read from the cluster ([`Reading`]) is judged apart from it, so that the rules can be tested without a
//! cluster:
//!
//! * a pod is bound exactly as planned if it is on the machine whose NodeClaim names it, whether that was launched for
//!   it or was there before; of machines that were there it may take another than planned, for which of them
//!   kube-scheduler likes best is not known and nothing is gained or lost: that is counted apart;
//! * a pod that the plan refused is not bound. One that waits for something else may come in once that has come, and
//!   one that the plan ran out of budget for was not judged; both are counted apart and named;
//! * at least [`LEAST_PLACED_PERCENT`] of the pods are planned, or were bound before there was a plan, and at least one
//!   machine is new: else nothing was tried.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::reading::{Kind, Machine, Pod, Reading};

/// So many pods have a place at least. Those that found one on machines that were there count too: where they are many,
/// the few that wait are mostly those that the scenario makes impossible.
const LEAST_PLACED_PERCENT: usize = 80;

/// How pods came to be bound.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Pods that waited when the plan was made.
    pub pods: usize,
    /// Pods on the machine that was planned for them.
    pub exact: usize,
    /// Those of them whose machine was there before.
    pub on_existing: usize,
    /// Pods on another, where one of their class was planned.
    pub exchanged: usize,
    /// Pods that were planned onto a machine that was there before, and are on another such one; in words.
    pub moved: Vec<String>,
    /// Pods that the plan refused, and that wait.
    pub refused: usize,
    /// Machines of the plan.
    pub machines: usize,
    /// Pods that the plan refused because they wait for something else, and that are bound, for it came; in words.
    pub waited: Vec<String>,
    /// Pods for which the plan ran out of budget, and that are bound; in words.
    pub undecided: Vec<String>,
    /// Pods that were bound to machines that were there before, before a plan came to them; in words.
    pub before_the_plan: Vec<String>,
    /// What is not as planned, in words.
    pub wrong: Vec<String>,
    /// Machines beside the first plan's, machines without pods, and machines without a plan.
    pub stray: Vec<String>,
}

impl Outcome {
    /// Adds another scenario's.
    pub fn add(&mut self, other: Self) {
        self.pods += other.pods;
        self.exact += other.exact;
        self.on_existing += other.on_existing;
        self.exchanged += other.exchanged;
        self.moved.extend(other.moved);
        self.refused += other.refused;
        self.machines += other.machines;
        self.waited.extend(other.waited);
        self.undecided.extend(other.undecided);
        self.before_the_plan.extend(other.before_the_plan);
        self.wrong.extend(other.wrong);
        self.stray.extend(other.stray);
    }

    /// Whether all went as planned.
    #[must_use]
    pub fn is_as_planned(&self) -> bool {
        self.wrong.is_empty() && self.stray.is_empty()
    }

    /// What went otherwise, a line each.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        self.wrong.iter().chain(&self.stray).map(String::as_str)
    }

    /// What is no fault and should be looked at, a line each.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        let remarks = self.moved.iter().chain(&self.waited).chain(&self.undecided).chain(&self.before_the_plan);
        remarks.map(String::as_str)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let planned = (self.pods - self.refused).max(1);
        let share = 100.0 * self.exact as f64 / planned as f64;
        write!(
            f,
            "{} pods on {} machines: {} bound exactly as planned ({share:.1} % of those that were not refused), {} of them on \
             machines that were there; {} exchanged with a pod of their class; {} on another machine that was there; \
             {} refused; {} bound once what they waited for had come, {} without a verdict of the plan, {} before it",
            self.pods,
            self.machines,
            self.exact,
            self.on_existing,
            self.exchanged,
            self.moved.len(),
            self.refused,
            self.waited.len(),
            self.undecided.len(),
            self.before_the_plan.len(),
        )
    }
}

impl Reading {
    /// How the pods that waited came to be bound.
    pub(super) fn judge(&self) -> Outcome {
        let mut outcome = Outcome { pods: self.waiting().count(), ..Outcome::default() };
        let mut planned_once = BTreeSet::new();
        for machine in self.machines.iter().filter(|machine| machine.is_new) {
            self.judge_launch(machine, &mut planned_once, &mut outcome);
        }
        let planned = self.planned();
        let moved = self.waiting().filter(|pod| self.was_moved(pod));
        outcome.moved.extend(moved.map(|pod| self.describe(pod)));
        let by_class = self.moved_by_class(&planned);
        let mut moved = Moved { missing: by_class.clone(), too_many: by_class };
        for machine in &self.machines {
            self.judge_pods(machine, &planned, &mut moved, &mut outcome);
        }
        for pod in self.waiting() {
            self.judge_refusal(pod, &planned, &mut outcome);
        }
        let count = self.waiting().filter(|pod| planned.contains(&*pod.uid)).count();
        let bound_before = self.pods.len() - outcome.pods;
        if (count + bound_before) * 100 < self.pods.len() * LEAST_PLACED_PERCENT || outcome.machines == 0 {
            let without = self.waiting().filter(|pod| !planned.contains(&*pod.uid)).map(|pod| self.describe(pod));
            let without = without.collect::<Vec<_>>().join("; ");
            outcome.wrong.push(format!(
                "{count} of {} pods were planned, on {} new machines, and {bound_before} bound before: too few to tell \
                 anything; without a place: {without}",
                outcome.pods, outcome.machines
            ));
        }
        outcome
    }

    fn waiting(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.has_waited)
    }

    /// Uids of the pods that some machine was planned for.
    fn planned(&self) -> BTreeSet<&str> {
        self.machines.iter().flat_map(|machine| machine.planned.iter().flatten()).map(String::as_str).collect()
    }

    /// Whether the pod is on a machine that was there before, and was planned onto another such one.
    fn was_moved(&self, pod: &Pod) -> bool {
        let there_before = || self.machines.iter().filter(|machine| !machine.is_new);
        let is_on = |machine: &Machine| pod.node.is_some() && machine.node == pod.node;
        there_before().any(|machine| machine.is_planned(pod) && !is_on(machine))
            && there_before().any(|machine| is_on(machine) && !machine.is_planned(pod))
    }

    /// Whether the plan that the machine was launched for is the first one of its pods.
    fn judge_launch<'m>(&self, machine: &'m Machine, once: &mut BTreeSet<&'m str>, outcome: &mut Outcome) {
        outcome.machines += 1;
        let name = &machine.name;
        let Some(planned) = &machine.planned else {
            outcome.stray.push(format!("{name} does not say which pods it was launched for"));
            return;
        };
        let twice: Vec<&Pod> = planned.iter().filter(|uid| !once.insert(uid)).filter_map(|uid| self.pod(uid)).collect();
        let names = || twice.iter().map(|pod| self.describe(pod)).collect::<Vec<_>>().join("; ");
        if planned.iter().all(|uid| twice.iter().any(|pod| pod.uid == *uid)) {
            outcome.stray.push(format!("{name} was launched for pods that had been planned before: {}", names()));
        } else if !twice.is_empty() {
            outcome.wrong.push(format!("{name}: some of its pods were planned for another machine too: {}", names()));
        }
        if self.pods_on(machine).next().is_none() {
            let planned = planned.iter().filter_map(|uid| self.pod(uid)).map(|pod| self.describe(pod));
            let planned: Vec<String> = planned.collect();
            outcome.stray.push(format!("{name} is empty; it was launched for {}", planned.join("; ")));
        }
    }

    /// The pods that were planned for the machine, and those that are on it; without those that were moved.
    fn wanted_and_found<'s>(
        &'s self,
        machine: &'s Machine,
        all_planned: &BTreeSet<&str>,
    ) -> (Vec<&'s Pod>, Vec<&'s Pod>) {
        let wanted = self.waiting().filter(|pod| machine.is_planned(pod)).filter(|pod| !self.was_moved(pod));
        let on_it = self.pods_on(machine).filter(|pod| pod.has_waited);
        let counts = |pod: &&Pod| all_planned.contains(&*pod.uid) && !self.was_moved(pod);
        (wanted.collect(), on_it.filter(counts).collect())
    }

    /// Of each class, how many pods are on a machine that was there before in place of another such one, where their
    /// places were exchanged with pods of the class: nobody was moved, and the machines have others than planned.
    fn moved_by_class<'s>(&'s self, all_planned: &BTreeSet<&str>) -> BTreeMap<&'s str, usize> {
        let mut by_class_of_all: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for machine in self.machines.iter().filter(|machine| !machine.is_new) {
            let (wanted, found) = self.wanted_and_found(machine, all_planned);
            let (wanted, found) = (by_class(&wanted), by_class(&found));
            for class in wanted.keys().chain(found.keys().filter(|class| !wanted.contains_key(*class))) {
                let (missing, too_many) = by_class_of_all.entry(class).or_default();
                let count = |counts: &BTreeMap<&str, usize>| counts.get(class).copied().unwrap_or(0);
                *missing += count(&wanted).saturating_sub(count(&found));
                *too_many += count(&found).saturating_sub(count(&wanted));
            }
        }
        let moved = by_class_of_all.into_iter().map(|(class, (missing, too_many))| (class, missing.min(too_many)));
        moved.filter(|(_, moved)| *moved > 0).collect()
    }

    /// Whether the machine has the pods that were planned for it, or others of their classes.
    fn judge_pods<'s>(
        &'s self,
        machine: &'s Machine,
        all_planned: &BTreeSet<&str>,
        moved: &mut Moved<'s>,
        outcome: &mut Outcome,
    ) {
        let (wanted, found) = self.wanted_and_found(machine, all_planned);
        let exact = found.iter().copied().filter(|pod| machine.is_planned(pod)).count();
        outcome.exact += exact;
        outcome.on_existing += if machine.is_new { 0 } else { exact };
        let (mut wanted_by_class, mut found_by_class) = (by_class(&wanted), by_class(&found));
        let in_common =
            wanted_by_class.iter().map(|(class, count)| found_by_class.get(class).copied().unwrap_or(0).min(*count));
        outcome.exchanged += in_common.sum::<usize>().saturating_sub(exact);
        if !machine.is_new {
            let before = wanted_by_class.clone();
            forgive(&mut wanted_by_class, &found_by_class, &mut moved.missing);
            let too_many = forgive(&mut found_by_class, &before, &mut moved.too_many);
            outcome.moved.extend(too_many.into_iter().map(|(class, count)| {
                let name = &machine.name;
                format!("{count} of class {class} on {name}, which was there before, in place of another such machine")
            }));
        }
        if wanted_by_class == found_by_class {
            return;
        }
        let not_as_planned = wanted.iter().filter(|pod| pod.node.as_ref() != machine.node.as_ref());
        let foreign = found.iter().filter(|pod| !machine.is_planned(pod));
        let names: Vec<String> = not_as_planned.chain(foreign).map(|pod| self.describe(pod)).collect();
        outcome.wrong.push(format!(
            "{} was planned for {wanted_by_class:?} (pods by class), and holds {found_by_class:?}: {}",
            machine.name,
            names.join("; ")
        ));
    }

    /// Whether a pod that was refused, or not planned, waits.
    fn judge_refusal(&self, pod: &Pod, planned: &BTreeSet<&str>, outcome: &mut Outcome) {
        let is_planned = planned.contains(&*pod.uid);
        match (&pod.refusal, &pod.node) {
            (Some(_), None) => outcome.refused += 1,
            // Whoever waits for a pod that is planned fails first.
            (None, None) => outcome.wrong.push(format!("{} is neither bound nor refused", self.describe(pod))),
            (Some(refusal), Some(_)) => {
                let bound_all_the_same = format!("{} was refused and is bound", self.describe(pod));
                match refusal.kind() {
                    Kind::Waits => outcome.waited.push(bound_all_the_same),
                    Kind::Undecided => outcome.undecided.push(bound_all_the_same),
                    Kind::Refused => outcome.wrong.push(bound_all_the_same),
                }
            }
            (None, Some(node)) if !is_planned => {
                let is_new = |machine: &&Machine| machine.node.as_ref() == Some(node) && machine.is_new;
                match self.machines.iter().find(is_new) {
                    Some(_) => outcome.wrong.push(format!("{} was neither planned nor refused", self.describe(pod))),
                    None => outcome.before_the_plan.push(format!("{} was not planned", self.describe(pod))),
                }
            }
            (None, Some(_)) => {}
        }
    }
}

/// What machines that were there before may still lack and have too many of, by class.
struct Moved<'p> {
    missing: BTreeMap<&'p str, usize>,
    too_many: BTreeMap<&'p str, usize>,
}

/// Takes from `counts` what is more than in `others`, as far as `left` goes; gives how much.
fn forgive<'p>(
    counts: &mut BTreeMap<&'p str, usize>,
    others: &BTreeMap<&'p str, usize>,
    left: &mut BTreeMap<&'p str, usize>,
) -> Vec<(&'p str, usize)> {
    let mut forgiven = Vec::new();
    counts.retain(|class, count| {
        let more = count.saturating_sub(others.get(class).copied().unwrap_or(0));
        let left = left.entry(class).or_default();
        let taken = more.min(*left);
        if taken > 0 {
            forgiven.push((*class, taken));
        }
        *left -= taken;
        *count -= taken;
        *count > 0
    });
    forgiven
}

fn by_class<'p>(pods: &[&'p Pod]) -> BTreeMap<&'p str, usize> {
    pods.iter().fold(BTreeMap::new(), |mut counts, pod| {
        *counts.entry(&*pod.class).or_default() += 1;
        counts
    })
}

#[cfg(test)]
mod tests;
