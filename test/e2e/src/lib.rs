//! A real control plane and the real controller, for tests and for the demonstration.
//!
//! [`ControlPlane`] boots etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok; [`Controller`] runs
//! the `dovetail` binary against it with exactly the rights that the Helm chart gives. Whatever way the process that
//! holds them ends, nothing keeps running.
//!
//! Nothing here waits for a fixed time: [`eventually`] asks until the answer is right or a deadline passes, and then
//! says what was still wrong.

pub mod apply;
pub mod audit;
pub mod bench;
pub mod binary;
pub mod client;
pub mod cluster;
pub mod control_plane;
pub mod controller;
pub mod devices;
pub mod ec2;
pub mod exit;
pub mod fault_proxy;
pub mod faults;
pub mod fidelity;
pub mod fleet;
pub mod following;
pub mod install;
pub mod karpenter_suites;
mod local_http;
pub mod monitoring;
pub mod objects;
pub mod prometheus;
pub mod scratch;
pub mod wait;
mod watchdog;

pub use control_plane::{Component, ControlPlane, Gates, Kubernetes, Platform};
pub use controller::Controller;
pub use wait::eventually;
