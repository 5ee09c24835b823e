//! An API server of one function, for tests of single calls and of what their failures lead to.

use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

/// Verbs and paths that were asked for, in order.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    pub(crate) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A client whose calls are answered with the status and body that `answer` has for `VERB path`; `None`: never.
pub(crate) fn client(answer: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static) -> (Client, Calls) {
    let calls = Calls::default();
    let (seen, answer) = (calls.clone(), Arc::new(answer));
    let service = service_fn(move |request: Request<Body>| {
        let call = format!("{} {}", request.method(), request.uri().path());
        seen.0.lock().push(call.clone());
        let answer = Arc::clone(&answer);
        async move {
            let Some((status, body)) = answer(&call) else { return std::future::pending().await };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(status).body(body)?)
        }
    });
    (Client::new(service, "default"), calls)
}

/// An answer that says no.
pub(crate) fn refused(code: u16, reason: &str) -> Option<(u16, Value)> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": format!("the server says {reason}"),
    });
    Some((code, status))
}
