//! `dovetail overlay`: write NodeOverlays, and look at what they say of devices, before and after there are machines.

mod capture;
mod cluster;
mod learn;
mod lint;
pub(super) mod objects;
mod render;
pub(super) mod table;
mod verify;
mod why;

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use super::input::Documents;
use super::machine_types::MachineTypesArgs;
use super::{Outcome, output};
use objects::{Objects, World};

/// Write and check NodeOverlays that describe devices
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Capture(CaptureArgs),
    Learn(LearnArgs),
    Lint(LintArgs),
    Render(RenderArgs),
    Verify(VerifyArgs),
}

/// Write a NodeOverlay from the ResourceSlices of a running node
///
/// Reads a node and the slices of its drivers from the cluster, or both from files. Keeps what describes the instance
/// type. Leaves out values that only this machine has; an attribute whose value several devices share becomes an
/// attribute binding. Comments above the overlay say what to look at. If the instance type is not known, the overlay
/// has a placeholder, which `lint` refuses.
///
/// Exit code: 0 if an overlay was written, 1 on an error, 2 on wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail overlay capture --node worker-1 > overlay.yaml
  kubectl get nodes,resourceslices -o json | dovetail overlay capture -f - --node worker-1 --driver gpu.example.com
  dovetail overlay capture -f slices.yaml --without resource.kubernetes.io/pciBusID")]
struct CaptureArgs {
    /// File or folder to read, - for standard input; may be given more than once [default: the cluster]
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    /// Name of the node; not needed if all slices are of one node
    #[arg(long, value_name = "NAME", required_unless_present = "filenames")]
    node: Option<String>,
    /// Capture only this driver
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Attribute to leave out; may be given more than once
    #[arg(long, value_name = "ATTRIBUTE")]
    without: Vec<String>,
    #[command(flatten)]
    machines: MachineTypesArgs,
    /// How to print the overlay
    #[arg(short, long, value_enum, default_value_t = ManifestFormat::Yaml)]
    output: ManifestFormat,
}

/// How a manifest is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ManifestFormat {
    /// For people
    Yaml,
    /// For programs
    Json,
}

/// What every subcommand reads.
#[derive(Debug, clap::Args)]
struct Input {
    /// File or folder to read, - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    machines: MachineTypesArgs,
}

/// Print which instance types get which devices, and from which overlay
///
/// Reads NodeOverlays and NodePools; without a NodePool it uses a built-in one. With -o json it also prints the
/// ResourceSlices, as drivers would publish them on a machine called `node`.
///
/// Exit code: 0 if all overlays are in effect, 1 if one is not, if with --why anything differs, or on an error, 2 on
/// wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail overlay render -f overlays/ -f nodepools.yaml
  dovetail overlay render -f overlays/ --provider aws --why p5.48xlarge
  kubectl get nodeoverlays,nodepools -o json | dovetail overlay render -f - --instance-types types.json
  dovetail overlay render -f overlay.yaml --type m-64x-amd64-linux -o json")]
struct RenderArgs {
    #[command(flatten)]
    input: Input,
    /// Print only this instance type
    #[arg(long = "type", value_name = "NAME")]
    instance_type: Option<String>,
    /// Say of this instance type who describes its devices: provider, overlays, generated ones, and machines of the
    /// type among the input's nodes with what their drivers have published; and in what they differ
    #[arg(long, value_name = "TYPE", conflicts_with = "instance_type")]
    why: Option<String>,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// List the drivers that publish devices which no template describes
///
/// Reads Nodes, ResourceSlices, NodePools and NodeOverlays. Lists each driver whose devices neither an overlay nor the
/// provider describes, with the instance type and node class of the machines it publishes on; then the overlays that
/// the controller has generated (`--learn-devices=apply`).
///
/// Exit code: 0 if everything is described, 1 if something is not or on an error, 2 on wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubectl get nodes,resourceslices,nodeoverlays,nodepools -o json | dovetail overlay learn -f -")]
struct LearnArgs {
    #[command(flatten)]
    input: Input,
}

/// Find mistakes in NodeOverlays
///
/// Finds what the API server and the controller refuse, and more: unknown fields, overlays that match no instance type,
/// templates that other overlays replace everywhere, DeviceClasses of the input whose selectors match no described
/// device, and drivers of whose DaemonSet (dynamicResources.drivers) no pod could run on the machines. If the input has
/// no DaemonSet at all, nothing is said of drivers.
///
/// Exit code: 0 if nothing was found, 1 if something was found or on an error, 2 on wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail overlay lint -f overlays/ -f nodepools.yaml -f deviceclasses.yaml")]
struct LintArgs {
    #[command(flatten)]
    input: Input,
}

/// Compare what drivers have published with the overlays
///
/// Reads Nodes, ResourceSlices, NodeOverlays and NodePools, from files or a cluster, and prints for each node and
/// driver which devices are missing, unexpected or different. A node's instance type and NodePool are taken from its
/// labels.
///
/// Exit code: 0 if everything is as described, 1 if something differs or on an error, 2 on wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail overlay verify
  dovetail overlay verify --node worker-1 --instance-types types.json
  dovetail overlay verify -o json
  kubectl get nodes,resourceslices,nodeoverlays,nodepools -o json | dovetail overlay verify -f -")]
struct VerifyArgs {
    /// File or folder to read, - for standard input; may be given more than once [default: the cluster]
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    machines: MachineTypesArgs,
    /// Compare only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.command {
        Command::Capture(args) => capture(&args),
        Command::Learn(args) => learn(&args),
        Command::Lint(args) => lint(&args),
        Command::Render(args) => render(&args),
        Command::Verify(args) => verify(&args),
    }
}

