//! EC2, as far as it is called. Answers are whole: pages are the adapter's business.

use async_trait::async_trait;
use model::{PriceNanoUsdPerHour, Timestamp};
use serde::{Deserialize, Serialize};

use super::Error;
use crate::instance_types::info::InstanceTypeInfo;
use crate::launch::fleet::FleetRequest;
pub use crate::launch::placement_group::PlacementGroup;
use crate::launch::template::LaunchTemplate;
use crate::node_class::spec::{InstanceMatchCriteria, Tags};
use crate::node_class::status::ReservationType;

/// What is asked for: by id, by filters, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Query {
    /// Ids; any where empty.
    pub ids: Vec<String>,
    /// All of them must hold. A name may be there twice.
    pub filters: Vec<Filter>,
}

/// A filter: one of the values must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Filter {
    /// What is looked at.
    pub name: String,
    /// What it may be.
    pub values: Vec<String>,
}

impl Filter {
    /// A filter with one value.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), values: vec![value.into()] }
    }
}

/// A subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// The zone's name.
    pub zone: String,
    /// The zone's id.
    pub zone_id: String,
    /// How many addresses are free.
    pub free_addresses: u32,
}

/// A security group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The processors that it is for, in EC2's words: `x86_64`, `arm64`, ….
    pub architecture: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its owner begins to advise against it.
    pub deprecated_at: Option<Timestamp>,
}

/// A capacity reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityReservation {
    /// Its id.
    pub id: String,
    /// The account that owns it.
    pub owner_id: String,
    /// The type that it is for.
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// Which launches use it.
    pub match_criteria: InstanceMatchCriteria,
    /// What kind it is.
    pub reservation_type: ReservationType,
    /// Whether its owner may take machines back.
    pub interruptible: bool,
    /// How many machines it has left.
    pub remaining: u32,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
}

/// That a type can be had in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TypeInZone {
    /// The type.
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
}

/// What spare capacity costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotPrice {
    /// The type.
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// The price.
    pub price: PriceNanoUsdPerHour,
}

/// What a request for a fleet led to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// The fleet's id.
    pub fleet_id: Option<String>,
    /// Machines, of each kind.
    pub machines: Vec<FleetMachines>,
    /// Why there are not as many as were asked for. There may be errors beside enough machines.
    pub errors: Vec<FleetError>,
}

/// Machines of one kind in the answer to a request for a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetMachines {
    /// Their ids.
    pub ids: Vec<String>,
    /// Their type.
    pub instance_type: String,
    /// Their zone's name.
    pub zone: String,
    /// Their subnet.
    pub subnet_id: Option<String>,
    /// Their image.
    pub image_id: Option<String>,
}

/// Why one kind of machine could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetError {
    /// The code.
    pub code: String,
    /// EC2's words.
    pub message: String,
    /// The type, if it is about one.
    pub instance_type: Option<String>,
    /// The zone's name, if it is about one.
    pub zone: Option<String>,
    /// The subnet, if it is about one.
    pub subnet_id: Option<String>,
    /// The launch template, if it is about one.
    pub launch_template: Option<String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// What it does.
    pub state: MachineState,
    /// Its type.
    pub instance_type: String,
    /// Its zone's name.
    pub zone: String,
    /// Its image.
    pub image_id: String,
    /// Its subnet.
    pub subnet_id: Option<String>,
    /// Its security groups.
    pub security_group_ids: Vec<String>,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Whether it is spare capacity.
    pub is_spot: bool,
    /// The reservation that it is in.
    pub capacity_reservation_id: Option<String>,
    /// The placement group that it is in.
    pub placement_group_id: Option<String>,
    /// Its partition of that group.
    pub partition: Option<i32>,
    /// How many Elastic Fabric Adapters it has.
    pub efa_count: u32,
    /// Its tags.
    pub tags: Tags,
}

/// What a machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MachineState {
    /// It comes up.
    Pending,
    /// It runs.
    Running,
    /// It is being stopped.
    Stopping,
    /// It is stopped, and could be started.
    Stopped,
    /// It is being removed.
    ShuttingDown,
    /// It is gone.
    Terminated,
}

/// That EC2 finds fault with a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// The machine's id.
    pub id: String,
    /// Since when its own checks have failed.
    pub instance_impaired_since: Option<Timestamp>,
    /// Since when those of its host have failed.
    pub system_impaired_since: Option<Timestamp>,
    /// Events that are planned for it.
    pub events: Vec<PlannedEvent>,
}

/// Something that AWS will do to a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEvent {
    /// What, such as `instance-retirement`.
    pub code: String,
    /// When at the earliest, if that is told.
    pub not_before: Option<Timestamp>,
}

/// A launch template that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingTemplate {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Tags,
}

/// The calls of EC2. Each fails with an [`Error`] that says which call it was.
#[async_trait]
pub trait Ec2: Send + Sync {
    /// The subnets that a query finds.
    async fn describe_subnets(&self, query: &Query) -> Result<Vec<Subnet>, Error>;
    /// The security groups that a query finds.
    async fn describe_security_groups(&self, query: &Query) -> Result<Vec<SecurityGroup>, Error>;
    /// The images that a query finds among those of the owners, deprecated ones included; of anybody without owners.
    async fn describe_images(&self, query: &Query, owners: &[String]) -> Result<Vec<Image>, Error>;
    /// The capacity reservations that a query finds.
    async fn describe_capacity_reservations(&self, query: &Query) -> Result<Vec<CapacityReservation>, Error>;
    /// The placement groups that a query finds.
    async fn describe_placement_groups(&self, query: &Query) -> Result<Vec<PlacementGroup>, Error>;
    /// All types of the region that boot images with hardware virtualization on processors of x86-64 or ARM. What a
    /// record does not say is empty or 0.
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, Error>;
    /// Which types there are in which zones of the region.
    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeInZone>, Error>;
    /// What spare capacity costs now.
    async fn describe_spot_price_history(&self, now: Timestamp) -> Result<Vec<SpotPrice>, Error>;
    /// The machines that EC2 finds fault with.
    async fn describe_instance_status(&self) -> Result<Vec<MachineStatus>, Error>;
    /// The launch templates that a query finds.
    async fn describe_launch_templates(&self, query: &Query) -> Result<Vec<ExistingTemplate>, Error>;
    /// Makes a launch template of this name.
    async fn create_launch_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), Error>;
    /// Removes a launch template by its id.
    async fn delete_launch_template(&self, id: &str) -> Result<(), Error>;
    /// Launches `count` machines at once. The same token gives the answer that it gave the first time.
    async fn create_fleet(&self, request: &FleetRequest, count: usize, token: &str) -> Result<FleetAnswer, Error>;
    /// Whether machines could be launched as a fleet; `Ok` if EC2 says so.
    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), Error>;
    /// Whether one machine could be launched from a template into a subnet; `Ok` if EC2 says so.
    async fn dry_run_instance(&self, template: &str, instance_type: &str, subnet_id: &str) -> Result<(), Error>;
    /// The machines that a query finds.
    async fn describe_instances(&self, query: &Query) -> Result<Vec<Machine>, Error>;
    /// Removes machines; gives those that are being removed now.
    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<String>, Error>;
    /// Reboots a machine.
    async fn reboot_instance(&self, id: &str) -> Result<(), Error>;
    /// Adds tags to machines.
    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), Error>;
}
