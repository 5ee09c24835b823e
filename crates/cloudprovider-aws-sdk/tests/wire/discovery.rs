//! What there is in EC2.

use std::collections::BTreeSet;

use cloudprovider_aws::catalogue::{instance_types, supplement};
use cloudprovider_aws::instance_types::Resolver;
use cloudprovider_aws::instance_types::settings::{MachineOptions, NodeSettings};
use cloudprovider_aws::node_class::AmiFamily;
use cloudprovider_aws::node_class::spec::InstanceMatchCriteria;
use cloudprovider_aws::node_class::status::ReservationType;
use cloudprovider_aws::service::ec2::{Filter, Query};
use cloudprovider_aws::service::{Error, Kind};
use model::Timestamp;

use crate::server::{calls, control};
use crate::services;

#[tokio::test]
async fn subnets_are_found_by_filter_and_by_id() {
    let ec2 = services().await.ec2;
    let in_zone = Query { ids: vec![], filters: vec![Filter::new("availability-zone", "us-east-1b")] };
    let found = ec2.describe_subnets(&in_zone).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].zone, "us-east-1b");
    assert!(found[0].zone_id.starts_with("use1-az") && found[0].free_addresses > 1000, "{found:?}");
    let by_id = Query { ids: vec![found[0].id.clone()], filters: vec![] };
    assert_eq!(ec2.describe_subnets(&by_id).await.unwrap()[0].id, found[0].id);
    assert_eq!(ec2.describe_subnets(&Query::default()).await.unwrap().len(), 6);
}

#[tokio::test]
async fn security_groups_are_found_by_name() {
    let by_name = Query { ids: vec![], filters: vec![Filter::new("group-name", "default")] };
    let found = services().await.ec2.describe_security_groups(&by_name).await.unwrap();
    assert_eq!(found.iter().map(|group| &*group.name).collect::<Vec<_>>(), ["default"]);
    assert!(found[0].id.starts_with("sg-"));
}

#[tokio::test]
async fn an_alias_leads_to_its_image() {
    let services = services().await;
    let name = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/standard/recommended/image_id";
    let id = services.ssm.get_parameter(name).await.unwrap();
    let query = Query { ids: vec![id.clone()], filters: vec![] };
    let found = services.ec2.describe_images(&query, &[]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].id, &*found[0].architecture), (&*id, "arm64"));
    assert_eq!(found[0].created_at, Timestamp::parse("2026-01-01T00:00:00Z").unwrap());
    assert_eq!(services.ec2.describe_images(&Query::default(), &["amazon".to_owned()]).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_parameter_that_is_not_there_is_told_as_such() {
    let error = services().await.ssm.get_parameter("/nothing/here").await.unwrap_err();
    assert_eq!((error.call, error.kind), ("ssm:GetParameter", Kind::NotFound));
    assert_eq!(error.code.as_deref(), Some("ParameterNotFound"));
}

#[tokio::test]
async fn reservations_and_placement_groups_are_read_but_for_kinds_that_are_unknown() {
    let ec2 = services().await.ec2;
    let found = ec2.describe_capacity_reservations(&Query::default()).await.unwrap();
    assert_eq!(found.iter().map(|it| &*it.id).collect::<Vec<_>>(), ["cr-1", "cr-2"]);
    assert_eq!((found[0].remaining, found[0].match_criteria), (2, InstanceMatchCriteria::Targeted));
    assert_eq!((found[0].reservation_type, found[0].ends_at), (ReservationType::Default, None));
    assert_eq!(found[1].reservation_type, ReservationType::CapacityBlock);
    assert_eq!(found[1].ends_at, Some(Timestamp::parse("2026-12-31T00:00:00Z").unwrap()));
    let groups = ec2.describe_placement_groups(&Query::default()).await.unwrap();
    assert_eq!((groups.len(), &*groups[0].strategy, groups[0].partitions), (1, "partition", Some(3)));
}

/// moto has a copy of EC2's answers. What they are computed to be must be what the built-in records are.
#[tokio::test]
async fn types_are_computed_as_from_the_built_in_records() -> Result<(), Error> {
    let ec2 = services().await.ec2;
    control("{}");
    let told = ec2.describe_instance_types().await?;
    assert!(told.len() > 500, "{}", told.len());
    assert!(calls("DescribeInstanceTypes") as usize >= told.len().div_ceil(100));
    let named = |name: &str| told.iter().find(|it| it.instance_type == name).unwrap_or_else(|| panic!("no {name}"));
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let resolver = Resolver { region: "us-east-1", settings: &settings, options: &MachineOptions::default() };
    for name in ["m5.large", "c6gd.xlarge", "p4d.24xlarge", "trn1.32xlarge", "inf1.xlarge", "m5.metal"] {
        assert_eq!(named(name).missing(), None, "{name}");
        let told = resolver.resolve(&supplement(named(name).clone()));
        assert_eq!(told, resolver.resolve(&instance_types()[name]));
    }
    Ok(())
}

#[tokio::test]
async fn a_list_of_many_pages_is_whole() -> Result<(), Error> {
    let ec2 = services().await.ec2;
    control("{}");
    let offered = ec2.describe_instance_type_offerings().await?;
    assert!(offered.len() > 6000, "{}", offered.len());
    // A page may have been asked for again, where this computer is busy.
    assert!(calls("DescribeInstanceTypeOfferings") as usize >= offered.len().div_ceil(1000));
    let different: BTreeSet<_> = offered.iter().collect();
    assert_eq!(different.len(), offered.len());
    assert!(offered.iter().any(|it| it.instance_type == "p5.48xlarge"));

    let prices = ec2.describe_spot_price_history(Timestamp(0)).await?;
    assert!(prices.len() > 6000 && prices.iter().all(|it| it.price.0 == 10_000), "{}", prices.len());
    assert!(calls("DescribeSpotPriceHistory") as usize >= prices.len().div_ceil(1000));
    Ok(())
}
