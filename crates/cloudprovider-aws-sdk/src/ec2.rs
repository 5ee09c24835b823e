//! EC2.

mod answers;
mod instance_types;
mod launch;

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::Config;
use aws_sdk_ec2::types;
use aws_smithy_types::DateTime;
use aws_smithy_types::retry::RetryConfig;
use cloudprovider_aws::instance_types::info::InstanceTypeInfo;
use cloudprovider_aws::launch::fleet::FleetRequest;
use cloudprovider_aws::launch::template::LaunchTemplate;
use cloudprovider_aws::node_class::spec::Tags;
use cloudprovider_aws::service::ec2::{
    CapacityReservation, ExistingTemplate, Filter, FleetAnswer, Image, Machine, MachineStatus, PlacementGroup, Query,
    SecurityGroup, SpotPrice, Subnet, TypeInZone,
};
use cloudprovider_aws::service::{Ec2, Error, Kind};
use model::Timestamp;

pub(crate) use self::answers::timestamp;
use crate::fault::fault;
use crate::pages;

/// How many things a page of most calls holds at most.
const PAGE: i32 = 1000;
/// How many a page of instance types holds at most.
const TYPES_PAGE: i32 = 100;
/// The types that images of Kubernetes boot on.
const TYPES: [(&str, &[&str]); 2] =
    [("supported-virtualization-type", &["hvm"]), ("processor-info.supported-architecture", &["x86_64", "arm64"])];
/// What machines of Linux are called in prices of spot.
const LINUX: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];
/// What EC2 finds fault with: its own checks, those of the host, and events that end or halt a machine.
const FAULTS: [(&str, &[&str]); 3] = [
    ("instance-status.status", &["impaired"]),
    ("system-status.status", &["impaired"]),
    ("event.code", &["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"]),
];

/// EC2 by the SDK.
#[derive(Debug)]
pub(crate) struct Ec2Client {
    client: Client,
    region: String,
}

impl Ec2Client {
    pub(crate) fn new(config: &SdkConfig, region: String) -> Self {
        Self { client: Client::new(config), region }
    }
}

fn filters(query: &Query) -> Option<Vec<types::Filter>> {
    let filter =
        |Filter { name, values }: &Filter| types::Filter::builder().name(name).set_values(Some(values.clone())).build();
    Some(query.filters.iter().map(filter).collect()).filter(|filters: &Vec<_>| !filters.is_empty())
}

fn ids(query: &Query) -> Option<Vec<String>> {
    Some(query.ids.clone()).filter(|ids| !ids.is_empty())
}

/// EC2 takes no size of pages beside ids.
fn page(query: &Query) -> Option<i32> {
    query.ids.is_empty().then_some(PAGE)
}

fn to_tags(tags: &Tags) -> Vec<types::Tag> {
    tags.iter().map(|(key, value)| types::Tag::builder().key(key).value(value).build()).collect()
}

/// For calls that only ask whether another one would do. Whoever asks tries again.
fn without_retries() -> aws_sdk_ec2::config::Builder {
    Config::builder().retry_config(RetryConfig::disabled())
}

/// What the answer to a dry run means: an error that says so is the good one.
fn would_succeed(result: Result<(), Error>) -> Result<(), Error> {
    result.or_else(|error| if error.kind == Kind::WouldSucceed { Ok(()) } else { Err(error) })
}

#[async_trait]
impl Ec2 for Ec2Client {
    async fn describe_subnets(&self, query: &Query) -> Result<Vec<Subnet>, Error> {
        let call = self.client.describe_subnets().set_subnet_ids(ids(query)).set_filters(filters(query));
        let pages = call.set_max_results(page(query)).into_paginator().send();
        let pages = pages::all("ec2:DescribeSubnets", pages).await?;
        Ok(pages.iter().flat_map(|page| page.subnets()).filter_map(answers::subnet).collect())
    }

