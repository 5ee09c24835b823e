//! The services of AWS that are called, without the SDK: requests and answers in types of ours, and what errors mean.

pub mod error;

pub use error::{Error, FleetFault, Kind};
