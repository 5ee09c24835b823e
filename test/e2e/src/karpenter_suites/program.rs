//! A program beside the controller, which ends when we do.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::watchdog::Watchdog;

const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Killed when this is dropped.
pub(super) struct Program {
    child: Child,
    watchdog: Watchdog,
}

impl Program {
    /// Starts it; all that it writes goes to a log.
    pub(super) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("open {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("run {}", command.get_program().display()))?;
        let watchdog = Watchdog::start(child.id())?;
        Ok(Self { child, watchdog })
    }

    /// How it ended, if it has.
    pub(super) fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// How it ended; nothing if it still runs after this time.
    pub(super) async fn ended(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            match self.status()? {
                None if started.elapsed() < limit => tokio::time::sleep(BETWEEN_LOOKS).await,
                status => return Ok(status),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watchdog.dismiss();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn its_end_is_told_and_one_that_goes_on_is_killed_when_dropped() -> Result<()> {
        let folder = Scratch::new("program")?;
        let log = folder.path().join("program.log");
        let ended = Program::start(shell("echo said; exit 3"), &log)?.ended(Duration::from_secs(10)).await?;
        assert_eq!(ended.and_then(|status| status.code()), Some(3));
        assert_eq!(std::fs::read_to_string(&log)?, "said\n");

        let mut endless = Program::start(shell("exec sleep 1000"), &log)?;
        assert_eq!(endless.ended(Duration::ZERO).await?, None);
        let process = rustix::process::Pid::from_raw(i32::try_from(endless.child.id())?).context("a process id")?;
        drop(endless);
        assert!(rustix::process::test_kill_process(process).is_err(), "it runs on");
        Ok(())
    }
}