    async fn describe_security_groups(&self, query: &Query) -> Result<Vec<SecurityGroup>, Error> {
        let call = self.client.describe_security_groups().set_group_ids(ids(query)).set_filters(filters(query));
        let pages = call.set_max_results(page(query)).into_paginator().send();
        let pages = pages::all("ec2:DescribeSecurityGroups", pages).await?;
        Ok(pages.iter().flat_map(|page| page.security_groups()).filter_map(answers::security_group).collect())
    }

    async fn describe_images(&self, query: &Query, owners: &[String]) -> Result<Vec<Image>, Error> {
        let call = self.client.describe_images().set_image_ids(ids(query)).set_filters(filters(query));
        let call = call.set_owners(Some(owners.to_vec()).filter(|owners| !owners.is_empty())).include_deprecated(true);
        let pages = pages::all("ec2:DescribeImages", call.set_max_results(page(query)).into_paginator().send());
        Ok(pages.await?.iter().flat_map(|page| page.images()).filter_map(answers::image).collect())
    }

    async fn describe_capacity_reservations(&self, query: &Query) -> Result<Vec<CapacityReservation>, Error> {
        let call = self.client.describe_capacity_reservations().set_capacity_reservation_ids(ids(query));
        let pages = call.set_filters(filters(query)).set_max_results(page(query)).into_paginator().send();
        let pages = pages::all("ec2:DescribeCapacityReservations", pages).await?;
        let found = pages.iter().flat_map(|page| page.capacity_reservations());
        Ok(found.filter_map(answers::capacity_reservation).collect())
    }

