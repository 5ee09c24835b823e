//! The controller as a process of its own.

mod supervisor;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

pub use self::supervisor::{Ends, Supervisor};
use crate::local_http;
use crate::wait::{DEADLINE, eventually};
use crate::watchdog::Watchdog;

/// What no log may hold: a panic is a defect whatever the test is about, and also where it is caught, or where the
/// process is started again.
const PANIC: &str = "panicked";

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names its log file.
    pub name: String,
    /// The binary.
    pub binary: PathBuf,
    /// Whose rights it has.
    pub kubeconfig: PathBuf,
    /// Where its log goes.
    pub folder: PathBuf,
    /// Arguments after `run`.
    pub arguments: Vec<String>,
    /// Environment beside ours.
    pub environment: BTreeMap<String, String>,
}

impl Options {
    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Another name, for a second controller beside the first.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }
}

/// A running `dovetail run`; killed when this is dropped.
#[derive(Debug)]
pub struct Controller {
    process: Mutex<Child>,
    id: u32,
    watchdog: Watchdog,
    log: PathBuf,
    /// Where in it this one begins; earlier ones of the name wrote the rest.
    log_start: u64,
    metrics_port: u16,
    health_port: u16,
}

impl Controller {
    /// Starts it; it may not be ready yet.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(options: &Options) -> Result<Self> {
        let (metrics_port, health_port) = (free_port()?, free_port()?);
        let log = options.folder.join(format!("{}.log", options.name));
        let file = File::options().create(true).append(true).open(&log)?;
        let log_start = file.metadata()?.len();
        let process = Command::new(&options.binary)
            .arg("run")
            .args(&options.arguments)
            .env("KUBECONFIG", &options.kubeconfig)
            .env("METRICS_PORT", metrics_port.to_string())
            .env("HEALTH_PROBE_PORT", health_port.to_string())
            .env("RUST_BACKTRACE", "1")
            .envs(&options.environment)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("run {}", options.binary.display()))?;
        let id = process.id();
        let watchdog = Watchdog::start(id)?;
        Ok(Self { process: Mutex::new(process), id, watchdog, log, log_start, metrics_port, health_port })
    }

    /// Starts it and waits until `/readyz` says so.
    ///
    /// # Errors
    /// If it ends or is not ready in time; the end of its log is in the message.
    pub async fn start_ready(options: &Options) -> Result<Self> {
        let controller = Self::start(options)?;
        let ready =
            eventually("the controller is ready", DEADLINE, async || controller.get("/readyz", controller.health_port));
        let Err(error) = ready.await.map(drop) else { return Ok(controller) };
        let state = controller.status()?.map_or_else(|| "it runs".to_owned(), |status| status.to_string());
        Err(error.context(format!("{state}; end of its log:\n{}", controller.log_end()?)))
    }

    /// Asks it to stop, as Kubernetes does, and waits until it has.
    ///
    /// # Errors
    /// If it still runs after 30 seconds.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended(Duration::from_secs(30)).await
    }

    /// Kills it without warning.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Waits until it ended by itself.
    ///
    /// # Errors
    /// If it still runs at the deadline.
    pub async fn ended(&self, deadline: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.status()? {
                self.ensure_no_panic()?;
                return Ok(status);
            }
            if started.elapsed() > deadline {
                bail!("the controller still runs after {} s; end of its log:\n{}", deadline.as_secs(), self.log_end()?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn runs(&self) -> Result<bool> {
        Ok(self.status()?.is_none())
    }

    fn status(&self) -> Result<Option<ExitStatus>> {
        Ok(self.process.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?)
    }

    /// All it has logged.
    ///
    /// # Errors
    /// If its log cannot be read.
    pub fn log(&self) -> Result<String> {
        // It is being written: what is read may end within a character.
        let log = fs::read(&self.log).with_context(|| format!("read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// Nothing in it has panicked so far.
    ///
    /// # Errors
    /// The lines of its log that say so.
    pub fn ensure_no_panic(&self) -> Result<()> {
        ensure_no_panic_in(&self.log, self.log_start)
    }

    /// For where nobody takes an error: ends the test.
    pub(crate) fn panic_if_it_did(&self) {
        match self.ensure_no_panic() {
            // A second panic would hide the first.
            Err(error) if std::thread::panicking() => eprintln!("{error:#}"),
            Err(error) => panic!("{error:#}"),
            Ok(()) => {}
        }
    }

    /// Its `/metrics`.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn metrics(&self) -> Result<String> {
        self.get("/metrics", self.metrics_port)
    }

    /// The sum over all series of one metric, 0 if there is none.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let text = self.metrics()?;
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        Ok(text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Where its `/metrics` is.
    #[must_use]
    pub fn metrics_port(&self) -> u16 {
        self.metrics_port
    }

    /// Whether its `/readyz` answers 200.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.get("/readyz", self.health_port).is_ok()
    }

    /// What a probe such as `/healthz` answers.
    ///
    /// # Errors
    /// If it is not 200; the answer is in the message.
    pub fn probe(&self, path: &str) -> Result<String> {
        self.get(path, self.health_port)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw).context("process id")?;
        kill_process(pid, signal).context("signal the controller")
    }

    fn log_end(&self) -> Result<String> {
        let log = self.log()?;
        let lines: Vec<_> = log.lines().collect();
        Ok(lines[lines.len().saturating_sub(30)..].join("\n"))
    }

    fn get(&self, path: &str, port: u16) -> Result<String> {
        let answer = local_http::get(port, path)?;
        ensure!(answer.status == 200, "{path}: {}: {}", answer.status, answer.body);
        Ok(answer.body)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.kill();
        self.watchdog.dismiss();
        if std::thread::panicking() {
            eprintln!("end of {}:\n{}", self.log.display(), self.log_end().unwrap_or_default());
        }
        self.panic_if_it_did();
    }
}

/// What controllers have written into a log from this byte on tells of no panic.
pub(crate) fn ensure_no_panic_in(log: &Path, start: u64) -> Result<()> {
    let text = fs::read(log).with_context(|| format!("read {}", log.display()))?;
    let text = String::from_utf8_lossy(text.get(usize::try_from(start)?..).unwrap_or_default());
    let panics: Vec<&str> = text.lines().filter(|line| line.contains(PANIC)).collect();
    ensure!(panics.is_empty(), "the controller panicked, see {}:\n{}", log.display(), panics.join("\n"));
    Ok(())
}

/// A port that nobody listens on. It is given up again until a program takes it, so it is none that the kernel
/// hands out to others meanwhile, nor one of a control plane's (`test/control-plane/internal/cluster/ports.go`), and
/// each one another.
pub(crate) fn free_port() -> Result<u16> {
    const PORTS: std::ops::Range<u32> = 10_000..20_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..100 {
        let number = begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % u32::try_from(PORTS.len())?;
        let port = u16::try_from(PORTS.start + number)?;
        if TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("none of 100 ports is free")
}
