//! What only the leader may do, it does behind this fence.
//!
//! A leader that could not renew its Lease ends its process, but a request that waited in a queue may be sent in
//! between, and a process that was stopped for a minute goes on where it was. So whoever changes something asks here
//! right before: `client::fenced` before each write to the API server, `metered_provider` before each call that makes
//! or ends a machine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What must be left of the leadership for a change to begin.
const MARGIN: Duration = Duration::from_secs(1);

/// We do not lead, or not for long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not lead (any more)")]
pub struct NotLeading;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tenure {
    /// Somebody else may lead.
    None,
    /// There is no leader election.
    Always,
    Until(Instant),
}

/// Says whether we lead. Cheap to clone and to ask.
#[derive(Clone)]
pub struct Fence(Arc<Mutex<Tenure>>);

impl Fence {
    /// Closed until the Lease is ours.
    pub fn closed() -> Self {
        Self(Arc::new(Mutex::new(Tenure::None)))
    }

    /// Open for ever, for who needs no leader.
    pub fn opened() -> Self {
        Self(Arc::new(Mutex::new(Tenure::Always)))
    }

    /// Always open: there is no leader election.
    pub fn open(&self) {
        *self.0.lock() = Tenure::Always;
    }

    /// Open until then.
    pub(super) fn open_until(&self, until: Instant) {
        *self.0.lock() = Tenure::Until(until);
    }

    /// Closed for ever, or until the Lease is ours again.
    pub fn close(&self) {
        *self.0.lock() = Tenure::None;
    }

    /// Whether we lead, and will for a moment.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<(), NotLeading> {
        match *self.0.lock() {
            Tenure::Always => Ok(()),
            Tenure::Until(until) if Instant::now() + MARGIN < until => Ok(()),
            Tenure::Until(_) | Tenure::None => Err(NotLeading),
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&*self.0.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_open_until_a_moment_before_the_leadership_ends() {
        let fence = Fence::closed();
        assert_eq!(fence.check(), Err(NotLeading));
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert_eq!(fence.check(), Ok(()));
        tokio::time::advance(Duration::from_millis(8_999)).await;
        assert_eq!(fence.check(), Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(fence.check(), Err(NotLeading));
        fence.open();
        assert_eq!(fence.check(), Ok(()));
        fence.close();
        assert_eq!(fence.check(), Err(NotLeading));
    }
}
