//! Runs the tools that do the work, from the top of the repository.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

/// A command at the top of the repository.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(go_programs::repository()).stdin(Stdio::null());
    command
}

/// Cargo with the given arguments.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = go_programs::cargo();
    command.stdin(Stdio::null()).args(arguments);
    command
}

/// Runs a command whose output the user sees; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {}", describe(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", describe(command));
    }
    Ok(())
}

/// Runs a command and gives what it printed; its standard error goes to ours.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("run {}", describe(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", describe(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {}", describe(command)))
}

/// The command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Builds with Cargo and gives the path of the executable of that name. `arguments` select what is built.
pub(crate) fn build(arguments: &[&str], executable: &str) -> Result<PathBuf> {
    build_with(arguments, executable, &[])
}

/// Whether there is a program of this name, which tells its version when asked.
pub(crate) fn is_installed(program: &str) -> bool {
    command(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// As [`build`], with these variables in Cargo's environment.
pub(crate) fn build_with(arguments: &[&str], executable: &str, variables: &[(String, String)]) -> Result<PathBuf> {
    let mut command = cargo(["build", "--message-format=json-render-diagnostics"]);
    command.envs(variables.iter().cloned());
    build_by(command.args(arguments), executable)
}

/// Runs a build that tells in JSON what it made, and gives the path of the executable of that name.
pub(crate) fn build_by(command: &mut Command, executable: &str) -> Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    let messages = output(command)?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable);
    let wanted = |path: &PathBuf| path.file_stem().is_some_and(|name| name == executable);
    built.into_iter().find(wanted).with_context(|| format!("{} built no {executable}", describe(command)))
}

/// Does all jobs, each thread the next one that nobody has begun. The results are in the order of the jobs.
pub(crate) fn side_by_side<J: Send, T: Send>(jobs: Vec<J>, threads: usize, work: impl Fn(J) -> T + Sync) -> Vec<T> {
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let results = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, job)) = next() {
                    let result = work(job);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(index, result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Where Cargo puts what it builds.
pub(crate) fn target_folder() -> Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let text = output(&mut cargo(["metadata", "--no-deps", "--format-version=1"]))?;
    Ok(serde_json::from_str::<Metadata>(&text).context("read cargo metadata")?.target_directory)
}
