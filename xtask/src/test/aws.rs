//! The adapter to AWS, on the wire: compiles it with the trimmed SDK, and runs its tests against `test/moto/serve.py`.
//!
//! The Python packages are installed once, into the user's cache folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::targets::{self, AWS};
use crate::image::Told;
use crate::process::command;
use crate::python::environment;

const SERVER: &str = "test/moto";

pub(crate) fn check(told: &Told) -> Result<()> {
    let started = Instant::now();
    targets::build(&AWS, told)?;
    println!("compiled in {:.0} s", started.elapsed().as_secs_f64());
    let server = Server::start(&environment("moto", "test/moto/requirements.txt")?)?;
    let address = format!("http://127.0.0.1:{}", server.port);
    let environment = [
        ("AWS_ENDPOINT_URL", address.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-that-no-log-may-have"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        // What a developer has set up is not asked.
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ];
    targets::run_with(&AWS, told, &environment)
}

/// The server, which ends with us: it reads our end of a pipe.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(python: &Path) -> Result<Self> {
        let mut serve: Command = command(&python.to_string_lossy());
        serve.arg(format!("{SERVER}/serve.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let log = crate::process::target_folder()?.join("moto.log");
        let log = fs::File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let mut process = serve.stderr(log).spawn().context("run the server")?;
        let output = process.stdout.take().context("the server's output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("read the server's port")?;
        ensure!(!line.is_empty(), "the server ended before it served; see moto.log in the target folder");
        let port = line.trim().parse().with_context(|| format!("the server's port {line:?}"))?;
        Ok(Self { process, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
