//! What the region sells, and what is learnt of it.

use cloudprovider::CapacityType;
use model::Quantity;

use super::launches::{create, of_type, one_of};
use super::*;
use crate::catalogue;
use crate::instance_types::info::InstanceTypeInfo;
use crate::service::ec2::TypeInZone;

/// A record like that of another type.
fn like(name: &str, other: &str) -> InstanceTypeInfo {
    InstanceTypeInfo { instance_type: name.to_owned(), ..catalogue::instance_types()[other].clone() }
}

fn sell(cloud: &Cloud, name: &str) {
    cloud.add_types([TypeInZone { instance_type: name.to_owned(), zone: "us-east-1a".to_owned() }]);
}

async fn types(provider: &Ec2CloudProvider) -> InstanceTypes {
    provider.instance_types(&node_pool()).await.unwrap()
}

async fn names(provider: &Ec2CloudProvider) -> Vec<String> {
    types(provider).await.types.iter().map(|it| it.name.to_string()).filter(|it| it.starts_with("m99")).collect()
}

async fn memory(provider: &Ec2CloudProvider, name: &str) -> Quantity {
    find(&types(provider).await.types, name).unwrap().capacity["memory"]
}

#[test]
fn a_type_that_was_added_yesterday_is_launched_and_one_whose_record_lacks_something_is_left_out_alone() {
    let world = World::new();
    let mut incomplete = like("m99.xlarge", "m5.xlarge");
    incomplete.network_info.network_cards.clear();
    for record in [like("m99.large", "m5.large"), incomplete] {
        sell(&world.cloud, &record.instance_type);
        world.cloud.set_record(record);
    }
    let price = model::PriceNanoUsdPerHour::parse("0.01").unwrap();
    world.cloud.set_spot_prices([("m99.large".to_owned(), "us-east-1a".to_owned(), price)]);
    let claim = world.claim("new", vec![of_type("m99.large"), one_of(kubernetes::CAPACITY_TYPE, &["spot"])]);
    world.clock.run(async {
        let provider = world.provider();
        assert_eq!(names(&provider).await, ["m99.large"]);
        provider.refresh_prices(None).await.unwrap();
        let made = create(&provider, &claim).await.unwrap();
        assert_eq!((made.instance_type.as_str(), made.capacity_type), ("m99.large", CapacityType::Spot));
        world.objects.remove_class("default");
        let listed = provider.list().await.unwrap();
        assert!(listed[0].capacity.contains_key("memory"), "what it has is known without its node class: {listed:?}");
    });
}

#[test]
fn what_ec2_does_not_tell_of_its_types_is_as_it_was_and_the_built_in_ones_stand_at_first() {
    let world = World::new();
    let fresh = DurationMs::from_seconds(12 * 3600);
    world.cloud.refuse("ec2:DescribeInstanceTypes", "UnauthorizedOperation", "no");
    world.clock.run(async {
        let provider = world.provider();
        provider.probe().await.unwrap();
        let built_in = types(&provider).await;
        assert!(find(&built_in.types, "m5.large").is_some());
        sell(&world.cloud, "m99.large");
        world.cloud.set_record(like("m99.large", "m5.large"));
        assert!(provider.refresh_types(fresh).await.is_err(), "it was never told");
        assert_eq!(names(&provider).await, [] as [&str; 0], "nothing is known of it but its zone");

        world.cloud.permit("ec2:DescribeInstanceTypes");
        provider.refresh_types(fresh).await.unwrap();
        assert_eq!(names(&provider).await, ["m99.large"]);
        let (asked, told) = (world.cloud.calls("ec2:DescribeInstanceTypes"), types(&provider).await.generation);
        provider.refresh_types(fresh).await.unwrap();
        assert_eq!(world.cloud.calls("ec2:DescribeInstanceTypes"), asked, "its word still counts");

        tokio::time::sleep(Duration::from_secs(12 * 3600)).await;
        world.cloud.refuse("ec2:DescribeInstanceTypeOfferings", "InternalError", "no");
        assert!(provider.refresh_types(fresh).await.is_err());
        assert_eq!(types(&provider).await.generation, told, "all is as it was");
        world.cloud.permit("ec2:DescribeInstanceTypeOfferings");
        provider.refresh_types(fresh).await.unwrap();
        assert_eq!(types(&provider).await.generation, told, "the same answer is the same types");
    });
}

#[test]
fn without_a_word_on_zones_the_provider_does_not_start() {
    let world = World::new();
    world.cloud.refuse("ec2:DescribeInstanceTypeOfferings", "UnauthorizedOperation", "no");
    world.clock.run(async {
        let error = world.provider().probe().await.unwrap_err().to_string();
        assert!(error.contains("ec2:DescribeInstanceTypeOfferings"), "{error}");
    });
}

#[test]
fn the_memory_that_a_machine_was_seen_to_have_is_its_types_until_the_image_changes() {
    let world = World::new();
    let quantity = |text: &str| Quantity::parse(text).unwrap();
    let mut claim = world.claim("one", vec![of_type("m5.large")]);
    world.clock.run(async {
        let provider = world.provider();
        let estimate = memory(&provider, "m5.large").await;
        let made = create(&provider, &claim).await.unwrap();
        let provider_id = made.provider_id.to_string();
        let label = (kubernetes::INSTANCE_TYPE.to_owned(), made.instance_type.to_string());
        claim.metadata.labels.get_or_insert_default().extend([label]);
        let status = claim.status.get_or_insert_default();
        status.provider_id = provider_id.clone();
        status.image_id = made.image_id.clone().unwrap();
        world.objects.set_claim(claim.clone());
        world.objects.set_memory(&provider_id, quantity("7800Mi"));
        provider.tidy().await.unwrap();
        assert_eq!(memory(&provider, "m5.large").await, estimate, "it has not registered");

        claim.status.get_or_insert_default().node_name = "node".to_owned();
        world.objects.set_claim(claim.clone());
        provider.tidy().await.unwrap();
        assert_eq!(memory(&provider, "m5.large").await, quantity("7800Mi"));
        assert_ne!(memory(&provider, "m5.xlarge").await, quantity("7800Mi"));
        let generation = types(&provider).await.generation;
        world.objects.set_memory(&provider_id, quantity("7700Mi"));
        tokio::time::sleep(Duration::from_secs(120)).await;
        provider.tidy().await.unwrap();
        assert_eq!(types(&provider).await.generation, generation, "a machine is looked at once");

        let mut class = class();
        class["status"]["amis"][0]["id"] = json!("ami-of-tomorrow");
        world.objects.set_class(class);
        assert_eq!(memory(&provider, "m5.large").await, estimate, "it may be another one with another image");
    });
}
