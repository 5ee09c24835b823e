//! Reading files, folders and standard input, and turning what is in them into a snapshot.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use cloudprovider::RepairPolicies;
use cloudprovider::declaration::CatalogueError;
use cluster::node_claim::command::Note;
use cluster::offline::{self, InputProblem, Offline, OfflineNote, Settings};
use cluster::snapshot_file;
use decode::manifests::{self, DocumentError, DocumentReason, Manifest};
use decode::scheduler_config::SchedulerConfig;
use dra_types::Compat;
use model::Timestamp;
use scheduling::Snapshot;

use super::machine_types::{self, MachineTypes, MachineTypesArgs};
use super::output;
use super::release::ReleaseArgs;
use provisioner::world::planned_pods;

/// Files of a folder that hold manifests or snapshots.
const EXTENSIONS: [&str; 4] = ["json", "jsonl", "yaml", "yml"];
/// Most bytes of one input.
const MAX_INPUT_BYTES: u64 = 1 << 30;
/// Most folders inside each other.
const MAX_FOLDER_DEPTH: usize = 32;
/// Most files of one folder, those below it included.
const MAX_FILES: usize = 100_000;

/// How input is to be read.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct InputArgs {
    #[command(flatten)]
    pub(super) machines: MachineTypesArgs,
    /// Plan the pods that workloads will create: Deployments, ReplicaSets, ReplicationControllers, StatefulSets, Jobs,
    /// JobSets and LeaderWorkerSets
    #[arg(long)]
    pub(super) expand_workloads: bool,
    /// Do not use a built-in NodePool if the input has none
    #[arg(long)]
    pub(super) no_default_nodepool: bool,
    /// File with default topology spread constraints, as the controller's --scheduler-config has them [default: the
    /// snapshot's, else none]
    #[arg(long, value_name = "FILE")]
    pub(super) scheduler_config: Option<PathBuf>,
    /// List what is otherwise only counted, such as objects that are given more than once
    #[arg(short, long)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) release: ReleaseArgs,
}

/// The objects of some inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct Documents {
    pub(super) manifests: Vec<Manifest>,
    pub(super) errors: Vec<DocumentError>,
}

impl Documents {
    /// Reads every path: a file, a folder with all below it, or `-` for standard input.
    pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut documents = Self::default();
        for path in paths {
            if path.as_os_str() == "-" {
                let text = read_limited(std::io::stdin().lock()).context("cannot read standard input")?;
                documents.parse("standard input", &text);
                continue;
            }
            let mut files = Vec::new();
            collect(path, 0, &mut files)?;
            for file in files {
                let what = || format!("cannot read {}", file.display());
                let text = std::fs::File::open(&file).map_err(Into::into).and_then(read_limited).with_context(what)?;
                documents.parse(&file.display().to_string(), &text);
            }
        }
        Ok(documents)
    }

    /// How the cluster of a snapshot among them allocates devices.
    pub(super) fn compat(&self) -> Option<Compat> {
        let is_header = |it: &&Manifest| it.group == snapshot_file::GROUP && it.kind == snapshot_file::HEADER;
        let header = self.manifests.iter().rfind(is_header)?;
        snapshot_file::header(&header.object).ok()?.compat()
    }

    fn parse(&mut self, source: &str, text: &str) {
        let parsed = manifests::parse(source, text);
        self.manifests.extend(parsed.manifests);
        self.errors.extend(parsed.errors);
    }
}

/// The planner's input, and what is to be said about how it came about.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) snapshot: Snapshot,
    pub(super) offline: Offline,
    left_out: Vec<CatalogueError>,
    is_verbose: bool,
}

impl Input {
    /// Makes a snapshot of documents, with the machines of the provider in use.
    pub(super) fn new(documents: Documents, args: &InputArgs) -> anyhow::Result<Self> {
        Self::asked(documents, args, |_| ())
    }

    /// As [`Self::new`], with what is known of the machines that are there, at that time or else the snapshot's; at the
    /// present for manifests, which say none.
    pub(super) fn with_fleet(documents: Documents, args: &InputArgs, at: Option<Timestamp>) -> anyhow::Result<Self> {
        Self::asked(documents, args, |offline| {
            let cluster = &mut offline.cluster;
            cluster.wants_fleet = true;
            cluster.now = at.or(offline.header.as_ref().map(|header| header.time)).unwrap_or_else(present);
        })
    }

