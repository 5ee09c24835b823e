//! A sign of life for whoever sits before a terminal while something takes long.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on standard error that moves, while standard error is a terminal; gone when dropped.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Says what is going on.
    pub(super) fn new(what: impl Into<String>) -> Self {
        // Drawn from the first tick on: what takes less shows nothing.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
            .with_style(ProgressStyle::default_spinner())
            .with_message(what.into());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    /// Says what is going on now.
    pub(super) fn now(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
