//! What EC2 answers, in our types. A record without what names it is left out; EC2 sends none.

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::types;
use aws_smithy_types::DateTime;
use cloudprovider_aws::node_class::spec::{InstanceMatchCriteria, Tags};
use cloudprovider_aws::node_class::status::ReservationType;
use cloudprovider_aws::service::ec2::{
    CapacityReservation, ExistingTemplate, FleetAnswer, FleetError, FleetMachines, Image, Machine, MachineState,
    MachineStatus, PlacementGroup, PlannedEvent, SecurityGroup, SpotPrice, Subnet, TypeInZone,
};
use model::{PriceNanoUsdPerHour, Timestamp};

pub(super) fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

fn owned(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

pub(super) fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

pub(crate) fn timestamp(time: &DateTime) -> Option<Timestamp> {
    time.to_millis().ok().map(Timestamp)
}

fn tags(tags: &[types::Tag]) -> Tags {
    tags.iter().map(|tag| (text(tag.key()), text(tag.value()))).collect()
}

pub(super) fn subnet(subnet: &types::Subnet) -> Option<Subnet> {
    Some(Subnet {
        id: owned(subnet.subnet_id())?,
        zone: text(subnet.availability_zone()),
        zone_id: text(subnet.availability_zone_id()),
        free_addresses: count(subnet.available_ip_address_count()),
    })
}

pub(super) fn security_group(group: &types::SecurityGroup) -> Option<SecurityGroup> {
    Some(SecurityGroup { id: owned(group.group_id())?, name: text(group.group_name()) })
}

/// An image must say which processors it is for, and when it was made: the newest one wins.
pub(super) fn image(image: &types::Image) -> Option<Image> {
    Some(Image {
        id: owned(image.image_id())?,
        name: text(image.name()),
        architecture: image.architecture()?.as_str().to_owned(),
        created_at: Timestamp::parse(image.creation_date()?).ok()?,
        deprecated_at: image.deprecation_time().and_then(|time| Timestamp::parse(time).ok()),
    })
}

/// A reservation that must be named is not taken for one that is open to all, nor the other way round: one of a kind
/// that we do not know is left out.
pub(super) fn capacity_reservation(reservation: &types::CapacityReservation) -> Option<CapacityReservation> {
    let criteria = reservation.instance_match_criteria().map_or("open", |it| it.as_str());
    let kind = reservation.reservation_type().map_or("default", |it| it.as_str());
    Some(CapacityReservation {
        id: owned(reservation.capacity_reservation_id())?,
        owner_id: text(reservation.owner_id()),
        instance_type: owned(reservation.instance_type())?,
        zone: text(reservation.availability_zone()),
        match_criteria: InstanceMatchCriteria::ALL.iter().copied().find(|it| it.as_str() == criteria)?,
        reservation_type: ReservationType::ALL.iter().copied().find(|it| it.as_str() == kind)?,
        interruptible: reservation.interruptible().unwrap_or(false),
        remaining: count(reservation.available_instance_count()),
        ends_at: reservation.end_date().and_then(timestamp),
    })
}

pub(super) fn placement_group(group: &types::PlacementGroup) -> Option<PlacementGroup> {
    Some(PlacementGroup {
        id: owned(group.group_id())?,
        name: text(group.group_name()),
        strategy: text(group.strategy().map(|it| it.as_str())),
        partitions: group.partition_count(),
    })
}

pub(super) fn type_in_zone(offering: &types::InstanceTypeOffering) -> Option<TypeInZone> {
    let instance_type = offering.instance_type()?.as_str().to_owned();
    Some(TypeInZone { instance_type, zone: owned(offering.location())? })
}

pub(super) fn spot_price(price: &types::SpotPrice) -> Option<SpotPrice> {
    Some(SpotPrice {
        instance_type: price.instance_type()?.as_str().to_owned(),
        zone: owned(price.availability_zone())?,
        price: PriceNanoUsdPerHour::parse_rounded(price.spot_price()?).ok()?,
    })
}

/// The end of an event stays listed for days, which only its words tell.
const OVER: [&str; 2] = ["[Completed]", "[Canceled]"];

/// What EC2 finds fault with; none if that is nothing, whatever was asked for.
pub(super) fn machine_status(status: &types::InstanceStatus) -> Option<MachineStatus> {
    let is_ahead = |event: &&types::InstanceStatusEvent| {
        let description = event.description().unwrap_or_default();
        !OVER.iter().any(|word| description.starts_with(word))
    };
    let planned = |event: &types::InstanceStatusEvent| {
        let code = event.code()?.as_str().to_owned();
        Some(PlannedEvent { code, not_before: event.not_before().and_then(timestamp) })
    };
    let events = status.events().iter().filter(is_ahead).filter_map(planned);
    let found = MachineStatus {
        id: owned(status.instance_id())?,
        instance_impaired_since: status.instance_status().and_then(impaired_since),
        system_impaired_since: status.system_status().and_then(impaired_since),
        events: events.collect(),
    };
    let is_faulty = found.instance_impaired_since.is_some() || found.system_impaired_since.is_some();
    (is_faulty || !found.events.is_empty()).then_some(found)
}

fn impaired_since(summary: &types::InstanceStatusSummary) -> Option<Timestamp> {
    let failed = summary.details().iter().filter(|it| it.status() == Some(&types::StatusType::Failed));
    failed.filter_map(|details| details.impaired_since().and_then(timestamp)).min()
}

pub(super) fn template(template: &types::LaunchTemplate) -> Option<ExistingTemplate> {
    Some(ExistingTemplate {
        id: owned(template.launch_template_id())?,
        name: text(template.launch_template_name()),
        tags: tags(template.tags()),
    })
}

pub(super) fn fleet(answer: &CreateFleetOutput) -> FleetAnswer {
    FleetAnswer {
        fleet_id: owned(answer.fleet_id()),
        machines: answer.instances().iter().map(fleet_machines).collect(),
        errors: answer.errors().iter().map(fleet_error).collect(),
    }
}

fn overrides(of: Option<&types::LaunchTemplateAndOverridesResponse>) -> Option<&types::FleetLaunchTemplateOverrides> {
    of.and_then(|it| it.overrides())
}

fn fleet_machines(instances: &types::CreateFleetInstance) -> FleetMachines {
    let asked = overrides(instances.launch_template_and_overrides());
    let instance_type = instances.instance_type().or_else(|| asked.and_then(|it| it.instance_type()));
    let zone = instances.availability_zone().or_else(|| asked.and_then(|it| it.availability_zone()));
    FleetMachines {
        ids: instances.instance_ids().to_vec(),
        instance_type: text(instance_type.map(|it| it.as_str())),
        zone: text(zone),
        subnet_id: owned(instances.subnet_id().or_else(|| asked.and_then(|it| it.subnet_id()))),
        image_id: owned(asked.and_then(|it| it.image_id())),
    }
}

fn fleet_error(error: &types::CreateFleetError) -> FleetError {
    let asked = overrides(error.launch_template_and_overrides());
    let template = error.launch_template_and_overrides().and_then(|it| it.launch_template_specification());
    FleetError {
        code: text(error.error_code()),
        message: text(error.error_message()),
        instance_type: asked.and_then(|it| it.instance_type()).map(|it| it.as_str().to_owned()),
        zone: asked.and_then(|it| owned(it.availability_zone())),
        subnet_id: asked.and_then(|it| owned(it.subnet_id())),
        launch_template: template.and_then(|it| owned(it.launch_template_name())),
    }
}

/// A machine, whatever else is missing: one that is not seen would be launched again.
pub(super) fn machine(instance: &types::Instance) -> Option<Machine> {
    let placement = instance.placement();
    let is_spot_lifecycle = instance.instance_lifecycle() == Some(&types::InstanceLifecycleType::Spot);
    let is_efa = |interface: &&types::InstanceNetworkInterface| {
        interface.interface_type().is_some_and(|it| it == "efa" || it == "efa-only")
    };
    let efa_count = instance.network_interfaces().iter().filter(is_efa).count();
    Some(Machine {
        id: owned(instance.instance_id())?,
        state: state(instance.state().and_then(|state| state.name())),
        instance_type: text(instance.instance_type().map(|it| it.as_str())),
        zone: text(placement.and_then(|it| it.availability_zone())),
        image_id: text(instance.image_id()),
        subnet_id: owned(instance.subnet_id()),
        security_group_ids: instance.security_groups().iter().filter_map(|group| owned(group.group_id())).collect(),
        launched_at: instance.launch_time().and_then(timestamp).unwrap_or_default(),
        is_spot: is_spot_lifecycle || owned(instance.spot_instance_request_id()).is_some(),
        capacity_reservation_id: owned(instance.capacity_reservation_id()),
        placement_group_id: placement.and_then(|it| owned(it.group_id())),
        partition: placement.and_then(|it| it.partition_number()),
        efa_count: u32::try_from(efa_count).unwrap_or(u32::MAX),
        tags: tags(instance.tags()),
    })
}

/// A state that we do not know is taken for one of a machine that is there.
fn state(name: Option<&types::InstanceStateName>) -> MachineState {
    match name.map_or("", |name| name.as_str()) {
        "pending" => MachineState::Pending,
        "stopping" => MachineState::Stopping,
        "stopped" => MachineState::Stopped,
        "shutting-down" => MachineState::ShuttingDown,
        "terminated" => MachineState::Terminated,
        _ => MachineState::Running,
    }
}