    fn asked(documents: Documents, args: &InputArgs, ask: impl FnOnce(&mut Offline)) -> anyhow::Result<Self> {
        let provider = args.machines.declaration();
        let MachineTypes { types, of_node_classes, left_out } = args.machines.read(&documents.manifests)?;
        let default_node_pool =
            if args.no_default_nodepool { None } else { Some(machine_types::default_node_pool(provider)?) };
        let labels = (provider.labels)(&types);
        let scheduler_config = args.scheduler_config.as_deref().map(scheduler_config).transpose()?;
        let node_classes: Vec<_> = provider.node_class_kinds.iter().map(|kind| (kind.group, kind.kind)).collect();
        let provider_crds = crate::providers::crds();
        let repair_policies = RepairPolicies::new(&(provider.repair_policies)())
            .with_context(|| format!("repair policies of provider {}", provider.name))?;
        let repair_policies = Arc::new(repair_policies);
        let settings = Settings {
            expand_workloads: args.expand_workloads,
            default_node_pool: default_node_pool.as_ref(),
            instance_types: &types,
            node_class_types: of_node_classes.as_ref(),
            labels: &labels,
            node_classes: &node_classes,
            provider_crds: &provider_crds,
            release: args.release.release(),
            scheduler_config: scheduler_config.as_ref(),
            repair_policies: Some(&repair_policies),
        };
        let mut offline = offline::read(documents.manifests, documents.errors, &settings);
        args.release.note_unknown(&offline.cluster.devices.compat);
        // What takes the place of others last: it tells where pods go, and the others where they once went.
        let mut claims: Vec<_> = offline.cluster.node_claims.iter().collect();
        claims.sort_by_key(|claim| Note::is_replacement(claim));
        for claim in claims {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            for pod in planned_pods::decode(claim.metadata.annotations.as_ref()) {
                offline.cluster.planned_on.insert(pod, name.into());
            }
        }
        ask(&mut offline);
        let cluster = offline.cluster.clone();
        let (snapshot, errors) = cluster::snapshot(cluster, offline.interner.clone(), &labels);
        offline.problems.extend(errors.into_iter().map(|error| InputProblem::Object {
            origin: manifests::Origin { source: "input".into(), document: 1 },
            error: error.into(),
        }));
        Ok(Self { snapshot, offline, left_out, is_verbose: args.verbose })
    }

    /// Says what is to be said. Whether part of the input that is not a pod could not be used.
    pub(super) fn tell(&self) -> bool {
        let is_bad = self.tell_problems();
        for note in &self.offline.notes {
            match note {
                OfflineNote::GivenTwice(objects) if self.is_verbose => {
                    for object in objects {
                        output::note(OfflineNote::GivenTwice([object.clone()].into()));
                    }
                }
                _ => output::note(note),
            }
        }
        is_bad
    }

    /// Says what could not be used; [`Self::tell`] without the notes.
    pub(super) fn tell_problems(&self) -> bool {
        self.left_out.iter().for_each(output::problem);
        let mut is_bad = !self.left_out.is_empty();
        for problem in &self.offline.problems {
            match problem {
                InputProblem::Document(DocumentError { reason: DocumentReason::NotAnObject(_), .. }) => {
                    output::note(format_args!("{problem}; it was left out"));
                }
                _ => {
                    output::problem(problem);
                    is_bad |= !self.is_about_pods(problem);
                }
            }
        }
        is_bad
    }

    /// Pods that cannot be read stand in the plan, as pods without a place.
    fn is_about_pods(&self, problem: &InputProblem) -> bool {
        let InputProblem::Object { error, .. } = problem else { return false };
        self.offline.not_planned.iter().any(
            |(_, why)| matches!(why, offline::NotPlanned::Unreadable(unreadable) if Arc::ptr_eq(unreadable, error)),
        )
    }
}

fn present() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Reads how kube-scheduler is configured.
pub(super) fn scheduler_config(path: &Path) -> anyhow::Result<SchedulerConfig> {
    let what = || format!("--scheduler-config {}", path.display());
    let text = std::fs::File::open(path).map_err(Into::into).and_then(read_limited).with_context(what)?;
    SchedulerConfig::parse(&text).map_err(|problem| anyhow::anyhow!("{problem}")).with_context(what)
}

