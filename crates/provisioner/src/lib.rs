//! The imperative shell of Dovetail: watches, controllers, commit, leader election, metrics and the command line.
//!
//! A library besides the binary `dovetail`, so that tests and benchmarks can run its parts.

pub mod assignments;
pub mod clock;
pub mod context;
pub mod metrics;
pub mod options;
pub mod queue;
pub mod recorder;
pub mod store;

pub use context::Context;
