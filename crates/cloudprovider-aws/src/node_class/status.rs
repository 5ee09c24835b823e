//! What was found for an EC2NodeClass.

use api::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::InstanceMatchCriteria;
use crate::text_enum::text_enum;

/// What the selectors of an EC2NodeClass found. Machines are launched with this, not with the selectors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// The subnets, those with the most free addresses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// The security groups, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// The capacity reservations, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// The images, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// The instance profile of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// What is ready and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A subnet that machines can be put into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// The name of its zone, which means something else in every account.
    pub zone: String,
    /// The id of its zone.
    #[serde(default, rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A security group that machines get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A capacity reservation that machines can be launched from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// The zone that it is in.
    pub availability_zone: String,
    /// When it ends; it does not where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Its id.
    pub id: String,
    /// Which launches use it.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// The instance type that it is for.
    pub instance_type: String,
    /// Whether its owner can take machines back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// The account that owns it.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// What kind of reservation it is.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// Whether it is about to end.
    #[serde(default)]
    pub state: ReservationState,
}

text_enum! {
    /// Kinds of capacity reservations.
    #[derive(Default)]
    pub enum ReservationType {
        /// On demand, for as long as it is paid for.
        #[default]
        Default = "default",
        /// A capacity block, for a time that was bought in advance.
        CapacityBlock = "capacity-block",
    }
}

text_enum! {
    /// Whether a capacity reservation is about to end.
    #[derive(Default)]
    pub enum ReservationState {
        /// It is not.
        #[default]
        Active = "active",
        /// It is: EC2 stops the machines of a capacity block soon.
        Expiring = "expiring",
    }
}

/// An image that machines can boot from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ami {
    /// Its id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its owner advises against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Which instance types it is for.
    pub requirements: Vec<NodeSelectorRequirement>,
}
