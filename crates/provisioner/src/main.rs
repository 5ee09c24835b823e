//! The binary `dovetail`; see [`provisioner::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    provisioner::cli::main()
}
