//! Machines of reservations that end.

use super::launches::{create, of_type, one_of};
use super::*;
use crate::background::interruptions::Watch;
use crate::labels;
use crate::node_class::spec::{InstanceMatchCriteria, Tags};
use crate::node_class::status::ReservationType;
use crate::service::ec2::CapacityReservation;

/// A world whose node class has a reservation of that kind and state.
fn world(kind: ReservationType, state: &str) -> World {
    let world = World::new();
    world.cloud.add_reservation(
        CapacityReservation {
            id: "cr-1".to_owned(),
            owner_id: "123456789012".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1b".to_owned(),
            match_criteria: InstanceMatchCriteria::Targeted,
            reservation_type: kind,
            interruptible: false,
            remaining: 1,
            ends_at: None,
        },
        Tags::new(),
    );
    world.set_state(kind, state);
    world
}

impl World {
    /// What the node class says of its reservation.
    fn set_state(&self, kind: ReservationType, state: &str) {
        let mut class = class();
        class["status"]["capacityReservations"] = json!([{
            "id": "cr-1", "availabilityZone": "us-east-1b", "instanceMatchCriteria": "targeted",
            "instanceType": "m5.large", "ownerID": "123456789012", "reservationType": kind.as_str(), "state": state,
        }]);
        self.objects.set_class(class);
    }

    /// Launches a reserved machine, and gives its NodeClaim as the controller writes it.
    async fn reserved(&self, provider: &Ec2CloudProvider) -> NodeClaim {
        let reserved = one_of(kubernetes::CAPACITY_TYPE, &["reserved"]);
        let mut claim = self.claim("kept", vec![of_type("m5.large"), reserved]);
        let made = create(provider, &claim).await.unwrap();
        claim.metadata.labels.get_or_insert_default().extend(made.labels);
        claim.status.get_or_insert_default().provider_id = made.provider_id.to_string();
        self.objects.set_claim(claim.clone());
        claim
    }

    fn watch(&self, provider: &Ec2CloudProvider) -> Watch {
        Watch {
            provider: provider.clone(),
            ec2: Arc::new(self.cloud.clone()),
            queue: None,
            objects: Arc::new(self.objects.clone()),
            clock: self.clock.clock(),
        }
    }
}

#[test]
fn a_machine_whose_reservation_is_gone_is_on_demand_once_it_is_certain() {
    let world = world(ReservationType::Default, "active");
    world.clock.run(async {
        let provider = world.provider();
        let watch = world.watch(&provider);
        let claim = world.reserved(&provider).await;
        let labels_now = || world.objects.claim("uid-of-kept").unwrap().metadata.labels.unwrap();
        let before = claim.metadata.labels.unwrap();
        assert_eq!(before[kubernetes::CAPACITY_TYPE], "reserved");
        watch.check_reservations().await.unwrap();
        assert_eq!(labels_now(), before, "it is in its reservation");
        world.cloud.end_reservation("cr-1");
        watch.check_reservations().await.unwrap();
        assert_eq!(labels_now(), before, "EC2 may not tell yet");
        tokio::time::sleep(Duration::from_secs(300)).await;
        watch.check_reservations().await.unwrap();
        let after = labels_now();
        assert_eq!(after[kubernetes::CAPACITY_TYPE], "on-demand");
        let gone: Vec<_> = before.keys().filter(|key| !after.contains_key(*key)).collect();
        assert_eq!(
            gone,
            [
                labels::CAPACITY_RESERVATION_ID,
                labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
                labels::CAPACITY_RESERVATION_TYPE
            ]
        );
        assert_eq!(world.alive().len(), 1);
    });
}

#[test]
fn a_machine_leaves_a_capacity_block_that_is_about_to_end() {
    let world = world(ReservationType::CapacityBlock, "active");
    world.clock.run(async {
        let provider = world.provider();
        let watch = world.watch(&provider);
        world.reserved(&provider).await;
        watch.check_reservations().await.unwrap();
        assert!(world.objects.claim("uid-of-kept").is_some());
        world.set_state(ReservationType::CapacityBlock, "expiring");
        watch.check_reservations().await.unwrap();
        assert_eq!(world.objects.claim("uid-of-kept"), None);
    });
}
