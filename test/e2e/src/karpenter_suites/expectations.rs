//! What is expected of each spec: `test/karpenter-suites/testdata/expectations.yaml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::spec::{Spec, Suite};

/// How long a spec may take of which nothing is said. Karpenter's own patience is a quarter of an hour for each thing
/// that a spec waits for.
const LIMIT: Duration = Duration::from_secs(300);
/// How long one may take that is expected to fail: enough for most to pass once they can.
const LIMIT_OF_FAILURE: Duration = Duration::from_secs(180);

/// For every suite. A key is the name of a spec, or the beginning of names with a star behind it.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(transparent)]
pub struct Expectations(BTreeMap<Suite, OfSuite>);

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct OfSuite {
    /// Which specs fail, each with its cause.
    expected_failures: BTreeMap<String, String>,
    /// How long others than most may take.
    limits_seconds: BTreeMap<String, u64>,
    /// Which make up the fast subset.
    fast: Vec<String>,
    /// Which listen on a port of this computer, so that no two of them may run at a time.
    exclusive: Vec<String>,
}

/// What a spec should do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expected {
    /// Hold.
    Pass,
    /// Not hold, for this cause.
    Failure(String),
}

impl Expectations {
    /// Those of this repository.
    ///
    /// # Errors
    /// If the file cannot be read or says what it cannot say.
    pub fn read() -> Result<Self> {
        let path = path();
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("parse {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let all: Self = serde_saphyr::from_str(text)?;
        for (suite, of_suite) in &all.0 {
            let nameless = of_suite.expected_failures.iter().find(|(_, cause)| cause.trim().is_empty());
            if let Some((key, _)) = nameless {
                bail!("{suite}: expectedFailures: {key:?}: the cause is missing");
            }
        }
        Ok(all)
    }

    /// What a spec should do.
    #[must_use]
    pub fn of(&self, spec: &Spec) -> Expected {
        let cause = self.of_suite(spec).and_then(|it| longest(&it.expected_failures, spec));
        cause.map_or(Expected::Pass, |cause| Expected::Failure(cause.clone()))
    }

    /// How long it may take. One that is expected to fail is cut early.
    #[must_use]
    pub fn limit(&self, spec: &Spec) -> Duration {
        let given = self.of_suite(spec).and_then(|it| longest(&it.limits_seconds, spec));
        let limit = given.map_or(LIMIT, |&seconds| Duration::from_secs(seconds));
        match self.of(spec) {
            Expected::Pass => limit,
            Expected::Failure(_) => limit.min(LIMIT_OF_FAILURE),
        }
    }

    /// Whether it is of the fast subset.
    #[must_use]
    pub fn is_fast(&self, spec: &Spec) -> bool {
        self.of_suite(spec).is_some_and(|it| it.fast.iter().any(|key| takes(key, spec)))
    }

    /// Whether the suite has a fast subset.
    #[must_use]
    pub fn has_fast(&self, suite: Suite) -> bool {
        self.0.get(&suite).is_some_and(|it| !it.fast.is_empty())
    }

    /// Whether it must not run beside others of its kind.
    #[must_use]
    pub fn is_exclusive(&self, spec: &Spec) -> bool {
        self.of_suite(spec).is_some_and(|it| it.exclusive.iter().any(|key| takes(key, spec)))
    }

    /// Whether all that is said of a suite is said of specs that it has, and nothing contradicts itself.
    ///
    /// # Errors
    /// The first key that is about nothing, or about a fast spec that is expected to fail.
    pub fn check(&self, suite: Suite, specs: &[Spec]) -> Result<()> {
        let Some(of_suite) = self.0.get(&suite) else { return Ok(()) };
        let keys = |field: &'static str, keys: Vec<&String>| keys.into_iter().map(|key| (field, key.clone())).collect();
        let all: [Vec<(&str, String)>; 4] = [
            keys("expectedFailures", of_suite.expected_failures.keys().collect()),
            keys("limitsSeconds", of_suite.limits_seconds.keys().collect()),
            keys("fast", of_suite.fast.iter().collect()),
            keys("exclusive", of_suite.exclusive.iter().collect()),
        ];
        for (field, key) in all.iter().flatten() {
            ensure!(specs.iter().any(|spec| takes(key, spec)), "{suite}: {field}: {key:?}: the suite has no such spec");
        }
        for spec in specs.iter().filter(|spec| self.is_fast(spec)) {
            ensure!(self.of(spec) == Expected::Pass, "{suite}: fast: {:?}: it is expected to fail", spec.name);
        }
        Ok(())
    }

    fn of_suite(&self, spec: &Spec) -> Option<&OfSuite> {
        self.0.get(&spec.suite)
    }
}

fn path() -> PathBuf {
    go_programs::repository().join("test/karpenter-suites/testdata/expectations.yaml")
}

fn takes(key: &str, spec: &Spec) -> bool {
    match key.strip_suffix('*') {
        Some(group) => spec.name.starts_with(group),
        None => spec.name == key,
    }
}

/// Of the most exact key that takes it.
fn longest<'a, T>(map: &'a BTreeMap<String, T>, spec: &Spec) -> Option<&'a T> {
    map.iter().filter(|(key, _)| takes(key, spec)).max_by_key(|(key, _)| key.len()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
regression:
  expectedFailures: { Drift *: needs drift, Drift Budgets should a: needs budgets }
  limitsSeconds: { Drift Budgets should a: 60, Slow: 900 }
  fast: [Quick, Groups *]
  exclusive: [Slow]
";

    fn spec(name: &str) -> Spec {
        Spec { suite: Suite::Regression, group: String::new(), name: name.to_owned() }
    }

    fn failure(cause: &str) -> Expected {
        Expected::Failure(cause.to_owned())
    }

    #[test]
    fn the_most_exact_key_decides_and_only_one_with_a_star_is_of_a_group() -> Result<()> {
        let all = Expectations::parse(TEXT)?;
        assert_eq!(all.of(&spec("Drift should b")), failure("needs drift"));
        assert_eq!(all.of(&spec("Drift Budgets should a")), failure("needs budgets"));
        assert_eq!(all.of(&spec("Drift Budgets should a and b")), failure("needs drift"));
        assert_eq!(all.of(&spec("Drifting")), Expected::Pass);
        assert_eq!(all.of(&Spec { suite: Suite::Dra, ..spec("Drift") }), Expected::Pass);
        assert!(all.is_fast(&spec("Quick")) && all.is_fast(&spec("Groups a")) && !all.is_fast(&spec("Quick one")));
        assert!(all.is_exclusive(&spec("Slow")) && !all.is_exclusive(&spec("Quick")));
        assert!(all.has_fast(Suite::Regression) && !all.has_fast(Suite::Dra));
        Ok(())
    }

    #[test]
    fn one_that_is_to_fail_is_cut_early() -> Result<()> {
        let all = Expectations::parse(TEXT)?;
        let seconds = |name: &str| all.limit(&spec(name)).as_secs();
        assert_eq!(
            [seconds("Drift x"), seconds("Drift Budgets should a"), seconds("Slow"), seconds("Other")],
            [180, 60, 900, 300]
        );
        Ok(())
    }

    #[test]
    fn what_is_said_of_no_spec_or_contradicts_itself_is_an_error_that_names_it() -> Result<()> {
        let all = Expectations::parse(TEXT)?;
        let names = ["Drift x", "Drift Budgets should a", "Slow", "Quick", "Groups a"];
        let specs: Vec<Spec> = names.iter().map(|name| spec(name)).collect();
        all.check(Suite::Regression, &specs)?;
        let said = |specs: &[Spec]| all.check(Suite::Regression, specs).map_err(|error| error.to_string());
        let wanted = "regression: expectedFailures: \"Drift Budgets should a\": the suite has no such spec";
        assert_eq!(said(&[specs[..1].to_vec(), specs[2..].to_vec()].concat()), Err(wanted.to_owned()));

        let both = Expectations::parse("{dra: {fast: [A *], expectedFailures: {A b: why}}}")?;
        let error = both.check(Suite::Dra, &[Spec { suite: Suite::Dra, ..spec("A b") }]);
        assert!(error.is_err_and(|error| error.to_string().contains("\"A b\": it is expected to fail")));
        Ok(())
    }

    #[test]
    fn a_file_without_cause_or_with_an_unknown_field_is_refused() {
        for text in ["{dra: {expectedFailures: {A: ' '}}}", "{dra: {quick: [A]}}", "{chaos: {}}"] {
            assert!(Expectations::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_file_of_this_repository_is_read() -> Result<()> {
        let all = Expectations::read()?;
        assert!(all.has_fast(Suite::Regression));
        Ok(())
    }
}
