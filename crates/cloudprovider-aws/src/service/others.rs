//! The services beside EC2, as far as they are called.

use async_trait::async_trait;
use model::{PriceNanoUsdPerHour, Timestamp};
use serde::{Deserialize, Serialize};

use super::Error;
use crate::node_class::spec::Tags;

/// The calls of Systems Manager.
#[async_trait]
pub trait Ssm: Send + Sync {
    /// A parameter's value, by its name or ARN.
    async fn get_parameter(&self, name: &str) -> Result<String, Error>;
}

/// An instance profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceProfile {
    /// Its name.
    pub name: String,
    /// The path that it is below.
    pub path: String,
    /// The name of its role; there is at most one.
    pub role: Option<String>,
    /// Its tags; a list does not tell them.
    pub tags: Tags,
}

/// The calls of Identity and Access Management.
#[async_trait]
pub trait Iam: Send + Sync {
    /// An instance profile.
    async fn get_instance_profile(&self, name: &str) -> Result<InstanceProfile, Error>;
    /// The instance profiles below a path.
    async fn list_instance_profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, Error>;
    /// Makes an instance profile without a role.
    async fn create_instance_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<(), Error>;
    /// Adds tags to an instance profile.
    async fn tag_instance_profile(&self, name: &str, tags: &Tags) -> Result<(), Error>;
    /// Gives an instance profile its role.
    async fn add_role(&self, profile: &str, role: &str) -> Result<(), Error>;
    /// Takes the role off an instance profile.
    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), Error>;
    /// Removes an instance profile that has no role.
    async fn delete_instance_profile(&self, name: &str) -> Result<(), Error>;
    /// Whether there is a role of that name.
    async fn role_exists(&self, name: &str) -> Result<bool, Error>;
}

/// A message of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Names the message when it is deleted.
    pub receipt: String,
    /// Its text.
    pub body: String,
}

/// The calls of Simple Queue Service, for one queue.
#[async_trait]
pub trait Sqs: Send + Sync {
    /// Up to ten messages; waits for the first up to 20 s. They are hidden from others for as long.
    async fn receive(&self) -> Result<Vec<Message>, Error>;
    /// Removes a message.
    async fn delete(&self, receipt: &str) -> Result<(), Error>;
}

/// What EKS knows of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterDescription {
    /// Its ARN.
    pub arn: Option<String>,
    /// URL of the API server.
    pub endpoint: String,
    /// The version of Kubernetes, such as `1.37`.
    pub version: String,
    /// The range of services' addresses of IPv4.
    pub service_ipv4_cidr: Option<String>,
    /// The range of services' addresses of IPv6.
    pub service_ipv6_cidr: Option<String>,
}

/// The calls of EKS.
#[async_trait]
pub trait Eks: Send + Sync {
    /// What EKS knows of a cluster.
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, Error>;
}

/// What a type costs by use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDemandPrice {
    /// The type.
    pub instance_type: String,
    /// The price.
    pub price: PriceNanoUsdPerHour,
}

/// Which half of the price list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PriceList {
    /// Virtual machines that share their host.
    Shared,
    /// Bare metal.
    BareMetal,
}

/// The calls of Pricing.
#[async_trait]
pub trait Pricing: Send + Sync {
    /// What types cost in a region, for Linux.
    async fn get_products(&self, region: &str, list: PriceList) -> Result<Vec<OnDemandPrice>, Error>;
}

/// The calls of Security Token Service.
#[async_trait]
pub trait Sts: Send + Sync {
    /// The account that we are in.
    async fn account_id(&self) -> Result<String, Error>;
}

/// That traffic is shifted away from a zone: by the user for a while, or by AWS for as long as it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonalShift {
    /// The id of the zone.
    pub zone_id: String,
    /// When it ends; AWS does not say it of its own.
    pub ends_at: Option<Timestamp>,
}

/// The calls of Application Recovery Controller.
#[async_trait]
pub trait ZonalShifts: Send + Sync {
    /// The shifts that are applied to a resource, by its ARN.
    async fn get_managed_resource(&self, arn: &str) -> Result<Vec<ZonalShift>, Error>;
}
