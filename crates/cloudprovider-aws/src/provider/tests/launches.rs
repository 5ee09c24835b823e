//! Launches, and what crashes and other controllers do to them.

use std::collections::BTreeSet;

use api::Operator;
use cloudprovider::{CapacityType, InstanceState};
use futures::future::join_all;

use super::*;
use crate::labels;
use crate::node_class::kubelet::Expressions;
use crate::node_class::spec::{InstanceMatchCriteria, Tags};
use crate::node_class::status::ReservationType;
use crate::service::ec2::{CapacityReservation, Query};

pub(super) fn one_of(key: &str, values: &[&str]) -> NodeSelectorRequirementWithMinValues {
    NodeSelectorRequirementWithMinValues {
        key: key.to_owned(),
        operator: Operator::In,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        min_values: None,
    }
}

pub(super) fn of_type(instance_type: &str) -> NodeSelectorRequirementWithMinValues {
    one_of(kubernetes::INSTANCE_TYPE, &[instance_type])
}

pub(super) fn on_demand() -> NodeSelectorRequirementWithMinValues {
    one_of(kubernetes::CAPACITY_TYPE, &["on-demand"])
}

fn token(claim: &NodeClaim) -> Uid {
    claim.metadata.uid.as_deref().unwrap_or_default().into()
}

pub(super) async fn create(provider: &Ec2CloudProvider, claim: &NodeClaim) -> Result<Instance, Error> {
    Patient(provider).create(CreateRequest { claim, token: &token(claim), instance_types: None }).await
}

fn instance_id(instance: &Instance) -> String {
    MachineId::parse(&instance.provider_id).unwrap().instance
}

pub(super) fn offering(instance_type: &str, letter: &str, capacity_type: CapacityType) -> OfferingKey {
    OfferingKey {
        instance_type: instance_type.into(),
        zone: format!("us-east-1{letter}"),
        capacity_type,
        reservation_id: None,
    }
}

/// Some equal claims and some that are not.
fn claims(world: &World) -> Vec<NodeClaim> {
    let names = [("a", "m5.large"), ("b", "m5.large"), ("c", "c5.large"), ("d", "m5.large")];
    names.map(|(name, instance_type)| world.claim(name, vec![of_type(instance_type)])).into()
}

#[test]
fn equal_launches_are_one_call() {
    let world = World::new();
    let claims: Vec<_> =
        (0..100).map(|index| world.claim(&format!("claim-{index}"), vec![of_type("m5.large")])).collect();
    let made = world.clock.run(async {
        let provider = world.provider();
        join_all(claims.iter().map(|claim| create(&provider, claim))).await
    });
    let ids: BTreeSet<_> = made.iter().map(|made| instance_id(made.as_ref().unwrap())).collect();
    assert_eq!((ids.len(), world.cloud.calls("ec2:CreateFleet"), world.cloud.templates()), (100, 1, 1));
}

#[test]
fn a_machine_is_told_what_was_computed_for_its_type() {
    let mut world = World::new();
    world.machines.expressions = Expressions::Allowed;
    let mut class = class();
    class["spec"]["kubelet"] = json!({
        "maxPods": "min(max_pods, vcpus * 8)",
        "kubeReserved": {"cpu": "vcpus * 30", "memory": "memory_mib / 100"},
        "systemReserved": {"memory": "128Mi", "pid": "memory_mib < 5000 ? 100 : -1"},
    });
    world.objects.set_class(class);
    let claims = [("a", "m5.large"), ("b", "c5.large")];
    let claims = claims.map(|(name, instance_type)| world.claim(name, vec![of_type(instance_type), on_demand()]));
    let made = world.clock.run(async {
        let provider = world.provider();
        join_all(claims.iter().map(|claim| create(&provider, claim))).await
    });
    let told = made.iter().map(|made| world.cloud.user_data(&instance_id(made.as_ref().unwrap())).unwrap());
    let told: Vec<_> = told.collect();
    assert_eq!(world.cloud.templates(), 2);
    for (told, expected) in told.iter().zip([
        ["maxPods: 16", "cpu: 60m", "memory: 96Mi", "memory: 128Mi"].as_slice(),
        ["maxPods: 16", "cpu: 60m", "memory: 48Mi", "memory: 128Mi", "pid: \"100\""].as_slice(),
    ]) {
        for line in expected {
            assert!(told.contains(line), "{line}: {told}");
        }
        assert!(!told.contains("vcpus"), "{told}");
    }
    // What fails on a type is not said there.
    assert!(!told[0].contains("pid"), "{}", told[0]);
}

