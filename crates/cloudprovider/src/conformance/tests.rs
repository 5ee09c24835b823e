use std::sync::atomic::{AtomicU32, Ordering};

use api::{NodePool, labels};
use async_trait::async_trait;
use futures::executor::block_on;

use super::*;
use crate::fake::{Defect, FakeCloudProvider};

struct FakeHooks<'a> {
    provider: &'a FakeCloudProvider,
    uids: AtomicU32,
}

#[async_trait]
impl Hooks for FakeHooks<'_> {
    fn node_pool(&self) -> NodePool {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": {
                "requirements": [],
                "nodeClassRef": {"group": "fake.example.com", "kind": "FakeNodeClass", "name": "default"},
            }}},
        }))
        .unwrap()
    }

    async fn new_claim(&self, name: &str, requirements: Vec<NodeSelectorRequirementWithMinValues>) -> NodeClaim {
        let mut claim: NodeClaim = serde_json::from_value(serde_json::json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {
                "name": name,
                "uid": format!("uid-{}", self.uids.fetch_add(1, Ordering::Relaxed)),
                "labels": {(labels::NODEPOOL): "default"},
            },
            "spec": {
                "requirements": [],
                "resources": {"requests": {"cpu": "1"}},
                "nodeClassRef": {"group": "fake.example.com", "kind": "FakeNodeClass", "name": "default"},
            },
        }))
        .unwrap();
        claim.spec.requirements = requirements;
        claim
    }

    async fn pause(&self) {}

    async fn set_has_capacity(&self, offering: &OfferingKey, has_capacity: bool) -> bool {
        self.provider.set_has_capacity(offering, has_capacity);
        true
    }
}

fn report(provider: &FakeCloudProvider) -> Report {
    block_on(run(provider, &FakeHooks { provider, uids: AtomicU32::new(0) }))
}

#[test]
fn a_provider_that_keeps_the_contract_passes_every_check() {
    let report = report(&FakeCloudProvider::default());
    assert_eq!(report.failed(), [] as [&str; 0], "{report}");
    assert_eq!(report.skipped(), [] as [&str; 0], "{report}");
}

#[test]
fn each_defect_is_found_by_the_check_that_names_it() {
    let cases: &[(Defect, &str)] = &[
        (Defect::TypeListedTwice, "instance_type_names_are_unique_and_ordered"),
        (Defect::TypeWithoutArchitecture, "instance_types_carry_the_labels_of_kubernetes"),
        (Defect::NothingAllocatable, "capacity_leaves_room_for_pods"),
        (Defect::OfferingListedTwice, "offerings_are_unique"),
        (Defect::OfferingInForeignZone, "offerings_agree_with_their_type"),
        (Defect::NegativePrice, "prices_are_not_negative"),
        (Defect::ReservedWithoutReservation, "reserved_offerings_name_their_reservation"),
        (Defect::UndeclaredLabel, "labels_of_instance_types_are_well_known"),
        (Defect::RestlessGeneration, "the_generation_changes_with_the_instance_types"),
        (Defect::TwoRepairFallbacks, "its_repair_policies_are_valid"),
        (Defect::EveryNodeClassReady, "an_absent_node_class_is_not_ready"),
        (Defect::TokenIgnored, "create_with_the_same_token_gives_the_same_instance"),
        (Defect::TokenCheckedTooEarly, "create_twice_at_once_launches_one_instance"),
        (Defect::RequirementsIgnored, "create_meets_requirements_and_requests"),
        (Defect::CorrectionsIgnored, "corrected_prices_decide_what_is_launched"),
        (Defect::OneInstanceForAll, "every_claim_gets_its_own_instance"),
        (Defect::ListWithoutTokens, "get_list_and_find_agree_with_create"),
        (Defect::GetDisagrees, "get_list_and_find_agree_with_create"),
        (Defect::DeleteNeverEnds, "delete_can_be_repeated_and_ends_in_not_found"),
        (Defect::DeleteOfNothingSucceeds, "delete_can_be_repeated_and_ends_in_not_found"),
        (Defect::NoCapacityIsTransient, "what_no_offering_can_meet_is_insufficient_capacity"),
        (Defect::NoCapacityWithoutOfferings, "an_offering_without_machines_is_named"),
        (Defect::NoCapacityTriedAgain, "an_offering_without_machines_is_passed_over"),
        (Defect::AlwaysDrifted, "a_fresh_instance_has_not_drifted"),
        (Defect::RebootOnlyOnce, "reboot_is_accepted_again_or_not_implemented"),
    ];
    for (defect, check) in cases {
        let report = report(&FakeCloudProvider::with_defect(*defect));
        assert!(report.failed().contains(check), "{defect:?} passed {check}:\n{report}");
    }
}

#[test]
fn a_launch_whose_answer_is_lost_after_the_token_was_ignored_is_found() {
    let report = report(&FakeCloudProvider::with_defect(Defect::TokenIgnored));
    assert!(report.failed().contains(&"create_after_a_lost_answer_launches_one_instance"), "{report}");
}

#[test]
fn a_machine_that_cannot_be_removed_is_reported() {
    let report = report(&FakeCloudProvider::with_defect(Defect::DeleteNeverEnds));
    assert!(report.failed().contains(&"nothing_is_left_behind"), "{report}");
}
