//! What `dovetail dra allocate` says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use e2e::{ControlPlane, Gates, Kubernetes, Platform};
use serde_json::{Value, json};

/// Runs the binary for one release and set of gates.
pub(super) struct Predictor {
    pub kubernetes: Kubernetes,
    binary: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    next: AtomicU32,
}

impl Predictor {
    pub(super) fn new(binary: &Path, plane: &ControlPlane, platform: Platform) -> Result<Self> {
        let Platform { kubernetes, gates } = platform;
        let mut arguments = vec!["--kubernetes".to_owned(), kubernetes.to_string()];
        match gates {
            Gates::Default => {}
            Gates::All => arguments.extend(["--gates".to_owned(), "all".to_owned()]),
        }
        let folder = plane.folder().join("questions");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { kubernetes, binary: binary.to_owned(), folder, arguments, next: AtomicU32::new(0) })
    }

    /// The report on these objects, in JSON; on one node or all.
    pub(super) async fn ask(&self, objects: Vec<Value>, node: Option<&str>) -> Result<Value> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let file = self.folder.join(format!("{number}.json"));
        std::fs::write(&file, serde_json::to_vec(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?)?;
        let mut command = Command::new(&self.binary);
        command.args(["dra", "allocate", "-o", "json", "-f"]).arg(&file).args(&self.arguments);
        match node {
            Some(node) => command.args(["--node", node]),
            None => command.arg("--all-nodes"),
        };
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0 | 3) => serde_json::from_slice(&output.stdout).context("the answer of dovetail dra allocate"),
            code => bail!("dovetail dra allocate ended with {code:?}: {errors}"),
        }
    }
}

/// What the report says of a pod that waits.
pub(super) fn of_pod<'a>(report: &'a Value, namespace: &str, name: &str) -> Result<&'a Value> {
    let full_name = format!("{namespace}/{name}");
    report["pods"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|pod| pod["pod"] == full_name.as_str())
        .with_context(|| format!("pod {full_name} is not in the prediction: {report}"))
}
