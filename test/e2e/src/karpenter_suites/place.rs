//! A cluster as the suites want it, with the controller under test in it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use super::ginkgo;
use super::program::Program;
use super::spec::{Played, Spec, Suite, Verdict};
use super::stand_in;
use super::suite::Specs;
use super::sweep::Sweeper;
use crate::cluster::Cluster;
use crate::controller::{self, Supervisor};
use crate::{Platform, apply, eventually, install};

/// Stages of kwok that the suites were written for, in Karpenter's module: pods that end as an annotation says, and
/// pods that never become ready.
const STAGES: [&str; 2] = ["hack/kwok/stages/pod-delete.yaml", "hack/kwok/stages/pod-unhealthy.yaml"];
/// The kind of the driver's configuration, in Karpenter's module.
const DRIVER_CRD: &str = "dra-kwok-driver/pkg/apis/crds/test.karpenter.sh_draconfigs.yaml";
/// What the gates of [`ENVIRONMENT`] need in the chart.
const RIGHTS: [&str; 1] = ["settings.featureGates.capacityBuffer=true"];
/// What Karpenter's own runs of the suites set, and what makes ours like it.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("SYSTEM_NAMESPACE", "kube-system"),
    // Karpenter's rule: any saving pays.
    ("EVICTION_PRICE", "0"),
    ("FEATURE_GATES", "StaticCapacity=true,NodeRepair=true,CapacityBuffer=true"),
    ("CPU_REQUESTS", "1000"),
];
/// The controller's.
const LEASE: &str = "karpenter-leader-election";
/// How long a program that Ginkgo has told to end may take beyond its grace period.
const BEYOND_GRACE: Duration = Duration::from_secs(60);

/// What places are made from.
#[derive(Clone, Debug)]
pub(super) struct Means {
    /// The folder of Karpenter's module.
    pub(super) module: PathBuf,
    /// A controller in place of the one built for tests, for measurements.
    pub(super) binary: Option<PathBuf>,
}

impl Means {
    pub(super) fn new(release_binary: Option<PathBuf>) -> Result<Self> {
        let module = go_programs::KARPENTER_REGRESSION_SUITE.folder_of_module("sigs.k8s.io/karpenter")?;
        Ok(Self { module, binary: release_binary })
    }

    /// The release of the module, which ends the name of its folder.
    pub(super) fn version(&self) -> String {
        let name = self.module.file_name().unwrap_or_default().to_string_lossy();
        name.split_once('@').map_or_else(|| "unknown".to_owned(), |(_, version)| version.to_owned())
    }
}

/// One cluster; a spec at a time.
pub(super) struct Place {
    controller: Supervisor,
    driver: Option<Program>,
    sweeper: Sweeper,
    /// Of the controller.
    log: PathBuf,
    // Dropped last: the others talk to it.
    cluster: Cluster,
}

