//! Suites, their specs, and what becomes of these.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// One of Karpenter's test programs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, clap::ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// What the controller does, feature by feature.
    Regression,
    /// Devices and the driver that publishes them.
    Dra,
    /// Time, memory and utilization under load.
    Performance,
}

impl Suite {
    /// In the order in which they are run.
    pub const ALL: [Self; 3] = [Self::Regression, Self::Dra, Self::Performance];

    /// On how many clusters it may run at a time.
    #[must_use]
    pub fn clusters(self) -> usize {
        match self {
            Self::Regression => usize::MAX,
            // The driver listens on ports of its own choice; measurements want the computer for themselves.
            Self::Dra | Self::Performance => 1,
        }
    }

    pub(super) fn program(self) -> go_programs::Program {
        match self {
            Self::Regression => go_programs::KARPENTER_REGRESSION_SUITE,
            Self::Dra => go_programs::KARPENTER_DRA_SUITE,
            Self::Performance => go_programs::KARPENTER_PERFORMANCE_SUITE,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regression => "regression",
            Self::Dra => "dra",
            Self::Performance => "performance",
        })
    }
}

/// A test of a suite.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spec {
    /// Where it is from.
    pub suite: Suite,
    /// The texts of the containers around it, joined by blanks.
    pub group: String,
    /// Those and its own, joined by blanks.
    pub name: String,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.suite, self.name)
    }
}

/// What became of a spec.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not, or its time was over; with the reason.
    Failed(String),
    /// It found that it does not apply here.
    Skipped,
}

/// A spec that was run, or could not be.
#[derive(Clone, Debug)]
pub struct Played {
    /// Which one.
    pub spec: Spec,
    /// What became of it.
    pub verdict: Verdict,
    /// How long it took.
    pub time: Duration,
    /// What else is to be known.
    pub remarks: Vec<String>,
    /// What it wrote.
    pub log: Option<PathBuf>,
    /// What the controller wrote, before and after it too.
    pub controller_log: Option<PathBuf>,
}
