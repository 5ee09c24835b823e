//! Dynamic Resource Allocation: upstream's answer, with a reason.
//!
//! A library without I/O. It reads the `resource.k8s.io` objects into types of its own ([`types`]), which keep what
//! they do not understand instead of dropping it, and evaluates device selectors ([`cel`]) as the API server and
//! kube-scheduler of a given Kubernetes release ([`Compat`]) would.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

pub mod cel;
pub mod compat;
pub mod types;

pub use compat::{Compat, Gate, Gates, KubernetesMinor};
