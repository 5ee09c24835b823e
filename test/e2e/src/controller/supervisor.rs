//! Keeps a controller running, as Kubernetes does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Controller, Options};

/// Kubernetes waits longer, and for ever longer. An API server that is away would else see one start after the other.
const BEFORE_RESTART: Duration = Duration::from_millis(300);
/// The code of a controller that gives up in good order: it has lost its Lease, or a part of it has ended.
const GAVE_UP: i32 = 1;

/// A controller that is started again whenever it ends. Only an orderly end is taken: one by a panic or a signal that
/// was not ours is an error.
#[derive(Debug)]
pub struct Supervisor {
    orders: mpsc::Sender<Order>,
    starts: Arc<AtomicUsize>,
    running: JoinHandle<Result<Ends>>,
}

/// How often it ended, and by whom.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ends {
    /// By [`Supervisor::kill`].
    pub killed: usize,
    /// By itself, in good order.
    pub by_itself: usize,
}

#[derive(Debug)]
enum Order {
    Kill,
    Stop,
}

impl Supervisor {
    /// Starts the controller.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let (orders, received) = mpsc::channel(1);
        let starts = Arc::<AtomicUsize>::default();
        let running = tokio::spawn(keep_running(options, received, Arc::clone(&starts)));
        Self { orders, starts, running }
    }

    /// Kills it as by SIGKILL; it is started again.
    ///
    /// # Errors
    /// If it cannot be, because it ended as it must not: [`Supervisor::stop`] says how.
    pub async fn kill(&self) -> Result<()> {
        self.orders.send(Order::Kill).await.context("the controller is not kept running")
    }

    /// How often it was started.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// Whether it has not ended as it must not so far; [`Supervisor::stop`] says how it did.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !self.running.is_finished()
    }

    /// Asks it to stop and waits for it.
    ///
    /// # Errors
    /// If it ended before as it must not, or ends so now.
    pub async fn stop(self) -> Result<Ends> {
        // Where nobody hears it, `running` has the reason.
        let _ = self.orders.send(Order::Stop).await;
        self.running.await.context("the supervisor")?
    }

    /// Waits until it ends as it must not.
    ///
    /// # Errors
    /// That end.
    pub async fn failed(self) -> Result<Ends> {
        self.running.await.context("the supervisor")?
    }
}

async fn keep_running(options: Options, mut orders: mpsc::Receiver<Order>, starts: Arc<AtomicUsize>) -> Result<Ends> {
    let mut ends = Ends::default();
    loop {
        let mut controller = Controller::start(&options)?;
        starts.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            status = controller.ended(Duration::MAX) => {
                let status = status?;
                ensure!(status.code() == Some(GAVE_UP), "the controller ended with {status}:\n{}", controller.log_end()?);
                ends.by_itself += 1;
            }
            order = orders.recv() => match order {
                Some(Order::Kill) => {
                    controller.kill()?;
                    controller.ensure_no_panic()?;
                    ends.killed += 1;
                }
                Some(Order::Stop) => {
                    controller.terminate().await?;
                    return Ok(ends);
                }
                None => return Ok(ends),
            },
        }
        tokio::time::sleep(BEFORE_RESTART).await;
    }
}
