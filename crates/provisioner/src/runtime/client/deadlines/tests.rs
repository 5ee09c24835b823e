use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use tower::{ServiceExt, service_fn};

use super::*;

/// A body that gives a piece now and then.
struct Drip {
    every: Duration,
    left: usize,
    timer: Pin<Box<Sleep>>,
}

impl Drip {
    fn new(every: Duration, left: usize) -> Self {
        Self { every, left, timer: Box::pin(tokio::time::sleep(every)) }
    }
}

impl HttpBody for Drip {
    type Data = &'static [u8];
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.left == 0 {
            // As a connection that has gone silent.
            return Poll::Pending;
        }
        ready!(self.timer.as_mut().poll(cx));
        let next = Instant::now() + self.every;
        self.timer.as_mut().reset(next);
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(b"x"))))
    }
}

fn request(method: Method, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(format!("https://server{path}")).body(Body::empty()).unwrap()
}

/// What comes of a request, and after how many seconds, if the first `hung` attempts are not answered and the others
/// with that body.
async fn ask(
    request: Request<Body>,
    hung: usize,
    every_s: u64,
    pieces: usize,
) -> (Result<usize, String>, u64, Timeouts) {
    let (timeouts, asked) = (Timeouts::default(), Arc::new(AtomicUsize::new(0)));
    let server = service_fn(move |_: Request<Body>| {
        let attempt = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            if attempt < hung {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(Response::new(Drip::new(Duration::from_secs(every_s), pieces)))
        }
    });
    let inner = AnswerDeadline { inner: server, timeouts: timeouts.clone() };
    let service = Deadlines { inner, timeouts: timeouts.clone() };
    let started = Instant::now();
    let read = async {
        let mut body = service.oneshot(request).await?.into_body();
        let mut read = 0;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            frame?;
            read += 1;
        }
        Ok::<_, BoxError>(read)
    };
    let result = read.await.map_err(|error| error.to_string());
    (result, started.elapsed().as_secs(), timeouts)
}

fn counted(timeouts: &Timeouts, verb: &str, resource: &str, phase: &str) -> u64 {
    let labels = TimeoutLabels { verb: verb.into(), resource: resource.into(), phase: phase.into() };
    timeouts.0.get_or_create(&labels).get()
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_fails_and_is_counted() {
    let (result, after_s, timeouts) = ask(request(Method::POST, "/api/v1/nodes"), 1, 1, 1).await;
    assert_eq!((result.unwrap_err().as_str(), after_s), ("the API server did not answer within 35s", 35));
    assert_eq!(counted(&timeouts, "create", "nodes", "answer"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_is_tried_once_more() {
    let (result, after_s, timeouts) = ask(request(Method::GET, "/api/v1/nodes/a"), 1, 1, 3).await;
    assert_eq!(counted(&timeouts, "get", "nodes", "answer"), 1);
    // The body stops after three pieces.
    assert_eq!((result.unwrap_err().as_str(), after_s), ("the API server's answer stopped for 10s", 5 + 3 + 10));
    assert_eq!(counted(&timeouts, "get", "nodes", "body"), 1);
    let (result, after_s, timeouts) = ask(request(Method::GET, "/api/v1/nodes/a"), 2, 1, 3).await;
    assert_eq!((result.unwrap_err().as_str(), after_s), ("the API server did not answer within 5s", 10));
    assert_eq!(counted(&timeouts, "get", "nodes", "answer"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_drips_ends_too() {
    let (result, after_s, timeouts) = ask(request(Method::GET, "/api/v1/nodes?limit=500"), 0, 9, 100).await;
    assert_eq!((result.unwrap_err().as_str(), after_s), ("the API server's answer was not complete within 60s", 60));
    assert_eq!(counted(&timeouts, "list", "nodes", "whole"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_quiet_until_the_server_would_have_ended_it_and_no_longer() {
    let watch = || request(Method::GET, "/api/v1/pods?watch=true&timeoutSeconds=28&allowWatchBookmarks=true");
    let (result, after_s, timeouts) = ask(watch(), 0, 27, 100).await;
    assert_eq!((result.is_err(), after_s), (true, 100 * 27 + 32), "however long it is, if it is not silent");
    assert_eq!(counted(&timeouts, "watch", "pods", "body"), 1);
    assert_eq!(ask(watch(), 0, 33, 1).await.1, 32);
}
