//! What becomes of a machine whose NodeClaim is `expireAfter` old.
//!
//! Karpenter's way is forceful: the NodeClaim is deleted, nothing is launched before, and no budget counts. The
//! graceful way makes it a machine that disruption replaces, as one that has drifted: what its pods need is launched
//! first, and budgets count. That ends with a deadline, after which it goes by force: `expireAfter` is there to bound
//! how old a machine gets.
//!
//! Differs: `graceful-expiration`. Karpenter has no such way.

use model::{DurationMs, Timestamp};

/// What an expired machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ExpirationPolicy {
    /// Deleted at once.
    #[default]
    Forceful,
    /// Replaced by disruption, up to a deadline.
    Graceful,
}

impl ExpirationPolicy {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Forceful, Self::Graceful];

    /// As option and annotation have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forceful => "Forceful",
            Self::Graceful => "Graceful",
        }
    }

    /// The policy of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text)
    }
}

/// By which rules machines expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpirationRules {
    /// The policy of NodePools that have none of their own.
    pub policy: ExpirationPolicy,
    /// How long a machine is replaced the graceful way before it is deleted.
    pub graceful_for: DurationMs,
}

impl Default for ExpirationRules {
    fn default() -> Self {
        Self { policy: ExpirationPolicy::Forceful, graceful_for: DurationMs::from_seconds(24 * 3600) }
    }
}

/// What becomes of a machine now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiration {
    /// Nothing before that time.
    At(Timestamp),
    /// It is replaced, since its time was over.
    Graceful {
        /// When that was.
        since: Timestamp,
        /// When it is deleted if it is there still.
        until: Timestamp,
    },
    /// It is deleted.
    Due,
}

impl ExpirationRules {
    /// What becomes of a machine that expires at that time, of a NodePool with such a policy of its own.
    pub fn decide(self, expires_at: Timestamp, of_pool: Option<ExpirationPolicy>, now: Timestamp) -> Expiration {
        let until = match of_pool.unwrap_or(self.policy) {
            ExpirationPolicy::Forceful => expires_at,
            ExpirationPolicy::Graceful => expires_at.saturating_add(self.graceful_for),
        };
        if now < expires_at {
            Expiration::At(expires_at)
        } else if now < until {
            Expiration::Graceful { since: expires_at, until }
        } else {
            Expiration::Due
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_past_its_time_is_replaced_up_to_a_deadline_if_that_is_wanted_and_deleted_else() {
        use ExpirationPolicy::{Forceful, Graceful};
        let at = Timestamp::from_seconds;
        let cases = [
            (Forceful, None, 99, Expiration::At(at(100))),
            (Forceful, None, 100, Expiration::Due),
            (Graceful, None, 99, Expiration::At(at(100))),
            (Graceful, None, 100, Expiration::Graceful { since: at(100), until: at(160) }),
            (Graceful, None, 159, Expiration::Graceful { since: at(100), until: at(160) }),
            (Graceful, None, 160, Expiration::Due),
            (Graceful, Some(Forceful), 100, Expiration::Due),
            (Forceful, Some(Graceful), 100, Expiration::Graceful { since: at(100), until: at(160) }),
        ];
        for (policy, of_pool, now, expected) in cases {
            let rules = ExpirationRules { policy, graceful_for: DurationMs::from_seconds(60) };
            assert_eq!(rules.decide(at(100), of_pool, at(now)), expected, "{policy:?} {of_pool:?} {now}");
        }
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        assert_eq!(
            ExpirationPolicy::ALL.map(|policy| ExpirationPolicy::parse(policy.as_str()).unwrap()),
            ExpirationPolicy::ALL
        );
        assert_eq!(ExpirationPolicy::parse("graceful"), None);
    }
}
