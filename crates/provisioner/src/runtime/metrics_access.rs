//! Who may read metrics with `--secure-metrics`: users that may `get` the path `/metrics` of the API server.
//!
//! A reader sends the token that it has for the API server. TokenReview says whose it is, SubjectAccessReview what that
//! user may do. Answers are remembered for a while, since metrics are read every few seconds. The calls have a rate of
//! their own: a reader with bad tokens must not slow the controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::runtime::client::RateLimit;

const PATH: &str = "/metrics";
/// Reviews a second, and at once.
const RATE: (u32, u32) = (10, 20);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer holds: a right that was taken away may be used that much longer.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const DENIED_FOR: Duration = Duration::from_secs(10);
/// Tokens whose answers are remembered.
const REMEMBERED: usize = 1_000;

/// What a reader may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// Nobody has that token.
    Unknown,
    /// Somebody who may not read metrics has.
    Forbidden,
}

impl Verdict {
    fn holds_for(self) -> Duration {
        match self {
            Self::Allowed => ALLOWED_FOR,
            Self::Unknown | Self::Forbidden => DENIED_FOR,
        }
    }
}

/// Asks the API server about readers.
pub(crate) struct Reviewer {
    client: Client,
    known: Mutex<BTreeMap<String, (Instant, Verdict)>>,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens are secrets.
        f.debug_struct("Reviewer").finish_non_exhaustive()
    }
}

impl Reviewer {
    /// With a client of its own.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub(crate) fn new(config: Config) -> anyhow::Result<Self> {
        let client = ClientBuilder::try_from(config)?.with_layer(&RateLimit::new(RATE.0, RATE.1)).build();
        Ok(Self { client, known: Mutex::default() })
    }

    /// The refusal of a request with those headers, if it is refused.
    pub(crate) async fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let Some(token) = bearer_token(headers) else { return Some(unauthorized("metrics need a bearer token")) };
        match self.verdict(token).await {
            Ok(Verdict::Allowed) => None,
            Ok(Verdict::Unknown) => Some(unauthorized("the token is not valid")),
            Ok(Verdict::Forbidden) => Some((StatusCode::FORBIDDEN, "may not get /metrics").into_response()),
            Err(error) => {
                warn!(error = format!("{error:#}"), "could not check who reads metrics");
                Some((StatusCode::SERVICE_UNAVAILABLE, "the API server does not answer").into_response())
            }
        }
    }

    async fn verdict(&self, token: &str) -> anyhow::Result<Verdict> {
        let now = Instant::now();
        let known = self.known.lock().get(token).copied();
        if let Some((_, verdict)) = known.filter(|(at, verdict)| now.duration_since(*at) < verdict.holds_for()) {
            return Ok(verdict);
        }
        let verdict = tokio::time::timeout(CALL_TIMEOUT, self.ask(token)).await.context("no answer in time")??;
        let mut known = self.known.lock();
        known.retain(|_, (at, verdict)| now.duration_since(*at) < verdict.holds_for());
        if known.len() < REMEMBERED {
            known.insert(token.to_owned(), (now, verdict));
        }
        Ok(verdict)
    }

    async fn ask(&self, token: &str) -> anyhow::Result<Verdict> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.context("cannot review a token")?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &access_review(user)).await;
        let status = review.context("cannot review an access")?.status.unwrap_or_default();
        Ok(if status.allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }
}

fn access_review(user: UserInfo) -> SubjectAccessReview {
    let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        resource_attributes: None,
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn unauthorized(why: &'static str) -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], why).into_response()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::to_bytes;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    /// An API server on which `good` is an allowed user's token, and `other` another's; it counts what it is asked.
    fn reviewer() -> (Reviewer, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let server = service_fn(move |request: Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut object: Value = serde_json::from_slice(&body).unwrap();
                object["status"] = match path.as_str() {
                    "/apis/authentication.k8s.io/v1/tokenreviews" => match object["spec"]["token"].as_str() {
                        Some("bad") => json!({"authenticated": false}),
                        Some(name) => json!({"authenticated": true, "user": {"username": name, "groups": ["g"]}}),
                        None => json!({"authenticated": false}),
                    },
                    _ => {
                        let asked = &object["spec"];
                        assert_eq!(asked["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
                        assert_eq!(asked["groups"], json!(["g"]));
                        json!({"allowed": asked["user"] == "good"})
                    }
                };
                let body = Body::from(serde_json::to_vec(&object).unwrap());
                Ok::<_, Infallible>(Response::builder().status(201).body(body).unwrap())
            }
        });
        (Reviewer { client: Client::new(server, "default"), known: Mutex::default() }, asked)
    }

    async fn status(reviewer: &Reviewer, authorization: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        match reviewer.refusal(&headers).await {
            None => 200,
            Some(refusal) => {
                let status = refusal.status();
                let body = to_bytes(refusal.into_body(), 1000).await.unwrap();
                assert!(!body.is_empty());
                status.as_u16()
            }
        }
    }

    #[tokio::test]
    async fn who_may_get_the_path_reads_metrics_and_nobody_else() {
        let (reviewer, _) = reviewer();
        for (authorization, expected) in [
            (None, 401),
            (Some("Basic Z29vZA=="), 401),
            (Some("Bearer "), 401),
            (Some("Bearer bad"), 401),
            (Some("Bearer other"), 403),
            (Some("Bearer good"), 200),
            (Some("bearer good"), 200),
        ] {
            assert_eq!(status(&reviewer, authorization).await, expected, "{authorization:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_hold_for_a_while_and_refusals_for_less() {
        let (reviewer, asked) = reviewer();
        let calls = async |authorization: &str| {
            let before = asked.load(Ordering::Relaxed);
            status(&reviewer, Some(authorization)).await;
            asked.load(Ordering::Relaxed) - before
        };
        assert_eq!((calls("Bearer good").await, calls("Bearer other").await), (2, 2));
        assert_eq!((calls("Bearer good").await, calls("Bearer other").await), (0, 0));
        tokio::time::advance(DENIED_FOR).await;
        assert_eq!((calls("Bearer good").await, calls("Bearer other").await), (0, 2));
        tokio::time::advance(ALLOWED_FOR).await;
        assert_eq!(calls("Bearer good").await, 2);
    }
}
