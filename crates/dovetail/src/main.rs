//! The binary `dovetail`; see [`cli`].

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

mod cli;
mod providers;

use std::process::ExitCode;

/// The controller builds and drops small trees all the time, which this does in fewer steps than the systems' own; and
/// the one of musl, with which images are built, lets threads wait for each other. It asks for no huge pages
/// (`no_thp`): with them a small cluster took 69 MB instead of 49.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
