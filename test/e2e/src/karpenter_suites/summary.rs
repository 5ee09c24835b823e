//! Results beside what was expected: counts, a table by group, the surprises, and a report in JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::expectations::{Expectations, Expected};
use super::spec::{Played, Verdict};

/// What a result means.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Judgement {
    /// It holds, as it should.
    Passed,
    /// It should hold, and does not: a surprise.
    Failed,
    /// It does not hold, as is known.
    FailedAsExpected,
    /// It holds and is listed as one that does not: a surprise, the list is out of date.
    PassedThoughListed,
    /// It does not apply.
    Skipped,
}

impl Judgement {
    /// Of a result.
    #[must_use]
    pub fn of(verdict: &Verdict, expected: &Expected) -> Self {
        match (verdict, expected) {
            (Verdict::Passed, Expected::Pass) => Self::Passed,
            (Verdict::Passed, Expected::Failure(_)) => Self::PassedThoughListed,
            (Verdict::Failed(_), Expected::Pass) => Self::Failed,
            (Verdict::Failed(_), Expected::Failure(_)) => Self::FailedAsExpected,
            (Verdict::Skipped, _) => Self::Skipped,
        }
    }

    /// Whether somebody must look at it.
    #[must_use]
    pub fn is_surprise(self) -> bool {
        match self {
            Self::Failed | Self::PassedThoughListed => true,
            Self::Passed | Self::FailedAsExpected | Self::Skipped => false,
        }
    }
}

/// All results of a run, in the order of suites and names.
#[derive(Debug)]
pub struct Summary {
    results: Vec<(Played, Expected, Judgement)>,
}

/// How many specs of each judgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Counts {
    passed: usize,
    failed: usize,
    failed_as_expected: usize,
    passed_though_listed: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, judgement: Judgement) {
        let count = match judgement {
            Judgement::Passed => &mut self.passed,
            Judgement::Failed => &mut self.failed,
            Judgement::FailedAsExpected => &mut self.failed_as_expected,
            Judgement::PassedThoughListed => &mut self.passed_though_listed,
            Judgement::Skipped => &mut self.skipped,
        };
        *count += 1;
    }
}

impl Summary {
    /// Judges what was played.
    #[must_use]
    pub fn new(played: Vec<Played>, expectations: &Expectations) -> Self {
        let judge = |played: Played| {
            let expected = expectations.of(&played.spec);
            let judgement = Judgement::of(&played.verdict, &expected);
            (played, expected, judgement)
        };
        let mut results: Vec<_> = played.into_iter().map(judge).collect();
        results.sort_by(|(a, ..), (b, ..)| (a.spec.suite, &a.spec.name).cmp(&(b.spec.suite, &b.spec.name)));
        Self { results }
    }

    /// Whether each did what was expected of it, and there was one at all.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        !self.results.is_empty() && self.results.iter().all(|(.., judgement)| !judgement.is_surprise())
    }

    /// A table with a line for each group.
    #[must_use]
    pub fn table(&self) -> String {
        let mut groups: BTreeMap<_, (Counts, f64)> = BTreeMap::new();
        for (played, _, judgement) in &self.results {
            let (counts, seconds) = groups.entry((played.spec.suite, played.spec.group.as_str())).or_default();
            counts.add(*judgement);
            *seconds += played.time.as_secs_f64();
        }
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["suite", "group", "passed", "failed", "expected to fail", "passed though listed", "seconds"]);
        for ((suite, group), (counts, seconds)) in groups {
            let counts = [counts.passed, counts.failed, counts.failed_as_expected, counts.passed_though_listed];
            let mut row = vec![suite.to_string(), group.to_owned()];
            row.extend(counts.map(|count| if count == 0 { "-".to_owned() } else { count.to_string() }));
            row.push(format!("{seconds:.0}"));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        table.trim_fmt()
    }

    /// The surprises of both kinds, each with what helps to understand it.
    pub fn surprises(&self) -> impl Iterator<Item = String> {
        self.results.iter().filter_map(|(played, expected, judgement)| match (judgement, &played.verdict, expected) {
            (Judgement::Failed, Verdict::Failed(why), _) => {
                let log = played.log.as_ref().map(|log| format!("\n    {}", log.display())).unwrap_or_default();
                let controller = played.controller_log.as_ref();
                let controller = controller.map(|log| format!("\n    {}", log.display())).unwrap_or_default();
                Some(format!("fails, and should pass: {}\n    {why}{log}{controller}", played.spec))
            }
            (Judgement::PassedThoughListed, _, Expected::Failure(cause)) => {
                Some(format!("passes, and is listed as failing: {} ({cause})", played.spec))
            }
            _ => None,
        })
    }

    /// All of it, for programs.
    #[must_use]
    pub fn report(&self, versions: &BTreeMap<&str, String>, seconds: f64) -> Value {
        let specs: Vec<Value> = self.results.iter().map(spec_report).collect();
        let counts = self.counts();
        json!({
            "versions": versions,
            "seconds": seconds,
            "passed": counts.passed,
            "failed": counts.failed,
            "failedAsExpected": counts.failed_as_expected,
            "passedThoughListed": counts.passed_though_listed,
            "skipped": counts.skipped,
            "specs": specs,
        })
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.results.iter().for_each(|(.., judgement)| counts.add(*judgement));
        counts
    }
}