impl Place {
    /// Boots one.
    pub(super) async fn new(suite: Suite, number: usize, means: &Means) -> Result<Self> {
        let name = format!("karpenter-{suite}-{number}");
        let address = match suite {
            Suite::Regression | Suite::Dra => None,
            Suite::Performance => Some(stand_in::address()?),
        };
        let mut arguments = Vec::new();
        for stage in STAGES {
            arguments.extend(["--kwok-stage".to_owned(), means.module.join(stage).display().to_string()]);
        }
        if let Some(address) = &address {
            arguments.extend(["--arg".to_owned(), stand_in::argument(address)]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let cluster = Cluster::without_node_class(&name, Platform::default(), &arguments).await?;
        cluster.more_rights(&RIGHTS).await?;
        let client = cluster.client().await?;

        let mut options = options(&cluster, suite, means)?;
        let mut driver = None;
        match suite {
            Suite::Regression => {}
            Suite::Dra => {
                apply::apply(&client, apply::read(&means.module.join(DRIVER_CRD))?).await?;
                driver = Some(start_driver(&cluster).await?);
            }
            Suite::Performance => options = stand_in::as_leader(options),
        }
        if let Some(address) = &address {
            stand_in::make(&client, address).await?;
        }
        let log = options.folder.join(format!("{}.log", options.name));
        // A controller that has lost its Lease, on a busy computer, is started again as Kubernetes does.
        let controller = Supervisor::start(options);
        let sweeper = Sweeper::new(client.clone()).await?;
        let place = Self { controller, driver, sweeper, log, cluster };
        match led(&client).await {
            Ok(()) => Ok(place),
            Err(error) => {
                let log = place.log.display().to_string();
                place.end().await;
                Err(error.context(format!("see {log}")))
            }
        }
    }

    /// The version of its server.
    pub(super) fn version(&self) -> &str {
        self.cluster.control_plane.version()
    }

    /// Runs one spec; what it writes goes into `folder`. Gives the place back if the next spec can have it.
    pub(super) async fn play(
        mut self,
        specs: &Specs,
        spec: &Spec,
        limit: Duration,
        folder: &Path,
    ) -> (Played, Option<Self>) {
        let (started, starts) = (Instant::now(), self.controller.starts());
        let file = folder.join(file_name(&spec.name));
        let log = file.with_extension("log");
        let verdict = self.run(specs.command(spec, limit, &file.with_extension("json")), limit, &file).await;
        let mut verdict = verdict.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
        let time = started.elapsed();
        // What broke around the spec is what failed, whatever the spec says.
        let is_sound = match self.ensure_all_run() {
            Ok(()) => true,
            Err(error) => {
                verdict = Verdict::Failed(format!("{error:#}"));
                false
            }
        };
        let swept = if is_sound { self.sweeper.sweep().await } else { Ok(()) };
        let mut remarks = Vec::new();
        match self.controller.starts().saturating_sub(starts) {
            0 => {}
            times => remarks.push(format!("the controller ended in good order and was started again, {times} times")),
        }
        remarks.extend(swept.as_ref().err().map(|error| format!("its cluster was given up: {error:#}")));
        let played = Played {
            spec: spec.clone(),
            verdict,
            time,
            remarks,
            log: Some(log),
            controller_log: Some(self.log.clone()),
        };
        if is_sound && swept.is_ok() {
            return (played, Some(self));
        }
        self.end().await;
        (played, None)
    }

    async fn run(&self, mut command: Command, limit: Duration, file: &Path) -> Result<Verdict> {
        let (report, log) = (file.with_extension("json"), file.with_extension("log"));
        let folder = file.parent().context("a folder for what the spec writes")?;
        command.env("KUBECONFIG", self.cluster.control_plane.kubeconfig()).env("OUTPUT_DIR", folder);
        command.current_dir(folder);
        let mut program = Program::start(command, &log)?;
        let longest = limit.saturating_add(ginkgo::GRACE).saturating_add(BEYOND_GRACE);
        let status = program.ended(longest).await?;
        let Some(status) = status else {
            return Ok(Verdict::Failed(format!("killed: it still ran after {} s", longest.as_secs())));
        };
        let text = std::fs::read_to_string(&report).map_err(|_| without_report(status))?;
        ginkgo::verdict(&text)
    }

    fn ensure_all_run(&mut self) -> Result<()> {
        // The log begins with this cluster.
        controller::ensure_no_panic_in(&self.log, 0)?;
        ensure!(self.controller.is_sound(), "the controller ended as it must not, see {}", self.log.display());
        if let Some(driver) = &mut self.driver
            && let Some(status) = driver.status()?
        {
            bail!("the driver ended with {status}");
        }
        Ok(())
    }

    /// Ends its processes, which takes a while.
    pub(super) async fn end(self) {
        // How it ended is the verdict of the spec in which it did.
        let _ = self.controller.stop().await;
        let rest = (self.driver, self.cluster);
        let _ = tokio::task::spawn_blocking(move || drop(rest)).await;
    }
}

/// Waits until a controller leads.
async fn led(client: &Client) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), install::NAMESPACE);
    eventually("a controller leads", Duration::from_secs(60), async || {
        let lease = leases.get(LEASE).await?.spec.unwrap_or_default();
        ensure!(lease.holder_identity.is_some_and(|holder| !holder.is_empty()), "the Lease {LEASE} has no holder");
        Ok(())
    })
    .await
}

fn without_report(status: ExitStatus) -> anyhow::Error {
    anyhow!("the suite ended with {status} and without a report")
}

fn options(cluster: &Cluster, suite: Suite, means: &Means) -> Result<controller::Options> {
    let mut options = cluster.candidate()?;
    // As users have it: our own tests are quicker.
    options.environment.remove("BATCH_IDLE_DURATION");
    for (name, value) in ENVIRONMENT {
        options = options.env(name, value);
    }
    match suite {
        Suite::Regression => {}
        // Karpenter's default; ours plans machines for pods with claims.
        Suite::Dra => options = options.env("IGNORE_DRA_REQUESTS", "true"),
        Suite::Performance => {
            options.environment.remove("LOG_LEVEL");
            if let Some(binary) = &means.binary {
                options.binary.clone_from(binary);
            }
        }
    }
    Ok(options)
}

async fn start_driver(cluster: &Cluster) -> Result<Program> {
    let binary = tokio::task::spawn_blocking(|| go_programs::KARPENTER_DRA_DRIVER.build(&|text| eprintln!("{text}")));
    let mut command = Command::new(binary.await??);
    command.env("KUBECONFIG", cluster.control_plane.kubeconfig());
    Program::start(command, &cluster.control_plane.folder().join("dra-driver.log"))
}

/// A name for the files of a spec: what of its name a file's may have, and not too long.
fn file_name(name: &str) -> String {
    const LENGTH: usize = 200;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    // The end tells more apart than the beginning.
    let text: String = name.chars().map(plain).collect();
    text.get(text.len().saturating_sub(LENGTH)..).unwrap_or_default().to_owned()
}
