//! One real control plane, as `test/control-plane/README.md` describes it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::scratch::Scratch;
use crate::{audit, client};

const DROP_TIMEOUT: Duration = Duration::from_secs(15);

/// Which Kubernetes feature gates are on.
#[derive(Clone, Copy, Debug, Default)]
pub enum Gates {
    /// As Kubernetes is released.
    #[default]
    Default,
    /// Everything around DRA and pod groups.
    All,
}

/// A release of Kubernetes that a control plane can be of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Kubernetes {
    /// 1.36, on which all is tested.
    #[default]
    V1_36,
    /// 1.37, on which devices are tested too.
    V1_37,
}

/// Which control plane is meant: its release and gates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Platform {
    /// The release.
    pub kubernetes: Kubernetes,
    /// The gates.
    pub gates: Gates,
}

impl Kubernetes {
    /// Tests of devices find the release that they are asked for here.
    const VARIABLE: &'static str = "DOVETAIL_KUBERNETES";

    /// The release that tests are asked for by the environment, else the default.
    ///
    /// # Errors
    /// If the environment names a release that there is no control plane of.
    pub fn asked_for() -> Result<Self> {
        match std::env::var(Self::VARIABLE) {
            Ok(name) => name.parse().with_context(|| Self::VARIABLE),
            Err(_) => Ok(Self::default()),
        }
    }

    fn program(self) -> go_programs::Program {
        match self {
            Self::V1_36 => go_programs::CONTROL_PLANE,
            Self::V1_37 => go_programs::CONTROL_PLANE_1_37,
        }
    }

    /// The version of `scheduling.k8s.io` in which the release has PodGroups.
    #[must_use]
    pub fn pod_group_version(self) -> &'static str {
        match self {
            Self::V1_36 => "v1alpha2",
            Self::V1_37 => "v1beta1",
        }
    }

    /// The newest version of `resource.k8s.io` in which the release has DeviceTaintRules.
    #[must_use]
    pub fn taint_rule_version(self) -> &'static str {
        match self {
            Self::V1_36 => "v1beta2",
            Self::V1_37 => "v1",
        }
    }
}

impl fmt::Display for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        })
    }
}

impl FromStr for Kubernetes {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = [Self::V1_36, Self::V1_37];
        let release = known.into_iter().find(|release| release.to_string() == name);
        release.with_context(|| format!("there is no control plane of Kubernetes {name:?}: 1.36 or 1.37"))
    }
}

/// A process of the control plane.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Component {
    /// The store.
    Etcd,
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// The kubelet of fake nodes.
    Kwok,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::Apiserver => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Kwok => "kwok",
        })
    }
}

/// What to boot.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Shown in the name of its folder.
    pub name: String,
    /// Feature gates.
    pub gates: Gates,
    /// The release.
    pub kubernetes: Kubernetes,
    /// ServiceAccounts, as `namespace/name`, that get a kubeconfig of their own; see [`ControlPlane::kubeconfig_of`].
    pub service_accounts: Vec<String>,
    /// More arguments of `control-plane up`.
    pub arguments: Vec<String>,
}

/// A running control plane; it ends when this is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    process: Child,
    /// The control plane stops when this closes, even if we are killed.
    _alive: ChildStdin,
    ready: Ready,
    // Dropped last: the processes are gone by then.
    scratch: Scratch,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    kubeconfig: PathBuf,
    version: String,
    control_socket: PathBuf,
    #[serde(default)]
    users: BTreeMap<String, PathBuf>,
    metrics: BTreeMap<String, String>,
    boot_ms: u64,
}

impl ControlPlane {
    /// Boots one and waits until all of it is healthy, some seconds.
    ///
    /// # Errors
    /// If its program cannot be built, or it does not come up.
    pub async fn up(options: Options) -> Result<Self> {
        tokio::task::spawn_blocking(move || Self::boot(&options)).await?
    }

