use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Frame;
use kube::Client;
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// What the API server answers: a status and lines of JSON. A watch that is `Held` says nothing more and does not end.
#[derive(Clone)]
enum Answer {
    Whole(u16, Vec<Value>),
    Held(Vec<Value>),
}

struct Lines(std::vec::IntoIter<Value>, bool);

impl http_body::Body for Lines {
    type Data = hyper::body::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
        match self.0.next() {
            Some(line) => Poll::Ready(Some(Ok(Frame::data(format!("{line}\n").into())))),
            None if self.1 => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

/// A follower of pods whose questions get these answers, and the questions.
fn follower(answers: Vec<Answer>) -> (Follower, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (questions, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers.into_iter())));
    let service = service_fn(move |request: Request<Body>| {
        questions.lock().push(request.uri().path_and_query().unwrap().to_string());
        let (status, lines, held) = match answers.lock().next().expect("no more questions") {
            Answer::Whole(status, lines) => (status, lines, false),
            Answer::Held(lines) => (200, lines, true),
        };
        async move {
            let answer = Response::builder().status(status).body(Lines(lines.into_iter(), held));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let pods = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let api = Api::all_with(Client::new(service, "default"), &pods);
    (Follower::new(api, Some("a=b")), asked)
}

fn pod(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn list(names: &[&str], version: u32, token: Option<&str>) -> Answer {
    let items: Vec<_> = names.iter().map(|name| pod(name, 1)).collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
    Answer::Whole(200, vec![json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items})])
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m", "reason": "r", "code": code})
}

/// An object that no parser of ours reads.
fn too_deep() -> Value {
    (0..200)
        .fold(pod("deep", 21), |inner, _| json!({"metadata": {"name": "deep", "resourceVersion": "21"}, "spec": inner}))
}

/// What is seen next, in short.
async fn next(follower: &mut Follower) -> String {
    let named = |what: &str, object: RawObject| format!("{what} {}", object.metadata.name.unwrap());
    match follower.next().await {
        Ok(Seen::ListBegan) => "began".to_owned(),
        Ok(Seen::Listed(object)) => named("listed", object),
        Ok(Seen::ListEnded) => "ended".to_owned(),
        Ok(Seen::Applied(object)) => named("applied", object),
        Ok(Seen::Deleted(object)) => named("deleted", object),
        Ok(Seen::Heard) => "heard".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

async fn expect(follower: &mut Follower, expected: &[&str]) {
    for expected in expected {
        assert_eq!(next(follower).await, *expected);
    }
}

/// From which resource version each watch began.
fn watched_from(asked: &Mutex<Vec<String>>) -> Vec<String> {
    let asked = asked.lock();
    let version =
        |uri: &String| uri.split(['?', '&']).find_map(|it| it.strip_prefix("resourceVersion=")).map(str::to_owned);
    asked.iter().filter(|uri| uri.contains("watch=true")).filter_map(version).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_the_last_event_or_bookmark_without_a_list() {
    let bookmark =
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "30", "creationTimestamp": null}});
    let (mut pods, asked) = follower(vec![
        list(&["a"], 10, Some("more")),
        list(&["b"], 10, None),
        Answer::Whole(200, vec![event("ADDED", pod("c", 11)), event("DELETED", pod("a", 12))]),
        Answer::Whole(200, vec![event("BOOKMARK", bookmark)]),
        Answer::Held(vec![event("MODIFIED", pod("c", 31))]),
    ]);
    expect(&mut pods, &["began", "listed a", "listed b", "ended", "heard", "applied c", "deleted a", "heard"]).await;
    expect(&mut pods, &["heard", "heard", "heard", "heard", "applied c"]).await;
    assert_eq!(watched_from(&asked), ["10", "12", "30"]);
    let asked = asked.lock();
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    for uri in asked.iter() {
        assert!(uri.contains("fieldSelector=a%3Db"), "{uri}");
        let seconds =
            uri.split('&').find_map(|it| it.strip_prefix("timeoutSeconds=")).map(|it| it.parse::<u64>().unwrap());
        assert_eq!(seconds.is_some_and(|it| WATCH_S.contains(&it)), uri.contains("watch=true"), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_the_next_question_goes_on_from_where_it_left_us() {
    let (mut pods, asked) = follower(vec![
        Answer::Whole(500, vec![status(500)]),
        list(&[], 10, None),
        Answer::Whole(500, vec![status(500)]),
        Answer::Whole(200, vec![event("ADDED", pod("a", 11)), event("ERROR", status(500))]),
        Answer::Whole(200, vec![event("ERROR", status(410))]),
        list(&["a"], 20, None),
        Answer::Held(vec![event("ADDED", too_deep()), event("ADDED", pod("b", 21))]),
    ]);
    expect(&mut pods, &["began", "cannot list", "began", "ended", "cannot watch", "heard", "applied a"]).await;
    expect(&mut pods, &["the API server ended the watch: m: r", "heard", "the watch expired: m: r"]).await;
    expect(&mut pods, &["began", "listed a", "ended", "heard", "cannot watch", "applied b"]).await;
    assert_eq!(watched_from(&asked), ["10", "10", "11", "20"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_a_failure() {
    let (mut pods, _) = follower(vec![list(&[], 10, None), Answer::Whole(200, Vec::new()), Answer::Held(Vec::new())]);
    expect(&mut pods, &["began", "ended", "heard", "the watch ended as soon as it had begun", "heard"]).await;
}
