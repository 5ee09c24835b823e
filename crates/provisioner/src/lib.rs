//! The imperative shell of Dovetail: the controller and everything that it runs.
//!
//! * [`runtime`]: what any controller of Kubernetes objects needs, whatever it is about: clients, queues, leader
//!   election, events, metrics, health, the end of the process.
//! * [`world`]: what the controllers know and share: the watched cluster, catalogues, which pods a machine was launched
//!   for.
//! * [`controllers`]: one folder per concern, each reconciles objects of its kind. A controller uses `runtime` and
//!   `world`.
//! * [`controller`] starts them, in order, and stops them.
//!
//! A library besides the binary `dovetail`, so that tests and benchmarks can run its parts.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod controller;
pub mod controllers;
pub mod options;
pub mod runtime;
pub mod world;

pub use world::context::Context;
