//! What must stay true whatever goes wrong, and scenarios in which much does.
//!
//! [`audit`] holds machines against NodeClaims, now and over time; [`crashes`] kills the controller at each step that
//! it takes; [`silence`] lets connections go silent; [`rounds`] plays seeded random faults. Tests play a part of them,
//! `cargo xtask faults` all.

pub mod audit;
pub mod crashes;
pub mod rounds;
pub mod silence;
