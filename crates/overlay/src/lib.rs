//! NodeOverlays: what people know better about instance types than the cloud provider does.
//!
//! [`Overlay`] is one of them, checked; [`evaluate`] applies all of them to the instance types of all NodePools and
//! says of each overlay whether it is in effect. The planner sees only what comes out.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod capture;
pub mod evaluate;
pub mod learn;
pub mod overlay;
pub mod price;
pub mod verify;

pub use evaluate::{Conflict, Described, Evaluation, Field, Pool, Rejection, evaluate};
pub use overlay::{Invalid, Overlay};
pub use price::PriceChange;
