//! Deadlines of requests: until the answer begins, between two pieces of it, and for all of it.
//!
//! Nothing that is sent to the API server may wait for ever: a server that hangs, a connection that went silent and a
//! network that drops packets all end in an error here, which is counted. What only reads is sent once more, on another
//! connection; everything else is repeated by who wanted it, because only they know whether it was done already.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Service};

use super::requests::verb_and_resource;
use crate::runtime::metrics::{Metrics, TimeoutLabels};

/// How long a watch may stay silent beyond the time after which the API server ends it.
const WATCH_MARGIN: Duration = Duration::from_secs(4);
/// For a watch that does not say when it shall end.
const WATCH_DEFAULT_S: u64 = 300;

/// A deadline that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimedOut {
    /// No answer began.
    #[error("the API server did not answer within {0:?}")]
    Answer(Duration),
    /// The answer began and did not go on.
    #[error("the API server's answer stopped for {0:?}")]
    Body(Duration),
    /// All of it, retries that the server asked for included.
    #[error("the API server's answer was not complete within {0:?}")]
    Whole(Duration),
}

impl TimedOut {
    fn phase(self) -> &'static str {
        match self {
            Self::Answer(_) => "answer",
            Self::Body(_) => "body",
            Self::Whole(_) => "whole",
        }
    }
}

/// What a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    /// Until the head of the answer is there, for each attempt.
    answer: Duration,
    attempts: usize,
    /// Between two pieces of the answer.
    silence: Duration,
    /// All attempts and the whole answer. A watch is ended by the server.
    whole: Option<Duration>,
}

impl Limits {
    /// A read of one object. A second attempt costs less than a long wait.
    const GET: Self = Self { answer: seconds(5), attempts: 2, silence: seconds(10), whole: Some(seconds(60)) };
    /// A page of a list, which the server may read from etcd.
    const LIST: Self = Self { answer: seconds(15), ..Self::GET };
    /// The server may wait for its admission webhooks, each for up to 30 seconds. A second attempt is the caller's
    /// choice.
    const WRITE: Self = Self { answer: seconds(35), attempts: 1, ..Self::GET };

    fn of<B>(verb: &str, request: &Request<B>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let path = request.uri().path();
        match verb {
            "watch" => {
                let given = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="));
                let seconds = given.and_then(|it| it.parse().ok()).unwrap_or(WATCH_DEFAULT_S);
                Self { silence: Duration::from_secs(seconds) + WATCH_MARGIN, whole: None, ..Self::LIST }
            }
            "get" if path.starts_with("/api/") || path.starts_with("/apis/") => Self::GET,
            // What is no object may be large too, such as the API server's own metrics.
            "list" | "get" => Self::LIST,
            _ => Self::WRITE,
        }
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Counts deadlines that have passed.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeouts(Family<TimeoutLabels, Counter>);

impl Timeouts {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self(metrics.api_timeouts.clone())
    }
}

/// Whose deadline it is.
#[derive(Debug, Clone)]
struct Call {
    timeouts: Timeouts,
    verb: &'static str,
    resource: String,
}

impl Call {
    fn new<B>(timeouts: &Timeouts, request: &Request<B>) -> Self {
        let (verb, resource) = verb_and_resource(request.method(), request.uri());
        Self { timeouts: timeouts.clone(), verb, resource }
    }

    fn timed_out(&self, what: TimedOut) -> BoxError {
        let labels = TimeoutLabels {
            verb: self.verb.to_owned(),
            resource: self.resource.clone(),
            phase: what.phase().to_owned(),
        };
        self.timeouts.0.get_or_create(&labels).inc();
        what.into()
    }
}

/// Around the connections: each attempt is answered in time, or its connection is closed.
#[derive(Debug, Clone)]
pub(super) struct AnswerDeadline<S> {
    pub(super) inner: S,
    pub(super) timeouts: Timeouts,
}

impl<S, A> Service<Request<Body>> for AnswerDeadline<S>
where
    S: Service<Request<Body>, Response = Response<A>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::new(&self.timeouts, &request);
        let limits = Limits::of(call.verb, &request);
        let answer = self.inner.call(request);
        Box::pin(async move {
            match tokio::time::timeout(limits.answer, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(call.timed_out(TimedOut::Answer(limits.answer))),
            }
        })
    }
}

/// Around retries: the whole request ends in time, and what only reads is tried again.
#[derive(Debug, Clone)]
pub(super) struct Deadlines<S> {
    pub(super) inner: S,
    pub(super) timeouts: Timeouts,
}

impl<S, A> Service<Request<Body>> for Deadlines<S>
where
    S: Service<Request<Body>, Response = Response<A>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    A: HttpBody + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<Bounded<A>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::new(&self.timeouts, &request);
        let limits = Limits::of(call.verb, &request);
        // The clone takes the place of the one that is ready.
        let next = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            // A request may wait for its turn before it is first polled.
            let until = limits.whole.map(|whole| Instant::now() + whole);
            let answer = match (limits.whole, until) {
                (Some(whole), Some(until)) => {
                    match tokio::time::timeout_at(until, attempts(service, request, limits.attempts)).await {
                        Ok(answer) => answer,
                        Err(_) => Err(call.timed_out(TimedOut::Whole(whole))),
                    }
                }
                _ => attempts(service, request, limits.attempts).await,
            };
            Ok(answer?.map(|body| Bounded::new(body, call, limits, until)))
        })
    }
}

async fn attempts<S, A>(mut service: S, request: Request<Body>, attempts: usize) -> Result<Response<A>, BoxError>
where
    S: Service<Request<Body>, Response = Response<A>, Error = BoxError>,
{
    let mut request = Some(request);
    let mut left = attempts;
    loop {
        left = left.saturating_sub(1);
        let again = if left > 0 { request.as_ref().and_then(copy) } else { None };
        let Some(this) = std::mem::replace(&mut request, again) else {
            return Err("a request without attempts".into());
        };
        match service.call(this).await {
            Err(_) if request.is_some() => std::future::poll_fn(|cx| service.poll_ready(cx)).await?,
            answer => return answer,
        }
    }
}

fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

/// An answer's body that may not stop in the middle.
pub(super) struct Bounded<B> {
    body: Pin<Box<B>>,
    call: Call,
    limits: Limits,
    until: Option<Instant>,
    /// When the last piece came.
    heard: Instant,
    timer: Pin<Box<Sleep>>,
    is_over: bool,
}

impl<B> Bounded<B> {
    fn new(body: B, call: Call, limits: Limits, until: Option<Instant>) -> Self {
        let heard = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(due(heard, limits, until)));
        Self { body: Box::pin(body), call, limits, until, heard, timer, is_over: false }
    }

    /// Which deadline has passed. Pieces only note when they came; the timer is moved when it fires.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<TimedOut> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if let (Some(until), Some(whole)) = (self.until, self.limits.whole)
                && now >= until
            {
                return Poll::Ready(TimedOut::Whole(whole));
            }
            if now >= self.heard + self.limits.silence {
                return Poll::Ready(TimedOut::Body(self.limits.silence));
            }
            self.timer.as_mut().reset(due(self.heard, self.limits, self.until));
        }
    }
}

fn due(heard: Instant, limits: Limits, until: Option<Instant>) -> Instant {
    let silent = heard + limits.silence;
    until.map_or(silent, |until| until.min(silent))
}

impl<B> HttpBody for Bounded<B>
where
    B: HttpBody,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(cx) {
            self.heard = Instant::now();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let what = ready!(self.poll_deadline(cx));
        self.is_over = true;
        Poll::Ready(Some(Err(self.call.timed_out(what))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
