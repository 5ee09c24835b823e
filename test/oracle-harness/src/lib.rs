//! What the comparisons with upstream's libraries share: the conversation with an oracle, and the counting.
//!
//! The programs are examples of the crates that they compare (`--example differential` of `k8s-cel` and `dra-sched`,
//! `--example plugin_differential`); `cargo xtask oracle` runs them.

pub mod arguments;
pub mod counts;
pub mod oracle;
pub mod shrink;
pub mod tally;
pub mod varying;
