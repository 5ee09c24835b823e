//! The support matrix, as `docs/dra-support.md` shows it to users.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use e2e::control_plane::Gates;

pub(super) struct Matrix {
    rows: Vec<Vec<String>>,
}

impl Matrix {
    pub(super) fn read() -> Result<Self> {
        let path = go_programs::repository().join("docs/dra-support.md");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        Ok(Self { rows: text.lines().filter(|line| line.starts_with('|')).map(cells).collect() })
    }

    fn column(&self, name: &str) -> Result<usize> {
        let headings = self.rows.first().context("docs/dra-support.md has no table")?;
        headings
            .iter()
            .position(|heading| heading == name)
            .with_context(|| format!("docs/dra-support.md has no column {name}"))
    }

    /// Whether a release, such as `v1.36.3`, has a feature with these gates.
    pub(super) fn serves(&self, feature: &str, version: &str, gates: Gates) -> Result<bool> {
        let row = self
            .rows
            .iter()
            .find(|row| row[0] == feature)
            .with_context(|| format!("docs/dra-support.md has no row {feature:?}"))?;
        Ok(match (row[self.column(&minor(version))?].as_str(), gates) {
            ("–", _) | ("off", Gates::Default) => false,
            // A feature without a gate has an empty cell.
            ("on" | "", _) | ("off", Gates::All) => true,
            (other, _) => anyhow::bail!("docs/dra-support.md says {other:?} of {feature}"),
        })
    }

    /// The features that a way of checking is named for.
    pub(super) fn held_against(&self, check: &str) -> BTreeSet<String> {
        let last = |row: &&Vec<String>| row.last().is_some_and(|cell| cell.split(", ").any(|name| name == check));
        self.rows.iter().filter(last).map(|row| row[0].clone()).collect()
    }
}

/// `1.36` of `v1.36.3`.
fn minor(version: &str) -> String {
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}
