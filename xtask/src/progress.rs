//! Shows that something long is under way: a spinner on a terminal, plain lines elsewhere.

use std::cell::Cell;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two plain lines, so that a log of CI stays readable.
const PLAIN_INTERVAL: Duration = Duration::from_secs(20);

/// One long step. Nothing is shown before the first [`Progress::say`].
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    last_line: Cell<Option<Instant>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, last_line: Cell::new(None) }
    }

    /// Says what is being done now. Plain lines are thinned out.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.enable_steady_tick(Duration::from_millis(120));
                bar.set_message(text.to_owned());
            }
            None if self.last_line.get().is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL) => {
                self.last_line.set(Some(Instant::now()));
                eprintln!("{text}");
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
