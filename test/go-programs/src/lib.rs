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

/// A Go module of this repository that builds to one program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the program in messages and in the cache.
    pub name: &'static str,
    /// The module's folder, from the top of the repository.
    pub module: &'static str,
    /// The module file, where it is not `go.mod`: one source is built against several releases of a library.
    pub module_file: Option<&'static str>,
}

/// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok in one program: several minutes to compile.
pub const CONTROL_PLANE: Program = Program { name: "control-plane", module: "test/control-plane", module_file: None };

/// Renders a Helm chart with Helm's own library.
pub const HELM_RENDER: Program = Program { name: "helm-render", module: "test/helm-render", module_file: None };

/// Upstream's device allocator of Kubernetes 1.37.
pub const ALLOCATOR_1_37: Program =
    Program { name: "allocator-1.37", module: "test/oracle/allocator", module_file: None };

/// Upstream's device allocator of Kubernetes 1.36.
pub const ALLOCATOR_1_36: Program =
    Program { name: "allocator-1.36", module: "test/oracle/allocator", module_file: Some("go_1_36.mod") };

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
}

/// The top of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
