//! The demonstration behind `cargo xtask demo`.
fn main() {}
