//! Status conditions as Karpenter writes them (the rules of `awslabs/operatorpkg`).
//!
//! A condition's transition time moves only when its status does. Conditions that `Ready` depends on exist from the
//! start, as unknown, since the object was created; `Ready` follows them ([`conditions::ready`]).

use api::conditions::{self, AWAITING_RECONCILIATION, FALSE, READY, TRUE, UNKNOWN};
pub(crate) use api::conditions::{find, is_false, is_true};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff;
use model::Timestamp;

/// The conditions of one object, while they are changed.
#[derive(Debug)]
pub(crate) struct ConditionSet<'a> {
    conditions: &'a mut Vec<Condition>,
    depends_on: &'static [&'static str],
    generation: i64,
    created_at: Time,
    deleting: bool,
    now: Timestamp,
}

impl<'a> ConditionSet<'a> {
    /// The conditions of the object with that metadata, completed by those that `Ready` depends on.
    pub(crate) fn of(
        conditions: &'a mut Vec<Condition>,
        metadata: &ObjectMeta,
        depends_on: &'static [&'static str],
        now: Timestamp,
    ) -> Self {
        let mut set = Self {
            conditions,
            depends_on,
            generation: metadata.generation.unwrap_or_default(),
            created_at: metadata.creation_timestamp.clone().unwrap_or_else(|| to_time(now)),
            deleting: metadata.deletion_timestamp.is_some(),
            now,
        };
        for condition in std::iter::once(READY).chain(depends_on.iter().copied()) {
            if set.get(condition).is_none() {
                set.set_unknown(condition, AWAITING_RECONCILIATION, "object is awaiting reconciliation");
            }
        }
        set
    }

    /// The conditions of an object that has no `Ready`.
    pub(crate) fn without_ready(conditions: &'a mut Vec<Condition>, metadata: &ObjectMeta, now: Timestamp) -> Self {
        Self {
            conditions,
            depends_on: &[],
            generation: metadata.generation.unwrap_or_default(),
            created_at: metadata.creation_timestamp.clone().unwrap_or_else(|| to_time(now)),
            deleting: metadata.deletion_timestamp.is_some(),
            now,
        }
    }

    /// The condition of that type.
    pub(crate) fn get(&self, condition_type: &str) -> Option<&Condition> {
        find(self.conditions, condition_type)
    }

    /// Sets a condition to true; its reason is its type.
    pub(crate) fn set_true(&mut self, condition_type: &str) -> bool {
        self.set(condition_type, TRUE, condition_type, "")
    }

    /// Sets a condition to true for a reason of its own.
    pub(crate) fn set_true_because(&mut self, condition_type: &str, reason: &str, message: &str) -> bool {
        self.set(condition_type, TRUE, reason, message)
    }

    /// Sets a condition to false.
    pub(crate) fn set_false(&mut self, condition_type: &str, reason: &str, message: &str) -> bool {
        self.set(condition_type, FALSE, reason, message)
    }

    /// Sets a condition to unknown.
    pub(crate) fn set_unknown(&mut self, condition_type: &str, reason: &str, message: &str) -> bool {
        self.set(condition_type, UNKNOWN, reason, message)
    }

    /// Removes a condition that `Ready` does not depend on.
    pub(crate) fn clear(&mut self, condition_type: &str) -> bool {
        let count = self.conditions.len();
        if !self.is_dependent(condition_type) {
            self.conditions.retain(|condition| condition.type_ != condition_type);
        }
        self.conditions.len() != count
    }

    /// Says whether anything changed.
    fn set(&mut self, condition_type: &str, status: &str, reason: &str, message: &str) -> bool {
        let known = self.get(condition_type);
        let last_transition_time = match known {
            Some(known) if known.status == status => known.last_transition_time.clone(),
            Some(_) => to_time(self.now),
            None if self.is_dependent(condition_type) => self.created_at.clone(),
            None => to_time(self.now),
        };
        let wanted = Condition {
            type_: condition_type.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: Some(self.generation),
            last_transition_time,
        };
        if known == Some(&wanted) {
            return false;
        }
        self.conditions.retain(|condition| condition.type_ != condition_type);
        if self.deleting {
            for condition in self.conditions.iter_mut() {
                condition.observed_generation = Some(self.generation);
            }
        }
        self.conditions.push(wanted);
        self.conditions.sort_by(|a, b| {
            let is_root = |condition: &Condition| condition.type_ == READY;
            is_root(a).cmp(&is_root(b)).then_with(|| a.last_transition_time.cmp(&b.last_transition_time))
        });
        if condition_type != READY && self.get(READY).is_some() {
            self.recompute_ready();
        }
        true
    }

    fn is_dependent(&self, condition_type: &str) -> bool {
        condition_type == READY || self.depends_on.contains(&condition_type)
    }

    fn recompute_ready(&mut self) {
        let depends_on = |condition: &&Condition| self.depends_on.contains(&condition.type_.as_str());
        let mut dependents: Vec<&Condition> = self.conditions.iter().filter(depends_on).collect();
        dependents.sort_by(|a, b| b.last_transition_time.cmp(&a.last_transition_time));
        let (status, reason, message) = conditions::ready(dependents, self.generation);
        self.set(READY, status, reason, &message);
    }
}

