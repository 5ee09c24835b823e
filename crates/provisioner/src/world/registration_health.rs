//! Whether a NodePool's latest launches became Nodes: condition `NodeRegistrationHealthy`.
//!
//! The last four outcomes of each NodePool are remembered; two failures among them make it unhealthy. The memory starts
//! from the condition after a restart, and afresh when the NodePool or its node class changes. Nothing is decided by
//! it: an unhealthy NodePool is still launched from.

use std::collections::{BTreeMap, VecDeque};

use api::conditions::node_pool::NODE_REGISTRATION_HEALTHY;
use api::conditions::{FALSE, TRUE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::Uid;
use parking_lot::Mutex;

use crate::runtime::conditions::find;

const REMEMBERED: usize = 4;
const UNHEALTHY_FAILURES: usize = 2;

/// What became of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its Node registered.
    Registered,
    /// It did not, in time.
    Failed {
        /// CamelCase.
        reason: String,
        /// For people.
        message: String,
    },
}

/// What the condition shall say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// Nothing is known.
    Unknown,
    /// Launches become Nodes.
    Healthy,
    /// They do not: reason and message of the last failure.
    Unhealthy(String, String),
}

/// The memory for all NodePools.
#[derive(Debug, Default)]
pub(crate) struct RegistrationHealth {
    by_node_pool: Mutex<BTreeMap<Uid, Record>>,
}

/// What is known of one NodePool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Record {
    /// Generations of the NodePool and its node class that the outcomes belong to.
    generations: (i64, i64),
    outcomes: VecDeque<Outcome>,
}

impl RegistrationHealth {
    /// Adds an outcome.
    pub(crate) fn record(&self, node_pool: &Uid, outcome: Outcome) {
        self.by_node_pool.lock().entry(node_pool.clone()).or_default().push(outcome);
    }

    /// What the condition shall say, given what it says.
    pub(crate) fn health(&self, node_pool: &Uid, generations: (i64, i64), conditions: &[Condition]) -> Health {
        let known = find(conditions, NODE_REGISTRATION_HEALTHY);
        let mut records = self.by_node_pool.lock();
        let record = records.entry(node_pool.clone()).or_default();
        record.bring_up_to(generations, known);
        record.health()
    }

    /// Forgets NodePools that are gone.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.by_node_pool.lock().retain(|uid, _| exists(uid));
    }
}

impl Record {
    fn push(&mut self, outcome: Outcome) {
        if self.outcomes.len() == REMEMBERED {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }

    fn bring_up_to(&mut self, generations: (i64, i64), known: Option<&Condition>) {
        if self.generations == generations {
            return;
        }
        let first_look = self.generations == (0, 0);
        self.generations = generations;
        if !first_look {
            self.outcomes.clear();
            return;
        }
        // After a restart: what the condition says, if it is about this generation.
        let known = known.filter(|condition| condition.observed_generation == Some(generations.0));
        let remembered = match known.map(|condition| (condition.status.as_str(), condition)) {
            Some((TRUE, _)) => vec![Outcome::Registered],
            Some((FALSE, condition)) => {
                vec![
                    Outcome::Failed { reason: condition.reason.clone(), message: condition.message.clone() };
                    UNHEALTHY_FAILURES
                ]
            }
            Some(_) | None => Vec::new(),
        };
        let lately = std::mem::take(&mut self.outcomes);
        for outcome in remembered.into_iter().chain(lately) {
            self.push(outcome);
        }
    }

    fn health(&self) -> Health {
        let mut failures = self.outcomes.iter().rev().filter_map(|outcome| match outcome {
            Outcome::Failed { reason, message } => Some((reason, message)),
            Outcome::Registered => None,
        });
        let last = failures.next();
        match last {
            _ if self.outcomes.is_empty() => Health::Unknown,
            Some((reason, message)) if failures.count() + 1 >= UNHEALTHY_FAILURES => {
                Health::Unhealthy(reason.clone(), message.clone())
            }
            Some(_) | None => Health::Healthy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Outcome {
        Outcome::Failed { reason: "RegistrationFailed".to_owned(), message: "m".to_owned() }
    }

    fn unhealthy() -> Health {
        Health::Unhealthy("RegistrationFailed".to_owned(), "m".to_owned())
    }

    fn condition(status: &str) -> Vec<Condition> {
        vec![Condition {
            type_: NODE_REGISTRATION_HEALTHY.to_owned(),
            status: status.to_owned(),
            reason: "RegistrationFailed".to_owned(),
            message: "m".to_owned(),
            observed_generation: Some(1),
            last_transition_time: crate::runtime::conditions::to_time(model::Timestamp::default()),
        }]
    }

    #[test]
    fn two_failures_of_the_last_four_are_unhealthy() {
        let good = Outcome::Registered;
        let cases = [
            (vec![], Health::Unknown),
            (vec![good.clone()], Health::Healthy),
            (vec![failed()], Health::Healthy),
            (vec![failed(), failed()], unhealthy()),
            (vec![failed(), good.clone(), good.clone(), failed()], unhealthy()),
            (vec![failed(), failed(), good.clone(), good.clone(), good], Health::Healthy),
        ];
        for (outcomes, expected) in cases {
            let all = RegistrationHealth::default();
            for outcome in &outcomes {
                all.record(&"p".into(), outcome.clone());
            }
            assert_eq!(all.health(&"p".into(), (1, 1), &[]), expected, "{outcomes:?}");
        }
    }

    #[test]
    fn a_restart_continues_from_the_condition() {
        for (status, then, expected) in [
            (TRUE, failed(), Health::Healthy),
            (FALSE, Outcome::Registered, unhealthy()),
            ("Unknown", Outcome::Registered, Health::Healthy),
        ] {
            let all = RegistrationHealth::default();
            all.record(&"p".into(), then);
            assert_eq!(all.health(&"p".into(), (1, 1), &condition(status)), expected, "{status}");
        }
    }

    #[test]
    fn a_changed_node_pool_or_node_class_starts_afresh() {
        for changed in [(2, 1), (1, 2)] {
            let all = RegistrationHealth::default();
            all.health(&"p".into(), (1, 1), &condition(FALSE));
            assert_eq!(all.health(&"p".into(), (1, 1), &[]), unhealthy());
            assert_eq!(all.health(&"p".into(), changed, &condition(FALSE)), Health::Unknown);
        }
    }
}
