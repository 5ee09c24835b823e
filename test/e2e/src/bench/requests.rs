//! What the controller has asked of the API server, as its `/metrics` tell.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::controller::Controller;

const METRIC: &str = "dovetail_api_requests_total{";

/// Counts of one verb on one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// All that were answered or lost.
    pub requests: u64,
    /// Those whose answer was an error, or that got none.
    pub failed: u64,
}

/// By verb and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<(String, String), Asked>);

impl Requests {
    /// So far.
    ///
    /// # Errors
    /// If the controller does not answer, or a line is not as expected.
    pub fn of(controller: &Controller) -> Result<Self> {
        Self::parse(&controller.metrics()?)
    }

    fn parse(metrics: &str) -> Result<Self> {
        let mut requests = Self::default();
        for line in metrics.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let (labels, count) = line.rsplit_once("} ").with_context(|| format!("no value: {line}"))?;
            let label = |name: &str| {
                let value =
                    labels.split(',').find_map(|it| it.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'));
                value.with_context(|| format!("no label {name}: {line}"))
            };
            let count: u64 = count.parse().with_context(|| format!("no count: {line}"))?;
            let asked = requests.0.entry((label("verb")?.to_owned(), label("resource")?.to_owned())).or_default();
            asked.requests += count;
            asked.failed += if label("code")?.starts_with('2') { 0 } else { count };
        }
        Ok(requests)
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let difference = |(key, asked): (&(String, String), &Asked)| {
            let before = before.0.get(key).copied().unwrap_or_default();
            let requests = asked.requests.saturating_sub(before.requests);
            (requests > 0)
                .then(|| (key.clone(), Asked { requests, failed: asked.failed.saturating_sub(before.failed) }))
        };
        Self(self.0.iter().filter_map(difference).collect())
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().map(|asked| asked.requests).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_added_up_and_errors_are_told_apart() -> Result<()> {
        let line = |verb: &str, code: u16, count: u64| {
            format!("dovetail_api_requests_total{{verb=\"{verb}\",resource=\"pods\",code=\"{code}\"}} {count}\n")
        };
        let before = Requests::parse(&line("patch", 200, 2))?;
        let text = format!("# HELP x\n{}{}{}", line("patch", 200, 5), line("patch", 409, 1), line("list", 200, 1));
        let now = Requests::parse(&text)?;
        assert_eq!(now.total(), 7);
        let key = |verb: &str| (verb.to_owned(), "pods".to_owned());
        let expected =
            [(key("list"), Asked { requests: 1, failed: 0 }), (key("patch"), Asked { requests: 4, failed: 1 })];
        assert_eq!(now.since(&before).0, expected.into_iter().collect());
        Ok(())
    }
}
