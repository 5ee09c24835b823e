//! A caller that ends between any two steps.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Counts the steps of whoever calls, and lets none end after the last. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Fuse(Arc<AtomicU64>);

impl Default for Fuse {
    /// One that never blows.
    fn default() -> Self {
        Self::after(u64::MAX)
    }
}

impl Fuse {
    /// One that blows after so many steps. A call has two: before it takes effect, and after.
    pub fn after(steps: u64) -> Self {
        Self(Arc::new(AtomicU64::new(steps)))
    }

    /// Whether it has blown.
    pub fn has_blown(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// One step: hands the processor back once, or for ever.
    pub(super) async fn step(&self) {
        let is_left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !is_left {
            pending::<()>().await;
        }
        let mut yielded = false;
        poll_fn(move |context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
