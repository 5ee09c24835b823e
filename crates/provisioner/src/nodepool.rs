//! What is kept up to date on NodePools: hash, node class readiness, validation, counters, registration health.

pub mod hash;
