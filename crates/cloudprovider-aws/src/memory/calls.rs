//! The calls of EC2.

use std::collections::BTreeSet;

use async_trait::async_trait;
use model::Timestamp;

use super::content::Content;
use super::filters::{Found, found};
use super::{Cloud, Lag, State, Tagged, error, fleet};
use crate::catalogue;
use crate::instance_types::info::InstanceTypeInfo;
use crate::launch::fleet::FleetRequest;
use crate::launch::template::LaunchTemplate;
use crate::node_class::spec::Tags;
use crate::service::Error;
use crate::service::ec2::{
    CapacityReservation, Ec2, ExistingTemplate, FleetAnswer, Image, Machine, MachineState, MachineStatus,
    PlacementGroup, Query, SecurityGroup, SpotPrice, Subnet, TypeInZone,
};

impl Found for Tagged<Subnet> {
    fn id(&self) -> &str {
        &self.thing.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        (name == "subnet-id").then(|| self.thing.id.clone())
    }
}

impl Found for Tagged<SecurityGroup> {
    fn id(&self) -> &str {
        &self.thing.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        match name {
            "group-id" => Some(self.thing.id.clone()),
            "group-name" => Some(self.thing.name.clone()),
            _ => None,
        }
    }
}

impl Found for Tagged<Image> {
    fn id(&self) -> &str {
        &self.thing.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        match name {
            "image-id" => Some(self.thing.id.clone()),
            "name" => Some(self.thing.name.clone()),
            "state" => Some("available".to_owned()),
            _ => None,
        }
    }
}

impl Found for Tagged<CapacityReservation> {
    fn id(&self) -> &str {
        &self.thing.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        match name {
            "state" => Some("active".to_owned()),
            "owner-id" => Some(self.thing.owner_id.clone()),
            "instance-match-criteria" => Some(self.thing.match_criteria.as_str().to_owned()),
            _ => None,
        }
    }
}

impl Found for Tagged<PlacementGroup> {
    fn id(&self) -> &str {
        &self.thing.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        match name {
            "state" => Some("available".to_owned()),
            "group-name" => Some(self.thing.name.clone()),
            _ => None,
        }
    }
}

impl Found for ExistingTemplate {
    fn id(&self) -> &str {
        &self.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        (name == "launch-template-name").then(|| self.name.clone())
    }
}

impl Found for Machine {
    fn id(&self) -> &str {
        &self.id
    }

    fn tags(&self) -> &Tags {
        &self.tags
    }

    fn attribute(&self, name: &str) -> Option<String> {
        match name {
            "instance-id" => Some(self.id.clone()),
            "instance-state-name" => Some(state_name(self.state).to_owned()),
            _ => None,
        }
    }
}

const fn state_name(state: MachineState) -> &'static str {
    match state {
        MachineState::Pending => "pending",
        MachineState::Running => "running",
        MachineState::Stopping => "stopping",
        MachineState::Stopped => "stopped",
        MachineState::ShuttingDown => "shutting-down",
        MachineState::Terminated => "terminated",
    }
}

/// What a query finds of things with tags.
fn things<'a, T: Clone + 'a>(
    call: &'static str,
    all: impl Iterator<Item = &'a Tagged<T>>,
    query: &Query,
) -> Result<Vec<T>, Error>
where
    Tagged<T>: Found,
{
    Ok(found(call, all, query)?.into_iter().map(|it| it.thing.clone()).collect())
}

