//! The buckets of an account that EC2 throttles by. Calls to other services are not throttled here.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Timestamp;

use crate::service::throttling::{Bucket, LAUNCH_CALLS, LAUNCHED_MACHINES, Tokens};

const fn size(most: u32, each_second: u32) -> Tokens {
    Tokens { most, each_second }
}

/// A bucket's name and size.
type Named = (&'static str, Tokens);

/// The bucket of a call, and that of the resources which it is about. `CreateFleet` launches as `RunInstances` does and
/// has its buckets.
fn buckets_of(call: &str) -> Option<(Named, Option<Named>)> {
    let action = call.strip_prefix("ec2:")?;
    Some(match action {
        "CreateFleet" => (("launch", LAUNCH_CALLS), Some(("launched", LAUNCHED_MACHINES))),
        "TerminateInstances" => (("terminate", size(100, 5)), Some(("terminated", size(1000, 20)))),
        "CreateTags" => (("tag", size(100, 10)), None),
        _ if action.starts_with("Describe") => (("describe", size(100, 20)), None),
        _ => (("mutate", size(50, 5)), None),
    })
}

/// All buckets of the account.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    by_name: BTreeMap<&'static str, Bucket>,
}

impl Buckets {
    /// Whether the call may be made now that is about so many resources. What is refused takes nothing.
    pub(super) fn take(&mut self, call: &str, resources: u32, now: Timestamp) -> bool {
        let Some((of_call, of_resources)) = buckets_of(call) else { return true };
        let now = Duration::from_millis(u64::try_from(now.0).unwrap_or(0));
        let wanted = || [Some((of_call, 1)), of_resources.map(|bucket| (bucket, resources))].into_iter().flatten();
        for ((name, size), tokens) in wanted() {
            if !self.bucket(name, size).wait(tokens, now).is_zero() {
                return false;
            }
        }
        wanted().for_each(|((name, size), tokens)| self.bucket(name, size).take(tokens, now));
        true
    }

    fn bucket(&mut self, name: &'static str, size: Tokens) -> &mut Bucket {
        self.by_name.entry(name).or_insert_with(|| Bucket::full(size))
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
