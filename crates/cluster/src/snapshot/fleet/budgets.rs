//! Disruption budgets as numbers of nodes at one moment.
//!
//! A budget with a schedule is active from each beginning on for its duration: windows that overlap extend each other.
//! A schedule that never begins, such as 30 February, is taken for always active, as Karpenter's library comes out.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::disruption::{BUDGET_NODES, Budget as Entry, DisruptionReason};
use model::Timestamp;
use scheduling::snapshot::fleet::{Budget, BudgetFault, Reason};

use crate::cron::Schedule;
use crate::node_claim::milliseconds;

/// What came of a list of budgets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// Those that are active.
    pub(super) budgets: Vec<Budget>,
    /// Those that cannot be read.
    pub(super) faults: Vec<BudgetFault>,
}

/// Reads a list; `None` is the one that the CRD defaults to. An empty list allows everything.
pub(super) fn read(entries: Option<&[Entry]>, nodes: u32, now: Timestamp) -> Read {
    let default = [Entry { reasons: None, nodes: BUDGET_NODES.to_owned(), schedule: None, duration: None }];
    let mut read = Read { budgets: Vec::new(), faults: Vec::new() };
    for (index, entry) in entries.unwrap_or(&default).iter().enumerate() {
        match budget(index, entry, nodes, now) {
            Ok(budget) => read.budgets.extend(budget),
            Err(problem) => read.faults.push(BudgetFault { index, problem: problem.into() }),
        }
    }
    read
}

/// The budget, if it is active.
fn budget(index: usize, entry: &Entry, nodes: u32, now: Timestamp) -> Result<Option<Budget>, String> {
    let allowed = allowed(&entry.nodes, nodes)?;
    let reasons = entry.reasons.as_deref().map(reasons).transpose()?;
    let (until, text): (_, Arc<str>) = match (&entry.schedule, &entry.duration) {
        (None, None) => (None, entry.nodes.as_str().into()),
        (Some(_), None) => return Err("duration is missing, which a schedule needs".to_owned()),
        (None, Some(_)) => return Err("schedule is missing, which a duration needs".to_owned()),
        (Some(schedule), Some(duration)) => {
            let text = format!("{} from {:?} for {}", entry.nodes, schedule, duration.0).into();
            let parsed = Schedule::parse(schedule).map_err(|why| format!("schedule {schedule:?} {why}"))?;
            let duration = milliseconds(duration.parse().map_err(|why| format!("duration: {why}"))?);
            let until = parsed.last_begin(now).map(|begin| begin.saturating_add(duration));
            if until.is_some_and(|until| until <= now) {
                return Ok(None);
            }
            (until, text)
        }
    };
    Ok(Some(Budget { index, reasons, allowed, text, until }))
}

/// A number of nodes, or a percentage of them that is rounded up.
fn allowed(text: &str, nodes: u32) -> Result<u32, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let malformed = || format!("nodes {text:?} is neither a number nor a percentage");
    match text.strip_suffix('%') {
        Some(percent) if is_number(percent) => {
            let percent: u64 = percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(malformed)?;
            Ok(u32::try_from((u64::from(nodes) * percent).div_ceil(100)).unwrap_or(u32::MAX))
        }
        // More than there can be is all of them.
        None if is_number(text) => Ok(text.parse().unwrap_or(u32::MAX)),
        Some(_) | None => Err(malformed()),
    }
}

