//! The services of AWS that are called, without the SDK: requests and answers in types of ours, and what errors mean.
//!
//! There is one trait for each service, with the calls that we make and no others. What implements them turns types of
//! the SDK into these, pages into lists, and codes into [`Kind`]s; it decides nothing.

mod connect;
pub mod ec2;
pub mod error;
mod others;
pub mod throttling;

pub use connect::{ConnectError, Connector, Services};
pub use ec2::Ec2;
pub use error::{Error, FleetFault, Kind};
pub use others::{
    ClusterDescription, Eks, Iam, InstanceProfile, Message, OnDemandPrice, PriceList, Pricing, Sqs, Ssm, Sts,
    ZonalShift, ZonalShifts,
};
