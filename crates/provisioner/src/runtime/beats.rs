//! Signs of life of the controller's loops, and of its watches.
//!
//! A loop has a [`Beat`] with a bound: how long it may take from one sign of life to the next while it has something to
//! do. It says [`Beat::busy`] whenever it begins or gets on, [`Beat::due_in`] when it waits for a time, and
//! [`Beat::idle`] when it waits for something to happen. A loop that is silent for longer than its bound hangs,
//! whatever the reason; `/healthz` fails with its name then, and Kubernetes starts the process anew. An API server that
//! does not answer makes no loop hang, since each call has a deadline: nothing is won by a new process there.
//!
//! A watch is a loop too; and it has a [`Line`] to the API server, which is broken while nothing is heard on it. That
//! is nothing a new process would mend. `/readyz` fails then, with the name of the watch.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// All loops and watches of the process.
#[derive(Debug, Default)]
pub struct Beats {
    loops: Mutex<Vec<Weak<Loop>>>,
    lines: Mutex<Vec<Weak<Watch>>>,
}

#[derive(Debug)]
struct Loop {
    name: Box<str>,
    bound: Duration,
    /// When the next sign of life must have come.
    until: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Watch {
    name: Box<str>,
    heard: Mutex<Instant>,
}

/// Something that was silent for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silent {
    /// The loop or watch.
    pub name: Box<str>,
    /// Since when: for a loop beyond its bound.
    pub silent_for: Duration,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} s", self.name, self.silent_for.as_secs())
    }
}

impl Beats {
    /// A loop that may take `bound` between two signs of life. It is forgotten with its beat.
    pub fn beat(&self, name: impl Into<Box<str>>, bound: Duration) -> Beat {
        let beat = Arc::new(Loop { name: name.into(), bound, until: Mutex::new(None) });
        add(&self.loops, &beat);
        Beat(beat)
    }

    /// A watch that begins now.
    pub fn line(&self, name: impl Into<Box<str>>) -> Line {
        let line = Arc::new(Watch { name: name.into(), heard: Mutex::new(Instant::now()) });
        add(&self.lines, &line);
        Line(line)
    }

    /// The loops that hang.
    pub fn hanging(&self) -> Vec<Silent> {
        let now = Instant::now();
        let hangs = |it: Arc<Loop>| {
            let late = now.checked_duration_since((*it.until.lock())?)?;
            (!late.is_zero()).then(|| Silent { name: it.name.clone(), silent_for: it.bound + late })
        };
        self.loops.lock().iter().filter_map(Weak::upgrade).filter_map(hangs).collect()
    }

    /// The names of all loops.
    pub fn loops(&self) -> Vec<Box<str>> {
        self.loops.lock().iter().filter_map(Weak::upgrade).map(|it| it.name.clone()).collect()
    }

    /// All watches, and how long nothing was heard on each.
    pub fn watches(&self) -> Vec<Silent> {
        let silent = |it: Arc<Watch>| Silent { name: it.name.clone(), silent_for: it.heard.lock().elapsed() };
        self.lines.lock().iter().filter_map(Weak::upgrade).map(silent).collect()
    }
}

fn add<T>(all: &Mutex<Vec<Weak<T>>>, one: &Arc<T>) {
    let mut all = all.lock();
    all.retain(|it| it.strong_count() > 0);
    all.push(Arc::downgrade(one));
}

/// A loop's own handle.
#[derive(Debug, Clone)]
pub struct Beat(Arc<Loop>);

impl Beat {
    /// A handle that is not checked.
    pub fn unobserved() -> Self {
        Self(Arc::new(Loop { name: "".into(), bound: Duration::MAX, until: Mutex::new(None) }))
    }

    /// It has something to do, or got on with it.
    pub fn busy(&self) {
        self.due_in(Duration::ZERO);
    }

    /// It waits until then.
    pub fn due_in(&self, wait: Duration) {
        *self.0.until.lock() = Instant::now().checked_add(wait).and_then(|it| it.checked_add(self.0.bound));
    }

    /// It waits until then; for ever if there is no time.
    pub fn due_at(&self, at: Option<Instant>) {
        *self.0.until.lock() = at.and_then(|at| at.checked_add(self.0.bound));
    }

    /// It waits for something to happen.
    pub fn idle(&self) {
        *self.0.until.lock() = None;
    }
}

/// A watch's own handle.
#[derive(Debug)]
pub struct Line(Arc<Watch>);

impl Line {
    /// The API server said something.
    pub fn heard(&self) {
        *self.0.heard.lock() = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hanging(beats: &Beats) -> Vec<String> {
        beats.hanging().iter().map(ToString::to_string).collect()
    }

    async fn after(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_hangs_that_is_busy_and_silent_beyond_its_bound() {
        let beats = Beats::default();
        let (planner, lease) =
            (beats.beat("planner", Duration::from_secs(60)), beats.beat("lease", Duration::from_secs(30)));
        after(1000).await;
        assert!(hanging(&beats).is_empty(), "who never began is idle");
        planner.busy();
        lease.busy();
        after(30).await;
        assert!(hanging(&beats).is_empty());
        after(1).await;
        assert_eq!(hanging(&beats), ["lease for 31 s"]);
        lease.busy();
        after(30).await;
        assert_eq!(hanging(&beats), ["planner for 61 s"]);
        planner.idle();
        lease.idle();
        after(1000).await;
        assert!(hanging(&beats).is_empty(), "an idle loop has nothing to tell");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_for_a_time_is_due_then_and_has_its_bound_from_there() {
        let beats = Beats::default();
        let beat = beats.beat("strays", Duration::from_secs(60));
        beat.due_in(Duration::from_secs(120));
        after(180).await;
        assert!(hanging(&beats).is_empty());
        after(5).await;
        assert_eq!(hanging(&beats), ["strays for 65 s"]);
        beat.due_at(None);
        assert!(hanging(&beats).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_is_forgotten() {
        let beats = Beats::default();
        let beat = beats.beat("planner", Duration::from_secs(1));
        beat.busy();
        drop((beat, beats.line("v1/pods")));
        after(10).await;
        assert!(hanging(&beats).is_empty() && beats.watches().is_empty());
        let (_beat, _line) = (beats.beat("lease", Duration::ZERO), beats.line("v1/nodes"));
        assert_eq!((beats.loops.lock().len(), beats.lines.lock().len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_tells_since_when_nothing_was_heard() {
        let beats = Beats::default();
        let line = beats.line("v1/pods");
        after(40).await;
        assert_eq!(beats.watches()[0].to_string(), "v1/pods for 40 s");
        line.heard();
        after(7).await;
        assert_eq!(beats.watches()[0].to_string(), "v1/pods for 7 s");
    }
}
