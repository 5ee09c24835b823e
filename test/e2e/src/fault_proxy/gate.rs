//! One TCP connection from a client, which can go silent or break.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const OPEN: u8 = 0;
const SILENT: u8 = 1;
const BROKEN: u8 = 2;

/// What is known of a connection from outside of it.
#[derive(Debug)]
pub(super) struct Switch {
    state: AtomicU8,
    since: Instant,
    /// When bytes last passed, in milliseconds since the start.
    last_passed_ms: AtomicU64,
    /// Wake a task that waits for bytes, so that it sees that the connection broke.
    wakers: Mutex<[Option<Waker>; 2]>,
    /// The stream of a silent connection whose task is over. Closing it would tell the client.
    kept: Mutex<Option<TcpStream>>,
}

impl Switch {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(OPEN),
            since: Instant::now(),
            last_passed_ms: AtomicU64::new(0),
            wakers: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// Nothing passes from now on, in either direction; both ends think that it is open.
    pub(super) fn silence(&self) {
        let _ = self.state.compare_exchange(OPEN, SILENT, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// It ends, in the middle of whatever is under way.
    pub(super) fn cut(&self) {
        self.state.store(BROKEN, Ordering::SeqCst);
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OPEN
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    pub(super) fn idle(&self) -> Duration {
        let last = Duration::from_millis(self.last_passed_ms.load(Ordering::SeqCst));
        self.since.elapsed().saturating_sub(last)
    }

    fn passed(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_passed_ms.store(now, Ordering::SeqCst);
    }

    fn wake_by(&self, direction: usize, context: &Context<'_>) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers[direction] = Some(context.waker().clone());
    }

    fn check(&self) -> io::Result<()> {
        match self.state.load(Ordering::SeqCst) {
            BROKEN => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(()),
        }
    }
}

/// The stream behind its switch.
#[derive(Debug)]
pub(super) struct Gate {
    /// There until it is dropped.
    stream: Option<TcpStream>,
    switch: Arc<Switch>,
    /// Shared by all connections: those idle for so many milliseconds are forgotten, as a NAT does; 0 is never.
    idle_limit_ms: Arc<AtomicU64>,
}

impl Gate {
    pub(super) const fn new(stream: TcpStream, switch: Arc<Switch>, idle_limit_ms: Arc<AtomicU64>) -> Self {
        Self { stream: Some(stream), switch, idle_limit_ms }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Called when there is something to pass on: whether it may.
    fn forget_if_idle(&self) {
        let limit = self.idle_limit_ms.load(Ordering::SeqCst);
        if limit > 0 && self.switch.idle() > Duration::from_millis(limit) {
            self.switch.silence();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.switch.state.load(Ordering::SeqCst) == SILENT {
            *self.switch.kept.lock().unwrap_or_else(PoisonError::into_inner) = self.stream.take();
        }
    }
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.switch.wake_by(0, context);
        loop {
            self.switch.check()?;
            let before = into.filled().len();
            match self.stream()?.poll_read(context, into) {
                Poll::Ready(Ok(())) if into.filled().len() > before => {}
                other => return other,
            }
            self.forget_if_idle();
            if self.switch.is_open() {
                self.switch.passed();
                return Poll::Ready(Ok(()));
            }
            // The sender's system took it as sent; nobody gets it.
            into.set_filled(before);
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.switch.wake_by(1, context);
        self.switch.check()?;
        self.forget_if_idle();
        if !self.switch.is_open() {
            // Taken as sent, and lost, as a system takes what it will send over and over for a quarter of an hour.
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = self.stream()?.poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.switch.passed();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.switch.check()?;
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.switch.wake_by(1, context);
        self.switch.check()?;
        if !self.switch.is_open() {
            // Nor does the other end hear that it was closed.
            return Poll::Pending;
        }
        self.stream()?.poll_shutdown(context)
    }
}
