//! Lets writes through only while we lead.
//!
//! Innermost, around the connections: a request may have waited for its turn, or for what the server asked for.

use std::task::{Context, Poll};

use futures::future::{BoxFuture, ready};
use http::{Method, Request};
use tower::{BoxError, Service};

use crate::runtime::leader_election::Fence;

/// Asks the fence right before a write is sent.
#[derive(Debug, Clone)]
pub(super) struct Fenced<S> {
    pub(super) inner: S,
    pub(super) fence: Fence,
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.method() != Method::GET
            && let Err(refused) = self.fence.check()
        {
            return Box::pin(ready(Err(refused.into())));
        }
        let answer = self.inner.call(request);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_write_is_sent_only_while_we_lead_and_a_read_always() {
        let fence = Fence::closed();
        let server = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) });
        let service = Fenced { inner: server, fence: fence.clone() };
        let sent = async |method: Method| {
            let request = Request::builder().method(method).uri("https://server/api/v1/nodes/a").body(()).unwrap();
            service.clone().oneshot(request).await.map(drop).map_err(|error| error.to_string())
        };
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(sent(method).await.unwrap_err(), "not sent: this process does not lead (any more)");
        }
        assert_eq!(sent(Method::GET).await, Ok(()));
        fence.open();
        assert_eq!(sent(Method::DELETE).await, Ok(()));
    }
}
