//! The built binary on files, each test in a folder of its own.

mod bad_input;
mod catalogue;
mod corpus;
mod default_spread;
mod device_costs;
mod disruption;
mod dra;
mod dra_bad_input;
mod examples;
mod guide;
mod manifests;
mod overlay;
mod plan;
mod plan_devices;
mod plan_ec2;
mod scratch;
mod snapshot;
mod verify_ec2;