fn capture(args: &CaptureArgs) -> anyhow::Result<Outcome> {
    let documents = match &args.node {
        Some(node) if args.filenames.is_empty() => cluster::node_and_slices(node)?,
        _ => Documents::read(&args.filenames)?,
    };
    let objects = Objects::new(documents, &args.machines)?;
    objects.problems.iter().for_each(output::problem);
    let wanted = capture::Wanted { node: args.node.as_deref(), driver: args.driver.as_deref(), without: &args.without };
    let captured = capture::capture(&objects, wanted)?;
    let text = match args.output {
        ManifestFormat::Yaml => capture::yaml(&captured)?,
        ManifestFormat::Json => {
            captured.notes.iter().for_each(output::note);
            format!("{}\n", serde_json::to_string_pretty(&capture::manifest(&captured)?)?)
        }
    };
    output::stdout(text.as_bytes())?;
    Ok(if objects.problems.is_empty() { Outcome::Done } else { Outcome::BadInput })
}

fn read(input: &Input) -> anyhow::Result<Objects> {
    with_overlays(Documents::read(&input.filenames)?, &input.machines)
}

fn with_overlays(documents: Documents, machines: &MachineTypesArgs) -> anyhow::Result<Objects> {
    let objects = Objects::new(documents, machines)?;
    // The devices of a provider's own types can be looked at without an overlay.
    let is_described = objects.types.iter().any(|it| !it.dynamic_resources.is_empty());
    if objects.overlays.is_empty() && objects.problems.is_empty() && !is_described {
        anyhow::bail!("there is no NodeOverlay in the input");
    }
    Ok(objects)
}

fn render(args: &RenderArgs) -> anyhow::Result<Outcome> {
    let objects = read(&args.input)?;
    let world = World::new(&objects)?;
    objects.problems.iter().chain(&world.rejected).for_each(output::problem);
    let is_bad = !objects.problems.is_empty() || !world.rejected.is_empty();
    if let Some(name) = &args.why {
        if !world.pools().any(|(_, types)| types.iter().any(|it| it.name == **name)) {
            anyhow::bail!("provider {} has no instance type {name} there", args.input.machines.declaration().name);
        }
        let said = why::why(&objects, &world, name);
        print(args.output, &said, |said| why::lines(said))?;
        let is_agreed = said.iter().all(why::Said::is_agreed);
        return Ok(if is_bad || !is_agreed { Outcome::BadInput } else { Outcome::Done });
    }
    let rendered = render::render(&world, args.instance_type.as_deref());
    if let Some(name) = &args.instance_type
        && rendered.is_empty()
    {
        output::note(format_args!("no overlay describes devices of an instance type {name}"));
    }
    print(args.output, &rendered, |rendered| render::table(rendered))?;
    Ok(if is_bad { Outcome::BadInput } else { Outcome::Done })
}

fn print<T: Serialize>(format: Format, answer: &T, table: impl Fn(&T) -> String) -> anyhow::Result<()> {
    let text = match format {
        Format::Table => table(answer),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(answer)?),
    };
    output::stdout(text.as_bytes())
}

fn learn(args: &LearnArgs) -> anyhow::Result<Outcome> {
    let objects = Objects::new(Documents::read(&args.input.filenames)?, &args.input.machines)?;
    if objects.pools.is_empty() {
        anyhow::bail!("there is no NodePool in the input; overlays apply to machines of NodePools");
    }
    let world = World::new(&objects)?;
    objects.problems.iter().chain(&world.rejected).for_each(output::problem);
    let report = learn::learn(&objects, &world);
    output::stdout(learn::table(&report).as_bytes())?;
    let is_bad = !objects.problems.is_empty() || !world.rejected.is_empty() || !report.is_complete();
    Ok(if is_bad { Outcome::BadInput } else { Outcome::Done })
}

fn lint(args: &LintArgs) -> anyhow::Result<Outcome> {
    let documents = Documents::read(&args.input.filenames)?;
    let manifests = documents.manifests.clone();
    let objects = with_overlays(documents, &args.input.machines)?;
    let world = World::new(&objects)?;
    let mut found: Vec<String> =
        objects.problems.iter().chain(&world.rejected).cloned().chain(lint::lint(&objects, &world)).collect();
    found.extend(lint::drivers_without_pods(manifests, &objects)?);
    if found.is_empty() {
        output::stdout(
            format!("{}: nothing found\n", super::report::plural(objects.overlays.len(), "overlay", "overlays"))
                .as_bytes(),
        )?;
        return Ok(Outcome::Done);
    }
    found.iter().try_for_each(|problem| output::stdout(format!("{problem}\n").as_bytes()))?;
    Ok(Outcome::BadInput)
}

fn verify(args: &VerifyArgs) -> anyhow::Result<Outcome> {
    let documents = if args.filenames.is_empty() { cluster::all()? } else { Documents::read(&args.filenames)? };
    let objects = with_overlays(documents, &args.machines)?;
    let world = World::new(&objects)?;
    objects.problems.iter().chain(&world.rejected).for_each(output::problem);
    let report = verify::verify(&objects, &world, args.node.as_deref());
    report.unknown.iter().for_each(output::problem);
    if let Some(name) = &args.node
        && report.nodes.is_empty()
        && report.unknown.is_empty()
    {
        anyhow::bail!("there is no node {name} in the input, or no overlay describes its devices");
    }
    print(args.output, &report, verify::table)?;
    let is_bad = !objects.problems.is_empty() || !world.rejected.is_empty() || !report.is_as_described();
    Ok(if is_bad { Outcome::BadInput } else { Outcome::Done })
}
