//! Lets no process that we started outlive us.

use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};

/// Kills a process when we are gone without having stopped it, as by SIGKILL.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
    _alive: Option<ChildStdin>,
}

impl Watchdog {
    pub(crate) fn start(pid: u32) -> Result<Self> {
        // `read` returns when our end of the pipe closes.
        let mut shell = Command::new("sh")
            .args(["-c", "read -r _; kill -9 \"$1\" 2>/dev/null", "watchdog", &pid.to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .context("run sh")?;
        let alive = shell.stdin.take();
        Ok(Self { shell, _alive: alive })
    }

    pub(crate) fn dismiss(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
