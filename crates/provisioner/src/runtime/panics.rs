//! Panics: what is told of them, and how one part of the program survives its own.
//!
//! The standard library writes a panic to the standard error as text, where no reader of JSON logs finds it. With the
//! hook of this module each becomes a log line with its message, its place and its backtrace. Whoever calls a function
//! through [`caught`] gets these instead, and tells them.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use tracing::error;

/// A panic, as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Panicked {
    /// What the panic says.
    pub message: String,
    /// File and line.
    pub place: String,
    /// The calls that led there.
    pub backtrace: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.message, self.place)
    }
}

thread_local! {
    /// How many calls of [`caught`] this thread is in, and the last panic there.
    static CAUGHT: RefCell<(u32, Option<Panicked>)> = const { RefCell::new((0, None)) };
}

static HOOK: Once = Once::new();

/// Makes panics of all threads log lines, from now on.
pub(crate) fn log_all() {
    HOOK.call_once(|| panic::set_hook(Box::new(hook)));
}

fn hook(info: &PanicHookInfo<'_>) {
    let panicked = Panicked {
        message: message(info.payload()),
        place: info.location().map(ToString::to_string).unwrap_or_default(),
        backtrace: Backtrace::force_capture().to_string(),
    };
    let is_caught = CAUGHT.with_borrow_mut(|(depth, last)| {
        let is_caught = *depth > 0;
        if is_caught {
            *last = Some(panicked.clone());
        }
        is_caught
    });
    if !is_caught {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or_default();
        let Panicked { message, place, backtrace } = &panicked;
        error!(thread, place, backtrace, "panicked: {message}");
    }
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "something that is no text".to_owned())
}

/// What `call` gives, or how it panicked. Nothing is logged of the panic. What the call has changed may be half done,
/// so it should change nothing that outlives it.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    log_all();
    CAUGHT.with_borrow_mut(|(depth, _)| *depth += 1);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    let last = CAUGHT.with_borrow_mut(|(depth, last)| {
        *depth -= 1;
        last.take()
    });
    result.map_err(|payload| {
        // Another hook than ours leaves no trace.
        let untold = || Panicked { message: message(&*payload), place: String::new(), backtrace: String::new() };
        last.unwrap_or_else(untold)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_is_caught_says_what_and_where_and_how_it_came_there() {
        let panicked = caught(|| -> u32 { panic!("no {}", "way") }).unwrap_err();
        assert_eq!(panicked.message, "no way");
        assert!(panicked.place.contains("panics.rs"), "{panicked}");
        assert!(panicked.backtrace.contains("panics"), "{}", panicked.backtrace);
        assert_eq!(caught(|| 1), Ok(1));
    }
}
