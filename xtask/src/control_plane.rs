//! `cargo xtask control-plane`: a control plane that stays when this command ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};

use crate::process::target_folder;
use crate::progress::Progress;
use crate::release::Release;

const STOP_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start one and print its kubeconfig.
    Up {
        /// Folder for data, logs and credentials; one used before keeps its objects. [default: target/control-plane]
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Kubernetes feature gates: as released, or everything around DRA and pod groups turned on.
        #[arg(long, value_enum, default_value = "default")]
        gates: Gates,
        /// The release of Kubernetes. One that has not been built yet compiles for minutes.
        #[arg(long, value_enum, default_value = "1.36")]
        kubernetes: Release,
    },
    /// Stop the one that `up` left running; its data stays.
    Down {
        /// The folder given to `up`. [default: target/control-plane]
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Gates {
    Default,
    All,
}

#[derive(serde::Deserialize)]
struct Ready {
    kubeconfig: String,
    version: String,
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Up { dir, gates, kubernetes } => up(&folder(dir.as_deref())?, *gates, *kubernetes),
        Command::Down { dir } => down(&folder(dir.as_deref())?),
    }
}

fn folder(given: Option<&Path>) -> Result<PathBuf> {
    let folder = match given {
        Some(folder) => folder.to_owned(),
        None => target_folder()?.join("control-plane"),
    };
    std::path::absolute(&folder).with_context(|| format!("make {} absolute", folder.display()))
}

fn up(folder: &Path, gates: Gates, kubernetes: Release) -> Result<()> {
    let progress = Progress::new();
    let program = kubernetes.control_plane().build(&|text| progress.say(text))?;
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let log_path = folder.join("up.log");
    let log = File::create(&log_path).with_context(|| format!("create {}", log_path.display()))?;
    let gates = match gates {
        Gates::Default => "default",
        Gates::All => "all",
    };
    // A process group of its own, so that Ctrl-C in this terminal reaches only what is started later.
    let mut child = Process::new(&program)
        .arg("up")
        .arg("--dir")
        .arg(folder)
        .args(["--gates", gates])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("run {}", program.display()))?;
    let (sender, first_line) = mpsc::channel();
    if let Some(pipe) = child.stdout.take() {
        thread::spawn(move || BufReader::new(pipe).lines().next().map(|line| sender.send(line)));
    }
    let mut reader = LastLine::open(&log_path)?;
    let line = loop {
        match first_line.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => break line?,
            Err(RecvTimeoutError::Timeout) => progress.say(&reader.read()?),
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                bail!("the control plane did not come up ({status}):\n{}", fs::read_to_string(&log_path)?);
            }
        }
    };
    drop(progress);
    let ready: Ready =
        serde_json::from_str(&line).with_context(|| format!("first line of the control plane: {line}"))?;
    eprintln!(
        "Kubernetes {} runs; stop it with `cargo xtask control-plane down --dir {}`",
        ready.version,
        folder.display()
    );
    println!("export KUBECONFIG={}", ready.kubeconfig);
    Ok(())
}

fn down(folder: &Path) -> Result<()> {
    let progress = Progress::new();
    let socket = folder.join("control.sock");
    // Spoken to without its program, which is that of one release or another.
    let tell = |word: &str| -> std::io::Result<()> {
        let mut stream = UnixStream::connect(&socket)?;
        writeln!(stream, "{word}")?;
        BufReader::new(stream).read_line(&mut String::new()).map(drop)
    };
    tell("shutdown").with_context(|| format!("no control plane answers on {}", socket.display()))?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    // Nothing answers on its socket once every component has ended.
    while tell("status").is_ok() || socket.exists() {
        if Instant::now() > deadline {
            bail!("the control plane in {} still runs after {} s", folder.display(), STOP_TIMEOUT.as_secs());
        }
        progress.say("stopping kwok, scheduler, controller manager, apiserver and etcd");
        thread::sleep(Duration::from_millis(200));
    }
    drop(progress);
    eprintln!("stopped; the data stays in {}", folder.display());
    Ok(())
}

/// Follows a log by its last whole line.
struct LastLine {
    file: BufReader<File>,
    line: String,
}

impl LastLine {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self { file: BufReader::new(File::open(path)?), line: "starting the control plane".to_owned() })
    }

    fn read(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            let read = self.file.read_line(&mut line)?;
            if !line.ends_with('\n') {
                self.file.seek(SeekFrom::Current(-i64::try_from(read)?))?;
                return Ok(self.line.clone());
            }
            self.line = line.trim_end().to_owned();
        }
    }
}