/// EC2 refuses a call that names a machine which it does not know, whatever else it names.
fn no_such_machine(call: &'static str, id: &str) -> Error {
    error(call, "InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
}

/// Begins to end a machine, whoever wants it. It gives back what it took.
pub(super) fn terminate(state: &mut State, id: &str, now: Timestamp) {
    let Some(record) = state.machines.get_mut(id).filter(|record| record.is_alive(now)) else { return };
    record.terminate_at(now);
    let machine = record.facts();
    if let Some(subnet) = machine.subnet_id.as_ref().and_then(|id| state.subnets.get_mut(id)) {
        subnet.thing.free_addresses += 1;
    }
    if let Some(reservation) = machine.capacity_reservation_id.as_ref().and_then(|id| state.reservations.get_mut(id)) {
        reservation.thing.remaining += 1;
    }
}

#[async_trait]
impl Ec2 for Cloud {
    async fn describe_subnets(&self, query: &Query) -> Result<Vec<Subnet>, Error> {
        const CALL: &str = "ec2:DescribeSubnets";
        self.call(CALL, 0, |state, _| things(CALL, state.subnets.values(), query)).await
    }

    async fn describe_security_groups(&self, query: &Query) -> Result<Vec<SecurityGroup>, Error> {
        const CALL: &str = "ec2:DescribeSecurityGroups";
        self.call(CALL, 0, |state, _| things(CALL, state.security_groups.values(), query)).await
    }

    /// Whose an image is does not count here.
    async fn describe_images(&self, query: &Query, _: &[String]) -> Result<Vec<Image>, Error> {
        const CALL: &str = "ec2:DescribeImages";
        self.call(CALL, 0, |state, _| things(CALL, state.images.values(), query)).await
    }

    async fn describe_capacity_reservations(&self, query: &Query) -> Result<Vec<CapacityReservation>, Error> {
        const CALL: &str = "ec2:DescribeCapacityReservations";
        self.call(CALL, 0, |state, now| {
            if let Some(id) = query.ids.iter().find(|id| !state.reservations.contains_key(*id)) {
                let message = format!("The capacity reservation '{id}' does not exist");
                return Err(error(CALL, "InvalidCapacityReservationId.NotFound", message));
            }
            let mut all = things(CALL, state.reservations.values(), query)?;
            all.retain(|it| it.ends_at.is_none_or(|end| end > now));
            Ok(all)
        })
        .await
    }

    async fn describe_placement_groups(&self, query: &Query) -> Result<Vec<PlacementGroup>, Error> {
        const CALL: &str = "ec2:DescribePlacementGroups";
        self.call(CALL, 0, |state, _| things(CALL, state.placement_groups.values(), query)).await
    }

    /// The types that are sold, without what only the built-in table knows of them.
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, Error> {
        self.call("ec2:DescribeInstanceTypes", 0, |state, _| {
            let names: BTreeSet<_> = state.types_in_zones.iter().map(|it| &it.instance_type).collect();
            let record = |name: &String| state.records.get(name).or_else(|| catalogue::instance_types().get(name));
            let told = |info: &InstanceTypeInfo| InstanceTypeInfo {
                branch_interfaces: None,
                network_bandwidth_mbps: None,
                ..info.clone()
            };
            Ok(names.into_iter().filter_map(record).map(told).collect())
        })
        .await
    }

    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeInZone>, Error> {
        self.call("ec2:DescribeInstanceTypeOfferings", 0, |state, _| Ok(state.types_in_zones.clone())).await
    }

    async fn describe_spot_price_history(&self, _: Timestamp) -> Result<Vec<SpotPrice>, Error> {
        self.call("ec2:DescribeSpotPriceHistory", 0, |state, _| {
            let price = |it: &TypeInZone| {
                let price = state.prices.price(&it.instance_type, &it.zone, cloudprovider::CapacityType::Spot)?;
                Some(SpotPrice { instance_type: it.instance_type.clone(), zone: it.zone.clone(), price })
            };
            Ok(state.types_in_zones.iter().filter_map(price).collect())
        })
        .await
    }

    async fn describe_instance_status(&self) -> Result<Vec<MachineStatus>, Error> {
        self.call("ec2:DescribeInstanceStatus", 0, |state, now| {
            let alive = state.machines.iter().filter(|(_, record)| record.is_alive(now));
            let status = alive.map(|(id, record)| MachineStatus {
                id: id.clone(),
                instance_impaired_since: record.impaired_since,
                system_impaired_since: record.host_impaired_since,
                events: record.events.clone(),
            });
            let is_bad = |it: &MachineStatus| {
                it.instance_impaired_since.is_some() || it.system_impaired_since.is_some() || !it.events.is_empty()
            };
            Ok(status.filter(is_bad).collect())
        })
        .await
    }

    async fn describe_launch_templates(&self, query: &Query) -> Result<Vec<ExistingTemplate>, Error> {
        const CALL: &str = "ec2:DescribeLaunchTemplates";
        self.call(CALL, 0, |state, now| {
            let shown = state.templates.values().filter(|it| it.shown_from <= now).map(|it| &it.existing);
            Ok(found(CALL, shown, query)?.into_iter().cloned().collect())
        })
        .await
    }

    async fn create_launch_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), Error> {
        self.make_template(name, Content::of(template)).await
    }

    async fn delete_launch_template(&self, id: &str) -> Result<(), Error> {
        const CALL: &str = "ec2:DeleteLaunchTemplate";
        self.call(CALL, 0, |state, _| {
            let before = state.templates.len();
            state.templates.retain(|_, template| template.existing.id != id);
            if state.templates.len() == before {
                let message = format!("The launch template '{id}' does not exist");
                return Err(error(CALL, "InvalidLaunchTemplateId.NotFound", message));
            }
            Ok(())
        })
        .await
    }

    async fn create_fleet(&self, request: &FleetRequest, count: usize, token: &str) -> Result<FleetAnswer, Error> {
        self.call("ec2:CreateFleet", count, |state, now| fleet::create(state, request, count, token, now)).await
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), Error> {
        const CALL: &str = "ec2:CreateFleet";
        self.call(CALL, 0, |state, now| {
            fleet::check(state, request, now)?;
            state.dry_runs.get("fleet").map_or(Ok(()), |error| Err(error.clone()))
        })
        .await
    }

    async fn dry_run_instance(&self, template: &str, _: &str, subnet_id: &str) -> Result<(), Error> {
        const CALL: &str = "ec2:RunInstances";
        self.call(CALL, 0, |state, _| {
            if !state.templates.contains_key(template) {
                let message = format!("The launch template {template} does not exist");
                return Err(error(CALL, "InvalidLaunchTemplateName.NotFoundException", message));
            }
            if !state.subnets.contains_key(subnet_id) {
                return Err(error(
                    CALL,
                    "InvalidSubnetID.NotFound",
                    format!("The subnet ID '{subnet_id}' does not exist"),
                ));
            }
            state.dry_runs.get("instance").map_or(Ok(()), |error| Err(error.clone()))
        })
        .await
    }

    async fn describe_instances(&self, query: &Query) -> Result<Vec<Machine>, Error> {
        const CALL: &str = "ec2:DescribeInstances";
        self.call(CALL, 0, |state, now| {
            let told: Vec<_> = state.machines.values().filter_map(|record| record.told(now)).collect();
            if let Some(id) = query.ids.iter().find(|id| !told.iter().any(|machine| machine.id == **id)) {
                return Err(no_such_machine(CALL, id));
            }
            Ok(found(CALL, &told, query)?.into_iter().cloned().collect())
        })
        .await
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<String>, Error> {
        const CALL: &str = "ec2:TerminateInstances";
        self.call(CALL, ids.len(), |state, now| {
            if let Some(id) = ids.iter().find(|id| !state.machines.contains_key(*id)) {
                return Err(no_such_machine(CALL, id));
            }
            for id in ids {
                terminate(state, id, now);
            }
            Ok(ids.to_vec())
        })
        .await
    }

    async fn reboot_instance(&self, id: &str) -> Result<(), Error> {
        const CALL: &str = "ec2:RebootInstances";
        self.call(CALL, 0, |state, now| {
            let record = state.machines.get_mut(id).ok_or_else(|| no_such_machine(CALL, id))?;
            if !record.is_alive(now) {
                let message = format!("The instance '{id}' is not in a state from which it can be rebooted.");
                return Err(error(CALL, "IncorrectInstanceState", message));
            }
            record.impaired_since = None;
            Ok(())
        })
        .await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), Error> {
        const CALL: &str = "ec2:CreateTags";
        self.call(CALL, 0, |state, now| {
            if let Some(id) = ids.iter().find(|id| !state.machines.contains_key(*id)) {
                return Err(no_such_machine(CALL, id));
            }
            let lag = state.lag(Lag::Tags);
            for id in ids {
                if let Some(record) = state.machines.get_mut(id) {
                    record.add_tags(tags, lag, now);
                }
            }
            Ok(())
        })
        .await
    }
}
