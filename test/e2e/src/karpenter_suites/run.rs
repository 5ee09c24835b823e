//! Plays specs on clusters side by side.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::future::join_all;

use super::expectations::Expectations;
use super::place::{Means, Place};
use super::spec::{Played, Spec, Verdict};
use super::suite::Specs;

/// How to play them.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many clusters at most.
    pub jobs: usize,
    /// The controller for measurements.
    pub release_binary: Option<PathBuf>,
    /// For what the specs write.
    pub folder: PathBuf,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Specs that have been run.
    pub done: usize,
    /// Those that have not.
    pub left: usize,
    /// How long the rest takes if its specs are like those before.
    pub time_left: Duration,
}

impl Progress {
    /// `taken` is what all specs that are done took, one after the other; `jobs` of the rest run at a time.
    fn new(done: usize, left: usize, taken: Duration, jobs: usize) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let each = taken.checked_div(number(done)).unwrap_or_default();
        let time_left = each.saturating_mul(number(left)).checked_div(number(jobs)).unwrap_or_default();
        Self { done, left, time_left }
    }
}

/// What was played, and with which releases.
#[derive(Debug)]
pub struct Run {
    /// The specs, as they ended.
    pub played: Vec<Played>,
    /// Of the API server, if there was one.
    pub kubernetes: Option<String>,
    /// Of the suites.
    pub karpenter: String,
}

/// Plays specs of some suites, one suite after the other, and tells of each as it ends.
///
/// # Errors
/// If Karpenter's module cannot be had. A cluster that does not come up is a failure of the spec that was to run on it.
pub async fn run(
    chosen: &[(Specs, Vec<Spec>)],
    expectations: &Expectations,
    options: &Options,
    told: &(dyn Fn(&Played, Progress) + Sync),
) -> Result<Run> {
    let means = Means::new(options.release_binary.clone())?;
    let total = chosen.iter().map(|(_, specs)| specs.len()).sum();
    let record = Record { played: Mutex::default(), kubernetes: OnceLock::new(), total, told };
    for (specs, wanted) in chosen {
        let jobs = options.jobs.min(specs.suite.clusters()).min(wanted.len());
        let queue = Queue::new(wanted, expectations);
        let worker = |number| {
            let worker = Worker { number, jobs, specs, expectations, options, means: &means, record: &record };
            worker.work(&queue)
        };
        join_all((0..jobs).map(worker)).await;
    }
    let played = record.played.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Run { played, kubernetes: record.kubernetes.into_inner(), karpenter: means.version() })
}

/// What has been played.
struct Record<'a> {
    played: Mutex<Vec<Played>>,
    kubernetes: OnceLock<String>,
    total: usize,
    told: &'a (dyn Fn(&Played, Progress) + Sync),
}

impl Record<'_> {
    fn add(&self, played: Played, jobs: usize) {
        let mut all = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(played);
        let taken = all.iter().map(|played| played.time).sum();
        let progress = Progress::new(all.len(), self.total.saturating_sub(all.len()), taken, jobs);
        if let Some(last) = all.last() {
            (self.told)(last, progress);
        }
    }
}

/// What is still to be played.
struct Queue {
    specs: Mutex<VecDeque<Spec>>,
    /// Held while an exclusive one is played.
    exclusive: tokio::sync::Mutex<()>,
}

impl Queue {
    /// Those first that may take longest, so that none is left over when all others are done.
    fn new(specs: &[Spec], expectations: &Expectations) -> Self {
        let mut specs = specs.to_vec();
        specs.sort_by_key(|spec| std::cmp::Reverse(expectations.limit(spec)));
        Self { specs: Mutex::new(specs.into()), exclusive: tokio::sync::Mutex::default() }
    }

    fn next(&self) -> Option<Spec> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Plays specs on a cluster of its own, and on another one when that can be used no more.
struct Worker<'a> {
    number: usize,
    jobs: usize,
    specs: &'a Specs,
    expectations: &'a Expectations,
    options: &'a Options,
    means: &'a Means,
    record: &'a Record<'a>,
}

impl Worker<'_> {
    async fn work(self, queue: &Queue) {
        let mut place = None;
        while let Some(spec) = queue.next() {
            let _alone = match self.expectations.is_exclusive(&spec) {
                true => Some(queue.exclusive.lock().await),
                false => None,
            };
            let ready = match place.take() {
                Some(place) => Ok(place),
                None => Place::new(self.specs.suite, self.number, self.means).await,
            };
            let played = match ready {
                Ok(ready) => {
                    self.record.kubernetes.get_or_init(|| ready.version().to_owned());
                    let limit = self.expectations.limit(&spec);
                    let (played, again) = ready.play(self.specs, &spec, limit, &self.options.folder).await;
                    place = again;
                    played
                }
                Err(error) => Played {
                    spec,
                    verdict: Verdict::Failed(format!("no cluster for it: {error:#}")),
                    time: Duration::ZERO,
                    remarks: Vec::new(),
                    log: None,
                    controller_log: None,
                },
            };
            self.record.add(played, self.jobs);
        }
        if let Some(place) = place {
            place.end().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::Suite;
    use super::*;

    #[test]
    fn time_left_is_what_the_rest_takes_if_it_is_like_what_is_done() {
        let progress = Progress::new(3, 6, Duration::from_secs(30), 2);
        assert_eq!(progress, Progress { done: 3, left: 6, time_left: Duration::from_secs(30) });
        assert_eq!(Progress::new(0, 6, Duration::ZERO, 2).time_left, Duration::ZERO);
    }

    #[test]
    fn those_that_may_take_longest_come_first_and_the_others_stay_in_their_order() -> Result<()> {
        let expectations = serde_saphyr::from_str("{regression: {limitsSeconds: {c: 900}}}")?;
        let spec = |name: &str| Spec { suite: Suite::Regression, group: String::new(), name: name.to_owned() };
        let queue = Queue::new(&["b", "a", "c"].map(spec), &expectations);
        let names: Vec<String> = std::iter::from_fn(|| queue.next()).map(|spec| spec.name).collect();
        assert_eq!(names, ["c", "b", "a"]);
        Ok(())
    }
}
