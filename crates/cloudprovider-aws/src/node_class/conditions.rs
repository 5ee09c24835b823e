//! The conditions of an EC2NodeClass, by the rules of `awslabs/operatorpkg`: a transition time moves only when a status
//! does, and `Ready` follows those that it depends on.

use api::conditions::{AWAITING_RECONCILIATION, FALSE, READY, TRUE, UNKNOWN, find, ready};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff;
use model::Timestamp;

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Holds,
    /// It does not.
    Fails {
        /// CamelCase.
        reason: String,
        /// For people.
        message: String,
    },
    /// Nobody knows.
    Unknown {
        /// CamelCase.
        reason: String,
        /// For people.
        message: String,
    },
    /// It cannot be told now, and what was told before stands.
    AsBefore {
        /// Why it cannot be told, where nothing was told before.
        message: String,
    },
}

/// The conditions after verdicts on some of them, with `Ready` last. What has no verdict is dropped.
pub fn judge(before: &[Condition], verdicts: &[(&str, Verdict)], generation: i64, now: Timestamp) -> Vec<Condition> {
    let mut after: Vec<_> =
        verdicts.iter().map(|(name, verdict)| condition(before, name, verdict, generation, now)).collect();
    let (status, reason, message) = ready(&after, generation);
    after.push(stated(before, READY, (status, reason, &message), (generation, now)));
    after
}

fn condition(before: &[Condition], name: &str, verdict: &Verdict, generation: i64, now: Timestamp) -> Condition {
    let known = find(before, name);
    let (status, reason, message) = match verdict {
        Verdict::Holds => (TRUE, name, ""),
        Verdict::Fails { reason, message } => (FALSE, reason.as_str(), message.as_str()),
        Verdict::Unknown { reason, message } => (UNKNOWN, reason.as_str(), message.as_str()),
        Verdict::AsBefore { message } => match known {
            Some(known) => return known.clone(),
            None => (UNKNOWN, AWAITING_RECONCILIATION, message.as_str()),
        },
    };
    stated(before, name, (status, reason, message), (generation, now))
}

fn stated(
    before: &[Condition],
    name: &str,
    (status, reason, message): (&str, &str, &str),
    (generation, now): (i64, Timestamp),
) -> Condition {
    let known = find(before, name);
    let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
    Condition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: since.unwrap_or_else(|| time(now)),
    }
}

fn time(at: Timestamp) -> Time {
    Time(jiff::Timestamp::from_millisecond(at.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(reason: &str) -> Verdict {
        Verdict::Fails { reason: reason.to_owned(), message: "why".to_owned() }
    }

    fn line(it: &Condition) -> String {
        let since = it.last_transition_time.0.as_second();
        format!("{}={} {} {} since {since}", it.type_, it.status, it.reason, it.message)
    }

    fn lines(conditions: &[Condition]) -> Vec<String> {
        conditions.iter().map(line).collect()
    }

    #[test]
    fn ready_follows_the_others_and_a_time_moves_only_with_its_status() {
        let at = Timestamp::from_seconds;
        let first = judge(&[], &[("A", Verdict::Holds), ("B", fails("No"))], 1, at(10));
        assert_eq!(
            lines(&first),
            ["A=True A  since 10", "B=False No why since 10", "Ready=False UnhealthyDependents B=False since 10"]
        );
        let second = judge(&first, &[("A", Verdict::Holds), ("B", fails("Never"))], 1, at(20));
        assert_eq!(second[1].reason, "Never");
        assert_eq!(second[2].last_transition_time, first[2].last_transition_time);
        let third = judge(&second, &[("A", Verdict::Holds), ("B", Verdict::Holds)], 1, at(30));
        assert_eq!(lines(&third), ["A=True A  since 10", "B=True B  since 30", "Ready=True Ready  since 30"]);
    }

    #[test]
    fn what_cannot_be_told_stands_but_is_not_of_a_new_generation() {
        let as_before = Verdict::AsBefore { message: "throttled".to_owned() };
        let at = Timestamp::from_seconds;
        let first = judge(&[], &[("A", as_before.clone())], 1, at(10));
        assert_eq!(lines(&first)[0], "A=Unknown AwaitingReconciliation throttled since 10");
        let good = judge(&first, &[("A", Verdict::Holds)], 1, at(20));
        let same = judge(&good, &[("A", as_before.clone())], 1, at(30));
        assert_eq!(same, good);
        let changed = judge(&good, &[("A", as_before)], 2, at(30));
        assert_eq!(lines(&changed)[1], "Ready=Unknown ReconcilingDependents A=True since 30");
    }
}
