//! `go build`, with its progress made visible and its result put into the cache.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use crate::{Program, Target, cache, repository, sources};

/// Hears one line of text about what a build does now.
pub type Report<'a> = &'a dyn Fn(&str);

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither variable that names the user's cache folder is set.
    #[error("no cache folder: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoCacheFolder,
    /// A file could not be read or written.
    #[error("{action} {path}: {source}")]
    File {
        /// What was done with it.
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The Go command could not be run at all.
    #[error("cannot run `go`, which builds {program}: {source}; install Go (https://go.dev/dl)")]
    NoGo {
        /// The program to be built.
        program: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The Go command ran and failed.
    #[error("`go {command}` in {module} failed:\n{output}")]
    Go {
        /// Its first argument.
        command: &'static str,
        /// Where.
        module: &'static str,
        /// The end of what it wrote.
        output: String,
    },
}

/// Two tests of one process do not compete for the lock file, which on some systems belongs to the process.
static IN_THIS_PROCESS: Mutex<()> = Mutex::new(());

const BUILD_FLAGS: [&str; 1] = ["-ldflags=-s -w"];

pub(crate) fn build(program: &Program, report: Report<'_>) -> Result<PathBuf, Error> {
    let _this_process = IN_THIS_PROCESS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let module = repository().join(program.module);
    let folder = cache::folder().ok_or(Error::NoCacheFolder)?;
    fs::create_dir_all(&folder).map_err(file("create", &folder))?;

    let version = go(program, "version", &["version"], |_| ())?;
    let flags = BUILD_FLAGS.concat();
    let mut context = vec![version.trim(), &flags];
    match program.target {
        Target::Module => {}
        Target::Command(package) | Target::Tests(package) => context.push(package),
    }
    let hash = sources::hash(&module, &context).map_err(file("read", &module))?;
    let built = folder.join(format!("{}-{hash}{}", program.name, std::env::consts::EXE_SUFFIX));
    let lock = folder.join(format!("{}.lock", program.name));
    let _held = cache::lock(&lock, || report(&format!("waiting for another build of {}", program.name)))
        .map_err(file("lock", &lock))?;
    if !built.exists() {
        compile(program, &built, report)?;
    }
    // Both only keep the cache small; a program that was built is good without them.
    let _ = cache::touch(&built);
    let _ = cache::remove_unused(&folder, program.name, SystemTime::now());
    Ok(built)
}

fn compile(program: &Program, built: &Path, report: Report<'_>) -> Result<(), Error> {
    report(&format!("fetching the Go modules of {}", program.name));
    go(program, "mod download", &["mod", "download"], |_| ())?;
    let (command, how, package) = match program.target {
        Target::Module => ("build", "-v", "."),
        Target::Command(package) => ("build", "-v", package),
        // `-v` would be the tests' own there, so Go does not tell what it compiles.
        Target::Tests(package) => ("test", "-c", package),
    };
    let packages = go(program, "list", &["list", "-deps", package], |_| ())?.lines().count();

    let started = Instant::now();
    let partial = built.with_extension(format!("{}.partial", std::process::id()));
    let partial_text = partial.to_string_lossy();
    let mut arguments = vec![command, how, "-o", &partial_text];
    arguments.extend(BUILD_FLAGS);
    arguments.push(package);
    let result = go(program, command, &arguments, |compiled| {
        let seconds = started.elapsed().as_secs();
        report(&match compiled {
            0 => format!("compiling or linking {}, {seconds} s", program.name),
            _ => format!("compiling {}: {compiled} of at most {packages} packages, {seconds} s", program.name),
        });
    });
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result?;
    fs::rename(&partial, built).map_err(file("create", built))
}

pub(crate) fn folder_of_module(program: &Program, path: &str) -> Result<PathBuf, Error> {
    go(program, "mod download", &["mod", "download", path], |_| ())?;
    let folder = go(program, "list", &["list", "-m", "-f", "{{.Dir}}", path], |_| ())?;
    Ok(PathBuf::from(folder.trim()))
}

/// Runs Go in the module's folder and gives its standard output; `progress` gets the number of lines on standard error,
/// which for `build -v` are packages, each second.
fn go(program: &Program, command: &'static str, arguments: &[&str], progress: impl Fn(usize)) -> Result<String, Error> {
    let no_go = |source| Error::NoGo { program: program.name, source };
    let mut child = crate::go(&repository().join(program.module))
        .args(arguments)
        .envs(program.other_release.map(|release| ("GOFLAGS", release.go_flags())))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_go)?;
    let stdout = child.stdout.take().map(|pipe| thread::spawn(move || io::read_to_string(pipe)));
    let (sender, lines) = mpsc::channel();
    if let Some(pipe) = child.stderr.take() {
        thread::spawn(move || {
            BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
    }

    let mut written = Vec::new();
    let mut next_report = Instant::now() + Duration::from_secs(1);
    loop {
        match lines.recv_timeout(next_report.saturating_duration_since(Instant::now())) {
            Ok(line) => written.push(line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                progress(written.len());
                next_report = Instant::now() + Duration::from_secs(1);
            }
        }
    }
    let status = child.wait().map_err(no_go)?;
    let output = stdout.and_then(|reader| reader.join().ok()).and_then(Result::ok).unwrap_or_default();
    if status.success() {
        return Ok(output);
    }
    let end = written.split_off(written.len().saturating_sub(40)).join("\n");
    Err(Error::Go { command, module: program.module, output: end })
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}
