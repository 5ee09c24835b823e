//! Launch templates and requests for machines, in EC2's types.

use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types;
use cloudprovider_aws::launch::disks::BlockDevice;
use cloudprovider_aws::launch::fleet::{FleetRequest, Override, Purchase, TemplateConfig};
use cloudprovider_aws::launch::template::{Interface, LaunchTemplate, Market, Placement};
use cloudprovider_aws::node_class::spec::{ConnectionTracking, MetadataOptions};

use super::to_tags;

/// Of a launch template always the newest version: a template's name stands for all that is in it, so it has one.
const VERSION: &str = "$Latest";
/// Regions whose metadata service does not know of IPv6.
const REGIONS_WITHOUT_IPV6_METADATA: [&str; 6] =
    ["us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"];

/// A number as EC2 takes it. EC2 refuses one that is too large, in its own words.
fn number(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A launch template's data.
pub(super) fn template(template: &LaunchTemplate, region: &str) -> types::RequestLaunchTemplateData {
    let profile = types::LaunchTemplateIamInstanceProfileSpecificationRequest::builder();
    let data = types::RequestLaunchTemplateData::builder()
        .image_id(&template.image_id)
        .set_user_data(Some(template.user_data.clone()).filter(|text| !text.is_empty()))
        .iam_instance_profile(profile.name(&template.instance_profile).build())
        .set_block_device_mappings(some(template.block_devices.iter().map(block_device).collect()))
        .set_network_interfaces(some(template.network_interfaces.iter().map(interface).collect()))
        .metadata_options(metadata_options(&template.metadata_options, region))
        .capacity_reservation_specification(reservation(&template.market))
        .set_instance_market_options(market(&template.market))
        .set_placement(placement(&template.placement))
        .set_tag_specifications(Some(tag_specifications(template)));
    let data = data.set_monitoring(
        template
            .detailed_monitoring
            .map(|is_on| types::LaunchTemplatesMonitoringRequest::builder().enabled(is_on).build()),
    );
    let data = data.set_cpu_options(template.nested_virtualization.map(|switch| {
        let nested = types::NestedVirtualizationSpecification::from(switch.as_str());
        types::LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(nested).build()
    }));
    let enclaves = types::LaunchTemplateEnclaveOptionsRequest::builder().enabled(true).build();
    data.set_enclave_options(template.enclaves.then_some(enclaves)).build()
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn block_device(disk: &BlockDevice) -> types::LaunchTemplateBlockDeviceMappingRequest {
    let ebs = types::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(disk.size_gib.map(number))
        .set_volume_type(disk.volume_type.map(types::VolumeType::from))
        .set_iops(disk.iops.map(number))
        .set_throughput(disk.throughput.map(number))
        .set_encrypted(disk.encrypted)
        .set_kms_key_id(disk.kms_key_id.clone())
        .set_delete_on_termination(disk.delete_on_termination)
        .set_snapshot_id(disk.snapshot_id.clone())
        .set_volume_initialization_rate(disk.volume_initialization_rate);
    let device = types::LaunchTemplateBlockDeviceMappingRequest::builder();
    device.set_device_name(disk.device_name.clone()).ebs(ebs.build()).build()
}

fn interface(interface: &Interface) -> types::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    types::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .network_card_index(interface.network_card_index)
        .device_index(interface.device_index)
        .set_interface_type(interface.interface_type.map(str::to_owned))
        .set_groups(Some(interface.security_groups.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip_address)
        .set_connection_tracking_specification(interface.connection_tracking.map(connection_tracking))
        .set_primary_ipv6(interface.has_ipv6_address.then_some(true))
        .set_ipv6_address_count(interface.has_ipv6_address.then_some(1))
        .set_ipv4_prefix_count(interface.ipv4_prefixes)
        .set_ipv6_prefix_count(interface.ipv6_prefixes)
        .build()
}

fn connection_tracking(tracking: ConnectionTracking) -> types::ConnectionTrackingSpecificationRequest {
    types::ConnectionTrackingSpecificationRequest::builder()
        .set_tcp_established_timeout(tracking.tcp_established_timeout)
        .set_udp_stream_timeout(tracking.udp_stream_timeout)
        .set_udp_timeout(tracking.udp_timeout)
        .build()
}

/// Tags of a machine are never readable in it.
fn metadata_options(options: &MetadataOptions, region: &str) -> types::LaunchTemplateInstanceMetadataOptionsRequest {
    let ipv6 = types::LaunchTemplateInstanceMetadataProtocolIpv6::from(options.http_protocol_ipv6.as_str());
    let knows_ipv6 = !REGIONS_WITHOUT_IPV6_METADATA.contains(&region);
    types::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(options.http_endpoint.as_str().into())
        .set_http_protocol_ipv6(knows_ipv6.then_some(ipv6))
        .http_put_response_hop_limit(number(options.http_put_response_hop_limit))
        .http_tokens(options.http_tokens.as_str().into())
        .instance_metadata_tags(types::LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

/// A machine is in the reservation that it is for, or in none: one that is open to all would be used up unseen.
fn reservation(market: &Market) -> types::LaunchTemplateCapacityReservationSpecificationRequest {
    let specification = types::LaunchTemplateCapacityReservationSpecificationRequest::builder();
    let Some(id) = market.reservation() else {
        return specification.capacity_reservation_preference(types::CapacityReservationPreference::None).build();
    };
    specification
        .capacity_reservation_preference(types::CapacityReservationPreference::CapacityReservationsOnly)
        .capacity_reservation_target(types::CapacityReservationTarget::builder().capacity_reservation_id(id).build())
        .build()
}

fn market(market: &Market) -> Option<types::LaunchTemplateInstanceMarketOptionsRequest> {
    let kind = match market {
        // A fleet says itself whether it is of spot.
        Market::OnDemand | Market::Spot | Market::Reservation(_) => return None,
        Market::CapacityBlock(_) => types::MarketType::CapacityBlock,
        Market::InterruptibleReservation(_) => types::MarketType::InterruptibleCapacityReservation,
    };
    Some(types::LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(kind).build())
}

fn placement(placement: &Placement) -> Option<types::LaunchTemplatePlacementRequest> {
    if *placement == Placement::default() {
        return None;
    }
    let request = types::LaunchTemplatePlacementRequest::builder()
        .set_tenancy(placement.tenancy.as_deref().map(types::Tenancy::from))
        .set_group_id(placement.group_id.clone())
        .set_partition_number(placement.partition);
    Some(request.build())
}

fn tag_specifications(template: &LaunchTemplate) -> Vec<types::LaunchTemplateTagSpecificationRequest> {
    let mut of = vec![types::ResourceType::NetworkInterface];
    if template.market == Market::Spot {
        of.push(types::ResourceType::SpotInstancesRequest);
    }
    let specification = |resource: types::ResourceType| {
        let builder = types::LaunchTemplateTagSpecificationRequest::builder().resource_type(resource);
        builder.set_tags(Some(to_tags(&template.tags))).build()
    };
    of.into_iter().map(specification).collect()
}

/// A request for machines, on a call that has nothing yet.
pub(super) fn fleet(call: CreateFleetFluentBuilder, request: &FleetRequest, count: usize) -> CreateFleetFluentBuilder {
    use types::ResourceType::{Fleet, Instance, Volume};
    let capacity = types::TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(i32::try_from(count).unwrap_or(i32::MAX))
        .default_target_capacity_type(capacity_type(request.purchase));
    let tags = [Instance, Volume, Fleet].map(|resource| {
        let builder = types::TagSpecification::builder().resource_type(resource);
        builder.set_tags(Some(to_tags(&request.tags))).build()
    });
    let call = call
        .r#type(types::FleetType::Instant)
        .set_launch_template_configs(Some(request.configs.iter().map(config).collect()))
        .target_capacity_specification(capacity.build())
        .set_tag_specifications(Some(tags.into()))
        .set_context(request.context.clone());
    match request.purchase {
        Purchase::OnDemand(_) => {
            let strategy = request.purchase.strategy().map(types::FleetOnDemandAllocationStrategy::from);
            let options = types::OnDemandOptionsRequest::builder().set_allocation_strategy(strategy);
            call.on_demand_options(options.build())
        }
        Purchase::Spot(_) => {
            let strategy = request.purchase.strategy().map(types::SpotAllocationStrategy::from);
            call.spot_options(types::SpotOptionsRequest::builder().set_allocation_strategy(strategy).build())
        }
        Purchase::CapacityBlock => call,
        Purchase::InterruptibleReservation => {
            let kind = types::FleetReservationType::InterruptibleCapacityReservation;
            let options = types::ReservedCapacityOptionsRequest::builder().reservation_types(kind);
            call.reserved_capacity_options(options.build())
        }
    }
}

fn capacity_type(purchase: Purchase) -> types::DefaultTargetCapacityType {
    match purchase {
        Purchase::OnDemand(_) => types::DefaultTargetCapacityType::OnDemand,
        Purchase::Spot(_) => types::DefaultTargetCapacityType::Spot,
        Purchase::CapacityBlock => types::DefaultTargetCapacityType::CapacityBlock,
        Purchase::InterruptibleReservation => types::DefaultTargetCapacityType::ReservedCapacity,
    }
}

fn config(config: &TemplateConfig) -> types::FleetLaunchTemplateConfigRequest {
    let template = types::FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(&config.launch_template)
        .version(VERSION);
    types::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template.build())
        .set_overrides(Some(config.overrides.iter().map(override_request).collect()))
        .build()
}

fn override_request(wanted: &Override) -> types::FleetLaunchTemplateOverridesRequest {
    // EC2 orders by it, and takes no other numbers; no decision of ours reads it.
    let priority = wanted.priority as f64 / 1e9;
    types::FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(wanted.instance_type.as_str().into())
        .availability_zone(&wanted.zone)
        .set_subnet_id(wanted.subnet_id.clone())
        .image_id(&wanted.image_id)
        .priority(priority)
        .build()
}

/// A request for one machine, on a call that has nothing yet. The subnet is of the first interface: the template has
/// interfaces, and beside those EC2 takes no subnet for the machine.
pub(super) fn one_instance(
    call: RunInstancesFluentBuilder,
    template: &str,
    instance_type: &str,
    subnet_id: &str,
) -> RunInstancesFluentBuilder {
    let template = types::LaunchTemplateSpecification::builder().launch_template_name(template).version(VERSION);
    let interface = types::InstanceNetworkInterfaceSpecification::builder().device_index(0).subnet_id(subnet_id);
    call.min_count(1)
        .max_count(1)
        .launch_template(template.build())
        .instance_type(instance_type.into())
        .network_interfaces(interface.build())
}
