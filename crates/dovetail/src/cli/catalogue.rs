//! `dovetail catalogue`: what a provider can launch, what it costs, and which devices it brings.

mod report;
mod table;

use std::path::PathBuf;

use anyhow::bail;
use clap::ValueEnum;
use serde_json::json;

use super::input::Documents;
use super::machine_types::MachineTypesArgs;
use super::overlay::objects::{Objects, World};
use super::progress::Progress;
use super::{Outcome, output};
use report::Type;

/// Print the instance types of a provider: capacity, prices, devices
///
/// Prints the types as the planner sees them. With -f, as NodePools see them: node classes change capacity and
/// overhead, NodeOverlays change prices, capacity and devices. Prices of devices are those of the cheapest offering,
/// divided by the number of devices of a driver; partitions of a device count as one. A partition costs the part of its
/// device's price that it takes of the device: of the counter of which it takes the largest part. Needs neither a
/// cluster nor a cloud.
///
/// Exit code: 0 if all input could be used, 1 if not or on an error, 2 on wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail catalogue
  dovetail catalogue --type m-8x-amd64-linux
  dovetail catalogue --provider aws --devices
  dovetail catalogue -f nodepools.yaml -f overlays/ -o json")]
pub(super) struct Args {
    /// File or folder with NodePools, NodeOverlays and node classes, - for standard input; may be given more than once
    /// [default: the built-in NodePool]
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    /// Print only this instance type, with everything that is known of it; may be given more than once
    #[arg(long = "type", value_name = "NAME")]
    only: Vec<String>,
    /// Print the devices of the types instead, a line for each kind of device, with what one costs of its machine
    #[arg(long)]
    devices: bool,
    #[command(flatten)]
    machines: MachineTypesArgs,
    /// How to print the types
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// How types are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people, a line for each type, or everything about the types that --type names
    Table,
    /// For programs
    Json,
    /// For programs, as YAML
    Yaml,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let progress = Progress::new("reading");
    let objects = Objects::new(Documents::read(&args.filenames)?, &args.machines)?;
    let world = World::new(&objects)?;
    let is_wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|it| it == name);
    let types: Vec<Type> = world
        .pools()
        .flat_map(|(pool, types)| types.iter().map(move |it| (pool, it)))
        .filter(|(_, it)| is_wanted(it.name.as_str()))
        .map(|(pool, it)| Type::new(Some(pool).filter(|_| !objects.pools.is_empty()), it))
        .collect();
    drop(progress);
    objects.problems.iter().chain(&world.rejected).for_each(output::problem);
    let is_missing = |name: &&String| !types.iter().any(|it| it.name == **name);
    if let Some(name) = args.only.iter().find(is_missing) {
        bail!("provider {} has no instance type {name} there", args.machines.declaration().name);
    }
    let text = match args.output {
        Format::Table if args.devices => table::devices(&types),
        Format::Table if args.only.is_empty() => table::list(&types),
        Format::Table => table::everything(&types),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&document(&types))?),
        Format::Yaml => serde_saphyr::to_string(&document(&types))?,
    };
    output::stdout(text.as_bytes())?;
    let is_bad = !objects.problems.is_empty() || !world.rejected.is_empty();
    Ok(if is_bad { Outcome::BadInput } else { Outcome::Done })
}

fn document(types: &[Type]) -> serde_json::Value {
    json!({"schemaVersion": 1, "instanceTypes": types})
}
