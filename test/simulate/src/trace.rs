//! What happens to a cluster: workloads that grow and shrink, prices that move, offerings that run out.

use std::fmt;

use model::{DurationMs, Timestamp};
use seeded_random::Random;

/// A Deployment, or a Job whose pods are replaced when they are evicted.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What a pod requests.
    pub milli_cpu: u64,
    /// What a pod requests, in MiB.
    pub memory_mib: u64,
    /// The only zone that its pods run in, by its number.
    pub zone: Option<usize>,
}

/// Something that happens.
#[derive(Debug, Clone)]
pub enum Change {
    /// A workload has so many replicas from now on.
    Scale {
        /// By its number.
        workload: usize,
        /// How many pods.
        replicas: usize,
    },
    /// Each offering costs something else, 2 % more or less than its list price at most.
    Prices {
        /// Where the new prices come from.
        seed: u64,
    },
    /// An offering runs out; nobody knows before a launch fails.
    StockOut {
        /// A random number; its remainder by the number of offerings is the offering.
        offering: u64,
        /// For how long.
        lasts: DurationMs,
    },
}

/// What a cluster goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Replicas wander about their mean.
    Steady,
    /// Replicas follow the time of day.
    Diurnal,
    /// Jobs of many pods come, and end pod by pod.
    Bursts,
    /// Workloads go to zero and come back.
    ScaleToZero,
    /// As `Steady`, and prices move.
    Prices,
    /// As `Diurnal`, and offerings run out.
    StockOuts,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Steady, Self::Diurnal, Self::Bursts, Self::ScaleToZero, Self::Prices, Self::StockOuts];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Diurnal => "diurnal",
            Self::Bursts => "bursts",
            Self::ScaleToZero => "scale-to-zero",
            Self::Prices => "prices",
            Self::StockOuts => "stock-outs",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How large and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// How many workloads.
    pub workloads: usize,
    /// How many pods each has in the mean.
    pub replicas: usize,
    /// How long things change. After that nothing does for [`QUIET_END`], in which all must come to rest.
    pub lasts: DurationMs,
}

/// At the end of a trace nothing happens for so long.
pub const QUIET_END: DurationMs = DurationMs(2 * HOUR.0);

/// Everything that happens, in order.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The workloads, told by their numbers.
    pub workloads: Vec<Workload>,
    /// When and what, the first at 0.
    pub changes: Vec<(Timestamp, Change)>,
    /// When it is over.
    pub end: Timestamp,
}

const MINUTE: DurationMs = DurationMs(60_000);
const HOUR: DurationMs = DurationMs(60 * MINUTE.0);
const DAY: i64 = 24 * HOUR.0;

impl Trace {
    /// That of a seed.
    pub fn new(kind: Kind, size: Size, seed: u64) -> Self {
        let mut random = Random::of_case(seed, kind as u64);
        let workloads: Vec<Workload> = (0..size.workloads).map(|number| workload(number, &mut random)).collect();
        let mut maker = Maker { size, random, changes: Vec::new(), replicas: vec![0; workloads.len()] };
        match kind {
            Kind::Steady => maker.steady(),
            Kind::Diurnal => maker.diurnal(MINUTE.0 * 10),
            Kind::Bursts => maker.bursts(),
            Kind::ScaleToZero => maker.going_to_zero(),
            Kind::Prices => {
                maker.steady();
                maker.prices();
            }
            Kind::StockOuts => {
                maker.diurnal(MINUTE.0 * 15);
                maker.stock_outs();
            }
        }
        let mut changes = maker.changes;
        changes.sort_by_key(|(at, _)| *at);
        Self { workloads, changes, end: Timestamp(size.lasts.0 + QUIET_END.0) }
    }
}

fn workload(number: usize, random: &mut Random) -> Workload {
    // One GiB for a CPU to ten, as real requests are.
    let milli_cpu = *random.pick(&[100, 250, 250, 500, 500, 800, 1000, 1500, 2000]);
    let memory_mib = milli_cpu * *random.pick(&[1, 2, 2, 4, 4, 6, 10]);
    let zone = random.percent(20).then(|| random.below(3_usize));
    Workload { name: format!("app-{number:02}"), milli_cpu, memory_mib, zone }
}

struct Maker {
    size: Size,
    random: Random,
    changes: Vec<(Timestamp, Change)>,
    /// By workload, as last changed.
    replicas: Vec<usize>,
}

