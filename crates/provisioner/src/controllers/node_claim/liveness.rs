//! How long a NodeClaim may take to become a Node.
//!
//! A launch must succeed within the provider's time-out (5 minutes), counted from the NodeClaim's creation; the Node
//! must register within 15 minutes of the launch. There is no time-out for initialization.
//!
//! Differs: `registration-timeout`. Karpenter counts registration from the last transition of condition Registered, so
//! a condition that goes to and fro never times out. Here only the launch counts, and a time that cannot be right (in
//! the future, or before the NodeClaim) is replaced by the NodeClaim's creation.

use api::NodeClaim;
use api::conditions::node_claim::LAUNCHED;
use model::{DurationMs, Timestamp};

use crate::runtime::conditions::{find, to_timestamp};
use crate::world::claim;

/// How long after the launch a Node must have registered.
pub(crate) const REGISTRATION_TIMEOUT: DurationMs = DurationMs::from_seconds(15 * 60);

/// Whether a NodeClaim still has time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It has come far enough.
    Registered,
    /// It has until then.
    Until(Timestamp),
    /// It is to be deleted.
    Expired(Timeout),
}

/// Which time-out has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// It was not launched.
    Launch,
    /// Its Node did not register.
    Registration,
}

impl Timeout {
    /// Label `reason` of the metric.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Launch => "launch_timeout",
            Self::Registration => "registration_timeout",
        }
    }
}

/// Looks at the NodeClaim's conditions.
pub(crate) fn decide(node_claim: &NodeClaim, launch_timeout: DurationMs, now: Timestamp) -> Liveness {
    if claim::is_registered(node_claim) {
        return Liveness::Registered;
    }
    let created = claim::created_at(node_claim);
    let (deadline, timeout) = if claim::is_launched(node_claim) {
        let launched = find(claim::conditions(node_claim), LAUNCHED)
            .map(|condition| to_timestamp(&condition.last_transition_time))
            .filter(|launched| (created..=now).contains(launched))
            .unwrap_or(created);
        (launched.saturating_add(REGISTRATION_TIMEOUT), Timeout::Registration)
    } else {
        (created.saturating_add(launch_timeout), Timeout::Launch)
    };
    if now < deadline { Liveness::Until(deadline) } else { Liveness::Expired(timeout) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LAUNCH_TIMEOUT: DurationMs = DurationMs::from_seconds(300);

    fn claim(conditions: &[(&str, &str, &str)]) -> NodeClaim {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, at)| {
                json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": at})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn launch_and_registration_have_their_own_time() {
        let launched = ("Launched", "True", "2026-01-01T00:04:00Z");
        let cases = [
            (vec![], "2026-01-01T00:04:59Z", Liveness::Until(at("2026-01-01T00:05:00Z"))),
            (vec![], "2026-01-01T00:05:00Z", Liveness::Expired(Timeout::Launch)),
            (
                vec![("Launched", "Unknown", "2026-01-01T00:04:00Z")],
                "2026-01-01T00:05:00Z",
                Liveness::Expired(Timeout::Launch),
            ),
            (vec![launched], "2026-01-01T00:05:00Z", Liveness::Until(at("2026-01-01T00:19:00Z"))),
            (vec![launched], "2026-01-01T00:19:00Z", Liveness::Expired(Timeout::Registration)),
            (
                vec![launched, ("Registered", "True", "2026-01-01T00:05:00Z")],
                "2027-01-01T00:00:00Z",
                Liveness::Registered,
            ),
        ];
        for (conditions, now, expected) in cases {
            assert_eq!(decide(&claim(&conditions), LAUNCH_TIMEOUT, at(now)), expected, "{conditions:?} {now}");
        }
    }

    #[test]
    fn odd_transition_times_do_not_keep_a_claim_alive() {
        let now = "2026-01-01T00:15:00Z";
        for odd in ["2030-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2025-12-31T23:59:59Z"] {
            let claim = claim(&[("Launched", "True", odd)]);
            assert_eq!(decide(&claim, LAUNCH_TIMEOUT, at(now)), Liveness::Expired(Timeout::Registration), "{odd}");
        }
        // Registered goes to and fro and was just set to false again.
        let flapping = claim(&[("Launched", "True", "2026-01-01T00:00:00Z"), ("Registered", "False", now)]);
        assert_eq!(decide(&flapping, LAUNCH_TIMEOUT, at(now)), Liveness::Expired(Timeout::Registration));
    }
}