    async fn describe_placement_groups(&self, query: &Query) -> Result<Vec<PlacementGroup>, Error> {
        let call = self.client.describe_placement_groups().set_group_ids(ids(query)).set_filters(filters(query));
        let answer = call.send().await.map_err(|error| fault("ec2:DescribePlacementGroups", &error))?;
        Ok(answer.placement_groups().iter().filter_map(answers::placement_group).collect())
    }

    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, Error> {
        let filter = |(name, values): (&str, &[&str])| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            types::Filter::builder().name(name).set_values(Some(values)).build()
        };
        let call = self.client.describe_instance_types().set_filters(Some(TYPES.map(filter).into()));
        let pages = call.max_results(TYPES_PAGE).into_paginator().send();
        let pages = pages::all("ec2:DescribeInstanceTypes", pages).await?;
        Ok(pages.iter().flat_map(|page| page.instance_types()).filter_map(instance_types::info).collect())
    }

    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeInZone>, Error> {
        let call = self.client.describe_instance_type_offerings().location_type(types::LocationType::AvailabilityZone);
        let pages = call.max_results(PAGE).into_paginator().send();
        let pages = pages::all("ec2:DescribeInstanceTypeOfferings", pages).await?;
        let offered = pages.iter().flat_map(|page| page.instance_type_offerings());
        Ok(offered.filter_map(answers::type_in_zone).collect())
    }

    async fn describe_spot_price_history(&self, now: Timestamp) -> Result<Vec<SpotPrice>, Error> {
        let call = self.client.describe_spot_price_history().start_time(DateTime::from_millis(now.0));
        let call = call.set_product_descriptions(Some(LINUX.map(str::to_owned).into()));
        let pages = call.max_results(PAGE).into_paginator().send();
        let pages = pages::all("ec2:DescribeSpotPriceHistory", pages).await?;
        Ok(pages.iter().flat_map(|page| page.spot_price_history()).filter_map(answers::spot_price).collect())
    }

    async fn describe_instance_status(&self) -> Result<Vec<MachineStatus>, Error> {
        let mut found = BTreeMap::new();
        for (name, values) in FAULTS {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let filter = types::Filter::builder().name(name).set_values(Some(values)).build();
            let pages = self.client.describe_instance_status().filters(filter).max_results(PAGE).into_paginator();
            let pages = pages::all("ec2:DescribeInstanceStatus", pages.send()).await?;
            let faulty = pages.iter().flat_map(|page| page.instance_statuses()).filter_map(answers::machine_status);
            found.extend(faulty.map(|status| (status.id.clone(), status)));
        }
        Ok(found.into_values().collect())
    }

    async fn describe_launch_templates(&self, query: &Query) -> Result<Vec<ExistingTemplate>, Error> {
        let call = self.client.describe_launch_templates().set_launch_template_ids(ids(query));
        let pages = call.set_filters(filters(query)).set_max_results(page(query).map(|it| it.min(200)));
        let pages = pages::all("ec2:DescribeLaunchTemplates", pages.into_paginator().send()).await?;
        Ok(pages.iter().flat_map(|page| page.launch_templates()).filter_map(answers::template).collect())
    }

    async fn create_launch_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), Error> {
        let of_template = types::TagSpecification::builder().resource_type(types::ResourceType::LaunchTemplate);
        let call = self.client.create_launch_template().launch_template_name(name);
        let call = call.launch_template_data(launch::template(template, &self.region));
        let call = call.tag_specifications(of_template.set_tags(Some(to_tags(&template.tags))).build());
        call.send().await.map(drop).map_err(|error| fault("ec2:CreateLaunchTemplate", &error))
    }

    async fn delete_launch_template(&self, id: &str) -> Result<(), Error> {
        let call = self.client.delete_launch_template().launch_template_id(id);
        call.send().await.map(drop).map_err(|error| fault("ec2:DeleteLaunchTemplate", &error))
    }

    async fn create_fleet(&self, request: &FleetRequest, count: usize, token: &str) -> Result<FleetAnswer, Error> {
        let call = launch::fleet(self.client.create_fleet(), request, count).client_token(token);
        let answer = call.send().await.map_err(|error| fault("ec2:CreateFleet", &error))?;
        Ok(answers::fleet(&answer))
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), Error> {
        let call = launch::fleet(self.client.create_fleet(), request, 1).dry_run(true);
        let answer = call.customize().config_override(without_retries()).send().await;
        would_succeed(answer.map(drop).map_err(|error| fault("ec2:CreateFleet", &error)))
    }

    async fn dry_run_instance(&self, template: &str, instance_type: &str, subnet_id: &str) -> Result<(), Error> {
        let call = launch::one_instance(self.client.run_instances(), template, instance_type, subnet_id).dry_run(true);
        let answer = call.customize().config_override(without_retries()).send().await;
        would_succeed(answer.map(drop).map_err(|error| fault("ec2:RunInstances", &error)))
    }

    async fn describe_instances(&self, query: &Query) -> Result<Vec<Machine>, Error> {
        let call = self.client.describe_instances().set_instance_ids(ids(query)).set_filters(filters(query));
        let pages = call.set_max_results(page(query)).into_paginator().send();
        let pages = pages::all("ec2:DescribeInstances", pages).await?;
        let instances = pages.iter().flat_map(|page| page.reservations()).flat_map(|it| it.instances());
        Ok(instances.filter_map(answers::machine).collect())
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<String>, Error> {
        let call = self.client.terminate_instances().set_instance_ids(Some(ids.to_vec()));
        let answer = call.send().await.map_err(|error| fault("ec2:TerminateInstances", &error))?;
        let ids = answer.terminating_instances().iter().filter_map(|change| change.instance_id());
        Ok(ids.map(str::to_owned).collect())
    }

    async fn reboot_instance(&self, id: &str) -> Result<(), Error> {
        let call = self.client.reboot_instances().instance_ids(id);
        call.send().await.map(drop).map_err(|error| fault("ec2:RebootInstances", &error))
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), Error> {
        let call = self.client.create_tags().set_resources(Some(ids.to_vec())).set_tags(Some(to_tags(tags)));
        call.send().await.map(drop).map_err(|error| fault("ec2:CreateTags", &error))
    }
}
