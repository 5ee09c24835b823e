//! One request and its answer.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures::stream;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use serde_json::json;
use tokio::sync::mpsc;

use super::Shared;
use super::rule::{Ending, Fault, Point, Verb};

/// An answer's body: what comes out of [`Pump`].
pub(super) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// The API server's side of a connection.
pub(super) type Upstream = SendRequest<Full<Bytes>>;

/// Passes a request on, unless a rule strikes.
pub(super) async fn exchange(
    shared: &Arc<Shared>,
    upstream: &mut Upstream,
    request: Request<Incoming>,
) -> Result<Response<Body>, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = parts.uri.path().to_owned();
    let verb = Verb::of(&parts.method, parts.uri.query().unwrap_or_default());
    let what = format!("{} {}", parts.method, parts.uri);
    let fault = shared.strike(verb, &path, &what);
    match fault {
        Some(Fault::Hold(Point::Request)) => std::future::pending().await,
        Some(Fault::Refuse { code, retry_after, point: Point::Request }) => return refusal(code, retry_after),
        Some(Fault::Delay(ref span)) => {
            let delay = shared.random().time_within(span);
            tokio::time::sleep(delay).await;
        }
        _ => {}
    }
    upstream.ready().await.map_err(io::Error::other)?;
    let answer = upstream.send_request(Request::from_parts(parts, Full::new(body))).await.map_err(io::Error::other)?;
    let cut_after = match fault {
        Some(Fault::Hold(Point::Answer)) => {
            // The rest of it is read, so that the API server is done with it.
            let _ = answer.into_body().collect().await;
            return std::future::pending().await;
        }
        Some(Fault::Refuse { code, retry_after, point: Point::Answer }) => {
            answer.into_body().collect().await.map_err(io::Error::other)?;
            return refusal(code, retry_after);
        }
        Some(Fault::CutBody { after_bytes }) => Some(shared.random().within(&after_bytes)),
        _ => None,
    };
    let (head, body) = answer.into_parts();
    let (to, mut from) = mpsc::channel(4);
    let pump = Pump { shared: Arc::clone(shared), path, what, to, cut_after };
    if verb == Verb::Watch && head.status == StatusCode::OK {
        tokio::spawn(pump.watch(body));
    } else {
        tokio::spawn(pump.plain(body));
    }
    let frames = stream::poll_fn(move |context| from.poll_recv(context));
    Ok(Response::from_parts(head, BodyExt::boxed_unsync(StreamBody::new(frames))))
}

/// As the API server would say it.
fn status(code: u16) -> serde_json::Value {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "by the fault proxy", "reason": reason, "code": code,
    })
}

fn refusal(code: u16, retry_after: Option<u32>) -> Result<Response<Body>, io::Error> {
    let body = Full::new(Bytes::from(status(code).to_string())).map_err(|never: Infallible| match never {});
    let mut response = Response::new(BodyExt::boxed_unsync(body));
    *response.status_mut() = StatusCode::from_u16(code).map_err(io::Error::other)?;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

/// Carries a body from the API server to the client.
struct Pump {
    shared: Arc<Shared>,
    path: String,
    what: String,
    to: mpsc::Sender<Result<Frame<Bytes>, io::Error>>,
    cut_after: Option<u64>,
}

/// The body goes no further: it was cut, or the client went away.
struct Over;

impl Pump {
    async fn plain(mut self, mut body: Incoming) {
        loop {
            // A client that goes away ends the API server's work, too.
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = self.to.closed() => return,
            };
            let Some(frame) = frame else { break };
            if self.pass(frame).await.is_err() {
                return;
            }
        }
        if self.cut_after.is_some() {
            // Shorter than the cut was to come: its end is lost, at least.
            let _ = self.cut().await;
        }
    }

    async fn watch(mut self, mut body: Incoming) {
        let number = self.shared.next_watch();
        let mut rules = self.shared.changes.subscribe();
        // How the watch will end, since it lost an event.
        let mut lost: Option<Ending> = None;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = self.to.closed() => return,
                _ = rules.changed() => {
                    match lost {
                        Some(ending) if self.shared.loses_events(&self.path, number).is_none() => {
                            return self.end(ending).await;
                        }
                        _ => continue,
                    }
                }
            };
            let Some(frame) = frame else { break };
            let loses = self.shared.loses_events(&self.path, number);
            if let (Some(ending), None) = (loses, lost) {
                lost = Some(ending);
                self.shared.count(&Fault::LoseEvents(ending), &self.what);
            }
            match (lost, loses) {
                (Some(_), Some(_)) => {}
                (Some(ending), None) => return self.end(ending).await,
                (None, _) => {
                    if self.pass(frame).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn end(&self, ending: Ending) {
        if ending == Ending::Expired {
            let event = json!({ "type": "ERROR", "object": status(410) });
            let _ = self.to.send(Ok(Frame::data(Bytes::from(format!("{event}\n"))))).await;
        }
    }

    async fn pass(&mut self, frame: Result<Frame<Bytes>, hyper::Error>) -> Result<(), Over> {
        let frame = frame.map_err(io::Error::other);
        if let (Some(left), Ok(bytes)) = (self.cut_after, frame.as_ref().map(Frame::data_ref)) {
            let length = bytes.map_or(0, Bytes::len) as u64;
            if length >= left {
                let whole = bytes.cloned().unwrap_or_default();
                let first = whole.slice(..usize::try_from(left).unwrap_or(usize::MAX).min(whole.len()));
                self.to.send(Ok(Frame::data(first))).await.map_err(|_| Over)?;
                return self.cut().await;
            }
            self.cut_after = Some(left - length);
        }
        self.to.send(frame).await.map_err(|_| Over)
    }

    /// Breaks the connection once what came before is on its way.
    async fn cut(&self) -> Result<(), Over> {
        // hyper throws away what it has not flushed when the body fails.
        while self.to.capacity() < self.to.max_capacity() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(super::FLUSH).await;
        let _ = self.to.send(Err(io::ErrorKind::ConnectionReset.into())).await;
        Err(Over)
    }
}

/// A future that hyper's server can hold.
pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, io::Error>> + Send>>;
