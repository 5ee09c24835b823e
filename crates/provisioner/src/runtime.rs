//! What any controller of Kubernetes objects needs: clients with deadlines, queues, leader election, events, metrics,
//! health.
//!
//! Nothing here knows a NodePool or a plan but by the names of metrics.

pub(crate) mod beats;
pub mod client;
pub mod clock;
pub(crate) mod conditions;
pub(crate) mod controller_loop;
pub(crate) mod failpoints;
pub(crate) mod failures;
pub(crate) mod http_server;
pub(crate) mod jitter;
pub(crate) mod leader_election;
pub mod logging;
pub(crate) mod metrics;
pub(crate) mod metrics_access;
pub(crate) mod namespace;
pub(crate) mod panics;
pub(crate) mod patch;
pub(crate) mod queue;
pub(crate) mod recorder;
pub(crate) mod supervision;
