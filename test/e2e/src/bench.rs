//! What measurements on a real control plane share: the cluster with the chart's rights, the controller that was built
//! beside the measuring program, the wait for pods with progress shown, and what the controller used and asked for.

mod requests;
mod usage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

pub use requests::{Asked, Requests};
pub use usage::Usage;

use crate::control_plane::{self, ControlPlane};
use crate::controller::{self, Controller};
use crate::following::changes;
use crate::install;

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_secs(2);

/// A control plane with the CRDs and the chart's rights, and more arguments for `control-plane up`.
///
/// # Errors
/// If it does not come up, or an object is refused.
pub async fn boot(name: &str, arguments: &[&str]) -> Result<(ControlPlane, Client)> {
    let cluster = ControlPlane::up(control_plane::Options {
        name: name.to_owned(),
        service_accounts: vec![install::SERVICE_ACCOUNT.to_owned()],
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        ..control_plane::Options::default()
    })
    .await?;
    let client = cluster.client().await?;
    install::crds(&client).await?;
    install::rights(&client).await?;
    Ok((cluster, client))
}

/// The controller's binary, which lies beside this program.
///
/// # Errors
/// If there is none.
pub fn dovetail() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name(format!("dovetail{}", std::env::consts::EXE_SUFFIX));
    ensure!(binary.exists(), "{} is not built; `cargo xtask bench` builds it", binary.display());
    Ok(binary)
}

/// Starts [`dovetail`] with the chart's rights.
///
/// # Errors
/// If there is none, or it cannot be started.
pub fn start(cluster: &ControlPlane, hand_over: &str) -> Result<Controller> {
    let environment = [
        ("LEADER_ELECTION_NAMESPACE", install::NAMESPACE),
        ("KWOK_INSTANCES_NAMESPACE", install::INSTANCES_NAMESPACE),
        ("HAND_OVER", hand_over),
    ];
    let kubeconfig = cluster.kubeconfig_of(install::RELEASE)?;
    Controller::start(&options(cluster, "dovetail", &dovetail()?, kubeconfig, &environment))
}

/// Starts Karpenter's controller, which `binary` is, as its administrator.
///
/// # Errors
/// If it cannot be started.
pub fn start_karpenter(cluster: &ControlPlane, binary: &Path) -> Result<Controller> {
    let environment = [("DISABLE_LEADER_ELECTION", "true"), ("SYSTEM_NAMESPACE", install::NAMESPACE)];
    Controller::start(&options(cluster, "karpenter", binary, cluster.kubeconfig(), &environment))
}

fn options(
    cluster: &ControlPlane,
    name: &str,
    binary: &Path,
    kubeconfig: &Path,
    environment: &[(&str, &str)],
) -> controller::Options {
    controller::Options {
        name: name.to_owned(),
        binary: binary.to_owned(),
        kubeconfig: kubeconfig.to_owned(),
        folder: cluster.folder().to_owned(),
        arguments: Vec::new(),
        environment: environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

/// Some pods that are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Pods<'a> {
    /// Where they are.
    pub namespace: &'a str,
    /// Selects them by their labels; empty for all.
    pub selector: &'a str,
    /// How many there will be.
    pub wanted: usize,
    /// How long to wait.
    pub give_up: Duration,
}

impl Pods<'_> {
    /// How long after `started` all of them were bound at once.
    ///
    /// # Errors
    /// If they are not, in the time given.
    pub async fn until_bound(&self, client: &Client, started: Instant) -> Result<Duration> {
        let pods = Api::<Pod>::namespaced(client.clone(), self.namespace);
        let mut changes = changes(pods, watcher::Config::default().labels(self.selector)).boxed();
        let mut bound = BTreeSet::new();
        let mut show = tokio::time::interval(SHOWN_EVERY);
        show.reset();
        let end = tokio::time::sleep(self.give_up);
        tokio::pin!(end);
        while bound.len() < self.wanted {
            tokio::select! {
                Some((pod, is_there)) = changes.next() => {
                    let is_bound = is_there && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                    if is_bound { bound.insert(pod.name_any()) } else { bound.remove(&pod.name_any()) };
                }
                _ = show.tick() => {
                    eprintln!("{} of {} pods bound, {:.0} s", bound.len(), self.wanted, started.elapsed().as_secs_f64());
                }
                () = &mut end => bail!("{} of {} pods bound after {} s", bound.len(), self.wanted, self.give_up.as_secs()),
            }
        }
        Ok(started.elapsed())
    }
}
