//! The services of AWS by its SDK: the traits of `cloudprovider_aws::service`, called over the network.
//!
//! Types of the SDK become types of ours, pages become lists, codes become kinds of errors. Nothing is decided here,
//! and nobody else sees the SDK. It takes longer to compile than all else, so without the feature `sdk` this crate is
//! empty; `cargo xtask trimmed-sdk` makes it bearable.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

#[cfg(feature = "sdk")]
mod connect;
#[cfg(feature = "sdk")]
mod ec2;
#[cfg(feature = "sdk")]
mod fault;
#[cfg(feature = "sdk")]
mod iam;
#[cfg(feature = "sdk")]
mod others;
#[cfg(feature = "sdk")]
mod pages;
#[cfg(feature = "sdk")]
mod pricing;

#[cfg(feature = "sdk")]
pub use connect::Sdk;
