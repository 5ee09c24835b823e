//! Measurements; each is a binary of its own, run by `cargo xtask bench`.