impl Maker {
    fn scale(&mut self, at: i64, workload: usize, replicas: usize) {
        if at < self.size.lasts.0
            && let Some(known) = self.replicas.get_mut(workload)
            && *known != replicas
        {
            *known = replicas;
            self.changes.push((Timestamp(at), Change::Scale { workload, replicas }));
        }
    }

    fn share(&self, percent: u64) -> usize {
        self.size.replicas * usize::try_from(percent).unwrap_or(100) / 100
    }

    fn share_within(&mut self, percent: std::ops::Range<u64>) -> usize {
        let percent = self.random.within(&percent);
        self.share(percent)
    }

    fn begin(&mut self, percent: u64) {
        let replicas = self.share(percent);
        (0..self.size.workloads).for_each(|workload| self.scale(0, workload, replicas));
    }

    /// Times between `every` half and one and a half of it.
    fn times(&mut self, every: i64) -> Vec<i64> {
        let mut times = Vec::new();
        let mut at = 0;
        loop {
            at += every / 2 + self.random.below(every.max(1));
            if at >= self.size.lasts.0 {
                return times;
            }
            times.push(at);
        }
    }

    fn steady(&mut self) {
        self.begin(100);
        for at in self.times(8 * MINUTE.0) {
            let workload = self.random.below(self.size.workloads);
            let replicas = self.share_within(70..131);
            self.scale(at, workload, replicas);
        }
    }

    /// From two fifths in the night to all by day, with some noise; one workload after the other.
    fn diurnal(&mut self, every: i64) {
        self.begin(40);
        for at in self.times(every) {
            let of_day = at % DAY;
            let half = DAY / 2;
            // Of a thousand, at noon; lines are as good as waves, and the same on every computer.
            let height = (half - (of_day - half).abs()) * 1000 / half;
            for workload in 0..self.size.workloads {
                if self.random.percent(40) {
                    let noise = self.random.below(15_u64);
                    let percent = 35 + u64::try_from(height).unwrap_or(0) * 60 / 1000 + noise;
                    let replicas = self.share(percent);
                    self.scale(at, workload, replicas);
                }
            }
        }
    }

    /// Half of the workloads serve, the others are jobs.
    fn bursts(&mut self) {
        let serving = self.size.workloads / 2;
        let replicas = self.share(80);
        (0..serving).for_each(|workload| self.scale(0, workload, replicas));
        for at in self.times(70 * MINUTE.0) {
            let workload = serving + self.random.below(self.size.workloads - serving);
            let replicas = self.share_within(100..300);
            self.scale(at, workload, replicas);
            // Until the next burst of it nobody else touches it.
            let steps = 4 + self.random.below(6_usize);
            for step in 1..=steps {
                let left = replicas * (steps - step) / steps;
                let later = at + MINUTE.0 * (15 + 6 * i64::try_from(step).unwrap_or(0));
                self.scale(later, workload, left);
            }
        }
    }

    fn going_to_zero(&mut self) {
        self.begin(100);
        for at in self.times(25 * MINUTE.0) {
            let workload = self.random.below(self.size.workloads);
            let is_there = self.replicas.get(workload).is_some_and(|replicas| *replicas > 0);
            let replicas = if is_there { 0 } else { self.share_within(60..141) };
            self.scale(at, workload, replicas);
        }
    }

    fn prices(&mut self) {
        for at in self.times(30 * MINUTE.0) {
            let seed = self.random.below(u64::MAX);
            self.changes.push((Timestamp(at), Change::Prices { seed }));
        }
    }

    fn stock_outs(&mut self) {
        for at in self.times(12 * MINUTE.0) {
            let lasts = MINUTE.0 * (20 + self.random.below(100_i64));
            let offering = self.random.below(u64::MAX);
            self.changes.push((Timestamp(at), Change::StockOut { offering, lasts: DurationMs(lasts) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { workloads: 6, replicas: 10, lasts: DurationMs(DAY) };

    #[test]
    fn a_seed_stands_for_one_trace_of_each_kind_in_order_and_with_a_quiet_end() {
        for kind in Kind::ALL {
            let [one, other] = [(); 2].map(|()| format!("{:?}", Trace::new(kind, SIZE, 7)));
            assert_eq!(one, other, "{kind}");
            assert_ne!(one, format!("{:?}", Trace::new(kind, SIZE, 8)), "{kind}");
            let trace = Trace::new(kind, SIZE, 7);
            assert!(trace.changes.is_sorted_by_key(|(at, _)| *at), "{kind}");
            let last = trace.changes.last().map(|(at, _)| at.0);
            assert!(last.is_some_and(|last| last > 0 && last + QUIET_END.0 <= trace.end.0), "{kind}: {last:?}");
        }
    }
}
