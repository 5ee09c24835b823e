//! Waiting for what a cluster will do, with a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// For what takes a plan, a launch and a scheduler's turn, or several of them. Ten times of what it takes on an idle
/// computer is not enough on a busy one, and a test that passes does not wait for it.
pub const DEADLINE: Duration = Duration::from_secs(120);

const BETWEEN_QUESTIONS: Duration = Duration::from_millis(150);
/// What has no answer by then is asked again: a connection may have died without a word.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Asks until the answer is `Ok`, and gives it. An error means "not yet", be it a wish unfulfilled or a server that is
/// down.
///
/// # Errors
/// The last answer, if none was `Ok` before the deadline.
pub async fn eventually<T, F>(what: &str, deadline: Duration, ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    answered(what, deadline, deadline.min(ANSWERED_WITHIN), ask).await
}

/// With the longest time that one question may take.
async fn answered<T, F>(what: &str, deadline: Duration, longest: Duration, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        match tokio::time::timeout(longest, ask()).await.unwrap_or_else(|_| Err(anyhow!("no answer"))) {
            Ok(value) => return Ok(value),
            Err(error) if started.elapsed() >= deadline => {
                return Err(error.context(format!("{what}: not within {} s", deadline.as_secs())));
            }
            Err(_) => tokio::time::sleep(BETWEEN_QUESTIONS).await,
        }
    }
}

/// Checks over and over that something stays true for a while: for what must *not* happen, where there is no event to
/// wait for.
///
/// # Errors
/// The first answer that is an error.
pub async fn stays<F>(what: &str, span: Duration, mut ask: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let started = Instant::now();
    while started.elapsed() < span {
        ask()
            .await
            .map_err(|error| error.context(format!("{what}: not so after {} ms", started.elapsed().as_millis())))?;
        tokio::time::sleep(BETWEEN_QUESTIONS).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::cell::Cell;

    #[tokio::test]
    async fn an_answer_that_becomes_right_is_given() -> Result<()> {
        let asked = Cell::new(0);
        let answer = eventually("counting", Duration::from_secs(10), async || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 {
                bail!("only {}", asked.get())
            }
            Ok(asked.get())
        });
        assert_eq!(answer.await?, 3);
        Ok(())
    }

    #[tokio::test]
    async fn a_deadline_that_passes_says_what_was_wrong_last() {
        let result = eventually::<(), _>("counting", Duration::ZERO, async || bail!("still one pod pending")).await;
        let text = format!("{:#}", result.expect_err("it never becomes true"));
        assert!(text.contains("counting") && text.contains("still one pod pending"), "{text}");
    }

    #[tokio::test]
    async fn a_question_that_hangs_is_asked_again() -> Result<()> {
        let asked = Cell::new(0);
        let answer = answered("counting", Duration::from_secs(60), Duration::from_millis(10), async || {
            asked.set(asked.get() + 1);
            if asked.get() == 1 {
                std::future::pending::<()>().await;
            }
            Ok(asked.get())
        });
        assert_eq!(answer.await?, 2);
        Ok(())
    }

    #[tokio::test]
    async fn what_stops_being_true_is_an_error() {
        let asked = Cell::new(0);
        let result = stays("counting", Duration::from_secs(10), async || {
            asked.set(asked.get() + 1);
            if asked.get() > 2 {
                bail!("a third time")
            }
            Ok(())
        });
        assert!(result.await.is_err());
    }
}
