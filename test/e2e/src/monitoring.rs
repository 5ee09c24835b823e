//! What the page about operating devices, the chart's dashboard and its alert rules ask of Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

const PAGE: &str = "docs/dra-operations.md";
const DASHBOARD: &str = "charts/dovetail/files/dashboards/devices.json";
const RULES: &str = "charts/dovetail/files/rules/devices.yaml";

/// The chapters of the page with queries and with alerts.
const QUERIES: &str = "## What to watch";
const ALERTS: &str = "## Alerts";

/// What is asked about one component.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Section {
    /// The component.
    pub component: String,
    /// The queries, in their order.
    pub queries: Vec<String>,
}

/// An alert rule.
#[derive(Clone, Debug)]
pub struct Alert {
    /// The group that it is in.
    pub group: String,
    /// Its name.
    pub name: String,
    /// When it is on.
    pub expression: String,
}

/// The rule file.
#[must_use]
pub fn rules() -> PathBuf {
    go_programs::repository().join(RULES)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(go_programs::repository().join(path)).with_context(|| format!("read {path}"))
}

/// The queries of the page: what stands in code at the head of each row.
///
/// # Errors
/// If the page has none.
pub fn page() -> Result<Vec<Section>> {
    let text = read(PAGE)?;
    let mut sections: Vec<Section> = Vec::new();
    for line in chapter(&text, QUERIES)? {
        if let Some(component) = line.strip_prefix("### ") {
            sections.push(Section { component: component.to_owned(), queries: Vec::new() });
        } else if let Some(query) = codes(line).next() {
            let section = sections.last_mut().with_context(|| format!("{PAGE}: {query} is of no component"))?;
            section.queries.push(query.to_owned());
        }
    }
    ensure!(!sections.is_empty(), "{PAGE}: no queries in {QUERIES}");
    Ok(sections)
}

/// The names of the alerts that the page explains.
///
/// # Errors
/// If the page has none.
pub fn explained_alerts() -> Result<Vec<String>> {
    let text = read(PAGE)?;
    let rows = chapter(&text, ALERTS)?;
    Ok(rows.into_iter().filter_map(|row| row.split(" | ").next()).flat_map(codes).map(str::to_owned).collect())
}

/// The lines of a chapter of a page.
fn chapter<'t>(text: &'t str, head: &str) -> Result<Vec<&'t str>> {
    let mut lines = text.lines().skip_while(|line| *line != head);
    lines.next().with_context(|| format!("{PAGE}: no chapter {head}"))?;
    Ok(lines.take_while(|line| !line.starts_with("## ")).collect())
}

/// What stands in code in a row of a table.
fn codes(line: &str) -> impl Iterator<Item = &str> {
    let row = line.strip_prefix("| `").unwrap_or_default();
    row.split('`').step_by(2).filter(|code| !code.is_empty())
}

/// The queries of the dashboard, by the title of their row.
///
/// # Errors
/// If it is no dashboard with rows.
pub fn dashboard() -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for panel in panels()? {
        let text = |key: &str| panel[key].as_str().with_context(|| format!("{DASHBOARD}: a panel without {key}"));
        let title = text("title")?;
        if text("type")? == "row" {
            sections.push(Section { component: title.to_owned(), queries: Vec::new() });
            continue;
        }
        let section = sections.last_mut().with_context(|| format!("{DASHBOARD}: panel {title} is in no row"))?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().with_context(|| format!("{DASHBOARD}: {title} asks nothing"))?;
            section.queries.push(query.to_owned());
        }
    }
    Ok(sections)
}

/// The panels of the dashboard, as Grafana reads them.
///
/// # Errors
/// If it is no dashboard.
pub fn panels() -> Result<Vec<Value>> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)?).with_context(|| format!("parse {DASHBOARD}"))?;
    dashboard["panels"].as_array().cloned().with_context(|| format!("{DASHBOARD}: no panels"))
}

/// The alert rules, in their order.
///
/// # Errors
/// If the file is no rule file of alerts only.
pub fn alerts() -> Result<Vec<Alert>> {
    #[derive(Deserialize)]
    struct File {
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    struct Group {
        name: String,
        rules: Vec<Rule>,
    }
    #[derive(Deserialize)]
    struct Rule {
        alert: String,
        expr: String,
    }
    let file: File = serde_saphyr::from_str(&read(RULES)?).with_context(|| format!("parse {RULES}"))?;
    let of_group = |group: Group| {
        let name = group.name;
        group.rules.into_iter().map(move |rule| Alert { group: name.clone(), name: rule.alert, expression: rule.expr })
    };
    Ok(file.groups.into_iter().flat_map(of_group).collect())
}

/// Words of the query language that stand where a metric could.
const KEYWORDS: [&str; 5] = ["and", "bool", "offset", "or", "unless"];
/// Words between an aggregation and what it aggregates.
const AGGREGATED: [&str; 2] = ["by", "without"];
/// Words before a list of labels.
const GROUPING: [&str; 6] = ["by", "group_left", "group_right", "ignoring", "on", "without"];

/// The metrics that a query names.
#[must_use]
pub fn metrics(query: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        let is_of_word = |it: char| it.is_ascii_alphanumeric() || "_:.".contains(it);
        rest = match first {
            '{' => after(rest, '}'),
            '[' => after(rest, ']'),
            it if is_of_word(it) => {
                let (word, behind) = rest.split_at(rest.find(|it| !is_of_word(it)).unwrap_or(rest.len()));
                let is_call = is_list(behind)
                    || AGGREGATED.iter().any(|by| behind.trim_start().strip_prefix(by).is_some_and(is_list));
                if GROUPING.contains(&word) && is_list(behind) {
                    after(behind, ')')
                } else {
                    let is_number = first.is_ascii_digit() || first == '.';
                    if !is_call && !is_number && !KEYWORDS.contains(&word) && !GROUPING.contains(&word) {
                        found.insert(word);
                    }
                    behind
                }
            }
            _ => rest.get(first.len_utf8()..).unwrap_or_default(),
        };
    }
    found
}

fn is_list(text: &str) -> bool {
    text.trim_start().starts_with('(')
}

/// What comes behind the next bracket that is in no string.
fn after(text: &str, bracket: char) -> &str {
    let mut in_string = false;
    let end = text.find(|it: char| {
        in_string ^= it == '"';
        it == bracket && !in_string
    });
    end.and_then(|end| text.get(end + bracket.len_utf8()..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_found_in_queries() {
        for (query, expected) in [
            ("up", &["up"][..]),
            ("sum by (reason) (a_total) > 0", &["a_total"]),
            ("max(a{name=\"b\", c=~\"d}|(e)\"}) == 0.5", &["a"]),
            ("histogram_quantile(0.99, sum by (le, f) (rate(a:b_bucket{c!=\"d\"}[5m])))", &["a:b_bucket"]),
            ("rate(b[1h]) / on (c) group_left (d) a offset 5m", &["a", "b"]),
            ("a unless on(b) c or 1e3 > bool d", &["a", "c", "d"]),
        ] {
            assert_eq!(metrics(query).into_iter().collect::<Vec<_>>(), expected, "{query}");
        }
    }

    #[test]
    fn code_is_found_at_the_head_of_rows_only() {
        assert_eq!(codes("| `a`, `b` | what").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(codes("| query | `c` |").count() + codes("See `d`.").count(), 0);
    }
}