/// Whether both have the same conditions in the same states, and say differently why some of them are unknown.
pub(crate) fn differ_in_reasons_only(before: &[Condition], after: &[Condition]) -> bool {
    let was = |condition: &Condition| find(before, &condition.type_);
    let is_explained = |condition: &Condition| {
        was(condition).is_some_and(|was| was == condition || (was.status == UNKNOWN && condition.status == UNKNOWN))
    };
    before.len() == after.len() && before != after && after.iter().all(is_explained)
}

/// Whether the API server takes the text as a condition's reason.
pub(crate) fn is_reason(text: &str) -> bool {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let ends = text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_');
    starts
        && ends
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte))
        && text.len() <= 1024
}

/// A point in time as the API has it. The API keeps whole seconds.
pub(crate) fn to_time(timestamp: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(timestamp.0.div_euclid(1000)).unwrap_or_default())
}

/// A point in time as the core has it.
pub(crate) fn to_timestamp(time: &Time) -> Timestamp {
    Timestamp(time.0.as_millisecond())
}

#[cfg(test)]
mod tests {
    use api::conditions::node_claim::{INITIALIZED, LAUNCHED, READY_DEPENDS_ON, REGISTERED};

    use super::*;

    fn metadata(generation: i64) -> ObjectMeta {
        ObjectMeta {
            generation: Some(generation),
            creation_timestamp: Some(to_time(Timestamp::from_seconds(100))),
            ..ObjectMeta::default()
        }
    }

    fn at(seconds: i64, conditions: &mut Vec<Condition>, change: impl FnOnce(&mut ConditionSet<'_>)) {
        change(&mut ConditionSet::of(conditions, &metadata(1), &READY_DEPENDS_ON, Timestamp::from_seconds(seconds)));
    }

    fn line(condition: &Condition) -> String {
        let since = condition.last_transition_time.0.as_second();
        format!("{}={} {} since {since}", condition.type_, condition.status, condition.reason)
    }

    #[test]
    fn a_new_object_awaits_reconciliation_since_its_creation() {
        let mut conditions = Vec::new();
        at(200, &mut conditions, |_| {});
        let lines: Vec<_> = conditions.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "Launched=Unknown AwaitingReconciliation since 100",
                "Registered=Unknown AwaitingReconciliation since 100",
                "Initialized=Unknown AwaitingReconciliation since 100",
                "Ready=Unknown ReconcilingDependents since 100",
            ]
        );
        assert_eq!(conditions[3].message, "Launched=Unknown, Registered=Unknown, Initialized=Unknown");
    }

    #[test]
    fn ready_follows_the_conditions_it_depends_on() {
        let mut conditions = Vec::new();
        at(200, &mut conditions, |set| {
            set.set_true(LAUNCHED);
            set.set_false(REGISTERED, "MultipleNodesFound", "two");
        });
        assert_eq!(line(find(&conditions, READY).unwrap()), "Ready=False UnhealthyDependents since 200");
        at(300, &mut conditions, |set| {
            set.set_true(REGISTERED);
            set.set_true(INITIALIZED);
        });
        assert_eq!(line(conditions.last().unwrap()), "Ready=True Ready since 300");
    }

    #[test]
    fn a_new_reason_keeps_the_transition_time_and_the_same_again_changes_nothing() {
        let mut conditions = Vec::new();
        at(200, &mut conditions, |set| assert!(set.set_unknown(REGISTERED, "NodeNotFound", "m")));
        assert_eq!(line(find(&conditions, REGISTERED).unwrap()), "Registered=Unknown NodeNotFound since 100");
        let before = conditions.clone();
        at(300, &mut conditions, |set| assert!(!set.set_unknown(REGISTERED, "NodeNotFound", "m")));
        assert_eq!(conditions, before);
    }

    #[test]
    fn only_another_reason_of_an_unknown_condition_is_an_explanation() {
        let mut before = Vec::new();
        at(200, &mut before, |set| assert!(set.set_true(LAUNCHED)));
        let explains = |change: &dyn Fn(&mut ConditionSet<'_>)| {
            let mut after = before.clone();
            at(300, &mut after, change);
            differ_in_reasons_only(&before, &after)
        };
        assert!(explains(&|set| assert!(set.set_unknown(REGISTERED, "NodeNotFound", "m"))));
        assert!(!explains(&|_| {}), "nothing is new");
        assert!(!explains(&|set| assert!(set.set_true(REGISTERED))));
        assert!(!explains(&|set| assert!(set.set_true_because(LAUNCHED, "Otherwise", "m"))));
        assert!(!explains(&|set| assert!(set.set_unknown("Another", "R", "m"))));
    }

    #[test]
    fn a_true_condition_of_an_earlier_generation_does_not_make_ready() {
        let mut conditions = Vec::new();
        at(200, &mut conditions, |set| {
            set.set_true(LAUNCHED);
            set.set_true(REGISTERED);
        });
        ConditionSet::of(&mut conditions, &metadata(2), &READY_DEPENDS_ON, Timestamp::from_seconds(300))
            .set_true(INITIALIZED);
        assert!(!is_true(&conditions, READY));
    }

    #[test]
    fn only_conditions_that_ready_does_not_need_can_be_cleared() {
        let mut conditions = Vec::new();
        at(200, &mut conditions, |set| {
            set.set_true("Drifted");
            assert!(set.clear("Drifted"));
            assert!(!set.clear("Drifted"));
            assert!(!set.clear(LAUNCHED));
        });
        assert!(find(&conditions, LAUNCHED).is_some());
    }
}
