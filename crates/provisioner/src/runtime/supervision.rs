//! Fail-stop: a task that panics or ends unexpectedly ends the process.
//!
//! Nothing would take over the work of such a task, and the state that it left is unknown; a new process begins with
//! the state of the API server. So every task that has to run as long as the process is started here, with a name that
//! the last line of the log shows. Reconcilers are different: if one panics, only its attempt has failed.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Where failures are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Supervision {
    failure: Arc<watch::Sender<Option<Box<str>>>>,
}

impl Default for Supervision {
    fn default() -> Self {
        Self { failure: Arc::new(watch::Sender::new(None)) }
    }
}

impl Supervision {
    /// Runs a task that is to end only after `stop`.
    pub fn endless<N: Into<Box<str>>, T: Future<Output = ()> + Send>(
        &self,
        name: N,
        stop: CancellationToken,
        task: T,
    ) -> impl Future<Output = ()> + Send + use<N, T> {
        let (supervision, name) = (self.clone(), name.into());
        async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) if stop.is_cancelled() => {}
                Ok(()) => supervision.fail(&format!("{name} ended by itself")),
                Err(panic) => supervision.fail(&format!("{name} panicked: {}", text(panic.as_ref()))),
            }
        }
    }

    /// Runs a task that ends when it is done; only its panic is a failure.
    pub fn finite<N: Into<Box<str>>, T: Future<Output = ()> + Send>(
        &self,
        name: N,
        task: T,
    ) -> impl Future<Output = ()> + Send + use<N, T> {
        let done = CancellationToken::new();
        done.cancel();
        self.endless(name, done, task)
    }

    /// Tells a failure. The first is the one that counts.
    pub fn fail(&self, failure: &str) {
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| failure.into());
            is_first
        });
    }

    /// Waits for a failure.
    pub async fn failed(&self) -> Box<str> {
        let mut failures = self.failure.subscribe();
        // The sender lives in self, so the channel cannot close while we wait.
        let failure = failures.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        failure.unwrap_or_default()
    }
}

/// What a panic said.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_ends_too_early_is_told_by_name_and_the_first_counts() {
        let supervision = Supervision::default();
        let stop = CancellationToken::new();
        stop.cancel();
        supervision.endless("stopped", stop, async {}).await;
        supervision.finite("done", async {}).await;
        assert!(supervision.failed().now_or_never().is_none());
        supervision.endless("watch of v1/pods", CancellationToken::new(), async { panic!("index {}", 3) }).await;
        supervision.endless("events", CancellationToken::new(), async {}).await;
        assert_eq!(&*supervision.failed().await, "watch of v1/pods panicked: index 3");
        let other = Supervision::default();
        other.endless("events", CancellationToken::new(), async {}).await;
        assert_eq!(&*other.failed().await, "events ended by itself");
        let other = Supervision::default();
        other.finite("a write", async { panic!("no") }).await;
        assert_eq!(&*other.failed().await, "a write panicked: no");
    }
}