fn spec_report((played, expected, judgement): &(Played, Expected, Judgement)) -> Value {
    let cause = match expected {
        Expected::Pass => None,
        Expected::Failure(cause) => Some(cause),
    };
    let why = match &played.verdict {
        Verdict::Passed | Verdict::Skipped => None,
        Verdict::Failed(why) => Some(why),
    };
    json!({
        "suite": played.spec.suite,
        "group": played.spec.group,
        "name": played.spec.name,
        "judgement": judgement,
        "cause": cause,
        "message": why,
        "remarks": played.remarks,
        "seconds": played.time.as_secs_f64(),
        "log": played.log,
        "controllerLog": played.controller_log,
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let (passed, failed) = (counts.passed + counts.passed_though_listed, counts.failed);
        write!(f, "{passed} passed, {failed} failed, {} expected to fail", counts.failed_as_expected)?;
        if counts.passed_though_listed > 0 {
            write!(f, ", {} of those that passed are listed as failing", counts.passed_though_listed)?;
        }
        if counts.skipped > 0 {
            write!(f, ", {} skipped themselves", counts.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::spec::{Spec, Suite};
    use super::*;

    fn played(name: &str, verdict: Verdict) -> Played {
        Played {
            spec: Spec { suite: Suite::Regression, group: "Drift".to_owned(), name: format!("Drift {name}") },
            verdict,
            time: Duration::from_secs(2),
            remarks: Vec::new(),
            log: Some("/tmp/a.log".into()),
            controller_log: None,
        }
    }

    fn summary(played: Vec<Played>) -> anyhow::Result<Summary> {
        let expectations = serde_saphyr::from_str("{regression: {expectedFailures: {Drift listed: needs drift}}}")?;
        Ok(Summary::new(played, &expectations))
    }

    #[test]
    fn both_kinds_of_surprise_are_named_and_make_the_run_fail() -> anyhow::Result<()> {
        let failed = || Verdict::Failed("no node".to_owned());
        let known = summary(vec![played("other", Verdict::Passed), played("listed", failed())])?;
        assert!(known.is_as_expected());
        assert_eq!(known.surprises().count(), 0);
        assert_eq!(known.to_string(), "1 passed, 0 failed, 1 expected to fail");

        let both = summary(vec![played("other", failed()), played("listed", Verdict::Passed)])?;
        assert!(!both.is_as_expected());
        let surprises: Vec<String> = both.surprises().collect();
        assert_eq!(
            surprises,
            [
                "passes, and is listed as failing: regression: Drift listed (needs drift)",
                "fails, and should pass: regression: Drift other\n    no node\n    /tmp/a.log",
            ]
        );
        let said = "1 passed, 1 failed, 0 expected to fail, 1 of those that passed are listed as failing";
        assert_eq!(both.to_string(), said);
        Ok(())
    }

    #[test]
    fn a_run_of_nothing_is_not_as_expected_and_what_skips_itself_is_no_surprise() -> anyhow::Result<()> {
        assert!(!summary(Vec::new())?.is_as_expected());
        let skipped = summary(vec![played("listed", Verdict::Skipped)])?;
        assert!(skipped.is_as_expected());
        assert_eq!(skipped.to_string(), "0 passed, 0 failed, 0 expected to fail, 1 skipped themselves");
        Ok(())
    }

    #[test]
    fn the_table_has_a_line_for_each_group() -> anyhow::Result<()> {
        let table = summary(vec![played("a", Verdict::Passed), played("b", Verdict::Passed)])?.table();
        let row: Vec<&str> = table.lines().last().unwrap_or_default().split_whitespace().collect();
        assert_eq!(row, ["regression", "Drift", "2", "-", "-", "-", "4"]);
        Ok(())
    }
}