fn reasons(reasons: &[DisruptionReason]) -> Result<BTreeSet<Reason>, String> {
    let known = |reason: &DisruptionReason| match reason {
        DisruptionReason::Underutilized => Ok(Reason::Underutilized),
        DisruptionReason::Empty => Ok(Reason::Empty),
        DisruptionReason::Drifted => Ok(Reason::Drifted),
        DisruptionReason::Unhealthy => Ok(Reason::Unhealthy),
        DisruptionReason::Unknown(reason) => Err(format!("reason {reason:?} is not known")),
    };
    reasons.iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(nodes: &str, reasons: Option<&[&str]>, window: Option<(&str, &str)>) -> Entry {
        Entry {
            reasons: reasons.map(|reasons| reasons.iter().map(|&reason| reason.into()).collect()),
            nodes: nodes.to_owned(),
            schedule: window.map(|(schedule, _)| schedule.to_owned()),
            duration: window.map(|(_, duration)| api::DurationString(duration.to_owned())),
        }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn percentages_are_rounded_up() {
        for (text, nodes, expected) in [
            ("10%", 0, 0),
            ("10%", 1, 1),
            ("10%", 10, 1),
            ("10%", 11, 2),
            ("0%", 50, 0),
            ("100%", 7, 7),
            ("33%", 1_000_000, 330_000),
            ("0", 9, 0),
            ("3", 1, 3),
            ("99999999999", 1, u32::MAX),
        ] {
            assert_eq!(allowed(text, nodes), Ok(expected), "{text} of {nodes}");
        }
        for text in ["", "%", "101%", "-1", "+1", "1.5", "10 %", "ten"] {
            assert!(allowed(text, 9).is_err(), "{text}");
        }
    }

    #[test]
    fn a_budget_is_active_from_each_beginning_for_its_duration() {
        // 2026-11-25 is a Wednesday.
        for (schedule, duration, now, until) in [
            ("0 9 * * 1-5", "8h", "2026-11-25T08:59:59Z", None),
            ("0 9 * * 1-5", "8h", "2026-11-25T09:00:00Z", Some("2026-11-25T17:00:00Z")),
            ("0 9 * * 1-5", "8h", "2026-11-25T16:59:59.999Z", Some("2026-11-25T17:00:00Z")),
            ("0 9 * * 1-5", "8h", "2026-11-25T17:00:00Z", None),
            ("0 9 * * 6", "48h", "2026-11-22T10:00:00Z", Some("2026-11-23T09:00:00Z")),
            // Overlapping windows go on.
            ("@hourly", "90m", "2026-11-25T10:59:00Z", Some("2026-11-25T11:30:00Z")),
            ("0 0 1 1 *", "1000000h", "2026-11-25T10:00:00Z", Some("2140-01-30T16:00:00Z")),
        ] {
            let read = read(Some(&[entry("1", None, Some((schedule, duration)))]), 9, at(now));
            let found: Vec<_> = read.budgets.iter().map(|budget| budget.until.map(|it| it.to_string())).collect();
            let expected: Vec<_> = until.iter().map(|until| Some((*until).to_owned())).collect();
            assert_eq!((found, read.faults), (expected, Vec::new()), "{schedule} for {duration} at {now}");
        }
        let never = read(Some(&[entry("1", None, Some(("0 0 30 2 *", "1h")))]), 9, at("2026-11-25T10:00:00Z"));
        assert_eq!(never.budgets.iter().map(|budget| budget.until).collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn without_a_list_a_tenth_of_the_nodes_and_with_an_empty_one_all() {
        let of_default = read(None, 25, Timestamp::default());
        assert_eq!(of_default.budgets.iter().map(|budget| budget.allowed).collect::<Vec<_>>(), [3]);
        assert!(of_default.budgets.iter().all(|budget| budget.reasons.is_none() && &*budget.text == "10%"));
        assert_eq!(read(Some(&[]), 25, Timestamp::default()), Read { budgets: Vec::new(), faults: Vec::new() });
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place_and_the_others_count() {
        let entries = [
            entry("5", Some(&["Empty", "Unhealthy"]), None),
            entry("5", Some(&["Bored"]), None),
            entry("lots", None, None),
            entry("5", None, Some(("0 9 * * 7", "1h"))),
            entry("5", None, Some(("0 9 * *", "1h"))),
            entry("5", None, Some(("@daily", "soon"))),
            Entry { duration: None, ..entry("5", None, Some(("@daily", "1h"))) },
            Entry { schedule: None, ..entry("5", None, Some(("@daily", "1h"))) },
        ];
        let read = read(Some(&entries), 9, Timestamp::default());
        assert_eq!(read.budgets.len(), 1);
        assert_eq!(read.budgets[0].reasons, Some([Reason::Empty, Reason::Unhealthy].into()));
        let told: Vec<_> = read.faults.iter().map(|fault| format!("{} {}", fault.index, fault.problem)).collect();
        assert_eq!(
            told,
            [
                "1 reason \"Bored\" is not known",
                "2 nodes \"lots\" is neither a number nor a percentage",
                "3 schedule \"0 9 * * 7\" day of week: \"7\" is not within 0 to 6",
                "4 schedule \"0 9 * *\" has 4 fields, not 5",
                "5 duration: \"soon\" is not a duration: expected numbers with units such as \"1h30m\"",
                "6 duration is missing, which a schedule needs",
                "7 schedule is missing, which a duration needs",
            ]
        );
    }
}
