//! The imperative shell of Dovetail: watches, controllers, commit, leader election, metrics and the command line.
//!
//! A library besides the binary `dovetail`, so that tests and benchmarks can run its parts.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod assignments;
pub mod beats;
pub mod cli;
pub mod client;
pub mod clock;
pub mod conditions;
pub mod context;
pub mod controller;
pub mod failpoints;
pub mod handover;
pub mod health;
pub mod http_server;
mod jitter;
pub mod leader_election;
pub mod lifecycle;
pub mod logging;
pub mod metered_provider;
pub mod metrics;
pub mod metrics_access;
pub mod namespace;
pub mod nodepool;
pub mod options;
pub mod overlays;
pub mod panics;
pub mod patch;
pub mod planned_pods;
pub mod planner_state;
pub mod provider;
pub mod provisioning;
pub mod queue;
pub mod recorder;
pub mod store;
pub mod supervision;
pub mod termination;
#[cfg(test)]
mod test_pods;
pub mod unreadable_pods;

pub use context::Context;
