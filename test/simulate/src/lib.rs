//! A cluster in virtual time: pods come and go for days, machines are launched and disrupted, and nothing of it takes
//! longer than to plan it. Our rules of disruption and Karpenter's are played on the same changes.
//!
//! * [`trace`]: what happens, from a seed and decided beforehand, so that it is the same whatever the rules do.
//! * [`market`]: instance types with prices that move and offerings that run out.
//! * [`world`]: workloads, pods and machines; a scheduler that binds pods where most is free, as kube-scheduler's
//!   scores do; the snapshot that planners get, made by `cluster` as the controller's is.
//! * [`rules`]: who decides which machines go.
//! * [`run`]: the loop of events, what it costs, and what must hold at all times.
//!
//! No clock, no files, no randomness but the seed's: the same arguments give the same outcome.
//!
//! Left out: machines that fail, evictions that take time or are refused, rules of pods beside requests and zones.

pub mod market;
pub mod plot;
pub mod report;
pub mod rules;
pub mod run;
pub mod trace;
pub mod world;
