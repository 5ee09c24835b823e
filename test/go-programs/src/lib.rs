//! Builds the Go programs that tests and developers' commands run, once, and keeps them in the user's cache folder.
//!
//! A program is cached under the hash of its sources, the Go version and the target, so a checkout of another revision
//! never runs a stale one and coming back costs nothing. Builds of one program exclude each other by a lock file; the
//! result appears by a rename, whole or not at all. Programs that nobody has used for two weeks are removed.
//!
//! Left out: what the programs do, and their arguments.

mod build;
mod cache;
mod sources;

pub use build::{Error, Report};
pub use cache::folder as cache_folder;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Go module of this repository that builds to one program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the program in messages and in the cache.
    pub name: &'static str,
    /// The module's folder, from the top of the repository.
    pub module: &'static str,
    /// The release of Kubernetes' libraries, where it is not that of `go.mod`: one source is built against several.
    pub other_release: Option<OtherRelease>,
    /// What of it is built.
    pub target: Target,
}

/// What a program is made of.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The module's own main package.
    Module,
    /// The main package of another module that this one depends on, by its import path.
    Command(&'static str),
    /// The tests of a package of another module that this one depends on, by its import path.
    Tests(&'static str),
}

/// How the sources of a program are built against another release of a library.
#[derive(Clone, Copy, Debug)]
pub struct OtherRelease {
    /// The module file that takes the place of `go.mod`.
    pub module_file: &'static str,
    /// The build tag of sources that only this release has.
    pub tag: &'static str,
}

/// Kubernetes 1.37, where `go.mod` is of 1.36.
pub const KUBERNETES_1_37: OtherRelease = OtherRelease { module_file: "go_1_37.mod", tag: "kubernetes_1_37" };

/// Kubernetes 1.36, where `go.mod` is of 1.37.
pub const KUBERNETES_1_36: OtherRelease = OtherRelease { module_file: "go_1_36.mod", tag: "kubernetes_1_36" };

/// Kubernetes' libraries as Karpenter's release names them, where `go.mod` is of 1.36 as other modules are.
pub const KARPENTERS_OWN: OtherRelease = OtherRelease { module_file: "go_karpenter.mod", tag: "karpenters_own" };

/// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok in one program: several minutes to compile.
pub const CONTROL_PLANE: Program = of_go_mod("control-plane", "test/control-plane");

/// The components of [`CONTROL_PLANE`] of Kubernetes 1.37, for devices.
pub const CONTROL_PLANE_1_37: Program = of_release("control-plane-1.37", "test/control-plane", KUBERNETES_1_37);

/// Renders a Helm chart with Helm's own library.
pub const HELM_RENDER: Program = of_go_mod("helm-render", "test/helm-render");

/// Upstream's device allocator of Kubernetes 1.37.
pub const ALLOCATOR_1_37: Program = of_go_mod("allocator-1.37", "test/oracle/allocator");

/// Upstream's device allocator of Kubernetes 1.36.
pub const ALLOCATOR_1_36: Program = of_release("allocator-1.36", "test/oracle/allocator", KUBERNETES_1_36);

/// Upstream's evaluator of device selectors of Kubernetes 1.37.
pub const CEL_1_37: Program = of_go_mod("cel-1.37", "test/oracle/cel");

/// Upstream's evaluator of device selectors of Kubernetes 1.36.
pub const CEL_1_36: Program = of_release("cel-1.36", "test/oracle/cel", KUBERNETES_1_36);

/// kube-scheduler's plugins for devices, of Kubernetes 1.37.
pub const PLUGIN_1_37: Program = of_release("plugin-1.37", "test/oracle/plugin", KUBERNETES_1_37);

/// kube-scheduler's plugins for devices, of Kubernetes 1.36.
pub const PLUGIN_1_36: Program = of_go_mod("plugin-1.36", "test/oracle/plugin");

/// Plans cases of the scheduling benchmark with Karpenter's own scheduler.
pub const KARPENTER_SCHEDULER: Program = of_release("karpenter-scheduler", "test/bench/karpenter", KARPENTERS_OWN);

/// Karpenter's controller with its provider for kwok.
pub const KARPENTER_CONTROLLER: Program =
    of_release("karpenter-controller", "test/bench/karpenter-controller", KARPENTERS_OWN);

/// Karpenter's own end-to-end tests of its behaviour.
pub const KARPENTER_REGRESSION_SUITE: Program =
    of_karpenter("karpenter-regression", Target::Tests("sigs.k8s.io/karpenter/test/suites/regression"));

/// Karpenter's own end-to-end tests with devices.
pub const KARPENTER_DRA_SUITE: Program =
    of_karpenter("karpenter-dra", Target::Tests("sigs.k8s.io/karpenter/test/suites/dra"));

/// Karpenter's own end-to-end tests of time, memory and utilization.
pub const KARPENTER_PERFORMANCE_SUITE: Program =
    of_karpenter("karpenter-performance", Target::Tests("sigs.k8s.io/karpenter/test/suites/performance"));

/// The driver that publishes the devices of Karpenter's tests.
pub const KARPENTER_DRA_DRIVER: Program =
    of_karpenter("karpenter-dra-driver", Target::Command("sigs.k8s.io/karpenter/dra-kwok-driver"));

/// From how much memory on a compiler or linker that [`go`] runs looks for what it no longer needs.
const MEMORY_OF_A_COMPILER: &str = "4GiB";

/// A tenth of a compiler's time would go into what only a debugger reads. Programs are linked without it.
const NO_DEBUG_INFORMATION: &str = "-gcflags=all=-dwarf=false";

/// Go's command in a module's folder, with the settings that all our builds share, so that each finds what the others
/// have compiled.
///
/// A third of a compiler's time goes into collecting garbage, which dies with it a second later: so it does that only
/// where it would take a lot of memory. `GOGC` and `GOMEMLIMIT` in the environment say otherwise.
pub fn go(folder: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(folder).stdin(Stdio::null()).env("CGO_ENABLED", "0").env("GOWORK", "off");
    go.env("GOFLAGS", go_flags());
    if std::env::var_os("GOGC").is_none() {
        go.env("GOGC", "off");
        if std::env::var_os("GOMEMLIMIT").is_none() {
            go.env("GOMEMLIMIT", MEMORY_OF_A_COMPILER);
        }
    }
    go
}

/// What all our builds have in `GOFLAGS`: what the environment says, and ours.
fn go_flags() -> String {
    format!("{} {NO_DEBUG_INFORMATION}", std::env::var("GOFLAGS").unwrap_or_default())
}

const fn of_karpenter(name: &'static str, target: Target) -> Program {
    Program { name, module: "test/karpenter-suites", other_release: None, target }
}

const fn of_go_mod(name: &'static str, module: &'static str) -> Program {
    Program { name, module, other_release: None, target: Target::Module }
}

const fn of_release(name: &'static str, module: &'static str, release: OtherRelease) -> Program {
    Program { name, module, other_release: Some(release), target: Target::Module }
}

impl OtherRelease {
    /// What `GOFLAGS` has to be.
    #[must_use]
    pub fn go_flags(&self) -> String {
        format!("{} -modfile={} -tags={}", go_flags(), self.module_file, self.tag)
    }
}

impl Program {
    /// The path of the built program; builds it first where the cache does not have it.
    ///
    /// `report` hears about a build that is under way, about once a second, and never about a cached program.
    ///
    /// # Errors
    /// No usable cache folder, no Go, or sources that do not compile; see [`Error`].
    pub fn build(&self, report: Report<'_>) -> Result<PathBuf, Error> {
        build::build(self, report)
    }

    /// The folder of another module that this one depends on, which is read-only; fetches it first where it is missing.
    ///
    /// # Errors
    /// No Go, or no such module; see [`Error`].
    pub fn folder_of_module(&self, path: &str) -> Result<PathBuf, Error> {
        build::folder_of_module(self, path)
    }
}

/// The top of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Cargo, at the top of the repository; the one that started us, if one did.
///
/// It is not told what that one told of the package that was started. Some build scripts ask to be run again where this
/// changes (`ring`), so Cargo would compile the Kubernetes client anew whenever another package starts it.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