fn read_limited(input: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_INPUT_BYTES {
        bail!("it has more than {MAX_INPUT_BYTES} bytes");
    }
    String::from_utf8(bytes)
        .map_err(|error| anyhow::anyhow!("it is not UTF-8 text (byte {} is not)", error.utf8_error().valid_up_to()))
}

/// The files at a path, in the order of their names. What begins with a dot is passed over, links to folders are not
/// followed.
fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let what = || format!("cannot read {}", path.display());
    let kind = if depth == 0 { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) }.with_context(what)?;
    if !kind.is_dir() {
        let is_manifest = path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
        if depth == 0 || is_manifest {
            files.push(path.to_owned());
        }
        if files.len() > MAX_FILES {
            bail!("{}: there are more than {MAX_FILES} files", what());
        }
        return Ok(());
    }
    if depth == MAX_FOLDER_DEPTH {
        bail!("{}: more than {MAX_FOLDER_DEPTH} folders are inside each other", what());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(what)?;
    entries.sort();
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    for entry in entries.iter().filter(|entry| !is_hidden(entry)) {
        collect(entry, depth + 1, files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use cloudprovider::Declaration;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        input: InputArgs,
    }

    /// The provider that only tests have.
    fn fake() -> InputArgs {
        Cli::try_parse_from(["dovetail", "--provider=fake"]).unwrap().input
    }

    fn declaration() -> &'static Declaration {
        fake().machines.declaration()
    }

    fn documents(text: &str) -> Documents {
        let mut documents = Documents::default();
        documents.parse("in.yaml", text);
        documents
    }

    fn node_pool(group: &str, kind: &str) -> String {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: mine}}\nspec: {{template: {{spec: \
             {{nodeClassRef: {{group: {group}, kind: {kind}, name: any}}, requirements: []}}}}}}\n"
        )
    }

    #[test]
    fn the_built_in_node_pool_has_the_node_class_that_the_provider_declares() {
        let pool = machine_types::default_node_pool(declaration()).unwrap();
        let class = pool.spec.template.spec.node_class_ref;
        assert_eq!((&*class.group, &*class.kind, &*class.name), ("fake.example.com", "FakeNodeClass", "standard"));
    }

    #[test]
    fn instance_types_are_those_that_the_provider_declares() {
        let types = fake().machines.read(&[]).unwrap().types;
        let names: Vec<_> = types.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["fake-small", "fake-medium", "fake-large"]);
    }

    #[test]
    fn a_file_of_instance_types_is_read_as_the_provider_reads_it() {
        let file = std::env::temp_dir().join(format!("dovetail-third-provider-{}", std::process::id()));
        std::fs::write(&file, "fake-medium").unwrap();
        let machines = MachineTypesArgs { instance_types: Some(file.clone()), ..fake().machines };
        let read = machines.read(&[]).unwrap();
        std::fs::write(&file, "unknown").unwrap();
        let refused = machines.read(&[]).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read.types.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["fake-medium"]);
        assert!(format!("{refused:#}").ends_with(": no type"), "{refused:#}");
    }

    #[test]
    fn instance_types_are_those_that_the_providers_options_leave() {
        let cli = Cli::try_parse_from(["dovetail", "--provider=fake", "--fake-last-type=fake-medium"]).unwrap();
        let types = cli.input.machines.read(&[]).unwrap().types;
        assert_eq!(types.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["fake-small", "fake-medium"]);
        let refused = Cli::try_parse_from(["dovetail", "--fake-last-type=fake-medium"]).unwrap_err().to_string();
        assert!(refused.contains("--fake-last-type is of provider fake, not kwok"), "{refused}");
    }

    #[test]
    fn only_node_pools_of_other_node_classes_than_the_provider_declares_are_foreign() {
        let is_foreign = |group: &str, kind: &str| {
            let input = Input::new(documents(&node_pool(group, kind)), &fake()).unwrap();
            input.offline.notes.iter().any(|note| matches!(note, OfflineNote::ForeignNodeClass { .. }))
        };
        assert!(!is_foreign("fake.example.com", "FakeNodeClass"));
        assert!(is_foreign("karpenter.kwok.sh", "KWOKNodeClass"));
    }
}
