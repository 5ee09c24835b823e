//! Measurements; each is a binary of its own, run by `cargo xtask bench`. What is here they share with the simulator.

pub mod catalogues;
pub mod machine;
