//! Programs that plan or check, each in a process of its own and with a limit of time.

use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

/// How it ended.
pub(crate) enum Outcome {
    /// What it printed.
    Output(String),
    /// It was stopped.
    TimedOut,
}

/// Runs this program again.
pub(crate) fn ourselves(arguments: &[String], limit: Duration) -> Result<Outcome> {
    run(&std::env::current_exe()?, arguments, limit)
}

/// Runs a program; an error if it fails. Its standard error goes to ours.
pub(crate) fn run(program: &Path, arguments: &[String], limit: Duration) -> Result<Outcome> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", program.display()))?;
    let mut pipe = child.stdout.take().context("a program without output")?;
    let output = thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(Outcome::TimedOut);
        }
        thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        bail!("{} {} ended with {status}", program.display(), arguments.join(" "));
    }
    Ok(Outcome::Output(output.join().map_err(|_| anyhow!("nobody read what a program printed"))??))
}

/// What Karpenter's side is made of.
pub(crate) fn versions(program: &Path) -> Result<String> {
    match run(program, &["-print-versions".to_owned()], Duration::from_secs(60))? {
        Outcome::Output(text) => Ok(text.trim().to_owned()),
        Outcome::TimedOut => bail!("{} does not tell its versions", program.display()),
    }
}

/// The hash of a file, shortened.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut reader = BufReader::new(fs::File::open(path)?);
    let mut hash = Sha256::new();
    let mut part = [0; 1 << 16];
    loop {
        match reader.read(&mut part)? {
            0 => break,
            length => hash.update(part.get(..length).unwrap_or_default()),
        }
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}
