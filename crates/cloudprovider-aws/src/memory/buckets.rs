//! How EC2 throttles: each account has buckets of tokens that are refilled every second.
//!
//! Sizes are those that "Request throttling for the Amazon EC2 API" of EC2's developer guide gives; `CreateFleet`
//! launches as `RunInstances` does and has its buckets. Calls to other services are not throttled here.

use std::collections::BTreeMap;

use model::Timestamp;

use crate::service::ec2::{LAUNCH_CALLS, Tokens};

const fn size(most: u32, each_second: u32) -> Tokens {
    Tokens { most, each_second }
}

/// A bucket's name and size.
type Bucket = (&'static str, Tokens);

/// The bucket of a call, and that of the resources which it is about.
fn buckets_of(call: &str) -> Option<(Bucket, Option<Bucket>)> {
    let action = call.strip_prefix("ec2:")?;
    Some(match action {
        "CreateFleet" => (("launch", LAUNCH_CALLS), Some(("launched", size(1000, 2)))),
        "TerminateInstances" => (("terminate", size(100, 5)), Some(("terminated", size(1000, 20)))),
        "CreateTags" => (("tag", size(100, 10)), None),
        _ if action.starts_with("Describe") => (("describe", size(100, 20)), None),
        _ => (("mutate", size(50, 5)), None),
    })
}

/// What a bucket has, in thousandths of tokens, and when that was so.
#[derive(Debug, Clone, Copy)]
struct Level {
    thousandths: u64,
    at: Timestamp,
}

/// All buckets of the account.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    levels: BTreeMap<&'static str, Level>,
}

impl Buckets {
    /// Whether the call may be made now that is about so many resources. What is refused takes nothing.
    pub(super) fn take(&mut self, call: &str, resources: u32, now: Timestamp) -> bool {
        let Some((of_call, of_resources)) = buckets_of(call) else { return true };
        let wanted = [Some((of_call, 1)), of_resources.map(|bucket| (bucket, resources))];
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        for ((name, size), _) in &wanted {
            self.refill(name, *size, now);
        }
        let has = |((name, _), tokens): &(Bucket, u32)| {
            self.levels.get(name).is_some_and(|level| level.thousandths >= u64::from(*tokens) * 1000)
        };
        if !wanted.iter().all(has) {
            return false;
        }
        for ((name, _), tokens) in wanted {
            if let Some(level) = self.levels.get_mut(name) {
                level.thousandths -= u64::from(tokens) * 1000;
            }
        }
        true
    }

    fn refill(&mut self, name: &'static str, size: Tokens, now: Timestamp) {
        let most = u64::from(size.most) * 1000;
        let level = self.levels.entry(name).or_insert(Level { thousandths: most, at: now });
        let passed_ms = u64::try_from(now.since(level.at).0).unwrap_or(0);
        level.thousandths = most.min(level.thousandths + passed_ms * u64::from(size.each_second));
        level.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(buckets: &mut Buckets, call: &str, resources: u32, now: i64) -> u32 {
        (0..2000).take_while(|_| buckets.take(call, resources, Timestamp(now))).map(|_| 1).sum()
    }

    #[test]
    fn a_bucket_gives_what_it_holds_and_is_refilled_by_the_second() {
        let mut buckets = Buckets::default();
        assert_eq!(taken(&mut buckets, "ec2:CreateFleet", 1, 0), 5);
        assert_eq!(taken(&mut buckets, "ec2:CreateFleet", 1, 499), 0);
        assert_eq!(taken(&mut buckets, "ec2:CreateFleet", 1, 1000), 2);
        assert_eq!(taken(&mut buckets, "ec2:DescribeSubnets", 0, 1000), 100);
        assert_eq!(taken(&mut buckets, "ec2:DescribeInstances", 0, 1000), 0, "what describes shares a bucket");
        assert_eq!(taken(&mut buckets, "iam:GetRole", 0, 1000), 2000);
    }

    #[test]
    fn machines_are_counted_beside_calls() {
        let mut buckets = Buckets::default();
        assert!(buckets.take("ec2:CreateFleet", 1000, Timestamp(0)));
        assert!(!buckets.take("ec2:CreateFleet", 1, Timestamp(0)));
        assert!(buckets.take("ec2:CreateFleet", 2, Timestamp(1000)));
    }
}