    fn boot(options: &Options) -> Result<Self> {
        let program = options.kubernetes.program().build(&|text| eprintln!("{text}"))?;
        let scratch = Scratch::new(&options.name)?;
        let log_path = scratch.path().join("up.log");
        let mut command = Command::new(&program);
        command.arg("up").arg("--dir").arg(scratch.path()).arg("--exit-with-parent");
        // A fifth of what it computes until it is ready would be to collect garbage, for an eighth less of memory.
        command.env("GOGC", "400");
        // Its data is thrown away, so nothing needs to end in good order.
        command.args(["--shutdown-grace-ms", "0", "--gates"]).arg(match options.gates {
            Gates::Default => "default",
            Gates::All => "all",
        });
        for account in &options.service_accounts {
            command.args(["--service-account", account]);
        }
        for argument in audit::arguments(&options.name, scratch.path())? {
            command.args(["--arg", &format!("{}={argument}", Component::Apiserver)]);
        }
        let mut process = command
            .args(&options.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log_path)?)
            .spawn()
            .with_context(|| format!("run {}", program.display()))?;
        let alive = process.stdin.take().context("the control plane's standard input")?;
        let stdout = process.stdout.take().context("the control plane's standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            let status = process.wait()?;
            bail!("the control plane did not come up ({status}):\n{}", fs::read_to_string(&log_path)?);
        }
        let ready = serde_json::from_str(&line).with_context(|| format!("first line of the control plane: {line}"))?;
        Ok(Self { process, _alive: alive, ready, scratch })
    }

    /// A client with every right. It belongs to the calling test's runtime, so each test takes its own.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client::client(self.kubeconfig()).await
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.ready.kubeconfig
    }

    /// The kubeconfig of a ServiceAccount given in the options, by its name.
    ///
    /// # Errors
    /// If there is no such account.
    pub fn kubeconfig_of(&self, account: &str) -> Result<&Path> {
        self.ready
            .users
            .get(account)
            .map(PathBuf::as_path)
            .with_context(|| format!("no account {account} was asked for"))
    }

    /// Where a component serves its metrics. The API server gives them to who has a token, such as the administrator's.
    ///
    /// # Errors
    /// If it has none.
    pub fn metrics_url(&self, component: Component) -> Result<&str> {
        let url = self.ready.metrics.get(&component.to_string());
        url.map(String::as_str).with_context(|| format!("{component} has no metrics"))
    }

    /// The administrator's bearer token.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub fn token(&self) -> Result<String> {
        let path = self.kubeconfig();
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let kubeconfig: serde_json::Value = serde_saphyr::from_str(&text)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str();
        token.map(str::to_owned).with_context(|| format!("no token in {}", path.display()))
    }

    /// The server's version, such as `v1.36.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.ready.version
    }

    /// How long the boot took.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        Duration::from_millis(self.ready.boot_ms)
    }

    /// Its folder: data, credentials, logs. Tests put theirs here too.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Kills a component as by SIGKILL; it stays down.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn kill(&self, component: Component) -> Result<()> {
        self.control(format!("kill {component}")).await
    }

    /// Starts a component that is down, on the same port and data, and waits until it is healthy.
    ///
    /// # Errors
    /// If it runs already or does not become healthy.
    pub async fn start(&self, component: Component) -> Result<()> {
        self.control(format!("start {component}")).await?;
        self.control(format!("wait {component}")).await
    }

    /// Stops a component where it is, with its connections open, as SIGSTOP does.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn pause(&self, component: Component) -> Result<()> {
        self.control(format!("pause {component}")).await
    }

    /// Lets a paused component go on.
    ///
    /// # Errors
    /// If it is not paused.
    pub async fn resume(&self, component: Component) -> Result<()> {
        self.control(format!("resume {component}")).await
    }

    async fn control(&self, command: String) -> Result<()> {
        #[derive(serde::Deserialize)]
        struct Answer {
            ok: bool,
            #[serde(default)]
            error: String,
        }
        let socket = self.ready.control_socket.clone();
        tokio::task::spawn_blocking(move || {
            let mut stream =
                UnixStream::connect(&socket).with_context(|| format!("connect to {}", socket.display()))?;
            writeln!(stream, "{command}")?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            let answer: Answer =
                serde_json::from_str(&line).with_context(|| format!("answer to `{command}`: {line:?}"))?;
            if !answer.ok {
                bail!("control plane: {}", answer.error);
            }
            Ok(())
        })
        .await?
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.process);
        let _ = kill_process(pid, Signal::TERM);
        let (sender, ended) = mpsc::channel();
        let process = &mut self.process;
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ = process.wait();
                let _ = sender.send(());
            });
            if ended.recv_timeout(DROP_TIMEOUT).is_err() {
                // Its components die with it.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
    }
}