/// Crashes after so many steps, starts again, and looks at what is there. Tells whether the launches were not done
/// before.
fn crash_after(steps: u64, deleted: Option<&str>) -> bool {
    let world = World::new();
    let claims = claims(&world);
    let fuse = Fuse::after(steps);
    world.clock.run(async {
        let provider = world.provider_with(&fuse);
        let all = join_all(claims.iter().map(|claim| create(&provider, claim)));
        // What hangs for so long has crashed.
        let _ = tokio::time::timeout(Duration::from_secs(300), all).await;
    });
    if let Some(name) = deleted {
        world.objects.remove_claim(&format!("uid-of-{name}"));
    }
    world.clock.run(async {
        let provider = world.provider();
        let is_there = |claim: &&NodeClaim| world.objects.claim(&token(claim)).is_some();
        let mut ids = BTreeSet::new();
        for claim in claims.iter().filter(is_there) {
            let made = create(&provider, claim).await.unwrap();
            world.launched(&token(claim), &made.provider_id);
            assert!(ids.insert(instance_id(&made)), "one machine for two claims, after {steps} steps");
        }
        // Whoever is not there any more has at most one machine, and its token tells that it may go.
        let known = claims.iter().map(token).collect::<BTreeSet<_>>();
        let mut listed = BTreeMap::new();
        for instance in provider.list().await.unwrap() {
            let of = instance.token.clone().expect("a machine has the token of its launch");
            assert!(known.contains(&of));
            assert!(listed.insert(of.clone(), instance_id(&instance)).is_none(), "two machines for {of}");
            assert_eq!(provider.find(&of).await.unwrap().provider_id, instance.provider_id);
            if world.objects.claim(&of).is_none() {
                provider.delete(&instance.provider_id).await.unwrap();
            }
        }
        assert!(ids.iter().all(|id| listed.values().any(|other| other == id)));
        assert_eq!(world.alive().into_iter().collect::<BTreeSet<_>>(), ids, "after {steps} steps");
        for _ in 0..40 {
            provider.tidy().await.unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let left: Vec<_> = world.objects.documents().into_keys().filter(|name| name.contains("launch-")).collect();
        assert_eq!(left, [] as [&str; 0], "after {steps} steps");
        // Now the machines themselves say whose they are.
        for instance in world.provider().list().await.unwrap() {
            assert_eq!(listed.get(instance.token.as_ref().unwrap()), Some(&instance_id(&instance)));
        }
    });
    fuse.has_blown()
}

#[test]
fn a_crash_at_any_step_leaks_no_machine_and_launches_none_twice() {
    let mut steps = 0;
    while crash_after(steps, None) {
        steps += 1;
    }
    assert!(steps > 20, "there are more steps than {steps}");
}

#[test]
fn a_claim_that_is_deleted_while_the_controller_is_away_leaves_a_machine_that_is_found_and_removed() {
    let mut steps = 0;
    while crash_after(steps, Some("b")) {
        steps += 1;
    }
    assert!(steps > 20, "there are more steps than {steps}");
}

#[test]
fn two_controllers_at_once_launch_one_machine_for_a_claim() {
    for head_start in 0..60 {
        let world = World::new();
        let claims = claims(&world);
        world.clock.run(async {
            let (old, new) = (world.provider(), world.provider());
            let of_old = join_all(claims.iter().map(|claim| create(&old, claim)));
            let of_new = async {
                tokio::time::sleep(Duration::from_millis(head_start)).await;
                join_all(claims.iter().map(|claim| create(&new, claim))).await
            };
            let (of_old, of_new) = futures::join!(of_old, of_new);
            for (one, other) in of_old.into_iter().zip(of_new) {
                assert_eq!(one.unwrap().provider_id, other.unwrap().provider_id);
            }
        });
        assert_eq!(world.alive().len(), claims.len(), "{head_start}");
    }
}

#[test]
fn a_stock_out_is_named_and_not_asked_for_again_until_it_has_decayed() {
    let world = World::new();
    let empty = offering("m5.large", "a", CapacityType::OnDemand);
    world.cloud.set_stock(&empty, Some(0));
    let claim = |name: &str| {
        world.claim(name, vec![of_type("m5.large"), on_demand(), one_of(kubernetes::ZONE, &["us-east-1a"])])
    };
    world.clock.run(async {
        let provider = world.provider();
        let refused = create(&provider, &claim("first")).await.unwrap_err();
        assert!(matches!(&refused, Error::InsufficientCapacity { offerings, .. } if *offerings == [empty.clone()]));
        let refused = create(&provider, &claim("second")).await.unwrap_err();
        assert!(matches!(&refused, Error::InsufficientCapacity { offerings, .. } if *offerings == [empty.clone()]));
        assert_eq!(world.cloud.calls("ec2:CreateFleet"), 1);
        let is_available = async || {
            let types = provider.instance_types(&node_pool()).await.unwrap();
            let m5 = types.types.iter().find(|it| it.name == "m5.large").unwrap();
            let offering = m5.offerings.iter().find(|it| it.key(&m5.name) == empty).unwrap();
            (offering.available, types.generation)
        };
        let before = is_available().await;
        provider.tidy().await.unwrap();
        tokio::time::sleep(Duration::from_secs(100)).await;
        // Another controller knows what this one found out.
        let next = world.provider();
        next.tidy().await.unwrap();
        assert!(create(&next, &claim("third")).await.is_err());
        assert_eq!(world.cloud.calls("ec2:CreateFleet"), 1);
        tokio::time::sleep(Duration::from_secs(100)).await;
        let after = is_available().await;
        assert_eq!((before.0, after.0), (false, true));
        assert_ne!(before.1, after.1);
        world.cloud.set_stock(&empty, None);
        create(&provider, &claim("fourth")).await.unwrap();
    });
}

#[test]
fn a_batch_that_is_answered_with_too_few_gives_each_machine_away_once() {
    let world = World::new();
    for letter in ["a", "b", "c"] {
        world.cloud.set_stock(&offering("m5.large", letter, CapacityType::OnDemand), Some(1));
    }
    let claims: Vec<_> =
        ["a", "b", "c", "d", "e"].map(|name| world.claim(name, vec![of_type("m5.large"), on_demand()])).into();
    let made = world.clock.run(async {
        let provider = world.provider();
        join_all(claims.iter().map(|claim| create(&provider, claim))).await
    });
    let (served, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    let ids: BTreeSet<_> = served.iter().map(|made| instance_id(made.as_ref().unwrap())).collect();
    assert_eq!((ids.len(), refused.len()), (3, 2));
    for error in refused {
        let Err(Error::InsufficientCapacity { offerings, .. }) = error else { panic!("{error:?}") };
        assert_eq!(offerings.len(), 3);
    }
    assert_eq!(world.alive().into_iter().collect::<BTreeSet<_>>(), ids);
}

#[test]
fn machines_of_reservations_come_first_until_none_is_left() {
    let world = World::new();
    let reservation = CapacityReservation {
        id: "cr-1".to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1b".to_owned(),
        match_criteria: InstanceMatchCriteria::Targeted,
        reservation_type: ReservationType::Default,
        interruptible: false,
        remaining: 1,
        ends_at: None,
    };
    world.cloud.add_reservation(reservation, Tags::new());
    let mut with_reservation = class();
    with_reservation["status"]["capacityReservations"] = json!([{
        "id": "cr-1", "availabilityZone": "us-east-1b", "instanceMatchCriteria": "targeted",
        "instanceType": "m5.large", "ownerID": "123456789012",
    }]);
    world.objects.set_class(with_reservation);
    world.clock.run(async {
        let provider = world.provider();
        let claim = |name: &str| world.claim(name, vec![of_type("m5.large")]);
        let first = create(&provider, &claim("first")).await.unwrap();
        assert_eq!((first.capacity_type, &*first.zone), (CapacityType::Reserved, "us-east-1b"));
        assert_eq!(first.labels[labels::CAPACITY_RESERVATION_ID], "cr-1");
        let second = create(&provider, &claim("second")).await.unwrap();
        assert_ne!(second.capacity_type, CapacityType::Reserved);
        let listed = provider.get(&first.provider_id).await.unwrap();
        assert_eq!((listed.capacity_type, listed.token), (CapacityType::Reserved, first.token));
    });
}

#[test]
fn adapters_are_attached_for_a_claim_on_their_driver_as_for_their_resource() {
    let world = World::new();
    world.clock.run(async {
        let provider = world.provider();
        for (name, drivers, expected) in [
            ("none", "gpu.nvidia.com", 0),
            ("one", "dra.net", 4),
            ("both", "dra.net,gpu.nvidia.com", 4),
            ("other", "dra.net.example.com", 0),
        ] {
            let mut claim = world.claim(name, vec![of_type("p4d.24xlarge")]);
            let annotation = (api::annotations::REQUESTED_DRA_DRIVERS.to_owned(), drivers.to_owned());
            claim.metadata.annotations.get_or_insert_default().extend([annotation]);
            let made = create(&provider, &claim).await.unwrap();
            let machine = provider.machine(&MachineId::parse(&made.provider_id).unwrap()).await.unwrap().0;
            assert_eq!(machine.efa_count, expected, "{drivers}");
        }
    });
}

#[test]
fn a_launch_template_that_was_removed_is_made_again() {
    let world = World::new();
    world.clock.run(async {
        let provider = world.provider();
        create(&provider, &world.claim("a", vec![of_type("m5.large")])).await.unwrap();
        let templates = world.cloud.describe_launch_templates(&Query::default()).await.unwrap();
        world.cloud.delete_launch_template(&templates[0].id).await.unwrap();
        create(&provider, &world.claim("b", vec![of_type("m5.large")])).await.unwrap();
    });
    assert_eq!((world.alive().len(), world.cloud.templates()), (2, 1));
}

#[test]
fn launch_templates_that_nobody_has_used_for_an_hour_are_removed() {
    let world = World::new();
    world.clock.run(async {
        let provider = world.provider();
        let claim = world.claim("a", vec![of_type("m5.large")]);
        let made = create(&provider, &claim).await.unwrap();
        world.launched(&token(&claim), &made.provider_id);
        for _ in 0..4 {
            provider.tidy().await.unwrap();
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        assert_eq!(world.cloud.templates(), 1);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        provider.tidy().await.unwrap();
        assert_eq!(world.cloud.templates(), 0);
    });
}

#[test]
fn a_refused_call_gives_karpenters_reason_and_is_tried_anew() {
    let world = World::new();
    let claim = world.claim("a", vec![of_type("m5.large")]);
    world.cloud.refuse("ec2:CreateFleet", "UnauthorizedOperation", "You are not authorized to perform this operation.");
    world.clock.run(async {
        let provider = world.provider();
        let Err(Error::CreateFailed { reason, message }) = create(&provider, &claim).await else { panic!("refused") };
        assert_eq!(reason, "Unauthorized");
        assert!(message.starts_with("ec2:CreateFleet: UnauthorizedOperation: You are not"), "{message}");
        world.cloud.permit("ec2:CreateFleet");
        create(&provider, &claim).await.unwrap();
    });
    assert_eq!(world.alive().len(), 1);
}

#[test]
fn registered_machines_get_their_tags_and_keep_those_that_they_have() {
    let world = World::new();
    world.clock.run(async {
        let provider = world.provider();
        let mut claim = world.claim("a", vec![of_type("m5.large")]);
        let made = create(&provider, &claim).await.unwrap();
        let status = claim.status.get_or_insert_default();
        (status.provider_id, status.node_name) = (made.provider_id.to_string(), "node-a".to_owned());
        world.objects.set_claim(claim);
        provider.tidy().await.unwrap();
        provider.tidy().await.unwrap();
    });
    let tags = world.cloud.alive().remove(0).tags;
    let expected = [
        ("Name", "node-a"),
        ("karpenter.sh/nodeclaim", "a"),
        ("dovetail.sh/nodeclaim-uid", "uid-of-a"),
        ("eks:eks-cluster-name", CLUSTER),
        ("kubernetes.io/cluster/test", "owned"),
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
    ];
    for (key, value) in expected {
        assert_eq!(tags.get(key).map(String::as_str), Some(value), "{key}");
    }
    let claim = world.objects.claim("uid-of-a").unwrap();
    assert_eq!(claim.metadata.annotations.unwrap()[names::TAGGED], "true");
    let calls = world.cloud.calls("ec2:CreateTags");
    world.clock.run(async { world.provider().tidy().await.unwrap() });
    assert_eq!(world.cloud.calls("ec2:CreateTags"), calls);
}

#[test]
fn without_the_right_to_write_the_tag_launches_are_still_finished() {
    let world = World::new();
    world.cloud.refuse("ec2:CreateTags", "UnauthorizedOperation", "no");
    world.clock.run(async {
        let provider = world.provider();
        let claim = world.claim("a", vec![of_type("m5.large")]);
        let made = create(&provider, &claim).await.unwrap();
        world.launched(&token(&claim), &made.provider_id);
        provider.tidy().await.unwrap();
        let left: Vec<_> = world.objects.documents().into_keys().filter(|name| name.contains("launch-")).collect();
        assert_eq!(left, [] as [&str; 0]);
        // Nobody removes it by mistake.
        assert_eq!(provider.list().await.unwrap()[0].token, None);
    });
}

#[test]
fn what_was_launched_before_a_long_absence_is_kept_if_a_claim_names_it_and_ended_otherwise() {
    let world = World::new();
    let claims = claims(&world);
    let fuse = Fuse::default();
    let named = world.clock.run(async {
        let provider = world.provider_with(&fuse);
        let made = join_all(claims.iter().map(|claim| create(&provider, claim))).await;
        let named = made[0].as_ref().unwrap();
        world.launched(&token(&claims[0]), &named.provider_id);
        instance_id(named)
    });
    world.clock.run(async {
        tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
        let provider = world.provider();
        let later =
            provider.create(CreateRequest { claim: &claims[1], token: &token(&claims[1]), instance_types: None }).await;
        assert!(matches!(later, Err(Error::Transient(_))));
        provider.tidy().await.unwrap();
        assert_eq!(world.alive(), [named]);
        create(&provider, &claims[1]).await.unwrap();
        assert_eq!(world.alive().len(), 2);
    });
}

#[test]
fn a_machine_that_ends_is_told_of_as_ending_and_then_not_any_more() {
    let world = World::new();
    world.clock.run(async {
        let provider = world.provider();
        let made = create(&provider, &world.claim("a", vec![of_type("m5.large")])).await.unwrap();
        world.cloud.terminate(&instance_id(&made));
        assert_eq!(provider.get(&made.provider_id).await.unwrap().state, InstanceState::Terminating);
        provider.delete(&made.provider_id).await.unwrap();
        assert_eq!(world.cloud.calls("ec2:TerminateInstances"), 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(provider.get(&made.provider_id).await.unwrap_err().is_not_found());
        assert_eq!(provider.list().await.unwrap(), []);
    });
}

#[test]
fn machines_of_other_clusters_and_other_programs_are_not_ours() {
    let world = World::new();
    world.clock.run(async {
        let provider = world.provider();
        let made = create(&provider, &world.claim("a", vec![of_type("m5.large")])).await.unwrap();
        let id = instance_id(&made);
        let other: Tags = [("eks:eks-cluster-name".to_owned(), "other".to_owned())].into();
        world.cloud.create_tags(&[id], &other).await.unwrap();
        assert_eq!(provider.list().await.unwrap(), []);
        assert!(provider.delete(&made.provider_id).await.unwrap_err().is_not_found());
        assert_eq!(world.alive().len(), 1);
    });
}

#[test]
fn a_node_class_that_is_not_ready_launches_nothing_and_says_why() {
    let world = World::new();
    let claim = world.claim("a", vec![of_type("m5.large")]);
    let with_ready = |status: &str, observed: i64| {
        let mut object = class();
        object["status"]["conditions"][0]["status"] = json!(status);
        object["status"]["conditions"][0]["observedGeneration"] = json!(observed);
        object["status"]["conditions"][0]["message"] = json!("why");
        object
    };
    let mut going = class();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let refused = |object: Value| {
        world.objects.set_class(object);
        world.clock.run(async { create(&world.provider(), &claim).await.unwrap_err().to_string() })
    };
    assert_eq!(refused(with_ready("False", 1)), "NodeClassRef not ready, EC2NodeClass default: Ready: why");
    assert_eq!(refused(with_ready("Unknown", 1)), "creating instance, why");
    let changed = refused(with_ready("True", 0));
    assert!(changed.starts_with("NodeClassRef not ready, EC2NodeClass default: NotReconciled: "), "{changed}");
    assert_eq!(refused(going), "NodeClassRef not ready, EC2NodeClass default: is being deleted");
    world.objects.remove_class("default");
    let absent = world.clock.run(async { create(&world.provider(), &claim).await.unwrap_err().to_string() });
    assert_eq!(absent, "NodeClassRef not ready, EC2NodeClass default: not found");
    assert_eq!(world.alive(), [] as [&str; 0]);
}

#[test]
fn prices_are_those_that_aws_tells_and_others_stay_where_it_does_not() {
    let world = World::new();
    let price = |text: &str| model::PriceNanoUsdPerHour::parse(text).unwrap();
    world.cloud.set_spot_prices([("m5.large".to_owned(), "us-east-1b".to_owned(), price("0.01"))]);
    let pricing = world.cloud.clone();
    world.clock.run(async {
        let provider = world.provider();
        let spot = async || {
            let types = provider.instance_types(&node_pool()).await.unwrap();
            let m5 = types.types.iter().find(|it| it.name == "m5.large").unwrap();
            let spot = m5.offerings.iter().filter(|it| it.capacity_type == CapacityType::Spot && it.available);
            let text = spot.map(|it| format!("{} {}", it.zone, it.price)).collect::<Vec<_>>();
            (text, types.generation)
        };
        let (before, generation) = spot().await;
        assert_eq!(before.len(), 3, "nothing is known of spot yet: {before:?}");
        world.cloud.refuse("pricing:GetProducts", "AccessDeniedException", "no");
        assert!(provider.refresh_prices(Some(&pricing)).await.is_err());
        let (after, changed) = spot().await;
        assert_eq!(after, [format!("us-east-1b {}", price("0.01"))]);
        assert_ne!(changed, generation);
        world.cloud.permit("pricing:GetProducts");
        provider.refresh_prices(Some(&pricing)).await.unwrap();
        assert_eq!(spot().await, (after, changed), "the same prices are the same types");
    });
}
