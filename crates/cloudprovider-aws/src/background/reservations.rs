//! Machines of reservations: they leave a capacity block before it ends, and are on demand once they are in no
//! reservation any more. `pkg/controllers/capacityreservation` of karpenter-provider-aws 1.15.
//!
//! Differs: `demotion-removes-all-labels`. Karpenter leaves the label that says whether the reservation can be
//! interrupted.

use std::collections::BTreeMap;

use api::{NodeClaim, labels as kubernetes};
use model::{DurationMs, Timestamp};
use serde_json::Value;
use tracing::info;

use super::interruptions::{Ending, Failed, Watch};
use crate::labels;
use crate::node_class::status::{CapacityReservation, ReservationState};

/// Why machines are given up, in the log.
const BLOCK_ENDS: &str = "capacity_block_expiring";
/// How long before the end of a capacity block EC2 begins to end its machines.
const TAKEN_BEFORE: DurationMs = DurationMs::from_seconds(30 * 60);
/// A machine's reservation may not be told of for so long after its launch.
const SETTLED: DurationMs = DurationMs::from_seconds(5 * 60);
/// The labels of a machine that is in no reservation any more.
const ON_DEMAND: [(&str, Option<&str>); 4] = [
    (kubernetes::CAPACITY_TYPE, Some(kubernetes::CAPACITY_TYPE_ON_DEMAND)),
    (labels::CAPACITY_RESERVATION_ID, None),
    (labels::CAPACITY_RESERVATION_TYPE, None),
    (labels::CAPACITY_RESERVATION_INTERRUPTIBLE, None),
];

impl Watch {
    /// Gives up machines whose capacity block is about to end, which EC2 takes half an hour before the end, and
    /// relabels those whose reservation is gone: they run on, and cost what they cost on demand.
    pub(crate) async fn check_reservations(&self) -> Result<(), Failed> {
        let mut reserved = self.claims().await?;
        reserved.retain(|_, claim| is_reserved(claim));
        if reserved.is_empty() {
            return Ok(());
        }
        let expiring = expiring(&self.objects.node_classes().await?);
        for claim in reserved.values() {
            let ends_at = label(claim, labels::CAPACITY_RESERVATION_ID).and_then(|id| expiring.get(id));
            if let Some(ends_at) = ends_at {
                let taken_at = ends_at.map(|ends_at| ends_at.saturating_sub(TAKEN_BEFORE));
                self.end(claim, BLOCK_ENDS, Ending::Drained(taken_at)).await?;
            }
        }
        let all = self.provider.all_machines();
        let machines = self.ec2.describe_instances(&all).await.map_err(|error| self.failed(error))?;
        let now = (self.clock)();
        for machine in machines {
            let is_settled = now.since(machine.launched_at) >= SETTLED;
            if let Some(claim) = reserved.get(&machine.id)
                && machine.capacity_reservation_id.is_none()
                && is_settled
            {
                self.objects.relabel(claim, &ON_DEMAND).await?;
                info!(node_claim = claim.metadata.name, machine = machine.id, "a machine's reservation is gone");
            }
        }
        Ok(())
    }
}

fn label<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn is_reserved(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_none()
        && label(claim, kubernetes::CAPACITY_TYPE) == Some(kubernetes::CAPACITY_TYPE_RESERVED)
}

/// The reservations that node classes say are about to end, and when.
fn expiring(classes: &[Value]) -> BTreeMap<String, Option<Timestamp>> {
    let all = classes.iter().filter_map(|class| class.pointer("/status/capacityReservations")?.as_array()).flatten();
    let read = all.filter_map(|it| serde_json::from_value::<CapacityReservation>(it.clone()).ok());
    let expiring = read.filter(|it| it.state == ReservationState::Expiring);
    expiring.map(|it| (it.id, it.end_time.map(|at| Timestamp(at.0.as_millisecond())))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reservations_expire_that_a_node_class_says_of_and_what_cannot_be_read_says_nothing() {
        let reservation = |id: &str, state: &str, ends: Option<&str>| {
            json!({
                "id": id, "state": state, "availabilityZone": "a", "instanceMatchCriteria": "targeted",
                "instanceType": "p5.48xlarge", "ownerID": "123456789012", "reservationType": "capacity-block",
                "endTime": ends,
            })
        };
        let ends = "2026-01-01T11:30:00Z";
        let all = json!([
            reservation("cr-1", "expiring", Some(ends)), reservation("cr-2", "active", Some(ends)), {"id": "cr-3"},
            reservation("cr-4", "expiring", None),
        ]);
        let classes = [json!({"status": {"capacityReservations": all}}), json!({})];
        let expected = [("cr-1".to_owned(), Timestamp::parse(ends).ok()), ("cr-4".to_owned(), None)];
        assert_eq!(expiring(&classes), BTreeMap::from(expected));
    }
}
